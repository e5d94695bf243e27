//! `Object{…}` and `JSONPatch{…}`, and the results of expressions for the outside.

use anteroom_functions::testing::any_json;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{all_errors, all_true, compile_errors, compiled, roots};
use crate::{Budget, EvalError, JSON_DEPTH_MAX, JsonPatchOperation, Machine, PatchOp};

fn json_of(source: &str, object: &Value) -> Result<Value, EvalError> {
    let program = compiled(source);
    Machine::new(roots(object), &[], Budget::default()).json(&program)
}

fn object_of(source: &str, object: &Value) -> Result<Option<Value>, String> {
    let program = compiled(source);
    let mut machine = Machine::new(roots(object), &[], Budget::default());
    machine.object(&program).map_err(|error| error.to_string())
}

fn patches_of(source: &str, object: &Value) -> Result<Vec<JsonPatchOperation>, String> {
    let program = compiled(source);
    let mut machine = Machine::new(roots(object), &[], Budget::default());
    machine.patches(&program).map_err(|error| error.to_string())
}

#[test]
fn objects_have_fields_and_a_type() {
    all_true(
        &json!({"a": null}),
        &[
            "Object{spec: Object.spec{a: 1}}.spec.a == 1",
            "has(Object{a: 1}.a) && !has(Object{a: 1}.b)",
            "Object{a: 1} == Object{a: 1.0} && Object{a: 1} != Object{a: 2} && Object{a: 1} != Object{}",
            "Object{a: Object.a{}} != Object{a: {}} && JSONPatch{op: 'test', path: ''} != null",
            "Object{?a: optional.none(), ?b: optional.of(1)} == Object{b: 1}",
            "[JSONPatch{op: 'remove', path: '/a'}, null].filter(p, p != null).size() == 1",
            "Object{} != Object{a: 1} && Object.a{} != Object.b{}",
            "[Object{a: 1}, Object{a: 1}].distinct().size() == 1",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("Object{a: 1}.b == 1", "no such key: b"),
            (
                "dyn(Object{}) == object && false || Object{a: object.x} == null",
                "no such key: x",
            ),
            (
                "dyn(Object{}) < dyn(1)",
                "no such overload: _<_(Object, int)",
            ),
            (
                "string(dyn(JSONPatch{op: 'test', path: ''})) == ''",
                "no such overload: string(JSONPatch)",
            ),
        ],
    );
}

#[test]
fn the_type_of_a_written_object_is_that_of_its_place() {
    let misplaced = "an object of the type `Object.spec.volumes` stands where its type has to be `Object.spec.containers`";
    for (source, error) in [
        (
            "Object{spec: Object.spec{containers: [Object.spec.volumes{}]}}",
            misplaced,
        ),
        (
            "Object.spec{containers: object.a ? [] : [Object.spec.volumes{}]}",
            misplaced,
        ),
        (
            "Object.spec{containers: [] + [Object.spec.volumes{}]}",
            misplaced,
        ),
        (
            "Object.spec{containers: object.a.map(c, Object.spec.volumes{})}",
            misplaced,
        ),
        (
            "Object.spec{?containers: optional.of(Object.spec.volumes{})}",
            misplaced,
        ),
        (
            "Object.spec{containers: {'a': Object.spec.volumes{}}}",
            misplaced,
        ),
        (
            "Object.spec{containers: cel.bind(x, 1, Object.spec.volumes{})}",
            misplaced,
        ),
        (
            "Object{a: JSONPatch{op: 'test', path: ''}}",
            "a JSONPatch is no part of an Object",
        ),
        ("Object{a: 1, a: 2}", "`Object` has the field `a` twice"),
        (
            "Objects{a: 1}",
            "no object of a type `Objects` can be made here",
        ),
        (
            "Object{?a: 1}",
            "found no matching overload for `?_` applied to (int)",
        ),
        ("JSONPatch{path: ''}", "a JSONPatch needs the field `op`"),
        ("JSONPatch{op: 'add'}", "a JSONPatch needs the field `path`"),
        (
            "JSONPatch{op: 'merge', path: ''}",
            "there is no operation `merge` of a JSONPatch",
        ),
        (
            "JSONPatch{op: 'add', path: 1}",
            "the field `path` of a JSONPatch is a string, not a int",
        ),
        (
            "JSONPatch{op: 'add', path: '', key: 1}",
            "a JSONPatch has no field `key`; it has op, path, from and value",
        ),
    ] {
        compile_errors(&[(source, error)]);
    }
    // What a place is not known of is looked at when there is a value.
    assert_eq!(
        object_of(
            "cel.bind(v, [Object.spec.volumes{}], Object{spec: Object.spec{containers: v}})",
            &json!({})
        ),
        Err(misplaced.to_owned())
    );
    assert_eq!(
        object_of("Object.spec{}", &json!({})),
        Err(
            "an object of the type `Object.spec` stands where its type has to be `Object`"
                .to_owned()
        )
    );
}

#[test]
fn an_object_is_json_with_its_nulls() {
    let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    for (source, expected) in [
        ("Object{}", json!({})),
        ("{'a': 1}", json!({"a": 1})),
        (
            "Object{spec: Object.spec{replicas: 3, paused: null, ratio: 1.5}}",
            json!({"spec": {"replicas": 3, "paused": null, "ratio": 1.5}}),
        ),
        (
            "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name})}}",
            object.clone(),
        ),
        (
            "Object{metadata: Object.metadata{labels: {'a/b': 'c'}, ?x: optional.none()}}",
            json!({"metadata": {"labels": {"a/b": "c"}}}),
        ),
        ("object", object.clone()),
    ] {
        assert_eq!(object_of(source, &object), Ok(Some(expected)), "{source}");
    }
    assert_eq!(object_of("null", &object), Ok(None));
    for (source, error) in [
        ("dyn([])", "it came to a list, and not to an Object"),
        (
            "dyn(JSONPatch{op: 'test', path: ''})",
            "it came to a JSONPatch, and not to an Object",
        ),
        (
            "Object{a: timestamp(0)}",
            "a google.protobuf.Timestamp is nothing that JSON has",
        ),
        ("Object{a: object.x}", "no such key: x"),
    ] {
        assert_eq!(
            object_of(source, &object),
            Err(error.to_owned()),
            "{source}"
        );
    }
}

#[test]
fn patches_are_operations_in_order() {
    let object = json!({"op": "add", "n": 1});
    let found = patches_of(
        "[JSONPatch{op: object.op, path: '/a', value: {'b': [1]}}, \
         JSONPatch{op: 'move', from: '/a', path: '/b', value: 1}, \
         JSONPatch{op: 'remove', path: '/b', ?value: optional.none()}, \
         JSONPatch{op: 'test', path: '/c', value: null}]",
        &object,
    );
    let found = found.unwrap();
    assert_eq!(found[0].op, PatchOp::Add);
    let json: Vec<_> = found.iter().map(JsonPatchOperation::to_json).collect();
    assert_eq!(
        json!(json),
        json!([
            {"op": "add", "path": "/a", "value": {"b": [1]}},
            {"op": "move", "from": "/a", "path": "/b"},
            {"op": "remove", "path": "/b"},
            {"op": "test", "path": "/c", "value": null},
        ])
    );
    for op in crate::value::OPERATIONS {
        let source = format!("[JSONPatch{{op: '{op}', path: '/a', from: '/b', value: 1}}]");
        let patches = patches_of(&source, &object).unwrap();
        assert_eq!(patches[0].op.name(), *op);
    }
    assert_eq!(patches_of("[]", &object), Ok(Vec::new()));
    for (source, error) in [
        (
            "null",
            "it came to a null_type, and not to a list of JSONPatches",
        ),
        (
            "[JSONPatch{op: 'remove', path: ''}, {'op': 'remove'}]",
            "a map stands in the list of patches, and no JSONPatch",
        ),
        (
            "[Object{op: 'remove', path: ''}]",
            "a Object stands in the list of patches, and no JSONPatch",
        ),
        (
            "[JSONPatch{op: 'x' + 'y', path: ''}]",
            "there is no operation `xy` of a JSONPatch",
        ),
        (
            "[JSONPatch{op: object.n, path: ''}]",
            "the field `op` of a JSONPatch is a int, and not a string",
        ),
        (
            "[JSONPatch{?op: optional.none(), path: ''}]",
            "a JSONPatch has no `op`, which `JSONPatch` needs",
        ),
        (
            "[JSONPatch{op: 'copy', path: ''}]",
            "a JSONPatch has no `from`, which `copy` needs",
        ),
        (
            "[JSONPatch{op: 'replace', path: ''}]",
            "a JSONPatch has no `value`, which `replace` needs",
        ),
        (
            "[JSONPatch{op: 'add', path: '', value: 0.0 / 0.0}]",
            "JSON has neither NaN nor infinities",
        ),
    ] {
        assert_eq!(
            patches_of(source, &object),
            Err(error.to_owned()),
            "{source}"
        );
    }
}

#[test]
fn the_compiler_knows_which_results_an_expression_can_have() {
    for (source, json, object, patches) in [
        ("Object{}", true, true, false),
        ("{'a': 1}", true, true, false),
        ("[JSONPatch{op: 'remove', path: ''}]", true, false, true),
        ("JSONPatch{op: 'remove', path: ''}", true, false, false),
        ("object.a ? Object{} : null", true, true, true),
        ("object.a ? [] : [1]", true, false, true),
        ("object", true, true, true),
        ("1", true, false, false),
        ("timestamp(0)", false, false, false),
        ("object.?a", false, false, false),
        ("image('a')", false, false, false),
    ] {
        let program = compiled(source);
        let found = (
            program.can_be_json(),
            program.can_be_object(),
            program.can_be_patches(),
        );
        assert_eq!(found, (json, object, patches), "{source}");
    }
}

#[test]
fn the_depth_of_json_is_limited_at_the_edge() {
    fn nested(depth: usize) -> Value {
        (1..depth).fold(json!([]), |inner, _| json!([inner]))
    }
    let most = nested(JSON_DEPTH_MAX);
    assert_eq!(json_of("object", &most), Ok(most.clone()));
    let error = json_of("object", &nested(JSON_DEPTH_MAX + 1)).unwrap_err();
    assert!(error.to_string().contains("128 levels"), "{error}");
    let error = json_of("[object]", &most).unwrap_err();
    assert!(error.to_string().contains("128 levels"), "{error}");
    let text = json!(nested(JSON_DEPTH_MAX + 1).to_string());
    assert!(json_of("json.unmarshal(object)", &text).is_err());
}

#[test]
fn json_is_within_the_budget() {
    let object = json!({"a": ["text", {"b": [1, 2, 3]}], "long": "x".repeat(100)});
    let program = compiled("object");
    let with = |steps, json_bytes| {
        let budget = Budget {
            steps,
            json_bytes,
            ..Budget::default()
        };
        let mut machine = Machine::new(roots(&object), &[], budget);
        (machine.json(&program), machine.budget().clone())
    };
    let whole = Budget::default();
    let (found, left) = with(whole.steps, whole.json_bytes);
    assert_eq!(found, Ok(object.clone()));
    let (steps, bytes) = (whole.steps - left.steps, whole.json_bytes - left.json_bytes);
    let taken = anteroom_jmespath::json_memory::copied_bytes(&object, u64::MAX);
    assert_eq!(Some(bytes), taken);
    assert_eq!(with(steps, bytes).0, Ok(object.clone()));
    assert_eq!(with(steps - 1, bytes).0, Err(EvalError::Steps));
    assert_eq!(with(steps, bytes - 1).0, Err(EvalError::Bytes));
}

/// Parts are shared until they become JSON.
#[test]
fn json_is_counted_by_the_memory_that_it_takes() {
    let times = |what: &str, count: usize| format!("[{}]", vec![what; count].join(", "));
    let shared = format!(
        "cel.bind(m, {{'a': object.name == 'q'}}, cel.bind(l, {}, {}))",
        times("m", 500),
        times("l", 200),
    );
    let object = json!({
        "name": "p",
        "dense": format!("[{}1]", "{\"a\":1},".repeat(60_000)),
        "bomb": format!("- &a |\n  {}\n{}", "x".repeat(100_000), "- *a\n".repeat(90)),
        "usual": json!({"names": vec!["web-000000.example.com"; 50_000]}).to_string(),
    });
    let with = |source: &str, json_bytes| {
        let budget = Budget {
            json_bytes,
            ..Budget::default()
        };
        let program = compiled(source);
        let mut machine = Machine::new(roots(&object), &[], budget.clone());
        let found = machine.json(&program);
        (found, budget.steps - machine.budget().steps)
    };
    let (found, steps) = with(&shared, 1_000_000);
    assert_eq!(found, Err(EvalError::Bytes));
    assert!(steps > 1_000_000 * 9 / 10 / 64, "{steps}");
    for source in [
        "json.unmarshal(object.dense).size()",
        "yaml.parse(object.bomb).size()",
    ] {
        assert_eq!(with(source, 5_000_000).0, Err(EvalError::Bytes), "{source}");
    }
    let whole = Budget::default().json_bytes;
    let size = "json.unmarshal(object.usual).names.size()";
    assert_eq!(with(size, whole).0, Ok(json!(50_000)));
    let error = with(&format!("json.marshal({shared})"), whole).0;
    assert_eq!(error, Err(EvalError::Bytes));
}

/// Returns whether a double in a value is whole: it is written without its fraction.
fn has_whole_double(json: &Value) -> bool {
    match json {
        Value::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        Value::Array(elements) => elements.iter().any(has_whole_double),
        Value::Object(fields) => fields.values().any(has_whole_double),
        _ => false,
    }
}

proptest! {
    #[test]
    fn json_goes_through_an_expression_unchanged(
        json in any_json().prop_filter("whole doubles", |json| !has_whole_double(json)),
    ) {
        prop_assert_eq!(&json_of("object", &json).unwrap(), &json);
        let text = json_of("json.marshal(object)", &json).unwrap();
        prop_assert_eq!(text, Value::from(json.to_string()));
    }
}
