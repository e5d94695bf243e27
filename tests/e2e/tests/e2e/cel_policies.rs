//! Policies of policies.kyverno.io on real parts: they decide, say how they are in Kyverno's fields, stay at home where
//! they have one, and are in the reports.

use anteroom_e2e::{
    check::{is_admitted, is_refused},
    manifests, wait,
    world::{NAMESPACE, World, ingress},
};
use anyhow::{Context, ensure};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// A namespace that no policy of another is about.
const OTHER: &str = "elsewhere";

/// The versions in which the API server serves a policy.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

#[tokio::test(flavor = "multi_thread")]
async fn policies_in_cel_decide_report_and_say_how_they_are() -> anyhow::Result<()> {
    let mut world = World::start_reporting().await?;
    world.system.ready().await?;
    manifests::apply_namespace(&world.client, OTHER).await?;

    world.create(&config_map("before", NAMESPACE, None)).await?;
    a_policy_denies_and_admits(&world).await?;
    reports_are_kyvernos(&world).await?;
    a_policy_stays_at_home(&world).await?;
    a_policy_that_does_not_compile_is_refused_or_not_in_force(&world).await?;
    a_wrong_type_is_refused_by_the_api_server(&world).await?;
    a_subresource_is_not_scanned(&world).await?;
    a_policy_on_pods_says_what_is_derived(&world).await?;
    facts_come_from_views(&world).await?;
    a_policy_changes_what_comes(&world).await?;
    a_partial_object_of_a_custom_kind_is_merged(&world).await?;
    a_new_policy_changes_what_exists(&world).await?;
    kinds_of_policies_do_not_disturb_each_other(&world).await
}

fn config_map(name: &str, namespace: &str, team: Option<&str>) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace } });
    if let Some(team) = team {
        object["metadata"]["labels"] = json!({ "team": team });
    }
    object
}

/// Denies ConfigMaps without a team.
fn policy(kind: &str, name: &str) -> Value {
    let mut policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": kind, "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }] },
            "matchConditions": [{
                "name": "not-root", "expression": "object.metadata.name != 'kube-root-ca.crt'",
            }],
            "validationActions": ["Deny"],
            "validations": [{
                "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                "message": format!("{name}: say whose it is"),
            }],
        },
    });
    if kind.starts_with("Namespaced") {
        policy["metadata"]["namespace"] = NAMESPACE.into();
    }
    policy
}

/// The policy's status has exactly these two conditions, in this order: each with its status, and a text that its message
/// has.
async fn says(world: &World, policy: &Value, expected: [(&str, &str); 2]) -> anyhow::Result<()> {
    let name = policy["metadata"]["name"].as_str().context("no name")?;
    wait::until(&format!("{name} to be {expected:?}"), async || {
        let found = world.api(policy).get(name).await?;
        let status = &found.data["status"]["conditionStatus"];
        let conditions = status["conditions"].as_array();
        let conditions = conditions.with_context(|| format!("{}", found.data))?;
        let types: Vec<_> = conditions.iter().map(|c| &c["type"]).collect();
        ensure!(
            types == ["WebhookConfigured", "RBACPermissionsGranted"],
            "{status}"
        );
        for (condition, (expected, says)) in conditions.iter().zip(expected) {
            let reason = match expected {
                "True" => "Succeeded",
                _ => "Failed",
            };
            let message = condition["message"].as_str().unwrap_or_default();
            ensure!(
                condition["status"] == expected
                    && condition["reason"] == reason
                    && message.contains(says),
                "{status}"
            );
        }
        let all = expected.iter().all(|(status, _)| *status == "True");
        ensure!(status["ready"] == all, "{status}");
        anyhow::Ok(())
    })
    .await
}

/// The assertion of a published policy's test.
async fn is_ready(world: &World, policy: &Value) -> anyhow::Result<()> {
    let webhook = ("True", "Webhook configured.");
    says(
        world,
        policy,
        [webhook, ("True", "Policy is ready for reporting.")],
    )
    .await
}

/// From the first request on: ready means enforced.
async fn a_policy_denies_and_admits(world: &World) -> anyhow::Result<()> {
    let policy = policy("ValidatingPolicy", "has-team");
    world.create(&policy).await?;
    is_ready(world, &policy).await?;
    let refused = world.create(&config_map("none", OTHER, None)).await;
    let message = refused.err().map(|error| error.to_string());
    let message = message.context("it is admitted")?;
    ensure!(message.contains("has-team: say whose it is"), "{message}");
    is_admitted(world, &config_map("some", OTHER, Some("a"))).await?;
    // Every version of the API serves the same policy, with its status.
    for version in VERSIONS {
        let mut other = policy.clone();
        other["apiVersion"] = format!("policies.kyverno.io/{version}").into();
        is_ready(world, &other).await?;
    }
    Ok(())
}

async fn reports_are_kyvernos(world: &World) -> anyhow::Result<()> {
    let uid = world
        .api(&config_map("before", NAMESPACE, None))
        .get("before")
        .await?;
    let uid = uid.uid().context("no UID")?;
    let report = json!({ "apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport",
        "metadata": { "name": uid, "namespace": NAMESPACE } });
    wait::until("the report of a violation", async || {
        let found = world.api(&report).get(&uid).await?;
        let result = &found.data["results"][0];
        for (field, expected) in [
            ("source", "KyvernoValidatingPolicy"),
            ("policy", "has-team"),
            ("result", "fail"),
            ("message", "has-team: say whose it is"),
        ] {
            ensure!(result[field] == expected, "{field}: {result}");
        }
        ensure!(result.get("rule").is_none(), "{result}");
        anyhow::Ok(())
    })
    .await
}

async fn a_policy_stays_at_home(world: &World) -> anyhow::Result<()> {
    world
        .delete(&policy("ValidatingPolicy", "has-team"))
        .await?;
    let home = policy("NamespacedValidatingPolicy", "at-home");
    world.create(&home).await?;
    is_ready(world, &home).await?;
    let says = "at-home: say whose it is";
    is_refused(world, &config_map("none", NAMESPACE, None), says).await?;
    is_admitted(world, &config_map("some", NAMESPACE, Some("a"))).await?;
    is_admitted(world, &config_map("none", OTHER, None)).await?;
    world.delete(&home).await?;
    is_admitted(world, &config_map("none", NAMESPACE, None)).await
}

/// A malformed policy is refused. One that this version does not run is taken, is not in force, and heals.
async fn a_policy_that_does_not_compile_is_refused_or_not_in_force(
    world: &World,
) -> anyhow::Result<()> {
    let mut broken = policy("ValidatingPolicy", "broken");
    broken["spec"]["validations"][0]["expression"] = "object.metadata.(".into();
    let refused = world.create(&broken).await;
    let message = refused.err().map(|error| error.to_string());
    let message = message.context("a malformed policy is taken")?;
    ensure!(message.contains("AR30"), "{message}");

    let mut later = policy("ValidatingPolicy", "later");
    later["spec"]["evaluation"] = json!({ "mode": "HTTP" });
    world.create(&later).await?;
    says(world, &later, [("False", "AR301"), ("True", "")]).await?;
    is_admitted(world, &config_map("none", NAMESPACE, None)).await?;
    let patch = json!({ "spec": { "evaluation": null } });
    let api = world.api(&later);
    api.patch("later", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    is_ready(world, &later).await?;
    is_refused(world, &config_map("none", NAMESPACE, None), "later: ").await?;
    world.delete(&later).await
}

async fn a_wrong_type_is_refused_by_the_api_server(world: &World) -> anyhow::Result<()> {
    for (field, value) in [
        ("validations", json!("true")),
        ("validationActions", json!(["Refuse"])),
        ("failurePolicy", json!(true)),
        ("matchConstraints", json!({ "resourceRules": {} })),
        ("webhookConfiguration", json!({ "timeoutSeconds": 31 })),
    ] {
        let mut wrong = policy("ValidatingPolicy", "wrong");
        wrong["spec"][field] = value;
        match world.create(&wrong).await {
            Err(kube::Error::Api(status)) if status.code == 422 => {}
            other => anyhow::bail!("{field}: {other:?}"),
        }
    }
    Ok(())
}

async fn a_subresource_is_not_scanned(world: &World) -> anyhow::Result<()> {
    let mut policy = policy("ValidatingPolicy", "no-exec");
    policy["spec"]["matchConstraints"]["resourceRules"][0] = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"],
    });
    world.create(&policy).await?;
    let expected = [("True", "Webhook configured."), ("False", "pods/exec")];
    says(world, &policy, expected).await?;
    world.delete(&policy).await
}

/// The API server takes a status only if it has all fields that Kyverno's definition requires.
async fn a_policy_on_pods_says_what_is_derived(world: &World) -> anyhow::Result<()> {
    let mut policy = policy("ValidatingPolicy", "pods-have-teams");
    let rules = &mut policy["spec"]["matchConstraints"]["resourceRules"];
    rules[0]["resources"] = json!(["pods"]);
    world.create(&policy).await?;
    is_ready(world, &policy).await?;
    let found = world.api(&policy).get("pods-have-teams").await?;
    let configs = &found.data["status"]["autogen"]["configs"];
    ensure!(
        configs["cronjobs"]["targets"][0]["kind"] == "CronJob",
        "{configs}"
    );
    ensure!(configs["defaults"]["targets"][4]["kind"] == "Job");
    world.delete(&policy).await
}

/// A `ClusterPolicy` and a `ValidatingPolicy` of one name.
async fn kinds_of_policies_do_not_disturb_each_other(world: &World) -> anyhow::Result<()> {
    let in_cel = policy("ValidatingPolicy", "twice");
    let classic = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "twice" },
        "spec": { "rules": [{
            "name": "r",
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "validate": { "failureAction": "Enforce", "message": "classic",
                "pattern": { "metadata": { "labels": { "classic": "?*" } } } },
        }] },
    });
    world.create(&in_cel).await?;
    world.create(&classic).await?;
    is_ready(world, &in_cel).await?;
    let labelled = config_map("none", OTHER, Some("a"));
    is_refused(world, &labelled, "classic").await?;
    world.delete(&classic).await?;
    is_admitted(world, &labelled).await?;
    is_refused(world, &config_map("none", OTHER, None), "twice: ").await?;
    is_ready(world, &in_cel).await
}

/// The host of an Ingress is taken once in the whole cluster, and a ConfigMap of its namespace may exempt it.
async fn facts_come_from_views(world: &World) -> anyhow::Result<()> {
    let entry = json!({
        "apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry", "metadata": { "name": "all-ingresses" },
        "spec": { "kubernetesResource": {
            "group": "networking.k8s.io", "version": "v1", "resource": "ingresses",
        } },
    });
    world.create(&entry).await?;
    let lists = [
        "resource.list('networking.k8s.io/v1', 'ingresses', '').items",
        "globalContext.get('all-ingresses', '')",
    ];
    for (at, list) in lists.into_iter().enumerate() {
        hosts_are_unique(world, list, 10 * at).await?;
    }
    world.delete(&entry).await
}

/// Ingresses have the numbers from `first` on.
async fn hosts_are_unique(world: &World, list: &str, first: usize) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": { "name": "unique-host" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["ingresses"],
            }] },
            "variables": [
                { "name": "all", "expression": list },
                { "name": "exempt", "expression":
                    "resource.get('v1', 'configmaps', object.metadata.namespace, 'exempt-hosts')" },
            ],
            "validations": [{
                "expression": "variables.exempt != null || object.spec.rules.all(r, \
                    !variables.all.exists(i, i.spec.rules.exists(o, o.host == r.host)))",
                "message": "the host is taken",
            }],
        },
    });
    world.create(&policy).await?;
    is_ready(world, &policy).await?;
    let of = |at: usize, host: &str| ingress(first + at, &format!("{host}-{first}.example.com"));
    world.create(&of(1, "a")).await?;
    is_refused(world, &of(2, "a"), "the host is taken").await?;
    is_admitted(world, &of(3, "b")).await?;
    let exempt = config_map("exempt-hosts", NAMESPACE, None);
    world.create(&exempt).await?;
    is_admitted(world, &of(4, "a")).await?;
    world.delete(&exempt).await?;
    is_refused(world, &of(5, "a"), "the host is taken").await?;
    world.delete(&of(1, "a")).await?;
    is_admitted(world, &of(6, "a")).await?;
    world.delete(&policy).await
}

async fn a_policy_changes_what_comes(world: &World) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": { "name": "label-it" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }] },
            "mutations": [
                { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression":
                    "Object{metadata: Object.metadata{labels: Object.metadata.labels{made: 'yes'}}}" } },
                { "patchType": "JSONPatch", "jsonPatch": { "expression":
                    "[JSONPatch{op: 'add', path: '/metadata/labels/again', value: object.metadata.labels.made}]" } },
            ],
        },
    });
    world.create(&policy).await?;
    is_ready(world, &policy).await?;
    let object = config_map("changed", OTHER, Some("a"));
    world.create(&object).await?;
    let found = world.api(&object).get("changed").await?;
    for (label, value) in [("team", "a"), ("made", "yes"), ("again", "yes")] {
        let labels = found.labels();
        ensure!(
            labels.get(label).map(String::as_str) == Some(value),
            "{labels:?}"
        );
    }
    world.delete(&object).await?;
    world.delete(&policy).await
}

/// Its definition says how, also after it was changed.
async fn a_partial_object_of_a_custom_kind_is_merged(world: &World) -> anyhow::Result<()> {
    let definition = |list_type: &str| {
        let mut parts = json!({ "type": "array", "x-kubernetes-list-type": list_type, "items": {
            "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string" }, "size": { "type": "integer" } },
        } });
        if list_type == "map" {
            parts["x-kubernetes-list-map-keys"] = json!(["name"]);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.example.com" },
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": { "type": "object", "properties": { "parts": parts } } },
                } } }],
            },
        })
    };
    manifests::apply(&world.client, &definition("map")).await?;
    let policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": { "name": "size-it" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"],
            }] },
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression":
                "Object{spec: Object.spec{parts: [Object.spec.parts{name: 'b', size: 2}]}}" } }],
        },
    });
    world.create(&policy).await?;
    is_ready(world, &policy).await?;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "namespace": OTHER },
        "spec": { "parts": [{ "name": "a", "size": 1 }, { "name": "b" }] },
    });
    let parts = async || {
        let _ = world.delete(&widget).await;
        world.create(&widget).await?;
        anyhow::Ok(world.api(&widget).get("w").await?.data["spec"]["parts"].take())
    };
    wait::until("the parts to be merged by their names", async || {
        let found = parts().await?;
        let expected = json!([{ "name": "a", "size": 1 }, { "name": "b", "size": 2 }]);
        ensure!(found == expected, "{found}");
        anyhow::Ok(())
    })
    .await?;
    manifests::apply(&world.client, &definition("atomic")).await?;
    wait::until("the list to be one that is not merged", async || {
        let refused = parts().await.err().map(|error| format!("{error:#}"));
        let refused = refused.unwrap_or_default();
        ensure!(refused.contains("may not mutate atomic"), "{refused}");
        anyhow::Ok(())
    })
    .await?;
    world.delete(&policy).await?;
    manifests::delete(&world.client, &definition("atomic")).await
}

/// The reporter goes through the objects of a new policy once; the namespaces that they are in are a fact of the policy.
async fn a_new_policy_changes_what_exists(world: &World) -> anyhow::Result<()> {
    let writes = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-writes" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "update"] }],
    });
    manifests::apply(&world.client, &writes).await?;
    let here = config_map("old-here", OTHER, Some("a"));
    let there = config_map("old-there", NAMESPACE, Some("a"));
    let kept = config_map("kept", OTHER, Some("a"));
    for object in [&here, &there, &kept] {
        world.create(object).await?;
    }
    let policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": { "name": "label-old" },
        "spec": {
            "evaluation": { "mutateExisting": { "enabled": true } },
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["configmaps"],
                }],
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": OTHER } },
            },
            "matchConditions": [{ "name": "old", "expression": "object.metadata.name.startsWith('old-')" }],
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression":
                "Object{metadata: Object.metadata{labels: Object.metadata.labels{is: 'in-' + namespaceObject.metadata.name}}}",
            } }],
        },
    });
    world.create(&policy).await?;
    is_ready(world, &policy).await?;
    let label = async |object: &Value| {
        let name = object["metadata"]["name"].as_str().context("no name")?;
        let found = world.api(object).get(name).await?;
        anyhow::Ok(found.labels().get("is").cloned())
    };
    let expected = format!("in-{OTHER}");
    wait::until("what exists to be changed", async || {
        let found = label(&here).await?;
        ensure!(found.as_deref() == Some(&*expected), "{found:?}");
        anyhow::Ok(())
    })
    .await?;
    ensure!(label(&there).await?.is_none(), "it is in another namespace");
    ensure!(
        label(&kept).await?.is_none(),
        "it does not meet the condition"
    );
    // What comes is changed too.
    let new = config_map("old-by-name", OTHER, Some("a"));
    world.create(&new).await?;
    ensure!(label(&new).await?.as_deref() == Some(&*expected));
    for object in [&here, &there, &kept, &new, &policy] {
        world.delete(object).await?;
    }
    Ok(())
}
