//! Groups and plurals of kinds, without an API server to ask. Pure.

use std::collections::BTreeSet;

use anteroom_cel::plural_of_kind;
use serde_json::Value;

use super::installation::text;

/// Kinds of the API server's own groups. Secrets are not among them: no right to read them is ever proposed.
const BUILT_IN: [(&str, &[&str]); 11] = [
    (
        "",
        &[
            "ConfigMap",
            "Endpoints",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Service",
            "ServiceAccount",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    (
        "apps",
        &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    (
        "networking.k8s.io",
        &["Ingress", "IngressClass", "NetworkPolicy"],
    ),
    ("policy", &["PodDisruptionBudget"]),
    (
        "rbac.authorization.k8s.io",
        &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    ("storage.k8s.io", &["StorageClass"]),
];

/// Group and plural of a resource.
pub(super) type Resource = (String, String);

/// The kinds that are known: the API server's own, and those of CustomResourceDefinitions.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// Group, kind and plural.
    custom: BTreeSet<(String, String, String)>,
}

impl Kinds {
    pub(super) fn learn(&mut self, definition: &Value) {
        let [group, kind, plural] = ["/spec/group", "/spec/names/kind", "/spec/names/plural"]
            .map(|pointer| text(definition, pointer));
        if !kind.is_empty() && !plural.is_empty() {
            self.custom.insert((group, kind, plural));
        }
    }

    /// Returns the resource of a kind or plural; none where it cannot be known without an API server. `*` and an
    /// unknown group stand for any.
    pub(super) fn resource(&self, group: Option<&str>, name: &str) -> Option<Resource> {
        let group = group.filter(|group| *group != "*");
        if name.is_empty() || group.is_some_and(is_open) || is_open(name) {
            return None;
        }
        let built_in = BUILT_IN.iter().flat_map(|(group, kinds)| {
            kinds.iter().map(|kind| {
                (
                    (*group).to_owned(),
                    (*kind).to_owned(),
                    plural_of_kind(kind),
                )
            })
        });
        let mut known = built_in.chain(self.custom.iter().cloned());
        let found = known.find(|(own, kind, plural)| {
            group.is_none_or(|group| group == own) && (name == kind || name == plural)
        });
        match (found, group) {
            (Some((group, _, plural)), _) => Some((group, plural)),
            // The plural that Kubernetes would guess. A kind begins with a capital, a plural does not.
            (None, Some(group)) if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
                Some((group.to_owned(), plural_of_kind(name)))
            }
            (None, Some(group)) => Some((group.to_owned(), name.to_owned())),
            (None, None) => None,
        }
    }
}

/// Returns whether a text means more than itself.
fn is_open(text: &str) -> bool {
    text.contains(['*', '?', '{'])
}

/// Returns group and plural of a path of the API, as it is written in a policy: parts of it may be variables.
pub(super) fn of_path(path: &str) -> Option<Resource> {
    let path = without_variables(path);
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match *parts {
        ["api", _, ref rest @ ..] => ("", rest),
        ["apis", group, _, ref rest @ ..] => (group, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, inside @ ..] if !inside.is_empty() => inside,
        rest => rest,
    };
    let (plural, subresource) = match *rest {
        [plural] | [plural, _] => (plural, None),
        [plural, _, subresource] => (plural, Some(subresource)),
        _ => return None,
    };
    if [group, plural].iter().any(|part| part.contains(VARIABLE)) {
        return None;
    }
    let plural = match subresource {
        Some(subresource) => format!("{plural}/{subresource}"),
        None => plural.to_owned(),
    };
    Some((group.to_owned(), plural))
}

/// Stands for a variable in a path.
const VARIABLE: char = '\u{fffd}';

/// A variable may hold slashes and question marks.
fn without_variables(path: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0_usize);
    let mut rest = path;
    while let Some(c) = rest.chars().next() {
        let step = match () {
            () if rest.starts_with("{{") => {
                depth += 1;
                2
            }
            () if rest.starts_with("}}") && depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    text.push(VARIABLE);
                }
                2
            }
            () => {
                if depth == 0 {
                    text.push(c);
                }
                c.len_utf8()
            }
        };
        rest = &rest[step..];
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(group: &str, plural: &str) -> Option<Resource> {
        Some((group.to_owned(), plural.to_owned()))
    }

    #[test]
    fn paths_name_resources_even_with_variables() {
        for (path, resource) in [
            ("/api/v1/pods", of("", "pods")),
            (
                "/api/v1/namespaces/{{ request.namespace }}",
                of("", "namespaces"),
            ),
            (
                "/api/v1/namespaces/{{ a || '/?' }}/services?limit=5",
                of("", "services"),
            ),
            (
                "/apis/a.b/v1/namespaces/{{ x.{{ y }} }}/oxen/{{ z }}",
                of("a.b", "oxen"),
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                of("apps", "deployments/scale"),
            ),
            ("/apis/a.b/v1/{{ plural }}", None),
            ("/version", None),
            ("/api/v1/{{ a", None),
        ] {
            assert_eq!(of_path(path), resource, "{path}");
        }
    }

    #[test]
    fn kinds_have_the_plurals_that_definitions_give() {
        let mut kinds = Kinds::default();
        kinds.learn(
            &json!({ "spec": { "group": "a.b", "names": { "kind": "Ox", "plural": "oxen" } } }),
        );
        for (group, name, resource) in [
            (None, "Pod", of("", "pods")),
            (Some("*"), "ingresses", of("networking.k8s.io", "ingresses")),
            (None, "Ox", of("a.b", "oxen")),
            (Some("c.d"), "Ox", of("c.d", "oxes")),
            (Some("c.d"), "things", of("c.d", "things")),
            (None, "Thing", None),
            (Some("c.d"), "*", None),
            (Some("{{ g }}"), "things", None),
        ] {
            assert_eq!(kinds.resource(group, name), resource, "{name}");
        }
    }
}
