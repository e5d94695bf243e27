use anteroom_functions::pure;
use serde_json::{Value, json};

use super::operators::of_operator;
use crate::{
    Argument, Budget, Dialect, FactScope, Machine, Names, Program, Roots,
    ast::Operator,
    kind::Kind,
    tests::{self, kyverno},
};

#[test]
fn the_result_type_of_an_expression_is_inferred() {
    for (source, can_be_bool, can_be_text, can_be_null) in [
        ("true", true, false, false),
        ("'a' + 'b'", false, true, false),
        ("object.spec", true, true, true),
        ("1 < 2 && object.a", true, false, false),
        ("size(object.a)", false, false, false),
        ("null", false, false, true),
        ("object.a ? 'x' : 'y'", false, true, false),
        ("object.a ? 'x' : null", true, true, true),
        ("request.operation", false, true, false),
        ("object.a.map(x, x)", false, false, false),
        ("[object.a].min()", true, true, true),
        ("object.?a.b", false, false, false),
        ("object.?a['b']", false, false, false),
    ] {
        let program = Program::compile(source, &Names::default()).unwrap();
        let found = (
            program.can_be_bool(),
            program.can_be_text(),
            program.can_be_null(),
        );
        assert_eq!(found, (can_be_bool, can_be_text, can_be_null), "{source}");
    }
}

#[test]
fn the_types_of_variables_are_known_too() {
    let mut names = Names::default();
    let text = Program::compile("'a'", &names).unwrap();
    names.define("text", &text);
    assert!(names.is_defined("text") && !names.is_defined("other"));
    assert!(Program::compile("variables.text + 1 == 2", &names).is_err());
    assert!(Program::compile("has(variables.text) && variables.text == 'a'", &names).is_ok());
}

#[test]
fn an_operator_says_the_type_of_its_result_and_refuses_types_that_never_fit() {
    use Kind::{Any, Bool, Bytes, Double, Duration, Int, List, Null, Text, Timestamp};
    use Operator::{Add, Divide, Equal, Less, Modulo, Multiply, Subtract};

    for (operator, left, right, expected) in [
        (Equal, Int, Double, Some(Bool)),
        (Equal, Text, Null, Some(Bool)),
        (Equal, Text, Int, None),
        (Less, Int, Double, Some(Bool)),
        (Less, Any, Text, Some(Bool)),
        (Less, Int, Text, None),
        (Less, List, List, None),
        (Less, List, Int, None),
        (Add, Any, Int, Some(Int)),
        (Add, Bytes, Any, Some(Bytes)),
        (Add, Text, Int, None),
        (Add, Timestamp, Duration, Some(Timestamp)),
        (Add, Timestamp, Any, Some(Any)),
        (Add, Any, Duration, Some(Any)),
        (Add, Timestamp, Timestamp, None),
        (Subtract, Timestamp, Timestamp, Some(Duration)),
        (Subtract, Timestamp, Any, Some(Any)),
        (Subtract, Any, Duration, Some(Any)),
        (Subtract, Text, Text, None),
        (Subtract, Int, Double, None),
        (Multiply, Int, Any, Some(Int)),
        (Multiply, Text, Text, None),
        (Divide, Int, Double, None),
        (Modulo, Int, Int, Some(Int)),
        (Modulo, Double, Double, None),
    ] {
        let found = of_operator(operator, left, right);
        assert_eq!(found, expected, "{operator:?} {left:?} {right:?}");
    }
}

#[test]
fn names_and_calls_that_there_are_not_are_refused() {
    let facts = kyverno::names().with_facts(FactScope::Cluster);
    for (names, source, error) in [
        (
            Names::default(),
            "exceptions == null",
            "there is no `exceptions`; there are object, oldObject, request, namespaceObject",
        ),
        (
            Names::default().with_params(),
            "other == null",
            "there is no `other`; there are object, oldObject, request, namespaceObject, params",
        ),
        (
            Names::default().without_request(),
            "object == null",
            "there is no `object` here",
        ),
        (
            Names::default(),
            "variables.?a == 1",
            "`request` and `variables` are not looked into with `?`: use has()",
        ),
        (
            Names::default(),
            "other(true, 1, 2)",
            "there is no function other()",
        ),
        (
            Names::default(),
            "JSONPatch{op: 'test', path: ''} == null",
            "no object of a type `JSONPatch` can be made here",
        ),
        (
            kyverno::names(),
            "object.bind(x, 1, true)",
            "there is no function bind()",
        ),
        (
            kyverno::names(),
            "cel.other(x, 1, true)",
            "there is no `cel`; there are object, oldObject, request, namespaceObject, exceptions",
        ),
        (
            facts.clone(),
            "http.client('pem') == null",
            "a call of http.client() stands right before the request, as in http.client(ca).get(url)",
        ),
        (
            facts,
            "http.client().get('u') == null",
            "http.client() takes a CA bundle in PEM",
        ),
    ] {
        let found = Program::compile(source, &names).map(|_| ());
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, Err(error.to_owned()), "{source}");
    }
}

#[test]
fn a_name_of_a_dialect_is_one_in_its_place_alone() {
    kyverno::all_true(
        &json!({"object": 1, "oldObject": 2, "allowedImages": 3, "allowedValues": 4}),
        &[
            "object.object == 1 && object.oldObject == 2",
            "object.allowedImages == 3 && object.allowedValues == 4",
        ],
    );
    // The variable hides the namespace of functions.
    tests::all_true(&json!({}), &["['ab'].all(sets, sets.contains('a'))"]);
}

#[test]
fn only_metadata_of_a_template_and_the_objects_spec_are_redirected() {
    let object = json!({
        "data": {"a": {"b": {"namespace": "data"}}},
        "spec": {"replicas": 2, "template": {"spec": {"ref": {"namespace": "ref"}}}},
    });
    let roots = Roots {
        object: Some(&object),
        ..Roots::default()
    };
    for source in [
        "object.spec.ref.namespace == 'ref'",
        // As deep as a template's metadata.
        "object.data.a.b.namespace == 'data'",
        "(true ? dyn(object) : 1).spec.replicas == 2",
    ] {
        let names = kyverno::names().within_template(&["spec", "template"]);
        let program = Program::compile(source, &names).unwrap();
        let found = Machine::new(roots, &[], Budget::default()).truth(&program);
        assert_eq!(found, Ok(true), "{source}");
    }
}

/// Names with facts, and with variables that are a map, one that draws, and none.
fn with_facts() -> Names {
    let mut names = Names::default()
        .in_dialect(Dialect::Kyverno)
        .with_facts(FactScope::Cluster);
    for (name, source) in [
        ("fields", "{'a': object.b}"),
        ("drawn", "{'a': random()}"),
        ("text", "object.b + 'x'"),
    ] {
        let program = Program::compile(source, &names).unwrap();
        names.define(name, &program);
    }
    names
}

#[test]
fn a_call_is_named_by_what_is_constant_of_its_arguments() {
    let bundle = pure::sha256("pem".as_bytes());
    let (get, post) = (
        format!(r#"http.get("u", "CA {bundle}")"#),
        format!(r#"http.post("u", "b", "CA {bundle}")"#),
    );
    for (source, name) in [
        (
            "resource.list(resource.toGVR('apps/v1', 'Deployment'), '')",
            r#"resource.list("apps/v1", "deployments", "")"#,
        ),
        (
            "resource.Get(resource.ToGVR('v1', 'Pod'), 'a', 'b')",
            r#"resource.get("v1", "pods", "a", "b")"#,
        ),
        (
            "resource.post('v1', 'pods', {'a': 1})",
            r#"resource.post("v1", "pods", "", {"a":1})"#,
        ),
        (
            "resource.Post('v1', 'pods', '', {object.k: 1})",
            r#"resource.post("v1", "pods", "", _)"#,
        ),
        // A map that a variable holds is written out, but for one that would be drawn again.
        (
            "resource.post('v1', 'pods', '', variables.fields)",
            r#"resource.post("v1", "pods", "", {"a": _})"#,
        ),
        (
            "resource.post('v1', 'pods', '', variables.drawn)",
            r#"resource.post("v1", "pods", "", _)"#,
        ),
        (
            "resource.post('v1', 'pods', '', variables.text)",
            r#"resource.post("v1", "pods", "", _)"#,
        ),
        (
            "http.post('u', [{'a': 'b' + 'c'}])",
            r#"http.post("u", [{"a":"bc"}])"#,
        ),
        ("http.Post('u', 1)", r#"http.post("u", 1)"#),
        (
            "http.Get('u', {'h': object.a})",
            r#"http.get("u", {"h": _})"#,
        ),
        ("http.client('pem').get('u')", &*get),
        ("http.Client('pem').Post('u', 'b')", &*post),
    ] {
        let program = Program::compile(source, &with_facts())
            .unwrap_or_else(|error| panic!("{source}: {error}"));
        let names: Vec<_> = program.sites().map(|site| site.name()).collect();
        assert_eq!(names, [name], "{source}");
    }
}

#[test]
fn a_call_knows_which_parts_of_its_arguments_are_values_of_a_request() {
    let source =
        "resource.post('v1', 'pods', object.n, {'a': 'x' + object.a, 'b': object.b, 'c': 1})";
    let program = Program::compile(source, &with_facts()).unwrap();
    let site = program.sites().next().unwrap();
    assert_eq!(
        site.name(),
        r#"resource.post("v1", "pods", _, {"a": "x" + _, "b": _, "c": 1})"#
    );
    let constant = |value: Value| Argument::Constant(value);
    let text = Argument::Text(vec![constant("x".into()), Argument::Dynamic(1)]);
    let body = [
        ("a".to_owned(), text),
        ("b".to_owned(), Argument::Dynamic(2)),
        ("c".to_owned(), constant(1.into())),
    ];
    let expected = [
        constant("v1".into()),
        constant("pods".into()),
        Argument::Dynamic(0),
        Argument::Map(body.into()),
    ];
    assert_eq!(site.arguments(), expected);
}

#[test]
fn what_is_kept_close_at_hand_depends_on_no_request() {
    let constant = |what: &str| {
        format!(
            "{what} must be constant, written as literals or in variables that are, since what is kept close at hand \
             depends on it"
        )
    };
    let bundle = "the CA bundle of http.client() must be constant, written as a literal or in a variable that is";
    for (source, error) in [
        (
            "resource.get(object.v, 'pods', '', 'a')",
            constant("API version and plural of resource.get()"),
        ),
        (
            "resource.list('v1', object.p, '')",
            constant("API version and plural of resource.list()"),
        ),
        (
            "globalContext.get('a', object.p)",
            constant("name and projection of globalContext.get()"),
        ),
        ("http.client(object.ca).get('u')", bundle.to_owned()),
        (
            "http.get(['u'])",
            r#"found no matching overload for `http.get`: ["u"] is no argument of it"#.to_owned(),
        ),
        (
            "http.get(1)",
            "found no matching overload for `http.get`: 1 is no argument of it".to_owned(),
        ),
    ] {
        let found = Program::compile(source, &with_facts()).map(|_| ());
        assert_eq!(
            found.map_err(|error| error.to_string()),
            Err(error),
            "{source}"
        );
    }
}
