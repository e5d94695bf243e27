//! Published policies, unchanged, most of which read the cluster, with the cluster tests that are published with
//! them, where both are at hand.

#![allow(clippy::print_stdout, reason = "a test says what it does again")]

use std::path::{Path, PathBuf};

use anteroom_e2e::{
    cluster::Identity,
    manifests,
    skip::{Lack, skip},
    system::SystemPlan,
    wait,
    world::World,
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

/// All whose facts a cluster without nodes and controllers has, and that need no image registry.
const SUITES: &[&str] = &[
    "kasten/kasten-hourly-rpo",
    "linkerd/check-linkerd-authorizationpolicy",
    "linkerd/require-linkerd-server",
    "other/check-vpa-configuration",
    "other/ensure-production-matches-staging",
    "other/exclude-namespaces-dynamically",
    "other/pdb-maxunavailable-with-deployments",
    "other/pdb-minavailable",
    "other/prevent-duplicate-vpa",
    "other/require-emptydir-requests-limits",
    "other/require-netpol",
    "other/require-replicas-allow-disruption",
    "other/require-unique-external-dns",
    "other/require-unique-uid-per-workload",
    "other/restrict-ingress-host",
];

/// Policies in CEL: those that read facts, and those whose suites do not sleep.
const SUITES_IN_CEL: &[&str] = &[
    "best-practices-vpol/disallow-default-namespace",
    "best-practices-vpol/disallow-empty-ingress-host",
    "best-practices-vpol/require-pod-requests-limits",
    "istio-mpol/add-ambient-mode-namespace",
    "karpenter-mpol/add-karpenter-daemonset-priority-class",
    "other-mpol/add-default-resources",
    "other-mpol/add-env-vars-from-cm",
    "other-mpol/add-imagepullsecrets",
    "other-mpol/add-ndots",
    "other-mpol/add-tolerations",
    "other-mpol/add-volume-deployment",
    "other-mpol/apply-pss-restricted-profile",
    "other-mpol/mitigate-log4shell",
    "other-mpol/prepend-image-registry",
    "other-mpol/replace-ingress-hosts",
    "other-vpol/allowed-image-repos",
    "other-vpol/allowed-pod-priorities",
    "other-vpol/block-kubectl-cp",
    "other-vpol/check-nvidia-gpu",
];

/// Kinds that the suites speak of: group, kind, plural, and versions, of which the first is stored.
const KINDS: &[(&str, &str, &str, &[&str])] = &[
    (
        "autoscaling.k8s.io",
        "VerticalPodAutoscaler",
        "verticalpodautoscalers",
        &["v1"],
    ),
    ("config.kio.kasten.io", "Policy", "policies", &["v1alpha1"]),
    (
        "policy.linkerd.io",
        "AuthorizationPolicy",
        "authorizationpolicies",
        &["v1alpha1"],
    ),
    (
        "policy.linkerd.io",
        "HTTPRoute",
        "httproutes",
        &["v1beta3", "v1beta1"],
    ),
    (
        "policy.linkerd.io",
        "Server",
        "servers",
        &["v1beta1", "v1beta3"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn published_policies_pass_their_own_cluster_tests() -> anyhow::Result<()> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let tool = shared.join("tools/chainsaw.py");
    let corpora = ["corpus/kyverno-policies", "corpus/kyverno-policies-cel"];
    let [classic, in_cel] = corpora.map(|folder| shared.join(folder));
    if !tool.is_file() || !classic.is_dir() || !in_cel.is_dir() || !has_python().await {
        let why = format!(
            "takes {}, {}, {} and python3 with PyYAML",
            tool.display(),
            classic.display(),
            in_cel.display()
        );
        return skip(Lack::Corpus, &why);
    }
    let mut world = World::start_as(&SystemPlan::default()).await?;
    manifests::apply(&world.client, &may_read_everything()).await?;
    for kind in KINDS {
        define(&world, kind).await?;
    }
    world.system.ready().await?;
    all_pass(&world, &tool, &classic, SUITES).await?;
    all_pass(&world, &tool, &in_cel, SUITES_IN_CEL).await
}

async fn all_pass(
    world: &World,
    tool: &Path,
    corpus: &Path,
    suites: &[&str],
) -> anyhow::Result<()> {
    let results = run(world, tool, corpus, suites).await?;
    let scenarios = results["scenarios"].as_array().context("no scenarios")?;
    for scenario in scenarios {
        if is_early(scenario) {
            let suite = scenario["suite"].as_str().context("no suite")?;
            println!("{suite}: an object came before the view knew the fact; once more");
            let again = run(world, tool, corpus, &[suite]).await?;
            passed(&again["scenarios"][0])?;
        } else {
            passed(scenario)?;
        }
    }
    ensure!(scenarios.len() == suites.len(), "{} ran", scenarios.len());
    Ok(())
}

fn passed(scenario: &Value) -> anyhow::Result<()> {
    let suite = &scenario["suite"];
    ensure!(scenario["ok"] == true, "{suite}: {}", scenario["reason"]);
    // Each refusal is ours, and was there at once.
    ensure!(scenario["vacuous"] == json!([]), "{suite}: {scenario}");
    Ok(())
}

/// Returns true if an object was admitted that must be refused.
///
/// Suites make a fact, or set a policy to enforce, and make the object in one breath. Kyverno reads facts live; here
/// views learn of them some milliseconds later, and on a busy machine some more. Nothing but the race is forgiven: a
/// suite that fails so twice fails.
fn is_early(scenario: &Value) -> bool {
    let reason = scenario["reason"].as_str().unwrap_or_default();
    scenario["ok"] != true && reason.ends_with("expected ($error != null): true, got no error")
}

async fn has_python() -> bool {
    let found = Command::new("python3").args(["-c", "import yaml"]).output();
    found.await.is_ok_and(|output| output.status.success())
}

async fn run(world: &World, tool: &Path, corpus: &Path, suites: &[&str]) -> anyhow::Result<Value> {
    let results: PathBuf = world.folder.path().join("published.json");
    let only = format!("^({})$", suites.join("|"));
    let output = Command::new("python3")
        .arg(tool)
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig_file(Identity::Admin)?)
        .arg("--half")
        .arg(corpus)
        .arg("--json")
        .arg(&results)
        .args(["--no-controllers", "--only", &only])
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(serde_json::from_slice(&std::fs::read(results)?)?)
}

fn may_read_everything() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" },
        "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"] }],
    })
}

/// Has the API server serve a kind, whatever its objects hold.
async fn define(
    world: &World,
    (group, kind, plural, versions): &(&str, &str, &str, &[&str]),
) -> anyhow::Result<()> {
    let version = |(at, name): (usize, &&str)| {
        json!({ "name": name, "served": true, "storage": at == 0, "schema": { "openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true } } })
    };
    let versions: Vec<_> = versions.iter().enumerate().map(version).collect();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}"), "annotations": {
            "api-approved.kubernetes.io": "unapproved, experimental-only" } },
        "spec": { "group": group, "scope": "Namespaced", "versions": versions,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() } },
    });
    manifests::apply(&world.client, &definition).await?;
    let path = format!(
        "/apis/{group}/{}/{plural}",
        versions[0]["name"].as_str().context("a version")?
    );
    wait::until(&format!("{path} to be served"), async || {
        let request = http::Request::get(&path).body(Vec::new())?;
        world.client.request_text(request).await?;
        anyhow::Ok(())
    })
    .await
}
