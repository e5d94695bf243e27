//! `kyverno-test.yaml`: the policies, the resources and the expected results of a test.

use std::path::{Path, PathBuf};

use anteroom_policy::{Arrival, PolicyKind};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    documents::{InputError, check_kind, documents, shape_message},
    resource::Resource,
    values::{Values, Variables},
};

/// The reason why a suite cannot be run.
#[derive(Debug, Error)]
pub enum SuiteError {
    /// One of its files cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The file is not a suite.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The position in the file, and the fault there.
        message: String,
    },
}

/// A suite as it is written.
#[derive(Debug)]
pub struct Suite {
    /// The file; paths in it are relative to its folder.
    pub path: PathBuf,
    /// Its name for people.
    pub name: String,
    /// The time and the seed of its requests. Without them, rules that read the time or random numbers fail.
    pub arrival: Option<Arrival>,
    pub(crate) file: SuiteFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct SuiteFile {
    #[serde(rename = "apiVersion")]
    _api_version: Value,
    #[serde(rename = "kind")]
    _kind: Value,
    name: Option<String>,
    metadata: Metadata,
    pub(crate) policies: Vec<PathBuf>,
    pub(crate) resources: Vec<PathBuf>,
    /// The files of resources as they were before an update: each of the resource of its kind and name.
    pub(crate) old_resources: Vec<PathBuf>,
    /// A file of values.
    pub(crate) variables: Option<PathBuf>,
    /// Values that are written in the suite itself, rather than in a file.
    pub(crate) values: Option<Values>,
    #[serde(alias = "userInfo")]
    pub(crate) userinfo: Option<PathBuf>,
    pub(crate) global_context_entries: Vec<EntryData>,
    pub(crate) results: Vec<Expected>,
    /// Files of `PolicyException`s.
    pub(crate) exceptions: Vec<PathBuf>,
    /// Fields that are not evaluated, as the result reports.
    pub(crate) checks: Vec<Value>,
    /// The files of objects that rules with `mutate.targets` change.
    pub(crate) target_resources: Vec<PathBuf>,
    /// A `Context` file, for policies in CEL.
    pub(crate) context: Option<PathBuf>,
    // About policies of other languages.
    #[serde(rename = "jsonPayload")]
    _json_payload: Value,
    #[serde(rename = "jsonPayloads")]
    _json_payloads: Value,
    #[serde(rename = "paramResources")]
    _param_resources: Value,
    #[serde(rename = "httpPayloads")]
    _http_payloads: Value,
    #[serde(rename = "envoyPayloads")]
    _envoy_payloads: Value,
    /// The files of objects in the cluster, beside the resources that are held against policies.
    pub(crate) cluster_resources: Vec<PathBuf>,
    #[serde(rename = "apiCallResponses")]
    pub(crate) api_call_responses: Vec<ApiCallResponse>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    name: Option<String>,
}

/// The data of a `GlobalContextEntry`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct EntryData {
    pub(crate) name: String,
    pub(crate) data: Option<Value>,
    pub(crate) resources: Option<Vec<Value>>,
    pub(crate) resource_files: Vec<PathBuf>,
    /// The JMESPath over the data, or of the list of resources, as in `[].metadata.name`.
    pub(crate) field_path: Option<String>,
    pub(crate) projections: Vec<ProjectionData>,
    /// A projection of which nothing is given is the data itself, as in a `Context` file.
    #[serde(skip)]
    pub(crate) stands_for_projections: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ProjectionData {
    pub(crate) name: String,
    #[serde(alias = "jmesPath")]
    pub(crate) path: String,
}

/// The answer of an API call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ApiCallResponse {
    #[serde(alias = "url")]
    pub(crate) url_path: String,
    pub(crate) method: Option<String>,
    pub(crate) response: ResponseData,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ResponseData {
    pub(crate) status_code: Option<u16>,
    pub(crate) body: Value,
}

impl SuiteFile {
    /// An address among the files that are named.
    fn elsewhere(&self) -> Option<String> {
        let lists = [
            &self.policies,
            &self.resources,
            &self.old_resources,
            &self.exceptions,
            &self.cluster_resources,
            &self.target_resources,
        ];
        let single = [&self.variables, &self.userinfo, &self.context];
        let single = single.into_iter().flatten();
        let mut all = lists.into_iter().flatten().chain(single);
        let url = all.find(|path| path.to_string_lossy().contains("://"))?;
        Some(url.display().to_string())
    }
}

/// The expected result of one rule on some resources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expected {
    /// The policy's name, as `namespace/name` for a namespaced policy.
    pub policy: String,
    /// The rule's name; those of rules that are derived from it count too. Policies of policies.kyverno.io have no rules
    /// with names, and pass it over.
    pub rule: String,
    /// `pass`, `fail`, `warn`, `error` or `skip`.
    #[serde(alias = "status")]
    pub result: String,
    /// The kind of the resources.
    pub kind: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`; without one, what values say.
    #[serde(alias = "resourceOperation")]
    pub operation: Option<String>,
    /// Their names; all of the kind, where there is none.
    pub resources: Vec<String>,
    /// The resources, named by their parts rather than by one text.
    pub(crate) resource_specs: Vec<ResourceSpec>,
    pub(crate) resource: Option<String>,
    pub(crate) namespace: Option<String>,
    /// The file with what the resource has become.
    #[serde(alias = "patchedResource")]
    pub patched_resources: Option<PathBuf>,
    /// A resource that the file does not name is a failure.
    pub fail_on_missing_resources: bool,
    /// The file with what is generated, which is not run.
    pub generated_resource: Option<PathBuf>,
    pub(crate) generated_resources: Vec<PathBuf>,
    pub(crate) clone_source_resource: Option<PathBuf>,
    pub(crate) is_validating_admission_policy: bool,
    pub(crate) is_validating_policy: bool,
    pub(crate) is_image_validating_policy: bool,
    pub(crate) is_mutating_policy: bool,
    pub(crate) is_mutating_admission_policy: bool,
    pub(crate) is_generating_policy: bool,
    pub(crate) is_deleting_policy: bool,
}

/// A resource, as far as its parts are given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ResourceSpec {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    /// The kind says it.
    #[serde(rename = "subresource")]
    _subresource: String,
    pub(crate) name: String,
}

impl ResourceSpec {
    pub(crate) fn is(&self, resource: &Resource) -> bool {
        let parts = [
            (&self.group, &resource.group),
            (&self.version, &resource.version),
            (&self.kind, &resource.kind),
            (&self.namespace, &resource.namespace),
            (&self.name, &resource.name),
        ];
        let mut parts = parts.into_iter();
        parts.all(|(wanted, own)| wanted.is_empty() || wanted == own)
    }

    /// The resource, as in `Pod/default/web`.
    pub(crate) fn title(&self) -> String {
        let parts = [&*self.kind, &*self.namespace, &*self.name];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("/")
    }
}

impl Expected {
    /// Returns whether the expected result may be about a policy of a kind. A result without a kind matches policies of
    /// every kind.
    pub(crate) fn is_about(&self, kind: PolicyKind) -> bool {
        match (self.is_validating_policy, self.is_mutating_policy) {
            (false, false) => true,
            (true, _) if kind.is_cel() && !kind.is_mutating() => true,
            (_, is_mutating) => is_mutating && kind.is_mutating(),
        }
    }

    /// Returns whether the row names the kind of its policy.
    pub(crate) fn says_kind(&self) -> bool {
        self.said_kind().is_some()
    }

    /// Returns the field in which the row names the kind of its policy, and the kind.
    pub(crate) fn said_kind(&self) -> Option<(&'static str, &'static str)> {
        match (self.is_validating_policy, self.is_mutating_policy) {
            (true, _) => Some(("isValidatingPolicy", "ValidatingPolicy")),
            (false, true) => Some(("isMutatingPolicy", "MutatingPolicy")),
            (false, false) => None,
        }
    }

    /// The note on a policy of another language, which is not run.
    pub(crate) fn other_language(&self) -> Option<&'static str> {
        [
            (
                self.is_validating_admission_policy,
                "ValidatingAdmissionPolicy",
            ),
            (self.is_mutating_admission_policy, "MutatingAdmissionPolicy"),
            (self.is_image_validating_policy, "ImageValidatingPolicy"),
            (self.is_generating_policy, "GeneratingPolicy"),
            (self.is_deleting_policy, "DeletingPolicy"),
        ]
        .into_iter()
        .find_map(|(is, name)| is.then_some(name))
    }
}

impl Suite {
    /// Reads the suites of a file: one for each of its documents.
    ///
    /// # Errors
    /// The file cannot be read or is empty, or that one is no suite: a field that is not known is one
    /// that would be passed over.
    pub fn read(path: &Path) -> Result<Vec<Self>, SuiteError> {
        let malformed = |message: String| SuiteError::Malformed {
            path: path.to_owned(),
            message,
        };
        let documents = documents(path)?;
        if documents.is_empty() {
            return Err(malformed("it is empty".to_owned()));
        }
        let suite = |mut document: Value| {
            check_kind(&document, &["Test"]).map_err(|message| {
                malformed(format!(
                    "{message}: `anteroom test` runs suites of expected results, and `anteroom apply` policies on \
                     resources"
                ))
            })?;
            leave_out_nulls(&mut document);
            let file = SuiteFile::deserialize(document);
            let file: SuiteFile = file.map_err(|error| malformed(shape_message(&error)))?;
            if let Some(url) = file.elsewhere() {
                return Err(malformed(format!(
                    "{url} is not read: nothing is fetched from elsewhere; fetch it, and name the file"
                )));
            }
            let name = file.metadata.name.clone().or_else(|| file.name.clone());
            let otherwise = || path.display().to_string();
            Ok(Self {
                name: name.unwrap_or_else(otherwise),
                path: path.to_owned(),
                arrival: None,
                file,
            })
        };
        documents.into_iter().map(suite).collect()
    }

    /// The expected results, in the file's order.
    pub fn expected(&self) -> &[Expected] {
        &self.file.results
    }

    /// A path that the file names.
    pub(crate) fn at(&self, path: &Path) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        folder.join(path)
    }

    /// The values of its variables, out of the file, or else of the one that it names.
    ///
    /// # Errors
    /// The other file cannot be read.
    pub(crate) fn variables(&self) -> Result<Variables, SuiteError> {
        let mut variables = Variables::default();
        match (&self.file.values, &self.file.variables) {
            (Some(values), _) => variables.add(values.clone()),
            (None, Some(path)) => variables.add(Values::read(&self.at(path))?),
            (None, None) => {}
        }
        Ok(variables)
    }
}

/// A field with nothing behind it is as none, and so is an empty name of a file. Within values a null is a
/// value.
pub(crate) fn leave_out_nulls(document: &mut Value) {
    let Value::Object(fields) = document else {
        return;
    };
    fields.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
    for (name, value) in fields {
        match value {
            // Those of a suite have fields of their own; those of a policy's are anything.
            Value::Object(inside) if name == "values" && inside.contains_key("policies") => {
                leave_out_nulls(value);
            }
            Value::Array(elements) if LISTS.contains(&name.as_str()) => {
                elements.iter_mut().for_each(leave_out_nulls);
            }
            _ => {}
        }
    }
}

/// Lists of what has fields.
const LISTS: &[&str] = &[
    "apiCallResponses",
    "globalContextEntries",
    "namespaceSelector",
    "policies",
    "resources",
    "resourceSpecs",
    "results",
    "rules",
    "subresources",
];

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn suite(text: &str) -> Result<Suite, SuiteError> {
        read(text).map(|mut suites| suites.pop().unwrap())
    }

    fn read(text: &str) -> Result<Vec<Suite>, SuiteError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kyverno-test.yaml");
        fs::write(&path, text).unwrap();
        Suite::read(&path)
    }

    #[test]
    fn a_suite_is_read_and_unknown_fields_are_reported() {
        let suite = suite(
            "metadata: {name: s}\npolicies: [../p.yaml]\nresources: [r.yaml]\n\
             results: [{policy: p, rule: r, kind: Pod, resources: [a], status: skip}]",
        )
        .unwrap();
        assert_eq!(suite.name, "s");
        assert_eq!(suite.expected()[0].result, "skip");
        assert!(suite.at(Path::new("../p.yaml")).ends_with("../p.yaml"));
    }

    #[test]
    fn a_file_may_hold_many_suites_with_their_own_values() {
        let suites = read(
            "name: a\nvariables: none.yaml\nvalues: {globalValues: {x: 1}}\n\
             httpPayloads: [h.json]\nenvoyPayloads: [e.json]\n---\nname: b",
        )
        .unwrap();
        let names: Vec<_> = suites.iter().map(|suite| &*suite.name).collect();
        assert_eq!(names, ["a", "b"]);
        // What stands in the suite counts alone.
        let values = suites[0].variables().unwrap();
        assert_eq!(values.of_resource("p", "r")["x"], 1);
    }

    #[test]
    fn an_empty_field_of_a_suite_counts_as_absent() {
        let suite = suite(
            "name: a\npolicies:\nresources:\nvariables: \"\"\nuserinfo:\nexceptions:\n\
             values: {globalValues: {x: null}, policies: [{name: p, rules: , resources: [\
             {name: r, values: {y: null, z: \"\"}}]}], namespaceSelector: }\n\
             results: [{policy: p, rule: r, kind: , resources: , patchedResource: \"\", result: skip}]",
        )
        .unwrap();
        let expected = &suite.expected()[0];
        assert_eq!((&*expected.kind, &expected.patched_resources), ("", &None));
        assert!(suite.file.variables.is_none());
        let values = suite.variables().unwrap().of_resource("p", "r");
        let expected = serde_json::json!({"x": null, "y": null, "z": ""});
        assert_eq!(Value::Object(values), expected);
    }

    #[test]
    fn a_malformed_suite_is_refused_with_its_reason() {
        for (text, says) in [
            (
                "policies: [a.yaml, \"https://h/p.yaml\"]",
                "https://h/p.yaml is not read",
            ),
            ("", "it is empty"),
            ("results: []\n---\nb: 1", "unknown field `b`"),
            ("polices: []", "polices"),
            ("results: [{rool: a}]", "rool"),
            ("results: 3", "invalid type"),
        ] {
            let error = suite(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
