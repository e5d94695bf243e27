//! The syntax tree: a flat arena of subexpressions, for the evaluator and for a planner to read.
//!
//! Chains are flat: `a.b[0]` is one [`Expr::Path`] of three steps, `a || b || c` one [`Expr::Or`]. So a tree is
//! only as deep as its expression truly nests, and dropping or sharing one is cheap.

mod root_fields;
mod text;

use std::ops::Range;

pub use text::ExprText;

/// A parsed expression as a tree.
///
/// Equal expressions give equal trees, whatever their white space.
#[derive(Clone, Debug)]
pub struct Ast {
    pub(crate) exprs: Vec<Expr>,
    pub(crate) spans: Vec<Range<u32>>,
    pub(crate) root: ExprId,
    pub(crate) functions: Vec<Box<str>>,
    pub(crate) parameters: Vec<Box<str>>,
}

impl Ast {
    /// The whole expression.
    pub fn root(&self) -> ExprId {
        self.root
    }

    /// The subexpression of an id that this tree gave.
    ///
    /// # Panics
    /// If the id came from another, larger tree.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.index()]
    }

    /// The range of the subexpression in the expression's text, in bytes.
    ///
    /// # Panics
    /// If the id came from another, larger tree.
    pub fn span_bytes(&self, id: ExprId) -> Range<usize> {
        let span = &self.spans[id.index()];
        span.start as usize..span.end as usize
    }

    /// The names of the functions called, each once, by [`Slot`].
    pub fn functions(&self) -> &[Box<str>] {
        &self.functions
    }

    /// The names of the parameters used (without the dollar sign), each once, by [`Slot`].
    pub fn parameters(&self) -> &[Box<str>] {
        &self.parameters
    }

    /// The name of the function that a [`Expr::Call`] calls.
    pub fn function_name(&self, slot: Slot) -> &str {
        &self.functions[slot.0 as usize]
    }
}

impl PartialEq for Ast {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
            && self.exprs == other.exprs
            && self.functions == other.functions
            && self.parameters == other.parameters
    }
}

/// A subexpression of one [`Ast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExprId(pub(crate) u32);

impl ExprId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a function or of a parameter within one [`Ast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub(crate) u32);

impl Slot {
    /// The place in [`Ast::functions`] or [`Ast::parameters`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One node of the tree. What it says of "the current value" is what the subexpression is evaluated on: the
/// document at the root, the element in a projection, the left side's value in a path or a pipe.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// `@`, or nothing at all: the current value.
    Current,
    /// `name`: a field of the current value.
    Field(Box<str>),
    /// `[0]`, `[-1]`: an element of the current value.
    Index(i64),
    /// `[start:stop:step]`: elements of the current value. Always the left of a [`Expr::Project`].
    Slice(Slice),
    /// A `` `json` `` literal or a `'raw string'`.
    Literal(serde_json::Value),
    /// A parameter: `$name`.
    Parameter(Slot),
    /// `a.b[0]`: each step on the value of the one before. Two steps or more.
    Path(Box<[ExprId]>),
    /// `a | b`: as [`Expr::Path`], but projections end here. Two stages or more.
    Pipe(Box<[ExprId]>),
    /// `a || b`: the first true operand, else the last. Two or more.
    Or(Box<[ExprId]>),
    /// `a && b`: the first false operand, else the last. Two or more.
    And(Box<[ExprId]>),
    /// A negation: `!a`.
    Not(ExprId),
    /// `a == b`
    Compare {
        /// The operator.
        operator: CompareOperator,
        /// The left side.
        left: ExprId,
        /// The right side.
        right: ExprId,
    },
    /// `left[*].right`: the elements of `left`, `right` on each, nulls left out. Also what follows
    /// a [`Expr::Slice`] or a [`Expr::Flatten`].
    Project {
        /// The projected array.
        left: ExprId,
        /// The subexpression that is evaluated on each element.
        right: ExprId,
    },
    /// `left.*.right`: as [`Expr::Project`] over the values of an object.
    ProjectValues {
        /// The projected object.
        left: ExprId,
        /// The subexpression that is evaluated on each value.
        right: ExprId,
    },
    /// `left[?condition].right`: as [`Expr::Project`] over the elements whose condition is true.
    Filter {
        /// The filtered array.
        left: ExprId,
        /// The condition, on each element.
        condition: ExprId,
        /// The subexpression that is evaluated on each element that passes.
        right: ExprId,
    },
    /// `left[]`: the elements of `left`, those that are arrays replaced by their elements.
    Flatten(ExprId),
    /// `[a, b]`; null on null.
    List(Box<[ExprId]>),
    /// `{k: a}`; null on null. Of equal keys the last wins.
    Object(Box<[(Box<str>, ExprId)]>),
    /// `name(a, &b)`
    Call {
        /// The function's name.
        function: Slot,
        /// The arguments of the call.
        arguments: Box<[Argument]>,
    },
}

/// An argument of a [`Expr::Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The value of the subexpression on the current value.
    Value(ExprId),
    /// `&expr`: the subexpression itself, for the function to apply.
    Reference(ExprId),
}

/// The operators of [`Expr::Compare`]. The ordering ones give null unless both sides are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum CompareOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The bounds of a [`Expr::Slice`], with Python's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first index; from the end if negative.
    pub start: Option<i64>,
    /// The index before which it ends; from the end if negative.
    pub stop: Option<i64>,
    /// The distance, never 0.
    pub step: i64,
}

impl Slice {
    /// The indexes that the slice takes of an array of `length` elements.
    pub fn indexes(self, length: usize) -> impl Iterator<Item = usize> {
        // In i128, since -i64::MIN and start + step overflow i64.
        let length = length as i128;
        let step = i128::from(self.step);
        let (lowest, highest) = if step < 0 {
            (-1, length - 1)
        } else {
            (0, length)
        };
        let clamp = |index: i64| {
            let index = i128::from(index);
            let index = if index < 0 { index + length } else { index };
            index.clamp(lowest, highest)
        };
        let (first, last) = if step < 0 {
            (highest, lowest)
        } else {
            (lowest, highest)
        };
        let start = self.start.map_or(first, clamp);
        let stop = self.stop.map_or(last, clamp);
        let inside = move |index: &i128| {
            if step < 0 {
                *index > stop
            } else {
                step > 0 && *index < stop
            }
        };
        std::iter::successors(Some(start), move |index| Some(index + step))
            .take_while(inside)
            .filter_map(|index| usize::try_from(index).ok())
    }
}

impl Expr {
    /// The subexpressions directly below this one.
    pub fn children(&self) -> Vec<ExprId> {
        match self {
            Expr::Current
            | Expr::Field(_)
            | Expr::Index(_)
            | Expr::Slice(_)
            | Expr::Literal(_)
            | Expr::Parameter(_) => Vec::new(),
            Expr::Path(exprs)
            | Expr::Pipe(exprs)
            | Expr::Or(exprs)
            | Expr::And(exprs)
            | Expr::List(exprs) => exprs.to_vec(),
            Expr::Not(expr) | Expr::Flatten(expr) => vec![*expr],
            Expr::Compare { left, right, .. }
            | Expr::Project { left, right }
            | Expr::ProjectValues { left, right } => vec![*left, *right],
            Expr::Filter {
                left,
                condition,
                right,
            } => vec![*left, *condition, *right],
            Expr::Object(entries) => entries.iter().map(|(_, expr)| *expr).collect(),
            Expr::Call { arguments, .. } => arguments
                .iter()
                .map(|argument| match argument {
                    Argument::Value(expr) | Argument::Reference(expr) => *expr,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Slice;

    fn taken(start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<usize> {
        Slice { start, stop, step }.indexes(4).collect()
    }

    #[test]
    fn slices_select_the_same_elements_as_python() {
        assert_eq!(taken(None, None, 1), [0, 1, 2, 3]);
        assert_eq!(taken(None, None, -1), [3, 2, 1, 0]);
        assert_eq!(taken(Some(-3), Some(-1), 1), [1, 2]);
        assert_eq!(taken(Some(10), Some(-10), -2), [3, 1]);
        assert_eq!(taken(Some(10), None, 1), [] as [usize; 0]);
        assert_eq!(taken(Some(i64::MIN), Some(i64::MAX), i64::MAX), [0]);
        assert_eq!(taken(Some(i64::MAX), Some(i64::MIN), i64::MIN), [3]);
        assert_eq!(taken(Some(0), None, -1), [0]);
        assert_eq!(taken(None, None, 0), [] as [usize; 0]);
        // Not collected: a step of 0 that went on would never end.
        let (start, stop) = (Some(3), Some(1));
        let step = 0;
        assert_eq!(Slice { start, stop, step }.indexes(4).next(), None);
    }
}
