//! Suites of policies of policies.kyverno.io.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used)]

use std::fs;

use anteroom_offline::{LoadedPolicy, Resource, Row, Scenario, Suite, applied, apply, check};
use serde_json::{Value, json};

/// Files by their names.
type Files<'a> = &'a [(&'a str, &'a str)];

fn rows(files: Files<'_>) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let suites = Suite::read(&folder.path().join("kyverno-test.yaml")).unwrap();
    suites
        .iter()
        .flat_map(|suite| check(suite).unwrap())
        .collect()
}

/// Each row as `RESOURCE RESULT REASON`.
fn told(files: Files<'_>) -> Vec<String> {
    let rows = rows(files);
    let told = rows
        .iter()
        .map(|row| format!("{} {} {}", row.resource, row.result.as_str(), row.reason));
    told.collect()
}

const POLICY: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
  matchConditions:
  - {name: has-replicas, expression: has(object.spec.replicas)}
  variables:
  - {name: limits, expression: "resource.get('v1', 'configmaps', object.metadata.namespace, 'limits')"}
  validations:
  - expression: variables.limits == null || object.spec.replicas <= int(variables.limits.data.most)
    messageExpression: "'at most ' + variables.limits.data.most"
"#;

const DEPLOYMENTS: &str = "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: small, namespace: shop}, spec: {replicas: 2}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: large, namespace: shop}, spec: {replicas: 9}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: none, namespace: shop}, spec: {}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: free, namespace: other}, spec: {replicas: 9}}
";

const CONTEXT: &str = "
apiVersion: cli.kyverno.io/v1alpha1
kind: Context
metadata: {name: context}
spec:
  resources:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: shop}, data: {most: '5'}}
";

#[test]
fn a_validating_policy_reads_the_cluster_of_a_context_file() {
    let suite = "policies: [policy.yaml]\nresources: [resources.yaml]\ncontext: context.yaml\nresults:\n\
        - {policy: replicas, isValidatingPolicy: true, rule: of-old, kind: Deployment, resources: [small, free], result: pass}\n\
        - {policy: replicas, kind: Deployment, resources: [large], result: fail}\n\
        - {policy: replicas, isValidatingPolicy: true, kind: Deployment, resources: [none], result: skip}\n\
        - {policy: replicas, isMutatingPolicy: true, kind: Deployment, resources: [small], result: pass}\n\
        - {policy: replicas, isDeletingPolicy: true, kind: Deployment, resources: [small], result: pass}\n";
    let files: Files<'_> = &[
        ("policy.yaml", POLICY),
        ("resources.yaml", DEPLOYMENTS),
        ("context.yaml", CONTEXT),
        ("kyverno-test.yaml", suite),
    ];
    assert_eq!(
        told(files),
        [
            "Deployment/shop/small Pass Ok",
            "Deployment/other/free Pass Ok",
            "Deployment/shop/large Pass Ok",
            "Deployment/shop/none Pass Ok",
            "Deployment/small Fail Not found",
            "Deployment/small Not run Not run",
        ]
    );
    let rows = rows(files);
    assert_eq!((&*rows[0].rule, &*rows[0].remark), ("", ""));
    assert_eq!(rows[2].message, "at most 5");
}

#[test]
fn an_object_that_nothing_was_given_for_is_null_in_a_suite_and_an_error_in_apply() {
    let suite = "policies: [policy.yaml]\nresources: [resources.yaml]\nresults:\n\
        - {policy: replicas, isValidatingPolicy: true, kind: Deployment, resources: [large], result: pass}\n";
    let rows = rows(&[
        ("policy.yaml", POLICY),
        ("resources.yaml", DEPLOYMENTS),
        ("kyverno-test.yaml", suite),
    ]);
    assert_eq!(rows[0].reason, "Ok", "{rows:?}");
    assert!(
        rows[0]
            .remark
            .contains("nothing was given for `resource.get("),
        "{rows:?}"
    );
    let results = applied_to(POLICY, DEPLOYMENTS);
    let statuses: Vec<_> = results
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["error", "error", "skip", "error"]);
}

fn manifests(text: &str) -> Vec<Value> {
    anteroom_offline::yaml(text).unwrap()
}

/// The results of a policy in `apply`.
fn applied_to(policy: &str, resources: &str) -> Vec<Value> {
    let policies = manifests(policy);
    let policies = policies
        .iter()
        .map(|policy| LoadedPolicy::new(policy).unwrap());
    let resources = manifests(resources).into_iter().filter_map(Resource::new);
    let scenario = Scenario::new(policies.collect(), resources.collect());
    let told = applied(&scenario, &apply(&scenario), false).json();
    told["results"].as_array().unwrap().clone()
}

#[test]
fn an_unmocked_list_is_an_error_without_a_context_and_empty_with_one() {
    let policy = "
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: none-yet}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - expression: size(resource.list('v1', 'secrets', object.metadata.namespace).items) == 0
";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}}";
    let row = "results: [{policy: none-yet, kind: Pod, resources: [p], result: pass}]";
    let suite = format!("policies: [policy.yaml]\nresources: [pod.yaml]\n{row}");
    let in_context = format!("context: context.yaml\n{suite}");
    let of = |suite: &str| {
        told(&[
            ("policy.yaml", policy),
            ("pod.yaml", pod),
            ("context.yaml", CONTEXT),
            ("kyverno-test.yaml", suite),
        ])
    };
    assert_eq!(of(&suite), ["Pod/default/p Fail Want pass, got error"]);
    assert_eq!(of(&in_context), ["Pod/default/p Pass Ok"]);
}

const MUTATING: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: NamespacedMutatingPolicy
metadata: {name: label, namespace: shop}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  mutations:
  - jsonPatch:
      expression: >-
        has(object.data) ? [JSONPatch{op: "add", path: "/data/by", value: "policy"}] : []
"#;

#[test]
fn objects_that_a_mutating_policy_patched_are_compared() {
    let maps = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}, data: {x: '1'}}\n---\n\
        {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: shop}}\n---\n\
        {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other}, data: {x: '1'}}";
    let same = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}, data: {x: '1', by: policy}}";
    let suite = "policies: [policy.yaml]\nresources: [maps.yaml]\nresults:\n\
        - {policy: label, isMutatingPolicy: true, kind: ConfigMap, resources: [shop/a], patchedResources: same.yaml, result: pass}\n\
        - {policy: shop/label, isMutatingPolicy: true, kind: ConfigMap, resources: [shop/a], patchedResources: maps.yaml, result: pass}\n\
        - {policy: label, isMutatingPolicy: true, kind: ConfigMap, resources: [shop/b], result: pass}\n\
        - {policy: label, isMutatingPolicy: true, kind: ConfigMap, resources: [other/a], result: skip}\n";
    let files: Files<'_> = &[
        ("policy.yaml", MUTATING),
        ("maps.yaml", maps),
        ("same.yaml", same),
        ("kyverno-test.yaml", suite),
    ];
    assert_eq!(
        told(files),
        [
            "ConfigMap/shop/a Pass Ok",
            "ConfigMap/shop/a Fail Resource diff",
            "ConfigMap/shop/b Pass Ok",
            "ConfigMap/other/a Pass Excluded",
        ]
    );
}

#[test]
fn requests_have_operations_subresources_and_plurals_of_definitions() {
    let of = |name: &str, group: &str, resource: &str, operation: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
             matchConstraints:\n    resourceRules:\n    - {{apiGroups: ['{group}'], apiVersions: [v1], operations: [{operation}], \
             resources: [{resource}]}}\n  validations:\n  - expression: request.operation != '{operation}'\n---\n"
        )
    };
    let policies = [
        of("connect", "", "pods", "CONNECT"),
        of("exec", "", "pods/exec", "CONNECT"),
        of("delete", "", "pods", "DELETE"),
        of("oxen", "a.b", "oxen", "CREATE"),
    ];
    let policies = policies.concat();
    let resources = "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n\
        {apiVersion: v1, kind: PodExecOptions, metadata: {name: e}}\n---\n\
        {apiVersion: a.b/v1, kind: Ox, metadata: {name: o}}";
    let definition =
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: ClusterResource\nspec: {crds: [crd.yaml]}";
    let crd = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: oxen.a.b}, \
        spec: {group: a.b, names: {kind: Ox, plural: oxen}}}";
    let suite = "policies: [policies.yaml]\nresources: [resources.yaml]\nclusterResources: [cluster.yaml]\n\
        values: {subresources: [{subresource: {name: pods/exec, kind: PodExecOptions, version: v1}, \
        parentResource: {name: pods, kind: Pod, version: v1}}]}\nresults:\n\
        - {policy: connect, isValidatingPolicy: true, kind: Pod, resources: [p], operation: CONNECT, result: fail}\n\
        - {policy: connect, isValidatingPolicy: true, kind: Pod, resources: [p], result: skip}\n\
        - {policy: exec, isValidatingPolicy: true, resources: [e], operation: CONNECT, result: fail}\n\
        - {policy: delete, isValidatingPolicy: true, kind: Pod, resources: [p], operation: DELETE, result: fail}\n\
        - {policy: oxen, isValidatingPolicy: true, kind: Ox, resources: [o], result: fail}\n";
    assert_eq!(
        told(&[
            ("policies.yaml", &policies),
            ("resources.yaml", resources),
            ("cluster.yaml", definition),
            ("crd.yaml", crd),
            ("kyverno-test.yaml", suite),
        ]),
        [
            "Pod/default/p Pass Ok",
            "Pod/default/p Pass Excluded",
            "PodExecOptions/default/e Pass Ok",
            "Pod/default/p Pass Ok",
            "Ox/default/o Pass Ok",
        ]
    );
}

const JUDGING_NAMESPACES: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: team}
spec:
  validationActions: [Audit]
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  auditAnnotations:
  - {key: team, valueExpression: "namespaceObject.metadata.?annotations.?team.orValue('none')"}
  validations:
  - {expression: "namespaceObject.metadata.?annotations.?team.hasValue()", message: no team}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: payload}
spec:
  evaluation: {mode: JSON}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "true"}]
"#;

#[test]
fn exceptions_and_whole_namespaces_of_values_count() {
    let pods = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: red}}\n---\n\
        {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: grey}}\n---\n\
        {apiVersion: v1, kind: Pod, metadata: {name: old, namespace: grey}}";
    let exception = "apiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {name: e, namespace: x}\n\
        spec: {policyRefs: [{name: team, kind: ValidatingPolicy}], \
        matchConditions: [{name: old, expression: \"object.metadata.name == 'old'\"}]}";
    let suite = "policies: [policy.yaml]\nresources: [pods.yaml]\nexceptions: [exception.yaml]\n\
        values: {namespaces: [{metadata: {name: red, annotations: {team: r}}}]}\nresults:\n\
        - {policy: team, isValidatingPolicy: true, kind: Pod, resources: [a], result: pass}\n\
        - {policy: team, isValidatingPolicy: true, kind: Pod, resources: [b], result: fail}\n\
        - {policy: team, isValidatingPolicy: true, kind: Pod, resources: [old], result: skip}\n\
        - {policy: payload, isValidatingPolicy: true, resources: [a], result: pass}\n";
    assert_eq!(
        told(&[
            ("policy.yaml", JUDGING_NAMESPACES),
            ("pods.yaml", pods),
            ("exception.yaml", exception),
            ("kyverno-test.yaml", suite),
        ]),
        [
            "Pod/red/a Pass Ok",
            "Pod/grey/b Pass Ok",
            "Pod/grey/old Pass Ok",
            "a Not run Not run",
        ]
    );
}

#[test]
fn reports_name_the_source_and_what_decided() {
    let policy = JUDGING_NAMESPACES.split("---").next().unwrap();
    let policy = LoadedPolicy::new(&manifests(policy)[0]).unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let scenario = Scenario::new(vec![policy], vec![Resource::new(pod).unwrap()]);
    let told = applied(&scenario, &apply(&scenario), true);
    let result = &told.policy_reports()[0]["results"][0];
    assert_eq!(result["source"], "KyvernoValidatingPolicy");
    assert_eq!(
        (&result["rule"], &result["result"]),
        (&json!(""), &json!("warn"))
    );
    assert_eq!(
        result["properties"],
        json!({"team": "none", "cel.validationIndex": "0"})
    );
    let text = told.text(true);
    assert!(
        text.contains("warn: policy team, Pod/default/p: no team"),
        "{text}"
    );
}

/// The given definition makes the object cluster-scoped, and defines the merge of its lists.
#[test]
fn an_object_of_a_given_definition_is_merged_by_it() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.a.b"},
        "spec": {
            "group": "a.b", "scope": "Cluster", "names": {"kind": "Gadget", "plural": "gadgets"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"parts": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {
                        "name": {"type": "string"}, "size": {"type": "integer"},
                    }},
                }}},
            }}}}],
        },
    });
    let policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": {"name": "sizes"},
        "spec": {
            "evaluation": {"admission": {"enabled": true}},
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["a.b"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gadgets"],
                "scope": "Cluster",
            }]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                "Object{spec: Object.spec{parts: [Object.spec.parts{name: 'b', size: 2}]}}"}}],
        },
    });
    let gadget = json!({
        "apiVersion": "a.b/v1", "kind": "Gadget", "metadata": {"name": "g"},
        "spec": {"parts": [{"name": "a", "size": 1}, {"name": "b", "size": 1}]},
    });
    let policies = vec![LoadedPolicy::new(&policy).unwrap()];
    let given = vec![Resource::new(gadget).unwrap()];
    let scenario =
        Scenario::new(policies, given).with_read(vec![Resource::new(definition).unwrap()]);
    let responses = apply(&scenario);
    let patched = responses[0].patched.as_ref().unwrap();
    assert_eq!(patched["metadata"], json!({"name": "g"}));
    assert_eq!(
        patched["spec"]["parts"],
        json!([{"name": "a", "size": 1}, {"name": "b", "size": 2}])
    );
}

/// As in Kyverno's command line.
#[test]
fn a_policy_for_scans_alone_is_looked_at() {
    let policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": {"name": "p"},
        "spec": {
            "evaluation": {"admission": {"enabled": false}},
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "validations": [{"expression": "false"}],
        },
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
    let policies = vec![LoadedPolicy::new(&policy).unwrap()];
    let scenario = Scenario::new(policies, vec![Resource::new(pod).unwrap()]);
    assert_eq!(apply(&scenario)[0].rules[0].status.as_str(), "fail");
}

#[test]
fn a_patched_object_of_the_cluster_is_compared_without_a_namespace() {
    let files: Files<'_> = &[
        (
            "kyverno-test.yaml",
            "
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [gadget.yaml, definition.yaml]
results:
- {policy: p, isMutatingPolicy: true, kind: Gadget, resources: [g], patchedResources: patched.yaml, result: pass}
",
        ),
        (
            "policy.yaml",
            r#"
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [a.b], apiVersions: [v1], operations: [CREATE], resources: [gadgets]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/spec', value: {'color': 'red'}}]"}
"#,
        ),
        (
            "gadget.yaml",
            "{apiVersion: a.b/v1, kind: Gadget, metadata: {name: g}}",
        ),
        (
            "patched.yaml",
            "{apiVersion: a.b/v1, kind: Gadget, metadata: {name: g}, spec: {color: red}}",
        ),
        (
            "definition.yaml",
            "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.a.b}, \
             spec: {group: a.b, scope: Cluster, names: {kind: Gadget, plural: gadgets}}}",
        ),
    ];
    let rows = rows(files);
    assert_eq!(rows[0].result.as_str(), "Pass", "{}", rows[0].reason);
}
