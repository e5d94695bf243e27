//! Says which status is written, and when. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::coordinator::status::{
    cel_fields::{CelStatus, Summary},
    conditions::{self, Ready},
    rules::RulesStatus,
};

/// The time after which a condition that was written must have come back by the watch.
pub(super) const SEEN_AFTER: Duration = Duration::from_secs(10);

/// The shortest time between two writes of an entry's figures, if there are few entries.
pub(super) const FIGURES_INTERVAL: Duration = Duration::from_secs(5);

/// The time that each status adds to `FIGURES_INTERVAL`: all statuses together are written at most 50 times a second.
pub(super) const FIGURES_APART: Duration = Duration::from_millis(20);

/// The time between two writes of an entry's status if only its time has moved, and there are few entries.
pub(super) const TIME_INTERVAL: Duration = Duration::from_secs(60);

/// The time that each status adds to `TIME_INTERVAL`.
const TIME_APART: Duration = Duration::from_millis(50);

/// The fields of an entry's status beside its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// The view's name.
    pub view: Option<String>,
    /// Objects in it.
    pub objects: Option<i64>,
    /// Bytes of their bodies.
    pub bytes: Option<i64>,
    /// The time at which the entry's source was last heard from.
    pub heard: Option<Timestamp>,
}

impl Figures {
    fn counts(&self) -> (Option<&str>, Option<i64>, Option<i64>) {
        (self.view.as_deref(), self.objects, self.bytes)
    }
}

/// The desired status of an object, beside the object's present state.
#[derive(Clone, Debug)]
pub(crate) struct DesiredStatus {
    /// The object's `Ready` condition.
    pub ready: Ready,
    /// `None` for a policy.
    pub figures: Option<Figures>,
    /// More fields of a policy's status.
    pub rules: Option<RulesStatus>,
    /// The policy's status fields as the object has them now.
    pub rules_now: Option<RulesStatus>,
    /// The object is a `GlobalContextEntry`, whose status has other fields.
    pub global: bool,
    /// The object is a policy of policies.kyverno.io, whose status has other conditions.
    pub cel: Option<CelStatus>,
    /// All conditions that the object has now.
    pub conditions: Vec<Condition>,
    /// The figures that the object has now.
    pub figures_now: Figures,
}

impl DesiredStatus {
    /// The conditions that it should have.
    fn wanted(&self) -> &[Ready] {
        match &self.cel {
            None => std::slice::from_ref(&self.ready),
            Some(cel) => cel.wanted(),
        }
    }

    /// Returns whether the first condition differs in its state from `before`.
    fn is_transition(&self, before: &[Condition]) -> bool {
        let mut wanted = self.wanted().iter().take(1);
        wanted.any(|first| first.differs_in_kind(first.find_in(before)))
    }
}

/// A status as it was written last.
#[derive(Clone, Debug)]
pub(super) struct WrittenStatus {
    pub(super) conditions: Vec<Condition>,
    pub(super) summary: Option<Summary>,
    pub(super) figures: Figures,
    pub(super) rules: Option<RulesStatus>,
    pub(super) at: Instant,
}

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) conditions: Vec<Condition>,
    pub(super) summary: Option<Summary>,
    pub(super) figures: Figures,
    pub(super) rules: Option<RulesStatus>,
    pub(super) patch: Value,
    /// The condition has changed, and an Event reports the change.
    pub(super) transition: bool,
}

/// The time between two writes of one status, if only figures or times have changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct WritePace {
    pub(super) figures: Duration,
    pub(super) time: Duration,
}

impl WritePace {
    /// Returns the pace for this many statuses.
    pub(super) fn of(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            figures: FIGURES_INTERVAL.max(FIGURES_APART.saturating_mul(count)),
            time: TIME_INTERVAL.max(TIME_APART.saturating_mul(count)),
        }
    }
}

/// Returns whether the object's condition, or its fields about rules, are out of date.
pub(super) fn is_news(desired: &DesiredStatus, written: Option<&WrittenStatus>) -> bool {
    is_condition_news(desired, written) || is_rules_news(desired, written)
}

pub(super) fn is_condition_news(desired: &DesiredStatus, written: Option<&WrittenStatus>) -> bool {
    let conditions = written.map_or(&desired.conditions, |written| &written.conditions);
    if let Some(cel) = &desired.cel {
        let summary = written.and_then(|written| written.summary.as_ref());
        return !cel.is_said_by(conditions, summary);
    }
    let before = conditions::find(conditions);
    !before.is_some_and(|condition| desired.ready.is_said_by(condition))
}

pub(super) fn is_rules_news(desired: &DesiredStatus, written: Option<&WrittenStatus>) -> bool {
    let before = written.map_or(&desired.rules_now, |written| &written.rules);
    desired.rules.is_some() && desired.rules != *before
}

/// Returns whether the object has another condition than was written: somebody has written it since, such as a watcher
/// that led before and did not know yet that it does not any more.
pub(super) fn is_overwritten(desired: &DesiredStatus, written: &WrittenStatus) -> bool {
    let said = |condition: &Condition| (condition.status.clone(), condition.message.clone());
    desired.wanted().iter().any(|wanted| {
        let found = wanted.find_in(&desired.conditions).map(said);
        let ours = wanted.find_in(&written.conditions).map(said);
        found.is_some() && found != ours
    })
}

/// Returns the due write, if any.
pub(super) fn plan(
    desired: &DesiredStatus,
    written: Option<&WrittenStatus>,
    pace: WritePace,
    now: Instant,
    clock: Timestamp,
) -> Option<Plan> {
    // The watch shows a write a moment later.
    let is_seen = |written: &WrittenStatus| now.saturating_duration_since(written.at) >= SEEN_AFTER;
    let written = written.filter(|written| !(is_seen(written) && is_overwritten(desired, written)));
    let conditions = written.map_or(&desired.conditions, |written| &written.conditions);
    let (news, rules_news) = (
        is_condition_news(desired, written),
        is_rules_news(desired, written),
    );
    let figures_now = written.map_or(&desired.figures_now, |written| &written.figures);
    let figures = desired.figures.as_ref().unwrap_or(figures_now);
    let since = written.map(|written| now.saturating_duration_since(written.at));
    let after = |interval| since.is_none_or(|since| since >= interval);
    let moved = figures.counts() != figures_now.counts();
    let due = news
        || rules_news
        || (moved && (figures_now.objects.is_none() || after(pace.figures)))
        || (figures.heard != figures_now.heard && after(pace.time));
    if !due {
        return None;
    }
    let conditions_next = match &desired.cel {
        _ if !news => conditions.clone(),
        None => desired.ready.put_into(conditions, clock),
        Some(cel) => cel.conditions(conditions, clock),
    };
    let mut status = match &desired.cel {
        None => json!({"conditions": conditions_next}),
        Some(cel) => cel.patch(&conditions_next),
    };
    if let Some(rules) = desired.rules.as_ref().filter(|_| rules_news) {
        rules.set_in(&mut status);
    }
    if let Some(Figures {
        view,
        objects,
        bytes,
        heard,
    }) = &desired.figures
    {
        // In a merge patch, null removes the field.
        if desired.global {
            status["lastRefreshTime"] = json!(heard.map(Time));
        } else {
            status["view"] = json!(view);
            status["objects"] = json!(objects);
            status["bytes"] = json!(bytes);
            status["lastHeardTime"] = json!(heard.map(Time));
        }
    }
    Some(Plan {
        patch: json!({"status": status}),
        transition: news && desired.is_transition(conditions),
        conditions: conditions_next,
        summary: desired.cel.as_ref().map(|cel| cel.summary().clone()),
        figures: figures.clone(),
        rules: desired.rules.clone(),
    })
}

/// Returns whether the object has the whole desired status, so that no write becomes due later.
pub(super) fn is_said(desired: &DesiredStatus, written: Option<&WrittenStatus>) -> bool {
    let figures_now = written.map_or(&desired.figures_now, |written| &written.figures);
    let figures = desired.figures.as_ref();
    let stands = written.is_none_or(|written| !is_overwritten(desired, written));
    stands && figures.is_none_or(|figures| figures == figures_now)
}
