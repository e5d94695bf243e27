//! The decisions of the last seconds, put together from what all webhooks tell. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use anteroom_wire::tap::{Latencies, Row, Summary, TapRead, Tapped};
use serde::Serialize;

/// The last seconds of decisions.
#[derive(Debug)]
pub(crate) struct Window {
    span: Duration,
    told: VecDeque<TimedSummary>,
    /// The reasons why webhooks do not take the tap.
    pub(crate) refused: BTreeMap<String, String>,
}

#[derive(Debug)]
struct TimedSummary {
    at: Instant,
    webhook: String,
    is_shadow: bool,
    summary: Summary,
}

/// The columns that rows are told apart by, beside policy and rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) kind: bool,
    pub(crate) namespace: bool,
}

/// The decisions of a window.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Decisions {
    /// The webhooks that told.
    pub(crate) webhooks: usize,
    /// The webhooks among them that decide without effect.
    pub(crate) shadows: usize,
    pub(crate) per_second: f64,
    pub(crate) denied_per_second: f64,
    pub(crate) errors_per_second: f64,
    #[serde(rename = "p50Us")]
    pub(crate) p50_us: Option<u64>,
    #[serde(rename = "p99Us")]
    pub(crate) p99_us: Option<u64>,
    pub(crate) rules: Vec<RuleRow>,
    /// Results that have no row.
    pub(crate) left_out: u64,
}

/// The decisions of one rule.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleRow {
    pub(crate) policy: String,
    pub(crate) rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) per_second: f64,
    pub(crate) decided: u64,
    pub(crate) failed: u64,
    pub(crate) denied: u64,
    pub(crate) errors: u64,
    /// The code of the last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(rename = "p50Us")]
    pub(crate) p50_us: u64,
    #[serde(rename = "p99Us")]
    pub(crate) p99_us: u64,
    #[serde(rename = "worstUs")]
    pub(crate) worst_us: u64,
    pub(crate) reads: Vec<RuleRead>,
}

/// The reads of a rule from one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleRead {
    pub(crate) entry: String,
    pub(crate) from: String,
    pub(crate) age_ms: u64,
    pub(crate) objects: u64,
    pub(crate) examined: u64,
}

impl Window {
    /// Returns an empty window of this length.
    pub(crate) fn new(span: Duration) -> Self {
        Self {
            span,
            told: VecDeque::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Takes a message in.
    pub(crate) fn add(&mut self, tapped: &Tapped, at: Instant) {
        if let Some(reason) = &tapped.refused {
            self.refused.insert(tapped.webhook.clone(), reason.clone());
        }
        if let Some(summary) = &tapped.summary {
            self.refused.remove(&tapped.webhook);
            self.told.push_back(TimedSummary {
                at,
                webhook: tapped.webhook.clone(),
                is_shadow: tapped.shadow,
                summary: summary.clone(),
            });
        }
    }

    /// Returns the decisions of the window that ends now.
    pub(crate) fn decisions(&mut self, by: By, now: Instant) -> Decisions {
        while let Some(first) = self.told.front()
            && now.duration_since(first.at) > self.span
        {
            self.told.pop_front();
        }
        let seconds = self.seconds();
        let mut all = Decisions::default();
        let mut latencies = Latencies::default();
        let (mut decided, mut denied, mut errors) = (0, 0, 0);
        let mut rows: BTreeMap<_, Sum> = BTreeMap::new();
        for TimedSummary { summary, .. } in &self.told {
            add(&mut decided, summary.decisions);
            add(&mut denied, summary.denied);
            add(&mut errors, summary.errors);
            add(&mut all.left_out, summary.left_out);
            latencies.merge(&summary.latencies);
            for row in &summary.rows {
                let kind = by.kind.then(|| row.kind.clone());
                let namespace = by.namespace.then(|| row.namespace.clone());
                let key = (row.policy.clone(), row.rule.clone(), kind, namespace);
                rows.entry(key).or_default().add(row);
            }
        }
        let webhooks = |of: &dyn Fn(&TimedSummary) -> bool| {
            let told = self.told.iter().filter(|told| of(told));
            told.map(|told| &told.webhook)
                .collect::<BTreeSet<_>>()
                .len()
        };
        all.webhooks = webhooks(&|_| true);
        all.shadows = webhooks(&|told| told.is_shadow);
        all.per_second = rate(decided, seconds);
        all.denied_per_second = rate(denied, seconds);
        all.errors_per_second = rate(errors, seconds);
        all.p50_us = latencies.quantile(0.5);
        all.p99_us = latencies.quantile(0.99);
        let rows = rows.into_iter();
        all.rules = rows
            .map(|((policy, rule, kind, namespace), sum)| RuleRow {
                policy,
                rule,
                kind,
                namespace,
                ..sum.row(seconds)
            })
            .collect();
        all
    }

    /// The time that the longest of the webhooks has told of.
    fn seconds(&self) -> f64 {
        let mut periods: BTreeMap<&str, u64> = BTreeMap::new();
        for told in &self.told {
            let period = periods.entry(&told.webhook).or_default();
            add(period, told.summary.period_ms);
        }
        let longest_ms = periods.into_values().max().unwrap_or_default();
        Duration::from_millis(longest_ms).as_secs_f64()
    }
}

/// Adds a number that a webhook told, and that may be any.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Counts of rows that belong together.
#[derive(Default)]
struct Sum {
    row: Row,
}

impl Sum {
    fn add(&mut self, row: &Row) {
        let sum = &mut self.row;
        add(&mut sum.decided, row.decided);
        add(&mut sum.failed, row.failed);
        add(&mut sum.denied, row.denied);
        add(&mut sum.errors, row.errors);
        if row.error.is_some() {
            sum.error.clone_from(&row.error);
        }
        sum.latencies.merge(&row.latencies);
        sum.worst_us = sum.worst_us.max(row.worst_us);
        for read in &row.reads {
            read.clone().join(&mut sum.reads);
        }
    }

    fn row(self, seconds: f64) -> RuleRow {
        let row = self.row;
        let read = |read: TapRead| RuleRead {
            entry: read.entry,
            from: read.from,
            age_ms: read.age_ms,
            objects: read.objects,
            examined: read.examined,
        };
        // The bound of a bucket may be above the longest time in it.
        let quantile = |part| {
            let bound = row.latencies.quantile(part).unwrap_or_default();
            bound.min(row.worst_us)
        };
        RuleRow {
            per_second: rate(row.decided, seconds),
            decided: row.decided,
            failed: row.failed,
            denied: row.denied,
            errors: row.errors,
            error: row.error,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            worst_us: row.worst_us,
            reads: row.reads.into_iter().map(read).collect(),
            ..RuleRow::default()
        }
    }
}

/// Returns the rate, rounded to a tenth for readers.
#[expect(clippy::cast_precision_loss, reason = "a count of fewer than 2^52")]
fn rate(count: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => (count as f64 / seconds * 10.0).round() / 10.0,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, namespace: &str, decided: u64, us: u64) -> Row {
        let mut latencies = Latencies::default();
        (0..decided).for_each(|_| latencies.add(us));
        Row {
            policy: "p".into(),
            rule: "r".into(),
            kind: kind.into(),
            namespace: namespace.into(),
            decided,
            latencies,
            worst_us: us,
            reads: vec![TapRead {
                entry: "hosts".into(),
                from: "view".into(),
                age_ms: us,
                objects: 10,
                examined: 1,
            }],
            ..Row::default()
        }
    }

    fn told(webhook: &str, rows: Vec<Row>) -> Tapped {
        let decisions = rows.iter().map(|row| row.decided).sum();
        Tapped {
            webhook: webhook.into(),
            summary: Some(Summary {
                period_ms: 1_000,
                decisions,
                rows,
                ..Summary::default()
            }),
            ..Tapped::default()
        }
    }

    #[test]
    fn counts_of_all_webhooks_are_added_by_the_requested_columns() {
        let mut window = Window::new(Duration::from_secs(10));
        let now = Instant::now();
        window.add(
            &told("a", vec![row("Pod", "x", 3, 100), row("Pod", "y", 1, 100)]),
            now,
        );
        window.add(&told("b", vec![row("Service", "x", 6, 900)]), now);
        let all = window.decisions(By::default(), now);
        // Two webhooks told of the same second.
        assert_eq!((all.webhooks, all.per_second), (2, 10.0));
        assert_eq!(all.rules.len(), 1);
        let rule = &all.rules[0];
        assert_eq!(
            (rule.decided, rule.worst_us, rule.reads.len()),
            (10, 900, 1)
        );
        assert_eq!(rule.reads[0].age_ms, 900);
        assert!(rule.p50_us >= 900 && rule.kind.is_none());
        let by_kind = window.decisions(
            By {
                kind: true,
                namespace: false,
            },
            now,
        );
        let kinds: Vec<_> = by_kind
            .rules
            .iter()
            .map(|row| (row.kind.as_deref(), row.decided))
            .collect();
        assert_eq!(kinds, [(Some("Pod"), 4), (Some("Service"), 6)]);
        let both = window.decisions(
            By {
                kind: true,
                namespace: true,
            },
            now,
        );
        assert_eq!(both.rules.len(), 3);
    }

    #[test]
    fn decisions_leave_the_window_and_rates_count_its_seconds_alone() {
        let mut window = Window::new(Duration::from_secs(2));
        let start = Instant::now();
        for second in 0..4 {
            let at = start + Duration::from_secs(second);
            window.add(&told("a", vec![row("Pod", "x", 10 * second, 100)]), at);
        }
        let all = window.decisions(By::default(), start + Duration::from_secs(3));
        // The last three: 10, 20 and 30 in three periods.
        assert_eq!((all.per_second, all.rules[0].decided), (20.0, 60));
        let none = window.decisions(By::default(), start + Duration::from_secs(9));
        assert_eq!(
            (none.webhooks, none.per_second, none.rules.len()),
            (0, 0.0, 0)
        );
    }

    #[test]
    fn a_webhook_that_takes_no_tap_says_why() {
        let mut window = Window::new(Duration::from_secs(2));
        let refusal = Tapped {
            webhook: "w".into(),
            refused: Some("8 others".into()),
            ..Tapped::default()
        };
        window.add(&refusal, Instant::now());
        assert_eq!(window.refused["w"], "8 others");
        window.add(&told("w", Vec::new()), Instant::now());
        assert!(window.refused.is_empty());
    }
}
