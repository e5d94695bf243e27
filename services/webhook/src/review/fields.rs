//! The fields of a request as text, and the fields that are read for every review.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Fields that a request usually has, and some more.
const FIELDS: usize = 16;

/// The fields of a request by name, in their order; each once.
#[derive(Debug)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        let fields = self.0.iter();
        fields.map(|(name, text)| (&**name, text.get()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(All)
    }
}

struct All;

impl<'de> Visitor<'de> for All {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields: Vec<(Cow<'de, str>, _)> = Vec::with_capacity(FIELDS);
        while let Some((Name(name), text)) = map.next_entry()? {
            // Which of the two would be meant?
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            fields.push((name, text));
        }
        Ok(Fields(fields))
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The parts of a request that are read for every review.
#[derive(Debug, Default)]
pub(crate) struct ReviewHead<'a> {
    /// The id that the answer repeats.
    pub(crate) uid: Cow<'a, str>,
    /// The object's kind, converted to the version that the webhook is registered for.
    pub(crate) kind: RequestKind<'a>,
    /// The resource that is accessed.
    pub(crate) resource: RequestResource<'a>,
    /// The subresource, as in `status`; empty for the resource itself.
    pub(crate) sub_resource: Cow<'a, str>,
    /// Empty where the API server is to make one.
    pub(crate) name: Cow<'a, str>,
    /// The namespace; empty for a cluster-scoped object.
    pub(crate) namespace: Cow<'a, str>,
    pub(super) operation: Cow<'a, str>,
    /// The JSON of the objects; empty if there is none.
    pub(super) object: &'a str,
    pub(super) old_object: &'a str,
}

/// Group, version and kind.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RequestKind<'a> {
    /// Empty for the core group.
    #[serde(borrow, default)]
    pub(crate) group: Cow<'a, str>,
    /// The version, as in `v1`.
    #[serde(borrow, default)]
    pub(crate) version: Cow<'a, str>,
    /// The kind, as in `Ingress`.
    #[serde(borrow, default)]
    pub(crate) kind: Cow<'a, str>,
}

/// Group, version and plural.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RequestResource<'a> {
    /// Empty for the core group.
    #[serde(borrow, default)]
    pub(crate) group: Cow<'a, str>,
    /// The version, as in `v1`.
    #[serde(borrow, default)]
    pub(crate) version: Cow<'a, str>,
    /// The plural, as in `ingresses`.
    #[serde(borrow, default)]
    pub(crate) resource: Cow<'a, str>,
}

/// The user who makes a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct User<'a> {
    /// The name, as in `system:serviceaccount:ci:runner`.
    #[serde(borrow)]
    pub(crate) username: Cow<'a, str>,
    /// The groups, as in `system:nodes`.
    pub(crate) groups: Vec<String>,
}

impl<'a> ReviewHead<'a> {
    pub(super) fn of(fields: &Fields<'a>) -> serde_json::Result<Self> {
        let mut head = Self::default();
        for (name, text) in fields.iter() {
            match name {
                "uid" => head.uid = string(text)?,
                "kind" => head.kind = serde_json::from_str(text)?,
                "resource" => head.resource = serde_json::from_str(text)?,
                "subResource" => head.sub_resource = string(text)?,
                "name" => head.name = string(text)?,
                "namespace" => head.namespace = string(text)?,
                "operation" => head.operation = string(text)?,
                "object" => head.object = text,
                "oldObject" => head.old_object = text,
                _ => {}
            }
        }
        Ok(head)
    }
}

impl ReviewHead<'_> {
    /// Returns the object's JSON; empty if there is none.
    pub(crate) fn object(&self) -> &str {
        self.object
    }
}

fn string(text: &str) -> serde_json::Result<Cow<'_, str>> {
    let Name(string) = serde_json::from_str(text)?;
    Ok(string)
}
