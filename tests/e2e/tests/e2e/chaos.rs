//! No wrong decision, whatever is killed or frozen, and everything equal in the end.
//!
//! Reviews are posted all the time, Ingresses come and go through the API server, and a saboteur
//! kills and freezes parts at random. Failing closed is allowed; a wrong decision never: a host whose
//! owner was once seen stays taken until its owner is deleted, and the other way round.
//!
//! `ANTEROOM_CHAOS_SEED` and `ANTEROOM_CHAOS_SECONDS` choose another and a longer story.

mod mutator;
mod saboteur;

use std::{sync::Arc, time::Duration};

use anteroom_e2e::{
    check::{
        ENTRY, POLICY, SERVICES_ENTRY, entry_is_ready, is_denied, replicas_equal_the_api_server,
    },
    system::{SystemPlan, target},
    wait::setting,
    world::{World, host},
};
use anteroom_load::{Live, Plan, Stop};
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use self::{mutator::Mutator, saboteur::Saboteur};
use crate::load::calm;

const SERVICES: usize = 300;
const INGRESSES: usize = 300;

/// Reviews in flight.
const CONCURRENCY: usize = 4;

/// The number of webhooks. Reviews come to them as by a Service.
const WEBHOOKS: usize = 2;

/// The number of mutators of the cluster, each with its own hosts.
const MUTATORS: u64 = 2;

/// So many decisions in a row without an error: everything is well again.
const CALM: u64 = 500;

const SEED_DEFAULT: u64 = 1;
const SECONDS_DEFAULT: u64 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn no_wrong_decision_whatever_is_killed_or_frozen() -> anyhow::Result<()> {
    let seed = setting("ANTEROOM_CHAOS_SEED", SEED_DEFAULT)?;
    let lasts = Duration::from_secs(setting("ANTEROOM_CHAOS_SECONDS", SECONDS_DEFAULT)?);
    let plan = SystemPlan {
        webhooks: WEBHOOKS,
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = story(&mut world, seed, lasts).await;
    let outcome = outcome.with_context(|| format!("ANTEROOM_CHAOS_SEED={seed}"));
    world.with_logs(outcome)
}

async fn story(world: &mut World, seed: u64, lasts: Duration) -> anyhow::Result<()> {
    world.fill(SERVICES, INGRESSES).await?;
    for manifest in [ENTRY, SERVICES_ENTRY, POLICY] {
        world.create(&serde_saphyr::from_str(manifest)?).await?;
    }
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;
    entry_is_ready(world, "services", SERVICES).await?;
    is_denied(world, &host(7)).await?;

    let service = world.webhook_service.as_ref().context("a Service")?;
    service.leads_to(WEBHOOKS).await?;
    let target = target(&world.client).await?;
    let live = Arc::new(Live::default());
    let (load_ends, changes_end) = (CancellationToken::new(), CancellationToken::new());
    let plan = Plan {
        concurrency: CONCURRENCY,
        duplicate_share: 0.5,
        stop: Stop::Cancelled(load_ends.clone()),
    };
    let load = anteroom_load::run(target.clone(), plan, world.oracle.clone(), live.clone());
    let load = tokio::spawn(load);
    let mutator = |number| Mutator::new(world, &target, seed, number);
    let mutators: Vec<_> = (0..MUTATORS).map(mutator).collect::<Result<_, _>>()?;
    let changes = mutators.into_iter().map(|one| one.run(changes_end.clone()));

    let mut saboteur = Saboteur::new(world, &target, seed, live.clone())?;
    let rage = async {
        saboteur.rage(world, lasts).await?;
        changes_end.cancel();
        anyhow::Ok(())
    };
    let (changes, ()) = tokio::try_join!(try_join_all(changes), rage)?;
    for changes in changes {
        tell(&format!("  {changes:?}"));
    }
    saboteur.rest(world).await?;
    calm(&live, CALM).await?;
    load_ends.cancel();
    let report = load.await??;
    tell(&format!(
        "  seed {seed}: {} decisions, {} wrong, {} without one: {:#?}",
        report.decisions, report.wrong, report.errors, report.error_kinds
    ));
    ensure!(report.wrong == 0, "{report:#?}");
    replicas_equal_the_api_server(world).await
}

/// Seen with `--nocapture`, and when the story ends badly.
#[expect(
    clippy::print_stdout,
    reason = "the story, for whoever reads a test's output"
)]
fn tell(text: &str) {
    println!("{text}");
}
