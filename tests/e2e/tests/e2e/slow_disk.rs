//! Decisions go on while each write to the disks of all NATS servers takes long, and changes are known a little later. The
//! disks are slow from the start: see [`anteroom_e2e::slow_disk`].

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::time::{Duration, Instant};

use anteroom_e2e::{nats::NatsPlan, slow_disk::SlowDisk, system::SystemPlan, views, world::World};
use tokio::time::sleep;

use crate::load::{Faults, decides_by_hosts, one_more};

const INGRESSES: usize = 300;

/// The number of the first Ingress that is made meanwhile.
const MADE_MEANWHILE: usize = 10_000;

/// The time that each write takes more: that of a disk whose queue is never empty.
const WRITE_DELAY: Duration = Duration::from_millis(50);

/// The time for which Ingresses are made in sequence.
const CHANGED_FOR: Duration = Duration::from_secs(5);

/// The absence of the leader.
const LEADER_KILLED_FOR: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn slow_disks_of_nats_servers_cost_no_decision() -> anyhow::Result<()> {
    if SlowDisk::find(WRITE_DELAY)?.is_none() {
        return Ok(());
    }
    let plan = SystemPlan {
        nats: NatsPlan {
            write_delay: Some(WRITE_DELAY),
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
    let what = format!("each write takes {} ms more", WRITE_DELAY.as_millis());
    faults
        .under_load(world, &what, async |world| make(world).await)
        .await?;
    let what = "the same, and the leader's server killed for 3 s";
    faults
        .under_load(world, what, async |world| {
            let leader = world.nats.leader().await?;
            world.nats.kill_one(leader)?;
            sleep(LEADER_KILLED_FOR).await;
            world.nats.start_one(leader).await
        })
        .await?;
    views::equal_the_api_server(world).await?;
    Ok(())
}

/// Makes Ingresses, each once decisions know the one before.
async fn make(world: &World) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut made, mut slowest) = (0, Duration::ZERO);
    while begun.elapsed() < CHANGED_FOR {
        let asked = Instant::now();
        one_more(world, MADE_MEANWHILE + made).await?;
        slowest = slowest.max(asked.elapsed());
        made += 1;
    }
    println!(
        "{made} Ingresses made, each known after {} ms at most",
        slowest.as_millis()
    );
    Ok(())
}
