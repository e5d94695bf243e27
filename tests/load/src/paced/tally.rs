//! The results of a run at a pace.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{
    glance::Verdict,
    stalls::{Late, Slow, Stall},
};
use crate::report::new_histogram;

/// Kinds of errors, and examples of wrong answers, that are kept; further ones are counted alone.
const EXAMPLES_MAX: usize = 8;

/// One worker's counts, merged at the end.
#[derive(Debug)]
pub(crate) struct Tally {
    decisions: u64,
    wrong: u64,
    errors: u64,
    error_kinds: BTreeMap<String, u64>,
    wrong_examples: Vec<String>,
    /// From when a request was due to its answer.
    latency_ns: Histogram<u64>,
    /// From when a request was due to its being sent.
    late_ns: Histogram<u64>,
    slow: Slow,
    /// When the last answer came.
    ended: Duration,
    /// CPU time of the generator's threads.
    pub(crate) cpu: Duration,
}

/// When a request was due, sent and answered, since the run's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) due: Duration,
    pub(crate) sent: Duration,
    pub(crate) answered: Duration,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            decisions: 0,
            wrong: 0,
            errors: 0,
            error_kinds: BTreeMap::new(),
            wrong_examples: Vec::new(),
            latency_ns: new_histogram(),
            late_ns: new_histogram(),
            slow: Slow::default(),
            ended: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    pub(crate) fn record(&mut self, times: Times, verdict: Verdict) {
        let ns = |from: Duration, to: Duration| {
            u64::try_from(to.saturating_sub(from).as_nanos()).unwrap_or(u64::MAX)
        };
        // Fails only for a histogram that may not grow; these may.
        let _ = self.latency_ns.record(ns(times.due, times.answered));
        let _ = self.late_ns.record(ns(times.due, times.sent));
        self.slow.record(times);
        self.ended = self.ended.max(times.answered);
        match verdict {
            Verdict::Right => self.decisions += 1,
            Verdict::Wrong(example) => {
                self.decisions += 1;
                self.wrong += 1;
                if self.wrong_examples.len() < EXAMPLES_MAX {
                    self.wrong_examples.push(example);
                }
            }
            Verdict::Error(kind) => {
                self.errors += 1;
                self.count_error(kind, 1);
            }
        }
    }

    fn count_error(&mut self, kind: String, times: u64) {
        let full = self.error_kinds.len() >= EXAMPLES_MAX;
        let kind = if full && !self.error_kinds.contains_key(&kind) {
            "others".to_owned()
        } else {
            kind
        };
        *self.error_kinds.entry(kind).or_default() += times;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.wrong += other.wrong;
        self.errors += other.errors;
        for (kind, times) in other.error_kinds {
            self.count_error(kind, times);
        }
        self.wrong_examples.extend(other.wrong_examples);
        self.wrong_examples.truncate(EXAMPLES_MAX);
        // As in `record`.
        let _ = self.latency_ns.add(other.latency_ns);
        let _ = self.late_ns.add(other.late_ns);
        self.slow.merge(other.slow);
        self.ended = self.ended.max(other.ended);
        self.cpu += other.cpu;
    }

    /// `unsent` requests were due and never posted; the machine was late when `late` says so.
    pub(super) fn report(self, unsent: u64, late: &[Late]) -> PacedReport {
        let seconds = self.ended.as_secs_f64();
        let posts = self.decisions + self.errors;
        let per_post = |total: f64| total / posts.max(1) as f64;
        PacedReport {
            decisions: self.decisions,
            wrong: self.wrong,
            errors: self.errors,
            unsent,
            seconds,
            decisions_per_second: if seconds > 0.0 {
                self.decisions as f64 / seconds
            } else {
                0.0
            },
            latency_ms: Spread::of(&self.latency_ns),
            late_ms: Spread::of(&self.late_ns),
            stalls: self.slow.stalls(late),
            generator_cpu_ms: per_post(self.cpu.as_secs_f64() * 1e3),
            error_kinds: self.error_kinds,
            wrong_examples: self.wrong_examples,
        }
    }
}

/// A run in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct PacedReport {
    /// Answers that were decisions.
    pub decisions: u64,
    /// Decisions that are not the right ones.
    pub wrong: u64,
    /// Posts without a decision: failed closed, or no answer.
    pub errors: u64,
    /// Requests that were due and never posted, because the server was too late with those before.
    pub unsent: u64,
    /// From the start to the last answer.
    pub seconds: f64,
    /// Decisions a second.
    pub decisions_per_second: f64,
    /// From when a request was due to its answer, errors included.
    pub latency_ms: Spread,
    /// From when a request was due to its being sent: all connections were in use, or the generator
    /// was late itself.
    pub late_ms: Spread,
    /// The longest times that requests stood still.
    pub stalls: Vec<Stall>,
    /// CPU time that the generator took for one post.
    pub generator_cpu_ms: f64,
    /// Errors by their text.
    pub error_kinds: BTreeMap<String, u64>,
    /// The first wrong decisions.
    pub wrong_examples: Vec<String>,
}

/// Percentiles, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// 95 of 100 took at most as long.
    pub p95: f64,
    /// 99 of 100 took at most as long.
    pub p99: f64,
    /// 999 of 1,000 took at most as long.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    fn of(ns: &Histogram<u64>) -> Self {
        // Half a microsecond is below what three digits of the histogram hold of a millisecond.
        let ms = |ns: u64| (ns as f64 / 1e3).round() / 1e3;
        Self {
            p50: ms(ns.value_at_quantile(0.50)),
            p95: ms(ns.value_at_quantile(0.95)),
            p99: ms(ns.value_at_quantile(0.99)),
            p999: ms(ns.value_at_quantile(0.999)),
            max: ms(ns.max()),
        }
    }
}
