//! Actions of other programs on reports, on the Lease and at admission, and triggers for existing
//! objects.

use anteroom_bus::BusExt as _;
use std::time::Duration;

use anteroom_simapi::{Fault, Matching};
use anteroom_wire::violation::{ViolatedRule, Violation};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::world::{CONFIG_MAPS, PATIENCE, POLICIES, REPORTS, World, args, filters, policy};

const EVENTS: &str = "events.events.k8s.io";

const LEASES: &str = "leases.coordination.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_somebody_else_is_left_alone_and_holds_up_no_other() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    world.put("one", "a");
    world.put("two", "b");
    let uid = world.uid(CONFIG_MAPS, "one");
    let foreign = json!({
        "metadata": {"name": uid, "namespace": "default", "labels": {"app.kubernetes.io/managed-by": "kyverno"}},
        "scope": {"kind": "ConfigMap", "name": "one"},
        "results": [{"policy": "other", "rule": "r", "result": "skip"}],
    });
    world.sim.put(REPORTS, foreign).unwrap();
    world.sim.put(POLICIES, policy("p", "a")).unwrap();
    let reporter = world.report_as("first");
    let beside: &[(&str, &[&str])] = &[("one", &["other/r: skip"]), ("two", &["p/r: fail"])];
    world.until("the other one", beside).await;
    let is_refused = || {
        let text = reporter.service.metrics.encode();
        text.contains("anteroom_reporter_report_writes_total{verb=\"apply\",outcome=\"error\"}")
    };
    world.wait("it is in the way", |_| is_refused()).await;
    assert_eq!(world.reported()["one"], ["other/r: skip"]);
    // Once it is gone, the place is ours.
    world.sim.delete(REPORTS, "default", &uid).unwrap();
    let both: &[(&str, &[&str])] = &[("one", &["p/r: pass"]), ("two", &["p/r: fail"])];
    world.until("both", both).await;
    reporter.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_somebody_deleted_is_found_by_the_next_list() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    world.put("one", "a");
    world.sim.put(POLICIES, policy("p", "a")).unwrap();
    let mut args = args("first");
    args.background_scan_interval = Duration::from_secs(1);
    let reporter = world.report(args);
    let there: &[(&str, &[&str])] = &[("one", &["p/r: pass"])];
    world.until("the report", there).await;
    let uid = world.uid(CONFIG_MAPS, "one");
    for _ in 0..2 {
        assert!(world.sim.delete(REPORTS, "default", &uid).unwrap());
        world.until("it is there again", there).await;
    }
    reporter.stop().await;
}

/// The notes of all Events.
fn notes(world: &World) -> Vec<String> {
    let events = world.sim.objects(EVENTS).unwrap();
    let events = events
        .iter()
        .map(|body| serde_json::from_slice(body).unwrap());
    let note = |event: Value| event["note"].as_str().unwrap_or_default().to_owned();
    events.map(note).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_from_a_webhook_becomes_an_event() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    let reporter = world.report_as("first");
    let webhook = world.bus.join();
    let violation = Violation {
        operation: "CREATE".to_owned(),
        blocked: true,
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        ..Violation::default()
    };
    let rule = ViolatedRule {
        policy: "p".to_owned(),
        rule: "r".to_owned(),
        message: "taken".to_owned(),
        ..ViolatedRule::default()
    };
    let violation = violation.with_rules(vec![rule; anteroom_wire::violation::RULES_MAX + 1]);
    // Nobody may listen yet; the same is told once.
    let told = async {
        while notes(&world).is_empty() {
            webhook.send(&violation).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, told).await.unwrap();
    let first = "Pod default/a: [r] fail (blocked) (and 1 rule more); taken";
    let others = "Pod default/a: [r] fail (blocked); taken";
    world.wait("both", |world| notes(world).len() == 2).await;
    let mut found = notes(&world);
    found.sort();
    assert_eq!(found, [first, others]);
    reporter.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reporter_that_loses_the_lease_stops_and_begins_anew_with_it() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    world.put("one", "a");
    world.sim.put(POLICIES, policy("p", "a")).unwrap();
    let reporter = world.report_as("first");
    world.until("the first", &[("one", &["p/r: pass"])]).await;
    let hand_to = |holder: &str| {
        let mut lease = world
            .sim
            .get(LEASES, "default", "anteroom-reporter")
            .unwrap();
        lease["spec"]["holderIdentity"] = holder.into();
        world.sim.put(LEASES, lease).unwrap();
    };
    let leads = |leads: u8| {
        let line = format!("anteroom_reporter_leads {leads}\n");
        reporter.service.metrics.encode().contains(&line)
    };
    hand_to("somebody else");
    world.wait("it is lost", |_| leads(0)).await;
    let patched = world.stats().count("patch", REPORTS);
    world.put("one", "b");
    let looked = world.stats().count("get", LEASES);
    world
        .wait("it looks again", |world| {
            world.stats().count("get", LEASES) > looked + 1
        })
        .await;
    assert_eq!(world.stats().count("patch", REPORTS), patched);
    hand_to("");
    world.until("it is back", &[("one", &["p/r: fail"])]).await;
    assert!(leads(1));
    reporter.stop().await;
}

/// Returns a policy that copies the leader's label to each `follows-*` object, once for each version of the policy.
fn follow(word: &str) -> Value {
    json!({
        "metadata": {"name": "follow"},
        "spec": {"rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["leader"]}}]},
            "mutate": {
                "mutateExistingOnPolicyUpdate": true,
                "targets": [{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "follows-*"}],
                "patchStrategicMerge": {"data": {
                    "said": format!("{{{{ request.object.metadata.labels.team }}}} {word} {{{{ target.metadata.name }}}}"),
                }},
            },
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_object_triggers_each_policy_version_once() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    let _replica = world.answer();
    for name in ["leader", "follows-a", "follows-b", "other"] {
        world.put(name, "team-a");
    }
    let said = |world: &World, name: &str| {
        let object = world.sim.get(CONFIG_MAPS, "default", name).unwrap();
        object["data"]["said"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    world.sim.put(POLICIES, follow("greets")).unwrap();
    let reporter = world.report_as("first");
    let all_say = |world: &World, word: &str| {
        ["a", "b"].iter().all(|name| {
            let name = format!("follows-{name}");
            said(world, &name) == format!("team-a {word} {name}")
        })
    };
    world
        .wait("the policy is new", |world| all_say(world, "greets"))
        .await;
    world.sim.put(POLICIES, follow("leaves")).unwrap();
    world
        .wait("it is another", |world| all_say(world, "leaves"))
        .await;
    for name in ["leader", "other"] {
        assert_eq!(said(&world, name), "");
    }
    // Targets that are right already are not written, although a new reporter does not know the first reporter's
    // progress.
    world.counts("update", CONFIG_MAPS, 4).await;
    reporter.stop().await;
    let second = world.report_as("second");
    world.put("follows-c", "team-a");
    world.sim.put(POLICIES, follow("meets")).unwrap();
    world
        .wait("the next one goes on", |world| {
            all_say(world, "meets") && said(world, "follows-c") == "team-a meets follows-c"
        })
        .await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_object_triggers_no_mutation() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    let _replica = world.answer();
    for name in ["leader", "hushed", "follows-a"] {
        world.put(name, "team-a");
    }
    // Its turn is before the other's: policies are gone through in order of name.
    let mut hushed = follow("");
    hushed["metadata"]["name"] = "a-policy".into();
    let rule = &mut hushed["spec"]["rules"][0];
    rule["match"]["any"][0]["resources"]["names"] = json!(["hushed"]);
    rule["mutate"]["patchStrategicMerge"]["data"] =
        json!({"heard": "{{ request.object.metadata.name }}"});
    world.sim.put(POLICIES, hushed).unwrap();
    let data = |world: &World| {
        let object = world.sim.get(CONFIG_MAPS, "default", "follows-a");
        object.unwrap()["data"].clone()
    };
    let says = async |word: &str| {
        world.sim.put(POLICIES, follow(word)).unwrap();
        let said = format!("team-a {word} follows-a");
        let is_said = |world: &World| data(world)["said"] == *said;
        world.wait(word, is_said).await;
    };
    let mut filtering = args("filtering");
    filtering.exemptions = filters("[ConfigMap,default,hush*]");
    let reporter = world.report(filtering);
    for word in ["greets", "leaves"] {
        says(word).await;
        assert_eq!(data(&world)["heard"], Value::Null, "{word}");
    }
    reporter.stop().await;
    let reporter = world.report(args("all"));
    world
        .wait("nothing is filtered", |world| {
            data(world)["heard"] == "hushed"
        })
        .await;
    reporter.stop().await;
}

/// Twice, a watcher ends and a new watcher begins. Meanwhile many objects are changed by a patch that shows how often
/// it was applied.
#[tokio::test(flavor = "multi_thread")]
async fn no_patch_is_lost_or_doubled_when_the_watcher_is_another_one_meanwhile() {
    const OBJECTS: u64 = 150;
    anteroom_runtime::process::install_crypto_provider();
    let mut world = World::start().await;
    let _replica = world.answer();
    world.put("leader", "team-a");
    for number in 0..OBJECTS {
        let name = format!("follows-{number:03}");
        let object =
            json!({"metadata": {"name": name, "namespace": "default"}, "data": {"said": "-"}});
        world.sim.put(CONFIG_MAPS, object).unwrap();
    }
    let slow = Fault::Delay {
        matching: Matching::new("update", CONFIG_MAPS),
        delay_ms: 20,
    };
    world.sim.fault(slow).unwrap();
    let mut policy = follow("");
    policy["spec"]["rules"][0]["mutate"]["patchStrategicMerge"]["data"]["said"] =
        "{{ target.data.said }}x".into();
    world.sim.put(POLICIES, policy).unwrap();
    let reporter = world.report_as("first");
    let written = |world: &World| world.stats().count("update", CONFIG_MAPS);
    for (after, next) in [(10, "v"), (110, "w")] {
        world
            .wait("it has begun", |world| written(world) >= after)
            .await;
        world.hand_over(next).await;
        assert!(written(&world) < OBJECTS, "in the middle");
    }
    let said = |world: &World| -> Vec<String> {
        let said = (0..OBJECTS).map(|number| {
            let object = world
                .sim
                .get(CONFIG_MAPS, "default", &format!("follows-{number:03}"));
            object.unwrap()["data"]["said"].as_str().unwrap().to_owned()
        });
        said.collect()
    };
    world
        .wait("all are changed", |world| {
            said(world).iter().all(|said| said != "-")
        })
        .await;
    reporter.stop().await;
    assert!(
        said(&world).iter().all(|said| said == "-x"),
        "{:?}",
        said(&world)
    );
    world.counts("update", CONFIG_MAPS, OBJECTS).await;
}
