//! The `Ready` condition of entries and policies: its content, and the time of its last change. Pure.

use anteroom_model::{
    Binding, EntryKind, EntryRecord, EntryState, ErrorCode, Failure, ViewState,
    limits::AGE_MAX_DEFAULT_MS, source_reason,
};
use anteroom_policy::Problem;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;

use super::views::Holders;
use crate::log_writer::publish::ViewStats;

/// The longest message of a condition. More is cut: the API server's own limit is 32,768.
const MESSAGE_CHARS_MAX: usize = 2_048;

/// The type of the condition.
const READY: &str = "Ready";

/// The message of a policy that is ready, if there is no other.
pub(crate) const SERVED: &str = "the policy is served";

/// The content of a `Ready` condition, or of a condition that replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The type of the condition.
    pub type_: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// The reason, in CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The generation of the object that the condition is about.
    pub generation: i64,
}

impl Ready {
    /// Returns a condition with the status `True`, `False` or `Unknown`.
    pub(crate) fn new(status: &'static str, failure: Failure, generation: i64) -> Self {
        Self::of_type(READY, status, failure, generation)
    }

    /// A condition of another type, with a status of `True`, `False` or `Unknown`.
    pub(crate) fn of_type(
        type_: &'static str,
        status: &'static str,
        failure: Failure,
        generation: i64,
    ) -> Self {
        let message = failure.message.chars().take(MESSAGE_CHARS_MAX).collect();
        Self {
            type_,
            status,
            reason: failure.reason,
            message,
            generation,
        }
    }

    /// Returns whether the condition says this already.
    pub(crate) fn is_said_by(&self, condition: &Condition) -> bool {
        condition.status == self.status
            && condition.reason == self.reason
            && condition.message == self.message
            && condition.observed_generation == Some(self.generation)
    }

    /// Returns whether status or reason differ; a different message alone does not count.
    pub(crate) fn differs_in_kind(&self, condition: Option<&Condition>) -> bool {
        condition.is_none_or(|c| c.status != self.status || c.reason != self.reason)
    }

    /// The condition of its type among others.
    pub(crate) fn find_in<'c>(&self, conditions: &'c [Condition]) -> Option<&'c Condition> {
        find_type(conditions, self.type_)
    }

    /// Returns `conditions` with this condition in place of its predecessor.
    pub(crate) fn put_into(&self, conditions: &[Condition], now: Timestamp) -> Vec<Condition> {
        let others = conditions
            .iter()
            .filter(|condition| condition.type_ != self.type_);
        let mut all: Vec<_> = others.cloned().collect();
        all.push(self.as_condition(conditions, now));
        all
    }

    /// Returns the condition that replaces the one in `before`. Its time of transition changes only if the status
    /// does.
    pub(crate) fn as_condition(&self, before: &[Condition], now: Timestamp) -> Condition {
        let before = self
            .find_in(before)
            .filter(|condition| condition.status == self.status);
        let since = before.map_or(Time(now), |condition| {
            condition.last_transition_time.clone()
        });
        Condition {
            type_: self.type_.into(),
            status: self.status.into(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            observed_generation: Some(self.generation),
            last_transition_time: since,
        }
    }
}

/// Reads conditions of a status; none where they cannot be read: they are written anew.
pub(crate) fn read(conditions: Option<Value>) -> Vec<Condition> {
    serde_json::from_value(conditions.unwrap_or_default()).unwrap_or_default()
}

/// The condition of a type among others.
pub(crate) fn find_type<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The `Ready` condition among others.
pub(crate) fn find(conditions: &[Condition]) -> Option<&Condition> {
    find_type(conditions, READY)
}

/// Returns the failure for which this generation of an entry was given up, according to its condition.
pub(crate) fn forbidden(conditions: &[Condition], generation: i64) -> Option<Failure> {
    let said = find(conditions).filter(|condition| {
        condition.status == "False"
            && condition.reason == source_reason::FORBIDDEN
            && condition.observed_generation == Some(generation)
    });
    said.map(|condition| Failure::new(source_reason::FORBIDDEN, condition.message.clone()))
}

/// Returns an entry's condition from its binding, the state of its view, and the replicas that hold the view.
pub(crate) fn of_entry(record: &EntryRecord, view: Option<&ViewStats>, holders: Holders) -> Ready {
    let say = |status, reason: &str, message: String| {
        Ready::new(status, Failure::new(reason, message), record.generation)
    };
    let (id, stats) = match (&record.state, view) {
        (EntryState::Invalid { failure }, _) => {
            return Ready::new("False", failure.clone(), record.generation);
        }
        (EntryState::Bound(Binding { view, .. }), None) => {
            return say(
                "Unknown",
                "Syncing",
                format!("view {view} is about to be read"),
            );
        }
        (EntryState::Bound(Binding { view, .. }), Some(stats)) => (view, stats),
    };
    match (&stats.reported_state, &stats.trouble) {
        (Some(ViewState::Failed { failure }), _) => {
            Ready::new("False", failure.clone(), record.generation)
        }
        (Some(ViewState::Synced), Some(trouble)) if stats.news_age_ms > AGE_MAX_DEFAULT_MS => say(
            "False",
            "Stale",
            format!(
                "view {id} has not been heard of for too long: {}",
                trouble.message
            ),
        ),
        (Some(ViewState::Synced), _) if holders.is_evicted() => say(
            "False",
            "Evicted",
            format!(
                "view {id} was let go by all of the {} replica(s) that held it, to save memory; it \
                 comes back when there is room: raise their limit, narrow the entry, or set \
                 `spec.pinned`",
                holders.total
            ),
        ),
        (Some(ViewState::Synced), _) => {
            let skipped = match stats.skipped {
                0 => String::new(),
                n => format!("; {n} malformed object(s) without a name were skipped"),
            };
            say(
                "True",
                "Synced",
                format!("view {id} is synced and watched{skipped}"),
            )
        }
        (_, Some(trouble)) => Ready::new("False", trouble.clone(), record.generation),
        (_, None) => say("Unknown", "Syncing", format!("view {id} is being read")),
    }
}

/// An entry that a policy names, or a reference of the policy.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// The kind that declares it.
    pub kind: EntryKind,
    /// The entry's name.
    pub name: String,
    /// The entry's condition; `None`: the entry does not exist, or nothing is known about it yet.
    pub ready: Option<Ready>,
    /// The policy may not read the entry in any state: `ready` has the reason.
    pub refused: bool,
}

/// Returns the failure of a policy with these problems, if there are any.
pub(crate) fn of_problems(problems: &[Problem]) -> Option<Failure> {
    let reason = match problems.first()?.code {
        ErrorCode::POLICY_UNSUPPORTED => "Unsupported",
        _ => "Invalid",
    };
    let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
    Some(Failure::new(reason, all.join("; ")))
}

/// Returns a policy's condition, from its problems and from the entries that it needs. `remark` is added once the
/// policy is ready.
pub(crate) fn of_policy(
    generation: i64,
    problems: &[Problem],
    needs: &[Need],
    remark: &str,
) -> Ready {
    let say = |status, reason: &str, message: String| {
        Ready::new(status, Failure::new(reason, message), generation)
    };
    if let Some(failure) = of_problems(problems) {
        return Ready::new("False", failure, generation);
    }
    // A policy that names a `GlobalContextEntry` is ready whether that can be read or not, as Kyverno's
    // is: its readers are told when they read it.
    let counted = |need: &&Need| need.refused || need.kind != EntryKind::Global;
    for need in needs.iter().filter(counted) {
        let (kind, name) = (need.kind.name(), &need.name);
        match &need.ready {
            None if need.kind == EntryKind::Implicit => {
                let message = format!("reference `{name}` is about to be read");
                return say("False", "ReferenceNotSynced", message);
            }
            None => {
                let message = format!(
                    "entry `{name}` does not exist: create a {kind} with this name. Until then the \
                     rules that read it fail as `failurePolicy` says"
                );
                return say("False", "EntryNotFound", message);
            }
            Some(ready) if ready.status != "True" => {
                let (what, reason) = match need.kind {
                    EntryKind::Implicit => ("reference", "ReferenceNotSynced"),
                    EntryKind::Cached | EntryKind::Global => ("entry", "EntryNotReady"),
                };
                let message = format!(
                    "{what} `{name}` is not ready: {}: {}",
                    ready.reason, ready.message
                );
                return say("False", reason, message);
            }
            Some(_) => {}
        }
    }
    say("True", "Succeeded", format!("{SERVED}{remark}"))
}

#[cfg(test)]
mod tests;
