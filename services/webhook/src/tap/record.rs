//! A decision as taps get it: names, rules, views, ages and messages, within limits. Pure.

use anteroom_engine::{
    facts::Origin,
    incoming::Incoming as _,
    phase,
    verdict::{FactRecord, RuleRecord},
};
use anteroom_model::ErrorCode;
use anteroom_policy::{FailureAction, RuleOutcome};
use anteroom_wire::{
    tap::{
        DecisionRecord, FACTS_MAX, FactRead, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, RULES_MAX,
        RuleDecision, TapRead,
    },
    violation::cut,
};

use super::Decided;
use crate::review::Review;

/// The most bytes of a record's texts; the rest are counted.
const RECORD_BYTES_MAX: usize = 4 * 1024;

/// The size of numbers and field names, for each rule and each fact.
const OVERHEAD_BYTES: usize = 100;

/// The namespace of a review's object: that of a Namespace is none.
pub(super) fn namespace<'a>(review: &'a Review<'_>) -> &'a str {
    let head = &review.head;
    match (&*head.kind.group, &*head.kind.kind) {
        ("", "Namespace") => "",
        _ => &head.namespace,
    }
}

/// The record of a decision.
pub(super) fn decision_record(decided: &Decided<'_>) -> DecisionRecord {
    let Decided {
        review,
        phase,
        decision,
        took,
    } = *decided;
    let head = &review.head;
    let user = review.user();
    let (group, version) = (&*head.kind.group, &*head.kind.version);
    let mut record = DecisionRecord {
        age_ms: 0,
        uid: name(&head.uid),
        operation: review.operation().as_str().to_owned(),
        api_version: match group {
            "" => name(version),
            group => name(&format!("{group}/{version}")),
        },
        kind: name(&head.kind.kind),
        namespace: name(namespace(review)),
        name: name(&head.name),
        user: user.map(|user| name(&user.username)).unwrap_or_default(),
        dry_run: review.is_dry_run(),
        phase: phase::verb(phase).to_owned(),
        allowed: decision.allowed(),
        error: decision.error,
        took_us: micros(took),
        rules: Vec::new(),
        rules_left_out: 0,
    };
    let mut room = RECORD_BYTES_MAX;
    for rule in decision.rules.iter().take(RULES_MAX) {
        match rule_decision(rule, &mut room) {
            Some(rule) => record.rules.push(rule),
            None => break,
        }
    }
    record.rules_left_out = (decision.rules.len() - record.rules.len()) as u64;
    record
}

/// Within the room that is left; `None` if there is none.
fn rule_decision(record: &RuleRecord, room: &mut usize) -> Option<RuleDecision> {
    let (message, code) = match record.public_outcome() {
        RuleOutcome::Fail { message } => (message, None),
        RuleOutcome::Skipped { reason } => (reason, None),
        RuleOutcome::Error(error) => (error.to_string(), Some(error.code())),
        RuleOutcome::NotMatched | RuleOutcome::Pass | RuleOutcome::Mutated { .. } => {
            (String::new(), None)
        }
    };
    let mut rule = RuleDecision {
        policy: name(&record.name.policy),
        rule: name(record.name.rule()),
        result: record.result().as_str().to_owned(),
        enforced: record.action == FailureAction::Enforce,
        message: cut(&message, MESSAGE_BYTES_MAX),
        code: code.map(code_text),
        took_us: micros(record.took),
        facts: Vec::new(),
        facts_left_out: 0,
    };
    let bytes = rule.policy.len() + rule.rule.len() + rule.message.len();
    take(room, bytes)?;
    for fact in record.facts.iter().take(FACTS_MAX) {
        let fact = fact_read(fact);
        let bytes = fact.read.entry.len() + fact.view.len() + fact.by.len() + fact.version.len();
        if take(room, bytes).is_none() {
            break;
        }
        rule.facts.push(fact);
    }
    rule.facts_left_out = (record.facts.len() - rule.facts.len()) as u64;
    Some(rule)
}

fn take(room: &mut usize, bytes: usize) -> Option<()> {
    *room = room.checked_sub(bytes + OVERHEAD_BYTES)?;
    Some(())
}

fn fact_read(fact: &FactRecord) -> FactRead {
    let found = FactRead {
        read: read(fact),
        error: fact.error.map(code_text),
        ..FactRead::default()
    };
    match fact.origin.as_deref() {
        None => found,
        Some(Origin::View {
            view,
            replica,
            revision,
            version,
            ..
        }) => FactRead {
            view: name(view.as_str()),
            by: name(replica),
            revision: revision.0,
            version: name(version),
            ..found
        },
        Some(Origin::Live { watcher, .. }) => FactRead {
            by: name(watcher),
            ..found
        },
    }
}

/// Returns the data read, with its origin.
pub(super) fn read(fact: &FactRecord) -> TapRead {
    let read = TapRead {
        entry: name(&fact.entry),
        ..TapRead::default()
    };
    match fact.origin.as_deref() {
        None => read,
        Some(Origin::View {
            age_ms,
            objects,
            examined,
            last_good,
            ..
        }) => TapRead {
            from: if *last_good { "fallback" } else { "view" }.to_owned(),
            age_ms: *age_ms,
            objects: *objects,
            examined: *examined,
            ..read
        },
        Some(Origin::Live { age_ms, .. }) => TapRead {
            from: "live".to_owned(),
            age_ms: *age_ms,
            ..read
        },
    }
}

pub(super) fn code_text(code: ErrorCode) -> String {
    code.as_str().to_owned()
}

pub(super) fn name(text: &str) -> String {
    cut(text, NAME_BYTES_MAX)
}

pub(super) fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
