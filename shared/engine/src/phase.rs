//! The phases of admission: how they are called, and one of something for each.

use anteroom_policy::Phase;

/// The verb of a phase, in the names of webhooks and in their paths.
pub fn verb(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutation => "mutate",
        Phase::Validation => "validate",
    }
}

/// A pair of values: one for the mutating phase, one for the validating phase.
#[derive(Clone, Debug, Default)]
pub struct ByPhase<T> {
    mutation: T,
    validation: T,
}

impl<T> ByPhase<T> {
    /// Makes one for each phase.
    pub fn of(mut one: impl FnMut(Phase) -> T) -> Self {
        Self {
            mutation: one(Phase::Mutation),
            validation: one(Phase::Validation),
        }
    }

    /// The one of a phase, to be changed.
    pub fn get_mut(&mut self, phase: Phase) -> &mut T {
        match phase {
            Phase::Mutation => &mut self.mutation,
            Phase::Validation => &mut self.validation,
        }
    }

    /// The one of a phase.
    pub fn get(&self, phase: Phase) -> &T {
        match phase {
            Phase::Mutation => &self.mutation,
            Phase::Validation => &self.validation,
        }
    }
}
