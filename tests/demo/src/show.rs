//! The demo's output, for people and for machines.

use std::io::{IsTerminal, Write, stderr};

use anteroom_load::Report;
use serde::Serialize;

use crate::system::{Freshness, State};
use anteroom_command::output::{Output, print};

/// The writer of the demo's lines: progress to standard error, the summary to standard output.
pub(crate) struct Show {
    output: Output,
    /// True on a terminal, where a line may be written over.
    rewrites: bool,
}

impl Show {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            rewrites: stderr().is_terminal(),
        }
    }

    /// Says what happens now.
    pub(crate) fn step(&self, text: &str) {
        self.line(&format!("demo: {text}\n"));
    }

    /// The numbers so far.
    pub(crate) fn live(&self, report: &Report, state: &State) {
        let line = format!(
            "{:>7.0} decisions/s  p50 {:.2} ms  p95 {:.2} ms  p99 {:.2} ms  right {}  wrong {}  errors {}  \
             objects {}  view bytes {}  watches {}",
            report.decisions_per_second,
            report.p50_ms,
            report.p95_ms,
            report.p99_ms,
            report.decisions - report.wrong,
            report.wrong,
            report.errors,
            state.objects,
            state.view_bytes,
            state.watches,
        );
        if self.rewrites {
            self.line(&format!("\r\x1b[K{line}"));
        } else {
            self.line(&format!("{line}\n"));
        }
    }

    /// The end result.
    pub(crate) fn summary(&self, summary: &Summary) -> anyhow::Result<()> {
        if self.rewrites {
            self.line("\n");
        }
        match self.output {
            Output::Json => print(&serde_json::to_string_pretty(summary)?),
            Output::Text => print(&summary.text()),
        }
    }

    /// Progress is worth nothing to a reader that is gone, so a failure to write it is none.
    fn line(&self, text: &str) {
        let _ = stderr().lock().write_all(text.as_bytes());
    }
}

/// A run in numbers. Latencies are of whole reviews over TLS, one at a time; the rate is of the part
/// with several at a time. Everything runs in this one process, the load generator and the
/// simulated API server included.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) objects: u64,
    pub(crate) decisions: u64,
    pub(crate) wrong: u64,
    pub(crate) errors: u64,
    watches: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    decisions_per_second: f64,
    view_bytes: u64,
    rss_bytes: u64,
    freshness_p50_ms: f64,
    freshness_max_ms: f64,
    one_at_a_time: Report,
    concurrent: Report,
    concurrency: u16,
}

impl Summary {
    pub(crate) fn new(
        state: &State,
        single: &Report,
        concurrent: &Report,
        concurrency: u16,
        freshness: Freshness,
    ) -> Self {
        Self {
            objects: state.objects,
            decisions: single.decisions + concurrent.decisions,
            wrong: single.wrong + concurrent.wrong,
            errors: single.errors + concurrent.errors,
            watches: state.watches,
            p50_ms: single.p50_ms,
            p95_ms: single.p95_ms,
            p99_ms: single.p99_ms,
            max_ms: single.max_ms,
            decisions_per_second: concurrent.decisions_per_second,
            view_bytes: state.view_bytes,
            rss_bytes: state.rss_bytes,
            freshness_p50_ms: freshness.p50_ms,
            freshness_max_ms: freshness.max_ms,
            one_at_a_time: single.clone(),
            concurrent: concurrent.clone(),
            concurrency,
        }
    }

    fn text(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "objects          {} in views of {:.1} MiB; {} watches on the API server\n\
             decisions        {} right, {} wrong, {} reviews without one\n\
             one at a time    p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms\n\
             {:<3} at a time    {:.0} decisions/s, p99 {:.2} ms\n\
             freshness        p50 {:.1} ms from an Ingress being created to its host being denied to others\n\
             memory           {:.0} MiB resident, with the load generator and the API server",
            self.objects,
            mib(self.view_bytes),
            self.watches,
            self.decisions - self.wrong,
            self.wrong,
            self.errors,
            self.p50_ms,
            self.p95_ms,
            self.p99_ms,
            self.concurrency,
            self.decisions_per_second,
            self.concurrent.p99_ms,
            self.freshness_p50_ms,
            mib(self.rss_bytes),
        )
    }
}
