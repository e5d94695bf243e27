//! The state of each entry of a rule's context.

use std::sync::Arc;

use anteroom_jmespath::json_memory;
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
    Loaded(LoadedValue),
    /// The fact is missing. The variable counts as undefined, so that a `||` may provide a default.
    Absent(VariableError),
}

/// The value of an entry, and the memory that it takes beside other values.
#[derive(Clone)]
pub(super) struct LoadedValue {
    pub(super) value: Arc<Value>,
    bytes: u64,
}

impl LoadedValue {
    /// A value that was just loaded. If it is shared, somebody else counts it.
    pub(super) fn new(value: Arc<Value>) -> Self {
        let bytes = match Arc::strong_count(&value) {
            1 => json_memory::copied_bytes(&value, u64::MAX).unwrap_or(u64::MAX),
            _ => 0,
        };
        Self { value, bytes }
    }
}

impl States {
    pub(crate) fn new(entries: &[Arc<ContextEntry>]) -> Self {
        Self(vec![EntryState::Unloaded; entries.len()])
    }

    /// Returns the memory of the values that the entries made.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|state| match state {
            EntryState::Loaded(loaded) => loaded.bytes,
            EntryState::Unloaded | EntryState::Absent(_) => 0,
        });
        bytes.fold(0, u64::saturating_add)
    }

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
                (Loader::Given, false) => EntryState::Loaded(LoadedValue::new(Arc::clone(element))),
                (Loader::Given, true) => {
                    EntryState::Loaded(LoadedValue::new(Arc::new(index.into())))
                }
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
