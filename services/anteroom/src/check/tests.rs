//! Faults are put into what a healthy cluster says, one at a time.

use std::collections::BTreeSet;

use anteroom_runtime::{certs::issue::Authority, wall_clock};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{cluster::Cluster, finding::Finding, *};

fn part(name: &str, replicas: u64) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "replicas": replicas,
            "template": { "spec": { "containers": [{ "image": "anteroom:1" }] } } },
        "status": { "readyReplicas": replicas },
    })
}

fn definition(name: &str) -> Value {
    let (_, group) = name.split_once('.').unwrap();
    json!({
        "metadata": { "name": name, "annotations": {
            "meta.helm.sh/release-name": "anteroom", "helm.sh/resource-policy": "keep" } },
        "spec": { "group": group },
        "status": { "conditions": [{ "type": "Established", "status": "True" }] },
    })
}

/// A Secret with a certificate, which is valid for so long, and its authority.
fn secret(name: &str, valid_for: SignedDuration) -> Value {
    let now = wall_clock::now();
    let authority = Authority::valid_for("a", valid_for, now).unwrap();
    let pair = authority
        .issue_for(&["nats".to_owned()], valid_for, now)
        .unwrap();
    let encode = |text: &str| STANDARD.encode(text);
    json!({ "metadata": { "name": name }, "data": {
        "tls.crt": encode(&pair.chain), "tls.key": encode(&pair.key),
        "ca.crt": encode(&authority.certificate_pem) } })
}

fn object(kind: &str, ready: &str) -> Value {
    let condition =
        json!({ "type": "Ready", "status": ready, "reason": "AR301", "message": "why" });
    json!({ "kind": kind, "metadata": { "name": "a" }, "status": { "conditions": [condition] } })
}

/// The reporter's lease, renewed so many seconds ago by the API server's clock.
fn lease(holder: &str, seconds_ago: i64) -> Value {
    let at = |ago| (wall_clock::now() - SignedDuration::from_secs(ago)).to_string();
    json!({
        "metadata": { "name": "anteroom-reporter",
            "managedFields": [{ "time": at(3_600) }, { "time": at(seconds_ago) }] },
        "spec": { "holderIdentity": holder },
    })
}

pub(super) fn healthy() -> Cluster {
    let year = SignedDuration::from_hours(24 * 365);
    let webhook_secret = secret("anteroom-webhook-tls", year);
    let configuration = json!({
        "metadata": { "name": "anteroom",
            "labels": { "app.kubernetes.io/managed-by": "anteroom-webhook" } },
        "webhooks": [{ "name": "probe.anteroom.svc",
            "clientConfig": { "caBundle": webhook_secret["data"]["ca.crt"] } }],
    });
    let deployments = [
        "anteroom-cache-replica",
        "anteroom-reporter",
        "anteroom-watcher",
        "anteroom-webhook",
    ];
    let definitions = [
        "cachedcontextentries.kyverno.io",
        "clusterpolicies.kyverno.io",
        "policyreports.wgpolicyk8s.io",
    ];
    let class = json!({ "metadata": { "name": "standard",
        "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } } });
    Cluster {
        namespace: "anteroom".to_owned(),
        version: Ok((1, 33)),
        clock_ahead_seconds: Ok(1),
        definitions: Ok(definitions.map(definition).to_vec()),
        deployments: Ok(deployments.map(|name| part(name, 2)).to_vec()),
        stateful_sets: Ok(vec![part("nats", 3)]),
        storage_classes: Ok(vec![class]),
        validating: Ok(vec![configuration.clone()]),
        mutating: Ok(vec![configuration]),
        endpoints: Ok(vec![
            json!({ "endpoints": [{ "conditions": { "ready": true } }] }),
        ]),
        nats_secret: Ok(Some(secret("anteroom-nats-server", year))),
        webhook_secret: Ok(Some(webhook_secret)),
        reporter_lease: Ok(Some(lease("r-1", 3))),
        policies: Ok(vec![object("ClusterPolicy", "True")]),
        entries: Ok(vec![object("CachedContextEntry", "True")]),
        lacking: Ok(Vec::new()),
        nats: Some(Ok(system::tests::healthy())),
    }
}

/// The checks that do not find their fact, by what they find.
fn found(cluster: &Cluster, pre: bool) -> Vec<(&'static str, Finding)> {
    let findings = checks(pre)
        .into_iter()
        .map(|check| (check.id, (check.find)(cluster)));
    findings
        .filter(|(_, finding)| *finding != Finding::Good)
        .collect()
}

#[test]
fn every_check_is_of_a_known_category() {
    let before = before::CHECKS.iter().filter(|check| !check.is_pre).count();
    assert_eq!(checks(true).len(), before::CHECKS.len());
    assert_eq!(
        checks(false).len(),
        running::CHECKS.len() + system::CHECKS.len() + before
    );
}

#[test]
fn a_healthy_installation_has_no_findings() {
    assert_eq!(found(&healthy(), false), []);
    // Before an installation, definitions of a release are worth a word.
    let before = found(&healthy(), true);
    assert!(
        matches!(before[..], [("pre-definitions", Finding::Warning(_))]),
        "{before:?}"
    );
}

pub(super) type Fault = fn(&mut Cluster);

fn foreign(selector: &Value, policy: &str) -> Value {
    json!({ "metadata": { "name": "other" }, "webhooks": [{
        "name": "w", "failurePolicy": policy, "namespaceSelector": selector,
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"] }] }] })
}

/// Returns the data of the Secret with the webhook's certificate.
fn webhook_data(of: &mut Cluster) -> &mut Value {
    let secret = of.webhook_secret.as_mut().unwrap().as_mut().unwrap();
    &mut secret["data"]
}

/// Faults of an installation: the check that finds each, and whether it fails.
pub(super) const FAULTS: &[(&str, bool, Fault)] = &[
    ("kubernetes-version", true, |of| of.version = Ok((1, 29))),
    ("kubernetes-clock", false, |of| {
        of.clock_ahead_seconds = Ok(-10);
    }),
    ("definitions-served", true, |of| {
        of.definitions.as_mut().unwrap().remove(0);
    }),
    ("definitions-served", true, |of| {
        of.definitions.as_mut().unwrap()[1]["status"] = json!({});
    }),
    ("definitions-kept", true, |of| {
        of.definitions.as_mut().unwrap()[1]["metadata"]["annotations"] =
            json!({ "meta.helm.sh/release-name": "kyverno" });
    }),
    ("parts-available", true, |of| {
        of.deployments.as_mut().unwrap().remove(2);
    }),
    ("parts-available", true, |of| {
        of.deployments.as_mut().unwrap()[1]["status"] = json!({});
    }),
    ("parts-available", true, |of| {
        of.stateful_sets.as_mut().unwrap()[0]["status"]["readyReplicas"] = json!(2);
    }),
    ("parts-version", false, |of| {
        let part = &mut of.deployments.as_mut().unwrap()[0];
        part["spec"]["template"]["spec"]["containers"][0]["image"] = json!("anteroom:2");
    }),
    ("parts-keys", true, |of| of.nats_secret = Ok(None)),
    ("parts-keys", false, |of| {
        of.nats_secret = Ok(Some(secret("s", SignedDuration::from_hours(48))));
    }),
    ("webhooks-registered", true, |of| {
        of.mutating = Ok(Vec::new());
    }),
    ("webhooks-registered", true, |of| {
        of.validating.as_mut().unwrap()[0]["metadata"]["labels"] = json!({});
    }),
    ("webhooks-reached", true, |of| of.endpoints = Ok(Vec::new())),
    ("webhooks-reached", true, |of| {
        of.endpoints.as_mut().unwrap()[0]["endpoints"][0]["conditions"]["ready"] = json!(false);
    }),
    ("webhooks-trusted", true, |of| {
        of.validating.as_mut().unwrap()[0]["webhooks"][0]["clientConfig"]["caBundle"] =
            json!("eA==");
    }),
    ("webhooks-certificate", true, |of| {
        webhook_data(of)["tls.crt"] = json!("");
    }),
    ("webhooks-certificate", true, |of| {
        let other = secret("s", SignedDuration::from_hours(48));
        webhook_data(of)["tls.key"] = other["data"]["tls.key"].clone();
    }),
    ("webhooks-certificate", true, |of| {
        let expired = secret("s", SignedDuration::from_hours(-72));
        for part in ["tls.crt", "tls.key"] {
            webhook_data(of)[part] = expired["data"][part].clone();
        }
    }),
    ("webhooks-foreign", false, |of| {
        of.validating
            .as_mut()
            .unwrap()
            .push(foreign(&json!({}), "Fail"));
    }),
    ("webhooks-foreign", false, |of| {
        let key = "kubernetes.io/metadata.name";
        let others = json!({ "matchExpressions": [
            { "key": key, "operator": "NotIn", "values": ["kube-system"] }] });
        of.mutating.as_mut().unwrap().push(foreign(&others, "Fail"));
    }),
    ("policies-ready", true, |of| {
        of.policies
            .as_mut()
            .unwrap()
            .push(object("Policy", "False"));
    }),
    ("policies-ready", true, |of| {
        of.policies.as_mut().unwrap()[0]["status"] = json!({});
    }),
    ("policies-ready", true, |of| {
        let condition = json!({ "type": "WebhookConfigured", "status": "False" });
        of.policies.as_mut().unwrap()[0]["status"] =
            json!({ "conditionStatus": { "conditions": [condition] } });
    }),
    ("policies-run", false, |of| {
        of.policies.as_mut().unwrap()[0]["status"]["notRun"] =
            json!([{ "rule": "r", "message": "m" }]);
    }),
    ("policies-permitted", false, |of| {
        of.policies.as_mut().unwrap()[0]["status"]["notPermitted"] =
            json!([{ "rule": "r", "message": "m" }]);
    }),
    ("entries-ready", true, |of| {
        of.entries
            .as_mut()
            .unwrap()
            .push(object("GlobalContextEntry", "False"));
    }),
    ("reports-leader", true, |of| of.reporter_lease = Ok(None)),
    ("reports-leader", true, |of| {
        of.reporter_lease = Ok(Some(lease("", 3)));
    }),
    ("reports-leader", true, |of| {
        of.reporter_lease = Ok(Some(lease("r-1", 90)));
    }),
];

#[test]
fn each_fault_is_found_by_its_own_check_alone() {
    for (id, fails, fault) in FAULTS {
        let mut cluster = healthy();
        fault(&mut cluster);
        let found = found(&cluster, false);
        let [(by, finding)] = &found[..] else {
            panic!("{id}: {found:?}");
        };
        assert_eq!(by, id);
        assert_eq!(matches!(finding, Finding::Failed(_)), *fails, "{found:?}");
        let report = Report::new(&checks(false), &cluster);
        assert_eq!(report.is_success(), !fails);
        let text = report.show(Output::Text).unwrap();
        assert!(text.contains(&format!("see docs/checks.md#{id}")), "{text}");
    }
}

/// Checks whose faults stop others from being asked: each has a test of its own.
const OWN_TEST: [&str; 2] = ["nats-reachable", "watchers-coordinator"];

#[test]
fn every_check_of_an_installation_has_a_fault() {
    let of_cluster = FAULTS.iter().map(|(id, ..)| *id);
    let seeded: BTreeSet<_> = of_cluster.chain(system::tests::seeded()).collect();
    let checks = checks(false);
    let without = checks.iter().filter(|check| !seeded.contains(check.id));
    let without: Vec<_> = without.map(|check| check.id).collect();
    assert_eq!(without, OWN_TEST);
}

#[test]
fn a_webhook_that_leaves_the_namespace_alone_is_no_finding() {
    let key = "kubernetes.io/metadata.name";
    let except = json!({ "matchExpressions": [{ "key": key, "operator": "NotIn", "values": ["anteroom"] }] });
    let labelled = json!({ "matchLabels": { "inject": "true" } });
    for webhook in [
        foreign(&except, "Fail"),
        foreign(&labelled, "Fail"),
        foreign(&json!({}), "Ignore"),
    ] {
        let mut cluster = healthy();
        cluster.validating.as_mut().unwrap().push(webhook);
        assert_eq!(found(&cluster, false), []);
    }
}

#[test]
fn without_a_reporter_nobody_has_to_hold_its_lease() {
    let without: [Fault; 2] = [
        |of| of.deployments.as_mut().unwrap()[1]["spec"]["replicas"] = json!(0),
        |of| drop(of.deployments.as_mut().unwrap().remove(1)),
    ];
    for change in without {
        let mut cluster = healthy();
        change(&mut cluster);
        cluster.reporter_lease = Ok(None);
        assert_eq!(found(&cluster, false), []);
    }
}

#[test]
fn a_lease_is_as_old_as_the_api_server_says_whatever_clock_is_wrong() {
    let mut cluster = healthy();
    cluster.reporter_lease = Ok(Some(lease("r-1", 303)));
    cluster.clock_ahead_seconds = Ok(-300);
    let ids = found(&cluster, false).into_iter().map(|(id, _)| id);
    assert_eq!(ids.collect::<Vec<_>>(), ["kubernetes-clock"]);
}

#[test]
fn checks_without_the_right_to_read_are_not_asked_and_do_not_fail() {
    let mut cluster = healthy();
    let no = || "you may not".to_owned();
    (cluster.nats_secret, cluster.webhook_secret) = (Err(no()), Err(no()));
    cluster.policies = Err(no());
    let found = found(&cluster, false);
    let not_asked = |(_, finding): &(_, Finding)| matches!(finding, Finding::NotAsked(_));
    assert!(found.len() == 6 && found.iter().all(not_asked), "{found:?}");
    assert!(Report::new(&checks(false), &cluster).is_success());
}

/// Returns the cluster of `anteroom serve --webhook-url`, whose bus is in its process.
fn served_from_outside() -> Cluster {
    let mut cluster = healthy();
    for configurations in [&mut cluster.validating, &mut cluster.mutating] {
        configurations.as_mut().unwrap()[0]["webhooks"][0]["clientConfig"]["url"] =
            json!("https://my-laptop:9443/policies");
    }
    (cluster.deployments, cluster.stateful_sets) = (Ok(Vec::new()), Ok(Vec::new()));
    (cluster.endpoints, cluster.nats_secret) = (Ok(Vec::new()), Ok(None));
    (cluster.reporter_lease, cluster.nats) = (Ok(None), None);
    cluster
}

#[test]
fn parts_outside_of_the_cluster_are_not_looked_for_inside() {
    let mut cluster = served_from_outside();
    let not_asked = found(&cluster, false);
    for (id, finding) in &not_asked {
        let Finding::NotAsked(why) = finding else {
            panic!("{id}: {finding:?}");
        };
        assert!(why.contains("`anteroom serve"), "{id}: {why}");
    }
    let ids: Vec<_> = not_asked.iter().map(|(id, _)| *id).collect();
    for id in [
        "parts-available",
        "parts-version",
        "parts-keys",
        "webhooks-reached",
    ] {
        assert!(ids.contains(&id), "{ids:?}");
    }
    assert_eq!(ids.len(), 4 + system::CHECKS.len());
    assert!(
        matches!(&not_asked[0], (_, Finding::NotAsked(why)) if why.contains("https://my-laptop:9443: ")),
        "{not_asked:?}"
    );
    // The keys of NATS are looked at where they are.
    cluster.nats_secret = Ok(Some(
        json!({ "metadata": { "name": "anteroom-nats-server" } }),
    ));
    let not_valid: Vec<_> = (found(&cluster, false).into_iter())
        .filter(|(_, finding)| !matches!(finding, Finding::NotAsked(_)))
        .collect();
    assert!(
        matches!(&not_valid[..], [("parts-keys", Finding::Failed(_))]),
        "{not_valid:?}"
    );
    cluster.nats_secret = Ok(None);
    // A certificate from files is in no Secret.
    cluster.webhook_secret = Ok(None);
    assert!(Report::new(&checks(false), &cluster).is_success());
    // What the API server says of policies still counts.
    cluster.policies = Ok(vec![object("ClusterPolicy", "False")]);
    assert!(!Report::new(&checks(false), &cluster).is_success());
}

#[test]
fn parts_of_a_cluster_are_missed_whatever_a_webhook_is_reached_at() {
    let mut with_a_part = served_from_outside();
    with_a_part.deployments = Ok(vec![part("anteroom-watcher", 2)]);
    let mut with_one_process = served_from_outside();
    with_one_process.deployments = Ok(vec![part("anteroom", 1)]);
    let mut by_service = served_from_outside();
    by_service.mutating = healthy().mutating;
    for cluster in [with_a_part, with_one_process, by_service] {
        let found = found(&cluster, false);
        assert!(
            matches!(&found[0], ("parts-available", Finding::Failed(_))),
            "{found:?}"
        );
    }
}

#[test]
fn before_an_installation_rights_and_storage_are_looked_at() {
    let mut cluster = healthy();
    cluster.definitions = Ok(Vec::new());
    cluster.lacking = Ok(vec!["create secrets".to_owned()]);
    cluster.storage_classes = Ok(Vec::new());
    let found = found(&cluster, true);
    assert_eq!(
        found[0],
        ("pre-rights", Finding::Failed("create secrets".to_owned()))
    );
    assert!(
        matches!(found[1], ("pre-storage", Finding::Warning(_))) && found.len() == 2,
        "{found:?}"
    );
}

#[test]
fn many_findings_are_counted_and_the_first_are_named() {
    let mut cluster = healthy();
    cluster.policies = Ok(vec![object("Policy", "False"); 9]);
    let [(_, Finding::Failed(said))] = &found(&cluster, false)[..] else {
        panic!("one");
    };
    assert!(
        said.lines().count() == 6 && said.ends_with("and 4 more"),
        "{said}"
    );
    assert!(said.starts_with("Policy a: AR301: why"), "{said}");
}

/// Each check has an anchor on its page, and each anchor a check.
#[test]
fn every_check_is_documented() {
    let page = include_str!("../../../../docs/checks.md");
    let anchors = page.lines().filter_map(|line| line.strip_prefix("### "));
    let ids = checks(true)
        .into_iter()
        .chain(checks(false))
        .map(|check| check.id);
    assert_eq!(anchors.collect::<BTreeSet<_>>(), ids.collect());
    for check in checks(true).into_iter().chain(checks(false)) {
        assert!(
            page.contains(&format!("### {}\n\nThe fact: {}.", check.id, check.fact)),
            "{}",
            check.id
        );
    }
}
