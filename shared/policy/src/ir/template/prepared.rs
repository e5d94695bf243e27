//! Expressions with variables in them, prepared once instead of pasted together per request.
//!
//! A policy writes `items[?metadata.name == '{{ request.object.metadata.name }}']`. The treatment of the variable
//! depends on its place:
//!
//! | where | becomes |
//! |---|---|
//! | in a raw string, alone or with text around it | a parameter that holds the text |
//! | in a JSON literal | a parameter that holds the JSON |
//! | where an expression could stand | a parameter that holds the value |
//! | in a quoted identifier | the identifier, quoted anew for each request |
//! | where only a number or a part of an identifier can stand | the same, if it is letters, digits, `_` and `-` only; else an error |
//!
//! So no value from a request can change the meaning of an expression, and in all but the last two cases the
//! expression has one text for all requests.

mod lex;
mod number;
mod visit;

pub(crate) use number::Number;

use std::collections::BTreeMap;

use anteroom_functions::{json::parsed_bytes_max, values};
use anteroom_jmespath::{Expression, ParseError, json_memory};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Resolve, TEXT_BYTES_MAX, Template, TemplateProblem, Variable, scan};
use crate::ir::{VariableError, VariableErrorKind, cost, subquery::ExpressionId};

/// A prepared expression.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    source: String,
    form: Form,
    parameters: Vec<Parameter>,
    /// The expression's number in its rule.
    id: ExpressionId,
}

#[derive(Clone, Debug)]
enum Form {
    /// The same expression for every request.
    Fixed(Expression),
    /// Composed and parsed for each request. The sample has stand-ins for values that are not known yet; the compiler
    /// checks the sample.
    Pasted {
        pieces: Vec<Piece>,
        sample: Expression,
    },
    /// Wholly taken from a variable, and parsed for each request. The stand-in is the document.
    Taken {
        variable: Box<Variable>,
        sample: Expression,
    },
}

/// A piece of an expression's text.
#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    /// A number, or a part of an identifier; `sample` is one that parses.
    Name {
        variable: Variable,
        sample: &'static str,
    },
    /// Inside a quoted identifier.
    Quoted(Variable),
}

/// The value of a `$name`.
#[derive(Clone, Debug)]
struct Parameter {
    name: String,
    binding: Binding,
}

#[derive(Clone, Debug)]
enum Binding {
    Value(Variable),
    Text(Template),
    Json(Vec<JsonPiece>),
}

/// A piece of a JSON literal.
#[derive(Clone, Debug)]
enum JsonPiece {
    Text(String),
    /// Inside a JSON string or not.
    Hole {
        variable: Variable,
        in_string: bool,
    },
}

/// An expression ready to be evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) expression: Expression,
    pub(crate) parameters: BTreeMap<String, Value>,
}

impl Prepared {
    pub(crate) fn parse(source: &str) -> Result<Self, TemplateProblem> {
        let source = source.trim();
        if source.is_empty() {
            return Err(TemplateProblem::Invalid(
                "the expression is empty".to_owned(),
            ));
        }
        let pieces = scan::scan(source).map_err(TemplateProblem::Invalid)?;
        let (pieces, parameters) = lex::lex(&pieces)?;
        let text = pieces.iter().map(Piece::sample).collect::<String>();
        if !cost::charge_parsed(text.len()) {
            return Err(TemplateProblem::over_limit());
        }
        let expression = Expression::parse(&text)
            .map_err(|error| TemplateProblem::Invalid(parse_problem(source, &text, &error)))?;
        let form = match pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) {
            true => Form::Fixed(expression),
            false => Form::Pasted {
                pieces,
                sample: expression,
            },
        };
        Ok(Self {
            source: source.to_owned(),
            form,
            parameters,
            id: ExpressionId::NONE,
        })
    }

    /// Parses the query of a context entry: as in Kyverno it may be a lone variable, whose value is the
    /// expression.
    pub(crate) fn parse_query(source: &str) -> Result<Self, TemplateProblem> {
        let source = source.trim();
        let pieces = scan::scan(source).map_err(TemplateProblem::Invalid)?;
        let ([scan::Piece::Hole(inside)], Ok(sample)) = (&*pieces, Expression::parse("@")) else {
            return Self::parse(source);
        };
        let variable = Box::new(Variable::parse(inside)?);
        Ok(Self {
            source: source.to_owned(),
            form: Form::Taken { variable, sample },
            parameters: Vec::new(),
            id: ExpressionId::NONE,
        })
    }

    /// Returns the expression as the manifest has it.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Returns the expression with samples for pasted parts: for checks and for planning.
    pub(crate) fn expression(&self) -> &Expression {
        match &self.form {
            Form::Fixed(expression) => expression,
            Form::Pasted { sample, .. } | Form::Taken { sample, .. } => sample,
        }
    }

    /// Returns the expression, if it is the same for every request.
    pub(crate) fn fixed(&self) -> Option<&Expression> {
        match &self.form {
            Form::Fixed(expression) => Some(expression),
            Form::Pasted { .. } | Form::Taken { .. } => None,
        }
    }

    /// Returns the expression's number in its rule.
    pub(crate) fn id(&self) -> ExpressionId {
        self.id
    }

    /// Resolves the variables in it.
    pub(crate) fn bind<R: Resolve>(&self, resolver: &mut R) -> Result<Bound, R::Interrupt> {
        let expression = match &self.form {
            Form::Fixed(expression) => expression.clone(),
            Form::Pasted { pieces, .. } => self.paste(pieces, resolver)?,
            Form::Taken { variable, .. } => {
                let value = variable.resolve(resolver)?;
                let Some(text) = value.as_str() else {
                    return Err(variable.error("jmespath value must be a string").into());
                };
                self.parsed(text)?
            }
        };
        let (mut parameters, mut bytes) = (BTreeMap::new(), 0);
        for Parameter { name, binding } in &self.parameters {
            parameters.insert(name.clone(), binding.value(resolver, &mut bytes)?);
        }
        Ok(Bound {
            expression,
            parameters,
        })
    }

    fn paste<R: Resolve>(
        &self,
        pieces: &[Piece],
        resolver: &mut R,
    ) -> Result<Expression, R::Interrupt> {
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Name { variable, .. } => {
                    let name = variable.resolve_text(resolver)?;
                    if !is_name(&name) {
                        return Err(variable
                            .error(format!(
                                "its value {} stands where only letters, digits, `_` and `-` can",
                                quoted(&name)
                            ))
                            .into());
                    }
                    text.push_str(&name);
                }
                Piece::Quoted(variable) => {
                    let name = variable.resolve_text(resolver)?;
                    text.push_str(&inner_json(&name));
                }
            }
        }
        Ok(self.parsed(&text)?)
    }

    fn parsed(&self, text: &str) -> Result<Expression, VariableError> {
        Expression::parse(text).map_err(|error| VariableError {
            expression: self.source.clone(),
            message: format!("with its variables it is {}: {error}", quoted(text)),
            kind: VariableErrorKind::Failed,
        })
    }
}

/// Returns the message for a parse error. Its position is in the text that was parsed, which is shown if it differs
/// from the manifest's.
fn parse_problem(source: &str, text: &str, error: &ParseError) -> String {
    if source == text {
        format!("`{source}`: {error}")
    } else {
        format!("`{source}`, prepared as `{text}`: {error}")
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Returns a text in quotes; a long text is cut.
fn quoted(text: &str) -> String {
    const SHOWN_CHARACTERS: usize = 64;
    let shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{shown:?}{more}")
}

impl Piece {
    fn sample(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Name { sample, .. } => sample,
            Self::Quoted(_) => "x",
        }
    }
}

impl Binding {
    /// Returns the value. `bytes` is the memory of the values of all parameters so far.
    fn value<R: Resolve>(&self, resolver: &mut R, bytes: &mut u64) -> Result<Value, R::Interrupt> {
        match self {
            Self::Value(variable) => {
                let value = variable.resolve(resolver)?;
                *bytes = resolver.bind_value(copied_bytes(&value), *bytes)?;
                Ok(std::sync::Arc::unwrap_or_clone(value))
            }
            Self::Text(template) => {
                let value = Value::String(template.text(resolver)?);
                *bytes = resolver.bind_value(copied_bytes(&value), *bytes)?;
                Ok(value)
            }
            Self::Json(pieces) => json(pieces, resolver, bytes),
        }
    }
}

/// Returns the memory of a value.
fn copied_bytes(value: &Value) -> u64 {
    json_memory::copied_bytes(value, u64::MAX).unwrap_or(u64::MAX)
}

/// A literal is put together of whole JSON values and of the insides of strings. So a value can end neither the
/// string nor the value that it stands in.
fn json<R: Resolve>(
    pieces: &[JsonPiece],
    resolver: &mut R,
    bytes: &mut u64,
) -> Result<Value, R::Interrupt> {
    let mut text = String::new();
    let mut last = None;
    for piece in pieces {
        match piece {
            JsonPiece::Text(piece) => text.push_str(piece),
            JsonPiece::Hole {
                variable,
                in_string,
            } => {
                let value = variable.resolve(resolver)?;
                let shown = values::text_within(&value, TEXT_BYTES_MAX);
                let shown = shown.ok_or_else(|| variable.too_long())?;
                match (&*value, in_string) {
                    (_, true) => text.push_str(&inner_json(&shown)),
                    (Value::String(string), false) if !is_json(string) => {
                        return Err(variable
                            .error(format!(
                                "its value {} stands in a JSON literal and is not JSON",
                                quoted(string)
                            ))
                            .into());
                    }
                    (_, false) => text.push_str(&shown),
                }
                super::check_length(&text, variable)?;
                last = Some(variable);
            }
        }
    }
    *bytes = resolver.bind_value(parsed_bytes_max(text.as_bytes()), *bytes)?;
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("the JSON literal around it: {error}");
        match last {
            Some(variable) => variable.error(message).into(),
            None => VariableError {
                expression: text,
                message,
                kind: VariableErrorKind::Failed,
            }
            .into(),
        }
    })
}

/// Returns whether a text is JSON. Nothing of it is kept.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// A string as it stands in JSON, without the quotes.
fn inner_json(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}
