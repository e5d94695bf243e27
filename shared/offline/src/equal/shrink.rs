//! Making a request smaller while it shows the same difference.

use anteroom_policy::Operation;
use serde_json::Value;

use super::{
    request::Request,
    value_path::{Pointer, PointerStep, get, is_required, set},
};

/// The most smaller requests that are tried for one difference.
const TRIALS_MAX: usize = 1_000;

/// Fields that identify an object, and are never removed.
const KEPT: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
];

/// Returns the smallest request that is found to show the same difference, by removing greedily: `is_same` says
/// whether one does. The same for the same request.
pub(super) fn shrink(request: Request, is_same: &mut dyn FnMut(&Request) -> bool) -> Request {
    let mut shrinking = Shrinking {
        request,
        trials: 0,
        is_same,
    };
    shrinking.simplify();
    while shrinking.pass() {}
    shrinking.request
}

struct Shrinking<'s> {
    request: Request,
    trials: usize,
    is_same: &'s mut dyn FnMut(&Request) -> bool,
}

impl Shrinking<'_> {
    /// Takes a smaller request if it shows the same difference.
    fn take(&mut self, smaller: Request) -> bool {
        if self.trials >= TRIALS_MAX {
            return false;
        }
        self.trials += 1;
        let is_same = (self.is_same)(&smaller);
        if is_same {
            self.request = smaller;
        }
        is_same
    }

    /// The simplest operation and the first user.
    fn simplify(&mut self) {
        if self.request.user != 0 {
            let request = self.request.clone();
            self.take(Request { user: 0, ..request });
        }
        if self.request.operation != Operation::Create {
            let request = self.request.clone();
            self.take(Request {
                operation: Operation::Create,
                old: None,
                ..request
            });
        }
        if self.request.old.is_some() {
            let request = self.request.clone();
            self.take(Request {
                old: Some(request.object.clone()),
                ..request
            });
        }
    }

    /// Tries to remove each field and element once, outer ones first. Returns whether one was.
    fn pass(&mut self) -> bool {
        let mut removed = false;
        let mut before = Vec::new();
        list(&self.request.object, &mut Vec::new(), &mut before);
        if let Some(old) = &self.request.old {
            list(old, &mut Vec::new(), &mut before);
        }
        // List elements are removed from the end, so that indexes stay valid.
        before.sort_by(|one, other| (one.len(), other).cmp(&(other.len(), one)));
        before.dedup();
        for pointer in before {
            // A valid request stays one.
            if !self.request.is_invalid && is_required(&pointer) {
                continue;
            }
            let is_there = |value: &Value| get(value, &pointer).is_some();
            let (in_object, in_old) = (
                is_there(&self.request.object),
                self.request.old.as_ref().is_some_and(is_there),
            );
            let without = |from_object: bool, from_old: bool| {
                let mut smaller = self.request.clone();
                if from_object {
                    set(&mut smaller.object, &pointer, None);
                }
                if let (true, Some(old)) = (from_old, &mut smaller.old) {
                    set(old, &pointer, None);
                }
                smaller
            };
            let candidates = match (in_object, in_old) {
                (true, true) => vec![
                    without(true, true),
                    without(true, false),
                    without(false, true),
                ],
                (true, false) => vec![without(true, false)],
                (false, true) => vec![without(false, true)],
                (false, false) => Vec::new(),
            };
            removed |= candidates.into_iter().any(|smaller| self.take(smaller));
        }
        removed && self.trials < TRIALS_MAX
    }
}

/// The pointers to all that may be removed.
fn list(value: &Value, at: &mut Pointer, found: &mut Vec<Pointer>) {
    let is_kept = KEPT.iter().any(|kept| {
        let own = at.iter().map(|key| match key {
            PointerStep::Field(name) => &**name,
            PointerStep::At(_) => "",
        });
        own.eq(kept.iter().copied())
    });
    if !at.is_empty() && !is_kept {
        found.push(at.clone());
    }
    let mut below = |key: PointerStep, value: &Value| {
        at.push(key);
        list(value, at, found);
        at.pop();
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                below(PointerStep::Field(name.as_str().into()), value);
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                below(PointerStep::At(index), value);
            }
        }
        _ => {}
    }
}
