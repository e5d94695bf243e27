//! Reports follow changes of objects, of policies, and of the views that policies read.

use anteroom_simapi::Fault;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::world::{CONFIG_MAPS, PATIENCE, POLICIES, REPORTS, World, args, filters, policy, rules};

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_in_step_with_objects_and_policies() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    world.put("one", "a");
    world.put("two", "b");
    world.sim.put(POLICIES, policy("p", "a")).unwrap();
    let first = world.report_as("first");
    let both: &[(&str, &[&str])] = &[("one", &["p/r: pass"]), ("two", &["p/r: fail"])];
    world.until("what exists", both).await;

    // A second policy goes beside the first, and changes by itself.
    world.sim.put(POLICIES, policy("q", "b")).unwrap();
    let with_q: &[(&str, &[&str])] = &[
        ("one", &["p/r: pass", "q/r: fail"]),
        ("two", &["p/r: fail", "q/r: pass"]),
    ];
    world.until("another policy", with_q).await;
    world.sim.put(POLICIES, policy("q", "?")).unwrap();
    let with_any: &[(&str, &[&str])] = &[
        ("one", &["p/r: pass", "q/r: pass"]),
        ("two", &["p/r: fail", "q/r: pass"]),
    ];
    world.until("the policy is another", with_any).await;
    world.sim.delete(POLICIES, "", "q").unwrap();
    world.until("the policy is gone", both).await;

    // What cannot be read, and so not written, is written later.
    let forbid = Fault::Forbid {
        resource: REPORTS.into(),
    };
    world.sim.fault(forbid).unwrap();
    world.put("three", "a");
    world.sim.delete(CONFIG_MAPS, "default", "one").unwrap();
    let refused = world
        .sim
        .wait_until(|stats| stats.count_status("get", REPORTS, 403) > 0);
    timeout(PATIENCE, refused).await.unwrap();
    let allow = Fault::Allow {
        resource: REPORTS.into(),
    };
    world.sim.fault(allow).unwrap();
    let then: &[(&str, &[&str])] = &[("three", &["p/r: pass"]), ("two", &["p/r: fail"])];
    world.until("what was refused", then).await;

    // The second reporter takes over, and writes only the reports that differ.
    let second = world.report_as("second");
    let written = |world: &World, of: &str| -> Vec<String> {
        let reports = world.reports().into_iter();
        let reports = reports.filter(|report| report["scope"]["name"] == of);
        reports
            .map(|report| report["metadata"]["resourceVersion"].to_string())
            .collect()
    };
    let before = ["two", "three"].map(|name| written(&world, name));
    first.stop().await;
    world.put("two", "a");
    let then: &[(&str, &[&str])] = &[("three", &["p/r: pass"]), ("two", &["p/r: pass"])];
    world.until("the second one's", then).await;
    assert_ne!(written(&world, "two"), before[0]);
    assert_eq!(written(&world, "three"), before[1]);

    // What exists was read by the watcher, once.
    assert_eq!(world.stats().count("list", CONFIG_MAPS), 1);
    assert_eq!(world.stats().watches_on(CONFIG_MAPS), 1);
    second.stop().await;
}

/// A policy on Pods whose context says which team is the right one.
fn by_settings() -> Value {
    json!({
        "metadata": {"name": "by-settings"},
        "spec": {"background": true, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "context": [{"name": "settings", "configMap": {"name": "settings", "namespace": "default"}}],
            "validate": {"message": "m", "deny": {"conditions": {"all": [{
                "key": "{{ request.object.metadata.labels.team }}", "operator": "NotEquals",
                "value": "{{ settings.data.team }}",
            }]}}},
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_fact_changes_the_reports_of_its_policy() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    let _replica = world.answer();
    world.set("team-a");
    for (name, team) in [("one", "team-a"), ("two", "team-b")] {
        world.put_pod(name, team);
    }
    world.sim.put(POLICIES, by_settings()).unwrap();
    let reporter = world.report_as("first");
    let before: &[(&str, &[&str])] = &[
        ("one", &["by-settings/r: pass"]),
        ("two", &["by-settings/r: fail"]),
    ];
    world.until("the fact", before).await;
    world.set("team-b");
    let after: &[(&str, &[&str])] = &[
        ("one", &["by-settings/r: fail"]),
        ("two", &["by-settings/r: pass"]),
    ];
    world.until("the fact is another", after).await;
    reporter.stop().await;
}

/// So many objects would take minutes, each waiting for facts that never come.
const PODS: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn facts_that_never_come_hold_up_no_other_policy() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    // It is connected to, and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for number in 0..PODS {
        world.put_pod(&format!("pod-{number}"), "a");
    }
    let hangs = json!({
        "metadata": {"name": "a-hangs"},
        "spec": {"background": true, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "context": [{"name": "answer", "apiCall": {"service": {"url": url}, "method": "GET"}}],
            "validate": {"message": "m", "deny": {"conditions": {"all": [{
                "key": "{{ answer }}", "operator": "Equals", "value": "no"}]}}},
        }]},
    });
    world.sim.put(POLICIES, hangs).unwrap();
    let mut quick = policy("quick", "a");
    quick["spec"]["rules"][0]["match"]["any"][0]["resources"]["kinds"] = json!(["Pod"]);
    world.sim.put(POLICIES, quick).unwrap();
    let reporter = world.report_as("first");
    let all_have = |wanted: &str| {
        let reported = world.reported();
        let mut having = reported
            .values()
            .filter(|results| results.iter().any(|r| r == wanted));
        having.by_ref().count() == PODS
    };
    let quick = world.sim.wait_until(|_| all_have("quick/r: pass"));
    timeout(PATIENCE / 2, quick).await.unwrap();
    // Nor is what hangs waited for again and again.
    let hung = world.sim.wait_until(|_| all_have("a-hangs/r: error"));
    timeout(PATIENCE, hung).await.unwrap();
    reporter.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filtered_objects_have_no_report() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    world.put("one", "a");
    world.put("two", "b");
    world.sim.put(POLICIES, policy("p", "a")).unwrap();
    let before = world.report_as("before");
    let both: &[(&str, &[&str])] = &[("one", &["p/r: pass"]), ("two", &["p/r: fail"])];
    world.until("nothing is filtered", both).await;
    before.stop().await;

    // What was reported before goes.
    let mut filtering = args("filtering");
    filtering.exemptions = filters("[ConfigMap,default,tw?]");
    let exemptions = filtering.exemptions.clone();
    let reporter = world.report(filtering);
    world.until("one is", &both[..1]).await;
    world.put("twi", "a");
    world.put("three", "b");
    let then: &[(&str, &[&str])] = &[("one", &["p/r: pass"]), ("three", &["p/r: fail"])];
    world.until("one more is", then).await;

    // The file changes while the reporter runs.
    exemptions.replace(rules("[ConfigMap,default,t*e*]"));
    let others: &[(&str, &[&str])] = &[
        ("one", &["p/r: pass"]),
        ("twi", &["p/r: pass"]),
        ("two", &["p/r: fail"]),
    ];
    world.until("others are", others).await;
    reporter.stop().await;
}
