//! Splits a text at its own separators, never at equal characters inside a value.

use serde_json::Value;

use super::{Resolve, Segment, Template, ValueTemplate, check_length};
use crate::ir::{VariableError, VariableErrorKind};

impl Template {
    /// A text without variables.
    pub(crate) fn literal(text: &str) -> Self {
        let part = Segment::Text(text.to_owned());
        Self {
            source: text.to_owned(),
            parts: if text.is_empty() { vec![] } else { vec![part] },
            is_text: true,
            is_bare: false,
        }
    }

    /// The variable, if there is nothing else.
    pub(crate) fn is_lone_variable(&self) -> bool {
        matches!(&*self.parts, [Segment::Variable(_)])
    }

    /// The pieces between each `separator` that stands in the text itself: at least one.
    pub(crate) fn split(&self, separator: char) -> Vec<Self> {
        self.split_at_most(separator, usize::MAX)
    }

    /// Splits the template at the first `separator` of the text itself.
    pub(crate) fn split_once(&self, separator: char) -> (Self, Option<Self>) {
        let mut pieces = self.split_at_most(separator, 1).into_iter();
        (
            pieces.next().unwrap_or_else(|| Self::literal("")),
            pieces.next(),
        )
    }

    fn split_at_most(&self, separator: char, mut cuts: usize) -> Vec<Self> {
        let mut pieces = vec![Vec::new()];
        for part in &self.parts {
            let Segment::Text(text) = part else {
                push(&mut pieces, part.clone());
                continue;
            };
            let mut rest = text.as_str();
            while let Some((before, after)) = rest.split_once(separator).filter(|_| cuts > 0) {
                push_text(&mut pieces, before);
                pieces.push(Vec::new());
                (rest, cuts) = (after, cuts - 1);
            }
            push_text(&mut pieces, rest);
        }
        pieces.into_iter().map(Self::of_parts).collect()
    }

    /// Returns the template without a text at its beginning; unchanged if it does not begin with that text.
    pub(crate) fn without_prefix(&self, prefix: &str) -> Self {
        let mut parts = self.parts.clone();
        if let Some(Segment::Text(text)) = parts.first_mut()
            && let Some(rest) = text.strip_prefix(prefix)
        {
            *text = rest.to_owned();
        }
        Self::of_parts(parts)
    }

    fn of_parts(parts: Vec<Segment>) -> Self {
        let mut parts = parts;
        parts.retain(|part| !matches!(part, Segment::Text(text) if text.is_empty()));
        let source = parts.iter().map(Segment::written).collect();
        Self {
            source,
            parts,
            is_text: false,
            is_bare: false,
        }
    }

    /// An error about the text as it came out.
    pub(crate) fn refuse(&self, message: impl Into<String>) -> VariableError {
        VariableError {
            expression: self.source.clone(),
            message: message.into(),
            kind: VariableErrorKind::Failed,
        }
    }

    /// The template with its own text changed, piece by piece.
    pub(crate) fn map_text<E>(&self, map: impl Fn(&str) -> Result<String, E>) -> Result<Self, E> {
        let parts = self.parts.iter().map(|part| match part {
            Segment::Text(text) => map(text).map(Segment::Text),
            Segment::Variable(variable) => Ok(Segment::Variable(variable.clone())),
        });
        parts.collect::<Result<_, _>>().map(Self::of_parts)
    }

    /// Renders the text; `check` must find nothing against any value.
    pub(crate) fn checked_text<R: Resolve>(
        &self,
        resolver: &mut R,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<Result<String, VariableError>, R::Interrupt> {
        let mut rendered = String::new();
        for part in &self.parts {
            match part {
                Segment::Text(text) => rendered.push_str(text),
                Segment::Variable(variable) => {
                    let value = variable.resolve_text(resolver)?;
                    if let Err(message) = check(&value) {
                        return Ok(Err(variable.error(message)));
                    }
                    rendered.push_str(&value);
                    check_length(&rendered, variable)?;
                }
            }
        }
        Ok(Ok(rendered))
    }

    /// Returns whether the template can give `text`, if each variable gives a text that `value` accepts.
    ///
    /// The search takes the first place where a literal fits. This misses nothing if `value` accepts every part of an
    /// accepted text. A variable's text that grows by the literal then stays accepted, and a literal that `value`
    /// does not accept fits at one place only.
    pub(crate) fn can_be(&self, text: &str, value: impl Fn(&str) -> bool) -> bool {
        let (mut rest, mut open) = (text, false);
        for (at, part) in self.parts.iter().enumerate() {
            let Segment::Text(literal) = part else {
                open = true;
                continue;
            };
            let is_last = at + 1 == self.parts.len();
            let found = match (open, is_last) {
                (false, _) => rest.starts_with(literal.as_str()).then_some(0),
                (true, true) => rest
                    .ends_with(literal.as_str())
                    .then(|| rest.len() - literal.len()),
                (true, false) => rest.find(literal.as_str()),
            };
            let Some(found) = found.filter(|&found| !open || value(&rest[..found])) else {
                return false;
            };
            (rest, open) = (&rest[found + literal.len()..], false);
        }
        if open { value(rest) } else { rest.is_empty() }
    }

    /// Returns the text with the same stand-in for every variable, for a look at its structure.
    pub(crate) fn sample(&self, stand_in: &str) -> String {
        let text = self.parts.iter().map(|part| match part {
            Segment::Text(text) => text.as_str(),
            Segment::Variable(_) => stand_in,
        });
        text.collect()
    }
}

impl Segment {
    fn written(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Variable(variable) => format!("{{{{{}}}}}", variable.query.source()),
        }
    }
}

fn push(pieces: &mut [Vec<Segment>], part: Segment) {
    if let Some(last) = pieces.last_mut() {
        last.push(part);
    }
}

fn push_text(pieces: &mut [Vec<Segment>], text: &str) {
    if !text.is_empty() {
        push(pieces, Segment::Text(text.to_owned()));
    }
}

impl ValueTemplate {
    /// Returns whether the template can give `value`.
    pub(crate) fn can_be(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Fixed(fixed), value) => **fixed == *value,
            (Self::Text(template), _) if template.is_lone_variable() => true,
            (Self::Text(template), Value::String(text)) => template.can_be(text, |_| true),
            (Self::List(templates), Value::Array(values)) => {
                templates.len() == values.len()
                    && templates
                        .iter()
                        .zip(values)
                        .all(|(template, value)| template.can_be(value))
            }
            // Two keys may come to one, the later of which counts.
            (Self::Map(templates), Value::Object(values)) => {
                let fits = |(key, value): (&String, &Value)| {
                    templates.iter().any(|(key_template, template)| {
                        key_template.can_be(key, |_| true) && template.can_be(value)
                    })
                };
                let mut fixed = templates.iter().filter_map(|(key, _)| key.fixed());
                values.len() <= templates.len()
                    && values.iter().all(fits)
                    && fixed.all(|key| values.contains_key(key))
            }
            _ => false,
        }
    }
}
