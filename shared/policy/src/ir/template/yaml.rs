//! Values with variables in them that are written as YAML in one text.
//!
//! The compiler reads the YAML once, before any request, with marks in place of the variables. So no value can change
//! the structure of the text, unlike where variables are replaced first.

use std::sync::Arc;

use anteroom_functions::yaml;
use serde_json::Value;

use super::{
    Segment, Template, TemplateProblem, ValueTemplate, Variable,
    scan::{Piece, scan},
    unescaped, without_references,
};
use crate::ir::{
    cost,
    manifest::{MANIFEST_DEPTH_MAX, is_deeper_than},
};

/// A variable of the text.
struct Hole {
    variable: Variable,
    /// The variable stands in quotes: its value becomes text, regardless of the type.
    is_quoted: bool,
    /// The hole begins a value without quotes.
    is_bare: bool,
}

impl ValueTemplate {
    /// Parses the value that the text is as YAML.
    pub(crate) fn parse_yaml(text: &str) -> Result<Self, TemplateProblem> {
        without_references(text)?;
        let pieces = scan(text).map_err(TemplateProblem::Invalid)?;
        let mark = mark_for(text);
        let (mut marked, mut holes) = (String::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Text(text) => marked.push_str(&unescaped(&text)),
                Piece::Hole(inside) => {
                    let is_quoted = marked.ends_with(['"', '\'']);
                    let is_bare = begins_value(&marked);
                    if !cost::charge_read(marked.len()) {
                        return Err(TemplateProblem::over_limit());
                    }
                    marked.push_str(&format!("{mark}{}{END}", holes.len()));
                    holes.push(Hole {
                        variable: Variable::parse(inside)?,
                        is_quoted,
                        is_bare,
                    });
                }
            }
        }
        let read = yaml::read(&marked)
            .map_err(|error| TemplateProblem::Invalid(format!("it is no YAML: {error}")))?;
        if is_deeper_than(&read, MANIFEST_DEPTH_MAX) {
            return Err(TemplateProblem::Invalid("it nests too deep".to_owned()));
        }
        Ok(Marked { mark, holes }.value(&read))
    }
}

/// Returns whether a plain value begins after `yaml`, on the line of its key: at a line's own beginning it
/// may be in a block of text.
fn begins_value(yaml: &str) -> bool {
    let line = yaml.rsplit('\n').next().unwrap_or_default();
    let before = line.trim_end();
    before.len() < line.len() && before.ends_with([':', '-', ',', '[', '{'])
        || before.len() == line.len() && before.ends_with(['[', ','])
}

/// Characters of a text that may be a number, a boolean or null.
const BARE_MAX: usize = 64;

/// Reads a text as a YAML scalar without quotes: `"3"` becomes 3, `"true"` and `"null"` become true and null. Every
/// other text, and every other value, is returned unchanged.
pub(super) fn bare(value: Arc<Value>) -> Arc<Value> {
    let Some(text) = value.as_str() else {
        return value;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-._~".contains(c);
    if text.len() > BARE_MAX || !text.chars().all(is_plain) {
        return value;
    }
    match yaml::read(text) {
        Ok(read @ (Value::Null | Value::Bool(_) | Value::Number(_))) => Arc::new(read),
        _ => value,
    }
}

/// The end of a mark, after digits.
const END: char = 'z';

/// Returns a mark that the text does not contain.
fn mark_for(text: &str) -> String {
    let mut mark = "hole".to_owned();
    while text.contains(&mark) {
        mark.push('x');
    }
    mark
}

struct Marked {
    mark: String,
    holes: Vec<Hole>,
}

impl Marked {
    fn value(&self, value: &Value) -> ValueTemplate {
        let parsed = match value {
            Value::String(text) => ValueTemplate::Text(self.template(text)),
            Value::Array(elements) => {
                ValueTemplate::List(elements.iter().map(|element| self.value(element)).collect())
            }
            Value::Object(entries) => {
                let entry =
                    |(key, value): (&String, &Value)| (self.template(key), self.value(value));
                ValueTemplate::Map(entries.iter().map(entry).collect())
            }
            scalar => ValueTemplate::Fixed(Arc::new(scalar.clone())),
        };
        match parsed.fixed() {
            Some(fixed) => ValueTemplate::Fixed(Arc::new(fixed)),
            None => parsed,
        }
    }

    fn template(&self, text: &str) -> Template {
        let mut parts = Vec::new();
        let mut source = String::new();
        let (mut is_text, mut is_bare) = (false, false);
        let mut pieces = text.split(&*self.mark);
        let plain = |text: &str, parts: &mut Vec<Segment>, source: &mut String| {
            if !text.is_empty() {
                source.push_str(text);
                parts.push(Segment::Text(text.to_owned()));
            }
        };
        plain(pieces.next().unwrap_or_default(), &mut parts, &mut source);
        for piece in pieces {
            let (number, rest) = piece.split_once(END).unwrap_or((piece, ""));
            let hole = number.parse().ok().and_then(|at: usize| self.holes.get(at));
            if let Some(hole) = hole {
                source.push_str(&format!("{{{{ {} }}}}", hole.variable.query.source()));
                parts.push(Segment::Variable(hole.variable.clone()));
                is_text |= hole.is_quoted;
                is_bare |= hole.is_bare;
            }
            plain(rest, &mut parts, &mut source);
        }
        Template {
            source,
            parts,
            is_text,
            is_bare: is_bare && !is_text,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(value: &ValueTemplate) -> Value {
        match value {
            ValueTemplate::Fixed(value) => Value::clone(value),
            ValueTemplate::Text(template) => match template.is_text {
                true => json!({"text": template.source()}),
                false => json!({"value": template.source()}),
            },
            ValueTemplate::List(elements) => elements.iter().map(shown).collect(),
            ValueTemplate::Map(entries) => {
                let entry = |(key, value): &(Template, _)| (key.source().to_owned(), shown(value));
                Value::Object(entries.iter().map(entry).collect())
            }
        }
    }

    #[test]
    fn an_unquoted_value_in_yaml_is_a_scalar_and_never_structure() {
        for (text, read) in [
            ("80", json!(80)),
            ("-1.5", json!(-1.5)),
            ("true", json!(true)),
            ("null", json!(null)),
            ("~", json!(null)),
            ("0123", json!(83)),
            ("1Gi", json!("1Gi")),
            ("yes", json!(true)),
            ("[1]", json!("[1]")),
            ("{a: 1}", json!("{a: 1}")),
            ("80 # x", json!("80 # x")),
            ("- 1", json!("- 1")),
            ("80\n- op: remove", json!("80\n- op: remove")),
            ("&a", json!("&a")),
        ] {
            assert_eq!(*bare(Arc::new(text.into())), read, "{text}");
        }
        let holes = |text: &str| {
            let parsed = ValueTemplate::parse_yaml(text).unwrap();
            let lists = parsed.elements().unwrap();
            let one = |template: ValueTemplate| match template {
                ValueTemplate::Text(template) => template.is_bare,
                _ => panic!("{text}"),
            };
            lists.into_iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(
            holes("- {{ a }}\n- \"{{ a }}\"\n- '{{ a }}'"),
            [true, false, false]
        );
        assert_eq!(holes("- |-\n  {{ a }}\n- >-\n  {{ a }}"), [false, false]);
        assert_eq!(holes("[{{ a }},{{ b }}, \"{{ c }}\"]"), [true, true, false]);
    }

    #[test]
    fn variables_in_yaml_keep_their_place_and_type() {
        let text = r#"
- path: /spec/{{ elementIndex }}/x-{{element.name}}
  op: add
  value: "{{ request.name }}"
- value: {{ request.object }}
- value: {a: [1, true, "{{ a.b == 'its' }}"], "{{ request.name }}": hole}
"#;
        let parsed = ValueTemplate::parse_yaml(text).unwrap();
        let expected = json!([
            {"path": {"value": "/spec/{{ elementIndex }}/x-{{ element.name }}"}, "op": "add",
                "value": {"text": "{{ request.name }}"}},
            {"value": {"value": "{{ request.object }}"}},
            {"value": {"a": [1, true, {"text": "{{ a.b == 'its' }}"}], "{{ request.name }}": "hole"}},
        ]);
        assert_eq!(shown(&parsed), expected);
    }

    #[test]
    fn malformed_yaml_is_refused() {
        for text in ["- a: [", "{{ a", "a: {{ }}", "a: $(b)"] {
            assert!(ValueTemplate::parse_yaml(text).is_err(), "{text}");
        }
    }
}
