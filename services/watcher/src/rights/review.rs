//! The questions: SelfSubjectReview and SelfSubjectAccessReview.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Need;
use crate::{apiserver::ApiServer, discovery::Catalog};
use anteroom_model::KindRecord;

/// The largest answer.
const BYTES_MAX: usize = 1024 * 1024;

/// What it takes to change an object: the watcher reads it, alone or in a list, and writes it.
const VERBS: [&str; 3] = ["get", "list", "update"];

/// As whom this watcher is known to the API server.
///
/// # Errors
/// For the log.
pub(crate) async fn user(api: &ApiServer) -> Result<String, String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let said = post(
        api,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &review,
    )
    .await?;
    let user = said["status"]["userInfo"]["username"].as_str();
    let user = user.filter(|user| !user.is_empty());
    user.map(str::to_owned)
        .ok_or_else(|| "the answer names no user".to_owned())
}

/// What lacks of a need; `None`: nothing.
pub(super) async fn ask(
    api: &ApiServer,
    catalog: &Catalog,
    need: &Need,
) -> Result<Option<String>, String> {
    let mut records = catalog.resources.iter().map(|resource| &resource.record);
    let record = records.find(|record| {
        let gvr = &record.gvr;
        (&gvr.group, &gvr.version, &record.kind) == (&need.group, &need.version, &need.kind)
    });
    match record {
        Some(record) => lacking(api, record, &need.namespace, &need.name).await,
        None => {
            let api_version = match &*need.group {
                "" => need.version.clone(),
                group => format!("{group}/{}", need.version),
            };
            let kind = &need.kind;
            Ok(Some(format!(
                "the API server serves no kind `{kind}` of `{api_version}`"
            )))
        }
    }
}

/// What this watcher lacks to change objects of a kind, and what to grant; `None`: nothing. Without a namespace or
/// a name, those of all.
///
/// # Errors
/// Where the API server does not say.
pub(crate) async fn lacking(
    api: &ApiServer,
    kind: &KindRecord,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, String> {
    let mut lacks = Vec::new();
    for verb in VERBS {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": kind.gvr.group, "version": kind.gvr.version,
                "resource": kind.gvr.resource, "name": name,
                "namespace": if kind.namespaced { namespace } else { "" },
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        match post(api, path, &review).await?["status"]["allowed"].as_bool() {
            Some(true) => {}
            Some(false) => lacks.push(verb),
            None => return Err("the answer says nothing".to_owned()),
        }
    }
    Ok((!lacks.is_empty()).then(|| {
        let lacks = lacks.join(", ");
        format!("the watcher may not {lacks} {}. {}", kind.kind, grant(kind))
    }))
}

/// What an administrator does about it.
pub(crate) fn grant(kind: &KindRecord) -> String {
    let (group, resource) = (&kind.gvr.group, &kind.gvr.resource);
    format!(
        "Grant the watcher `get`, `list` and `update` on `{resource}` of the API group `{group}`: by a ClusterRole \
         with the label `anteroom.dev/aggregate-to-watcher-writes: \"true\"`"
    )
}

async fn post(api: &ApiServer, path: &str, review: &Value) -> Result<Value, String> {
    let body = Bytes::from(review.to_string());
    let asked = api.call(path, Some(body), BYTES_MAX).await;
    let (code, said) = asked.map_err(|fault| fault.to_string())?;
    match (200..300).contains(&code) {
        true => serde_json::from_slice(&said).map_err(|error| error.to_string()),
        false => Err(format!("the API server answered {code}")),
    }
}
