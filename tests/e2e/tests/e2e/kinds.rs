//! Definitions that change their versions, an API group whose server is down, and a namespace that is
//! deleted, on real parts, while an entry that has nothing to do with them is asked for all the time.
//!
//! Held: that entry is never without a right decision; what is concerned tells what is so,
//! or why it cannot, and comes back by itself.

mod definitions;
mod groups;
mod namespaces;

use anteroom_e2e::{
    manifests, steady,
    stock::{Histories, STOCK},
    system::SystemPlan,
    world::World,
};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn versions_groups_and_namespaces_go_and_come_and_concern_nobody_else() -> anyhow::Result<()>
{
    let mut world = World::start_as(&SystemPlan::default()).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    let more = [
        (definitions::GROUP, definitions::PLURAL),
        (
            anteroom_e2e::aggregated::GROUP,
            anteroom_e2e::aggregated::PLURAL,
        ),
    ];
    manifests::apply(&world.client, &manifests::watcher_may_read(&more)).await?;
    let histories = Histories::begin(world, &STOCK).await?;
    world.system.ready().await?;
    let asker = steady::begin(world).await?;
    let (quiet, stop) = (CancellationToken::new(), CancellationToken::new());
    let changes = histories.change(world, &[steady::OF], 1, &quiet);
    let asking = steady::ask(&histories, &asker, &stop);
    let story = async {
        definitions::change_versions(world).await?;
        groups::go_down_and_up(world).await?;
        namespaces::are_deleted(world).await?;
        quiet.cancel();
        stop.cancel();
        anyhow::Ok(())
    };
    let ((), asked, ()) = tokio::try_join!(changes, asking, story)?;
    tell(&format!("{asked} decisions meanwhile"));
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    for running in world.system.replicas.iter_mut().flatten() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

/// Seen with `--nocapture`, and when the story ends badly.
#[expect(
    clippy::print_stdout,
    reason = "the story, for whoever reads a test's output"
)]
fn tell(text: &str) {
    println!("{text}");
}
