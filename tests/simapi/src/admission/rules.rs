//! The rules by which a webhook is asked about a request.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::Review;

/// A configuration of either kind, as far as it is simulated. A field that is not is refused.
#[derive(Debug, Deserialize)]
pub(super) struct Configuration {
    #[serde(default)]
    pub(super) webhooks: Vec<Webhook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) client_config: ClientConfig,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    namespace_selector: Selector,
    #[serde(default)]
    object_selector: Selector,
    #[serde(default)]
    failure_policy: FailurePolicy,
    #[serde(default = "default_timeout_seconds")]
    pub(super) timeout_seconds: u64,
    #[serde(default)]
    reinvocation_policy: ReinvocationPolicy,
    /// Every resource is served in versions that hold the same, so the two policies are one.
    #[serde(default, rename = "matchPolicy")]
    _match_policy: Option<String>,
    #[serde(default, rename = "sideEffects")]
    _side_effects: Option<String>,
    #[serde(default, rename = "admissionReviewVersions")]
    _admission_review_versions: Vec<String>,
}

fn default_timeout_seconds() -> u64 {
    10
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClientConfig {
    pub(super) url: Option<String>,
    pub(super) service: Option<ServiceReference>,
    /// Base64 of PEM.
    #[serde(default)]
    pub(super) ca_bundle: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceReference {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) path: String,
    #[serde(default = "default_port")]
    pub(super) port: u16,
}

fn default_port() -> u16 {
    443
}

#[derive(Debug, Default, PartialEq, Deserialize)]
enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

/// The policy of a mutating webhook on being asked again.
#[derive(Debug, Default, PartialEq, Deserialize)]
enum ReinvocationPolicy {
    #[default]
    Never,
    IfNeeded,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    #[serde(default = "any_scope")]
    scope: String,
}

fn any_scope() -> String {
    "*".into()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Debug, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Webhook {
    pub(super) fn fails_closed(&self) -> bool {
        self.failure_policy == FailurePolicy::Fail
    }

    /// Returns true if it is asked once more where somebody changed the object after it.
    pub(super) fn wants_again(&self) -> bool {
        self.reinvocation_policy == ReinvocationPolicy::IfNeeded
    }

    /// Returns true if it is asked. `namespace_labels` is absent for an object that is in no namespace and
    /// is none, which every namespace selector lets through.
    pub(super) fn wants(&self, review: &Review<'_>, namespace_labels: &Option<Value>) -> bool {
        let object_labels = |object: Option<&Value>| {
            object.is_some_and(|object| self.object_selector.matches(&object["metadata"]["labels"]))
        };
        self.rules.iter().any(|rule| rule.covers(review))
            && namespace_labels
                .as_ref()
                .is_none_or(|labels| self.namespace_selector.matches(labels))
            && (object_labels(review.object) || object_labels(review.old_object))
    }
}

impl Rule {
    fn covers(&self, review: &Review<'_>) -> bool {
        let has =
            |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let scope = if review.resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        };
        has(&self.operations, review.operation.as_str())
            && has(&self.api_groups, &review.resource.group)
            && has(&self.api_versions, review.version)
            && (self.scope == "*" || self.scope == scope)
            && self
                .resources
                .iter()
                .any(|resource| covers_resource(resource, review))
    }
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*` (everything but subresources), `*/*`.
fn covers_resource(pattern: &str, review: &Review<'_>) -> bool {
    let (plural, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (plural == "*" || plural == review.resource.plural)
        && (subresource == review.subresource || subresource == "*")
}

impl Selector {
    fn matches(&self, labels: &Value) -> bool {
        let value = |key: &str| labels.get(key).and_then(Value::as_str);
        self.match_labels
            .iter()
            .all(|(key, wanted)| value(key) == Some(wanted))
            && self.match_expressions.iter().all(|expression| {
                let found = value(&expression.key);
                let listed =
                    || found.is_some_and(|found| expression.values.iter().any(|v| v == found));
                match expression.operator {
                    Operator::In => listed(),
                    Operator::NotIn => !listed(),
                    Operator::Exists => found.is_some(),
                    Operator::DoesNotExist => found.is_none(),
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{admission::Operation, resource::built_in};

    fn wants(webhook: &Value, subresource: &str, namespace_labels: &Value) -> bool {
        let mut full = json!({"name": "w.a.dev", "clientConfig": {"url": "https://x"},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": ["networking.k8s.io"],
                "apiVersions": ["v1"], "resources": ["ingresses"]}]});
        json_patch::merge(&mut full, webhook);
        let webhook: Webhook = serde_json::from_value(full).unwrap();
        let resource = built_in()
            .find(|resource| resource.plural == "ingresses")
            .unwrap();
        let object = json!({"metadata": {"labels": {"team": "a"}}});
        let review = Review {
            operation: Operation::Create,
            resource: &resource,
            version: "v1",
            subresource,
            namespace: "n",
            name: "i",
            object: Some(&object),
            old_object: None,
        };
        webhook.wants(&review, &Some(namespace_labels.clone()))
    }

    #[test]
    fn rules_and_selectors_decide_who_is_asked() {
        let none = json!({});
        let labels = json!({"kubernetes.io/metadata.name": "n"});
        let rule = |field: &str, value: Value| {
            let mut rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
                "resources": ["*"]});
            rule[field] = value;
            json!({"rules": [rule]})
        };
        let not_in_n = json!({"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["n"]}]}});
        for (webhook, subresource, expected) in [
            (none.clone(), "", true),
            (none.clone(), "status", false),
            (rule("resources", json!(["*"])), "", true),
            (rule("resources", json!(["*"])), "status", false),
            (rule("resources", json!(["*/*"])), "status", true),
            (
                rule("resources", json!(["ingresses/status"])),
                "status",
                true,
            ),
            (rule("resources", json!(["pods"])), "", false),
            (rule("operations", json!(["UPDATE", "DELETE"])), "", false),
            (rule("apiGroups", json!([""])), "", false),
            (rule("apiVersions", json!(["v1beta1"])), "", false),
            (rule("scope", json!("Cluster")), "", false),
            (rule("scope", json!("Namespaced")), "", true),
            (not_in_n, "", false),
            (
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "n"}}}),
                "",
                true,
            ),
            (
                json!({"objectSelector": {"matchLabels": {"team": "a"}}}),
                "",
                true,
            ),
            (
                json!({"objectSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}),
                "",
                false,
            ),
        ] {
            assert_eq!(
                wants(&webhook, subresource, &labels),
                expected,
                "{webhook} {subresource:?}"
            );
        }
    }

    #[test]
    fn a_webhook_with_unsimulated_fields_is_refused() {
        let webhook = json!({"name": "w", "clientConfig": {"url": "https://x"},
            "matchConditions": [{"name": "c", "expression": "true"}]});
        assert!(serde_json::from_value::<Webhook>(webhook).is_err());
    }
}
