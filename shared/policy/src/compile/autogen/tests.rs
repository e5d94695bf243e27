use serde_json::{Value, json};

use super::*;

fn names(metadata: &Value, rules: &Value) -> Vec<String> {
    derive(metadata, rules.as_array().unwrap())
        .iter()
        .map(|derived| format!("{}:{}", derived.of, derived.rule["name"].as_str().unwrap()))
        .collect()
}

fn on(kinds: &Value) -> Value {
    json!({ "name": "r", "match": { "any": [{ "resources": { "kinds": kinds } }] },
        "validate": { "deny": {} } })
}

#[test]
fn each_rule_on_pods_alone_derives_two_rules() {
    let rules = json!([
        on(&json!(["Pod"])),
        on(&json!(["Service"])),
        on(&json!(["v1/Pod"]))
    ]);
    let expected = [
        "0:autogen-r",
        "2:autogen-r",
        "0:autogen-cronjob-r",
        "2:autogen-cronjob-r",
    ];
    assert_eq!(names(&json!({}), &rules), expected);
}

#[test]
fn a_rule_on_a_pod_subresource_is_derived_beside_one_on_pods() {
    for spelling in ["Pod/exec", "v1/Pod/exec", "Pod.exec"] {
        let rules = json!([on(&json!(["Pod"])), on(&json!([spelling]))]);
        let expected = [
            "0:autogen-r",
            "1:autogen-r",
            "0:autogen-cronjob-r",
            "1:autogen-cronjob-r",
        ];
        assert_eq!(names(&json!({}), &rules), expected, "{spelling}");
    }
}

#[test]
fn derivation_needs_a_rule_naming_pods_or_controllers_by_kind_alone() {
    let mut excluding = on(&json!(["v1/Pod"]));
    excluding["exclude"] = json!({ "any": [{ "resources": { "kinds": ["Pod"] } }] });
    for (rules, expected) in [
        (json!([on(&json!(["v1/Pod"]))]), 0),
        (json!([on(&json!(["v1/Pod"])), on(&json!(["Service"]))]), 0),
        (
            json!([on(&json!(["v1/Pod"])), on(&json!(["apps/v1/Deployment"]))]),
            0,
        ),
        (
            json!([on(&json!(["v1/Pod"])), on(&json!(["Deployment"]))]),
            2,
        ),
        (
            json!([on(&json!(["v1/Pod"])), on(&json!(["CronJob", "Job"]))]),
            2,
        ),
        (json!([excluding]), 2),
    ] {
        assert_eq!(names(&json!({}), &rules).len(), expected, "{rules}");
    }
}

#[test]
fn one_unsuitable_rule_stops_derivation_for_the_whole_policy() {
    let mut named = on(&json!(["Pod"]));
    named["match"]["any"][0]["resources"]["names"] = json!(["a*"]);
    let mut labelled = on(&json!(["ConfigMap"]));
    labelled["exclude"] = json!({ "resources": { "selector": { "matchLabels": { "a": "b" } } } });
    let mut generating = on(&json!(["Namespace"]));
    generating["generate"] = json!({});
    let subresources = on(&json!(["Pod/exec", "Pod/attach"]));
    for other in [
        on(&json!(["Pod", "Service"])),
        subresources,
        named,
        labelled,
        generating,
    ] {
        let rules = json!([on(&json!(["Pod"])), other]);
        assert!(names(&json!({}), &rules).is_empty(), "{rules}");
    }
    // A subresource alone does not name them, and other kinds among themselves are no obstacle.
    assert!(names(&json!({}), &json!([on(&json!(["Pod/exec"]))])).is_empty());
    let rules = json!([on(&json!(["Pod"])), on(&json!(["Service", "Secret"]))]);
    assert_eq!(names(&json!({}), &rules).len(), 2);
}

#[test]
fn the_autogen_annotation_selects_the_controllers() {
    let rules = json!([on(&json!(["Pod"]))]);
    for (annotation, expected) in [
        ("none", vec![]),
        (
            "Deployment,StatefulSet",
            vec![json!(["apps/v1/Deployment", "apps/v1/StatefulSet"])],
        ),
        (
            "Deployment, StatefulSet",
            vec![json!(["apps/v1/Deployment"])],
        ),
        (" Deployment", vec![]),
        ("CronJob", vec![json!(["batch/v1/CronJob"])]),
    ] {
        let metadata = json!({ "annotations": { ANNOTATION: annotation } });
        let derived = derive(&metadata, rules.as_array().unwrap());
        let kinds = derived
            .iter()
            .map(|derived| derived.rule["match"]["any"][0]["resources"]["kinds"].clone());
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{annotation}");
    }
}

#[test]
fn a_derived_rule_reads_the_pod_template_instead_of_the_pod() {
    let rule = json!({
        "name": "r",
        "match": { "all": [{ "resources": { "kinds": ["Pod"], "operations": ["CREATE"] } }] },
        "exclude": { "any": [{ "resources": { "namespaces": ["kube-system"] } }] },
        "context": [{ "name": "a", "variable": { "jmesPath": "request.object.spec.volumes" } }],
        "validate": {
            "message": "{{ request.object.metadata.name }} in {{ request.namespace }}",
            "pattern": { "spec": { "hostNetwork": false } },
        },
    });
    let derived = derive(&json!({}), std::slice::from_ref(&rule));
    assert_eq!(
        derived[0].rule,
        json!({
            "name": "autogen-r",
            "match": { "all": [{ "resources": { "kinds": CONTROLLERS, "operations": ["CREATE"] } }] },
            "exclude": { "any": [{ "resources": { "namespaces": ["kube-system"] } }] },
            "context": [{ "name": "a", "variable": {
                "jmesPath": "request.object.spec.template.spec.volumes" } }],
            "validate": {
                "message": "{{ request.object.spec.template.metadata.name }} in {{ request.namespace }}",
                "pattern": { "spec": { "template": { "spec": { "hostNetwork": false } } } },
            },
        })
    );
    let cron_job = &derived[1].rule;
    assert_eq!(
        cron_job["context"][0]["variable"]["jmesPath"],
        "request.object.spec.jobTemplate.spec.template.spec.volumes"
    );
    assert_eq!(
        cron_job["validate"]["pattern"]["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        json!({ "hostNetwork": false })
    );
}

#[test]
fn a_derived_rules_long_name_is_cut() {
    let mut rule = on(&json!(["Pod"]));
    rule["name"] = "n".repeat(60).into();
    let derived = derive(&json!({}), &[rule]);
    assert_eq!(
        derived[0].rule["name"],
        format!("autogen-{}", "n".repeat(55))
    );
    assert_eq!(
        derived[1].rule["name"],
        format!("autogen-cronjob-{}", "n".repeat(47))
    );
}

#[test]
fn a_derived_patch_changes_the_pod_template() {
    let mut rule = on(&json!(["Pod"]));
    rule.as_object_mut().unwrap().remove("validate");
    rule["mutate"] = json!({ "foreach": [{ "list": "request.object.spec.containers[]", "order": "Ascending",
        "patchStrategicMerge": { "spec": { "containers": [{ "name": "{{ element.name }}" }] } } }] });
    let derived = derive(&json!({}), &[rule.clone()]);
    let patch = json!({ "spec": { "containers": [{ "name": "{{ element.name }}" }] } });
    let expected = json!({ "foreach": [{ "list": "request.object.spec.template.spec.containers[]",
        "order": "Ascending", "patchStrategicMerge": { "spec": { "template": patch } } }] });
    assert_eq!(derived[0].rule["mutate"], expected);
    let patch = &derived[1].rule["mutate"]["foreach"][0]["patchStrategicMerge"];
    assert!(patch["spec"]["jobTemplate"]["spec"]["template"]["spec"].is_object());

    // A path is written for one kind.
    rule["mutate"] =
        json!({ "foreach": [{ "list": "x", "foreach": [{ "patchesJson6902": "[]" }] }] });
    assert!(derive(&json!({}), &[rule]).is_empty());
}
