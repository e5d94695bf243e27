//! A tree as text again.

use std::fmt::{self, Write as _};

use crate::ast::{Argument, Ast, CompareOperator, Expr, ExprId, Slice};

/// A subexpression of a tree, to be written. Different subexpressions have different texts.
///
/// Most trees are written so that they parse to the same tree. A few, and of those that were put
/// together some, have a projection that no text spells; it is written in brackets that no parser takes.
pub struct ExprText<'a> {
    ast: &'a Ast,
    id: ExprId,
}

impl Ast {
    /// The subexpression as text, with the least of white space and brackets.
    pub fn text(&self, id: ExprId) -> ExprText<'_> {
        ExprText { ast: self, id }
    }
}

impl fmt::Display for ExprText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ast.expr(self.id) {
            Expr::Current => out.write_str("@"),
            Expr::Field(name) => field(name, out),
            Expr::Index(index) => write!(out, "[{index}]"),
            Expr::Slice(slice) => write!(out, "{}!", Bounds(*slice)),
            Expr::Literal(value) => literal(value, out),
            Expr::Parameter(slot) => write!(out, "${}", self.ast.parameters()[slot.index()]),
            Expr::Path(steps) if self.ends_in_slice(steps) => {
                self.path(steps, out)?;
                out.write_char('!')
            }
            Expr::Path(steps) => self.path(steps, out),
            Expr::Pipe(exprs) => self.chain(exprs, " | ", out),
            Expr::Or(exprs) => self.chain(exprs, " || ", out),
            Expr::And(exprs) => self.chain(exprs, " && ", out),
            Expr::Not(expr) => match self.ast.expr(*expr) {
                // Without brackets, only the first step would be negated.
                Expr::Path(steps) if self.has_dot(steps) => {
                    write!(out, "!{}", self.bracketed(*expr))
                }
                _ => write!(out, "!{}", self.enclosed(*expr)),
            },
            Expr::Compare {
                operator,
                left,
                right,
            } => {
                let (left, right) = (self.enclosed(*left), self.enclosed(*right));
                write!(out, "{left} {} {right}", operator.spelling())
            }
            Expr::Project { left, right } => {
                self.projected(*left, out)?;
                self.right(*right, out)
            }
            Expr::ProjectValues { left, right } => {
                match self.ast.expr(*left) {
                    Expr::Current => out.write_str("*")?,
                    _ => write!(out, "{}.*", self.enclosed(*left))?,
                }
                self.right(*right, out)
            }
            Expr::Filter {
                left,
                condition,
                right,
            } => {
                self.before_bracket(*left, out)?;
                write!(out, "[?{}]", self.expr(*condition))?;
                self.right(*right, out)
            }
            Expr::Flatten(left) => write!(out, "({}[])!", self.flattened(*left)),
            Expr::List(exprs) => self.list(exprs, out),
            Expr::Object(entries) => {
                out.write_char('{')?;
                for (place, (name, expr)) in entries.iter().enumerate() {
                    separate(place, out)?;
                    field(name, out)?;
                    write!(out, ": {}", self.expr(*expr))?;
                }
                out.write_char('}')
            }
            Expr::Call {
                function,
                arguments,
            } => {
                write!(out, "{}(", self.ast.function_name(*function))?;
                for (place, argument) in arguments.iter().enumerate() {
                    separate(place, out)?;
                    match argument {
                        Argument::Value(expr) => write!(out, "{}", self.expr(*expr))?,
                        Argument::Reference(expr) => write!(out, "&{}", self.expr(*expr))?,
                    }
                }
                out.write_char(')')
            }
        }
    }
}

impl<'a> ExprText<'a> {
    fn expr(&self, id: ExprId) -> Self {
        Self { ast: self.ast, id }
    }

    /// In round brackets, unless it cannot be taken apart by what stands around it.
    fn enclosed(&self, id: ExprId) -> Enclosed<'a> {
        let whole = match self.ast.expr(id) {
            Expr::Current
            | Expr::Field(_)
            | Expr::Index(_)
            | Expr::Literal(_)
            | Expr::Parameter(_)
            | Expr::List(_)
            | Expr::Object(_)
            | Expr::Call { .. } => true,
            Expr::Path(steps) => self.is_plain(steps),
            _ => false,
        };
        Enclosed {
            text: self.expr(id),
            whole,
        }
    }

    /// The operand before `[]`, which ends any projection.
    fn flattened(&self, id: ExprId) -> Enclosed<'a> {
        let projects = matches!(
            self.ast.expr(id),
            Expr::Project { .. } | Expr::ProjectValues { .. } | Expr::Filter { .. }
        );
        Enclosed {
            text: self.expr(id),
            whole: projects || self.enclosed(id).whole,
        }
    }

    /// A path of which only the first step may be more than a name or an index.
    fn is_plain(&self, steps: &[ExprId]) -> bool {
        steps.iter().all(|step| {
            !matches!(
                self.ast.expr(*step),
                Expr::Slice(_) | Expr::Path(_) | Expr::Pipe(_)
            )
        })
    }

    fn path(&self, steps: &[ExprId], out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in steps.iter().enumerate() {
            match (place, self.ast.expr(*step)) {
                (_, Expr::Index(_)) => write!(out, "{}", self.expr(*step))?,
                (_, Expr::Slice(slice)) => write!(out, "{}", Bounds(*slice))?,
                (0, _) => write!(out, "{}", self.enclosed(*step))?,
                (_, Expr::Field(_) | Expr::List(_) | Expr::Object(_) | Expr::Call { .. }) => {
                    write!(out, ".{}", self.expr(*step))?;
                }
                _ => write!(out, ".({})", self.expr(*step))?,
            }
        }
        Ok(())
    }

    fn chain(&self, exprs: &[ExprId], between: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, expr) in exprs.iter().enumerate() {
            if place > 0 {
                out.write_str(between)?;
            }
            let text = match self.ast.expr(*expr) {
                Expr::Pipe(_) | Expr::Or(_) | Expr::And(_) => self.bracketed(*expr),
                _ => Enclosed {
                    text: self.expr(*expr),
                    whole: true,
                },
            };
            write!(out, "{text}")?;
        }
        Ok(())
    }

    fn bracketed(&self, id: ExprId) -> Enclosed<'a> {
        Enclosed {
            text: self.expr(id),
            whole: false,
        }
    }

    fn list(&self, exprs: &[ExprId], out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_char('[')?;
        for (place, expr) in exprs.iter().enumerate() {
            separate(place, out)?;
            // A star alone would be a projection's.
            let star = matches!(self.ast.expr(*expr), Expr::ProjectValues { .. });
            match star {
                true => write!(out, "{}", self.bracketed(*expr))?,
                false => write!(out, "{}", self.expr(*expr))?,
            }
        }
        out.write_char(']')
    }

    /// Writes the projected operand, with the brackets that project it.
    fn projected(&self, left: ExprId, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ast.expr(left) {
            Expr::Flatten(inner) => match self.ast.expr(*inner) {
                Expr::Current => out.write_str("[]"),
                _ => write!(out, "{}[]", self.flattened(*inner)),
            },
            Expr::Slice(slice) => write!(out, "{}", Bounds(*slice)),
            // Without brackets, a slice or a star would project the last step alone.
            Expr::Path(steps) if self.ends_in_slice(steps) => match steps.split_last() {
                Some((slice, sliced)) if self.has_dot(sliced) => {
                    out.write_char('(')?;
                    self.path(sliced, out)?;
                    out.write_char(')')?;
                    self.path(&[*slice], out)
                }
                _ => self.path(steps, out),
            },
            Expr::Path(steps) if self.has_dot(steps) => {
                write!(out, "{}[*]", self.bracketed(left))
            }
            _ => {
                self.before_bracket(left, out)?;
                out.write_str("[*]")
            }
        }
    }

    /// Returns true if the subexpression is a path with a dot, before a slice at its end.
    fn is_dotted(&self, id: ExprId) -> bool {
        match self.ast.expr(id) {
            Expr::Path(steps) if self.ends_in_slice(steps) => {
                self.has_dot(&steps[..steps.len() - 1])
            }
            Expr::Path(steps) => self.has_dot(steps),
            _ => false,
        }
    }

    /// Returns true if a dot stands in the path's text.
    fn has_dot(&self, steps: &[ExprId]) -> bool {
        let is_bracket =
            |step: &ExprId| matches!(self.ast.expr(*step), Expr::Index(_) | Expr::Slice(_));
        !steps.iter().skip(1).all(is_bracket)
    }

    fn ends_in_slice(&self, steps: &[ExprId]) -> bool {
        let last = steps.last().map(|last| self.ast.expr(*last));
        matches!(last, Some(Expr::Slice(_)))
    }

    fn before_bracket(&self, left: ExprId, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ast.expr(left) {
            Expr::Current => Ok(()),
            _ => write!(out, "{}", self.enclosed(left)),
        }
    }

    /// Writes the subexpression that a projection applies to each element.
    fn right(&self, right: ExprId, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.expr(right);
        match self.ast.expr(right) {
            Expr::Current => Ok(()),
            Expr::Index(_) => write!(out, "{text}"),
            Expr::Field(_) | Expr::List(_) | Expr::Object(_) | Expr::Call { .. } => {
                write!(out, ".{text}")
            }
            Expr::Path(steps) => self.after_name(steps.first(), &text, out),
            // It begins with a round bracket.
            Expr::Project { left, .. } if self.is_dotted(*left) => write!(out, ".({text})"),
            // What is written with a bracket in front, or with a name.
            Expr::Project { left, .. } | Expr::Filter { left, .. } => match self.ast.expr(*left) {
                Expr::Current => write!(out, "{text}"),
                Expr::Path(steps) => self.after_name(steps.first(), &text, out),
                _ => self.after_name(Some(left), &text, out),
            },
            _ => write!(out, ".({text})"),
        }
    }

    /// Writes a path that begins with this step. Behind the dot only a name goes on.
    fn after_name(
        &self,
        first: Option<&ExprId>,
        text: &Self,
        out: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        match first.map(|first| self.ast.expr(*first)) {
            Some(Expr::Index(_) | Expr::Slice(_)) => write!(out, "{text}"),
            Some(Expr::Field(_) | Expr::Call { .. }) => write!(out, ".{text}"),
            _ => write!(out, ".({text})"),
        }
    }
}

/// A subexpression, in round brackets where it needs them.
struct Enclosed<'a> {
    text: ExprText<'a>,
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
