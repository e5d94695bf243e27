//! A watcher whose way to the API server is cut every second, and then goes silent, on real parts.
//!
//! Held: decisions stay right and are given all the while; what changed meanwhile is
//! known soon after; the API server is asked for changes, not for everything again.

use std::time::Duration;

use anteroom_e2e::{
    audit::Asked,
    manifests, steady,
    stock::{Histories, NAMESPACES, STOCK},
    system::SystemPlan,
    views,
    wait::setting,
    world::World,
};
use anyhow::{Context, ensure};
use tokio_util::sync::CancellationToken;

const SECONDS_DEFAULT: u64 = 15;

/// The time in which nothing comes through, and a watch has to be found dead: 20 s is the least that
/// `--stale-after` can be, and a watch lives for half of it at most.
const SILENT: Duration = Duration::from_secs(12);

const STALE_AFTER: &str = "20s";

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_cut_every_second_or_goes_silent_costs_no_decision() -> anyhow::Result<()> {
    let seconds = setting("ANTEROOM_CUTS_SECONDS", SECONDS_DEFAULT)?;
    let plan = SystemPlan {
        watcher_args: vec![("--stale-after", STALE_AFTER.into())],
        proxied: true,
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
    let before = (lists(world)?, watches(world)?);

    let (quiet, stop) = (CancellationToken::new(), CancellationToken::new());
    let changes = histories.change(world, &[steady::OF], 1, &quiet);
    let asking = steady::ask(&histories, &asker, &stop);
    let proxy = world.proxy.as_ref().context("a proxy")?;
    let cuts = async {
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            proxy.cut();
        }
        quiet.cancel();
        anyhow::Ok(())
    };
    let survey = async {
        tokio::try_join!(cuts, changes)?;
        views::equal_the_api_server(world).await?;
        stop.cancel();
        anyhow::Ok(())
    };
    let (asked, ()) = tokio::try_join!(asking, survey)?;
    let (lists, watches) = (lists(world)? - before.0, watches(world)? - before.1);
    tell(&format!(
        "{asked} decisions, {lists} lists and {watches} watches while cut"
    ));
    ensure!(
        watches * 3 >= seconds as usize,
        "{watches} watches: it was not cut"
    );
    // A list now and then may be one that was cut itself.
    ensure!(
        lists * 3 <= seconds as usize,
        "{lists} lists in {seconds} s"
    );

    // Nothing changes while nothing comes through: what is known stays right.
    let stop = CancellationToken::new();
    let asking = steady::ask(&histories, &asker, &stop);
    let silence = async {
        proxy.silence(true);
        tokio::time::sleep(SILENT).await;
        proxy.cut();
        proxy.silence(false);
        stop.cancel();
        anyhow::Ok(())
    };
    tokio::try_join!(asking, silence)?;
    for namespace in NAMESPACES {
        histories.grow(world, steady::OF, namespace).await?;
    }
    views::equal_the_api_server(world).await?;
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

/// Counts the lists of the type.
fn lists(world: &World) -> anyhow::Result<usize> {
    let asked = world.cluster.asked()?;
    let whole = |asked: &&Asked| {
        let of = asked.verb == "list" && asked.resource == steady::OF.resource();
        // One object is asked for only to learn how far the history reaches.
        of && asked.ended && !asked.uri.contains("limit=1&") && !asked.uri.ends_with("limit=1")
    };
    Ok(asked.iter().filter(whole).count())
}

/// Counts the watches of the type that were opened.
fn watches(world: &World) -> anyhow::Result<usize> {
    let asked = world.cluster.asked()?;
    let of = asked
        .iter()
        .filter(|asked| asked.verb == "watch" && !asked.ended);
    Ok(of
        .filter(|asked| asked.resource == steady::OF.resource())
        .count())
}

/// Seen with `--nocapture`, and when the story ends badly.
#[expect(
    clippy::print_stdout,
    reason = "the story, for whoever reads a test's output"
)]
fn tell(text: &str) {
    println!("{text}");
}
