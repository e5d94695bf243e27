//! A resource that policies are held against.

use serde_json::{Value, json};

/// A resource, and what it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The kind, as in `Pod`.
    pub kind: String,
    /// Empty for what is cluster-scoped.
    pub namespace: String,
    /// The object's name, or the prefix from which the API server would generate a name.
    pub name: String,
    /// The plural, as in `ingresses`: by the rules of English that the API's own kinds follow, or as a definition says.
    pub(crate) plural: String,
    /// The manifest, with its namespace.
    pub value: Value,
    /// The resource names no namespace, and its kind is not known to be cluster-scoped: it may be in none.
    pub(crate) is_assumed: bool,
}

impl Resource {
    /// From a manifest; `None` where it has no kind. A manifest that names no namespace is in `default`, but
    /// for kinds that are known to be cluster-scoped. `annotations:` and the like with nothing behind them,
    /// as templates leave them, are empty.
    pub fn new(mut value: Value) -> Option<Self> {
        fill_empty(&mut value);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&value["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let kind = text(&value["kind"]);
        if kind.is_empty() {
            return None;
        }
        let (group, version) = (group.to_owned(), version.to_owned());
        let metadata = &value["metadata"];
        let mut name = text(&metadata["name"]);
        if name.is_empty() {
            name = text(&metadata["generateName"]);
        }
        let mut namespace = text(&metadata["namespace"]);
        let mut is_assumed = false;
        if is_cluster_scoped(&group, &kind) {
            namespace.clear();
        } else if namespace.is_empty() {
            "default".clone_into(&mut namespace);
            is_assumed = true;
            if !value["metadata"].is_object() {
                value["metadata"] = json!({});
            }
            value["metadata"]["namespace"] = "default".into();
        }
        Some(Self {
            plural: plural(&kind),
            group,
            version,
            kind,
            namespace,
            name,
            value,
            is_assumed,
        })
    }

    /// Removes the namespace, for a cluster-scoped kind.
    pub(crate) fn leave_namespace(&mut self) {
        self.namespace.clear();
        self.is_assumed = false;
        if let Some(metadata) = self.value["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
    }

    /// Returns whether an API call of this namespace and name reads it; a call without a namespace reads what is in
    /// none, or may be in none.
    pub(crate) fn is_at(&self, namespace: &str, name: &str) -> bool {
        let is_within = match namespace {
            "" => self.namespace.is_empty() || self.is_assumed,
            namespace => self.namespace == namespace || self.namespace.is_empty(),
        };
        is_within && self.name == name
    }

    /// Returns whether both are the same object of the API, even with different contents.
    pub fn is(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Group, kind, namespace and name: of two with the same, one is the other.
    pub(crate) fn identity(&self) -> [&str; 4] {
        [&self.group, &self.kind, &self.namespace, &self.name]
    }

    /// Returns whether `selection` means it: a name, or namespace, kind, version and group before it, each with a
    /// slash between, as far as they are given.
    pub fn is_selected_by(&self, selection: &str) -> bool {
        let own = [
            &self.name,
            &self.namespace,
            &self.kind,
            &self.version,
            &self.group,
        ];
        let mut parts = selection.rsplit('/');
        let mut own = own.into_iter();
        parts.all(|part| own.next().is_some_and(|own| own == part))
    }

    /// Its name for people, as in `Pod/default/web`.
    pub fn title(&self) -> String {
        let parts = [&*self.kind, &*self.namespace, &*self.name];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("/")
    }

    /// The plural, as in `ingresses`.
    pub(crate) fn plural(&self) -> &str {
        &self.plural
    }
}

/// Fields of manifests that hold objects, of which templates often leave the name alone.
const OBJECTS: &[&str] = &[
    "annotations",
    "data",
    "labels",
    "matchLabels",
    "nodeSelector",
    "stringData",
];

/// Puts an empty object where a field that holds one is null.
fn fill_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if value.is_null() && OBJECTS.contains(&name.as_str()) {
                    *value = json!({});
                } else {
                    fill_empty(value);
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(fill_empty),
        _ => {}
    }
}

/// The plural of a kind, in lower case.
fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let is_vowel = |c: char| "aeiou".contains(c);
    if kind == "endpoints" {
        return kind;
    }
    if let Some(stem) = kind.strip_suffix('y')
        && !stem.ends_with(is_vowel)
    {
        return format!("{stem}ies");
    }
    if ["s", "x", "z", "ch", "sh"]
        .iter()
        .any(|end| kind.ends_with(end))
    {
        return format!("{kind}es");
    }
    format!("{kind}s")
}

/// Kinds of the API server's own groups that are in no namespace, and those of Kyverno.
const CLUSTER_SCOPED: &[(&str, &[&str])] = &[
    (
        "",
        &["ComponentStatus", "Namespace", "Node", "PersistentVolume"],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    (
        "authentication.k8s.io",
        &["SelfSubjectReview", "TokenReview"],
    ),
    (
        "authorization.k8s.io",
        &[
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    (
        "certificates.k8s.io",
        &["CertificateSigningRequest", "ClusterTrustBundle"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    ("kyverno.io", &["ClusterCleanupPolicy", "ClusterPolicy"]),
    (
        "networking.k8s.io",
        &["IPAddress", "IngressClass", "ServiceCIDR"],
    ),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodSecurityPolicy"]),
    (
        "rbac.authorization.k8s.io",
        &["ClusterRole", "ClusterRoleBinding"],
    ),
    (
        "resource.k8s.io",
        &["DeviceClass", "DeviceTaintRule", "ResourceSlice"],
    ),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];

fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    let mut groups = CLUSTER_SCOPED.iter();
    groups.any(|(known, kinds)| *known == group && kinds.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(value: Value) -> Resource {
        Resource::new(value).unwrap()
    }

    #[test]
    fn a_resource_without_a_namespace_is_in_default_unless_it_can_be_in_none() {
        let pod = resource(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}));
        assert_eq!(pod.title(), "Pod/default/a");
        assert_eq!(pod.value["metadata"]["namespace"], "default");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        assert_eq!(resource(node).title(), "Node/n");
        let bare = resource(json!({"apiVersion": "apps/v1", "kind": "Deployment"}));
        assert_eq!((&*bare.group, &*bare.version), ("apps", "v1"));
        assert_eq!(bare.title(), "Deployment/default");
        assert!(Resource::new(json!({"apiVersion": "v1"})).is_none());
        assert!(Resource::new(json!("text")).is_none());
    }

    #[test]
    fn a_call_without_a_namespace_reads_objects_that_may_have_none() {
        let of = |metadata: Value| {
            resource(json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata}))
        };
        let bare = of(json!({"name": "a"}));
        assert!(bare.is_at("", "a") && bare.is_at("default", "a"));
        assert!(!bare.is_at("", "b") && !bare.is_at("shop", "a"));
        let inside = of(json!({"name": "a", "namespace": "shop"}));
        assert!(inside.is_at("shop", "a") && !inside.is_at("", "a"));
    }

    #[test]
    fn null_maps_left_by_a_template_become_empty_objects() {
        let pod = resource(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "annotations": null, "labels": null, "other": null},
            "spec": {"nodeSelector": null, "terms": [{"matchLabels": null}]},
        }));
        assert_eq!(
            pod.value["metadata"],
            json!({"name": "a", "namespace": "default", "annotations": {}, "labels": {}, "other": null})
        );
        assert_eq!(
            pod.value["spec"],
            json!({"nodeSelector": {}, "terms": [{"matchLabels": {}}]})
        );
    }

    #[test]
    fn a_selection_names_a_resource_with_or_without_namespace_and_kind() {
        let web = resource(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"},
        }));
        for (selection, is) in [
            ("web", true),
            ("shop/web", true),
            ("Deployment/shop/web", true),
            ("apps/v1/Deployment/shop/web", true),
            ("v1/Deployment/shop/web", true),
            ("default/web", false),
            ("we", false),
            ("", false),
        ] {
            assert_eq!(web.is_selected_by(selection), is, "{selection}");
        }
    }

    #[test]
    fn plurals_are_those_of_the_api() {
        for (kind, plural) in [
            ("Pod", "pods"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Gateway", "gateways"),
            ("Endpoints", "endpoints"),
            ("EndpointSlice", "endpointslices"),
        ] {
            assert_eq!(super::plural(kind), plural);
        }
    }
}
