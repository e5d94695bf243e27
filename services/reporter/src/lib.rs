//! The reporter: judges existing objects by the policies, and writes PolicyReports and Events.
//!
//! ```text
//! log ──▶ judge (policies, entries, kinds) ─┐
//!     ──▶ views of scanned objects ──▶ scanner ──▶ findings ──▶ writer ──▶ PolicyReports at the API server
//!                                         ▲                     └────▶ Events
//!                                         └─ facts ── replicas
//! ```
//!
//! | module | content |
//! |---|---|
//! | `plan`, `snapshot` | which objects to judge by which policies; pure |
//! | `scanner` | takes them through the policies, as the webhook does |
//! | `findings`, `result` | the results on each object; pure |
//! | `report` | a finding as a report; pure |
//! | `published` | the content of the API server's reports; pure |
//! | `writer`, `store` | brings reports in step; reads and writes them |
//! | `policy_updates` | runs `mutate.targets` when a policy changes |
//! | `violation_listener`, `events` | violations that webhooks report; their Events |
//! | `shared`, `lease` | the state of scanner and writer; who reports |
//! | `args`, `command`, `metrics` | options; the process; metrics |
//!
//! Objects come from views alone: the API server is asked for nothing but reports and the lease.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod command;
mod events;
mod findings;
mod lease;
mod metrics;
mod plan;
mod policy_updates;
mod published;
mod report;
mod result;
mod scanner;
mod shared;
mod snapshot;
mod store;
mod violation_listener;
mod writer;

use std::sync::Arc;

use anteroom_bus::Bus;
use anteroom_engine::judge::Judge;
use anteroom_mirror::MirrorMetrics;
use anteroom_runtime::{Check, Service, supervise::Tasks};
use kube::Client;

pub use args::Args;
pub use command::Command;

use events::Events;
use lease::Candidate;
use metrics::ReporterMetrics;
use scanner::Scanner;
use shared::SharedFindings;
use store::Store;
use writer::ReportWriter;

/// The name of the Lease.
const LEASE: &str = "anteroom-reporter";

/// Reports until shutdown, whenever this reporter holds the lease.
///
/// # Errors
/// The bus was closed.
pub async fn run(
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    service: Service,
) -> anyhow::Result<()> {
    let metrics = ReporterMetrics::register(&service.metrics);
    let policies = service
        .readiness
        .check("policies", "the first read of the log");
    let check = service.readiness.check("reports", "the lease");
    let asker_keys = args.asker_keys.clone();
    let (judge, follow) = Judge::new(Arc::clone(&bus), asker_keys, &service, policies);
    let judge = judge.exempting(args.exemptions.clone());
    let holder = args.holder();
    let mut candidate = Candidate::new(&client, &args.reporter_namespace, LEASE, holder.clone());
    let tasks = Tasks::new(service.shutdown.clone());
    tasks.spawn("policies", follow);
    let reporter = Reporter {
        args,
        bus,
        client,
        service: service.clone(),
        metrics,
        // Once, for all terms.
        mirrored: MirrorMetrics::register(&service.scope("scans").metrics),
        judge,
        holder,
        check: Arc::new(check),
    };
    let stop = service.shutdown.token();
    tasks.spawn("terms", async move {
        let failed = stop.run_until_cancelled(reporter.terms(&mut candidate));
        let failed = failed.await;
        candidate.release().await;
        failed.map_or(Ok(()), Err)
    });
    tasks.join().await
}

/// Everything that a term begins with.
struct Reporter {
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    service: Service,
    metrics: ReporterMetrics,
    mirrored: MirrorMetrics,
    judge: Judge,
    holder: String,
    check: Arc<Check>,
}

impl Reporter {
    /// Reports whenever this reporter holds the lease, until a task of a term fails.
    async fn terms(&self, candidate: &mut Candidate) -> anyhow::Error {
        loop {
            candidate
                .take(|waits_for| {
                    let note = format!("it waits for {waits_for}");
                    self.check.ready_but(note);
                })
                .await;
            let mut term = self.begin_term();
            let lost = tokio::select! {
                error = term.failed() => return error,
                lost = candidate.hold() => lost,
            };
            term.stop().await; // From now on it writes no more.
            self.metrics.leads(false);
            tracing::warn!(
                lost,
                "lease lost: reporting stopped until this reporter holds the lease again"
            );
        }
    }

    /// Starts the tasks of a term. Each term reads the state of the reports anew.
    fn begin_term(&self) -> Tasks {
        tracing::info!(holder = self.holder, "lease taken: reporting started");
        self.metrics.leads(true);
        let shared = SharedFindings::new();
        let scanner = Scanner::new(
            Arc::clone(&self.bus),
            self.judge.clone(),
            shared.clone(),
            self.metrics.clone(),
            self.args.background_scan_interval,
            self.mirrored.clone(),
            &self.service.shutdown.token(),
        );
        let (events, telling) = match self.args.events_per_second {
            0 => (None, None),
            per_second => {
                let (client, instance) = (self.client.clone(), self.holder.clone());
                let made = Events::new(client, instance, self.metrics.clone(), per_second);
                (Some(made.0), Some(made.1))
            }
        };
        let renewing = policy_updates::run(self.judge.clone());
        let hearing =
            violation_listener::listen(Arc::clone(&self.bus), events.clone(), shared.clone());
        let writer = ReportWriter::new(
            Store::new(self.client.clone()),
            shared,
            events,
            self.metrics.clone(),
            self.args.report_writes_per_second,
            self.args.background_scan_interval,
        );
        // Tasks of their own: none holds up another, nor the lease.
        let tasks = Tasks::of_part(self.service.shutdown.clone());
        // The mirror that it reads ends with the service, which is no failure then.
        let stop = self.service.shutdown.token();
        tasks.spawn("scans", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                ended = scanner.run() => ended,
            }
        });
        tasks.spawn_until_shutdown("reports", writer.run(Arc::clone(&self.check)));
        tasks.spawn_until_shutdown("violations of webhooks", hearing);
        tasks.spawn_until_shutdown("existing objects", renewing);
        if let Some(telling) = telling {
            tasks.spawn_until_shutdown("events", telling);
        }
        tasks
    }
}
