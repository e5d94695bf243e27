//! The state of each entry of a rule's context.

use std::sync::Arc;

use serde_json::Value;

use crate::ir::{
    VariableError,
    context::{ContextEntry, Loader},
};

/// The states of a rule's entries, kept from step to step so that nothing is loaded twice.
pub(crate) struct States(pub(super) Vec<EntryState>);

/// The state of an entry. A fact that could not be read is none: it ends the evaluation.
#[derive(Clone)]
pub(super) enum EntryState {
    Unloaded,
    Loaded(Arc<Value>),
    /// The fact is missing. The variable counts as undefined, so that a `||` may provide a default.
    Absent(VariableError),
}

impl States {
    pub(crate) fn new(entries: &[Arc<ContextEntry>]) -> Self {
        Self(vec![EntryState::Unloaded; entries.len()])
    }
}

impl States {
    /// Returns the states of entries inside a `foreach`, for one element. Values that are known outside are known
    /// inside. `added` are the entries that only the inside has.
    pub(crate) fn within(
        &self,
        added: &[Arc<ContextEntry>],
        element: &Arc<Value>,
        index: usize,
    ) -> Self {
        let mut states = Vec::with_capacity(self.0.len() + added.len());
        states.extend_from_slice(&self.0);
        for entry in added {
            let is_index = entry.name.starts_with("elementIndex");
            states.push(match (&entry.loader, is_index) {
                (Loader::Given, false) => EntryState::Loaded(Arc::clone(element)),
                (Loader::Given, true) => EntryState::Loaded(Arc::new(index.into())),
                _ => EntryState::Unloaded,
            });
        }
        Self(states)
    }

    /// Takes over the values that were loaded inside a `foreach` and belong to entries outside.
    pub(crate) fn learn(&mut self, within: &Self) {
        let outer = self.0.len();
        self.0.clone_from_slice(&within.0[..outer]);
    }
}
