//! All that a suite names, read.

use std::path::{Path, PathBuf};

use anteroom_policy::{Driver, PolicyException};
use serde_json::Value;

use crate::{
    context::Context,
    declared::DeclaredEntry,
    documents::{documents, manifests},
    loaded_policy::LoadedPolicy,
    request::User,
    resource::Resource,
    scenario::Scenario,
    suite::{Suite, SuiteError},
};

pub(crate) struct Loaded {
    pub(crate) scenario: Scenario,
    /// Kind and name of manifests that are policies of another language.
    pub(super) others: Vec<(String, String)>,
    /// Exceptions that do not compile: the policies that they are about, and why.
    pub(crate) broken: Vec<(Vec<String>, String)>,
    /// The inputs that were passed over.
    pub(super) remarks: Vec<String>,
}

/// Reads all that a suite names.
///
/// # Errors
/// One of its files cannot be used. Policies and exceptions that do not compile are listed apart.
pub(crate) fn load(suite: &Suite) -> Result<Loaded, SuiteError> {
    let (mut policies, mut others, mut declared) = (Vec::new(), Vec::new(), Vec::new());
    for path in unique(&suite.file.policies) {
        for manifest in manifests(&suite.at(path))? {
            let loaded = match suite.file.target_resources.is_empty() {
                true => LoadedPolicy::new(&manifest),
                false => LoadedPolicy::with_targets(&manifest),
            };
            // As in Kyverno, a suite's `globalContextEntries` alone say what a `GlobalContextEntry` has.
            let cached = DeclaredEntry::new(&manifest).filter(DeclaredEntry::is_cached);
            match loaded {
                Some(policy) => policies.push(policy),
                None if cached.is_some() => declared.extend(cached),
                None => {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let name = text(&manifest["metadata"]["name"]);
                    others.push((text(&manifest["kind"]), name));
                }
            }
        }
    }
    let mut resources = Vec::new();
    for path in unique(&suite.file.resources) {
        let manifests = manifests(&suite.at(path))?;
        resources.extend(manifests.into_iter().filter_map(Resource::new));
    }
    let mut targets = Vec::new();
    for path in unique(&suite.file.target_resources) {
        let manifests = manifests(&suite.at(path))?;
        targets.extend(manifests.into_iter().filter_map(Resource::new));
    }
    let mut loaded = Loaded {
        scenario: Scenario::new(policies, resources)
            .with_targets(targets)
            .with_entries(declared),
        others,
        broken: Vec::new(),
        remarks: Vec::new(),
    };
    for path in &suite.file.exceptions {
        for manifest in manifests(&suite.at(path))? {
            loaded.except(&manifest);
        }
    }
    let scenario = &mut loaded.scenario;
    for path in unique(&suite.file.old_resources) {
        let manifests = manifests(&suite.at(path))?;
        let before = manifests.into_iter().filter_map(Resource::new);
        scenario.before.extend(before);
    }
    for path in &suite.file.cluster_resources {
        let path = suite.at(path);
        for manifest in manifests(&path)? {
            let others = in_cluster(manifest, &path)?.into_iter();
            let others: Vec<_> = others.filter_map(Resource::new).collect();
            scenario.world.cluster.extend(others.iter().cloned());
            scenario.world.resources.extend(others);
        }
    }
    scenario.leaves_out = true;
    scenario.world.is_cluster = Some(!suite.file.cluster_resources.is_empty());
    scenario.variables = suite.variables()?;
    scenario.arrival = suite.arrival;
    if let Some(path) = &suite.file.userinfo {
        scenario.user = User::read(&suite.at(path))?;
    }
    scenario.world.entries = suite.file.global_context_entries.clone();
    scenario.world.responses = suite.file.api_call_responses.clone();
    for entry in &mut scenario.world.entries {
        for path in &entry.resource_files {
            let documents = documents(&suite.at(path))?;
            entry.resources.get_or_insert_default().extend(documents);
        }
    }
    if let Some(path) = &suite.file.context {
        scenario.take_context(Context::read(&suite.at(path))?);
    }
    scenario.name_kinds();
    Ok(loaded)
}

/// Each path once: a policy that is named twice is held against a resource once.
fn unique(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let mut found: Vec<&PathBuf> = Vec::new();
    for path in paths {
        if !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Returns the resources that a `ClusterResource` lists, with the definitions in the files that it names, relative to
/// its own; anything else is a resource itself.
///
/// # Errors
/// A file of definitions cannot be read.
fn in_cluster(mut manifest: Value, path: &Path) -> Result<Vec<Value>, SuiteError> {
    let is_list = manifest["kind"] == "ClusterResource"
        && manifest["apiVersion"]
            .as_str()
            .is_some_and(|version| version.starts_with("cli.kyverno.io/"));
    if !is_list {
        return Ok(vec![manifest]);
    }
    let mut found = match manifest["spec"]["resources"].take() {
        Value::Array(listed) => listed,
        _ => Vec::new(),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    for file in manifest["spec"]["crds"].as_array().into_iter().flatten() {
        let file = folder.join(file.as_str().unwrap_or_default());
        found.extend(manifests(&file)?);
    }
    Ok(found)
}

impl Loaded {
    /// An exception of another language is passed over; one that does not compile concerns the rows of its
    /// policies, and of all where it names none.
    fn except(&mut self, manifest: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&manifest["metadata"]["name"]);
        let version = text(&manifest["apiVersion"]);
        let groups = ["kyverno.io/", "policies.kyverno.io/"];
        if !version.is_empty() && !groups.iter().any(|group| version.starts_with(group)) {
            let remark =
                format!("exception {name} of {version} is not for policies that are run here");
            self.remarks.push(remark);
            return;
        }
        match PolicyException::compile(manifest, Driver::ALL) {
            Ok(exception) => self.scenario.exceptions.push(exception),
            Err(problems) => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                let listed = |list: &str, field: &str| -> Vec<String> {
                    let listed = manifest["spec"][list].as_array().into_iter().flatten();
                    listed.map(|of| text(&of[field])).collect()
                };
                let mut policies = listed("exceptions", "policyName");
                policies.extend(listed("policyRefs", "name"));
                let message = format!("exception {name}: {}", problems.join("; "));
                self.broken.push((policies, message));
            }
        }
    }
}
