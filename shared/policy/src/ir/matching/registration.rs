//! The requests for which the API server has to call the webhook, computed from the selections of rules. Pure.

use super::Match;
use crate::ir::{KindPattern, Operation, Phase};

/// Kinds and operations to register for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredKinds {
    /// The kinds; each may hold wildcards.
    pub kinds: Vec<KindPattern>,
    /// The operations, never empty.
    pub operations: Vec<Operation>,
}

impl Match {
    /// Returns the kinds and operations to register for. Exclusions narrow nothing here: the API server has
    /// no way to say them.
    pub(crate) fn registered_kinds(&self, phase: Phase) -> impl Iterator<Item = RegisteredKinds> {
        self.included().iter().filter_map(move |filter| {
            let operations = operations(phase, &filter.operations);
            (!operations.is_empty()).then(|| RegisteredKinds {
                kinds: match &*filter.kinds {
                    [] => vec![KindPattern::any()],
                    kinds => kinds.to_vec(),
                },
                operations,
            })
        })
    }
}

/// Returns the operations that a filter registers for. As in Kyverno, a deletion is never changed, and CONNECT counts
/// only if the filter names it.
fn operations(phase: Phase, said: &[Operation]) -> Vec<Operation> {
    match (phase, said) {
        (Phase::Mutation, []) => vec![Operation::Create, Operation::Update],
        (Phase::Validation, []) => Operation::ALL.to_vec(),
        (Phase::Validation, said) => said.to_vec(),
        (Phase::Mutation, said) => {
            let changed = said.iter().filter(|said| **said != Operation::Delete);
            changed.copied().collect()
        }
    }
}
