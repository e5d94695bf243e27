//! Label and field selectors: what of a collection a request means.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

use crate::{object::Stored, resource::ResourceType, status::Failure};

/// The part of a collection that a request means. Empty fields select everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also true of an object without the label.
    NotIn(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

impl Selection {
    /// Reads the selectors of a request for `resource`.
    pub(crate) fn parse(
        resource: &ResourceType,
        namespace: Option<String>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Failure> {
        Ok(Self {
            namespace,
            labels: parse_labels(labels)?,
            fields: parse_fields(resource, fields)?,
        })
    }

    /// Returns true if selectors narrow the collection further than the namespace does.
    pub(crate) fn is_narrowed(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        let in_namespace = self
            .namespace
            .as_deref()
            .is_none_or(|namespace| namespace == &*object.namespace);
        in_namespace
            && (self.labels.is_empty() || self.labels_match(object))
            && (self.fields.is_empty() || self.fields_match(object))
    }

    fn labels_match(&self, object: &Stored) -> bool {
        let labels = labels_of(&object.body);
        self.labels
            .iter()
            .all(|requirement| requirement.holds(&labels))
    }

    fn fields_match(&self, object: &Stored) -> bool {
        // Only a selector on neither name nor namespace needs the body.
        let mut body = None;
        self.fields.iter().all(|term| {
            let equal = match term.path.as_str() {
                "metadata.name" => term.value == *object.name,
                "metadata.namespace" => term.value == *object.namespace,
                path => {
                    let body = body.get_or_insert_with(|| object.parse().unwrap_or_default());
                    term.value == field(body, path)
                }
            };
            equal == term.equal
        })
    }
}

/// The field at a dotted path, as text; an absent one is empty.
fn field<'a>(body: &'a Value, path: &str) -> &'a str {
    path.split('.')
        .try_fold(body, |value, step| value.get(step))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn labels_of(body: &[u8]) -> BTreeMap<String, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
    }
    // A malformed object has no labels.
    let object = serde_json::from_slice::<Object>(body).ok();
    object
        .and_then(|object| object.metadata.labels)
        .unwrap_or_default()
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    let terms = split_terms(text);
    terms
        .into_iter()
        .map(|term| parse_requirement(term.trim()))
        .collect()
}

/// Splits at the commas that stand outside parentheses; an empty text has no terms.
fn split_terms(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    if text.trim().is_empty() {
        Vec::new()
    } else {
        text.split(outside).collect()
    }
}

fn parse_requirement(term: &str) -> Result<Requirement, Failure> {
    let unreadable = || {
        Failure::bad_request(format!(
            "unable to parse requirement: {term:?} is no label requirement"
        ))
    };
    let requirement = |key: &str, test: Test| {
        let key = key.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if key.is_empty() || !key.chars().all(plain) {
            return Err(unreadable());
        }
        Ok(Requirement {
            key: key.to_owned(),
            test,
        })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(set) = term.strip_suffix(')') {
        let (head, values) = set.split_once('(').ok_or_else(unreadable)?;
        let values = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let (key, operator) = head
            .trim()
            .rsplit_once(char::is_whitespace)
            .ok_or_else(unreadable)?;
        return match operator {
            "in" => requirement(key, Test::In(values)),
            "notin" => requirement(key, Test::NotIn(values)),
            _ => Err(unreadable()),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return requirement(key, Test::NotIn(one(value)));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return requirement(key, Test::In(one(value)));
    }
    match term.strip_prefix('!') {
        Some(key) => requirement(key, Test::Absent),
        None => requirement(term, Test::Exists),
    }
}

fn parse_fields(resource: &ResourceType, text: &str) -> Result<Vec<FieldTerm>, Failure> {
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms.map(|term| parse_field(resource, term)).collect()
}

fn parse_field(resource: &ResourceType, term: &str) -> Result<FieldTerm, Failure> {
    let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (path, value, true)
    } else {
        let message = format!("invalid selector: {term:?}: an operator is missing");
        return Err(Failure::bad_request(message));
    };
    if !resource.selects_by(path) {
        return Err(Failure::bad_request(format!(
            "field label not supported: {path}"
        )));
    }
    Ok(FieldTerm {
        path: path.to_owned(),
        value: value.to_owned(),
        equal,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::built_in;

    fn resource(plural: &str) -> ResourceType {
        built_in()
            .find(|resource| resource.plural == plural)
            .unwrap()
    }

    fn object(namespace: &str, name: &str, labels: &Value) -> Stored {
        let body = json!({"metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {"nodeName": "n1"}});
        Stored::new(namespace, name, 1, body.to_string().into())
    }

    #[test]
    fn labels_select_as_kubernetes_does() {
        let labels = json!({"app": "web", "tier": "front", "a.dev/x": ""});
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!none", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app = web , tier != back", true),
            ("none!=x", true),
            ("app in (web, api)", true),
            ("app in (api),tier", false),
            ("app notin (web)", false),
            ("none notin (x,y)", true),
            ("a.dev/x=", true),
        ] {
            let selection = Selection::parse(&resource("pods"), None, selector, "").unwrap();
            assert_eq!(
                selection.matches(&object("n", "p", &labels)),
                expected,
                "{selector}"
            );
        }
    }

    #[test]
    fn unreadable_selectors_are_refused() {
        for selector in [
            "app web",
            "app in web",
            "app within (a)",
            "=x",
            "in (a)",
            "a,,b",
        ] {
            let parsed = Selection::parse(&resource("pods"), None, selector, "");
            assert_eq!(parsed.unwrap_err().code, 400, "{selector}");
        }
        for selector in ["metadata.name", "spec.replicas=1"] {
            let parsed = Selection::parse(&resource("pods"), None, "", selector);
            assert_eq!(parsed.unwrap_err().code, 400, "{selector}");
        }
    }

    #[test]
    fn fields_and_namespaces_select() {
        let pod = object("n", "p", &Value::Null);
        for (namespace, fields, expected) in [
            (None, "metadata.name=p", true),
            (Some("n"), "metadata.name!=p", false),
            (Some("m"), "", false),
            (None, "metadata.namespace=n,spec.nodeName=n1", true),
            (None, "status.phase=Running", false),
        ] {
            let namespace = namespace.map(str::to_owned);
            let selection = Selection::parse(&resource("pods"), namespace, "", fields).unwrap();
            assert_eq!(selection.matches(&pod), expected, "{fields}");
        }
    }
}
