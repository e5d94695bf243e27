//! Two API servers behind one address, of which one is behind the other now and then.
//!
//! Held: decisions stay right and are given all the while, and no view goes back.

use std::time::Duration;

use anteroom_e2e::{
    manifests, steady,
    stock::{Histories, STOCK},
    system::SystemPlan,
    views,
    wait::setting,
    world::World,
};
use anyhow::{Context, ensure};
use tokio_util::sync::CancellationToken;

const SECONDS_DEFAULT: u64 = 20;

/// The time for which the second one is cut off from etcd, and then for which it is not.
const BEHIND_FOR_S: u64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_behind_another_makes_no_decision_wrong() -> anyhow::Result<()> {
    let seconds = setting("ANTEROOM_API_SERVERS_SECONDS", SECONDS_DEFAULT)?;
    let plan = SystemPlan {
        proxied: true,
        second_api_server: true,
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world, seconds)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, seconds: u64) -> anyhow::Result<()> {
    manifests::apply(&world.client, &manifests::watcher_may_read(&[])).await?;
    let histories = Histories::begin(world, &STOCK).await?;
    world.system.ready().await?;
    let asker = steady::begin(world).await?;

    let (quiet, stop) = (CancellationToken::new(), CancellationToken::new());
    let changes = histories.change(world, &[steady::OF], 1, &quiet);
    let asking = steady::ask(&histories, &asker, &stop);
    let proxy = world.proxy.as_ref().context("a proxy")?;
    let faults = async {
        for second in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let is_behind = (second / BEHIND_FOR_S).is_multiple_of(2);
            world.cluster.cut_off_second(is_behind);
            // New connections lead to the second API server.
            proxy.cut();
        }
        world.cluster.cut_off_second(false);
        quiet.cancel();
        anyhow::Ok(())
    };
    let survey = async {
        tokio::try_join!(faults, changes)?;
        views::equal_the_api_server(world).await?;
        stop.cancel();
        anyhow::Ok(())
    };
    let (asked, ()) = tokio::try_join!(asking, survey)?;
    let watches = world.cluster.asked_of_second()?;
    let of = |verb: &str| watches.iter().filter(|asked| asked.verb == verb).count();
    tell(&format!(
        "{asked} decisions; the second API server was asked for {} watches and {} lists",
        of("watch"),
        of("list")
    ));
    ensure!(of("watch") > 0, "nobody watched the second one");
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

#[expect(clippy::print_stdout, reason = "figures are for people")]
fn tell(text: &str) {
    println!("{text}");
}
