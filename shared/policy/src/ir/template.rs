//! `{{ }}`: texts and values with variables in them.
//!
//! All that can be parsed before a request comes is parsed when the policy is compiled. A variable is replaced with a
//! value, or with text inside a text. The replacement is never parsed as a template or an expression.

mod document;
mod parts;
mod prepared;
mod scan;
mod yaml;

use std::sync::Arc;

use anteroom_functions::values;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::ir::cost;

pub(crate) use prepared::{Bound, Number, Prepared};
use scan::{Piece, scan};

/// Bytes of one text after its variables are resolved; a longer one is an error.
pub(crate) const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The reason why a variable could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("variable `{expression}`: {message}")]
pub struct VariableError {
    /// The expression as the manifest has it between the braces.
    pub expression: String,
    /// The reason.
    pub message: String,
    /// The kind of error.
    pub kind: VariableErrorKind,
}

/// The kinds of [`VariableError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableErrorKind {
    /// The variable is not there: an object lacks the key, or the context the entry.
    Missing,
    /// The variable has no value: a function refused an argument, or the text does not fit its place.
    Failed,
    /// The variable takes more than an evaluation may.
    OverBudget,
}

/// The values that a template needs while it is rendered.
pub(crate) trait Resolve {
    /// The reason why the resolver stops.
    type Interrupt: From<VariableError>;

    /// Returns whether the request is a DELETE, for which `request.object` means `request.oldObject`.
    fn is_delete(&self) -> bool;

    /// The value of a prepared expression in the rule's context.
    fn evaluate(&mut self, prepared: &Prepared) -> Result<Arc<Value>, Self::Interrupt>
    where
        Self: Sized,
    {
        let bound = prepared.bind(self)?;
        self.search(&bound, prepared.source())
    }

    /// Charges the copy of a value, which becomes a part of another one or of a text.
    ///
    /// # Errors
    /// The value is too large to be copied, or nothing is left for it.
    fn copy(&mut self, value: &Value) -> Result<(), Self::Interrupt>;

    /// Charges a value that an expression is bound to: it takes so much memory, beside so much of others. Returns the
    /// memory of all.
    ///
    /// # Errors
    /// All take too much memory, or nothing is left for it.
    fn bind_value(&mut self, bytes: u64, beside: u64) -> Result<u64, Self::Interrupt>;

    /// The value of an expression in the rule's context. `written` is for messages.
    fn search(&mut self, bound: &Bound, written: &str) -> Result<Arc<Value>, Self::Interrupt>;
}

/// The reason why a text cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateProblem {
    /// The template is malformed.
    Invalid(String),
    /// Kyverno evaluates the text, and this version does not.
    Unsupported(String),
}

impl TemplateProblem {
    /// Compiling the policy takes too many steps.
    fn over_limit() -> Self {
        Self::Invalid(cost::OVER_LIMIT.to_owned())
    }
}

/// A text with variables in it.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    source: String,
    parts: Vec<Segment>,
    /// Text, also where a lone variable has another value.
    is_text: bool,
    /// The text stands in YAML without quotes, so that a text which reads as a number there is one.
    is_bare: bool,
}

#[derive(Clone, Debug)]
enum Segment {
    Text(String),
    Variable(Variable),
}

/// A variable in a text: one `{{ }}`.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    query: Prepared,
    /// The query with `request.oldObject` in place of `request.object`, if it names that.
    on_delete: Option<Prepared>,
}

/// A JSON value with variables in its texts, keys included.
#[derive(Clone, Debug)]
pub(crate) enum ValueTemplate {
    Fixed(Arc<Value>),
    Text(Template),
    List(Vec<ValueTemplate>),
    Map(Vec<(Template, ValueTemplate)>),
}

impl Variable {
    pub(super) fn parse(inside: &str) -> Result<Self, TemplateProblem> {
        // `{{- x }}` is how Kyverno is told not to resolve variables in a value: never done here.
        let trimmed = inside.trim();
        let trimmed = trimmed.strip_prefix('-').map_or(trimmed, str::trim);
        if trimmed == "@" {
            return Err(TemplateProblem::Unsupported(
                "`{{ @ }}`, what the object has at the same place, is known in the values of patterns and \
                 patches only"
                    .to_owned(),
            ));
        }
        Ok(Self {
            query: Prepared::parse(trimmed)?,
            on_delete: if trimmed.contains(OBJECT) {
                Some(Prepared::parse(&trimmed.replace(OBJECT, OLD_OBJECT))?)
            } else {
                None
            },
        })
    }

    fn resolve<R: Resolve>(&self, resolver: &mut R) -> Result<Arc<Value>, R::Interrupt> {
        let is_delete = resolver.is_delete();
        resolver.evaluate(self.form(is_delete))
    }

    /// The expression to evaluate.
    pub(crate) fn form(&self, is_delete: bool) -> &Prepared {
        match &self.on_delete {
            Some(on_delete) if is_delete => on_delete,
            _ => &self.query,
        }
    }

    /// Resolves the variable to text.
    fn resolve_text<R: Resolve>(&self, resolver: &mut R) -> Result<String, R::Interrupt> {
        let value = self.resolve(resolver)?;
        resolver.copy(&value)?;
        match values::text_within(&value, TEXT_BYTES_MAX) {
            Some(text) => Ok(text.into_owned()),
            None => Err(self.too_long().into()),
        }
    }

    fn too_long(&self) -> VariableError {
        VariableError {
            kind: VariableErrorKind::OverBudget,
            ..self.error(format!(
                "the text around it grows beyond {TEXT_BYTES_MAX} bytes"
            ))
        }
    }

    fn error(&self, message: impl Into<String>) -> VariableError {
        VariableError {
            expression: self.query.source().to_owned(),
            message: message.into(),
            kind: VariableErrorKind::Failed,
        }
    }
}

const OBJECT: &str = "request.object";
const OLD_OBJECT: &str = "request.oldObject";

impl Template {
    pub(crate) fn parse(source: &str) -> Result<Self, TemplateProblem> {
        without_references(source)?;
        Self::parse_message(source)
    }

    /// Parses a message for people, in which `$(…)` has no meaning and stays.
    pub(crate) fn parse_message(source: &str) -> Result<Self, TemplateProblem> {
        if !cost::charge_read(source.len()) {
            return Err(TemplateProblem::over_limit());
        }
        let parts = scan(source)
            .map_err(TemplateProblem::Invalid)?
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => Ok(Segment::Text(unescaped(&text))),
                Piece::Hole(inside) => Variable::parse(inside).map(Segment::Variable),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            source: source.to_owned(),
            parts,
            is_text: false,
            is_bare: false,
        })
    }

    /// Returns the text as the manifest has it.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The text without variables, if it has none.
    pub(crate) fn fixed(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Segment::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// A lone variable gives its value; anything else is text.
    pub(crate) fn value<R: Resolve>(&self, resolver: &mut R) -> Result<Arc<Value>, R::Interrupt> {
        match &*self.parts {
            [Segment::Variable(variable)] if self.is_bare => {
                Ok(yaml::bare(variable.resolve(resolver)?))
            }
            [Segment::Variable(variable)] if !self.is_text => variable.resolve(resolver),
            _ => Ok(Arc::new(Value::String(self.text(resolver)?))),
        }
    }

    /// Strings stand in it as they are, other values as JSON.
    pub(crate) fn text<R: Resolve>(&self, resolver: &mut R) -> Result<String, R::Interrupt> {
        self.text_with(resolver, |value| value)
    }

    /// Renders a key of an object. A key that is nothing but a variable needs a text, as in Kyverno.
    pub(crate) fn key<R: Resolve>(&self, resolver: &mut R) -> Result<String, R::Interrupt> {
        if let [Segment::Variable(variable)] = &*self.parts
            && !variable.resolve(resolver)?.is_string()
        {
            return Err(variable
                .error("its value is no text, which a key needs")
                .into());
        }
        self.text(resolver)
    }

    /// Renders a JSON pointer, to which a value adds no step. A pointer that is nothing but a variable is
    /// that variable's value.
    pub(crate) fn pointer<R: Resolve>(&self, resolver: &mut R) -> Result<String, R::Interrupt> {
        match &*self.parts {
            [Segment::Variable(_)] => self.text(resolver),
            _ => self.text_with(resolver, |value| value.replace('/', "~1")),
        }
    }

    fn text_with<R: Resolve>(
        &self,
        resolver: &mut R,
        made: impl Fn(String) -> String,
    ) -> Result<String, R::Interrupt> {
        let mut rendered = String::new();
        for part in &self.parts {
            match part {
                Segment::Text(text) => rendered.push_str(text),
                Segment::Variable(variable) => {
                    rendered.push_str(&made(variable.resolve_text(resolver)?));
                    check_length(&rendered, variable)?;
                }
            }
        }
        Ok(rendered)
    }
}

fn without_references(text: &str) -> Result<(), TemplateProblem> {
    match scan::has_reference(text) {
        false => Ok(()),
        true => Err(TemplateProblem::Unsupported(
            "references to other fields, `$(…)`, are known in the values of patterns and patches only; \
             write `\\$(` for the text"
                .to_owned(),
        )),
    }
}

/// Replaces `\$(`, which is no reference, by `$(`.
fn unescaped(text: &str) -> String {
    text.replace("\\$(", "$(")
}

fn check_length(text: &str, variable: &Variable) -> Result<(), VariableError> {
    match text.len() > TEXT_BYTES_MAX {
        true => Err(variable.too_long()),
        false => Ok(()),
    }
}

impl ValueTemplate {
    /// Parses every text of `value`. The caller bounds its depth.
    pub(crate) fn parse(value: &Value) -> Result<Self, TemplateProblem> {
        let parsed = match value {
            Value::String(text) => Self::Text(Template::parse(text)?),
            Value::Array(elements) => {
                Self::List(elements.iter().map(Self::parse).collect::<Result<_, _>>()?)
            }
            Value::Object(entries) => Self::Map(
                entries
                    .iter()
                    .map(|(key, value)| Ok((Template::parse(key)?, Self::parse(value)?)))
                    .collect::<Result<_, _>>()?,
            ),
            scalar => Self::Fixed(Arc::new(scalar.clone())),
        };
        Ok(match parsed.fixed() {
            Some(fixed) => Self::Fixed(Arc::new(fixed)),
            None => parsed,
        })
    }

    /// The elements of a list; `None` of anything else.
    pub(crate) fn elements(self) -> Option<Vec<Self>> {
        match self {
            Self::List(elements) => Some(elements),
            Self::Fixed(value) => {
                let elements = value.as_array()?.iter();
                Some(
                    elements
                        .map(|value| Self::Fixed(Arc::new(value.clone())))
                        .collect(),
                )
            }
            Self::Text(_) | Self::Map(_) => None,
        }
    }

    /// Takes these fields out of an object; `None`: the value is no object.
    pub(crate) fn fields<const N: usize>(self, names: &[&str; N]) -> Option<[Option<Self>; N]> {
        let mut fields = [const { None }; N];
        match self {
            Self::Map(entries) => {
                for (key, value) in entries {
                    if let Some(at) = names.iter().position(|name| key.fixed() == Some(name)) {
                        fields[at] = Some(value);
                    }
                }
            }
            Self::Fixed(value) => {
                let value = value.as_object()?;
                for (at, name) in names.iter().enumerate() {
                    let value = value.get(*name);
                    fields[at] = value.map(|value| Self::Fixed(Arc::new(value.clone())));
                }
            }
            Self::List(_) | Self::Text(_) => return None,
        }
        Some(fields)
    }

    /// Returns the text of a text template; `None` for any other value.
    pub(crate) fn into_text(self) -> Option<Template> {
        match self {
            Self::Text(template) => Some(template),
            Self::Fixed(value) => Some(Template::literal(value.as_str()?)),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    /// The value, if it has no variables.
    fn fixed(&self) -> Option<Value> {
        match self {
            Self::Fixed(value) => Some(Value::clone(value)),
            Self::Text(template) => template.fixed().map(Value::from),
            Self::List(elements) => elements.iter().map(Self::fixed).collect(),
            Self::Map(entries) => entries
                .iter()
                .map(|(key, value)| Some((key.fixed()?.to_owned(), value.fixed()?)))
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object),
        }
    }

    pub(crate) fn value<R: Resolve>(&self, resolver: &mut R) -> Result<Arc<Value>, R::Interrupt> {
        match self {
            Self::Fixed(value) => Ok(Arc::clone(value)),
            Self::Text(template) => template.value(resolver),
            Self::List(elements) => {
                let elements = elements
                    .iter()
                    .map(|element| element.part(resolver))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(Arc::new(Value::Array(elements)))
            }
            Self::Map(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    map.insert(key.key(resolver)?, value.part(resolver)?);
                }
                Ok(Arc::new(Value::Object(map)))
            }
        }
    }

    /// The value as a part of another one. Variables that name each other several times would grow without limit.
    fn part<R: Resolve>(&self, resolver: &mut R) -> Result<Value, R::Interrupt> {
        let value = self.value(resolver)?;
        resolver.copy(&value)?;
        Ok(Arc::unwrap_or_clone(value))
    }
}

#[cfg(test)]
mod tests;
