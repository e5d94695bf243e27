//! Decisions go on while one of three NATS servers is away: killed, stopped, or cut off from the others.
//!
//! Reviews are posted all the time, four at once, half of them of hosts that are taken. After each fault, a new host is
//! known, and all servers are in step again.

use std::time::Duration;

use anteroom_e2e::{nats::NatsPlan, system::SystemPlan, views, world::World};
use anyhow::Context;
use tokio::time::sleep;

use crate::load::{Faults, decides_by_hosts};

const INGRESSES: usize = 300;

/// The absence of a killed server.
const KILLED_FOR: Duration = Duration::from_secs(3);

/// The absence of all watchers.
const WATCHERS_KILLED_FOR: Duration = Duration::from_secs(8);

/// The time for which a server stands still: its clients notice within 6 s.
const FROZEN_FOR: Duration = Duration::from_secs(10);

/// The time for which a server is cut off: longer than requests wait.
const CUT_FOR: Duration = Duration::from_secs(25);

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_nats_server_costs_no_decision() -> anyhow::Result<()> {
    let plan = SystemPlan {
        watchers: 2,
        nats: NatsPlan {
            is_cuttable: true,
            ..NatsPlan::default()
        },
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;

    let leader = world.nats.leader().await?;
    let mut faults = Faults::new(target, INGRESSES);
    let others = (0..world.nats.count()).filter(|number| *number != leader);
    for number in [leader].into_iter().chain(others) {
        let what = match number == leader {
            true => "the leader's server killed for 3 s",
            false => "another server killed for 3 s",
        };
        faults
            .under_load(world, what, async |world| {
                world.nats.kill_one(number)?;
                sleep(KILLED_FOR).await;
                world.nats.start_one(number).await
            })
            .await?;
    }
    let leader = world.nats.leader().await?;
    faults
        .under_load(
            world,
            "the leader's server frozen for 10 s",
            async |world| {
                world.nats.signal(leader, "STOP")?;
                sleep(FROZEN_FOR).await;
                world.nats.signal(leader, "CONT")
            },
        )
        .await?;
    faults
        .under_load(
            world,
            "all servers restarted, one after the other",
            async |world| {
                for number in 0..world.nats.count() {
                    world.nats.stop_one(number).await?;
                    world.nats.start_one(number).await?;
                    world.nats.healthy(number).await?;
                }
                Ok(())
            },
        )
        .await?;
    faults
        .under_load(
            world,
            "two of three servers killed for 3 s",
            async |world| {
                world.nats.kill_one(0)?;
                world.nats.kill_one(1)?;
                sleep(KILLED_FOR).await;
                world.nats.start_again().await
            },
        )
        .await?;
    faults
        .under_load(world, "both watchers killed for 8 s", kill_watchers)
        .await?;
    let of_webhook = world.nats.server_of("anteroom-webhook").await?;
    move_replicas_away(world, of_webhook).await?;
    faults
        .under_load(
            world,
            "the webhook's server cut off for 25 s",
            async |world| {
                world.nats.cut_off(of_webhook, true);
                sleep(CUT_FOR).await;
                world.nats.cut_off(of_webhook, false);
                Ok(())
            },
        )
        .await?;
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// Without a word of any watcher, clients look for another server. None is better.
async fn kill_watchers(world: &mut World) -> anyhow::Result<()> {
    let mut recipes = Vec::new();
    let others = world.system.other_watchers.iter_mut();
    for slot in [&mut world.system.watcher].into_iter().chain(others) {
        let mut running = slot.take().context("it runs")?;
        recipes.push(running.recipe().clone());
        running.process.kill()?;
    }
    sleep(WATCHERS_KILLED_FOR).await;
    let others = world.system.other_watchers.iter_mut();
    let slots = [&mut world.system.watcher].into_iter().chain(others);
    for (slot, recipe) in slots.zip(recipes) {
        *slot = Some(recipe.start()?);
    }
    Ok(())
}

/// Starts the replicas anew, as clients of the other servers.
pub(crate) async fn move_replicas_away(world: &mut World, from: usize) -> anyhow::Result<()> {
    let urls = world.nats.logins().urls_without(from);
    for slot in &mut world.system.replicas {
        let mut running = slot.take().context("it runs")?;
        let recipe = running.recipe().clone().env("ANTEROOM_NATS_URL", &urls);
        running.process.kill()?;
        slot.insert(recipe.start()?).ready().await?;
    }
    Ok(())
}
