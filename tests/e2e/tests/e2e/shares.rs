//! Views divided among replicas, on real parts: each is served by as many as were asked for, and goes
//! on being when one dies; what nobody serves is an error that says so; ready means ready.

use anteroom_e2e::{
    check::condition,
    guard::{Asker, guard},
    services::Recipe,
    system::SystemPlan,
    wait,
    world::World,
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// Plurals, each a view.
const TYPES: [(&str, &str); 6] = [
    ("", "namespaces"),
    ("", "services"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("networking.k8s.io", "ingresses"),
    ("policy", "poddisruptionbudgets"),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_replica_holds_its_share_of_the_views() -> anyhow::Result<()> {
    let plan = SystemPlan {
        replicas: 3,
        replica_args: vec![("--replication-factor", "2".to_owned())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    world.fill(5, 5).await?;
    for (group, plural) in TYPES {
        world.create(&entry(group, plural)).await?;
        world.create(&reading(plural)).await?;
    }
    world.system.ready().await?;
    for (group, plural) in TYPES {
        condition(&world, &entry(group, plural), "True", "").await?;
    }
    let asker = Asker::new(&world).await?;
    all_are_served(&asker).await?;
    a_replica_dies(&mut world, &asker).await?;
    a_webhook_waits_for_its_views(&mut world).await?;
    nobody_for_a_view(&mut world).await
}

fn entry(group: &str, plural: &str) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": plural },
        "spec": { "resource": { "group": group, "version": "v1", "kind": plural } } })
}

/// Refused whatever the entry holds, but only by an answer.
fn reading(plural: &str) -> Value {
    let context = json!({ "name": "count", "cachedContextEntry": {
        "name": plural, "jmesPath": "length(items)" } });
    let condition = json!({ "key": "{{ count }}", "operator": "GreaterThanOrEquals", "value": 0 });
    guard(plural, &context, "there are {{ count }}", &condition)
}

/// Every view is served by the replicas that hold it.
async fn all_are_served(asker: &Asker) -> anyhow::Result<()> {
    for (_, plural) in TYPES {
        let decided = asker.refused(plural, "there are").await?;
        ensure!(decided.fact()["from"] == "view", "{decided:?}");
    }
    Ok(())
}

/// One of three dies, and every view is still served; then by two again.
async fn a_replica_dies(world: &mut World, asker: &Asker) -> anyhow::Result<()> {
    let mut killed = world.system.replicas[1].take().context("replica 1 runs")?;
    killed.process.kill()?;
    for (_, plural) in TYPES {
        // The first answer, not the first good one: the other holder was there all the time.
        let decided = asker.ask(plural).await?;
        let served = decided.message.contains("there are");
        ensure!(served, "{plural}: {decided:?}");
    }
    // Two are left, so each of them takes all.
    for replica in world.system.replicas.iter().flatten() {
        wait::until("each of two replicas to serve every view", async || {
            for (_, plural) in TYPES {
                let view = format!("view=\"{plural}.");
                let objects = replica.get("/metrics").await?;
                ensure!(objects.contains(&view), "{plural} is not held");
            }
            anyhow::Ok(())
        })
        .await?;
    }
    all_are_served(asker).await
}

/// A webhook that starts is not ready while no replica has the views that it needs, says
/// which, and is once one has.
async fn a_webhook_waits_for_its_views(world: &mut World) -> anyhow::Result<()> {
    let mut recipes = Vec::new();
    for running in &mut world.system.replicas {
        let Some(mut running) = running.take() else {
            continue;
        };
        recipes.push(running.recipe().clone());
        running.process.kill()?;
    }
    let recipe = world.system.webhook.recipe().clone();
    world.system.webhook.process.signal("TERM")?;
    wait::until("the webhook to end", async || {
        match world.system.webhook.process.check() {
            Ok(()) => Err("it runs"),
            Err(_) => Ok(()),
        }
    })
    .await?;
    world.system.webhook = recipe.start()?;
    let webhook = &world.system.webhook;
    wait::until("the webhook to name what is missing", async || {
        let Err(says) = webhook.get("/readyz?verbose").await else {
            anyhow::bail!("it is ready without a replica");
        };
        let says = says.to_string();
        ensure!(says.contains("ingresses") && says.contains("503"), "{says}");
        Ok(())
    })
    .await?;
    for (at, recipe) in recipes.into_iter().enumerate() {
        world.system.replicas[at] = Some(recipe.start()?);
    }
    world.system.ready().await?;
    // Ready means ready: the first decision is one.
    let asker = Asker::new(world).await?;
    for (_, plural) in TYPES {
        let decided = asker.ask(plural).await?;
        let served = decided.message.contains("there are");
        ensure!(served, "{plural}: {decided:?}");
    }
    Ok(())
}

/// A view that no replica was told to hold is an error that says so, and others are not
/// touched.
async fn nobody_for_a_view(world: &mut World) -> anyhow::Result<()> {
    for running in world.system.replicas.iter_mut().filter_map(Option::take) {
        running.process.terminate().await?;
    }
    let replica = Recipe::new("replica-views", "replica", world.folder.path())?
        .envs(world.nats.logins().env("replica"))
        .arg("--replica-id", "replica-views")
        .arg("--views", "services,namespaces");
    world.system.replicas[0] = Some(replica.start()?);
    let asker = Asker::new(world).await?;
    let decided = asker.refused("ingresses", "AR106").await?;
    ensure!(decided.fact()["error"] == "AR106", "{decided:?}");
    for plural in ["services", "namespaces"] {
        asker.refused(plural, "there are").await?;
    }
    // The webhook still decides by policies that need no view.
    wait::until("the webhook to say that nobody has the view", async || {
        let readiness = world.system.webhook.get("/readyz?verbose").await?;
        ensure!(readiness.contains("no replica holds it"), "{readiness}");
        Ok(())
    })
    .await
}
