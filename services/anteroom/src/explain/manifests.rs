//! The manifests that are explained: policies, and the entries that they read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anteroom_model::EntryKind;
use anteroom_policy::PolicyKind;
use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::input;

/// Manifests of one run; more is an error.
const MANIFESTS_MAX: usize = 10_000;

/// The manifests of the files, in their order.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub(super) policies: Vec<Value>,
    pub(super) entries: Vec<Entry>,
    /// Files in folders that could not be read.
    pub(super) passed_over: Vec<String>,
}

/// A manifest of an entry, as far as a reader of it needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    pub(super) name: String,
    /// It is on the answer of an API call, and no list of objects.
    pub(super) is_call: bool,
    /// Name and expression.
    pub(super) projections: Vec<(String, String)>,
}

impl Manifests {
    /// Reads files, folders with all files of manifests below them that are not hidden, and standard
    /// input (`-`).
    pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for path in paths {
            if path == Path::new("-") {
                found.take(input::documents(path)?)?;
                continue;
            }
            let mut files = Vec::new();
            gather(path, path.is_file(), &mut files)?;
            for file in files {
                match input::documents(&file) {
                    Ok(documents) => found.take(documents)?,
                    // A folder may hold other things than manifests.
                    Err(error) if path.is_dir() => found.passed_over.push(format!("{error:#}")),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// The entry that a reader means.
    pub(super) fn entry(&self, kind: EntryKind, name: &str) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.kind == kind && entry.name == name)
    }

    fn take(&mut self, documents: Vec<Value>) -> anyhow::Result<()> {
        for document in documents {
            if let Value::Object(list) = &document
                && document["kind"] == "List"
                && let Some(Value::Array(items)) = list.get("items")
            {
                self.take(items.clone())?;
            } else {
                self.take_one(document);
            }
        }
        if self.policies.len() + self.entries.len() > MANIFESTS_MAX {
            bail!("there are more than {MANIFESTS_MAX} manifests: name fewer files");
        }
        Ok(())
    }

    fn take_one(&mut self, document: Value) {
        let version = document["apiVersion"].as_str().unwrap_or_default();
        match document["kind"].as_str() {
            Some(kind) if PolicyKind::of_manifest(version, kind).is_some() => {
                self.policies.push(document);
            }
            Some("CachedContextEntry") => self.entries.push(entry(EntryKind::Cached, &document)),
            Some("GlobalContextEntry") => self.entries.push(entry(EntryKind::Global, &document)),
            _ => {}
        }
    }
}

fn entry(kind: EntryKind, manifest: &Value) -> Entry {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &manifest["spec"];
    let projections = spec["projections"].as_array().into_iter().flatten();
    let expression = |projection: &Value| {
        let written = ["jmesPath", "jmespath"].map(|field| &projection[field]);
        let written = written.into_iter().find(|value| value.is_string());
        text(written.unwrap_or(&Value::Null))
    };
    Entry {
        kind,
        name: text(&manifest["metadata"]["name"]),
        is_call: !spec["apiCall"].is_null(),
        projections: projections
            .map(|projection| (text(&projection["name"]), expression(projection)))
            .collect(),
    }
}

/// The file, or the files of manifests below the folder, in order.
fn gather(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if named || matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path.to_owned());
        }
        if !path.exists() {
            bail!("there is no {}", path.display());
        }
        return Ok(());
    }
    let list = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut inside = list
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    inside.sort();
    for path in inside {
        // What is hidden is no manifest of its folder, and a link may lead back up.
        let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
        let is_link = path.is_symlink() && path.is_dir();
        if !is_link && !path.file_name().is_some_and(is_hidden) {
            gather(&path, false, files)?;
        }
    }
    Ok(())
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
