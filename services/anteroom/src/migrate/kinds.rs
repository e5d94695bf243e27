//! Groups and plurals of kinds, without an API server to ask. Pure.

use std::collections::BTreeSet;

use anteroom_cel::plural_of_kind;
use regex::Regex;
use serde_json::Value;

use super::installation::text;

/// Kinds of the API server's own groups. Secrets have a rule of their own: no right to read them is ever proposed.
const BUILT_IN: [(&str, &str); 10] = [
    (
        "",
        "ConfigMap Endpoints LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate \
         ReplicationController ResourceQuota Service ServiceAccount",
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apps", "DaemonSet Deployment ReplicaSet StatefulSet"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("batch", "CronJob Job"),
    ("networking.k8s.io", "Ingress IngressClass NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    (
        "rbac.authorization.k8s.io",
        "ClusterRole ClusterRoleBinding Role RoleBinding",
    ),
    ("storage.k8s.io", "StorageClass"),
];

/// Group and plural of a resource.
pub(super) type GroupResource = (String, String);

/// The kinds of CustomResourceDefinitions: group, kind and plural.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeSet<(String, String, String)>);

impl Kinds {
    pub(super) fn learn(&mut self, definition: &Value) {
        let at = |pointer| text(definition, pointer);
        let names = (
            at("/spec/group"),
            at("/spec/names/kind"),
            at("/spec/names/plural"),
        );
        // Without a group it would be a kind of the API server's own, and a wildcard would be a right to more.
        let is_name = |text: &String| {
            !text.is_empty()
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        };
        if [&names.0, &names.1, &names.2].into_iter().all(is_name) {
            self.0.insert(names);
        }
    }

    /// Returns the resource of a kind or plural; none where it cannot be known without an API server. No group and
    /// `*` stand for any.
    pub(super) fn resource(&self, group: Option<&str>, name: &str) -> Option<GroupResource> {
        let group = group.filter(|group| *group != "*");
        let is_open = |text: &str| text.contains(['*', '?', '{']);
        if name.is_empty() || group.is_some_and(is_open) || is_open(name) {
            return None;
        }
        if group.is_none_or(str::is_empty) && ["secret", "secrets"].contains(&&*name.to_lowercase())
        {
            return Some((String::new(), "secrets".to_owned()));
        }
        let built_in = BUILT_IN.iter().flat_map(|(group, kinds)| {
            let kinds = kinds.split_whitespace();
            kinds.map(|kind| ((*group).to_owned(), kind.to_owned(), plural_of_kind(kind)))
        });
        let mut known = built_in.chain(self.0.iter().cloned());
        let found = known.find(|(own, kind, plural)| {
            group.is_none_or(|group| group == own) && (name == kind || name == plural)
        });
        if let Some((group, _, plural)) = found {
            return Some((group, plural));
        }
        // A kind begins with a capital, a plural does not.
        let is_kind = name.starts_with(|c: char| c.is_ascii_uppercase());
        let plural = if is_kind {
            plural_of_kind(name)
        } else {
            name.to_owned()
        };
        Some((group?.to_owned(), plural))
    }
}

/// Returns group and plural of a path of the API, as it is written in a policy, and the verb of a GET. Parts of the path
/// may be variables.
pub(super) fn of_path(path: &str) -> Option<(GroupResource, &'static str)> {
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
    let (plural, verb) = match *rest {
        [plural] => (plural.to_owned(), "list"),
        [plural, _] => (plural.to_owned(), "get"),
        [plural, _, subresource] => (format!("{plural}/{subresource}"), "get"),
        _ => return None,
    };
    let is_open = |text: &str| text.contains(['{', '}', VARIABLE]);
    (!is_open(group) && !is_open(&plural)).then(|| ((group.to_owned(), plural), verb))
}

/// Stands for a variable in a path.
const VARIABLE: char = '\u{fffd}';

/// Replaces variables from the inside out: they may hold slashes, question marks and other variables.
fn without_variables(path: &str) -> String {
    let mut path = path.to_owned();
    if let Ok(variable) = Regex::new(r"\{\{[^{}]*\}\}") {
        while variable.is_match(&path) {
            path = variable
                .replace_all(&path, VARIABLE.to_string())
                .into_owned();
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(group: &str, plural: &str) -> Option<GroupResource> {
        Some((group.to_owned(), plural.to_owned()))
    }

    #[test]
    fn paths_name_resources_even_with_variables() {
        for (path, resource, verb) in [
            ("/api/v1/pods", of("", "pods"), "list"),
            (
                "/api/v1/namespaces/{{ request.namespace }}",
                of("", "namespaces"),
                "get",
            ),
            (
                "/api/v1/namespaces/{{ a || '/?' }}/services?limit=5",
                of("", "services"),
                "list",
            ),
            (
                "/apis/a.b/v1/namespaces/{{ x.{{ y }} }}/oxen/{{ z }}",
                of("a.b", "oxen"),
                "get",
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                of("apps", "deployments/scale"),
                "get",
            ),
            ("/apis/a.b/v1/{{ plural }}", None, ""),
            ("/version", None, ""),
            ("/api/v1/{{ a", None, ""),
        ] {
            let expected = resource.map(|resource| (resource, verb));
            assert_eq!(of_path(path), expected, "{path}");
        }
    }

    #[test]
    fn kinds_have_the_plurals_that_definitions_give() {
        let mut kinds = Kinds::default();
        kinds.learn(
            &json!({ "spec": { "group": "a.b", "names": { "kind": "Ox", "plural": "oxen" } } }),
        );
        // Nobody is given a right to all by a definition.
        kinds.learn(
            &json!({ "spec": { "group": "a.b", "names": { "kind": "Whole", "plural": "*" } } }),
        );
        kinds.learn(
            &json!({ "spec": { "group": "*", "names": { "kind": "All", "plural": "alls" } } }),
        );
        for (group, name, resource) in [
            (Some("a.b"), "Whole", of("a.b", "wholes")),
            (None, "All", None),
            (Some(""), "secret", of("", "secrets")),
            (None, "Pod", of("", "pods")),
            (Some("*"), "ingresses", of("networking.k8s.io", "ingresses")),
            (None, "Ox", of("a.b", "oxen")),
            (Some("c.d"), "Ox", of("c.d", "oxes")),
            (Some("c.d"), "things", of("c.d", "things")),
            (None, "Secret", of("", "secrets")),
            (None, "Thing", None),
            (Some("c.d"), "*", None),
            (Some("{{ g }}"), "things", None),
        ] {
            assert_eq!(kinds.resource(group, name), resource, "{name}");
        }
    }
}
