//! A definition that goes from `v1alpha1` to `v1`.

use anteroom_e2e::{
    check::condition,
    guard::{Asker, Decided, guard},
    manifests, wait,
    world::World,
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::tell;

pub(crate) const GROUP: &str = "days.example.com";
pub(crate) const PLURAL: &str = "widgets";

/// An expression of the version that each object is read in, and its name.
const READ: &str = "items[].join(':', [apiVersion, metadata.name]) | join(' ', @)";

/// Returns a definition with these versions, each served or not; `stored` is the storage version.
fn definition(versions: &[(&str, bool)], stored: &str) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, served)| {
            json!({ "name": name, "served": served, "storage": *name == stored, "schema": {
                "openAPIV3Schema": { "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true } } })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{PLURAL}.{GROUP}") },
        "spec": { "group": GROUP, "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": PLURAL, "singular": "widget" },
            "versions": versions },
    })
}

fn widget(version: &str, name: &str) -> Value {
    json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": "Widget",
        "metadata": { "namespace": "default", "name": name } })
}

fn entry(name: &str, version: Option<&str>) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": name },
        "spec": { "resource": { "group": GROUP, "version": version, "kind": PLURAL } } })
}

/// Returns a policy whose message shows the value that it reads.
fn policy(name: &str, source: (&str, Value)) -> Value {
    let mut context = json!({ "name": "value" });
    context[source.0] = source.1;
    let condition = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    guard(name, &context, "read={{ value }};", &condition)
}

fn by_entry(name: &str) -> Value {
    policy(
        name,
        (
            "cachedContextEntry",
            json!({ "name": name, "jmesPath": READ }),
        ),
    )
}

fn called(name: &str, version: &str) -> Value {
    let path = format!("/apis/{GROUP}/{version}/{PLURAL}");
    policy(
        name,
        ("apiCall", json!({ "urlPath": path, "jmesPath": READ })),
    )
}

/// An entry without a version follows the preferred one, one with a version stays with it as
/// long as it is served and says so when it is not, and what policies call is what is served.
pub(crate) async fn change_versions(world: &World) -> anyhow::Result<()> {
    let asker = Asker::new(world).await?;
    let (preferred, old) = (entry("preferred", None), entry("old", Some("v1alpha1")));
    let apply = async |versions: &[(&str, bool)], stored: &str| {
        let definition = definition(versions, stored);
        manifests::apply(&world.client, &definition).await
    };
    let created = async |object: Value| {
        let what = format!("{object} to be created");
        wait::until(&what, async || world.create(&object).await).await
    };
    for manifest in [
        preferred.clone(),
        old.clone(),
        by_entry("preferred"),
        by_entry("old"),
        called("called-old", "v1alpha1"),
        called("called", "v1"),
    ] {
        world.create(&manifest).await?;
    }
    condition(world, &preferred, "False", "widgets").await?;
    apply(&[("v1alpha1", true)], "v1alpha1").await?;
    created(widget("v1alpha1", "one")).await?;
    let old_one = format!("read={GROUP}/v1alpha1:one;");
    for name in ["preferred", "old", "called-old"] {
        asker.refused(name, &old_one).await?;
    }

    // From here on the widgets are there, in whatever version.
    let stop = CancellationToken::new();
    let watched = watch(&asker, &stop);
    let story = async {
        apply(&[("v1alpha1", true), ("v1", true)], "v1alpha1").await?;
        let new_one = format!("read={GROUP}/v1:one;");
        for name in ["preferred", "called"] {
            asker.refused(name, &new_one).await?;
        }
        asker.refused("old", &old_one).await?;
        apply(&[("v1alpha1", true), ("v1", true)], "v1").await?;
        created(widget("v1", "two")).await?;
        let both = |version: &str| format!("read={GROUP}/{version}:one {GROUP}/{version}:two;");
        asker.refused("preferred", &both("v1")).await?;
        asker.refused("old", &both("v1alpha1")).await?;

        tell("v1alpha1 is served no more");
        apply(&[("v1alpha1", false), ("v1", true)], "v1").await?;
        condition(world, &old, "False", "v1alpha1").await?;
        asker.refused("old", "AR1").await?;
        asker.refused("called-old", "AR1").await?;
        for name in ["preferred", "called"] {
            asker.refused(name, &both("v1")).await?;
        }
        condition(world, &preferred, "True", "").await?;
        apply(&[("v1alpha1", true), ("v1", true)], "v1").await?;
        condition(world, &old, "True", "").await?;
        for name in ["old", "called-old"] {
            asker.refused(name, &both("v1alpha1")).await?;
        }
        stop.cancel();
        anyhow::Ok(())
    };
    let (errors, ()) = tokio::try_join!(watched, story)?;
    tell(&format!("preferred: {errors:#?}"));
    world.delete(&definition(&[], "")).await?;
    condition(world, &preferred, "False", "").await?;
    asker.refused("preferred", "AR1").await.map(drop)
}

/// Asks all the while for what is always there: a decision tells of the first widget, or has a code.
/// Returns the errors.
async fn watch(asker: &Asker, stop: &CancellationToken) -> anyhow::Result<Vec<String>> {
    let mut errors = Vec::new();
    while !stop.is_cancelled() {
        let Decided {
            allowed, message, ..
        } = asker.ask("preferred").await?;
        ensure!(!allowed, "admitted: {message}");
        match message.split_once("read=") {
            Some((_, read)) => ensure!(read.contains(":one"), "{message}"),
            None => {
                let (_, error) = message.split_once("AR1").context(message.clone())?;
                errors.push(error.to_owned());
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Ok(errors)
}
