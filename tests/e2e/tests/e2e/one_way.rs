//! One direction of a way is cut, and nobody is told: see [`anteroom_e2e::network`].

use std::time::Duration;

use anteroom_e2e::{
    network::{Direction, Network},
    system::SystemPlan,
    views,
    world::World,
};
use anyhow::Context;
use tokio::time::sleep;

use crate::load::{Faults, decides_by_hosts};

const INGRESSES: usize = 300;

/// The time for which a direction is cut: longer than requests wait.
const CUT_FOR: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn a_way_that_is_cut_in_one_direction_makes_no_decision_wrong() -> anyhow::Result<()> {
    let name = "one_way::a_way_that_is_cut_in_one_direction_makes_no_decision_wrong";
    let Some(network) = Network::own(name).await? else {
        return Ok(());
    };
    let plan = SystemPlan {
        watchers: 2,
        proxied: true,
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world, &network)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, network: &Network) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    world.nats.all_healthy().await?;
    let mut faults = Faults::new(target, INGRESSES);
    for direction in [Direction::ToServer, Direction::FromServer] {
        let of_webhook = world.nats.server_of("anteroom-webhook").await?;
        let server = world.nats.address(of_webhook);
        let what = format!("the webhook's NATS server, cut {direction:?}");
        faults
            .under_load(world, &what, async |_| {
                network.cut(server, direction)?;
                sleep(CUT_FOR).await;
                network.mend(server, direction)
            })
            .await?;
        let api_server = world.proxy.as_ref().context("a proxy")?.address();
        let what = format!("the API server, cut {direction:?} from the watchers");
        faults
            .under_load(world, &what, async |_| {
                network.cut(api_server, direction)?;
                sleep(CUT_FOR).await;
                network.mend(api_server, direction)
            })
            .await?;
    }
    views::equal_the_api_server(world).await?;
    Ok(())
}
