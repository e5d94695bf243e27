//! A webhook configuration of either kind. Pure.
//!
//! The two kinds say the same of a webhook, but for `reinvocationPolicy`, which one that validates does not
//! have: so every webhook is written as one that mutates.

use std::sync::Arc;

use anteroom_engine::policies::Assignment;
use anteroom_policy::Phase;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Label that names the owner of the object.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "anteroom-webhook");

/// The content of a webhook configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Configuration {
    /// The phase, which determines its kind.
    pub(crate) phase: Phase,
    pub(crate) name: String,
    /// The webhooks in the order in which the API server asks them, if they change objects.
    pub(crate) webhooks: Vec<MutatingWebhook>,
    /// The hash of the content, used in the paths of its webhooks and in the proof that the configuration is in
    /// force.
    pub(crate) id: String,
    /// The webhooks of each policy.
    pub(crate) assignment: Arc<Assignment>,
}

impl Configuration {
    /// The object for the API server.
    pub(super) fn object(&self) -> DynamicObject {
        let mut object = DynamicObject::new(&self.name, &resource(self.phase));
        let (key, value) = MANAGED_BY;
        object.metadata.labels = Some([(key.to_owned(), value.to_owned())].into());
        // Plain data, and always JSON.
        object.data = json!({ "webhooks": self.webhooks });
        object
    }

    /// Returns the name of the content, made from its webhooks and their policies: 32 hexadecimal digits of a
    /// SHA-256. Tenants choose parts of the content, so it must not be possible to make two configurations with one
    /// name.
    pub(super) fn content_id(&self) -> String {
        // Plain data, and always JSON.
        let webhooks = serde_json::to_vec(&self.object()).unwrap_or_default();
        let mut hash = Sha256::new_with_prefix(webhooks);
        for (policy, webhook) in self.assignment.policies() {
            let (namespace, name) = (&*policy.namespace, &*policy.name);
            for text in [namespace, name, webhook] {
                hash.update(text);
                hash.update([0]);
            }
        }
        let id = hash.finalize();
        id[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the length of the configuration as JSON.
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_vec(&self.object()).map_or(0, |object| object.len())
    }
}

/// The kind of the configuration, for people too.
pub(super) fn kind(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutation => "MutatingWebhookConfiguration",
        Phase::Validation => "ValidatingWebhookConfiguration",
    }
}

pub(super) fn resource(phase: Phase) -> ApiResource {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind(phase));
    ApiResource::from_gvk(&kind)
}
