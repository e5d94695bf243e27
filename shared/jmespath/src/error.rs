//! Errors in an expression's text, and of its evaluation.

use std::fmt;

/// The characters of the expression before and after the caret of a [`ParseError`].
const EXCERPT_CHARACTERS: usize = 48;

/// An expression that can not be parsed.
///
/// `{}` prints one line; `{:#}` adds the place in the expression with a caret below it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The kind of fault.
    pub kind: ParseErrorKind,
    /// The fault, without its position.
    pub message: String,
    /// The position of the fault, in bytes from the expression's start.
    pub offset_bytes: usize,
    excerpt: Excerpt,
}

/// The kinds of [`ParseError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// The text is not an expression.
    Syntax,
    /// The text is an expression that can have no value: a slice whose step is 0, or an index that
    /// no array can have.
    InvalidValue,
    /// The text is longer than the limit.
    TooLong,
    /// The expression nests deeper than the limit.
    TooDeep,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Excerpt {
    text: String,
    caret_characters: usize,
}

impl ParseError {
    pub(crate) fn new(
        kind: ParseErrorKind,
        message: impl Into<String>,
        expression: &str,
        offset_bytes: usize,
    ) -> Self {
        let excerpt = Excerpt::new(expression, offset_bytes);
        ParseError {
            kind,
            message: message.into(),
            offset_bytes,
            excerpt,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ParseErrorKind::Syntax => "syntax error",
            ParseErrorKind::InvalidValue => "invalid value",
            ParseErrorKind::TooLong | ParseErrorKind::TooDeep => "over the limit",
        };
        write!(
            formatter,
            "{what} at byte {}: {}",
            self.offset_bytes, self.message
        )?;
        if formatter.alternate() {
            let Excerpt {
                text,
                caret_characters,
            } = &self.excerpt;
            write!(
                formatter,
                "\n  {text}\n  {:>width$}",
                "^",
                width = caret_characters + 1
            )?;
        }
        Ok(())
    }
}

impl Excerpt {
    fn new(expression: &str, offset_bytes: usize) -> Self {
        let (before, after) = expression
            .split_at_checked(offset_bytes)
            .unwrap_or((expression, ""));
        let line_before = before.rsplit('\n').next().unwrap_or_default();
        let line_after = after.split('\n').next().unwrap_or_default();
        let skipped = line_before
            .chars()
            .count()
            .saturating_sub(EXCERPT_CHARACTERS);
        let mut text = String::from(if skipped > 0 { "…" } else { "" });
        text.extend(line_before.chars().skip(skipped).map(visible));
        let caret_characters = text.chars().count();
        text.extend(line_after.chars().take(EXCERPT_CHARACTERS).map(visible));
        if line_after.chars().nth(EXCERPT_CHARACTERS).is_some() {
            text.push('…');
        }
        Excerpt {
            text,
            caret_characters,
        }
    }
}

/// Replaces a control character by a blank, which takes one column: so the caret stands below the fault.
fn visible(character: char) -> char {
    if character.is_control() {
        ' '
    } else {
        character
    }
}

/// An evaluation that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A function was given a value of a type that it does not take.
    #[error("{function}(): {place} is {found}, expected {expected}")]
    InvalidType {
        /// The function.
        function: String,
        /// The value that does not fit, like `argument 1`.
        place: String,
        /// The types that the function takes.
        expected: String,
        /// The type that it was given.
        found: String,
    },
    /// A function was given too few or too many arguments.
    #[error("{function}() takes {expected}, and was given {found}")]
    InvalidArity {
        /// The function.
        function: String,
        /// The number of arguments that the function takes, in words.
        expected: String,
        /// The number of arguments that the function was given.
        found: usize,
    },
    /// No function of this name is registered.
    #[error("there is no function {function}()")]
    UnknownFunction {
        /// The name.
        function: String,
    },
    /// A function was given a value of the right type that it can not use, or has a result that
    /// JSON can not say.
    #[error("{function}(): {message}")]
    InvalidValue {
        /// The function.
        function: String,
        /// The fault of the value.
        message: String,
    },
    /// With [`MissingKey::Error`](crate::MissingKey::Error): an object lacks the key. The words are
    /// Kyverno's, since policies and their tests look for them.
    #[error("Unknown key \"{key}\" in path")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// The expression names a parameter that the environment does not bind.
    #[error("the parameter ${name} is not bound")]
    UnboundParameter {
        /// The name, without the dollar sign.
        name: String,
    },
    /// The evaluation took more than its budget.
    #[error("over the budget of {limit} {which}; narrow the expression down or raise the limit")]
    Budget {
        /// The limit that was reached.
        which: BudgetKind,
        /// The limit, in the part's unit.
        limit: u64,
    },
}

/// The parts of a [`Budget`](crate::Budget).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetKind {
    /// Subexpressions evaluated and elements visited.
    Steps,
    /// Levels of nesting, of the evaluation or of a value.
    Depth,
    /// Bytes of what is built: arrays, objects, strings, the result as JSON.
    BuiltBytes,
}

impl fmt::Display for BudgetKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            BudgetKind::Steps => "steps",
            BudgetKind::Depth => "levels of nesting",
            BudgetKind::BuiltBytes => "bytes built",
        })
    }
}

/// An error inside the evaluator. A missing key is common where it is forgiven, so it takes no
/// allocation here.
#[derive(Debug)]
pub(crate) enum Fault<'a> {
    Missing(&'a str),
    Error(Box<EvalError>),
}

impl Fault<'_> {
    pub(crate) fn is_missing_key(&self) -> bool {
        match self {
            Fault::Missing(_) => true,
            Fault::Error(error) => matches!(**error, EvalError::MissingKey { .. }),
        }
    }

    /// Returns whether a function does not take what it was given, whatever else is known: never so where something
    /// is not known, or takes too much.
    pub(crate) fn is_refusal(&self) -> bool {
        let Fault::Error(error) = self else {
            return false;
        };
        matches!(
            **error,
            EvalError::InvalidType { .. } | EvalError::InvalidArity { .. }
        )
    }
}

impl From<EvalError> for Fault<'_> {
    fn from(error: EvalError) -> Self {
        Fault::Error(Box::new(error))
    }
}

impl From<Fault<'_>> for EvalError {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::Missing(key) => EvalError::MissingKey {
                key: key.to_owned(),
            },
            Fault::Error(error) => *error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_the_fault_in_its_line() {
        let error = ParseError::new(ParseErrorKind::Syntax, "no", "a |\n\tå.]", 8);
        assert_eq!(format!("{error}"), "syntax error at byte 8: no");
        assert_eq!(
            format!("{error:#}"),
            "syntax error at byte 8: no\n   å.]\n     ^"
        );
    }

    #[test]
    fn an_excerpt_is_short_whatever_the_expression() {
        let text = "x".repeat(10_000);
        let error = ParseError::new(ParseErrorKind::Syntax, "no", &text, 5_000);
        let around = "x".repeat(2 * EXCERPT_CHARACTERS);
        let before = " ".repeat(EXCERPT_CHARACTERS);
        assert_eq!(
            format!("{error:#}"),
            format!("syntax error at byte 5000: no\n  …{around}…\n   {before}^")
        );
    }
}
