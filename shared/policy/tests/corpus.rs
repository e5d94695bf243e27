//! The published Kyverno policies: each compiles, or says which of its fields keep it from it.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anteroom_policy::{Problem, compile};
use serde_json::Value;

fn manifests(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            manifests(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(path);
        }
    }
}

fn policies(folder: &Path) -> Vec<(PathBuf, Value)> {
    let mut paths = Vec::new();
    manifests(folder, &mut paths);
    paths.sort();
    let documents = paths.into_iter().flat_map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_default();
        documents
            .into_iter()
            .map(move |document| (path.clone(), document))
    });
    documents
        .filter(|(_, document)| {
            // Without rules it is what a test expects of a policy's status.
            document["apiVersion"] == "kyverno.io/v1"
                && document["spec"]["rules"].is_array()
                && (document["kind"] == "ClusterPolicy" || document["kind"] == "Policy")
        })
        .collect()
}

/// The field that a problem is about, without its place: `validate.pattern`.
fn field(problem: &Problem) -> String {
    let names: Vec<&str> = problem
        .path
        .split('.')
        .map(|name| name.split('[').next().unwrap_or_default())
        .collect();
    names[names.len().saturating_sub(2)..].join(".")
}

#[test]
fn every_policy_compiles_or_says_why_not() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/kyverno-policies");
    if !folder.is_dir() {
        println!("skipped: there is no {}", folder.display());
        return;
    }
    let policies = policies(&folder);
    assert!(
        policies.len() > 50,
        "only {} policies were found",
        policies.len()
    );
    let (mut compiled, mut fields) = (0, BTreeMap::<String, usize>::new());
    for (path, manifest) in &policies {
        match compile(manifest) {
            Ok(_) => compiled += 1,
            Err(problems) => {
                assert!(!problems.is_empty(), "{}", path.display());
                for problem in &problems {
                    assert!(
                        !problem.path.is_empty() && !problem.message.is_empty(),
                        "{problem}"
                    );
                    if problem.code.as_str() == "AR302" {
                        println!(
                            "{}: {problem}",
                            path.strip_prefix(&folder).unwrap().display()
                        );
                    }
                }
                let mut named: Vec<_> = problems.iter().map(field).collect();
                named.sort();
                named.dedup();
                named
                    .into_iter()
                    .for_each(|name| *fields.entry(name).or_default() += 1);
            }
        }
    }
    println!("{} policies, {compiled} compiled", policies.len());
    for (field, count) in fields {
        println!("{count:5} {field}");
    }
}

/// Policies that read the cluster, as they are published: what stands in the way of the others is a
/// way to validate, or to mutate, and no source of facts but image registries.
const RUNNING: &[&str] = &[
    "kasten/kasten-hourly-rpo/kasten-hourly-rpo.yaml",
    "linkerd/check-linkerd-authorizationpolicy/check-linkerd-authorizationpolicy.yaml",
    "linkerd/require-linkerd-server/require-linkerd-server.yaml",
    "openshift/unique-routes/unique-routes.yaml",
    "other/advanced-restrict-image-registries/advanced-restrict-image-registries.yaml",
    "other/block-pod-exec-by-namespace-label/block-pod-exec-by-namespace-label.yaml",
    "other/check-vpa-configuration/check-vpa-configuration.yaml",
    "other/ensure-production-matches-staging/ensure-production-matches-staging.yaml",
    "other/pdb-maxunavailable-with-deployments/pdb-maxunavailable-with-deployments.yaml",
    "other/pdb-minavailable/pdb-minavailable.yaml",
    "other/require-netpol/require-netpol.yaml",
    "other/require-replicas-allow-disruption/require-replicas-allow-disruption.yaml",
    "other/require-unique-external-dns/require-unique-external-dns.yaml",
    "other/require-unique-uid-per-workload/require-unique-uid-per-workload.yaml",
    "other/restrict-ingress-host/restrict-ingress-host.yaml",
];

/// Points C and D.
#[test]
fn published_policies_that_read_the_cluster_compile_unchanged() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/kyverno-policies");
    if !folder.is_dir() {
        println!("skipped: there is no {}", folder.display());
        return;
    }
    let mut running: Vec<String> = policies(&folder)
        .into_iter()
        .filter(|(_, manifest)| {
            let rules = manifest["spec"]["rules"].to_string();
            let reads = rules.contains("\"apiCall\":") || rules.contains("\"configMap\":");
            reads && compile(manifest).is_ok()
        })
        .map(|(path, _)| path.strip_prefix(&folder).unwrap().display().to_string())
        .filter(|path| !path.contains("/."))
        .collect();
    running.dedup();
    println!("{running:#?}");
    let lost: Vec<_> = RUNNING
        .iter()
        .filter(|name| folder.join(name).is_file() && !running.iter().any(|found| found == *name))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}
