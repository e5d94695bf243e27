//! A webhook configuration of either kind. Pure.
//!
//! The two kinds say the same of a webhook, but for `reinvocationPolicy`, which one that validates does not
//! have: so every webhook is written as one that mutates.

use anteroom_policy::Phase;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

/// Label that names the owner of the object.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "anteroom-webhook");

/// The content of a webhook configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Configuration {
    /// The phase, which determines its kind.
    pub(crate) phase: Phase,
    pub(crate) name: String,
    /// In their order, which is the one that they are asked in where they mutate.
    pub(crate) webhooks: Vec<MutatingWebhook>,
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
