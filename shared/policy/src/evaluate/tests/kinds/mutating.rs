//! `MutatingPolicy`: patches of expressions.

use anteroom_functions::meter;

use super::*;

const ON_PODS: &str = "matchConstraints:\n  resourceRules:\n  - {apiGroups: [''], apiVersions: [v1], \
                       operations: [CREATE, UPDATE], resources: [pods]}\n";

fn mutated(policy: &Policy, request: &AdmissionRequest, rule: usize) -> Value {
    match outcomes(policy, request, no_facts)
        .swap_remove(rule)
        .1
        .outcome
    {
        RuleOutcome::Mutated { object } => object,
        other => panic!("{other:?}"),
    }
}

fn policy_with(mutations: &str) -> Policy {
    policy_of("MutatingPolicy", &format!("{ON_PODS}{mutations}"))
}

const TWICE: &str = r#"
variables:
- {name: count, expression: "size(object.spec.containers)"}
mutations:
- patchType: ApplyConfiguration
  applyConfiguration:
    expression: >
      Object{metadata: Object.metadata{labels: Object.metadata.labels{count: string(variables.count)}},
        spec: Object.spec{containers: object.spec.containers.map(c,
          Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}
- patchType: JSONPatch
  jsonPatch:
    expression: >
      [JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"), value: object.metadata.labels.count},
       JSONPatch{op: "add", path: "/spec/hostNetwork", value: has(request.object.metadata.labels)}]
"#;

#[test]
fn each_patch_sees_the_object_left_by_the_patches_before() {
    let policy = policy_with(TWICE);
    assert_eq!(policy.kind(), PolicyKind::Mutating);
    let mut object = pod(&json!({}));
    object["metadata"].as_object_mut().unwrap().remove("labels");
    let request = of_resource("CREATE", POD, &object);
    let made = mutated(&policy, &request, 0);
    assert_eq!(
        made["metadata"]["labels"],
        json!({"count": "1", "a/b": "1"})
    );
    assert_eq!(made["spec"]["hostNetwork"], json!(false));
    let containers = json!([{"name": "a", "image": "x:1", "imagePullPolicy": "Always"}]);
    assert_eq!(made["spec"]["containers"], containers);
}

#[test]
fn a_variable_keeps_the_value_that_a_mutation_first_read() {
    let policy = policy_with(
        r#"
variables:
- {name: first, expression: "size(object.metadata.labels)"}
- {name: late, expression: "size(object.metadata.labels)"}
mutations:
- jsonPatch:
    expression: '[JSONPatch{op: "add", path: "/metadata/labels/a", value: string(variables.first)}]'
- jsonPatch:
    expression: >-
      [JSONPatch{op: "add", path: "/metadata/labels/b", value: string(variables.first) + string(variables.late)}]
- jsonPatch:
    expression: >-
      [JSONPatch{op: "add", path: "/metadata/labels/c",
        value: string(variables.late) + string(size(object.metadata.labels))}]
"#,
    );
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let made = mutated(&policy, &request, 0);
    assert_eq!(
        made["metadata"]["labels"],
        json!({"a": "0", "b": "01", "c": "12"})
    );
}

#[test]
fn a_derived_rule_reads_the_name_of_what_makes_pods() {
    let policy = policy_with(
        r#"
matchConditions:
- {name: web, expression: "object.metadata.name == 'web' && has(object.metadata.labels)"}
mutations:
- applyConfiguration:
    expression: "Object{metadata: Object.metadata{labels: {'of': object.metadata.name}}}"
"#,
    );
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {}, "template": {"metadata": {"labels": {"x": "y"}}, "spec": {}}}});
    let request = of_resource("CREATE", DEPLOYMENT, &object);
    let made = mutated(&policy, &request, 1);
    let labels = json!({"x": "y", "of": "web"});
    assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
}

#[test]
fn patches_of_pods_are_made_in_the_templates_of_what_makes_pods() {
    let policy = policy_with(TWICE);
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {}, "template": {"metadata": {"labels": {"x": "y"}},
            "spec": {"containers": [{"name": "a", "image": "x:1"}]}}}});
    let request = of_resource("CREATE", DEPLOYMENT, &object);
    let made = mutated(&policy, &request, 1);
    let template = &made["spec"]["template"];
    assert_eq!(
        template["metadata"]["labels"],
        json!({"x": "y", "count": "1", "a/b": "1"})
    );
    assert_eq!(
        template["spec"]["containers"][0]["imagePullPolicy"],
        "Always"
    );
    assert_eq!(template["spec"]["hostNetwork"], json!(true));
    assert_eq!(made["metadata"], object["metadata"]);
    // A template has no finalizers.
    let policy = policy_with(
        "mutations:\n- jsonPatch:\n    expression: >-\n      [JSONPatch{op: \"add\", path: \"/metadata/finalizers\", \
         value: [\"a\"]}]\n",
    );
    let made = mutated(&policy, &request, 1);
    assert_eq!(
        (&made["metadata"]["finalizers"], &made["spec"]),
        (&json!(["a"]), &object["spec"])
    );
}

#[test]
fn a_patch_that_changes_nothing_or_whose_test_fails_passes() {
    let of = |mutation: &str| {
        let policy = policy_with(&format!("mutations:\n{mutation}"));
        let request = of_resource("CREATE", POD, &pod(&json!({"app": "a"})));
        outcomes(&policy, &request, no_facts)
            .swap_remove(0)
            .1
            .outcome
    };
    let is_pass = |outcome: RuleOutcome| outcome == RuleOutcome::Pass;
    let is_error =
        |outcome: RuleOutcome| matches!(outcome, RuleOutcome::Error(RuleError::Cel { .. }));
    let json = |expression: &str| {
        of(&format!(
            "- jsonPatch:\n    expression: >-\n      {expression}\n"
        ))
    };
    assert!(is_pass(json(
        r#"[JSONPatch{op: "test", path: "/metadata/name", value: "other"}, JSONPatch{op: "remove", path: "/spec"}]"#
    )));
    assert!(is_pass(json(
        r#"[JSONPatch{op: "add", path: "/metadata/labels/app", value: "a"}]"#
    )));
    // As at an API server, a label that is missing has no value.
    for operations in [
        r#"[JSONPatch{op: "test", path: "/metadata/labels/x", value: "y"}, JSONPatch{op: "remove", path: "/spec"}]"#,
        r#"[JSONPatch{op: "test", path: "/metadata/labels/x", value: null}, JSONPatch{op: "remove", path: "/spec"}]"#,
        r#"[JSONPatch{op: "replace", path: "/metadata/labels/x", value: "y"},
            JSONPatch{op: "remove", path: "/metadata/labels/x"}]"#,
        r#"[JSONPatch{op: "copy", from: "/metadata/labels/x", path: "/metadata/labels/y"},
            JSONPatch{op: "remove", path: "/metadata/labels/y"}]"#,
    ] {
        assert!(is_pass(json(operations)), "{operations}");
    }
    assert!(is_error(json(
        r#"[JSONPatch{op: "test", path: "/metadata/nothing/x", value: "y"}]"#
    )));
    assert!(is_error(json(
        r#"[JSONPatch{op: "remove", path: "/spec/nothing"}]"#
    )));
    for field in ["metadata/name", "metadata/namespace", "kind", "apiVersion"] {
        let operation = format!(r#"[JSONPatch{{op: "replace", path: "/{field}", value: "b"}}]"#);
        assert!(is_error(json(&operation)), "{field}");
    }
    let apply = |expression: &str| {
        of(&format!(
            "- applyConfiguration:\n    expression: >-\n      {expression}\n"
        ))
    };
    assert!(is_pass(apply("Object{}")));
    assert!(is_pass(apply("null")));
    assert!(is_error(apply("Object{spec: Object.spec{nothing: 1}}")));
}

/// Each of 20 patches checks and merges 5,000 variables: about 150,000 steps.
#[test]
fn partial_objects_for_long_lists_end_with_the_steps_of_the_review() {
    const STEPS: u64 = 1_000_000;
    const MUTATION: &str = r#"
- applyConfiguration:
    expression: >-
      Object{spec: Object.spec{containers: [Object.spec.containers{name: "a",
        env: [Object.spec.containers.env{name: "x", value: "y"}]}]}}
"#;
    let mut object = pod(&json!({}));
    let variables = (0..5_000).map(|at| json!({"name": at.to_string()}));
    object["spec"]["containers"][0]["env"] = variables.collect();
    let request = of_resource("CREATE", POD, &object);
    let of = |mutations: usize| {
        let policy = policy_with(&format!("mutations:\n{}", MUTATION.repeat(mutations)));
        let (mut reports, left) = meter::within(STEPS, || outcomes(&policy, &request, no_facts));
        (reports.swap_remove(0).1.outcome, STEPS - left)
    };
    let (outcome, taken) = of(1);
    assert!(
        matches!(outcome, RuleOutcome::Mutated { .. }),
        "{outcome:?}"
    );
    assert!((130_000..250_000).contains(&taken), "{taken}");
    let (outcome, taken) = of(20);
    assert!(matches!(outcome, RuleOutcome::Error(_)), "{outcome:?}");
    assert_eq!(taken, STEPS);
}

#[test]
fn invalid_mutations_are_refused_with_the_reason() {
    for (mutations, says) in [
        ("mutations: []", "at least one mutation"),
        ("mutations: [{patchType: JSONPatch}]", "is required"),
        (
            "mutations: [{patchType: JSONPatch, applyConfiguration: {expression: 'Object{}'}}]",
            "patchType names another",
        ),
        (
            "mutations: [{jsonPatch: {expression: '1'}}]",
            "a list of JSONPatch",
        ),
    ] {
        let problems = problems_of("MutatingPolicy", &format!("{ON_PODS}{mutations}"));
        assert!(
            problems.join("; ").contains(says),
            "{mutations}: {problems:?}"
        );
    }
}

#[test]
fn a_patch_reads_the_namespace_of_the_object() {
    let policy = policy_with(
        "mutations:\n- jsonPatch:\n    expression: >-\n      [JSONPatch{op: \"add\", path: \"/metadata/labels/env\", \
         value: namespaceObject.metadata.labels.env}]\n",
    );
    let request = of_resource("CREATE", POD, &pod(&json!({"app": "a"})));
    let namespace = json!({"metadata": {"name": "shop", "labels": {"env": "prod"}}});
    let found = outcomes(&policy, &request, |subject| {
        assert!(
            matches!(subject, FactSubject::NamespaceLabels { .. }),
            "{subject}"
        );
        Ok(namespace.clone())
    });
    let RuleOutcome::Mutated { object } = &found[0].1.outcome else {
        panic!("{found:?}");
    };
    assert_eq!(object["metadata"]["labels"]["env"], "prod");
}

/// A custom kind is merged by its definition, which is a fact. It is kept close at hand by its name.
#[test]
fn partial_objects_of_custom_kinds_are_merged_by_their_definitions() {
    let spec = r#"
matchConstraints:
  resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets, gadgets]}]
mutations:
- applyConfiguration:
    expression: >-
      Object{spec: Object.spec{parts: [Object.spec.parts{name: "b", size: 2}], words: ["new"]}}
"#;
    let policy = policy_of("MutatingPolicy", spec);
    let read = "resource.get(\"apiextensions.k8s.io/v1\", \"customresourcedefinitions\", \"\", \"widgets.example.com\")";
    assert!(policy.rules()[0].entries().any(|entry| entry.name == read));
    let text = json!({"type": "string"});
    let part = json!({"type": "object", "properties": {"name": text, "size": {"type": "integer"}}});
    let schema = |of_words: &str| {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "parts": {"type": "array", "items": part, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            "words": {"type": "array", "items": {"type": of_words}, "x-kubernetes-list-type": "set"},
        }}}})
    };
    let definition = |kind: &str, of_words: &str| {
        json!({"spec": {"names": {"kind": kind}, "versions": [
            {"name": "v1alpha1", "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v1", "schema": {"openAPIV3Schema": schema(of_words)}},
        ]}})
    };
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"},
        "spec": {"parts": [{"name": "a", "size": 1}, {"name": "b"}], "words": ["old"]}});
    let of = |object: &Value, answer: &dyn Fn(&str) -> Result<Value, FactError>| {
        let request = of_resource("CREATE", ("example.com", "v1", "Widget", "widgets"), object);
        let mut found = outcomes(&policy, &request, |subject| match subject {
            FactSubject::Api(ResolvedApiCall { path, .. }) => {
                answer(path.rsplit_once('/').unwrap_or_default().1)
            }
            other => panic!("{other}"),
        });
        found.swap_remove(0).1.outcome
    };
    let merged = of(&object, &|name| match name {
        "widgets.example.com" => Ok(definition("Widget", "string")),
        _ => panic!("{name}"),
    });
    let RuleOutcome::Mutated { object: merged } = merged else {
        panic!("{merged:?}");
    };
    assert_eq!(
        merged["spec"],
        json!({"parts": [{"name": "a", "size": 1}, {"name": "b", "size": 2}], "words": ["old", "new"]})
    );
    let error = |answer: &dyn Fn(&str) -> Result<Value, FactError>| match of(&object, answer) {
        RuleOutcome::Error(error) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let absent = |name: &str| FactError::ObjectNotFound {
        resource: "customresourcedefinitions".into(),
        namespace: String::new(),
        name: name.into(),
    };
    // It is of neither; of another type; of a version without a schema; it cannot be read.
    let says = error(&|name| match name {
        "widgets.example.com" => Err(absent(name)),
        _ => Ok(definition("Gadget", "string")),
    });
    assert!(
        says.contains("there is no schema for kind `Widget`"),
        "{says}"
    );
    let says = error(&|_| Ok(definition("Widget", "integer")));
    assert!(
        says.contains("invalid ApplyConfiguration: .spec.words"),
        "{says}"
    );
    let says = error(&|_| Ok(json!({"spec": {"names": {"kind": "Widget"}}})));
    assert!(says.contains("the definition of its kind"), "{says}");
    let unknown = FactError::NotSynced {
        view: "v".into(),
        state: "starting".into(),
    };
    let says = error(&|_| Err(unknown.clone()));
    assert!(says.contains("is not synced yet"), "{says}");
}

/// Kubernetes' own kinds need no definition, and neither does a JSONPatch.
#[test]
fn no_definition_is_read_where_none_is_needed() {
    let policy = policy_with("mutations: [{applyConfiguration: {expression: 'Object{}'}}]\n");
    assert_eq!(policy.rules()[0].entries().count(), 0);
    let custom = "matchConstraints:\n  resourceRules:\n  - {apiGroups: [example.com], apiVersions: [v1], operations: \
                  [CREATE], resources: [widgets]}\nmutations: [{jsonPatch: {expression: '[]'}}]\n";
    assert_eq!(
        policy_of("MutatingPolicy", custom).rules()[0]
            .entries()
            .count(),
        0
    );
}
