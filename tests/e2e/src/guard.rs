//! Policies that guard ConfigMaps by one fact, and what the webhook says of them.

use std::sync::Arc;

use anteroom_load::Client;
use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    system::target,
    wait,
    world::{NAMESPACE, World},
};

/// A policy on ConfigMaps labelled `guard: NAME`, with one context variable: where `condition` holds,
/// creating one is refused with `message`.
pub fn guard(name: &str, context: &Value, message: &str, condition: &Value) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": name },
        "spec": { "failurePolicy": "Fail", "rules": [{
            "name": "guard",
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap"], "operations": ["CREATE"],
                "selector": { "matchLabels": { "guard": name } } } }] },
            "context": [context],
            "validate": { "failureAction": "Enforce", "message": message,
                "deny": { "conditions": { "any": [condition] } } },
        }] },
    })
}

/// A ConfigMap that the policy of this name guards.
pub fn guarded(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "namespace": NAMESPACE, "name": format!("guarded-{name}"), "labels": { "guard": name } } })
}

/// The answer of the webhook, the record of the decision included, which only the API server sees.
#[derive(Clone, Debug)]
pub struct Decided {
    /// True if the request is admitted.
    pub allowed: bool,
    /// The message of a denial that the user sees; empty if there is none.
    pub message: String,
    /// The record.
    pub record: Value,
}

impl Decided {
    /// The first fact of the first rule.
    pub fn fact(&self) -> &Value {
        &self.record["rules"][0]["facts"][0]
    }
}

/// Asks the webhook itself. Cheap to clone.
#[derive(Clone)]
pub struct Asker(Arc<Mutex<Client>>);

impl Asker {
    /// Once the webhook has registered itself, for a policy whose `failurePolicy` is `Fail`.
    pub async fn new(world: &World) -> anyhow::Result<Self> {
        let client = Client::new(target(&world.client).await?)?;
        Ok(Self(Arc::new(Mutex::new(client))))
    }

    /// Asks what becomes of creating the ConfigMap that the policy of this name guards.
    pub async fn ask(&self, name: &str) -> anyhow::Result<Decided> {
        let body = self.0.lock().await.post(review(&guarded(name))).await?;
        let response = serde_json::from_slice::<Value>(&body)?["response"].take();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let record = text(&response["auditAnnotations"]["decision"]);
        Ok(Decided {
            allowed: response["allowed"].as_bool().context("no `allowed`")?,
            message: text(&response["status"]["message"]),
            record: serde_json::from_str(&record).unwrap_or_default(),
        })
    }

    /// Asks until the answer is as `wanted` says; its error is the reason otherwise.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Decided) -> bool,
    ) -> anyhow::Result<Decided> {
        wait::until(&format!("{name}: {what}"), async || {
            let decided = self.ask(name).await?;
            ensure!(wanted(&decided), "{decided:?}");
            Ok(decided)
        })
        .await
    }

    /// Asks until the object is refused with a message that contains `says`.
    pub async fn refused(&self, name: &str, says: &str) -> anyhow::Result<Decided> {
        self.until(name, says, |decided| {
            !decided.allowed && decided.message.contains(says)
        })
        .await
    }

    /// Asks until it is admitted.
    pub async fn admitted(&self, name: &str) -> anyhow::Result<Decided> {
        self.until(name, "admitted", |decided| decided.allowed)
            .await
    }
}

/// Builds the review that the API server sends when `object`, a ConfigMap, is created.
fn review(object: &Value) -> Bytes {
    let metadata = &object["metadata"];
    let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "asked", "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource,
            "name": metadata["name"], "namespace": metadata["namespace"],
            "operation": "CREATE",
            "userInfo": { "username": "alice", "groups": ["system:authenticated"] },
            "object": object, "oldObject": null, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    });
    Bytes::from(review.to_string())
}
