//! A syntax tree as text again, with other subexpressions in the place of some.

use std::{collections::HashMap, fmt::Write as _};

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, CompareOperator, Expr, ExprId, Slice},
};

/// Texts that stand in the place of subexpressions. Each is a subexpression that needs no parentheses.
#[derive(Debug, Default)]
pub(crate) struct Swaps {
    /// Texts that replace a whole subexpression.
    pub(crate) exprs: HashMap<ExprId, String>,
    /// Texts that replace a number of first steps of a path, or of first stages of a pipe.
    pub(crate) stages: HashMap<ExprId, (usize, String)>,
}

/// No expression has it in it.
const UNWRITABLE: &str = "\0";

/// Writes subexpressions of a syntax tree as text.
pub(crate) struct ExprWriter<'e> {
    ast: &'e Ast,
    swaps: &'e Swaps,
}

/// Returns the expression with the swaps applied; `None`: the result might have a different meaning.
pub(crate) fn swapped(expression: &Expression, swaps: &Swaps) -> Option<Expression> {
    if !is_writable(expression) {
        return None;
    }
    let ast = expression.ast();
    let text = ExprWriter::new(ast, swaps).expr(ast.root());
    Expression::parse(&text).ok()
}

/// Returns true if the written tree parses to the same tree; this then holds for each part of the tree.
pub(crate) fn is_writable(expression: &Expression) -> bool {
    let ast = expression.ast();
    let text = ExprWriter::new(ast, &Swaps::default()).expr(ast.root());
    Expression::parse(&text).is_ok_and(|again| again == *expression)
}

impl<'e> ExprWriter<'e> {
    pub(crate) fn new(ast: &'e Ast, swaps: &'e Swaps) -> Self {
        Self { ast, swaps }
    }

    /// The subexpression as an expression.
    pub(crate) fn expr(&self, id: ExprId) -> String {
        if let Some(swap) = self.swaps.exprs.get(&id) {
            return swap.clone();
        }
        match self.ast.expr(id) {
            Expr::Current => "@".to_owned(),
            Expr::Field(name) => quoted(name),
            Expr::Literal(value) => format!("`{}`", value.to_string().replace('`', "\\`")),
            Expr::Parameter(slot) => format!("${}", self.ast.parameters()[slot.index()]),
            Expr::Path(steps) => {
                let (first, rest) = self.begun(id, steps);
                let mut text = first;
                for (place, step) in rest.iter().enumerate() {
                    // What stands behind a projection would be part of it.
                    let before = steps.get(place + steps.len() - rest.len() - 1);
                    if !before.is_some_and(|before| self.is_single(*before)) {
                        text = format!("({text})");
                    }
                    text += &self.behind(*step);
                }
                text
            }
            Expr::Pipe(stages) => {
                let (first, rest) = self.begun(id, stages);
                let rest = rest.iter().map(|stage| self.operand(*stage));
                joined(std::iter::once(format!("({first})")).chain(rest), " | ")
            }
            Expr::Or(exprs) => joined(exprs.iter().map(|expr| self.operand(*expr)), " || "),
            Expr::And(exprs) => joined(exprs.iter().map(|expr| self.operand(*expr)), " && "),
            Expr::Not(expr) => format!("!{}", self.grouped(*expr)),
            Expr::Compare {
                operator,
                left,
                right,
            } => {
                let (left, right) = (self.operand(*left), self.operand(*right));
                format!("{left} {} {right}", sign(*operator))
            }
            Expr::Index(_)
            | Expr::Slice(_)
            | Expr::List(_)
            | Expr::Object(_)
            | Expr::Call { .. } => {
                let behind = self.behind(id);
                behind.strip_prefix('.').unwrap_or(&behind).to_owned()
            }
            Expr::Project { left, right } => self.projected(*left, *right, Self::grouped),
            Expr::Filter { left, .. } | Expr::ProjectValues { left, .. } => {
                self.grouped(*left) + &self.behind_left(id)
            }
            Expr::Flatten(left) => self.grouped(*left) + "[]",
        }
    }

    /// Writes a subexpression, in parentheses if its context binds more tightly.
    pub(crate) fn grouped(&self, id: ExprId) -> String {
        match self.ast.expr(id) {
            Expr::Path(_) => format!("({})", self.expr(id)),
            _ => self.operand(id),
        }
    }

    /// Writes a subexpression as an operand, in parentheses if they make a difference beside an operator.
    pub(crate) fn operand(&self, id: ExprId) -> String {
        match self.is_single(id) {
            true => self.expr(id),
            false => format!("({})", self.expr(id)),
        }
    }

    /// Returns true if nothing can come between the parts of the subexpression.
    fn is_single(&self, id: ExprId) -> bool {
        match self.ast.expr(id) {
            Expr::Current
            | Expr::Field(_)
            | Expr::Literal(_)
            | Expr::Parameter(_)
            | Expr::Index(_)
            | Expr::List(_)
            | Expr::Object(_)
            | Expr::Call { .. } => true,
            Expr::Path(steps) => {
                !self.swaps.stages.contains_key(&id)
                    && steps.iter().all(|step| self.is_single(*step))
            }
            _ => false,
        }
    }

    /// The subexpression as it stands behind a value, or behind the brackets of a projection.
    pub(crate) fn behind(&self, id: ExprId) -> String {
        if self.swaps.exprs.contains_key(&id) || self.swaps.stages.contains_key(&id) {
            return UNWRITABLE.to_owned(); // What stands behind a value is not that of a parameter.
        }
        match self.ast.expr(id) {
            Expr::Current => String::new(),
            Expr::Field(name) => format!(".{}", quoted(name)),
            Expr::Index(index) => format!("[{index}]"),
            Expr::Slice(slice) => slice_text(*slice),
            Expr::List(exprs) => {
                let exprs = exprs.iter().map(|expr| self.expr(*expr));
                format!(".[{}]", joined(exprs, ", "))
            }
            Expr::Object(entries) => {
                let entry = |(name, expr): &(Box<str>, ExprId)| {
                    format!("{}: {}", quoted(name), self.expr(*expr))
                };
                format!(".{{{}}}", joined(entries.iter().map(entry), ", "))
            }
            Expr::Call {
                function,
                arguments,
            } => {
                let argument = |argument: &Argument| match argument {
                    Argument::Value(expr) => self.expr(*expr),
                    Argument::Reference(expr) => format!("&{}", self.grouped(*expr)),
                };
                let arguments = joined(arguments.iter().map(argument), ", ");
                format!(".{}({arguments})", self.ast.function_name(*function))
            }
            Expr::Path(steps) => joined(steps.iter().map(|step| self.behind(*step)), ""),
            Expr::Project { left, right } => self.projected(*left, *right, Self::behind),
            Expr::Filter { left, .. } | Expr::ProjectValues { left, .. } => {
                self.behind(*left) + &self.behind_left(id)
            }
            _ => UNWRITABLE.to_owned(),
        }
    }

    fn behind_left(&self, id: ExprId) -> String {
        match self.ast.expr(id) {
            Expr::Filter {
                condition, right, ..
            } => format!("[?{}]{}", self.expr(*condition), self.behind(*right)),
            Expr::ProjectValues { right, .. } => format!(".*{}", self.behind(*right)),
            _ => UNWRITABLE.to_owned(),
        }
    }

    fn projected(&self, left: ExprId, right: ExprId, write: fn(&Self, ExprId) -> String) -> String {
        let right = self.behind(right);
        match self.ast.expr(left) {
            Expr::Flatten(inner) => write(self, *inner) + "[]" + &right,
            _ if self.ends_in_slice(left) => match write(self, left) {
                text if text.starts_with('(') => text[1..text.len() - 1].to_owned() + &right,
                text => text + &right,
            },
            _ => write(self, left) + "[*]" + &right,
        }
    }

    fn ends_in_slice(&self, id: ExprId) -> bool {
        match self.ast.expr(id) {
            Expr::Slice(_) => true,
            Expr::Path(steps) => steps.last().is_some_and(|last| self.ends_in_slice(*last)),
            _ => false,
        }
    }

    /// Writes the first step of a path or stage of a pipe, and returns those that follow.
    fn begun<'t>(&self, id: ExprId, exprs: &'t [ExprId]) -> (String, &'t [ExprId]) {
        match (self.swaps.stages.get(&id), exprs) {
            (Some((taken, swap)), _) => (swap.clone(), exprs.get(*taken..).unwrap_or_default()),
            (None, [first, rest @ ..]) => (self.expr(*first), rest),
            (None, []) => (String::new(), &[]),
        }
    }
}

fn quoted(name: &str) -> String {
    let mut bytes = name.bytes();
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    match bytes.next().is_some_and(begins)
        && bytes.all(|byte| begins(byte) || byte.is_ascii_digit())
    {
        true => name.to_owned(),
        false => serde_json::Value::from(name).to_string(),
    }
}

fn joined(texts: impl Iterator<Item = String>, between: &str) -> String {
    texts.collect::<Vec<_>>().join(between)
}

fn sign(operator: CompareOperator) -> &'static str {
    match operator {
        CompareOperator::Equal => "==",
        CompareOperator::NotEqual => "!=",
        CompareOperator::Less => "<",
        CompareOperator::LessOrEqual => "<=",
        CompareOperator::Greater => ">",
        CompareOperator::GreaterOrEqual => ">=",
    }
}

fn slice_text(slice: Slice) -> String {
    let mut text = "[".to_owned();
    let bound = |bound: Option<i64>| bound.map_or_else(String::new, |bound| bound.to_string());
    // Writing to a text cannot fail.
    let _ = write!(text, "{}:{}", bound(slice.start), bound(slice.stop));
    if slice.step != 1 {
        let _ = write!(text, ":{}", slice.step);
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_tree_reads_as_the_same_tree() {
        for text in [
            "items[].spec.rules[].host",
            "things.items[*].a.b[0]",
            "things | items[?metadata.name == $n && !(a || b)].c | [0]",
            "items[?contains(spec.rules[].host, 'it\\'s `x`')]",
            "[a, {b: c, \"d e\": @}] | length(@) > `3`",
            "sort_by(items, &metadata.name)[-1].x",
            "items[1:-2].a[::2][]",
            "a[*].b[*].c[?d].e.*.f",
            "(a[*].b).c",
            "(a | b).c[?x].[a, b]",
            "*.a",
            "[?a].b[]",
            "[*][0][0]",
            "[:2]",
            "a[].to_string(@)",
            "max(items[].a) || `1.50`",
            "a < b.c",
            "!a && !a.b || !(c[*])",
            "(a.b)[*].c | (a.b[*].c)[?d]",
            "a.b.*",
            "\"\\u0000 \\\" \"",
        ] {
            let expression = Expression::parse(text).unwrap();
            assert!(is_writable(&expression), "{text}");
        }
    }

    #[test]
    fn replaced_terms_are_written_in_place_of_the_originals() {
        let expression = Expression::parse("length(items[].a) > `3` && (items | sum(@) | [@])");
        let expression = expression.unwrap();
        let ast = expression.ast();
        let Expr::And(exprs) = ast.expr(ast.root()) else {
            panic!("{expression:?}");
        };
        let Expr::Compare { left, .. } = ast.expr(exprs[0]) else {
            panic!("{expression:?}");
        };
        let swaps = Swaps {
            exprs: HashMap::from([(*left, "$one".to_owned())]),
            stages: HashMap::from([(exprs[1], (2, "$two".to_owned()))]),
        };
        let expected = Expression::parse("$one > `3` && ($two | [@])").unwrap();
        assert_eq!(swapped(&expression, &swaps), Some(expected));
    }
}
