//! The phases of admission: how they are called, and one of something for each.

use anteroom_policy::Phase;

/// What the API server asks for in a phase, in the names of webhooks and in their paths.
pub(crate) fn verb(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutation => "mutate",
        Phase::Validation => "validate",
    }
}

/// One for the rules that change objects, and one for those that judge them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByPhase<T> {
    mutation: T,
    validation: T,
}

impl<T> ByPhase<T> {
    pub(crate) fn of(mut one: impl FnMut(Phase) -> T) -> Self {
        Self {
            mutation: one(Phase::Mutation),
            validation: one(Phase::Validation),
        }
    }

    pub(crate) fn get(&self, phase: Phase) -> &T {
        match phase {
            Phase::Mutation => &self.mutation,
            Phase::Validation => &self.validation,
        }
    }
}
