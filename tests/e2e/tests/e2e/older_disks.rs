//! NATS servers that come back with older copies of their files, as after disks were restored: one of three at a time, and two
//! while the disk of the third is lost.
//!
//! One of them catches up with the others. Two outvote the third: what was acknowledged since the copies is nowhere any more. The
//! writer finds that out by the positions that it gets, and makes the log anew.

use std::time::Duration;

use anteroom_e2e::{
    check::is_denied,
    services::Running,
    system::SystemPlan,
    views, wait,
    world::{World, host, ingress},
};
use anteroom_load::Target;
use anyhow::ensure;
use tokio::time::sleep;

use crate::load::{Faults, Witness, decides_by_hosts, one_more};

const INGRESSES: usize = 300;

/// Ingresses that are made after the copies, and as many that are deleted.
const CHANGED: usize = 20;

/// The number of the Ingress that is made while two servers have older files.
const MADE_MEANWHILE: usize = 10_000;

/// The absence of the leader, beside a server that has older files.
const LEADER_KILLED_FOR: Duration = Duration::from_secs(3);

/// The watcher's words about a log that has lost records.
const IS_FOUND_OUT: &str = "acknowledged records of the log lost";

#[tokio::test(flavor = "multi_thread")]
async fn an_older_disk_of_one_nats_server_costs_no_decision() -> anyhow::Result<()> {
    let mut world = World::start_as(&plan()).await?;
    let outcome = Box::pin(one(&mut world)).await;
    world.with_logs(outcome)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn older_disks_of_two_nats_servers_make_no_decision_wrong() -> anyhow::Result<()> {
    let mut world = World::start_as(&plan()).await?;
    let outcome = Box::pin(two(&mut world)).await;
    world.with_logs(outcome)
}

fn plan() -> SystemPlan {
    SystemPlan {
        watchers: 2,
        ..SystemPlan::default()
    }
}

async fn one(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;
    let led = world.nats.leader().await?;
    let other = (led + 1) % world.nats.count();
    for number in [led, other] {
        keep_files(world, number).await?;
    }
    change(world, &target).await?;

    let mut faults = Faults::new(target, INGRESSES + CHANGED);
    faults
        .under_load(world, "one server with an older disk", async |world| {
            world.nats.kill_one(led)?;
            world.nats.put_files_back(led)?;
            world.nats.start_one(led).await
        })
        .await?;
    faults
        .under_load(
            world,
            "another one with an older disk, and the leader killed for 3 s",
            async |world| {
                world.nats.kill_one(other)?;
                world.nats.put_files_back(other)?;
                world.nats.start_one(other).await?;
                let leader = world.nats.leader().await?;
                world.nats.kill_one(leader)?;
                sleep(LEADER_KILLED_FOR).await;
                world.nats.start_one(leader).await
            },
        )
        .await?;
    changes_are_known(world).await?;
    ensure!(!is_found_out(world)?, "no acknowledged record was lost");
    Ok(())
}

async fn two(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;
    let older = [0, 1];
    for number in older {
        keep_files(world, number).await?;
    }
    change(world, &target).await?;

    let mut faults = Faults::new(target, INGRESSES + CHANGED);
    let what = "two servers with older disks, and the third with an empty one";
    faults
        .reported(world, what, async |world| {
            world.nats.kill()?;
            for number in older {
                world.nats.put_files_back(number)?;
                world.nats.start_one(number).await?;
            }
            // Something is written, whose position tells.
            one_more(world, MADE_MEANWHILE).await?;
            wait::until("the loss to be found out", async || {
                ensure!(is_found_out(world)?, "no watcher says so");
                anyhow::Ok(())
            })
            .await?;
            world.nats.lose_files(2)?;
            world.nats.start_one(2).await
        })
        .await?;
    changes_are_known(world).await
}

/// Keeps a copy of a server's files, as they are while the server is away for a moment.
async fn keep_files(world: &mut World, number: usize) -> anyhow::Result<()> {
    world.nats.kill_one(number)?;
    world.nats.keep_files(number)?;
    world.nats.start_one(number).await?;
    world.nats.healthy(number).await
}

/// Makes and deletes Ingresses. Returns once decisions know of all of them.
async fn change(world: &World, target: &Target) -> anyhow::Result<()> {
    for index in 0..CHANGED {
        let made = INGRESSES + index;
        world.create(&ingress(made, &host(made))).await?;
        world.delete(&ingress(index, &host(index))).await?;
    }
    let mut witness = Witness::new(target)?;
    for index in 0..CHANGED {
        witness.sees(&host(INGRESSES + index), true).await?;
        world.oracle.take(host(INGRESSES + index));
        witness.sees(&host(index), false).await?;
        world.oracle.free(host(index));
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}

async fn changes_are_known(world: &World) -> anyhow::Result<()> {
    for made in INGRESSES..INGRESSES + CHANGED {
        is_denied(world, &host(made)).await?;
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// Returns true if a watcher has found out that the log lost records.
fn is_found_out(world: &World) -> anyhow::Result<bool> {
    let log = |watcher: &Running| std::fs::read_to_string(watcher.process.log());
    let logs: Vec<_> = world.system.watchers().map(log).collect::<Result<_, _>>()?;
    Ok(logs.iter().any(|log| log.contains(IS_FOUND_OUT)))
}
