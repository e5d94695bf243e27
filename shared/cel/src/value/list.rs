//! List values.

use std::sync::Arc;

use serde_json::Value;

use super::Val;

/// A list, of the request or made.
#[derive(Clone, Debug)]
pub(crate) enum List<'v> {
    Json(&'v [Value]),
    Own(Arc<[Val<'v>]>),
}

impl<'v> List<'v> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(elements) => elements.len(),
            Self::Own(elements) => elements.len(),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<Val<'v>> {
        match self {
            Self::Json(elements) => elements.get(at).map(Val::of),
            Self::Own(elements) => elements.get(at).cloned(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Val<'v>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}
