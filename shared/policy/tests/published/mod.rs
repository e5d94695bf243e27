//! The published policies, where they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The folder; `None`, with a line that says so, where it is not there.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/kyverno-policies");
    if !folder.is_dir() {
        let required = std::env::var_os("ANTEROOM_CORPUS_REQUIRED").is_some();
        assert!(!required, "there is no {}", folder.display());
        println!("skipped: there is no {}", folder.display());
        return None;
    }
    Some(folder)
}

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

/// Every policy with rules, as an API server serves it in `kyverno.io/v1`, and its file.
pub(crate) fn policies(folder: &Path) -> Vec<(PathBuf, Value)> {
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
            let version = document["apiVersion"].as_str();
            matches!(version, Some("kyverno.io/v1" | "kyverno.io/v2beta1"))
                && document["spec"]["rules"].is_array()
                && (document["kind"] == "ClusterPolicy" || document["kind"] == "Policy")
        })
        .map(|(path, mut document)| {
            document["apiVersion"] = "kyverno.io/v1".into();
            (path, document)
        })
        .collect()
}
