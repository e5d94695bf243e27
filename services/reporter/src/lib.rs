//! The reporter: what the policies say of the objects that exist, as PolicyReports and Events.
//!
//! ```text
//! log ──▶ judge (policies, entries, kinds) ─┐
//!     ──▶ views of what is scanned ──▶ scanner ──▶ book ──▶ writer ──▶ PolicyReports at the API server
//!                                         ▲                     └────▶ Events
//!                                         └─ facts ── replicas
//! ```
//!
//! - `plan`: which objects have to be judged by which policies; pure.
//! - `scanner`: takes them through the policies, as the webhook does with requests.
//! - `book`: what is known of each object; pure. `report`: what that is as a report; pure.
//! - `writer`: brings the API server's reports in step with the book; `store` reads and writes them.
//! - `ledger`: what those reports say, and which are looked at when; pure.
//! - `existing`: changes what rules change for what exists already.
//! - `events`: tells of violations; `hear`: of those that webhooks found. `lease`: one reporter of several does all that.
//!
//! Objects come from views alone: the API server is asked for nothing but reports and the lease.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod book;
mod desk;
mod events;
mod existing;
mod hear;
mod lease;
mod ledger;
mod metrics;
mod plan;
mod report;
mod result;
mod scanner;
mod snapshot;
mod store;
mod writer;

use std::sync::Arc;

use anteroom_bus::Bus;
use anteroom_mirror::MirrorMetrics;
use anteroom_runtime::{Check, Service};
use anteroom_webhook::background::Judge;
use kube::Client;
use tokio_util::task::AbortOnDropHandle;

pub use args::Args;

use desk::Desk;
use events::Events;
use lease::Candidate;
use metrics::ReporterMetrics;
use scanner::Scanner;
use store::Store;
use writer::Writer;

/// The name of the Lease.
const LEASE: &str = "anteroom-reporter";

/// Reports until shutdown, whenever this reporter holds the lease.
///
/// # Errors
/// Where the bus was closed.
pub async fn run(
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    service: Service,
) -> anyhow::Result<()> {
    let metrics = ReporterMetrics::registered(&service.metrics);
    let policies = service
        .readiness
        .check("policies", "the first read of the log");
    let check = service.readiness.check("reports", "the lease");
    let (judge, follow) = Judge::new(Arc::clone(&bus), &service, policies);
    let judge = judge.filtering(args.resource_filters.clone());
    let holder = args.holder();
    let mut candidate = Candidate::new(&client, &args.reporter_namespace, LEASE, holder.clone());
    // Tasks of their own: what is judged holds up neither the lease nor what is known.
    let follow = AbortOnDropHandle::new(tokio::spawn(follow));
    let reporter = Arc::new(Reporter {
        args,
        bus,
        client,
        service: service.clone(),
        metrics,
        // Once, for all terms.
        mirrored: MirrorMetrics::registered(&service.scope("scans").metrics),
        judge,
        holder,
        check,
    });
    let stop = service.shutdown.token();
    let terms = Box::pin(async {
        loop {
            candidate
                .take(|waits_for| {
                    let note = format!("it waits for {waits_for}");
                    reporter.check.ready_but(note);
                })
                .await;
            let of_term = Arc::clone(&reporter);
            let mut term =
                AbortOnDropHandle::new(tokio::spawn(async move { Box::pin(of_term.term()).await }));
            let lost = tokio::select! {
                ended = &mut term => return ended?,
                lost = candidate.hold() => lost,
            };
            term.abort();
            drop(term.await); // From now on it writes no more.
            reporter.metrics.leads(false);
            tracing::warn!(lost, "this reporter reports no more");
        }
    });
    let ended = tokio::select! {
        biased; // A shutdown ends the rest too, which is no fault then.
        () = stop.cancelled() => Ok(()),
        ended = terms => ended,
        ended = follow => ended.unwrap_or_else(|fault| Err(fault.into())),
    };
    candidate.release().await;
    ended
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
    check: Check,
}

impl Reporter {
    /// Reports until it is dropped: what was known is read anew by the next term.
    async fn term(&self) -> anyhow::Result<()> {
        tracing::info!(holder = self.holder, "this reporter reports");
        self.metrics.leads(true);
        let desk = Desk::new();
        let scanner = Scanner::new(
            Arc::clone(&self.bus),
            self.judge.clone(),
            desk.clone(),
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
        let scanning = AbortOnDropHandle::new(tokio::spawn(scanner.run()));
        let renewing = AbortOnDropHandle::new(tokio::spawn(existing::run(self.judge.clone())));
        let hearing = hear::hear(Arc::clone(&self.bus), events.clone(), desk.clone());
        let writer = Writer::new(
            Store::new(self.client.clone()),
            desk,
            events,
            self.metrics.clone(),
            self.args.report_writes_per_second,
            self.args.background_scan_interval,
        );
        let telling = async {
            match telling {
                Some(telling) => telling.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = scanning => ended.unwrap_or_else(|fault| Err(fault.into())),
            () = writer.run(&self.check) => Ok(()),
            () = telling => Ok(()),
            () = hearing => Ok(()),
            ended = renewing => ended.map_err(Into::into),
        }
    }
}
