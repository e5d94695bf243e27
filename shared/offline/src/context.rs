//! `Context` files of Kyverno's command line: what stands for a cluster, for registries and for services.

use std::path::{Path, PathBuf};

use anteroom_policy::service_answer;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    documents::{InputError, documents, shape_message},
    resource::Resource,
    suite::{ApiCallResponse, EntryData, ResponseData, leave_out_nulls},
};

/// A file of context for policies in CEL. Its resources are all that there are in the cluster.
#[derive(Debug, Default)]
pub struct Context {
    pub(crate) resources: Vec<Resource>,
    /// The data of images, by the reference that a policy asks for.
    pub(crate) images: Vec<(String, Value)>,
    pub(crate) entries: Vec<EntryData>,
    pub(crate) responses: Vec<ApiCallResponse>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ContextFile {
    #[serde(rename = "apiVersion")]
    _api_version: Value,
    #[serde(rename = "kind")]
    _kind: Value,
    #[serde(rename = "metadata")]
    _metadata: Value,
    spec: ContextSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ContextSpec {
    resources: Vec<Value>,
    images: Vec<Value>,
    global_context: Vec<GlobalData>,
    http: Vec<HttpStub>,
}

/// The data of an entry, or of a projection of it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GlobalData {
    name: String,
    projection: String,
    value: Value,
    /// Counts before `value`.
    value_file: Option<PathBuf>,
}

/// The answer of a service.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct HttpStub {
    method: Option<String>,
    url: String,
    status: Option<u16>,
    /// No expression reads them.
    #[serde(rename = "headers")]
    _headers: Value,
    body: Value,
    /// Counts before `body`.
    body_file: Option<PathBuf>,
}

impl Context {
    /// Reads a file. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// It cannot be read, is no `Context`, or names a file that cannot be read.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let malformed = |message: String| InputError::Malformed {
            path: path.to_owned(),
            message,
        };
        let mut found = Self::default();
        for mut document in documents(path)? {
            if document["kind"] != "Context" {
                let wanted = "it is no Context of cli.kyverno.io: its `kind` has to be `Context`";
                return Err(malformed(wanted.to_owned()));
            }
            leave_out_nulls(&mut document);
            if let Some(spec) = document.get_mut("spec") {
                leave_out_nulls(spec);
            }
            let file = ContextFile::deserialize(document);
            let file = file.map_err(|error| malformed(shape_message(&error)))?;
            found.add(file.spec, path)?;
        }
        Ok(found)
    }

    fn add(&mut self, spec: ContextSpec, path: &Path) -> Result<(), InputError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let either = |file: Option<PathBuf>, value: Value| match file {
            Some(file) => Ok(documents(&folder.join(file))?.pop().unwrap_or_default()),
            None => Ok(value),
        };
        let resources = spec.resources.into_iter();
        self.resources.extend(resources.filter_map(Resource::new));
        let images = spec.images.into_iter().filter_map(|image| {
            let reference = image["image"].as_str()?.to_owned();
            Some((reference, image))
        });
        self.images.extend(images);
        for given in spec.global_context {
            let name = match &*given.projection {
                "" => given.name,
                projection => format!("{}.{projection}", given.name),
            };
            self.entries.push(EntryData {
                name,
                data: Some(either(given.value_file, given.value)?),
                stands_for_projections: true,
                ..EntryData::default()
            });
        }
        for stub in spec.http {
            self.responses.push(ApiCallResponse {
                url_path: stub.url,
                method: stub.method,
                response: ResponseData {
                    status_code: stub.status,
                    body: either(stub.body_file, stub.body)?,
                },
            });
        }
        Ok(())
    }

    /// Adds the content of another file.
    pub(crate) fn unite(&mut self, other: Self) {
        self.resources.extend(other.resources);
        self.images.extend(other.images);
        self.entries.extend(other.entries);
        self.responses.extend(other.responses);
    }

    /// The data of an image.
    pub(crate) fn image(&self, reference: &str) -> Option<&Value> {
        let mut all = self.images.iter();
        let found = all.find(|(known, _)| known == reference);
        found.map(|(_, data)| data)
    }
}

/// The answer of a service with any HTTP status, as expressions see the answer.
pub(crate) fn answered(response: &ResponseData) -> Value {
    let status = response.status_code.filter(|code| *code != 0);
    service_answer(status.unwrap_or(200), response.body.clone())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_context_file_gives_resources_images_entries_and_answers() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("value.yaml", "a: 1");
        write(
            "context.yaml",
            "apiVersion: cli.kyverno.io/v1alpha1\nkind: Context\nmetadata: {name: c}\nspec:\n  \
             resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: shop}}]\n  \
             images: [{image: 'x:1', config: {Env: []}}]\n  \
             globalContext: [{name: e, valueFile: value.yaml}, {name: e, projection: p, value: [1]}]\n  \
             http: [{method: GET, url: 'http://a/b', status: 404, body: {x: 1}}, {method: POST, url: 'http://a/b', body: [2]}]\n",
        );
        let context = Context::read(&folder.path().join("context.yaml")).unwrap();
        assert_eq!(context.resources[0].title(), "ConfigMap/shop/m");
        assert_eq!(context.image("x:1").unwrap()["config"]["Env"], json!([]));
        assert_eq!(context.image("x:2"), None);
        let entries: Vec<_> = context
            .entries
            .iter()
            .map(|own| (&*own.name, &own.data))
            .collect();
        assert_eq!(
            entries,
            [("e", &Some(json!({"a": 1}))), ("e.p", &Some(json!([1])))]
        );
        let answers: Vec<_> = context
            .responses
            .iter()
            .map(|own| answered(&own.response))
            .collect();
        assert_eq!(
            answers,
            [
                json!({"x": 1, "statusCode": 404}),
                json!({"body": [2], "statusCode": 200})
            ]
        );
        for (text, says) in [
            ("kind: Values", "no Context"),
            ("kind: Context\nspec: {images: 3}", "invalid type"),
            ("kind: Context\nspec: {image: []}", "unknown field"),
            (
                "kind: Context\nspec: {http: [{url: a, bodyFile: none.yaml}]}",
                "none.yaml",
            ),
        ] {
            write("bad.yaml", text);
            let error = Context::read(&folder.path().join("bad.yaml")).unwrap_err();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }
}
