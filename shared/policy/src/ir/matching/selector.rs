//! Label selectors, with Kyverno's wildcards in `matchLabels`.

use anteroom_functions::wildcard;
use serde_json::{Map, Value};

/// A label selector: every requirement must hold.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    /// Key and value; wildcards in either mean that some label matches both.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) requirements: Vec<Requirement>,
}

/// One of `matchExpressions`; no wildcards here.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: SetOperator,
    pub(crate) values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl SetOperator {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }

    /// Returns whether it takes values.
    pub(crate) fn takes_values(self) -> bool {
        matches!(self, Self::In | Self::NotIn)
    }
}

impl Selector {
    /// `labels` is an object's `metadata.labels`, if it has any.
    pub(crate) fn matches(&self, labels: Option<&Value>) -> bool {
        let empty = Map::new();
        let labels = labels.and_then(Value::as_object).unwrap_or(&empty);
        self.labels
            .iter()
            .all(|(key, value)| has_label(labels, key, value))
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.holds(labels))
    }

    /// Returns it in the API server's syntax, which has no wildcards.
    pub(crate) fn to_text(&self) -> String {
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| format!("{key}={value}"));
        let all: Vec<_> = labels
            .chain(self.requirements.iter().map(Requirement::to_text))
            .collect();
        all.join(",")
    }
}

fn has_label(labels: &Map<String, Value>, key: &str, value: &str) -> bool {
    if !wildcard::has_wildcard(key) && !wildcard::has_wildcard(value) {
        return labels.get(key).and_then(Value::as_str) == Some(value);
    }
    labels.iter().any(|(name, found)| {
        wildcard::matches(key, name)
            && found
                .as_str()
                .is_some_and(|found| wildcard::matches(value, found))
    })
}

impl Requirement {
    fn to_text(&self) -> String {
        let (key, values) = (&self.key, self.values.join(", "));
        match self.operator {
            SetOperator::In => format!("{key} in ({values})"),
            SetOperator::NotIn => format!("{key} notin ({values})"),
            SetOperator::Exists => key.clone(),
            SetOperator::DoesNotExist => format!("!{key}"),
        }
    }

    fn holds(&self, labels: &Map<String, Value>) -> bool {
        let found = labels.get(&self.key).and_then(Value::as_str);
        let among = || found.is_some_and(|found| self.values.iter().any(|value| value == found));
        match self.operator {
            SetOperator::In => among(),
            SetOperator::NotIn => !among(),
            SetOperator::Exists => found.is_some(),
            SetOperator::DoesNotExist => found.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn by_label(key: &str, value: &str) -> Selector {
        Selector {
            labels: vec![(key.to_owned(), value.to_owned())],
            requirements: vec![],
        }
    }

    fn by_set(operator: SetOperator, values: &[&str]) -> Selector {
        Selector {
            labels: vec![],
            requirements: vec![Requirement {
                key: "tier".to_owned(),
                operator,
                values: values.iter().map(|&value| value.to_owned()).collect(),
            }],
        }
    }

    #[test]
    fn labels_match_whole_or_by_wildcard() {
        let labels = json!({"app.kubernetes.io/name": "web", "tier": "front"});
        for (key, value, matches) in [
            ("tier", "front", true),
            ("tier", "f", false),
            ("tier", "f*", true),
            ("app.*/name", "w?b", true),
            ("app.*/name", "web", true),
            ("app.*/name", "front", false),
            ("*", "*", true),
            ("missing", "*", false),
        ] {
            assert_eq!(
                by_label(key, value).matches(Some(&labels)),
                matches,
                "{key}={value}"
            );
        }
        assert!(!by_label("*", "*").matches(None));
        assert!(Selector::default().matches(None));
    }

    #[test]
    fn every_operator_of_a_requirement_is_known_by_its_name() {
        for (text, operator) in [
            ("In", Some(SetOperator::In)),
            ("NotIn", Some(SetOperator::NotIn)),
            ("Exists", Some(SetOperator::Exists)),
            ("DoesNotExist", Some(SetOperator::DoesNotExist)),
            ("Gt", None),
        ] {
            assert_eq!(SetOperator::parse(text), operator, "{text}");
        }
    }

    #[test]
    fn expressions_follow_the_api_server() {
        let labelled = json!({"tier": "front"});
        for (selector, labelled_matches, bare_matches) in [
            (by_set(SetOperator::In, &["front", "back"]), true, false),
            (by_set(SetOperator::In, &["back"]), false, false),
            (by_set(SetOperator::NotIn, &["front"]), false, true),
            (by_set(SetOperator::NotIn, &["back"]), true, true),
            (by_set(SetOperator::Exists, &[]), true, false),
            (by_set(SetOperator::DoesNotExist, &[]), false, true),
        ] {
            assert_eq!(
                selector.matches(Some(&labelled)),
                labelled_matches,
                "{selector:?}"
            );
            assert_eq!(selector.matches(None), bare_matches, "{selector:?}");
        }
    }
}
