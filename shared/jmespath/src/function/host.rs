//! The evaluation as a function sees it.

use crate::ast::ExprId;
use crate::error::EvalError;
use crate::node::Shape;
use crate::seed::EvalSeed;

/// A value during one call, opaque to all but the [`Call`](crate::Call) that gave the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    pub(crate) fn new(index: usize) -> Self {
        Handle(index)
    }

    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// A row of values during one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handles {
    next: usize,
    end: usize,
}

impl Handles {
    pub(crate) fn new(first: usize, end: usize) -> Self {
        Handles { next: first, end }
    }

    pub(crate) fn none() -> Self {
        Handles { next: 0, end: 0 }
    }
}

impl Iterator for Handles {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        if self.next >= self.end {
            return None;
        }
        self.next += 1;
        Some(Handle(self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Handles {}

/// The evaluation as a function sees it, whatever the document is made of: values are known by
/// handles, so a function is compiled once and needs no type of node.
pub(crate) trait Host {
    fn shape(&self, handle: Handle) -> Shape<'_>;
    fn field(&mut self, handle: Handle, name: &str) -> Option<Handle>;
    fn elements(&mut self, handle: Handle) -> Result<Handles, EvalError>;
    fn entries(&mut self, handle: Handle) -> Result<Handles, EvalError>;
    fn scalar(&mut self, scalar: Shape<'_>) -> Result<Handle, EvalError>;
    fn json(&mut self, json: &serde_json::Value) -> Result<Handle, EvalError>;
    fn array(&mut self, elements: &[Handle]) -> Result<Handle, EvalError>;
    fn object(&mut self, entries: &[(Handle, Handle)]) -> Result<Handle, EvalError>;
    fn apply(&mut self, reference: ExprId, current: Handle) -> Result<Handle, EvalError>;
    fn equal(&mut self, left: Handle, right: Handle) -> Result<bool, EvalError>;
    fn contains(&mut self, array: Handle, element: Handle) -> Result<bool, EvalError>;
    fn json_text(&mut self, handle: Handle) -> Result<Handle, EvalError>;
    fn to_json(&mut self, handle: Handle) -> Result<serde_json::Value, EvalError>;
    fn hold_json(&mut self, bytes: u64) -> Result<(), EvalError>;
    fn json_bytes_max(&self) -> u64;
    fn steps(&mut self, steps: usize) -> Result<(), EvalError>;
    fn steps_left(&self) -> u64;
    fn build(&mut self, bytes: usize) -> Result<(), EvalError>;
    fn seed(&self) -> Option<&EvalSeed>;
}
