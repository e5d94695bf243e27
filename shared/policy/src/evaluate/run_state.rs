//! The state of an evaluation beside its facts: time and random values, limits, the values that exceptions allow, and
//! further results.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use anteroom_cel::Machine;
use anteroom_jmespath::EvalSeed;
use anteroom_patch::apply::ObjectSchema;
use serde_json::Value;

use super::limits::FOREACH_ELEMENTS_IN_ALL_MAX;

/// The state of the evaluation of one rule, from step to step.
#[derive(Default)]
pub(super) struct RunState {
    /// The time of the rule's evaluation, and the source of its random values.
    pub(super) seed: Option<EvalSeed>,
    /// The time for expressions in CEL, and the source of their random values.
    pub(super) arrival: Option<anteroom_cel::Arrival>,
    /// An expression in CEL asked for the arrival.
    asks_arrival: AtomicBool,
    /// The number of random draws that stay known from step to step.
    drawn: u64,
    /// The number of elements that this step has gone through.
    gone_through: usize,
    /// The memory of the elements that this step goes through.
    pub(super) list_bytes: u64,
    /// Images and values that exceptions allow to expressions.
    pub(super) allowed_images: Vec<Value>,
    pub(super) allowed_values: Vec<Value>,
    /// Schemas of custom kinds, by `apiVersion` and kind, as their definitions say.
    pub(super) schemas: BTreeMap<(String, String), ObjectSchema>,
    /// Further results of the rule, for reports: audit annotations, and which validation decided.
    pub(super) properties: Vec<(String, String)>,
}

impl RunState {
    /// Returns a state with the time of the request and the source of random values, if they are known.
    pub(super) fn seeded(seed: Option<EvalSeed>, arrival: Option<anteroom_cel::Arrival>) -> Self {
        Self {
            seed,
            arrival,
            ..Self::default()
        }
    }

    /// Notes whether expressions in CEL asked for the time or for random values.
    pub(super) fn note_arrival(&self, machine: &Machine<'_>) {
        if machine.depends_on_arrival() {
            self.asks_arrival.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the rule's result may depend on the time or on random values.
    pub(super) fn depends_on_arrival(&self) -> bool {
        self.asks_arrival.load(Ordering::Relaxed)
            || self.seed.as_ref().is_some_and(EvalSeed::is_used)
    }

    /// Begins a step. Its random values repeat those of the step before, except for values that were kept for all
    /// later steps.
    pub(super) fn begin(&mut self) {
        self.gone_through = 0;
        self.list_bytes = 0;
        if let Some(seed) = &self.seed {
            seed.go_to(self.drawn);
        }
    }

    /// Drops all but the time, the source of random values, and whether either was asked for: values repeat from the first
    /// one.
    pub(super) fn begin_anew(&mut self) {
        let asks_arrival = AtomicBool::new(*self.asks_arrival.get_mut());
        *self = Self {
            asks_arrival,
            ..Self::seeded(self.seed.take(), self.arrival)
        };
    }

    /// Counts elements that are gone through; `false`: they are too many.
    pub(super) fn go_through(&mut self, count: usize) -> bool {
        self.gone_through = self.gone_through.saturating_add(count);
        self.gone_through <= FOREACH_ELEMENTS_IN_ALL_MAX
    }

    /// Keeps the random draws so far for all later steps.
    pub(super) fn keep_drawn(&mut self) {
        self.drawn = self.seed.as_ref().map_or(0, EvalSeed::drawn);
    }
}
