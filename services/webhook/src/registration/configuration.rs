//! A webhook configuration of either kind. Pure.
//!
//! The two kinds say the same of a webhook, but for `reinvocationPolicy`, which one that validates does not
//! have: so every webhook is written as one that mutates.

use std::collections::BTreeMap;

use anteroom_model::ObjectKey;
use anteroom_policy::Phase;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

/// Who keeps it.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "anteroom-webhook");

/// What is wanted of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Configuration {
    /// Which says its kind.
    pub(crate) phase: Phase,
    pub(crate) name: String,
    /// In their order, which is the one that they are asked in where they mutate.
    pub(crate) webhooks: Vec<MutatingWebhook>,
    /// Those of them that are of one policy, with it.
    pub(super) apart: Vec<(ObjectKey, MutatingWebhook)>,
    /// The policies that are left out, and why.
    pub(super) left_out: BTreeMap<ObjectKey, String>,
}

impl Configuration {
    /// With one webhook alone, to be tried.
    pub(super) fn of_one(&self, webhook: &MutatingWebhook) -> Self {
        Self {
            webhooks: vec![webhook.clone()],
            apart: Vec::new(),
            left_out: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// As the API server is given it.
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
