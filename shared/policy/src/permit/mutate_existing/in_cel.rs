//! Checks of the existing objects that a `MutatingPolicy` names: by type, and by name where its constraints have names.

use anteroom_model::ExistingObjects;

use crate::ir::{
    call::check_name,
    mutate_existing::{CelTargets, TargetType},
};

/// Permits to read the objects that an expression names: all of a type, or a single object by name.
pub(super) fn reads(
    targets: &CelTargets,
    at: usize,
    objects: &ExistingObjects,
) -> Result<(), String> {
    let ExistingObjects {
        group,
        version,
        resource,
        namespace,
        name,
        ..
    } = objects;
    let one = of_type(targets, at, group, version, resource)?;
    for (field, text) in [("namespace", namespace), ("name", name)] {
        let is_plain = !text.contains(['*', '?']) && check_name(text).is_ok();
        if !text.is_empty() && !is_plain {
            return Err(format!("its {field} `{text}` is no name"));
        }
    }
    check_named(one, name)
}

/// Permits to write an object of this type and name.
pub(super) fn writes(
    targets: &CelTargets,
    at: usize,
    group: &str,
    version: &str,
    resource: &str,
    name: &str,
) -> Result<(), String> {
    check_named(of_type(targets, at, group, version, resource)?, name)
}

fn of_type<'t>(
    targets: &'t CelTargets,
    at: usize,
    group: &str,
    version: &str,
    resource: &str,
) -> Result<&'t TargetType, String> {
    let one = targets.types.get(at);
    let one = one.ok_or_else(|| "the policy has no such target".to_owned())?;
    match (&*one.group, &*one.version, &*one.resource) == (group, version, resource) {
        true => Ok(one),
        false => Err(format!("it is of no {}", one.resource)),
    }
}

fn check_named(one: &TargetType, name: &str) -> Result<(), String> {
    match one.name.is_empty() || one.name == name {
        true => Ok(()),
        false => Err(format!("its name is not `{}`", one.name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Policy;

    fn policy(kind: &str, targets: &Value) -> Policy {
        let manifest = json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": kind,
            "metadata": {"name": "p", "namespace": "own"},
            "spec": {
                "evaluation": {"mutateExisting": {"enabled": true}},
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                    "resources": ["configmaps"], "operations": ["UPDATE"]}]},
                "targetMatchConstraints": targets,
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
            },
        });
        let driver = crate::Driver::IN_CLUSTER;
        crate::compile_for(&manifest, driver).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    fn of_apps() -> Value {
        json!({"resourceRules": [
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]},
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "resourceNames": ["settings"]},
        ]})
    }

    fn asked(
        target: Option<usize>,
        (group, resource): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> ExistingObjects {
        ExistingObjects {
            target,
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..ExistingObjects::default()
        }
    }

    const DEPLOYMENTS: (&str, &str) = ("apps", "deployments");
    const CONFIG_MAPS: (&str, &str) = ("", "configmaps");

    #[test]
    fn only_objects_of_the_policys_types_and_names_are_read_or_written() {
        let policy = policy("MutatingPolicy", &of_apps());
        for (objects, permitted) in [
            (asked(Some(0), DEPLOYMENTS, "", ""), true),
            (asked(Some(0), DEPLOYMENTS, "shop", "web"), true),
            (asked(Some(0), DEPLOYMENTS, "shop", "web*"), false),
            (asked(Some(0), DEPLOYMENTS, "shop/../x", "web"), false),
            (asked(Some(0), ("apps", "daemonsets"), "", ""), false),
            (asked(Some(1), CONFIG_MAPS, "", "settings"), true),
            (asked(Some(1), CONFIG_MAPS, "", ""), false),
            (asked(Some(0), CONFIG_MAPS, "", "settings"), false),
            (asked(Some(2), CONFIG_MAPS, "", "settings"), false),
            // Triggers: one is looked up, and of a new version all targets are listed.
            (asked(None, CONFIG_MAPS, "shop", "c"), true),
            (asked(None, ("", "secrets"), "shop", "c"), false),
            (asked(None, DEPLOYMENTS, "", ""), true),
            (asked(None, ("", "pods"), "", ""), false),
        ] {
            let found = policy.permits_reading("", &objects);
            assert_eq!(found.is_ok(), permitted, "{objects:?}: {found:?}");
        }
        let object = |api_version: &str, kind: &str, name: &str| {
            json!({"apiVersion": api_version, "kind": kind,
                "metadata": {"name": name, "namespace": "shop", "resourceVersion": "1"}})
        };
        for (at, object, resource, permitted) in [
            (
                0,
                object("apps/v1", "Deployment", "web"),
                "deployments",
                true,
            ),
            (
                0,
                object("apps/v1", "DaemonSet", "web"),
                "daemonsets",
                false,
            ),
            (
                0,
                object("apps/v2", "Deployment", "web"),
                "deployments",
                false,
            ),
            (
                0,
                object("v1", "ConfigMap", "settings"),
                "configmaps",
                false,
            ),
            (1, object("v1", "ConfigMap", "settings"), "configmaps", true),
            (1, object("v1", "ConfigMap", "other"), "configmaps", false),
            (
                2,
                object("v1", "ConfigMap", "settings"),
                "configmaps",
                false,
            ),
            (
                0,
                object("apps/v1", "Deployment", "../x"),
                "deployments",
                false,
            ),
        ] {
            let found = policy.permits_writing("", at, &object, resource);
            assert_eq!(found.is_ok(), permitted, "{at} {object}: {found:?}");
            let found = policy.permits_change("", at, &object, &object, resource);
            assert_eq!(found.is_ok(), permitted, "{at} {object}: {found:?}");
        }
        let deployment = object("apps/v1", "Deployment", "web");
        assert!(
            policy
                .permits_writing("r", 0, &deployment, "deployments")
                .is_err()
        );
    }

    #[test]
    fn a_policy_of_a_namespace_writes_there_alone() {
        let policy = policy("NamespacedMutatingPolicy", &of_apps());
        for (namespace, permitted) in [("own", true), ("other", false), ("", false)] {
            let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": namespace}});
            let found = policy.permits_writing("", 0, &object, "deployments");
            assert_eq!(found.is_ok(), permitted, "{namespace}: {found:?}");
            let objects = asked(Some(0), DEPLOYMENTS, namespace, "");
            let found = policy.permits_reading("", &objects);
            assert_eq!(found.is_ok(), permitted, "{namespace}: {found:?}");
        }
    }
}
