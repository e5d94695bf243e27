//! The value of a subexpression for elements that no probe finds.

use std::rc::Rc;

use anteroom_jmespath::ast::{Argument, CompareOperator, Expr, ExprId};

use super::{Matching, Narrow, dependence, document::Search, probe::find, stream::Chain};
use crate::Leaf;

/// A subexpression's value for every element of an object that is not found.
pub(super) struct Miss {
    /// Finds the other objects, and every object of which an element raises an error.
    pub(super) narrow: Narrow,
    /// The value.
    pub(super) value: FalsyValue,
}

/// A value that a condition takes for false. Each variant includes the variants before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FalsyValue {
    /// `null`, or a key is missing.
    Null,
    /// `Null`, or an empty list.
    Lists,
    /// `Lists`, or any other value that a condition takes for false.
    False,
}

impl Search<'_> {
    /// The value of a subexpression for each element of a chain that no probe finds.
    pub(super) fn miss(&self, id: ExprId, chain: &Rc<Chain>) -> Option<Miss> {
        let no = |narrow| Miss {
            narrow,
            value: FalsyValue::False,
        };
        match self.ast.expr(id) {
            Expr::Compare {
                operator: CompareOperator::Equal,
                left,
                right,
            } => self.equal(*left, *right, chain).map(no),
            Expr::Not(expr) => match self.ast.expr(*expr) {
                Expr::Compare {
                    operator: CompareOperator::NotEqual,
                    left,
                    right,
                } => self.equal(*left, *right, chain).map(no),
                _ => None,
            },
            Expr::And(exprs) => self.conjunction(exprs, chain),
            Expr::Or(exprs) => {
                let missed = exprs.iter().map(|expr| self.miss(*expr, chain));
                let missed: Vec<_> = missed.collect::<Option<_>>()?;
                let narrow = missed.into_iter().map(|missed| missed.narrow);
                Some(no(Narrow::Any(narrow.collect())))
            }
            Expr::Call {
                function,
                arguments,
            } => match &**arguments {
                [Argument::Value(one), Argument::Value(other)] => {
                    let name = self.ast.function_name(*function);
                    self.agreement(name, *one, *other, chain).map(no)
                }
                _ => None,
            },
            _ => self.missed_list(id, chain),
        }
    }

    /// Finds the first conjunct that is false for the others. The conjuncts before it must not fail.
    fn conjunction(&self, conjuncts: &[ExprId], chain: &Rc<Chain>) -> Option<Miss> {
        let mut ways = Vec::new();
        let mut value = FalsyValue::False;
        for (place, expr) in conjuncts.iter().enumerate() {
            if let Some(missed) = self.miss(*expr, chain) {
                if place == 0 {
                    value = missed.value;
                }
                ways.push(missed.narrow);
            }
            if !dependence::cannot_fail(self.ast, *expr) {
                break;
            }
        }
        if ways.len() > 1 {
            value = FalsyValue::False;
        }
        let narrow = Narrow::all(ways)?;
        Some(Miss { narrow, value })
    }

    fn equal(&self, left: ExprId, right: ExprId, chain: &Chain) -> Option<Narrow> {
        let way = |key, with| {
            let operand = dependence::operand(self.ast, with)?;
            self.own_key(key, chain, false, Leaf::Value)
                .map(|key| find(key, Matching::Equal, operand))
        };
        way(left, right).or_else(|| way(right, left))
    }

    fn agreement(&self, name: &str, one: ExprId, other: ExprId, chain: &Chain) -> Option<Narrow> {
        let way = |key, in_list, leaf, matching, with| {
            let operand = dependence::operand(self.ast, with)?;
            self.own_key(key, chain, in_list, leaf)
                .map(|key| find(key, matching, operand))
        };
        match name {
            // Of a text it looks for a part: such an object is always looked at.
            "contains" => way(one, true, Leaf::Value, Matching::Equal, other)
                .or_else(|| way(other, false, Leaf::Value, Matching::Among, one)),
            "any_in" => way(other, true, Leaf::Value, Matching::Alike, one),
            "label_match" => way(one, false, Leaf::FirstEntry, Matching::AmongEntries, other)
                .or_else(|| way(other, false, Leaf::Entries, Matching::HasEntries, one)),
            _ => None,
        }
    }

    fn own_key(
        &self,
        expr: ExprId,
        chain: &Chain,
        in_list: bool,
        leaf: Leaf,
    ) -> Option<crate::Key> {
        match dependence::is_key(self.ast, expr) {
            true => chain.key(self.ast, expr, in_list, leaf),
            false => None,
        }
    }
}
