//! A process stands still, and then runs on with all that has come meanwhile: a watcher, a replica, a webhook, the only NATS
//! server.
//!
//! Reviews are posted all the time, four at once, half of them of hosts that are taken. This must hold:
//!
//! - No decision is wrong, whoever stands still or wakes.
//! - A process that wakes serves no older facts than are accepted before it has caught up.
//! - Decisions are lost only where a webhook, or the only NATS server, stands still for longer than a review waits.
//!
//! `ANTEROOM_STOPPED_SECONDS` makes each process stand still for longer.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anteroom_bus::{Bus as _, nats::NatsBus};
use anteroom_e2e::{
    check::one_leads,
    nats::NatsPlan,
    services::Running,
    system::SystemPlan,
    views,
    wait::{self, setting},
    world::{World, host},
};
use anteroom_load::{Answer, Client, Report, Target, review};
use anteroom_model::ObjectKey;
use anyhow::{Context, bail, ensure};
use futures::future::try_join_all;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::load::{CONCURRENCY, Faults, Witness, decides_by_hosts};

const INGRESSES: usize = 300;

const WEBHOOKS: usize = 2;

const STOPPED_SECONDS_DEFAULT: u64 = 10;

/// The number of the first Ingress that is made while a process stands still.
const MADE_MEANWHILE: usize = 10_000;

/// A namespace that webhooks are not called for, so that Ingresses are made there whoever stands still.
const EXEMPT: &str = "kube-system";

/// The replica that stands still, and the view that it is asked about.
const REPLICA: &str = "replica-0";
const VIEW: &str = "ingresses.v1.networking.k8s.io";

/// The age of news that is accepted of the replica.
const ACCEPTED: Duration = Duration::from_secs(3);

/// The least time from when others know an Ingress until the replica wakes: news from before that are too old then.
const KNOWN_FOR: Duration = Duration::from_secs(6);

/// The problem with a replica that knows less than was accepted.
const OLDER: &str = "the replica woke, and did not know an Ingress that others had known for 6 s";

/// The time between two questions to the replica.
const QUESTIONS_APART: Duration = Duration::from_millis(200);

/// The time within which the replica answers early questions once it runs.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// The time before a process runs on, from which reviews are posted that it may find when it wakes.
const POSTED_BEFORE: Duration = Duration::from_secs(1);

/// The denials after which a process that woke has caught up.
const DENIALS: usize = 200;

/// The UID of these reviews.
const UID: &str = "00000000-stopped";

/// The pause after a review without a decision.
const PAUSE: Duration = Duration::from_millis(5);

/// The time for which the only NATS server stands still and costs no decision: shorter than reviews wait, and longer than
/// until clients leave it.
const NATS_BRIEFLY: Duration = Duration::from_secs(5);

/// What the load says of a review that a webhook did not answer in time.
const UNANSWERED: &str = "no answer within";

/// The codes of errors for want of facts, and the load's name for what it does not keep apart.
const WITHOUT_FACTS: [&str; 5] = ["AR104", "AR106", "AR204", "AR601", "others"];

/// A replica may cost one decision in so many seconds of standing still. NATS chooses a replica for each of a query's twelve
/// attempts, and one query in 4,096 gets the stopped replica each time.
const SECONDS_PER_LOSS: u64 = 30;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn a_process_that_stands_still_and_wakes_makes_no_decision_wrong() -> anyhow::Result<()> {
    let seconds = setting("ANTEROOM_STOPPED_SECONDS", STOPPED_SECONDS_DEFAULT)?;
    let plan = SystemPlan {
        watchers: 2,
        webhooks: WEBHOOKS,
        nats: NatsPlan::one(),
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world, Duration::from_secs(seconds))).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, stopped_for: Duration) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    let service = world.webhook_service.as_ref().context("a Service")?;
    service.leads_to(WEBHOOKS).await?;
    let standstill = Standstill {
        target: target.clone(),
        lasts: stopped_for,
    };
    let mut faults = Faults::new(target, INGRESSES);

    faults
        .under_load(world, "the leading watcher stopped", async |world| {
            standstill.of_watcher(world).await
        })
        .await?;
    let what = "one of two replicas stopped";
    let report = faults
        .reported(world, what, async |world| {
            Box::pin(standstill.of_replica(world)).await
        })
        .await?;
    let lost_max = stopped_for.as_secs().div_ceil(SECONDS_PER_LOSS);
    lost_at_most(what, &report, lost_max, &["AR204"])?;
    let what = "one of two webhooks stopped";
    let report = faults
        .reported(world, what, async |world| {
            Box::pin(standstill.of_webhook(world)).await
        })
        .await?;
    lost_at_most(what, &report, CONCURRENCY as u64, &[UNANSWERED])?;
    faults
        .under_load(
            world,
            "the only NATS server stopped for 5 s",
            async |world| {
                world.nats.signal(0, "STOP")?;
                sleep(NATS_BRIEFLY).await;
                world.nats.signal(0, "CONT")
            },
        )
        .await?;
    let what = "the only NATS server stopped";
    let report = faults
        .reported(world, what, async |world| standstill.of_nats(world).await)
        .await?;
    lost_at_most(what, &report, u64::MAX, &WITHOUT_FACTS)?;
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// So many decisions were lost at most, all of them with an error that says one of these.
fn lost_at_most(what: &str, report: &Report, max: u64, says: &[&str]) -> anyhow::Result<()> {
    let is_known = |kind: &String| says.iter().any(|says| kind.contains(says));
    ensure!(
        report.errors <= max && report.error_kinds.keys().all(is_known),
        "{what}: {report:#?}"
    );
    println!("{what}: lost {:?}", report.error_kinds);
    Ok(())
}

/// Stops a process by SIGSTOP, and lets it run on by SIGCONT.
struct Standstill {
    /// The webhooks' Service.
    target: Target,
    lasts: Duration,
}

impl Standstill {
    async fn of_watcher(&self, world: &World) -> anyhow::Result<()> {
        let watchers: Vec<&Running> = world.system.watchers().collect();
        let leader = one_leads(&watchers).await?;
        leader.process.signal("STOP")?;
        let ends = Instant::now() + self.lasts;
        let made = self.make(world, 0).await?;
        sleep_until(ends.into()).await;
        self.wakes(&self.target, &made, leader).await?;
        one_leads(&watchers).await.map(drop)
    }

    /// Questions reach the replica while it stands still, and when it runs on. Each answer has the Ingress that was made
    /// meanwhile, or tells why the replica does not know.
    async fn of_replica(&self, world: &World) -> anyhow::Result<()> {
        let bus = views::bus(world).await?;
        let replica = world.system.replicas[0].as_ref().context("it runs")?;
        replica.process.signal("STOP")?;
        let ends = Instant::now() + self.lasts;
        let made = self.make(world, 1).await?;
        let known = Instant::now();
        let ends = ends.max(known + KNOWN_FOR);
        let times = (0..).map(|number| known + QUESTIONS_APART * number);
        let times = times.take_while(|at| *at < ends);
        let early = try_join_all(times.map(|at| early_question(&bus, &made, at, ends)));
        let wakes = async {
            sleep_until(ends.into()).await;
            self.wakes(&self.target, &made, replica).await
        };
        let asked = async {
            sleep_until(ends.into()).await;
            let has_it = wait::until("the replica to have caught up", async || {
                knows(&bus, &made, ANSWERED_WITHIN).await
            })
            .await?;
            ensure!(has_it, "{OLDER}");
            anyhow::Ok(())
        };
        let (early, (), ()) = tokio::try_join!(early, wakes, asked)?;
        let answered = early.iter().filter(|is_answered| **is_answered).count();
        println!(
            "a replica that woke: {answered} of {} early questions answered",
            early.len()
        );
        bus.close().await;
        Ok(())
    }

    async fn of_webhook(&self, world: &World) -> anyhow::Result<()> {
        let service = world.webhook_service.as_ref().context("a Service")?;
        let webhook = world.system.other_webhooks[0].as_ref();
        let webhook = webhook.context("it runs")?;
        webhook.process.signal("STOP")?;
        let begun = Instant::now();
        service.leads_to(WEBHOOKS - 1).await?;
        println!(
            "a webhook that stands still: left out after {} ms",
            begun.elapsed().as_millis()
        );
        let made = self.make(world, 2).await?;
        sleep_until((begun + self.lasts).into()).await;
        let own = Target {
            address: webhook.listens_at()?,
            ..self.target.clone()
        };
        self.wakes(&own, &made, webhook).await?;
        service.leads_to(WEBHOOKS).await
    }

    async fn of_nats(&self, world: &World) -> anyhow::Result<()> {
        world.nats.signal(0, "STOP")?;
        sleep(self.lasts).await;
        world.nats.signal(0, "CONT")?;
        let begun = Instant::now();
        Witness::new(&self.target)?.sees(&host(7), true).await?;
        println!(
            "NATS: the first decision {} ms after it ran on",
            begun.elapsed().as_millis()
        );
        Ok(())
    }

    /// Makes an Ingress while a process stands still, and waits until decisions know it.
    async fn make(&self, world: &World, index: usize) -> anyhow::Result<Made> {
        let made = Made::new(MADE_MEANWHILE + index);
        let object = anteroom_load::ingress(EXEMPT, &made.name, &made.host);
        world.create(&object).await?;
        Witness::new(&self.target)?.sees(&made.host, true).await?;
        world.oracle.take(made.host.clone());
        Ok(made)
    }

    /// Lets a process run on. Reviews of the Ingress' host are posted to `target` from before that on, until many were denied.
    /// None is admitted.
    async fn wakes(&self, target: &Target, made: &Made, running: &Running) -> anyhow::Result<()> {
        let (denied, stop) = (AtomicUsize::new(0), CancellationToken::new());
        let waking = async {
            sleep(POSTED_BEFORE).await;
            let before = denied.load(Ordering::Relaxed);
            running.process.signal("CONT")?;
            wait::until("reviews to be denied", async || {
                let since = denied.load(Ordering::Relaxed) - before;
                ensure!(since >= DENIALS, "{since} so far");
                Ok(())
            })
            .await?;
            stop.cancel();
            anyhow::Ok(())
        };
        tokio::try_join!(waking, all_denied(target, &made.host, &denied, &stop))?;
        Ok(())
    }
}

/// An Ingress that was made while a process stood still.
struct Made {
    name: String,
    host: String,
}

impl Made {
    fn new(number: usize) -> Self {
        Self {
            name: format!("made-{number}"),
            host: host(number),
        }
    }
}

/// Posts reviews of a taken host in sequence, and counts the denials. None is admitted.
async fn all_denied(
    target: &Target,
    host: &str,
    denied: &AtomicUsize,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut client = Client::new(target.clone())?;
    let object = anteroom_load::ingress("default", "somebody-else", host);
    while !stop.is_cancelled() {
        let body = client.post(review(UID, &object)).await;
        let body = body.map_err(|error| format!("{error:#}"));
        match body.and_then(|body| Answer::parse(UID, &body)) {
            Ok(Answer::Denied { .. }) => {
                denied.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Answer::Allowed) => bail!("{host} was admitted, although it is taken"),
            Ok(Answer::Failed { .. }) | Err(_) => sleep(PAUSE).await,
        }
    }
    Ok(())
}

/// Asks the replica at this time, while it stands still. Returns whether there was an answer.
///
/// # Errors
/// The answer is by older news than are accepted.
async fn early_question(
    bus: &NatsBus,
    made: &Made,
    at: Instant,
    ends: Instant,
) -> anyhow::Result<bool> {
    sleep_until(at.into()).await;
    let wakes_at = ends + POSTED_BEFORE;
    let deadline = wakes_at.saturating_duration_since(at) + ANSWERED_WITHIN;
    match knows(bus, made, deadline).await {
        Ok(has_it) => {
            ensure!(has_it, "{OLDER}");
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

async fn knows(bus: &NatsBus, made: &Made, deadline: Duration) -> anyhow::Result<bool> {
    let object = ObjectKey::new(EXEMPT, made.name.as_str());
    views::has(bus, REPLICA, VIEW, &object, ACCEPTED, deadline).await
}
