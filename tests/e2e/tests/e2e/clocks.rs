//! The wall clocks of all services jump, while the API server's and the clients' go on. No decision is lost or wrong.

use std::time::Duration;

use anteroom_e2e::{clock::Clock, system::SystemPlan, views, world::World};
use tokio::time::sleep;

use crate::load::{Faults, decides_by_hosts};

const INGRESSES: usize = 300;

/// The jumps, from the right time: over the hour of a path's token, and within the day for which the certificates of
/// NATS are made here.
const OFFSETS: [&str; 4] = ["+3h", "-5h", "+20h", "+0"];

/// The time for which each is kept: longer than until webhooks look at their configurations again, which is 30 s.
const KEPT_FOR: Duration = Duration::from_secs(35);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: CI leaves it out"]
async fn clocks_that_jump_cost_no_decision() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(clock) = Clock::new(folder.path())? else {
        return Ok(());
    };
    let plan = SystemPlan {
        env: clock.env(),
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world, &clock)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, clock: &Clock) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    let mut faults = Faults::new(target, INGRESSES);
    for offset in OFFSETS {
        let what = format!("clocks set to {offset}");
        faults
            .under_load(world, &what, async |_| {
                clock.set(offset)?;
                sleep(KEPT_FOR).await;
                Ok(())
            })
            .await?;
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}
