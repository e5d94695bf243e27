//! Rules that change objects.

use anteroom_functions::meter;
use anteroom_model::ErrorCode;
use serde_json::{Map, json};

use super::*;
use crate::{Driver, compile_for};

fn policy_of(rule: &str) -> Policy {
    let rule: Value = serde_saphyr::from_str(rule).unwrap();
    let mut fields = json!({"name": "rule", "match": {"any": [{"resources": {"kinds": ["*"]}}]}});
    for (name, value) in rule.as_object().unwrap() {
        fields[name] = value.clone();
    }
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [fields]},
    });
    compile_for(&manifest, Driver::ALL).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn outcome(rule: &str, object: &Value) -> RuleOutcome {
    let facts = |_: &FactRequest| panic!("no fact is asked for");
    let outcome = drive(&policy_of(rule), &create(object), facts).0.outcome;
    if let RuleOutcome::Mutated { object: after } = &outcome {
        assert_permitted(rule, object, after);
    }
    outcome
}

/// Asserts that a rule may change an existing object in every way in which the rule changes a request's object.
fn assert_permitted(rule: &str, before: &Value, after: &Value) {
    let mut rule: Value = serde_saphyr::from_str(rule).unwrap();
    rule["mutate"]["targets"] =
        json!([{"apiVersion": before["apiVersion"], "kind": before["kind"]}]);
    rule["name"] = "rule".into();
    rule["match"] = json!({"any": [{"resources": {"kinds": ["*"]}}]});
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    });
    let driver = Driver {
        targets: true,
        ..Driver::ALL
    };
    let policy = compile_for(&manifest, driver);
    let policy = policy.unwrap_or_else(|problems| panic!("{manifest}: {problems:#?}"));
    let permitted = policy.permits_change("rule", 0, before, after, "pods");
    assert_eq!(permitted, Ok(()), "{manifest} {after}");
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}], "volumes": [{"name": "v"}]}})
}

/// The object's `spec` behind the rule.
fn spec(rule: &str) -> Value {
    match outcome(rule, &pod()) {
        RuleOutcome::Mutated { object } => object["spec"].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_kind_of_patch_changes_the_object_as_expected() {
    let two = || json!([{"name": "v"}]);
    let table = [
        (
            "mutate: {patchStrategicMerge: {spec: {a: '{{ request.name }}', b: '{{ request.object.spec.volumes }}'}}}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "a": "n", "b": two()}),
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {containers: [{(image): 'x*', '+(tty)': true}]}}}",
            json!({"containers": [{"name": "a", "image": "x", "tty": true}, {"name": "b", "image": "y"}], "volumes": two()}),
        ),
        (
            "mutate: {patchesJson6902: [{op: remove, path: /spec/containers/-1}, {op: add, path: /spec/a/-, value: '{{ request.object.spec.volumes }}'}]}",
            json!({"containers": [{"name": "a", "image": "x"}], "volumes": two(), "a": [two()]}),
        ),
        (
            "mutate: {patchesJson6902: \"- op: add\\n  path: /spec/a\\n  value: '{{ length(request.object.spec.volumes) }}'\\n- {op: add, path: /spec/b, value: 2}\"}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "a": "1", "b": 2}),
        ),
        // The text of an unquoted variable is read as a scalar; a text that looks like a list stays text.
        (
            "mutate: {patchesJson6902: \"- op: add\\n  path: /spec/a\\n  value: {{ to_string(length(request.object.spec.volumes)) }}\\n- {op: add, path: /spec/b, value: {{ '[1]' }} }\"}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "a": 1, "b": "[1]"}),
        ),
        // Modes are octal, and what is no reference stays without its escape.
        (
            "mutate: {patchesJson6902: \"- {op: add, path: /spec/mode, value: 0400}\\n- {op: add, path: /spec/a, value: '\\\\$(HOST)'}\"}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "mode": 256, "a": "$(HOST)"}),
        ),
        // Operations out of an expression, as a list and as text; a path is one of them, whatever is in it.
        (
            "mutate: {patchesJson6902: \"{{ request.object.spec.volumes[].{op: 'add', path: join('/', ['/spec', name]), value: name} }}\"}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "v": "v"}),
        ),
        (
            "mutate: {patchesJson6902: \"{{ to_string(request.object.spec.volumes[].{op: 'add', path: '/spec/x', value: name}) }}\"}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "x": "v"}),
        ),
        // What was a text stays one.
        (
            "mutate: {patchStrategicMerge: {spec: {containers: [{name: a, image: 1, tty: true}], volumes: [{name: v, size: 2}]}}}",
            json!({"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b", "image": "y"}],
                "volumes": [{"name": "v", "size": 2}]}),
        ),
        // What a condition matches is a pattern.
        (
            "mutate: {patchStrategicMerge: {(spec): {X(hostNetwork): 'null', ^(containers): [{image: 'y*'}]}, spec: {a: 1, b: {}}}}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "a": 1}),
        ),
        // The last comes first in the list, so the order stays.
        (
            "mutate: {foreach: [{list: request.object.spec.containers, patchStrategicMerge: \
             {spec: {containers: [{name: '{{ element.name }}', image: 'r/{{ element.image }}'}]}}}]}",
            json!({"containers": [{"name": "a", "image": "r/x"}, {"name": "b", "image": "r/y"}], "volumes": two()}),
        ),
        (
            "mutate: {foreach: [{list: request.object.spec.containers, order: Ascending, patchStrategicMerge: \
             {spec: {containers: [{name: '{{ element.name }}', tty: true}]}}}]}",
            json!({"containers": [{"name": "b", "image": "y", "tty": true}, {"name": "a", "image": "x", "tty": true}], "volumes": two()}),
        ),
        (
            "mutate: {foreach: [{list: request.object.spec.containers, order: Descending, preconditions: \
             {all: [{key: '{{ element.name }}', operator: Equals, value: b}]}, \
             patchesJson6902: [{op: remove, path: '/spec/containers/{{ elementIndex }}'}]}]}",
            json!({"containers": [{"name": "a", "image": "x"}], "volumes": two()}),
        ),
        // The second list is of what the first left.
        (
            "mutate: {foreach: [{list: request.object.spec.volumes, patchesJson6902: [{op: add, path: /spec/volumes/-, value: {name: w}}]}, \
             {list: request.object.spec.volumes, context: [{name: own, variable: {value: '{{ element.name }}'}}], \
             patchesJson6902: [{op: add, path: '/spec/volumes/{{ elementIndex }}/as', value: '{{ own }}'}]}]}",
            json!({"containers": pod()["spec"]["containers"], "volumes": [{"name": "v", "as": "v"}, {"name": "w", "as": "w"}]}),
        ),
        (
            "mutate: {foreach: [{list: '[`1`, `2`]', foreach: [{list: '[`7`]', patchesJson6902: \
             [{op: add, path: /spec/a/-, value: '{{ element0 }}{{ element1 }}{{ element }}{{ elementIndex0 }}{{ elementIndex1 }}'}]}]}]}",
            json!({"containers": pod()["spec"]["containers"], "volumes": two(), "a": ["17700", "27710"]}),
        ),
    ];
    for (rule, expected) in table {
        assert_eq!(spec(rule), expected, "{rule}");
    }
}

#[test]
fn a_condition_compares_single_values_as_texts() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"none": null, "version": "1.0", "empty": "", "count": 2, "flag": true}});
    for (condition, holds) in [
        ("(none): '*'", true),
        ("(none): '?*'", true),
        ("(none): 'null'", true),
        ("(none): '<2'", false),
        ("(empty): null", false),
        ("(version): 1", true),
        ("(count): '>1'", true),
        ("(flag): 'true'", true),
    ] {
        let rule = format!("mutate: {{patchStrategicMerge: {{spec: {{{condition}, found: 1}}}}}}");
        let found = outcome(&rule, &object);
        let is_changed = matches!(found, RuleOutcome::Mutated { .. });
        assert_eq!(is_changed, holds, "{rule}: {found:?}");
    }
}

#[test]
fn a_mutation_that_changes_nothing_is_skipped() {
    for rule in [
        "mutate: {patchStrategicMerge: {spec: {'+(containers)': []}}}",
        "mutate: {patchStrategicMerge: {metadata: {'(name)': q}, spec: {a: 1}}}",
        "mutate: {patchesJson6902: [{op: remove, path: /spec/none}]}",
        "mutate: {foreach: [{list: 'request.object.spec.none || `[]`', patchStrategicMerge: {a: 1}}]}",
    ] {
        let skipped = RuleOutcome::Skipped {
            reason: "no patches applied".to_owned(),
        };
        assert_eq!(outcome(rule, &pod()), skipped, "{rule}");
    }
    let list = "mutate: {foreach: [{list: request.object.spec.none, patchStrategicMerge: {a: 1}}]}";
    let RuleOutcome::Error(error) = outcome(list, &pod()) else {
        panic!("a list to change by must be there");
    };
    assert_eq!(error.code(), ErrorCode::VARIABLE_UNRESOLVED);
    let policy = policy_of("mutate: {patchStrategicMerge: {spec: {a: 1}}}");
    let request = request("DELETE", &Value::Null, &pod());
    let facts = |_: &FactRequest| panic!("no fact is asked for");
    let found = drive(&policy, &request, facts).0.outcome;
    let RuleOutcome::Skipped { reason } = found else {
        panic!("{found:?}");
    };
    assert_eq!(reason, "what is deleted is not changed");
}

#[test]
fn a_patch_that_does_not_apply_is_an_error_of_the_rule() {
    let table = [
        (
            "mutate: {patchesJson6902: [{op: replace, path: /spec/none, value: 1}]}",
            "mutate.patchesJson6902: replace at `/spec/none`: there is no field `none`",
            ErrorCode::PATCH_FAILED,
        ),
        (
            "mutate: {foreach: [{list: '[`1`]', patchesJson6902: [{op: test, path: /kind, value: q}]}]}",
            "mutate.foreach[0].patchesJson6902: test at `/kind`: the document has another value there",
            ErrorCode::PATCH_FAILED,
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {containers: [{image: z}]}}}",
            "mutate.patchStrategicMerge: spec.containers.[]: an element needs its `name`, by which it is merged",
            ErrorCode::PATCH_FAILED,
        ),
        (
            "mutate: {patchStrategicMerge: {a: '{{ request.object.none }}'}}",
            "mutate.patchStrategicMerge: variable `request.object.none`: Unknown key \"none\" in path",
            ErrorCode::VARIABLE_UNRESOLVED,
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {'{{ length(request.object.spec.volumes) }}': 1}}}",
            "mutate.patchStrategicMerge: variable `length(request.object.spec.volumes)`: \
             its value is no text, which a key needs",
            ErrorCode::VARIABLE_UNRESOLVED,
        ),
        (
            "mutate: {patchesJson6902: [{op: add, path: /spec/a/9999, value: 1}]}",
            "mutate.patchesJson6902: add at `/spec/a/9999`: element 9999 is more than 1000 behind the end",
            ErrorCode::PATCH_FAILED,
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {volumes: v}}}",
            "mutate.patchStrategicMerge: merge at `spec.volumes`: the patch has a single value where the object has a list",
            ErrorCode::PATCH_FAILED,
        ),
        (
            "mutate: {patchesJson6902: [{op: remove, path: /kind}]}",
            "mutate: mutate at ``: what the rule makes is no object with a `kind`",
            ErrorCode::PATCH_FAILED,
        ),
    ];
    for (rule, message, code) in table {
        let found = outcome(rule, &pod());
        let RuleOutcome::Error(error) = found else {
            panic!("{rule}: {found:?}");
        };
        assert_eq!(
            (error.to_string().as_str(), error.code()),
            (message, code),
            "{rule}"
        );
    }
}

#[test]
fn a_value_is_never_more_than_a_value() {
    let hostile = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {
        "step": "a/b", "anchor": "+(x)", "directive": "$patch", "template": "{{ request.name }}"}},
        "spec": {"deep": {"$patch": "delete"}}});
    let patched = |rule: &str| match outcome(rule, &hostile) {
        RuleOutcome::Mutated { object } => Ok(object["spec"].clone()),
        RuleOutcome::Error(error) => Err(error.to_string()),
        other => panic!("{other:?}"),
    };
    let deep = || json!({"$patch": "delete"});
    let table = [
        // It adds no step to a pointer.
        (
            "mutate: {patchesJson6902: [{op: add, path: '/spec/{{ request.object.metadata.labels.step }}', value: 1}]}",
            Ok(json!({"deep": deep(), "a/b": 1})),
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {'{{ request.object.metadata.labels.step }}': '{{ request.object.metadata.labels.template }}'}}}",
            Ok(json!({"deep": deep(), "a/b": "{{ request.name }}"})),
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {'{{ request.object.metadata.labels.anchor }}': 1}}}",
            Err("makes the key `+(x)`"),
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {'{{ request.object.metadata.labels.directive }}': delete}}}",
            Err("makes the key `$patch`"),
        ),
        (
            "mutate: {patchStrategicMerge: {spec: '{{ request.object.spec.deep }}'}}",
            Err("makes the key `$patch`"),
        ),
        (
            "mutate: {patchStrategicMerge: {spec: {many: '{{ [request.object.spec.deep] }}'}}}",
            Err("makes the key `$patch`"),
        ),
    ];
    for (rule, expected) in table {
        match (patched(rule), expected) {
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{rule}"),
        }
    }
}

#[test]
fn facts_of_all_elements_are_asked_for_at_once() {
    let policy = policy_of(
        "mutate: {foreach: [{list: request.object.spec.containers, context: [{name: all, resourceCache: \
         {version: v1, kind: ConfigMap, jmesPath: \"[?data.image == '{{ element.image }}'].data.to | [0]\"}}], \
         patchesJson6902: [{op: replace, path: '/spec/containers/{{ elementIndex }}/image', value: '{{ all }}'}]}]}",
    );
    let answer = |fact: &FactRequest| Ok(json!(format!("to {}", fact.parameters.len())));
    let (report, asked) = drive(&policy, &create(&pod()), answer);
    let RuleOutcome::Mutated { object } = report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    let images = object["spec"]["containers"].as_array().unwrap().iter();
    let images: Vec<_> = images
        .map(|container| container["image"].as_str().unwrap())
        .collect();
    assert_eq!(images, ["to 1", "to 1"]);
}

#[test]
fn a_large_object_is_not_patched_without_end() {
    let mut large = pod();
    large["spec"]["text"] = "x".repeat(1_000_000).into();
    large["spec"]["many"] = vec![json!(1); 400].into();
    let rule = "mutate: {foreach: [{list: request.object.spec.many, \
                patchesJson6902: [{op: replace, path: /spec/many/0, value: '{{ elementIndex }}'}]}]}";
    assert_eq!(
        outcome(rule, &large),
        RuleOutcome::Error(RuleError::TooMuchPatched)
    );
}

/// Small objects take a hundred times their bytes of text: each patch adds some 8 MB, and all together some 100 MB.
#[test]
fn patches_together_add_a_limited_memory() {
    let mut object = pod();
    object["spec"]["list"] = vec![json!({"a": 1}); 1_000].into();
    let copy = |at: usize| {
        let path = format!("/spec/x{{{{ elementIndex }}}}-{at}");
        json!({"op": "copy", "from": "/spec/list", "path": path})
    };
    let operations: Vec<_> = (0..10).map(copy).collect();
    let patched = |elements: usize| {
        let list = format!("`{:?}`", vec![1; elements]);
        let rule = json!({"mutate": {"foreach": [{"list": list, "patchesJson6902": operations}]}});
        let facts = |_: &FactRequest| panic!("no fact is asked for");
        let policy = policy_of(&rule.to_string());
        drive(&policy, &create(&object), facts).0.outcome
    };
    let found = patched(1);
    assert!(matches!(found, RuleOutcome::Mutated { .. }), "{found:?}");
    match patched(12) {
        RuleOutcome::Error(error) => assert_eq!(
            error,
            RuleError::Patch {
                place: "mutate".to_owned(),
                source: anteroom_patch::PatchError::TooLarge,
            }
        ),
        RuleOutcome::Mutated { .. } => panic!("it grows without a limit"),
        other => panic!("{other:?}"),
    }
}

/// The second element fails only as long as the first waits for its fact.
#[test]
fn an_element_after_one_that_waits_fails_only_if_it_fails_in_the_end() {
    let policy = policy_of(
        "mutate: {foreach: [{list: request.object.spec.elements, order: Ascending, context: [{name: fact, apiCall: \
         {urlPath: /api/v1/namespaces/x, jmesPath: metadata.name}}], patchesJson6902: [\
         {op: add, path: '/spec/{{ element.to }}', value: \"{{ element.value || fact }}\"}, \
         {op: test, path: /spec/a, value: found}]}]}",
    );
    let mut object = pod();
    object["spec"]["a"] = "before".into();
    object["spec"]["elements"] = json!([{"to": "a"}, {"to": "b", "value": "own"}]);
    for (answer, expected) in [("found", Some("own")), ("other", None)] {
        let (report, asked) = drive(&policy, &create(&object), |_| Ok(json!(answer)));
        assert_eq!(asked.len(), 1, "{answer}: {report:?}");
        match (report.outcome, expected) {
            (RuleOutcome::Mutated { object }, Some(own)) => assert_eq!(object["spec"]["b"], own),
            (RuleOutcome::Error(error), None) => assert_eq!(error.code(), ErrorCode::PATCH_FAILED),
            (other, _) => panic!("{answer}: {other:?}"),
        }
    }
}

/// Returns the outcome of a rule that may take so many steps for a new object, and the steps that it took.
fn metered(steps: u64, mutate: &Value, object: &Value) -> (RuleOutcome, u64) {
    metered_for(steps, mutate, &create(object))
}

/// Returns the outcome of a rule that may take so many steps, and the steps that it took.
fn metered_for(steps: u64, mutate: &Value, request: &AdmissionRequest) -> (RuleOutcome, u64) {
    let matched = json!({"any": [{"resources": {"kinds": ["*"]}}]});
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "rule", "match": matched, "mutate": mutate}]},
    });
    let policy = compile_for(&manifest, Driver::ALL);
    let policy = policy.unwrap_or_else(|problems| panic!("{problems:#?}"));
    let (step, left) = meter::within(steps, || {
        Evaluation::start(&policy, &policy.rules[0], request).step()
    });
    match step {
        RuleStep::Done(report) => (report.outcome, steps - left),
        RuleStep::Need(facts) => panic!("{facts:?}"),
    }
}

/// Each of 1,000 elements would apply 10,000 operations, which takes minutes. That the first one waits for a fact lets no
/// other begin after that.
#[test]
fn operations_of_each_element_end_with_the_steps_of_the_review() {
    let data: Map<_, _> = (0..2_000)
        .map(|at| (format!("k{at}"), json!("v")))
        .collect();
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
        "data": data, "list": vec!["v"; 1_000]});
    object["list"][0] = "".into();
    let call = json!({"urlPath": "/api/v1/namespaces/x", "jmesPath": "metadata.name"});
    let context = json!([{"name": "fact", "apiCall": call}]);
    let moved = json!({"op": "move", "from": "/data/k0", "path": "/data/k0"});
    let tested = json!({"op": "test", "path": "/data/k0", "value": "v"});
    let waits = json!({"op": "test", "path": "/data/k0", "value": "{{ element || fact }}"});
    for (first, operation) in [(&moved, &moved), (&tested, &tested), (&waits, &tested)] {
        let mut operations = vec![operation; 10_000];
        operations[0] = first;
        let mutate = json!({"foreach": [{"list": "request.object.list", "context": context,
            "patchesJson6902": operations}]});
        let (outcome, taken) = metered(500_000, &mutate, &object);
        let RuleOutcome::Error(error) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED, "{error}");
        assert_eq!(taken, 500_000);
    }
}

/// Each of 2,000 ports would be compared with each of 2,000, or each of 2,000 conditions with each of 2,000 ports.
#[test]
fn merges_of_long_lists_end_with_the_steps_of_the_review() {
    let ports = |protocol: &str| -> Vec<Value> {
        let port = |at| json!({"containerPort": 1, "protocol": format!("{protocol}{at}")});
        (0..2_000).map(port).collect()
    };
    let container = |ports: Vec<Value>| json!({"containers": [{"name": "a", "ports": ports}]});
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": container(ports("a"))});
    let anchored = vec![json!({"(hostPort)": 1, "name": "x"}); 2_000];
    for patched in [ports("b"), anchored] {
        let mutate = json!({"patchStrategicMerge": {"spec": container(patched)}});
        let (outcome, taken) = metered(500_000, &mutate, &object);
        let RuleOutcome::Error(error) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED, "{error}");
        assert_eq!(taken, 500_000);
    }
}

/// Each of 40 elements applies 64 lists. The request of each list but the first has the object that the list before made.
#[test]
fn requests_of_later_lists_cost_nothing_for_the_old_object() {
    let list = |at: usize| {
        let operation =
            json!({"op": "add", "path": "/metadata/annotations/a", "value": at.to_string()});
        json!({"list": "`[1]`", "patchesJson6902": [operation]})
    };
    let lists: Vec<_> = (0..64).map(list).collect();
    let outer = format!("`{:?}`", [1; 40]);
    let mutate = json!({"foreach": [{"list": outer, "foreach": lists}]});
    let of = |keys: usize| {
        let data: Map<_, _> = (0..keys).map(|at| (format!("k{at}"), json!("v"))).collect();
        let object = |data: Map<String, Value>| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "c", "annotations": {"a": ""}}, "data": data})
        };
        let request = request("UPDATE", &object(Map::new()), &object(data));
        metered_for(10_000_000, &mutate, &request)
    };
    let (outcome, taken) = of(0);
    assert!(
        matches!(outcome, RuleOutcome::Mutated { .. }),
        "{outcome:?}"
    );
    assert!(taken < 1_000_000, "{taken}");
    assert_eq!(of(20_000), (outcome, taken));
}

#[test]
fn the_values_of_patches_are_charged_for_each_element() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "list": vec![1; 100]});
    let value = vec![json!(1); 1_000];
    let operation = json!({"op": "add", "path": "/x", "value": value});
    for patch in [
        json!({"list": "request.object.list", "patchesJson6902": [operation]}),
        json!({"list": "request.object.list", "patchStrategicMerge": {"x": value}}),
        json!({"list": "request.object.list", "patchStrategicMerge": {"x": value, "y": "{{ elementIndex }}"}}),
    ] {
        let (outcome, taken) = metered(10_000_000, &json!({"foreach": [patch]}), &object);
        assert!(
            matches!(outcome, RuleOutcome::Mutated { .. }),
            "{outcome:?}"
        );
        // Beside the value, each element goes through the object: its 1,000 numbers are 500 steps.
        assert!((130_000..1_000_000).contains(&taken), "{taken}");
    }
}

#[test]
fn a_patch_that_yields_no_object_is_an_error() {
    for rule in [
        "mutate: {patchStrategicMerge: {$patch: delete}}",
        "mutate: {patchesJson6902: [{op: replace, path: '', value: '{{ request.name }}'}]}",
    ] {
        let RuleOutcome::Error(error) = outcome(rule, &pod()) else {
            panic!("{rule}");
        };
        assert_eq!(error.code(), ErrorCode::PATCH_FAILED, "{rule}");
    }
}

proptest! {
    #[test]
    fn no_patch_of_any_object_panics(patch in any_json(), value in any_json(), spec in any_json()) {
        let patches = [
            json!({"patchStrategicMerge": {"spec": {"containers": [patch], "(a)": value, "+(b)": patch}}}),
            json!({"patchesJson6902": [{"op": "add", "path": "/spec/-1/a", "value": value}, patch]}),
            json!({"foreach": [{"list": "request.object.spec", "patchStrategicMerge": {"spec": patch}}]}),
            json!({"patchesJson6902": "{{ request.object.spec }}"}),
        ];
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        for mutate in patches {
            let rule = json!({"name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]}, "mutate": mutate});
            let manifest = json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
                "spec": {"rules": [rule]},
            });
            if let Ok(policy) = compile_for(&manifest, Driver::ALL) {
                let request = create(&object);
                let mut evaluation = Evaluation::start(&policy, &policy.rules[0], &request);
                prop_assert!(matches!(evaluation.step(), RuleStep::Done(_)));
            }
        }
    }
}
