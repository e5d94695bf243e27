//! The arena that the parser fills.

use std::collections::HashMap;
use std::ops::Range;

use crate::ast::{Ast, Expr, ExprId, Slot};

/// The subexpressions so far. A subexpression's depth exceeds the depth of its deepest operand by 1.
#[derive(Default)]
pub(crate) struct Arena {
    exprs: Vec<Expr>,
    spans: Vec<Range<u32>>,
    depths: Vec<u32>,
    functions: NameTable,
    parameters: NameTable,
}

impl Arena {
    /// Adds a subexpression, unless that made a tree deeper than `depth_max`.
    pub(crate) fn push(
        &mut self,
        expr: Expr,
        span: Range<usize>,
        depth_max: u32,
    ) -> Option<ExprId> {
        let below = expr
            .children()
            .into_iter()
            .map(|child| self.depths[child.index()])
            .max();
        let depth = below.unwrap_or(0) + 1;
        if depth > depth_max {
            return None;
        }
        let id = ExprId(u32::try_from(self.exprs.len()).ok()?);
        self.exprs.push(expr);
        self.spans
            .push(u32::try_from(span.start).ok()?..u32::try_from(span.end).ok()?);
        self.depths.push(depth);
        Some(id)
    }

    pub(crate) fn function(&mut self, name: &str) -> Slot {
        self.functions.slot(name)
    }

    pub(crate) fn parameter(&mut self, name: &str) -> Slot {
        self.parameters.slot(name)
    }

    /// The end of the last of these subexpressions in the text, in bytes.
    pub(super) fn end_of(&self, steps: &[ExprId]) -> usize {
        steps
            .last()
            .map_or(0, |last| self.spans[last.index()].end as usize)
    }

    pub(crate) fn into_ast(self, root: ExprId) -> Ast {
        Ast {
            exprs: self.exprs,
            spans: self.spans,
            root,
            functions: self.functions.in_order,
            parameters: self.parameters.in_order,
        }
    }
}

/// Names, each once, in the order of their first use.
#[derive(Default)]
struct NameTable {
    in_order: Vec<Box<str>>,
    slots: HashMap<Box<str>, Slot>,
}

impl NameTable {
    fn slot(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.slots.get(name) {
            return *slot;
        }
        // An expression has less than 2^32 bytes, hence names.
        let slot = Slot(u32::try_from(self.in_order.len()).unwrap_or(u32::MAX));
        self.in_order.push(name.into());
        self.slots.insert(name.into(), slot);
        slot
    }
}

/// An operand: a subexpression, or the steps of a path that may still grow.
pub(super) struct Operand {
    pub(super) start: usize,
    pub(super) steps: Vec<ExprId>,
}

impl Operand {
    /// `self.right`, as one path. A leading `@` says nothing there, and is left out.
    pub(super) fn then(mut self, right: Operand, arena: &Arena) -> Operand {
        if let [only] = self.steps[..]
            && arena.exprs[only.index()] == Expr::Current
        {
            return Operand {
                start: self.start,
                steps: right.steps,
            };
        }
        self.steps.extend(right.steps);
        self
    }
}
