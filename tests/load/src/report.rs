//! The results of a run.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// Kinds of errors that are kept apart; further ones are counted together.
const ERROR_KINDS_MAX: usize = 16;

/// Counters of a run that is under way; read it at any time.
#[derive(Debug)]
pub struct Live {
    started: Instant,
    counts: Mutex<RunCounts>,
}

#[derive(Debug)]
struct RunCounts {
    decisions: u64,
    wrong: u64,
    errors: u64,
    error_kinds: BTreeMap<String, u64>,
    wrong_examples: Vec<String>,
    latency_us: Histogram<u64>,
}

/// The outcome of one post.
pub(crate) enum Outcome {
    /// A decision, right or wrong (with an example for people).
    Decided { wrong: Option<String> },
    /// No decision: failed closed, or no answer at all.
    Error { kind: String },
}

impl Default for Live {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            counts: Mutex::new(RunCounts {
                decisions: 0,
                wrong: 0,
                errors: 0,
                error_kinds: BTreeMap::new(),
                wrong_examples: Vec::new(),
                latency_us: new_histogram(),
            }),
        }
    }
}

/// Three significant digits, growing as needed.
pub(crate) fn new_histogram() -> Histogram<u64> {
    #[expect(
        clippy::expect_used,
        reason = "three digits are within the type's documented range"
    )]
    Histogram::new(3).expect("three significant digits")
}

impl Live {
    pub(crate) fn record(&self, outcome: Outcome, latency: Duration) {
        let mut counts = self.counts.lock();
        let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        // Recording fails only for a histogram that may not grow, unlike this histogram.
        let _ = counts.latency_us.record(latency_us);
        match outcome {
            Outcome::Decided { wrong } => {
                counts.decisions += 1;
                if let Some(example) = wrong {
                    counts.wrong += 1;
                    if counts.wrong_examples.len() < ERROR_KINDS_MAX {
                        counts.wrong_examples.push(example);
                    }
                }
            }
            Outcome::Error { kind } => {
                counts.errors += 1;
                let full = counts.error_kinds.len() >= ERROR_KINDS_MAX;
                let kind = if full && !counts.error_kinds.contains_key(&kind) {
                    "others".to_owned()
                } else {
                    kind
                };
                *counts.error_kinds.entry(kind).or_default() += 1;
            }
        }
    }

    /// Returns how long the run is under way.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Reports what was counted so far.
    pub fn report(&self) -> Report {
        let counts = self.counts.lock();
        let seconds = self.started.elapsed().as_secs_f64();
        let ms = |quantile: f64| counts.latency_us.value_at_quantile(quantile) as f64 / 1000.0;
        Report {
            decisions: counts.decisions,
            wrong: counts.wrong,
            errors: counts.errors,
            seconds,
            decisions_per_second: if seconds > 0.0 {
                counts.decisions as f64 / seconds
            } else {
                0.0
            },
            p50_ms: ms(0.50),
            p95_ms: ms(0.95),
            p99_ms: ms(0.99),
            max_ms: counts.latency_us.max() as f64 / 1000.0,
            error_kinds: counts.error_kinds.clone(),
            wrong_examples: counts.wrong_examples.clone(),
        }
    }
}

/// A run in numbers. Latencies are of whole posts, errors included.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Answers that were decisions.
    pub decisions: u64,
    /// Decisions that the oracle contradicts.
    pub wrong: u64,
    /// Posts without a decision: failed closed, or no answer.
    pub errors: u64,
    /// The length of the run in seconds.
    pub seconds: f64,
    /// Decisions a second.
    pub decisions_per_second: f64,
    /// The median latency.
    pub p50_ms: f64,
    /// 95 of 100 posts were at least as fast.
    pub p95_ms: f64,
    /// 99 of 100 posts were at least as fast.
    pub p99_ms: f64,
    /// The slowest post.
    pub max_ms: f64,
    /// Errors by their text.
    pub error_kinds: BTreeMap<String, u64>,
    /// The first wrong decisions.
    pub wrong_examples: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_keep_three_digits() {
        let live = Live::default();
        for ms in 1..=100 {
            live.record(Outcome::Decided { wrong: None }, Duration::from_millis(ms));
        }
        let report = live.report();
        assert_eq!(report.decisions, 100);
        assert!((report.p50_ms - 50.0).abs() < 0.1, "{}", report.p50_ms);
        assert!((report.p99_ms - 99.0).abs() < 0.1, "{}", report.p99_ms);
        assert!((report.max_ms - 100.0).abs() < 0.1, "{}", report.max_ms);
    }
}
