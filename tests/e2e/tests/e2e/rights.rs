//! Rights taken and given at random, while facts change and policies ask for them by every road.
//!
//! A decision tells the numbers that it read, which the oracle knows, or why there are none. This must hold:
//!
//! - Numbers are right, or the error has a code.
//! - A read that has all of its rights never fails.
//! - A read that lost a right fails within a second of the API server's word, in its words. It comes back by itself.
//! - Nothing is asked in a loop, and no process dies.
//! - In the end every view equals the API server's list.
//!
//! `ANTEROOM_RIGHTS_SEED` and `ANTEROOM_RIGHTS_EDITS` choose another and a longer story.

mod inquiry;
mod roads;

use std::{sync::Arc, time::Duration};

use anteroom_e2e::{
    audit::Asked,
    check::condition,
    guard::Asker,
    rights::{RightPart, Rights, Scope, scopes},
    stock::{Histories, STOCK},
    system::SystemPlan,
    views,
    wait::setting,
    world::World,
};
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tokio_util::sync::CancellationToken;

use self::{
    inquiry::{Findings, Inquiry},
    roads::{Road, roads},
};

const SEED_DEFAULT: u64 = 1;
const EDITS_DEFAULT: u64 = 20;

/// A watch is opened anew after half of it, which is when the API server looks at rights again.
const STALE_AFTER: &str = "20s";

/// The number of askers at the same time, each on all routes.
const ASKERS: u64 = 2;

/// Lists and watches of one path that the API server refuses, in a minute, at most: a forbidden source
/// is asked for every 2.5 to 5 s, and more often at first. Several sources may have one path.
const REFUSED_PER_MINUTE_MAX: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn rights_edited_at_random_cost_no_decision_and_touch_no_other_entry() -> anyhow::Result<()> {
    let seed = setting("ANTEROOM_RIGHTS_SEED", SEED_DEFAULT)?;
    let edits = setting("ANTEROOM_RIGHTS_EDITS", EDITS_DEFAULT)?;
    let plan = SystemPlan {
        watcher_args: vec![("--stale-after", STALE_AFTER.into())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = story(&mut world, seed, edits).await;
    let outcome = outcome.with_context(|| format!("ANTEROOM_RIGHTS_SEED={seed}"));
    world.with_logs(outcome)
}

async fn story(world: &mut World, seed: u64, edits: u64) -> anyhow::Result<()> {
    let histories = Histories::begin(world, &STOCK).await?;
    let rights = Arc::new(Rights::begin(&world.client).await?);
    let roads: Arc<[Road]> = roads().into();
    for road in roads.iter() {
        for manifest in road.manifests() {
            world.create(manifest).await?;
        }
    }
    world.system.ready().await?;
    let asker = Asker::new(world).await?;
    for road in roads.iter() {
        asker.refused(&road.name, "numbers=").await?;
    }

    let (stop, quiet) = (CancellationToken::new(), CancellationToken::new());
    let mut askers = Vec::new();
    for number in 0..ASKERS {
        let inquiry = Inquiry {
            roads: roads.clone(),
            rights: rights.clone(),
            histories: histories.clone(),
            asker: Asker::new(world).await?,
        };
        askers.push(tokio::spawn(
            inquiry.run(seed ^ (number << 8), stop.clone()),
        ));
    }
    let (one, other) = STOCK.split_at(STOCK.len() / 2);
    let changes =
        [one, other].map(|stock| histories.change(world, stock, seed ^ stock.len() as u64, &quiet));
    let story = async {
        edit(world, &rights, seed, edits).await?;
        for scope in scopes() {
            rights.give(&world.client, scope).await?;
        }
        for road in roads.iter() {
            let recovered = asker.refused(&road.name, "numbers=").await?;
            road.told(&recovered)?;
        }
        quiet.cancel();
        anyhow::Ok(())
    };
    let (_, ()) = tokio::try_join!(try_join_all(changes), story)?;
    stop.cancel();
    let mut findings = Findings::default();
    for asker in askers {
        findings.add(asker.await??);
    }
    let asked = world.cluster.asked()?;
    findings.tell(seed);
    findings.hold(&roads, &asked)?;
    nothing_is_asked_in_a_loop(&asked)?;
    for entry in roads.iter().filter_map(Road::entry) {
        condition(world, entry, "True", "").await?;
    }
    views::equal_the_api_server(world).await?;
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    for running in world.system.replicas.iter_mut().flatten() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

/// Takes and gives rights, scope by scope.
async fn edit(world: &World, rights: &Rights, seed: u64, edits: u64) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let all: Vec<Scope> = scopes().collect();
    // Namespaces whose own right goes first are left with that on the type.
    for &scope in all.iter().filter(|(_, namespace)| namespace.is_some()) {
        if rng.random_bool(0.5) {
            rights.take(&world.client, scope, RightPart::Whole).await?;
        }
    }
    for _ in 0..edits {
        let within: Vec<_> = all
            .iter()
            .filter(|(_, namespace)| namespace.is_none() == rng.random_bool(0.6))
            .collect();
        let &&scope = within.choose(&mut rng).context("no scope")?;
        if rights.has(scope) {
            let taken = match rng.random_range(0..6) {
                0 => RightPart::Watch,
                1 => RightPart::List,
                _ => RightPart::Whole,
            };
            rights.take(&world.client, scope, taken).await?;
        } else {
            rights.give(&world.client, scope).await?;
        }
        let pause = Duration::from_millis(rng.random_range(0..4_000));
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Checks in the API server's own record how often one path was refused in a minute. What decisions ask
/// live is asked as often as there are decisions.
fn nothing_is_asked_in_a_loop(asked: &[Asked]) -> anyhow::Result<()> {
    let live = |asked: &Asked| !asked.uri.contains("limit=") && !asked.uri.contains("watch=1");
    let refused = |asked: &&Asked| asked.code == 403 && asked.ended && !live(asked);
    let refused: Vec<_> = asked.iter().filter(refused).collect();
    for (at, first) in refused.iter().enumerate() {
        let path = |asked: &Asked| asked.uri.split('?').next().map(str::to_owned);
        let within = refused[at..]
            .iter()
            .take_while(|asked| asked.at.duration_since(first.at).as_secs() < 60);
        let of_it = within.filter(|asked| path(asked) == path(first)).count();
        ensure!(
            of_it <= REFUSED_PER_MINUTE_MAX,
            "{of_it} within a minute: {first:?}"
        );
    }
    Ok(())
}
