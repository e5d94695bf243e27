//! Selectors, as the API server reads them: what of a wider collection a view holds.
//!
//! Labels: `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin (a,b)`, `k`, `!k`, and `k>n`, `k<n`; the
//! negative ones hold of an object without the label. Fields: `metadata.name` and
//! `metadata.namespace` with `=`, `==` and `!=`. What cannot be read here is left to the API server.

use std::collections::HashMap;

use anteroom_model::ObjectKey;
use serde::Deserialize;

/// A conjunction of requirements on labels. Empty, everything is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

/// A conjunction of requirements on name and namespace. Empty, everything is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<Field>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    of_name: bool,
    equal: bool,
    value: String,
}

impl Labels {
    /// `None` where this is no selector that is understood here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts = split(text)?;
        parts
            .into_iter()
            .map(requirement)
            .collect::<Option<_>>()
            .map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn hold(&self, labels: &HashMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Above(than) => number().is_some_and(|number| number > *than),
                Test::Below(than) => number().is_some_and(|number| number < *than),
            }
        })
    }
}

impl Fields {
    /// `None` where the selector is about other fields than name and namespace, or is not understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let terms = text.split(',').filter(|term| !term.is_empty());
        terms.map(field).collect::<Option<_>>().map(Self)
    }

    pub(super) fn hold(&self, key: &ObjectKey) -> bool {
        self.0.iter().all(|field| {
            let found = if field.of_name {
                &key.name
            } else {
                &key.namespace
            };
            (**found == *field.value) == field.equal
        })
    }

    /// The one name that is selected, if it is one.
    pub(super) fn name(&self) -> Option<&str> {
        let mut named = self.0.iter().filter(|field| field.of_name && field.equal);
        named.next().map(|field| field.value.as_str())
    }

    /// The one namespace that is selected, if it is one.
    pub(super) fn namespace(&self) -> Option<&str> {
        let mut named = self.0.iter().filter(|field| !field.of_name && field.equal);
        named.next().map(|field| field.value.as_str())
    }
}

/// The labels of an object; none where they cannot be read, as of a malformed object.
pub(super) fn labels_of(json: &[u8]) -> HashMap<String, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        labels: Option<HashMap<String, String>>,
    }
    let object = serde_json::from_slice::<Object>(json).ok();
    object
        .and_then(|object| object.metadata.labels)
        .unwrap_or_default()
}

/// At commas outside of parentheses.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut inside, mut start) = (Vec::new(), false, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' if inside => return None,
            ')' if !inside => return None,
            '(' | ')' => inside = c == '(',
            ',' if !inside => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    (!inside).then_some(parts)
}

fn requirement(text: &str) -> Option<Requirement> {
    let of = |key: &str, test| {
        let key = key.trim();
        is_key(key).then(|| Requirement {
            key: key.into(),
            test,
        })
    };
    if let Some(key) = text.strip_prefix('!') {
        return of(key, Test::Absent);
    }
    if let Some((head, values)) = text.split_once('(') {
        let values = values.trim_end().strip_suffix(')')?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().into()).collect();
        if !values.iter().all(|value| is_value(value)) {
            return None;
        }
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => of(key, Test::In(values)),
            "notin" => of(key, Test::NotIn(values)),
            _ => None,
        };
    }
    for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = text.split_once(operator) {
            let value = value.trim();
            if !is_value(value) {
                return None;
            }
            let values = vec![value.to_owned()];
            return of(
                key,
                if equal {
                    Test::In(values)
                } else {
                    Test::NotIn(values)
                },
            );
        }
    }
    if let Some((key, value)) = text.split_once('>') {
        return of(key, Test::Above(value.trim().parse().ok()?));
    }
    if let Some((key, value)) = text.split_once('<') {
        return of(key, Test::Below(value.trim().parse().ok()?));
    }
    of(text, Test::Exists)
}

fn field(term: &str) -> Option<Field> {
    // A backslash escapes what follows it: left to the API server.
    if term.contains('\\') {
        return None;
    }
    let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
        (path, false, value)
    } else if let Some((path, value)) = term.split_once("==") {
        (path, true, value)
    } else {
        let (path, value) = term.split_once('=')?;
        (path, true, value)
    };
    let of_name = match path.trim() {
        "metadata.name" => true,
        "metadata.namespace" => false,
        _ => return None,
    };
    let value = value.trim().to_owned();
    let plain = value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
    (plain && !value.is_empty()).then_some(Field {
        of_name,
        equal,
        value,
    })
}

fn is_key(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    !text.is_empty() && text.bytes().all(plain)
}

fn is_value(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.len() <= 63 && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn labels_are_selected_as_the_api_server_selects_them() {
        let web = labels(&[("app", "web"), ("n", "5"), ("a.b/c", "")]);
        for (selector, holds) in [
            ("", true),
            ("app=web", true),
            ("app == web", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (db, web)", true),
            ("app in (db)", false),
            ("other in (db)", false),
            ("app notin (db,web)", false),
            ("other notin (db)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("a.b/c=", true),
            ("a.b/c", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>4", false),
            ("app=web,!app", false),
            ("app in (web),n=5", true),
        ] {
            let parsed = Labels::parse(selector).unwrap();
            assert_eq!(parsed.hold(&web), holds, "{selector}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_to_the_api_server() {
        for bad in [
            "a like b",
            "a in b",
            "a in (b",
            "a)",
            "=b",
            "a=b=c",
            "a b",
            "a>x",
            "a=b c",
            "a in ((b))",
        ] {
            assert_eq!(Labels::parse(bad), None, "{bad}");
        }
        for bad in [
            "spec.nodeName=a",
            "metadata.name",
            "metadata.name=a\\,b",
            "metadata.name=",
        ] {
            assert_eq!(Fields::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_and_namespaces_are_fields() {
        let key = ObjectKey::new("n", "a");
        for (selector, holds) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("metadata.namespace==n,metadata.name=b", false),
            ("metadata.namespace!=m", true),
        ] {
            assert_eq!(
                Fields::parse(selector).unwrap().hold(&key),
                holds,
                "{selector}"
            );
        }
        let fields = Fields::parse("metadata.name=a,metadata.namespace=n").unwrap();
        assert_eq!((fields.name(), fields.namespace()), (Some("a"), Some("n")));
    }

    #[test]
    fn labels_of_an_object_without_any_are_none() {
        assert!(labels_of(br#"{"metadata":{"labels":null}}"#).is_empty());
        assert!(labels_of(b"17").is_empty());
        assert_eq!(
            labels_of(br#"{"metadata":{"labels":{"a":"b"}}}"#),
            labels(&[("a", "b")])
        );
    }
}
