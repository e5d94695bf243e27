//! The manifests that are explained: policies, and the entries that they read.

use std::path::PathBuf;

use anteroom_model::EntryKind;
use anteroom_policy::PolicyKind;
use anyhow::bail;
use serde_json::Value;

use crate::input;

/// Manifests of one run; more is an error.
pub(crate) const MANIFESTS_MAX: usize = 10_000;

/// The manifests of the files, in their order.
#[derive(Debug, Default)]
pub(crate) struct Manifests {
    pub(crate) policies: Vec<Value>,
    pub(super) entries: Vec<EntryManifest>,
    /// Files in folders that could not be read.
    pub(super) passed_over: Vec<String>,
    /// Policies of Kyverno's groups whose kind is not run here, by kind and name.
    pub(super) not_run: Vec<String>,
}

/// A manifest of an entry, as far as a reader of it needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EntryManifest {
    pub(super) kind: EntryKind,
    pub(super) name: String,
    /// The entry is on the answer of an API call, and no list of objects.
    pub(super) is_call: bool,
    /// Name and expression.
    pub(super) projections: Vec<(String, String)>,
}

impl Manifests {
    /// Reads the policies and entries of files, folders, and standard input (`-`).
    pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let found = input::manifests(paths)?;
        let mut manifests = Self::of(found.documents)?;
        manifests.passed_over = found.passed_over;
        Ok(manifests)
    }

    /// Takes the policies and entries among documents.
    pub(crate) fn of(documents: Vec<Value>) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for document in documents {
            found.take_one(document);
        }
        if found.policies.len() + found.entries.len() > MANIFESTS_MAX {
            bail!("there are more than {MANIFESTS_MAX} manifests: name fewer files");
        }
        Ok(found)
    }

    /// The entry that a reader means.
    pub(super) fn entry(&self, kind: EntryKind, name: &str) -> Option<&EntryManifest> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.kind == kind && entry.name == name)
    }

    fn take_one(&mut self, document: Value) {
        let version = document["apiVersion"].as_str().unwrap_or_default();
        match document["kind"].as_str() {
            Some(kind) if PolicyKind::of_manifest(version, kind).is_some() => {
                self.policies.push(document);
            }
            Some("CachedContextEntry") => self.entries.push(entry(EntryKind::Cached, &document)),
            Some("GlobalContextEntry") => self.entries.push(entry(EntryKind::Global, &document)),
            Some(kind) if kind.ends_with("Policy") && is_kyverno(version) => {
                let name = document["metadata"]["name"].as_str().unwrap_or_default();
                self.not_run.push(format!("{kind} {name}"));
            }
            _ => {}
        }
    }
}

fn is_kyverno(version: &str) -> bool {
    let group = version.split('/').next().unwrap_or_default();
    group == "kyverno.io" || group.ends_with(".kyverno.io")
}

fn entry(kind: EntryKind, manifest: &Value) -> EntryManifest {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &manifest["spec"];
    let projections = spec["projections"].as_array().into_iter().flatten();
    let expression = |projection: &Value| {
        let written = ["jmesPath", "jmespath"].map(|field| &projection[field]);
        let written = written.into_iter().find(|value| value.is_string());
        text(written.unwrap_or(&Value::Null))
    };
    EntryManifest {
        kind,
        name: text(&manifest["metadata"]["name"]),
        is_call: !spec["apiCall"].is_null(),
        projections: projections
            .map(|projection| (text(&projection["name"]), expression(projection)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_and_entries_are_found_in_files_folders_and_lists() {
        let folder = tempfile::tempdir().unwrap();
        let policy = |name: &str| {
            json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name},
            })
        };
        let global = json!({
            "apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry",
            "metadata": {"name": "teams"},
            "spec": {"projections": [{"name": "names", "jmesPath": "[].metadata.name"}]},
        });
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text);
        write(
            "a.yaml",
            format!("{}\n---\n{}\n", policy("a"), json!({"kind": "Pod"})),
        )
        .unwrap();
        write(
            "list.json",
            json!({"kind": "List", "items": [policy("b"), global]}).to_string(),
        )
        .unwrap();
        let images = json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "ImageValidatingPolicy", "metadata": {"name": "images"},
        });
        write("images.json", images.to_string()).unwrap();
        write("notes.txt", "not a manifest".to_owned()).unwrap();
        write("broken.yaml", "a: [".to_owned()).unwrap();
        write(".hidden.yaml", policy("hidden").to_string()).unwrap();
        let found = Manifests::read(&[folder.path().to_owned()]).unwrap();
        assert_eq!(found.policies, [policy("a"), policy("b")]);
        let entry = found.entry(EntryKind::Global, "teams").unwrap();
        assert_eq!(
            entry.projections,
            [("names".into(), "[].metadata.name".into())]
        );
        assert_eq!(found.entry(EntryKind::Cached, "teams"), None);
        assert!(found.passed_over[0].contains("broken.yaml"));
        assert_eq!(found.not_run, ["ImageValidatingPolicy images"]);
    }

    #[test]
    fn a_file_that_is_named_has_to_be_readable() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("broken.yaml");
        std::fs::write(&broken, "a: [").unwrap();
        let error = Manifests::read(&[broken]).unwrap_err();
        assert!(error.to_string().contains("broken.yaml"), "{error}");
        let error = Manifests::read(&["no/such/file".into()]).unwrap_err();
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }
}
