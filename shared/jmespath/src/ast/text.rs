//! A tree as text again.

use std::fmt::{self, Write as _};

use crate::ast::{Argument, Ast, CompareOperator, Slice, Term, TermId};

/// A term of a tree, to be written. Different terms have different texts.
///
/// Most trees are written so that they parse to the same tree. A few, and of those that were put
/// together some, have a projection that no text spells; it is written in brackets that no parser takes.
pub struct TermText<'a> {
    ast: &'a Ast,
    id: TermId,
}

impl Ast {
    /// The term as text, with the least of white space and brackets.
    pub fn text(&self, id: TermId) -> TermText<'_> {
        TermText { ast: self, id }
    }
}

impl fmt::Display for TermText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ast.term(self.id) {
            Term::Current => out.write_str("@"),
            Term::Field(name) => field(name, out),
            Term::Index(index) => write!(out, "[{index}]"),
            Term::Slice(slice) => write!(out, "{}!", Bounds(*slice)),
            Term::Literal(value) => literal(value, out),
            Term::Parameter(slot) => write!(out, "${}", self.ast.parameters()[slot.index()]),
            Term::Path(steps) if self.ends_in_slice(steps) => {
                self.path(steps, out)?;
                out.write_char('!')
            }
            Term::Path(steps) => self.path(steps, out),
            Term::Pipe(terms) => self.chain(terms, " | ", out),
            Term::Or(terms) => self.chain(terms, " || ", out),
            Term::And(terms) => self.chain(terms, " && ", out),
            Term::Not(term) => match self.ast.term(*term) {
                // Without brackets, only the first step would be negated.
                Term::Path(steps) if self.has_dot(steps) => {
                    write!(out, "!{}", self.bracketed(*term))
                }
                _ => write!(out, "!{}", self.enclosed(*term)),
            },
            Term::Compare {
                operator,
                left,
                right,
            } => {
                let (left, right) = (self.enclosed(*left), self.enclosed(*right));
                write!(out, "{left} {} {right}", operator.spelling())
            }
            Term::Project { left, right } => {
                self.projected(*left, out)?;
                self.right(*right, out)
            }
            Term::ProjectValues { left, right } => {
                match self.ast.term(*left) {
                    Term::Current => out.write_str("*")?,
                    _ => write!(out, "{}.*", self.enclosed(*left))?,
                }
                self.right(*right, out)
            }
            Term::Filter {
                left,
                condition,
                right,
            } => {
                self.before_bracket(*left, out)?;
                write!(out, "[?{}]", self.term(*condition))?;
                self.right(*right, out)
            }
            Term::Flatten(left) => write!(out, "({}[])!", self.flattened(*left)),
            Term::List(terms) => self.list(terms, out),
            Term::Object(entries) => {
                out.write_char('{')?;
                for (place, (name, term)) in entries.iter().enumerate() {
                    separate(place, out)?;
                    field(name, out)?;
                    write!(out, ": {}", self.term(*term))?;
                }
                out.write_char('}')
            }
            Term::Call {
                function,
                arguments,
            } => {
                write!(out, "{}(", self.ast.function_name(*function))?;
                for (place, argument) in arguments.iter().enumerate() {
                    separate(place, out)?;
                    match argument {
                        Argument::Value(term) => write!(out, "{}", self.term(*term))?,
                        Argument::Reference(term) => write!(out, "&{}", self.term(*term))?,
                    }
                }
                out.write_char(')')
            }
        }
    }
}

impl<'a> TermText<'a> {
    fn term(&self, id: TermId) -> Self {
        Self { ast: self.ast, id }
    }

    /// In round brackets, unless it cannot be taken apart by what stands around it.
    fn enclosed(&self, id: TermId) -> Enclosed<'a> {
        let whole = match self.ast.term(id) {
            Term::Current
            | Term::Field(_)
            | Term::Index(_)
            | Term::Literal(_)
            | Term::Parameter(_)
            | Term::List(_)
            | Term::Object(_)
            | Term::Call { .. } => true,
            Term::Path(steps) => self.is_plain(steps),
            _ => false,
        };
        Enclosed {
            text: self.term(id),
            whole,
        }
    }

    /// The operand before `[]`, which ends any projection.
    fn flattened(&self, id: TermId) -> Enclosed<'a> {
        let projects = matches!(
            self.ast.term(id),
            Term::Project { .. } | Term::ProjectValues { .. } | Term::Filter { .. }
        );
        Enclosed {
            text: self.term(id),
            whole: projects || self.enclosed(id).whole,
        }
    }

    /// A path of which only the first step may be more than a name or an index.
    fn is_plain(&self, steps: &[TermId]) -> bool {
        steps.iter().all(|step| {
            !matches!(
                self.ast.term(*step),
                Term::Slice(_) | Term::Path(_) | Term::Pipe(_)
            )
        })
    }

    fn path(&self, steps: &[TermId], out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in steps.iter().enumerate() {
            match (place, self.ast.term(*step)) {
                (_, Term::Index(_)) => write!(out, "{}", self.term(*step))?,
                (_, Term::Slice(slice)) => write!(out, "{}", Bounds(*slice))?,
                (0, _) => write!(out, "{}", self.enclosed(*step))?,
                (_, Term::Field(_) | Term::List(_) | Term::Object(_) | Term::Call { .. }) => {
                    write!(out, ".{}", self.term(*step))?;
                }
                _ => write!(out, ".({})", self.term(*step))?,
            }
        }
        Ok(())
    }

    fn chain(&self, terms: &[TermId], between: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, term) in terms.iter().enumerate() {
            if place > 0 {
                out.write_str(between)?;
            }
            let text = match self.ast.term(*term) {
                Term::Pipe(_) | Term::Or(_) | Term::And(_) => self.bracketed(*term),
                _ => Enclosed {
                    text: self.term(*term),
                    whole: true,
                },
            };
            write!(out, "{text}")?;
        }
        Ok(())
    }

    fn bracketed(&self, id: TermId) -> Enclosed<'a> {
        Enclosed {
            text: self.term(id),
            whole: false,
        }
    }

    fn list(&self, terms: &[TermId], out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_char('[')?;
        for (place, term) in terms.iter().enumerate() {
            separate(place, out)?;
            // A star alone would be a projection's.
            let star = matches!(self.ast.term(*term), Term::ProjectValues { .. });
            match star {
                true => write!(out, "{}", self.bracketed(*term))?,
                false => write!(out, "{}", self.term(*term))?,
            }
        }
        out.write_char(']')
    }

    /// Writes the projected operand, with the brackets that project it.
    fn projected(&self, left: TermId, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ast.term(left) {
            Term::Flatten(inner) => match self.ast.term(*inner) {
                Term::Current => out.write_str("[]"),
                _ => write!(out, "{}[]", self.flattened(*inner)),
            },
            Term::Slice(slice) => write!(out, "{}", Bounds(*slice)),
            // Without brackets, a slice or a star would project the last step alone.
            Term::Path(steps) if self.ends_in_slice(steps) => match steps.split_last() {
                Some((slice, sliced)) if self.has_dot(sliced) => {
                    out.write_char('(')?;
                    self.path(sliced, out)?;
                    out.write_char(')')?;
                    self.path(&[*slice], out)
                }
                _ => self.path(steps, out),
            },
            Term::Path(steps) if self.has_dot(steps) => {
                write!(out, "{}[*]", self.bracketed(left))
            }
            _ => {
                self.before_bracket(left, out)?;
                out.write_str("[*]")
            }
        }
    }

    /// Returns true if the term is a path with a dot, before a slice at its end.
    fn is_dotted(&self, id: TermId) -> bool {
        match self.ast.term(id) {
            Term::Path(steps) if self.ends_in_slice(steps) => {
                self.has_dot(&steps[..steps.len() - 1])
            }
            Term::Path(steps) => self.has_dot(steps),
            _ => false,
        }
    }

    /// Returns true if a dot stands in the path's text.
    fn has_dot(&self, steps: &[TermId]) -> bool {
        let is_bracket =
            |step: &TermId| matches!(self.ast.term(*step), Term::Index(_) | Term::Slice(_));
        !steps.iter().skip(1).all(is_bracket)
    }

    fn ends_in_slice(&self, steps: &[TermId]) -> bool {
        let last = steps.last().map(|last| self.ast.term(*last));
        matches!(last, Some(Term::Slice(_)))
    }

    fn before_bracket(&self, left: TermId, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ast.term(left) {
            Term::Current => Ok(()),
            _ => write!(out, "{}", self.enclosed(left)),
        }
    }

    /// Writes the term that a projection applies to each element.
    fn right(&self, right: TermId, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.term(right);
        match self.ast.term(right) {
            Term::Current => Ok(()),
            Term::Index(_) => write!(out, "{text}"),
            Term::Field(_) | Term::List(_) | Term::Object(_) | Term::Call { .. } => {
                write!(out, ".{text}")
            }
            Term::Path(steps) => self.after_name(steps.first(), &text, out),
            // It begins with a round bracket.
            Term::Project { left, .. } if self.is_dotted(*left) => write!(out, ".({text})"),
            // What is written with a bracket in front, or with a name.
            Term::Project { left, .. } | Term::Filter { left, .. } => match self.ast.term(*left) {
                Term::Current => write!(out, "{text}"),
                Term::Path(steps) => self.after_name(steps.first(), &text, out),
                _ => self.after_name(Some(left), &text, out),
            },
            _ => write!(out, ".({text})"),
        }
    }

    /// Writes a path that begins with this step. Behind the dot only a name goes on.
    fn after_name(
        &self,
        first: Option<&TermId>,
        text: &Self,
        out: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        match first.map(|first| self.ast.term(*first)) {
            Some(Term::Index(_) | Term::Slice(_)) => write!(out, "{text}"),
            Some(Term::Field(_) | Term::Call { .. }) => write!(out, ".{text}"),
            _ => write!(out, ".({text})"),
        }
    }
}

/// A term, in round brackets where it needs them.
struct Enclosed<'a> {
    text: TermText<'a>,
    whole: bool,
}

impl fmt::Display for Enclosed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole {
            true => write!(out, "{}", self.text),
            false => write!(out, "({})", self.text),
        }
    }
}

struct Bounds(Slice);

impl fmt::Display for Bounds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |bound: Option<i64>| bound.map(|bound| bound.to_string()).unwrap_or_default();
        let (start, stop) = (bound(self.0.start), bound(self.0.stop));
        match self.0.step {
            1 => write!(out, "[{start}:{stop}]"),
            step => write!(out, "[{start}:{stop}:{step}]"),
        }
    }
}

impl CompareOperator {
    fn spelling(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

fn separate(place: usize, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match place {
        0 => Ok(()),
        _ => out.write_str(", "),
    }
}

fn field(name: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut bytes = name.bytes();
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let goes_on = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match bytes.next().is_some_and(starts) && bytes.all(goes_on) {
        true => out.write_str(name),
        false => write!(out, "{}", serde_json::Value::from(name)),
    }
}

fn literal(value: &serde_json::Value, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        serde_json::Value::String(text) if !text.contains(['\'', '\\']) => {
            write!(out, "'{text}'")
        }
        _ => write!(out, "`{}`", value.to_string().replace('`', "\\`")),
    }
}
