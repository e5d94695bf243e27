//! Any number of watchers divide the groups of views among themselves.

use std::{collections::BTreeMap, sync::Arc};

use crate::support::{CLUSTER_POLICIES, INGRESS_VIEW, INGRESSES, PATIENCE, World};
use anteroom_bus::BusExt as _;
use anteroom_model::{Group, ViewState};
use anteroom_simapi::Fault;
use anteroom_wire::beat::Beat;
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

const RESOURCES: [&str; 6] = [
    "configmaps",
    "services",
    "pods",
    "nodes",
    "namespaces",
    "serviceaccounts",
];

/// The leader of each group, by its heartbeats.
struct Leaders {
    heard: watch::Receiver<BTreeMap<Group, String>>,
    _listener: JoinHandle<()>,
}

impl Leaders {
    async fn of(world: &World) -> Self {
        let bus = Arc::new(world.bus.join());
        let mut beats = bus.signals::<Beat>().await.unwrap();
        let (sender, heard) = watch::channel(BTreeMap::new());
        let listener = tokio::spawn(async move {
            let _open = bus;
            while let Some(beat) = beats.next().await {
                if beat.group != Group::NONE {
                    sender.send_modify(|leaders| {
                        leaders.insert(beat.group, beat.holder);
                    });
                }
            }
        });
        Self {
            heard,
            _listener: listener,
        }
    }

    fn led_by(&self, holder: &str) -> usize {
        let heard = self.heard.borrow();
        heard.values().filter(|leader| *leader == holder).count()
    }

    async fn until(&mut self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let waited = timeout(PATIENCE, async {
            while !wanted(self) {
                self.heard.changed().await.unwrap();
            }
        });
        let reached = waited.await.is_ok();
        assert!(reached, "in vain for {what}: {:?}", self.heard.borrow());
    }
}

async fn world_with_entries() -> World {
    let world = World::start().await;
    world.ingress_entry("hosts");
    for resource in RESOURCES {
        world.entry(resource, json!({"resource": {"kind": resource}}));
    }
    world
}

fn is_live(log: &crate::support::Log) -> bool {
    let views = RESOURCES.iter().map(|resource| format!("{resource}.v1"));
    log.is_synced(INGRESS_VIEW) && views.into_iter().all(|view| log.is_synced(&view))
}

#[tokio::test]
async fn two_watchers_share_the_groups_and_a_takeover_publishes_only_differences() {
    let all = Group::all().count();
    let world = world_with_entries().await;
    let mut leaders = Leaders::of(&world).await;
    let a = world.watch_as("a");
    world.until("every view", is_live).await;
    leaders
        .until("the first to lead all", |l| l.led_by("a") == all)
        .await;

    // Each leads some, and a hand-over loses nothing of what changes meanwhile.
    let b = world.watch_as("b");
    let mut written = 0;
    while leaders.led_by("a").min(leaders.led_by("b")) < all / 2 {
        world.ingress(&format!("i{written}"), "x");
        let config_map =
            json!({"metadata": {"name": format!("c{written}"), "namespace": "default"}});
        world.sim.put("configmaps", config_map).unwrap();
        written += 1;
        let heard = timeout(PATIENCE, leaders.heard.changed()).await;
        assert!(heard.is_ok(), "nobody leads");
    }
    let has_all = |log: &crate::support::Log| {
        is_live(log)
            && log.names(INGRESS_VIEW).len() == written
            && (0..written).all(|n| {
                let name = format!("default/c{n}");
                log.object("configmaps.v1", &name).is_some()
            })
    };
    let before = world.until("all that was written", has_all).await;
    a.until_ready().await;
    b.until_ready().await;

    // Killed: nobody hands anything over.
    a.kill().await;
    leaders
        .until("the other to lead all", |l| l.led_by("b") == all)
        .await;
    let taken_over = |log: &crate::support::Log| {
        let later = |view: &str| log.views[view].epoch > before.views[view].epoch;
        let wanted = "anteroom:wanted";
        is_live(log)
            && log.is_synced(wanted)
            && before.views.keys().filter(|v| later(v)).count() > 0
    };
    let after = world.until("every view again", taken_over).await;
    b.until_ready().await;
    for (view, record) in &before.views {
        assert_eq!(after.written(view), before.written(view), "{view}");
        if record.state == ViewState::Synced {
            let settled = |log: &crate::support::Log| {
                let now = &log.views[view];
                now.state == ViewState::Synced
                    && (now.objects, &now.digest) == (log.names(view).len() as u64, &record.digest)
            };
            world.until("equal digests", settled).await;
        }
    }
    b.stop().await;
}

#[tokio::test]
async fn a_watcher_that_stops_hands_every_group_over() {
    let all = Group::all().count();
    let world = world_with_entries().await;
    let mut leaders = Leaders::of(&world).await;
    let a = world.watch_as("a");
    world.until("every view", is_live).await;
    let b = world.watch_as("b");
    b.until_ready().await;
    a.stop().await;
    world.ingress("late", "x");
    leaders
        .until("the other to lead all", |l| l.led_by("b") == all)
        .await;
    world
        .until("what came late", |log| {
            log.names(INGRESS_VIEW) == ["default/late"]
        })
        .await;
    b.stop().await;
}

#[tokio::test]
async fn an_unchanged_api_call_is_a_view_that_goes_with_its_policy() {
    let world = World::start().await;
    world.ingress("a", "x");
    let call = json!({
        "name": "hosts",
        "apiCall": {
            "urlPath": "/apis/networking.k8s.io/v1/ingresses",
            "jmesPath": "items[].spec.rules[].host",
        },
    });
    let policy = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "unique-host"},
        "spec": {"rules": [{
            "name": "unique-host",
            "match": {"any": [{"resources": {"kinds": ["Ingress"]}}]},
            "context": [call],
            "validate": {"message": "taken", "deny": {"conditions": {"any": [{
                "key": "{{ request.object.spec.rules[].host }}", "operator": "AnyIn", "value": "{{ hosts }}"}]}}},
        }]},
    });
    world.sim.put(CLUSTER_POLICIES, policy).unwrap();
    let watcher = world.watch_as("w");
    world
        .until("the view", |log| {
            let entries = log.names("anteroom:entries");
            log.is_synced(INGRESS_VIEW) && entries.iter().any(|e| e.starts_with("references/"))
        })
        .await;
    world
        .sim
        .delete(CLUSTER_POLICIES, "", "unique-host")
        .unwrap();
    world
        .until("it to be freed", |log| {
            log.state(INGRESS_VIEW) == Some(&ViewState::Dropped)
                && log.names("anteroom:entries").is_empty()
                && log.names("anteroom:wanted").is_empty()
        })
        .await;
    world
        .until_asked("the watch to end", |stats| stats.watches_on(INGRESSES) == 0)
        .await;
    watcher.stop().await;
}

#[tokio::test]
async fn secrets_are_wanted_only_for_those_that_were_allowed_to() {
    let world = World::start().await;
    world.entry("secrets", json!({"resource": {"kind": "secrets"}}));
    let watcher = world.watch_as("w");
    world
        .until_ready(
            crate::support::ENTRIES,
            "secrets",
            "False",
            "SecretsForbidden",
        )
        .await;
    assert!(world.log().names("anteroom:wanted").is_empty());
    watcher.stop().await;
}

/// A policy that reads this.
fn reading(name: &str, context: serde_json::Value) -> serde_json::Value {
    let mut context = context;
    context["name"] = "v".into();
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Ingress"]}}]},
            "context": [context],
            "validate": {"message": "taken", "deny": {"conditions": {"any": [{
                "key": "{{ length(v) }}", "operator": "Equals", "value": 0}]}}},
        }]},
    })
}

/// Next to a policy that was allowed to read Secrets, another one reads none of them.
#[tokio::test]
async fn secrets_that_one_policy_may_read_are_published_for_no_other() {
    let world = World::start().await;
    let secrets = json!({"resourceCache": {"group": "", "version": "v1", "kind": "secrets"}});
    for name in ["allowed", "attacker"] {
        let policy = reading(name, secrets.clone());
        world.sim.put(CLUSTER_POLICIES, policy).unwrap();
    }
    let args = anteroom_watcher::Args {
        allow_secrets: vec!["clusterpolicy/allowed".parse().unwrap()],
        ..anteroom_watcher::Args::default()
    };
    let watcher = world.watch_with("w", Arc::new(world.bus.join()), args);
    let log = world
        .until("both references", |log| {
            log.names("anteroom:entries").len() == 2
        })
        .await;
    for (name, state) in [("allowed", "bound"), ("attacker", "invalid")] {
        let of = |key: &&str| key.ends_with(&format!(" for /{name}"));
        let key = log.names("anteroom:entries").into_iter().find(of).unwrap();
        let record = log.object("anteroom:entries", key).unwrap();
        assert_eq!(record["state"]["type"], state, "{record}");
        if state == "invalid" {
            let said = record["state"]["failure"]["message"].as_str().unwrap();
            assert!(said.contains("AR115"), "{said}");
        }
    }
    world
        .until_ready(CLUSTER_POLICIES, "attacker", "False", "SecretsForbidden")
        .await;
    watcher.stop().await;
}

/// `off` keeps no call, whatever it declares, and says so; an inline entry is no call.
#[tokio::test]
async fn calls_that_are_off_are_not_kept_and_inline_entries_are() {
    let world = World::start().await;
    let call = json!({"apiCall": {
        "urlPath": "/apis/networking.k8s.io/v1/ingresses", "cache": true,
    }});
    world
        .sim
        .put(CLUSTER_POLICIES, reading("call", call))
        .unwrap();
    let args = anteroom_watcher::Args {
        cache_api_calls: anteroom_watcher::CacheApiCalls::Off,
        ..anteroom_watcher::Args::default()
    };
    let watcher = world.watch_with("w", Arc::new(world.bus.join()), args);
    let _enforcing = world.enforcing(&[]);
    world
        .until_ready(CLUSTER_POLICIES, "call", "True", "Succeeded")
        .await;
    let log = world
        .until("the word for readers", |log| {
            log.names("anteroom:entries") == ["references/calls"]
        })
        .await;
    assert!(log.names("anteroom:wanted").is_empty());
    let inline = json!({"resourceCache": {
        "group": "networking.k8s.io", "version": "v1", "kind": "ingresses",
    }});
    world
        .sim
        .put(CLUSTER_POLICIES, reading("inline", inline))
        .unwrap();
    world
        .until("the inline entry's view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    watcher.stop().await;
}

/// The view is forbidden already for those that go on asking.
#[tokio::test]
async fn an_entry_that_stops_is_released_from_a_view_that_is_forbidden_already() {
    let world = World::start().await;
    world.ingress_entry("retries");
    let resource = INGRESSES.into();
    world.sim.fault(Fault::Forbid { resource }).unwrap();
    let watcher = world.watch_as("w");
    world
        .until_ready(crate::support::ENTRIES, "retries", "False", "Forbidden")
        .await;
    let resource = json!({"kind": "ingresses", "group": "networking.k8s.io"});
    world.entry(
        "stops",
        json!({"resource": resource, "onForbidden": "Stop"}),
    );
    world
        .until("its release", |log| {
            let state = log
                .entry("stops")
                .map(|entry| entry["state"]["type"].clone());
            state == Some(json!("invalid"))
        })
        .await;
    watcher.stop().await;
}
