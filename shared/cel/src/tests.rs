//! Expressions from end to end: what they come to, and what they may cost.

use serde_json::{Value, json};

use crate::{Budget, EvalError, Machine, Names, Program, Roots};

pub(crate) mod kyverno;
mod limits;
mod oracle;
mod pairs;
mod text;

pub(crate) fn compiled(source: &str) -> Program {
    Program::compile(source, &Names::default()).unwrap_or_else(|error| panic!("{source}: {error}"))
}

pub(crate) fn evaluated(source: &str, object: &Value) -> Result<bool, EvalError> {
    let program = compiled(source);
    let roots = Roots {
        object: Some(object),
        ..Roots::default()
    };
    Machine::new(roots, &[], Budget::default()).truth(&program)
}

pub(crate) fn all_true(object: &Value, sources: &[&str]) {
    for source in sources {
        assert_eq!(evaluated(source, object), Ok(true), "{source}");
    }
}

pub(crate) fn all_errors(object: &Value, cases: &[(&str, &str)]) {
    for (source, error) in cases {
        let found = evaluated(source, object).map_err(|error| error.to_string());
        assert_eq!(found, Err((*error).to_owned()), "{source}");
    }
}

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app": "shop"}},
        "spec": {
            "replicas": 3, "ratio": 0.5, "empty": null,
            "containers": [
                {"name": "a", "image": "x:1", "ports": [{"hostPort": 80}]},
                {"name": "b", "image": "y:2"},
            ],
        },
    })
}

#[test]
fn cel_reads_present_and_missing_fields() {
    all_true(
        &object(),
        &[
            "object.metadata.name == 'web'",
            "object['metadata'].labels['app'] == 'shop'",
            "has(object.metadata.labels) && !has(object.metadata.annotations)",
            "has(object.spec.empty) && object.spec.empty == null",
            "'app' in object.metadata.labels && !('x' in object.metadata.labels)",
            "object.spec.containers[1].name == 'b'",
            "size(object.spec.containers) == 2 && object.spec.containers.size() == 2",
            "object.?metadata.?annotations.orValue({}).size() == 0",
            "object.?metadata.labels.app.orValue('none') == 'shop'",
            "object.metadata.?annotations['a'].hasValue() == false",
            "object.spec.containers[?7].hasValue() == false",
            "object.spec.containers[?0].name.value() == 'a'",
            "object.spec.containers[1u].name == 'b' && object.spec.containers[1.0].name == 'b'",
            "object.?spec['replicas'].value() == 3",
            "!has(object.?spec.nothing.below)",
            "!object.spec.empty.?a[?'b'].hasValue() && !object.spec.?empty.a.hasValue()",
            "!has(object.spec.empty.a) && !has(object.metadata.name.a)",
            "object.spec.replicas == 3 && object.spec.replicas < 3.5 && 2u < object.spec.replicas",
            "type(object.spec.ratio) == double && type(object.spec.replicas) == int",
            "oldObject == null && namespaceObject == null",
            "{'a': 1, ?'b': optional.none(), ?'c': optional.of(2)} == {'a': 1, 'c': 2}",
            "[1, ?optional.none(), ?optional.of(3)] == [1, 3]",
            "optional.none().or(optional.of(1)).value() == 1",
            "optional.of(2).optMap(x, x * 2).value() == 4",
            "optional.of(2).optFlatMap(x, optional.none()).hasValue() == false",
            "object.?spec.optFlatMap(x, x.replicas) == 3",
            // The second argument counts only where there is no value.
            "object.?spec.replicas.orValue(object.nothing) == 3",
            "object.?spec.or(object.nothing).replicas.value() == 3",
            "optional.of(1).or(optional.of(1 / 0)).value() == 1",
            "{object.metadata.name: 1, 'web': 2} == {'web': 2} && {'a': 1, ?'a': optional.none()} == {'a': 1}",
            "optional.ofNonZeroValue('') == optional.none()",
            "[null, false, 0, 0u, 0.0, b'', [], {}, duration('0s')].all(x, !optional.ofNonZeroValue(x).hasValue())",
            "[true, 1, 1u, 0.5, b'a', [0], {'a': 0}, duration('1s')].all(x, optional.ofNonZeroValue(x).hasValue())",
            "{1: 'a'}[1u] == 'a' && {1: 'a'}[1.0] == 'a' && {true: 'a', false: 'b'}[false] == 'b'",
        ],
    );
    all_errors(
        &object(),
        &[
            ("object.spec.nothing == 1", "no such key: nothing"),
            ("object['a'] == 1", "no such key: a"),
            (
                "object.spec.containers[2].name == 'a'",
                "index out of bounds: 2",
            ),
            (
                "object.spec.containers[-1].name == 'a'",
                "index out of bounds: -1",
            ),
            (
                "object.spec.containers['a'] == 1",
                "no such overload: _[_](list, string)",
            ),
            ("oldObject.spec == 1", "no such overload: .spec(null_type)"),
            (
                "optional.none().value() == 1",
                "optional.none() dereference",
            ),
            (
                "object.spec.replicas",
                "it came to a int, and not to true or false",
            ),
            (
                "object.?nothing.orValue(object.nothing) == 1",
                "no such key: nothing",
            ),
            (
                "object.?nothing.or(object.nothing).hasValue()",
                "no such key: nothing",
            ),
            (
                "object.spec.containers[?18446744073709551615u] == optional.none()",
                "no such overload: _[?_](list, uint)",
            ),
            (
                "object.spec.containers[?1e300] == optional.none()",
                "no such overload: _[?_](list, double)",
            ),
            (
                "object.spec.containers[?9223372036854775808.0] == optional.none()",
                "no such overload: _[?_](list, double)",
            ),
            (
                "object.spec.containers[0.5] == 1",
                "no such overload: _[_](list, double)",
            ),
            (
                "object.metadata[object.spec.containers] == 1",
                "no such overload: _[_](map, list)",
            ),
            (
                "has(object.spec.containers.a)",
                "no such overload: .a(list)",
            ),
            ("{dyn(1.5): 1} == {}", "a double is no key of a map"),
            ("{dyn([1]): 1} == {}", "a list is no key of a map"),
            (
                "object.metadata[?dyn(null)] == optional.none()",
                "no such overload: _[?_](map, null_type)",
            ),
        ],
    );
}

#[test]
fn cel_macros_and_logic_evaluate() {
    all_true(
        &object(),
        &[
            "object.spec.containers.all(c, c.image.contains(':'))",
            "object.spec.containers.exists(c, c.name == 'b')",
            "object.spec.containers.exists_one(c, has(c.ports))",
            "object.spec.containers.existsOne(c, has(c.ports))",
            "object.spec.containers.map(c, c.name) == ['a', 'b']",
            "object.spec.containers.map(c, has(c.ports), c.name) == ['a']",
            "object.spec.containers.filter(c, !has(c.ports)).size() == 1",
            "object.metadata.labels.all(key, key == 'app')",
            "object.metadata.labels.map(k, object.metadata.labels[k]) == ['shop']",
            "[].all(x, false) && ![].exists(x, true)",
            // An inner name hides an outer one, and a root.
            "[[1, 2], [3]].map(x, x.map(x, x + 1)) == [[2, 3], [4]]",
            "[1].all(object, object == 1)",
            "[1, 2].all(x, [3, 4].all(y, x < y && object.spec.replicas == 3))",
            // A side that decides the result wins over an error of the opposite side.
            "true || object.nothing == 1",
            "object.nothing == 1 || true",
            "!(object.nothing == 1 && false)",
            "[0, 1].exists(x, 1 / x == 1)",
            "![1, 0].all(x, 1 / x == 2)",
            "(1 < 2 ? 'a' : 'b') == 'a'",
            "true ? true : object.nothing",
        ],
    );
    all_errors(
        &object(),
        &[
            ("object.nothing == 1 || false", "no such key: nothing"),
            ("true && object.nothing == 1", "no such key: nothing"),
            (
                "object.spec.replicas && true",
                "no such overload: _&&_(int)",
            ),
            ("[1, 0].all(x, 1 / x == 1)", "division by zero"),
            ("[0].exists_one(x, 1 / x == 1)", "division by zero"),
            ("[0].map(x, 1 % x) == []", "modulus by zero"),
            ("object.spec.all(x, x)", "no such overload: _&&_(string)"),
            (
                "object.metadata.name.all(x, true)",
                "no such overload: all(string)",
            ),
            (
                "object.metadata.name.exists(x, true)",
                "no such overload: exists(string)",
            ),
            (
                "object.metadata.name.exists_one(x, true)",
                "no such overload: exists_one(string)",
            ),
            (
                "object.metadata.name.map(x, x) == []",
                "no such overload: map(string)",
            ),
            (
                "object.metadata.name.transformMap(k, v, v) == {}",
                "no such overload: transformMap(string)",
            ),
            (
                "object.metadata.labels.sortBy(x, x) == []",
                "no such overload: sortBy(map)",
            ),
            (
                "object.spec.replicas ? true : false",
                "no such overload: _?_:_(int)",
            ),
        ],
    );
}

#[test]
fn arithmetic_is_exact_and_overflow_is_an_error() {
    all_true(
        &json!({}),
        &[
            "1 + 2 * 3 - 8 / 3 % 2 == 7",
            "-7 / 2 == -3 && -7 % 2 == -1",
            "1.5 + 1.5 == 3.0 && 1.0 / 0.0 > 1e308",
            "1.5 - 0.5 == 1.0 && 1.5 * 2.0 == 3.0",
            "'a' + 'b' == 'ab' && b'a' + b'bc' == b'abc' && [1] + [2] == [1, 2]",
            "3u - 2u == 1u && 3u * 2u == 6u && 7u / 2u == 3u && 7u % 2u == 1u && 1u + 2u == 3u",
            "duration('1h') + duration('30m') == duration('90m')",
            "duration('90m') - duration('1h') == duration('30m')",
            "1 <= 1 && 1 <= 2 && !(2 <= 1)",
            "timestamp('2024-01-02T00:00:00Z') - duration('24h') == timestamp('2024-01-01T00:00:00Z')",
            "timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')",
            "1 == 1.0 && 1u == 1 && !(1 == 2.0) && dyn('1') != 1",
            "'a' < 'b' && b'a' < b'b' && false < true && duration('1s') < duration('2s')",
            "!(double('NaN') < 1.0) && double('NaN') != double('NaN')",
            "!!true && - -1 == 1",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("9223372036854775807 + 1 == 0", "integer overflow"),
            ("-(-9223372036854775807 - 1) == 0", "integer overflow"),
            ("(-9223372036854775807 - 1) / -1 == 0", "integer overflow"),
            ("(-9223372036854775807 - 1) % -1 == 0", "integer overflow"),
            ("0u - 1u == 0u", "unsigned integer overflow"),
            ("1u / 0u == 0u", "division by zero"),
            ("1u % 0u == 0u", "modulus by zero"),
            ("dyn(1) + 1.0 == 2.0", "no such overload: _+_(int, double)"),
            (
                "dyn(1.5) % dyn(1.0) == 0.5",
                "no such overload: _%_(double, double)",
            ),
            (
                "dyn(duration('2h')) / dyn(duration('1h')) == 2",
                "no such overload: _/_(google.protobuf.Duration, google.protobuf.Duration)",
            ),
            ("dyn('a') < 1", "no such overload: _<_(string, int)"),
            ("1 in dyn('a')", "no such overload: @in(int, string)"),
            (
                "timestamp('9999-12-30T00:00:00Z') + duration('48h') == timestamp(0)",
                "timestamp overflow",
            ),
        ],
    );
}

#[test]
fn the_request_has_the_fields_of_the_api_server() {
    let request = json!({
        "operation": "CREATE", "name": "", "namespace": "shop", "dryRun": false,
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "options": null,
        "userInfo": {"username": "ann", "groups": ["dev"]}, "object": {"a": 1},
    });
    let roots = Roots {
        request: Some(&request),
        ..Roots::default()
    };
    for (source, expected) in [
        ("request.operation == 'CREATE'", Ok(true)),
        (
            "request.kind.kind == 'Pod' && 'dev' in request.userInfo.groups",
            Ok(true),
        ),
        (
            "has(request.name) || has(request.options) || has(request.subResource)",
            Ok(false),
        ),
        (
            "!request.dryRun && has(request.userInfo.username)",
            Ok(true),
        ),
        (
            "request.?namespace.orValue('') == 'shop' && !request.?name.hasValue()",
            Ok(true),
        ),
        ("request.name == ''", Err("no such key: name")),
    ] {
        let program = compiled(source);
        let found = Machine::new(roots, &[], Budget::default()).truth(&program);
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{source}");
    }
}

/// Compiles the sources in order; each program may refer to the programs before.
fn chain(sources: &[String]) -> (Names, Vec<Program>) {
    let (mut names, mut programs) = (Names::default(), Vec::new());
    for (at, source) in sources.iter().enumerate() {
        let program = Program::compile(source, &names).unwrap();
        names.define(&format!("v{at}"), &program);
        programs.push(program);
    }
    (names, programs)
}

#[test]
fn variables_are_evaluated_once_and_only_if_they_are_wanted() {
    let sources = [
        "1 / 0 == 1",
        "[1, 2].map(x, x)",
        "variables.v1.map(y, y + 1)",
    ];
    let (names, variables) = chain(&sources.map(str::to_owned));
    let roots = Roots::default();
    let mut machine = Machine::new(roots, &variables, Budget::default());
    let truth = |source: &str| Program::compile(source, &names).unwrap();
    let (unused, used) = (
        truth("true || variables.v0"),
        truth("[7].all(x, variables.v2 == [2, 3])"),
    );
    let wrong = truth("variables.v0");
    assert_eq!(machine.truth(&unused), Ok(true));
    assert_eq!(machine.truth(&used), Ok(true));
    let before = machine.budget().clone();
    assert_eq!(machine.truth(&used), Ok(true));
    let again = before.steps - machine.budget().steps;
    assert!(again < 20, "{again}");
    assert_eq!(machine.truth(&wrong), Err(EvalError::DivisionByZero));
    assert_eq!(machine.truth(&wrong), Err(EvalError::DivisionByZero));
}

#[test]
fn a_program_knows_the_request_paths_that_it_reads() {
    let sources = ["namespaceObject.metadata.name", "'a'"];
    let (names, _) = chain(&sources.map(str::to_owned));
    let names = names.with_params();
    let paths = |source: &str| {
        let program = Program::compile(source, &names).unwrap();
        let paths = program.request_paths().map(|path| path.join("."));
        (
            paths.collect::<Vec<_>>(),
            program.reads_namespace(),
            program.variables().to_vec(),
        )
    };
    assert_eq!(
        paths("object.spec.a.b == 1 && has(oldObject.x) && request.userInfo.groups == []"),
        (
            vec![
                "object.spec.a.b".into(),
                "object.x".into(),
                "userInfo.groups".into()
            ],
            false,
            vec![]
        )
    );
    assert_eq!(
        paths("object.spec['a'][0].b == 1 || object.?c.d[1].hasValue()"),
        (
            vec!["object.c.d".into(), "object.spec.a".into()],
            false,
            vec![]
        )
    );
    assert_eq!(
        paths("object.list.all(x, x.y == object.z[x])"),
        (vec!["object.list".into(), "object.z".into()], false, vec![])
    );
    assert_eq!(
        paths("object == params.x"),
        (vec!["object".into()], false, vec![])
    );
    assert_eq!(paths("variables.v0 == 'a'"), (vec![], false, vec![0]));
    // A literal takes the place of its variable.
    assert_eq!(paths("variables.v1 == 'a'"), (vec![], false, vec![]));
    assert_eq!(paths("namespaceObject.a == 'a'"), (vec![], true, vec![]));
    let program = Program::compile("object == params.x", &names).unwrap();
    assert!(program.reads_params());
}

#[test]
fn a_pod_template_takes_the_place_of_the_object() {
    let names = Names::default().within_template(&["spec", "template"]);
    let object = json!({
        "metadata": {"name": "deployment"},
        "spec": {"replicas": 2, "template": {
            "metadata": {"name": "template"}, "spec": {"containers": [{"name": "a"}]},
        }},
    });
    let roots = Roots {
        object: Some(&object),
        ..Roots::default()
    };
    for source in [
        "object.spec.containers[0].name == 'a'",
        "has(object.spec) && has(object.spec.containers) && !has(object.spec.replicas)",
        "object.metadata.name == 'template'",
        "object['spec']['containers'].size() == 1",
        "object.?spec.?containers[?0].name.orValue('') == 'a'",
        "object.kind == 'x' || 'object.spec' == 'obj' + 'ect.spec'",
        "[object].all(o, o.spec.replicas == 2)",
        "[{'spec': 1}].all(object, object.spec == 1)",
    ] {
        let program = Program::compile(source, &names).unwrap();
        let found = Machine::new(roots, &[], Budget::default()).truth(&program);
        assert_eq!(found, Ok(true), "{source}");
    }
}
