//! Facts that policies of policies.kyverno.io read, where there is no cluster.
//!
//! The resources of a `Context` file and the `clusterResources` of a suite are the whole cluster: an object that is not
//! among them is absent. Otherwise the given resources answer, and of what is not among them nothing is known.

use anteroom_model::{FactError, LabelSelector};
use anteroom_policy::{FactRequest, FactSubject, ResolvedApiCall};
use serde_json::{Value, json};

use crate::{
    api_path::ApiPath,
    context::answered,
    facts::{Facts, Unanswered, World, nothing, unknown},
    resource::Resource,
};

impl Facts<'_> {
    /// Returns the value of a fact that an expression in CEL reads.
    pub(crate) fn answer_in_cel(&self, request: &FactRequest) -> Result<Value, Unanswered> {
        match &request.subject {
            FactSubject::Api(call) => self.world().read(call),
            FactSubject::Service { url, data } => {
                let response = self.world().response(url, data.is_some());
                response.map(answered).ok_or_else(|| nothing(url))
            }
            _ => self.answer(request),
        }
    }
}

/// Returns whether Kyverno's command line takes a fact for null where nothing is given that could answer: an object, or
/// an entry. Lists, images and answers of services are errors to it too.
pub(crate) fn may_be_null(subject: &FactSubject) -> bool {
    match subject {
        FactSubject::Api(call) => {
            let path = ApiPath::parse(&call.path);
            call.data.is_none() && path.is_some_and(|path| !path.name.is_empty())
        }
        FactSubject::Entry { .. } => true,
        _ => false,
    }
}

impl World {
    /// Returns the answer of the API server to `resource.get`, `resource.list` or `resource.post`.
    fn read(&self, call: &ResolvedApiCall) -> Result<Value, Unanswered> {
        let is_post = call.data.is_some();
        let path = ApiPath::parse(&call.path).filter(|_| !is_post);
        if let Some(response) = self.response(&call.path, is_post) {
            return match (response.status_code, &path) {
                (Some(404), Some(path)) if !path.name.is_empty() => Err(absent(path).into()),
                _ => Ok(response.data(&call.path)?),
            };
        }
        let Some(path) = path.filter(|path| path.subresource.is_empty()) else {
            return Err(nothing(&call.path));
        };
        let is_whole = self.context.is_some() || self.is_cluster == Some(true);
        let objects = match self.is_cluster {
            _ if is_whole => {
                let context = self.context.iter();
                let context = context.flat_map(|context| &context.resources);
                context.chain(&self.cluster).collect()
            }
            // The resources of a suite are only judged.
            Some(false) => Vec::new(),
            _ => self.given(|_| true),
        };
        let of_type = objects.into_iter().filter(|own| is_of(own, &path));
        let of_type: Vec<&Resource> = of_type.collect();
        if of_type.is_empty() && !is_whole {
            return Err(nothing(&call.path));
        }
        if path.name.is_empty() {
            return list(&path, of_type);
        }
        let mut all = of_type.into_iter();
        match all.find(|own| own.is_at(&path.namespace, &path.name)) {
            Some(found) => Ok(found.value.clone()),
            None if is_whole => Err(absent(&path).into()),
            None => Err(unknown(&call.path).into()),
        }
    }
}

fn is_of(own: &Resource, path: &ApiPath) -> bool {
    own.group == path.group && own.plural() == path.plural
}

fn absent(path: &ApiPath) -> FactError {
    FactError::ObjectNotFound {
        resource: path.plural.clone(),
        namespace: path.namespace.clone(),
        name: path.name.clone(),
    }
}

/// In the order of the API server.
fn list(path: &ApiPath, of_type: Vec<&Resource>) -> Result<Value, Unanswered> {
    let Ok(labels) = LabelSelector::parse(&path.label_selector) else {
        return Err(unknown(&path.label_selector).into());
    };
    let kind = of_type.first().map_or("", |first| &first.kind);
    let kind = format!("{kind}List");
    let mut items: Vec<&Resource> = of_type
        .into_iter()
        .filter(|own| path.namespace.is_empty() || own.namespace == path.namespace)
        .filter(|own| {
            let own_labels = &own.value["metadata"]["labels"];
            labels.matches(|name| own_labels.get(name)?.as_str())
        })
        .collect();
    items.sort_by_key(|own| (&own.namespace, &own.name));
    items.dedup_by_key(|own| (&own.namespace, &own.name));
    let items: Vec<_> = items.into_iter().map(|own| &own.value).collect();
    Ok(json!({"apiVersion": path.api_version, "kind": kind, "metadata": {}, "items": items}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::Context,
        suite::{ApiCallResponse, ResponseData},
    };

    fn map(namespace: &str, name: &str, labels: &Value) -> Resource {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        Resource::new(manifest).unwrap()
    }

    fn maps() -> Vec<Resource> {
        vec![
            map("n", "b", &json!({"x": "1"})),
            map("n", "a", &json!({})),
            map("m", "a", &json!({"x": "1"})),
        ]
    }

    /// The names that a read finds; `?`: nothing is known, `!`: not known, `-`: absent.
    fn read(world: &World, path: &str) -> String {
        let call = ResolvedApiCall {
            path: path.to_owned(),
            data: None,
            by_view: None,
        };
        match world.read(&call) {
            Ok(found) => match found["items"].as_array() {
                Some(items) => {
                    let names = items.iter().map(|one| {
                        let text =
                            |field: &str| one["metadata"][field].as_str().unwrap().to_owned();
                        format!("{}/{}", text("namespace"), text("name"))
                    });
                    names.collect::<Vec<_>>().join(" ")
                }
                None => found["metadata"]["name"].as_str().unwrap_or("?").to_owned(),
            },
            Err(Unanswered::Nothing(_)) => "?".to_owned(),
            Err(Unanswered::Failed(FactError::ObjectNotFound { .. })) => "-".to_owned(),
            Err(_) => "!".to_owned(),
        }
    }

    #[test]
    fn a_context_is_the_whole_cluster_and_other_resources_are_not() {
        let whole = World {
            context: Some(Context {
                resources: maps(),
                ..Context::default()
            }),
            is_cluster: Some(false),
            ..World::default()
        };
        let in_cluster = World {
            cluster: maps(),
            is_cluster: Some(true),
            ..World::default()
        };
        let given = World {
            resources: maps(),
            ..World::default()
        };
        let judged = World {
            resources: maps(),
            is_cluster: Some(false),
            ..World::default()
        };
        for (path, in_whole, in_given) in [
            ("/api/v1/configmaps", "m/a n/a n/b", "m/a n/a n/b"),
            ("/api/v1/namespaces/n/configmaps", "n/a n/b", "n/a n/b"),
            (
                "/api/v1/configmaps?labelSelector=x%3D1",
                "m/a n/b",
                "m/a n/b",
            ),
            ("/api/v1/namespaces/n/configmaps/b", "b", "b"),
            ("/api/v1/namespaces/n/configmaps/c", "-", "!"),
            ("/api/v1/namespaces/n/secrets/b", "-", "?"),
            ("/api/v1/secrets", "", "?"),
            ("/apis/a.b/v1/configmaps", "", "?"),
            ("/api/v1/namespaces/n/pods/a/log", "?", "?"),
            ("/version", "?", "?"),
        ] {
            assert_eq!(read(&whole, path), in_whole, "{path}");
            assert_eq!(read(&in_cluster, path), in_whole, "{path}");
            assert_eq!(read(&given, path), in_given, "{path}");
            assert_eq!(read(&judged, path), "?", "{path}");
        }
    }

    #[test]
    fn a_response_counts_before_resources() {
        let response = |url: &str, status_code, body| ApiCallResponse {
            url_path: url.to_owned(),
            response: ResponseData { status_code, body },
            ..ApiCallResponse::default()
        };
        let mocked = json!({"metadata": {"name": "mocked"}});
        let world = World {
            responses: vec![
                response("/api/v1/namespaces/n/configmaps/a", None, mocked),
                response("/api/v1/namespaces/n/configmaps/b", Some(404), Value::Null),
                response("/api/v1/secrets", Some(403), Value::Null),
            ],
            resources: maps(),
            ..World::default()
        };
        for (path, expected) in [
            ("/api/v1/namespaces/n/configmaps/a", "mocked"),
            ("/api/v1/namespaces/n/configmaps/b", "-"),
            ("/api/v1/namespaces/m/configmaps/a", "a"),
            ("/api/v1/secrets", "!"),
        ] {
            assert_eq!(read(&world, path), expected, "{path}");
        }
    }
}
