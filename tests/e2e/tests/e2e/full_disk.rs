//! Decisions go on while disks of NATS servers have no room: that of the log's leader, then those of all three.
//!
//! A server that cannot write ends its part in the log, and takes it up again when it is restarted.

use std::time::Duration;

use anteroom_e2e::{
    check::is_denied,
    disk::Disk,
    nats::NatsPlan,
    skip::{Lack, skip},
    system::SystemPlan,
    views,
    world::{World, host, ingress},
};
use tokio::time::sleep;

use crate::load::{Faults, decides_by_hosts};

const INGRESSES: usize = 300;

/// The number of the Ingress that is made while the leader's disk is full.
const MADE_MEANWHILE: usize = 10_000;

/// The room on each server's disk: several times what the log takes here.
const DISK_BYTES: u64 = 256 << 20;

/// The time for which no server can write: shorter than facts may be old.
const ALL_FULL_FOR: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn full_disks_of_nats_servers_cost_no_decision() -> anyhow::Result<()> {
    if let Some(lack) = Disk::lack() {
        return skip(Lack::Right, &format!("no disk of one's own here: {lack}"));
    }
    let plan = SystemPlan {
        nats: NatsPlan {
            disk_bytes: Some(DISK_BYTES),
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
    let mut faults = Faults::new(target, INGRESSES);

    let leader = world.nats.leader().await?;
    faults
        .under_load(world, "the leader's disk full", async |world| {
            world.nats.disk(leader)?.fill()?;
            let new = host(MADE_MEANWHILE);
            world.create(&ingress(MADE_MEANWHILE, &new)).await?;
            is_denied(world, &new).await?;
            make_room(world, leader).await
        })
        .await?;
    faults
        .under_load(world, "all disks full for 10 s", async |world| {
            for number in 0..world.nats.count() {
                world.nats.disk(number)?.fill()?;
            }
            sleep(ALL_FULL_FOR).await;
            for number in 0..world.nats.count() {
                make_room(world, number).await?;
            }
            Ok(())
        })
        .await?;
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// Frees a server's disk, and restarts the server.
async fn make_room(world: &mut World, number: usize) -> anyhow::Result<()> {
    world.nats.disk(number)?.free()?;
    world.nats.kill_one(number)?;
    world.nats.start_one(number).await
}
