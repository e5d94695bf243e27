//! Patterns and patches, whose texts may refer to their own place in the document.
//!
//! `{{ @ }}` stands for the object's value at the place of the text. `$(…)` stands for another text of the same
//! pattern, named by an absolute path or by a path relative to the text: `$(./../name)` is the sibling `name`. Both
//! are known before a request comes: `{{ @ }}` becomes an expression, and the text replaces `$(…)`.

use anteroom_functions::values;
use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{TEXT_BYTES_MAX, TemplateProblem, ValueTemplate};
use crate::ir::cost;

/// The most references of one document; more are a problem.
pub(crate) const REFERENCES_MAX: usize = 256;

/// Operators that may stand before a reference's path, and then before its value.
const OPERATORS: &[&str] = &[">=", "<=", ">", "<", "!"];

impl ValueTemplate {
    /// Parses a pattern or a patch; `about` is the expression of the value that it is compared with.
    pub(crate) fn parse_document(document: &Value, about: &str) -> Result<Self, TemplateProblem> {
        let mut made = TemplateDocument {
            whole: document,
            references: 0,
            grown: 0,
        };
        let mut place = TextPath {
            steps: Vec::new(),
            about,
        };
        Self::parse(&made.value(document, &mut place)?)
    }
}

struct TemplateDocument<'d> {
    whole: &'d Value,
    references: usize,
    /// The bytes of texts that have replaced references.
    grown: usize,
}

/// The path of a text in its document.
struct TextPath<'d> {
    steps: Vec<PathSegment<'d>>,
    about: &'d str,
}

#[derive(Clone, Debug, PartialEq)]
enum PathSegment<'d> {
    /// A field of an object, without its anchor.
    Key(&'d str),
    Index(usize),
}

impl<'d> TemplateDocument<'d> {
    fn value(
        &mut self,
        value: &'d Value,
        place: &mut TextPath<'d>,
    ) -> Result<Value, TemplateProblem> {
        Ok(match value {
            Value::String(text) => return self.text(text, place),
            Value::Array(elements) => {
                let mut made = Vec::with_capacity(elements.len());
                for (at, element) in elements.iter().enumerate() {
                    made.push(self.within(PathSegment::Index(at), element, place)?);
                }
                Value::Array(made)
            }
            Value::Object(entries) => {
                let mut made = Map::new();
                for (key, value) in entries {
                    let step = PathSegment::Key(bare(key));
                    made.insert(key.clone(), self.within(step, value, place)?);
                }
                Value::Object(made)
            }
            scalar => scalar.clone(),
        })
    }

    fn within(
        &mut self,
        step: PathSegment<'d>,
        value: &'d Value,
        place: &mut TextPath<'d>,
    ) -> Result<Value, TemplateProblem> {
        place.steps.push(step);
        let made = self.value(value, place);
        place.steps.pop();
        made
    }

    fn text(&mut self, text: &str, place: &TextPath<'_>) -> Result<Value, TemplateProblem> {
        let mut made = String::new();
        let mut rest = text;
        while let Some((before, inside, after)) = reference(rest) {
            self.references += 1;
            if self.references > REFERENCES_MAX {
                let message = format!("more than {REFERENCES_MAX} references");
                return Err(TemplateProblem::Invalid(message));
            }
            let found = self.referred(inside, place)?;
            let operator = found.0;
            if before.is_empty() && after.is_empty() && made.is_empty() && operator.is_empty() {
                return Ok(match found.1 {
                    Value::String(found) => Value::String(place.here(found).into_owned()),
                    scalar => scalar.clone(),
                });
            }
            let value = values::text(found.1);
            self.grown += value.len();
            if self.grown > TEXT_BYTES_MAX {
                let message = format!("its references grow it by more than {TEXT_BYTES_MAX} bytes");
                return Err(TemplateProblem::Invalid(message));
            }
            made.extend([before, operator, &value]);
            rest = after;
        }
        made.push_str(rest);
        Ok(Value::String(place.here(&made).into_owned()))
    }

    /// The operator of a reference, and the scalar that it stands for.
    fn referred<'r>(
        &self,
        inside: &'r str,
        place: &TextPath<'_>,
    ) -> Result<(&'r str, &'d Value), TemplateProblem> {
        let operator = OPERATORS
            .iter()
            .find_map(|operator| inside.get(..operator.len()).filter(|own| own == operator));
        let operator = operator.unwrap_or_default();
        let path = inside[operator.len()..].trim();
        let steps = place.joined(path);
        let found = steps
            .iter()
            .try_fold(self.whole, |value, step| match value {
                Value::Object(entries) => {
                    let entry = entries.iter().find(|(key, _)| bare(key) == step);
                    entry.map(|(_, value)| value)
                }
                Value::Array(elements) => elements.get(step.parse::<usize>().ok()?),
                _ => None,
            });
        match found {
            Some(value) if !value.is_object() && !value.is_array() && !value.is_null() => {
                Ok((operator, value))
            }
            Some(_) => Err(TemplateProblem::Invalid(format!(
                "`$({inside})`: `/{}` is no scalar",
                steps.join("/")
            ))),
            None => Err(TemplateProblem::Invalid(format!(
                "`$({inside})`: there is no `/{}` in it",
                steps.join("/")
            ))),
        }
    }
}

/// Splits a text into the parts before, inside and behind its first reference.
fn reference(text: &str) -> Option<(&str, &str, &str)> {
    let (mut from, mut end) = (0, 0);
    while let Some(found) = text[from..].find("$(") {
        let at = from + found;
        from = at + 2;
        if end < from {
            end = from + text[from..].find([')', ' '])?;
        }
        let is_closed = end > from && text[end..].starts_with(')');
        if is_closed && !text[..at].ends_with('\\') {
            return Some((&text[..at], &text[from..end], &text[end + 1..]));
        }
    }
    None
}

/// The characters before the bracket of an anchor, in a pattern or in a patch.
const ANCHORS: &[&str] = &["", "<", "=", "X", "^", "+"];

/// A key without its anchor.
fn bare(key: &str) -> &str {
    let inside = |anchor: &&str| {
        let inside = key.strip_prefix(*anchor)?.strip_prefix('(')?;
        let inside = inside.strip_suffix(')')?.trim();
        (!inside.is_empty()).then_some(inside)
    };
    ANCHORS.iter().find_map(inside).unwrap_or(key)
}

impl TextPath<'_> {
    /// The steps of a path, which is one from here on unless it begins at the root.
    fn joined(&self, path: &str) -> Vec<String> {
        let mut steps: Vec<String> = match path.starts_with('/') {
            true => Vec::new(),
            false => self.steps.iter().map(PathSegment::written).collect(),
        };
        for step in path.split('/') {
            match step {
                "" | "." => {}
                ".." => {
                    steps.pop();
                }
                step => steps.push(step.to_owned()),
            }
        }
        steps
    }

    /// Returns the text, with each `{{ @ }}` replaced by the expression for the object's value here.
    fn here<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut made = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let inside = &rest[at + 2..];
            // Up to the next variable, so that no text is looked through more than twice.
            let next = inside.find("{{").unwrap_or(inside.len());
            let hole = inside[..next].find("}}").map(|end| &inside[..end]);
            let is_here = hole.is_some_and(|hole| {
                let hole = hole.trim();
                hole.strip_prefix('-').map_or(hole, str::trim) == "@"
            });
            match hole.filter(|_| is_here && !rest[..at].ends_with('\\')) {
                Some(hole) => {
                    let expression = self.expression();
                    if !cost::charge_parsed(expression.len()) {
                        break;
                    }
                    made.push_str(&rest[..at]);
                    made.push_str(&format!("{{{{ {expression} }}}}"));
                    rest = &inside[hole.len() + 2..];
                }
                None => {
                    made.push_str(&rest[..at + 2]);
                    rest = inside;
                }
            }
        }
        match made.is_empty() {
            true => Cow::Borrowed(text),
            false => Cow::Owned(made + rest),
        }
    }

    fn expression(&self) -> String {
        let mut made = self.about.to_owned();
        for step in &self.steps {
            match step {
                PathSegment::Index(at) => made.push_str(&format!("[{at}]")),
                PathSegment::Key(key) if is_identifier(key) => made.extend([".", key]),
                PathSegment::Key(key) => {
                    // Braces would end the variable.
                    let quoted = Value::from(*key).to_string();
                    let quoted = quoted.replace('{', "\\u007b").replace('}', "\\u007d");
                    made.extend([".", &quoted]);
                }
            }
        }
        made
    }
}

impl PathSegment<'_> {
    fn written(&self) -> String {
        match self {
            Self::Key(key) => (*key).to_owned(),
            Self::Index(at) => at.to_string(),
        }
    }
}

fn is_identifier(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn made(document: &Value) -> Result<Value, TemplateProblem> {
        let mut of = TemplateDocument {
            whole: document,
            references: 0,
            grown: 0,
        };
        let mut place = TextPath {
            steps: Vec::new(),
            about: "request.object",
        };
        of.value(document, &mut place)
    }

    #[test]
    fn an_at_sign_becomes_the_expression_of_its_own_place() {
        let document = json!({
            "=(spec)": {
                "(containers)": [{"image": "{{ @ }}"}, {"a/b": "x-{{@}}-{{ - @ }}"}],
                "nested": "{{ to_upper('{{ @ }}') }} {{ x }}",
                "kept": [r"\{{ @ }}", "{{ @.x }}", "{{ @", 5],
                "{k}": "{{@}}",
                "0a": "{{@}}",
            },
        });
        let expected = json!({
            "=(spec)": {
                "(containers)": [
                    {"image": "{{ request.object.spec.containers[0].image }}"},
                    {"a/b": "x-{{ request.object.spec.containers[1].\"a/b\" }}-{{ request.object.spec.containers[1].\"a/b\" }}"},
                ],
                "nested": "{{ to_upper('{{ request.object.spec.nested }}') }} {{ x }}",
                "kept": [r"\{{ @ }}", "{{ @.x }}", "{{ @", 5],
                "{k}": "{{ request.object.spec.\"\\u007bk\\u007d\" }}",
                "0a": "{{ request.object.spec.\"0a\" }}",
            },
        });
        assert_eq!(made(&document), Ok(expected));
    }

    #[test]
    fn references_are_put_in_their_place() {
        let document = json!({
            "spec": {
                "containers": [{
                    "=(resources)": {
                        "requests": {"memory": "$(<=./../../limits/memory)"},
                        "limits": {"memory": "2Gi", "cpu": 2},
                    },
                    "same": "$(/spec/containers/0/resources/limits/cpu)",
                    "text": r"a $(./../same) $(/spec/name)!\$(x) $5 $() $(a b)",
                }],
                "name": "n",
            },
        });
        let made = made(&document).unwrap();
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["=(resources)"]["requests"]["memory"], "<=2Gi");
        assert_eq!(container["same"], 2);
        // The referenced text has a reference too. The rule inserts the text unchanged, and a later check reports the
        // reference.
        assert_eq!(
            container["text"],
            r"a $(/spec/containers/0/resources/limits/cpu) n!\$(x) $5 $() $(a b)"
        );
        assert!(ValueTemplate::parse_document(&document, "request.object").is_err());
    }

    #[test]
    fn references_that_lead_nowhere_are_refused() {
        for (text, says) in [
            ("$(./../none)", "there is no `/a/none`"),
            ("$(/a)", "`/a` is no scalar"),
            ("$(../../../../a/b)", "there is no `/a/b`"),
            (">$(.)x", "there is no"),
        ] {
            let document = json!({"a": {"c": text}});
            match ValueTemplate::parse_document(&document, "x") {
                Err(TemplateProblem::Invalid(message)) => {
                    assert!(message.contains(says), "{text}: {message}");
                }
                // The text refers to itself, and stays unchanged.
                other => assert!(text.contains("(.)"), "{text}: {other:?}"),
            }
        }
        let many = |count| json!({"a": "x", "b": vec!["$(/a)"; count]});
        assert!(made(&many(REFERENCES_MAX)).is_ok());
        assert!(made(&many(REFERENCES_MAX + 1)).is_err());
        let long = json!({"a": "x".repeat(TEXT_BYTES_MAX / 2), "b": ["-$(/a)", "-$(/a)"]});
        assert!(made(&long).is_ok());
        let longer = json!({"a": "x".repeat(TEXT_BYTES_MAX / 2), "b": "$(/a)$(/a)$(/a)"});
        assert!(made(&longer).is_err());
    }

    proptest! {
        #[test]
        fn parsing_a_document_template_never_panics(text in "[{}@$()./a \\\\é'-]{0,24}") {
            let _ = ValueTemplate::parse_document(&json!({"a": [text, {"a": "b"}]}), "element");
        }
    }
}
