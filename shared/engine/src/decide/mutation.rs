//! The object on its way through the rules that change it. Pure.
//!
//! | a rule | and then |
//! |---|---|
//! | changes the object | the next rule sees the changed object |
//! | does not match, is skipped, changes nothing | the next rule |
//! | cannot be evaluated, and its policy ignores failures | all that this policy changed is undone; the next policy |
//! | cannot be evaluated otherwise | the request is refused, and no further policy is asked |
//! | makes a change that takes too many steps to compare | the same, whatever the failure policy |
//!
//! So either all rules of a policy change the object, or none does. States of the object are shared, never copied.

use std::sync::Arc;

use anteroom_functions::meter;
use anteroom_patch::{PatchError, json};
use anteroom_policy::{AdmissionRequest, RuleError, RuleOutcome};
use serde_json::Value;

use crate::verdict::{ChangedPlaces, RuleRecord};

/// The object in its current state, with a record of each change.
pub(super) struct Mutation {
    /// The object as it was sent.
    sent: Arc<Value>,
    /// The request, with the object in its present state.
    request: AdmissionRequest,
    /// The object before this policy changed it; `None`: the policy has changed nothing yet.
    found: Option<Arc<Value>>,
    records: Vec<RuleRecord>,
    /// The number of records that belong to earlier policies.
    of_others: usize,
}

/// The one that is asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAsked {
    Rule,
    Policy,
    Nobody,
}

impl Mutation {
    pub(super) fn new(request: AdmissionRequest) -> Self {
        Self {
            sent: request.shared_object(),
            request,
            found: None,
            records: Vec::new(),
            of_others: 0,
        }
    }

    /// The request that the next rule sees.
    pub(super) fn request(&self) -> &AdmissionRequest {
        &self.request
    }

    /// Begins another policy: the rules from here on are its own.
    pub(super) fn begin_policy(&mut self) {
        self.found = None;
        self.of_others = self.records.len();
    }

    /// Returns the places that differ in the object that a rule made; `None`: too few steps are left to compare them.
    pub(super) fn places(&self, made: &Value) -> Option<ChangedPlaces> {
        let before = self.request.matched_object();
        let operations = json::diff_charged(before, made, &meter::charge_bytes).ok()?;
        let operations = operations.as_array().into_iter().flatten();
        let paths = operations.filter_map(|operation| operation["path"].as_str());
        Some(paths.collect())
    }

    /// Adds a rule's record, with the places that the rule changed. The object that the rule made becomes the request's
    /// object; the record keeps only the places. Where they could not be found out, the rule has that error.
    pub(super) fn note(
        &mut self,
        mut record: RuleRecord,
        changed: Result<ChangedPlaces, RuleError>,
    ) -> NextAsked {
        match changed {
            Ok(changed) => record.changed = changed,
            Err(error) => {
                record.ignore_errors &= !error.is_caused_by_request(false, false);
                record.outcome = RuleOutcome::Error(error);
            }
        }
        let next = match &mut record.outcome {
            RuleOutcome::Mutated { object } => {
                self.change(std::mem::take(object));
                NextAsked::Rule
            }
            RuleOutcome::Error(_) if record.ignore_errors => {
                self.undo();
                NextAsked::Policy
            }
            RuleOutcome::Error(_) => NextAsked::Nobody,
            _ => NextAsked::Rule,
        };
        self.records.push(record);
        next
    }

    fn change(&mut self, object: Value) {
        if self.found.is_none() {
            self.found = Some(self.request.shared_object());
        }
        self.request = self.request.with_object(object);
    }

    fn undo(&mut self) {
        if let Some(found) = self.found.take() {
            self.request = self.request.with_object(found);
        }
        for record in self.records.iter_mut().skip(self.of_others) {
            record.changed = ChangedPlaces::default();
            if matches!(record.outcome, RuleOutcome::Mutated { .. }) {
                let reason = "what it changed was undone: another rule of its policy failed";
                record.outcome = RuleOutcome::Skipped {
                    reason: reason.to_owned(),
                };
            }
        }
    }

    /// Returns the patch (RFC 6902) from the object that was sent to the present one; `None`: they are equal.
    ///
    /// # Errors
    /// Too few steps are left to compare them.
    pub(super) fn patch(&self) -> Result<Option<Value>, PatchError> {
        let now = self.request.shared_object();
        let is_changed = self.sent != now;
        let patch = is_changed.then(|| json::diff_charged(&self.sent, &now, &meter::charge_bytes));
        patch.transpose()
    }

    /// Returns a patch that replaces the object whole; `None`: it is as it was sent.
    pub(super) fn whole_patch(&self) -> Option<Value> {
        let now = self.request.shared_object();
        (self.sent != now).then(|| json::replaced(&now))
    }

    /// Returns all records.
    pub(super) fn into_records(self) -> Vec<RuleRecord> {
        self.records
    }
}

#[cfg(test)]
mod tests;
