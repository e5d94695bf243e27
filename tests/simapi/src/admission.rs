//! Admission: the webhooks that objects in the store register. Mutating webhooks are called first, in sequence, then
//! validating webhooks in parallel.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    metadata::Identity,
    resource::{ResourceName, ResourceType},
    status::Failure,
    store::{NAMESPACES, Store},
};

mod change;
mod client;
mod rules;

use rules::{Configuration, Webhook};

pub(crate) use change::change;

pub(crate) const CONFIGURATIONS: &str =
    "validatingwebhookconfigurations.admissionregistration.k8s.io";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request that is to be admitted.
#[derive(Clone, Copy)]
pub(crate) struct Review<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a ResourceType,
    pub(crate) version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) object: Option<&'a Value>,
    pub(crate) old_object: Option<&'a Value>,
}

/// The patch and the warnings of a webhook that admits.
#[derive(Default)]
struct Admitted {
    warnings: Vec<String>,
    patch: Option<json_patch::Patch>,
}

/// One webhook's answer.
enum Answer {
    Allowed(Admitted),
    Denied(Failure),
    /// It gave no answer that counts.
    Failed(String),
}

/// Asks every validating webhook that wants to be asked; the warnings of all, or the first denial.
pub(crate) async fn review(
    store: &Store,
    review: &Review<'_>,
    identity: &Identity,
) -> Result<Vec<String>, Failure> {
    // As in Kubernetes, webhooks are not asked about webhooks, lest nobody could remove one.
    if review.resource.group == "admissionregistration.k8s.io" {
        return Ok(Vec::new());
    }
    let webhooks = registered(store, CONFIGURATIONS)?;
    let namespace_labels = namespace_labels(store, review);
    let asked: Vec<&Webhook> = webhooks
        .iter()
        .filter(|webhook| webhook.wants(review, &namespace_labels))
        .collect();
    let answers = join_all(asked.iter().map(|webhook| ask(webhook, review, identity))).await;
    let mut warnings = Vec::new();
    for (webhook, answer) in asked.into_iter().zip(answers) {
        warnings.extend(admitted(webhook, answer)?.warnings);
    }
    Ok(warnings)
}

/// Returns the answer of a webhook that admits; an empty answer if the webhook failed with `failurePolicy: Ignore`.
fn admitted(webhook: &Webhook, answer: Answer) -> Result<Admitted, Failure> {
    match answer {
        Answer::Allowed(admitted) => Ok(admitted),
        Answer::Denied(failure) => Err(failure),
        Answer::Failed(why) if webhook.fails_closed() => {
            let message = format!(
                "failed calling webhook {:?}: failed to call webhook: {why}",
                webhook.name
            );
            Err(Failure::new(
                500,
                "InternalError",
                format!("Internal error occurred: {message}"),
            ))
        }
        Answer::Failed(why) => {
            tracing::warn!(
                webhook = webhook.name,
                why,
                "failed calling webhook, failing open"
            );
            Ok(Admitted::default())
        }
    }
}

/// The webhooks of all configurations. One that cannot be read fails the request: nothing is
/// admitted past a webhook that was not understood.
fn registered(store: &Store, configurations: &str) -> Result<Vec<Webhook>, Failure> {
    let resource = ResourceName::from(configurations);
    let page = store.list(&resource, &Default::default(), None, None, usize::MAX);
    let mut webhooks = Vec::new();
    for object in page.map(|page| page.objects).unwrap_or_default() {
        let configuration: Configuration =
            serde_json::from_slice(&object.body).map_err(|error| {
                let message = format!(
                    "the simulator cannot read {resource} {:?}: {error}",
                    object.name
                );
                Failure::new(500, "InternalError", message)
            })?;
        webhooks.extend(configuration.webhooks);
    }
    Ok(webhooks)
}

/// The labels of the namespace that the object is in, or is; none for any other cluster-scoped one.
fn namespace_labels(store: &Store, review: &Review<'_>) -> Option<Value> {
    let object = if review.resource.name().as_str() == NAMESPACES {
        review.object.or(review.old_object).cloned()
    } else if review.namespace.is_empty() {
        return None;
    } else {
        store
            .get(&NAMESPACES.into(), "", review.namespace)
            .and_then(|stored| stored.parse())
    };
    Some(
        object
            .map(|object| object["metadata"]["labels"].clone())
            .unwrap_or_default(),
    )
}

async fn ask(webhook: &Webhook, review: &Review<'_>, identity: &Identity) -> Answer {
    let uid = identity.uid();
    let body = request(review, &uid).to_string();
    let timeout = Duration::from_secs(webhook.timeout_seconds);
    match tokio::time::timeout(timeout, client::post(&webhook.client_config, body)).await {
        Err(_) => Answer::Failed("context deadline exceeded".into()),
        Ok(Err(error)) => Answer::Failed(format!("{error:#}")),
        Ok(Ok(answer)) => read_answer(webhook, &uid, &answer),
    }
}

/// The AdmissionReview that is sent.
fn request(review: &Review<'_>, uid: &str) -> Value {
    let resource = review.resource;
    let kind = json!({"group": resource.group, "version": review.version, "kind": resource.kind});
    let of =
        json!({"group": resource.group, "version": review.version, "resource": resource.plural});
    let mut request = json!({
        "uid": uid, "kind": kind, "resource": of, "requestKind": kind, "requestResource": of,
        "name": review.name, "operation": review.operation.as_str(),
        "userInfo": {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
        "object": review.object, "oldObject": review.old_object, "dryRun": false, "options": {},
    });
    if !review.namespace.is_empty() {
        request["namespace"] = review.namespace.into();
    }
    if !review.subresource.is_empty() {
        request["subResource"] = review.subresource.into();
        request["requestSubResource"] = review.subresource.into();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

fn read_answer(webhook: &Webhook, uid: &str, body: &[u8]) -> Answer {
    let Ok(review) = serde_json::from_slice::<Value>(body) else {
        return Answer::Failed("the response is not JSON".into());
    };
    let response = &review["response"];
    if response["uid"] != uid || review["kind"] != "AdmissionReview" {
        return Answer::Failed("the response is no AdmissionReview of this request's uid".into());
    }
    let Some(allowed) = response["allowed"].as_bool() else {
        return Answer::Failed("the response says neither allowed nor denied".into());
    };
    if allowed {
        let warnings = response["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.filter_map(|warning| warning.as_str().map(str::to_owned));
        let Ok(patch) = read_patch(response) else {
            return Answer::Failed("the response's patch is no JSONPatch in base64".into());
        };
        return Answer::Allowed(Admitted {
            warnings: warnings.collect(),
            patch,
        });
    }
    let status = &response["status"];
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let denied = format!("admission webhook {:?} denied the request", webhook.name);
    let message = match status["message"].as_str().or(status["reason"].as_str()) {
        Some(why) if !why.is_empty() => format!("{denied}: {why}"),
        _ => format!("{denied} without explanation"),
    };
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let reason = if code == 403 {
        "Forbidden"
    } else {
        "BadRequest"
    };
    Answer::Denied(Failure::new(code, reason, message))
}

fn read_patch(response: &Value) -> anyhow::Result<Option<json_patch::Patch>> {
    let Some(patch) = response["patch"].as_str() else {
        return Ok(None);
    };
    anyhow::ensure!(response["patchType"] == "JSONPatch");
    let patch = BASE64_STANDARD.decode(patch)?;
    Ok(Some(serde_json::from_slice(&patch)?))
}

#[cfg(test)]
mod tests;
