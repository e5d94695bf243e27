//! A count, and the expression that it stands in.

use anteroom_jmespath::{Expression, ast::Expr};
use serde_json::Value;

use crate::Probe;

/// An expression in which parameters stand for its counts over the whole list.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedExpression {
    /// The expression with the parameters.
    pub rest: Expression,
    /// The counts, one for each parameter.
    pub counts: Vec<Count>,
}

/// A count over the whole list.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// The name of its parameter, without the dollar sign.
    pub parameter: String,
    /// An expression over the array of objects, whose elements are counted. Each object contributes
    /// its elements by itself.
    pub chain: Expression,
    /// The value that the parameter has.
    pub measure: Measure,
    /// The index that counts the objects, where the chain depends on the request.
    pub by_index: Option<IndexedCount>,
}

/// A number of objects that an index knows.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedCount {
    /// Finds the objects that agree with the request.
    pub probe: Probe,
    /// The objects that do *not* agree are counted.
    pub negated: bool,
}

/// The value that is made of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// The number, as `length()` gives it.
    Length,
    /// `true`, or the empty list for a count of 0: for subexpressions of which only the truth matters.
    Existence,
}

impl Measure {
    /// The value for this count.
    pub fn value(self, count: u64) -> Value {
        match self {
            Self::Length => count.into(),
            Self::Existence if count > 0 => true.into(),
            Self::Existence => Value::Array(Vec::new()),
        }
    }
}

impl Count {
    /// Returns true if the objects themselves are counted, so that no counter is needed.
    pub fn is_of_all_objects(&self) -> bool {
        let ast = self.chain.ast();
        matches!(ast.expr(ast.root()), Expr::Current)
    }
}
