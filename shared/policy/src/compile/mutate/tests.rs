use serde_json::Value;

use crate::{Driver, Phase, compile, compile_for};

/// The problems of a ClusterPolicy whose only rule mutates so.
fn problems(mutate: &str) -> String {
    let manifest = manifest(mutate);
    match compile_for(&manifest, Driver::ALL) {
        Ok(_) => String::new(),
        Err(problems) => problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect(),
    }
}

fn manifest(mutate: &str) -> Value {
    let mutate: Value = serde_saphyr::from_str(mutate).unwrap();
    serde_json::json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "mutate": mutate,
        }]},
    })
}

#[test]
fn a_malformed_mutate_rule_is_refused_with_its_field() {
    let table = [
        (
            "{}",
            "spec.rules[0].mutate.patchStrategicMerge: it is required",
        ),
        (
            "{patchStrategicMerge: [1]}",
            "patchStrategicMerge: an object is expected here",
        ),
        (
            "{patchStrategicMerge: {a: 1}, patchesJson6902: []}",
            "patchesJson6902: only one of patchStrategicMerge and patchesJson6902 can be given",
        ),
        (
            "{patchStrategicMerge: {spec: {'=(a)': 1}}}",
            "patchStrategicMerge.spec.=(a): `=(a)` is an anchor of patterns",
        ),
        (
            "{patchStrategicMerge: {(spec): {'X(a)': null, '+(b)': 1}}}",
            "patchStrategicMerge.(spec).X(a): `X(a)` is an anchor of patterns",
        ),
        (
            "{patchesJson6902: 'x {{ request.name }}'}",
            "patchesJson6902: a list of operations is expected here",
        ),
        (
            "{patchStrategicMerge: {spec: [{$replace: 1}]}}",
            "patchStrategicMerge.spec[0].$replace: there is no directive `$replace`",
        ),
        (
            "{patchStrategicMerge: {a: '{{ nobody }}'}}",
            "there is no variable `nobody`",
        ),
        ("{patchesJson6902: '{'}", "patchesJson6902: it is no YAML"),
        (
            "{patchesJson6902: 'a: b'}",
            "patchesJson6902: a list of operations is expected here",
        ),
        (
            "{patchesJson6902: [a]}",
            "patchesJson6902[0]: an object is expected here",
        ),
        (
            "{patchesJson6902: '- {op: put, path: /a}'}",
            "patchesJson6902[0].op: `put` is none of add, copy, move, remove, replace, test",
        ),
        (
            "{patchesJson6902: '- {op: add, path: /a}'}",
            "patchesJson6902[0].value: it is required",
        ),
        (
            "{patchesJson6902: '- {op: add, value: 1}'}",
            "patchesJson6902[0].path: it is required",
        ),
        (
            "{patchesJson6902: '- {op: copy, path: /a}'}",
            "patchesJson6902[0].from: it is required",
        ),
        (
            "{patchesJson6902: '- {op: remove, path: a}'}",
            "patchesJson6902[0].path: `a` does not begin with `/`",
        ),
        (
            "{patchesJson6902: '- {op: remove, path: [1]}'}",
            "patchesJson6902[0].path: a string is expected here",
        ),
        (
            "{targets: [{kind: Pod}], patchStrategicMerge: {a: 1}}",
            "mutate.targets: objects that exist already are not changed",
        ),
        (
            "{mutateExistingOnPolicyUpdate: 'yes', patchStrategicMerge: {a: 1}}",
            "mutate.mutateExistingOnPolicyUpdate: true or false is expected here",
        ),
        ("{foreach: []}", "mutate.foreach: it is empty"),
        (
            "{foreach: [{patchStrategicMerge: {a: 1}}]}",
            "mutate.foreach[0].list: it is required",
        ),
        (
            "{foreach: [{list: '`[]`', order: Up, patchStrategicMerge: {a: 1}}]}",
            "mutate.foreach[0].order: `Up` is none of Ascending, Descending",
        ),
    ];
    for (mutate, expected) in table {
        let found = problems(mutate);
        assert!(found.contains(expected), "{mutate}: {found}");
    }
}

#[test]
fn a_well_formed_mutate_rule_compiles() {
    for mutate in [
        "{patchStrategicMerge: {metadata: {labels: {'+(a)': '{{ request.name }}'}}}}",
        "{patchStrategicMerge: {'$patch': merge, spec: {'$setElementOrder/a': [b]}}}",
        "{patchesJson6902: [{op: add, path: '{{ request.name }}', value: null}], targets: null}",
        "{mutateExistingOnPolicyUpdate: false, patchesJson6902: '- {op: remove, path: /a}'}",
        "{foreach: [{list: '`[]`', foreach: [{list: element.a, patchesJson6902: \
         '- {op: remove, path: \"/a/{{ elementIndex0 }}/{{ elementIndex1 }}\"}'}]}]}",
    ] {
        assert_eq!(problems(mutate), "", "{mutate}");
    }
}

#[test]
fn the_nesting_of_foreach_loops_is_limited() {
    let nested = |levels| {
        let innermost = "patchStrategicMerge: {a: 1}".to_owned();
        (0..levels).fold(innermost, |inner, _| {
            format!("foreach: [{{list: '`[]`', {inner}}}]")
        })
    };
    assert_eq!(
        problems(&format!("{{{}}}", nested(super::FOREACH_LEVELS_MAX))),
        ""
    );
    let found = problems(&format!("{{{}}}", nested(super::FOREACH_LEVELS_MAX + 1)));
    assert!(found.contains("of them in each other"), "{found}");
}

#[test]
fn webhook_operations_are_listed_per_phase() {
    let rule = |name: &str, operations: &str, work: &str| {
        format!(
            "{{name: {name}, match: {{any: [{{resources: {{kinds: [{name}], operations: {operations}}}}}]}}, {work}}}"
        )
    };
    let patch = "mutate: {patchStrategicMerge: {a: 1}}";
    let rules = [
        rule("Judged", "[]", "validate: {deny: {}}"),
        rule("Changed", "[]", patch),
        rule("Connected", "[CONNECT, DELETE]", patch),
        rule("Deleted", "[DELETE]", patch),
        rule("Refused", "[DELETE]", "validate: {deny: {}}"),
    ];
    let text = format!(
        "{{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {{name: p}}, spec: {{rules: [{}]}}}}",
        rules.join(", ")
    );
    let policy = compile(&serde_saphyr::from_str(&text).unwrap()).unwrap();
    let targets = |phase| {
        let targets = policy.registered_kinds(phase);
        let told =
            targets.map(|target| format!("{} {:?}", target.kinds[0].kind, target.operations));
        told.collect::<Vec<_>>()
    };
    assert_eq!(
        targets(Phase::Mutation),
        ["Changed [Create, Update]", "Connected [Connect]"]
    );
    assert_eq!(
        targets(Phase::Validation),
        [
            "Judged [Create, Update, Delete, Connect]",
            "Refused [Delete]"
        ]
    );
}
