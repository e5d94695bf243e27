//! A syntax tree as text again, with other terms in the place of some.

use std::{collections::HashMap, fmt::Write as _};

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, CompareOperator, Slice, Term, TermId},
};

/// Texts that stand in the place of terms. Each is a term that needs no parentheses.
#[derive(Debug, Default)]
pub(crate) struct Swaps {
    /// Texts that replace a whole term.
    pub(crate) terms: HashMap<TermId, String>,
    /// Texts that replace a number of first steps of a path, or of first stages of a pipe.
    pub(crate) stages: HashMap<TermId, (usize, String)>,
}

/// No expression has it in it.
const UNWRITABLE: &str = "\0";

/// Writes terms of a syntax tree as text.
pub(crate) struct TermWriter<'e> {
    ast: &'e Ast,
    swaps: &'e Swaps,
}

/// Returns the expression with the swaps applied; `None`: the result might have a different meaning.
pub(crate) fn swapped(expression: &Expression, swaps: &Swaps) -> Option<Expression> {
    if !is_writable(expression) {
        return None;
    }
    let ast = expression.ast();
    let text = TermWriter::new(ast, swaps).term(ast.root());
    Expression::parse(&text).ok()
}

/// Returns true if the written tree parses to the same tree; this then holds for each part of the tree.
pub(crate) fn is_writable(expression: &Expression) -> bool {
    let ast = expression.ast();
    let text = TermWriter::new(ast, &Swaps::default()).term(ast.root());
    Expression::parse(&text).is_ok_and(|again| again == *expression)
}

impl<'e> TermWriter<'e> {
    pub(crate) fn new(ast: &'e Ast, swaps: &'e Swaps) -> Self {
        Self { ast, swaps }
    }

    /// The term as an expression.
    pub(crate) fn term(&self, id: TermId) -> String {
        if let Some(swap) = self.swaps.terms.get(&id) {
            return swap.clone();
        }
        match self.ast.term(id) {
            Term::Current => "@".to_owned(),
            Term::Field(name) => quoted(name),
            Term::Literal(value) => format!("`{}`", value.to_string().replace('`', "\\`")),
            Term::Parameter(slot) => format!("${}", self.ast.parameters()[slot.index()]),
            Term::Path(steps) => {
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
            Term::Pipe(stages) => {
                let (first, rest) = self.begun(id, stages);
                let rest = rest.iter().map(|stage| self.operand(*stage));
                joined(std::iter::once(format!("({first})")).chain(rest), " | ")
            }
            Term::Or(terms) => joined(terms.iter().map(|term| self.operand(*term)), " || "),
            Term::And(terms) => joined(terms.iter().map(|term| self.operand(*term)), " && "),
            Term::Not(term) => format!("!{}", self.grouped(*term)),
            Term::Compare {
                operator,
                left,
                right,
            } => {
                let (left, right) = (self.operand(*left), self.operand(*right));
                format!("{left} {} {right}", sign(*operator))
            }
            Term::Index(_)
            | Term::Slice(_)
            | Term::List(_)
            | Term::Object(_)
            | Term::Call { .. } => {
                let behind = self.behind(id);
                behind.strip_prefix('.').unwrap_or(&behind).to_owned()
            }
            Term::Project { left, right } => self.projected(*left, *right, Self::grouped),
            Term::Filter { left, .. } | Term::ProjectValues { left, .. } => {
                self.grouped(*left) + &self.behind_left(id)
            }
            Term::Flatten(left) => self.grouped(*left) + "[]",
        }
    }

    /// Writes a term, in parentheses if its context binds more tightly.
    pub(crate) fn grouped(&self, id: TermId) -> String {
        match self.ast.term(id) {
            Term::Path(_) => format!("({})", self.term(id)),
            _ => self.operand(id),
        }
    }

    /// Writes a term as an operand, in parentheses if they make a difference beside an operator.
    pub(crate) fn operand(&self, id: TermId) -> String {
        match self.is_single(id) {
            true => self.term(id),
            false => format!("({})", self.term(id)),
        }
    }

    /// Returns true if nothing can come between the parts of the term.
    fn is_single(&self, id: TermId) -> bool {
        match self.ast.term(id) {
            Term::Current
            | Term::Field(_)
            | Term::Literal(_)
            | Term::Parameter(_)
            | Term::Index(_)
            | Term::List(_)
            | Term::Object(_)
            | Term::Call { .. } => true,
            Term::Path(steps) => {
                !self.swaps.stages.contains_key(&id)
                    && steps.iter().all(|step| self.is_single(*step))
            }
            _ => false,
        }
    }

    /// The term as it stands behind a value, or behind the brackets of a projection.
    pub(crate) fn behind(&self, id: TermId) -> String {
        if self.swaps.terms.contains_key(&id) || self.swaps.stages.contains_key(&id) {
            return UNWRITABLE.to_owned(); // What stands behind a value is not that of a parameter.
        }
        match self.ast.term(id) {
            Term::Current => String::new(),
            Term::Field(name) => format!(".{}", quoted(name)),
            Term::Index(index) => format!("[{index}]"),
            Term::Slice(slice) => slice_text(*slice),
            Term::List(terms) => {
                let terms = terms.iter().map(|term| self.term(*term));
                format!(".[{}]", joined(terms, ", "))
            }
            Term::Object(entries) => {
                let entry = |(name, term): &(Box<str>, TermId)| {
                    format!("{}: {}", quoted(name), self.term(*term))
                };
                format!(".{{{}}}", joined(entries.iter().map(entry), ", "))
            }
            Term::Call {
                function,
                arguments,
            } => {
                let argument = |argument: &Argument| match argument {
                    Argument::Value(term) => self.term(*term),
                    Argument::Reference(term) => format!("&{}", self.grouped(*term)),
                };
                let arguments = joined(arguments.iter().map(argument), ", ");
                format!(".{}({arguments})", self.ast.function_name(*function))
            }
            Term::Path(steps) => joined(steps.iter().map(|step| self.behind(*step)), ""),
            Term::Project { left, right } => self.projected(*left, *right, Self::behind),
            Term::Filter { left, .. } | Term::ProjectValues { left, .. } => {
                self.behind(*left) + &self.behind_left(id)
            }
            _ => UNWRITABLE.to_owned(),
        }
    }

    fn behind_left(&self, id: TermId) -> String {
        match self.ast.term(id) {
            Term::Filter {
                condition, right, ..
            } => format!("[?{}]{}", self.term(*condition), self.behind(*right)),
            Term::ProjectValues { right, .. } => format!(".*{}", self.behind(*right)),
            _ => UNWRITABLE.to_owned(),
        }
    }

    fn projected(&self, left: TermId, right: TermId, write: fn(&Self, TermId) -> String) -> String {
        let right = self.behind(right);
        match self.ast.term(left) {
            Term::Flatten(inner) => write(self, *inner) + "[]" + &right,
            _ if self.ends_in_slice(left) => match write(self, left) {
                text if text.starts_with('(') => text[1..text.len() - 1].to_owned() + &right,
                text => text + &right,
            },
            _ => write(self, left) + "[*]" + &right,
        }
    }

    fn ends_in_slice(&self, id: TermId) -> bool {
        match self.ast.term(id) {
            Term::Slice(_) => true,
            Term::Path(steps) => steps.last().is_some_and(|last| self.ends_in_slice(*last)),
            _ => false,
        }
    }

    /// Writes the first step of a path or stage of a pipe, and returns those that follow.
    fn begun<'t>(&self, id: TermId, terms: &'t [TermId]) -> (String, &'t [TermId]) {
        match (self.swaps.stages.get(&id), terms) {
            (Some((taken, swap)), _) => (swap.clone(), terms.get(*taken..).unwrap_or_default()),
            (None, [first, rest @ ..]) => (self.term(*first), rest),
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
        let Term::And(terms) = ast.term(ast.root()) else {
            panic!("{expression:?}");
        };
        let Term::Compare { left, .. } = ast.term(terms[0]) else {
            panic!("{expression:?}");
        };
        let swaps = Swaps {
            terms: HashMap::from([(*left, "$one".to_owned())]),
            stages: HashMap::from([(terms[1], (2, "$two".to_owned()))]),
        };
        let expected = Expression::parse("$one > `3` && ($two | [@])").unwrap();
        assert_eq!(swapped(&expression, &swaps), Some(expected));
    }
}
