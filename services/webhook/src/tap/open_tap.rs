//! A tap, and the decisions not sent to it yet. Pure.

use std::{collections::HashMap, time::Duration};

use anteroom_engine::verdict::RuleRecord;
use anteroom_policy::RuleOutcome;
use anteroom_wire::tap::{
    DURATION_MS_MAX, DecisionRecord, RECORDS_PER_SECOND_MAX, ROWS_MAX, Row, Summary, Tap, Tapped,
};
use tokio::time::Instant;

use super::{Decided, filter, record};

/// The length of the period of a summary.
const PERIOD: Duration = Duration::from_secs(1);

/// Records of one message.
const RECORDS_PER_MESSAGE: usize = 64;

/// The tap of one operator.
#[derive(Debug)]
pub(super) struct OpenTap {
    tap: Tap,
    ends: Instant,
    sequence: u64,
    since: Instant,
    summary: Summary,
    /// The counts by policy, rule, kind and namespace, with a zero byte after each name.
    rows: HashMap<String, Row>,
    /// The key of a row while it is looked for.
    key: String,
    records: Vec<(Instant, DecisionRecord)>,
    /// The number of records that may still be added in this period.
    records_left: u32,
    left_out: u64,
}

impl OpenTap {
    /// Begins, with these decisions of the past.
    pub(super) fn new<'k>(
        tap: Tap,
        now: Instant,
        past: impl Iterator<Item = (Instant, &'k DecisionRecord)>,
    ) -> Self {
        let past = past.filter(|(_, kept)| filter::means_kept(&tap.filter, kept));
        let records = past.map(|(at, kept)| (at, kept.clone())).collect();
        let mut open_tap = Self {
            records_left: 0,
            ends: now,
            sequence: 0,
            since: now,
            summary: Summary::default(),
            rows: HashMap::new(),
            key: String::new(),
            records,
            left_out: 0,
            tap: Tap::default(),
        };
        open_tap.renew(tap, now);
        open_tap.records_left = open_tap.rate();
        open_tap
    }

    pub(super) fn id(&self) -> &str {
        &self.tap.id
    }

    /// Goes on, with the filter and the rate that are asked for now.
    pub(super) fn renew(&mut self, tap: Tap, now: Instant) {
        self.ends = now + Duration::from_millis(tap.duration_ms.min(DURATION_MS_MAX));
        self.tap = tap;
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }

    fn rate(&self) -> u32 {
        self.tap.records_per_second.min(RECORDS_PER_SECOND_MAX)
    }

    /// Counts a decision that matches the tap. `kept`: the decision's record, if it exists already.
    pub(super) fn decided(
        &mut self,
        decided: &Decided<'_>,
        is_notable: bool,
        now: Instant,
        kept: Option<&DecisionRecord>,
    ) {
        if !filter::means(&self.tap.filter, decided, is_notable) {
            return;
        }
        let decision = decided.decision;
        let summary = &mut self.summary;
        summary.decisions += 1;
        summary.denied += u64::from(!decision.allowed());
        summary.errors += u64::from(decision.error);
        summary.latencies.add(record::micros(decided.took));
        for rule in &decision.rules {
            let only = self.tap.filter.policy.as_ref();
            if only.is_none_or(|policy| rule.name.policy == *policy) {
                self.count(decided, rule);
            }
        }
        if self.tap.records_per_second == 0 {
            return;
        }
        match self.records_left.checked_sub(1) {
            None => self.left_out += 1,
            Some(left) => {
                self.records_left = left;
                let record = kept
                    .cloned()
                    .unwrap_or_else(|| record::decision_record(decided));
                self.records.push((now, record));
            }
        }
    }

    /// Counts the decision of one rule.
    fn count(&mut self, decided: &Decided<'_>, rule: &RuleRecord) {
        let kind = &*decided.review.head.kind.kind;
        let namespace = record::namespace(decided.review);
        let (policy, name) = (&*rule.name.policy, rule.name.rule());
        self.key.clear();
        for part in [policy, name, kind, namespace] {
            self.key.push_str(part);
            self.key.push('\0');
        }
        if !self.rows.contains_key(&self.key) {
            if self.rows.len() >= ROWS_MAX {
                self.summary.left_out += 1;
                return;
            }
            let row = Row {
                policy: record::name(policy),
                rule: record::name(name),
                kind: record::name(kind),
                namespace: record::name(namespace),
                ..Row::default()
            };
            self.rows.insert(self.key.clone(), row);
        }
        if let Some(row) = self.rows.get_mut(&self.key) {
            let refused = |blocked: &anteroom_engine::verdict::Blocked| {
                blocked.policy == policy && blocked.rule == name
            };
            let is_denied = decided.decision.blocked.iter().any(refused);
            add(row, rule, is_denied);
        }
    }

    /// Returns the messages that are due for the tap.
    pub(super) fn messages(&mut self, now: Instant) -> Vec<Tapped> {
        let is_due = now.duration_since(self.since) >= PERIOD;
        let summary = is_due.then(|| self.summary(now));
        let mut records = std::mem::take(&mut self.records).into_iter().peekable();
        let mut messages = Vec::new();
        while records.peek().is_some() {
            let some = records.by_ref().take(RECORDS_PER_MESSAGE);
            let aged = some.map(|(at, record)| DecisionRecord {
                age_ms: millis(now.duration_since(at)),
                ..record
            });
            messages.push(Tapped {
                records: aged.collect(),
                ..Tapped::default()
            });
        }
        if let Some(summary) = summary {
            messages.push(Tapped {
                summary: Some(summary),
                left_out: std::mem::take(&mut self.left_out),
                ..Tapped::default()
            });
        }
        for message in &mut messages {
            message.id.clone_from(&self.tap.id);
            message.sequence = self.sequence;
            self.sequence += 1;
        }
        messages
    }

    /// Ends a period.
    fn summary(&mut self, now: Instant) -> Summary {
        let mut summary = std::mem::take(&mut self.summary);
        summary.period_ms = millis(now.duration_since(self.since));
        summary.rows = std::mem::take(&mut self.rows).into_values().collect();
        self.since = now;
        self.records_left = self.rate();
        summary
    }
}

/// Adds a rule's result to its row.
fn add(row: &mut Row, rule: &RuleRecord, is_denied: bool) {
    row.decided += 1;
    row.denied += u64::from(is_denied);
    match &rule.outcome {
        RuleOutcome::Fail { .. } => row.failed += 1,
        RuleOutcome::Error(error) => {
            row.errors += 1;
            row.error = Some(record::code_text(error.code()));
        }
        RuleOutcome::NotMatched
        | RuleOutcome::Skipped { .. }
        | RuleOutcome::Pass
        | RuleOutcome::Mutated { .. } => {}
    }
    let took_us = record::micros(rule.took);
    row.latencies.add(took_us);
    row.worst_us = row.worst_us.max(took_us);
    for fact in &rule.facts {
        record::read(fact).join(&mut row.reads);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
