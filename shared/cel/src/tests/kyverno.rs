//! The dialect of Kyverno's policy kinds.

mod published;
mod structs;
mod unknown;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    Arrival, Budget, Dialect, EvalError, FactScope, Machine, Names, Program, Roots, function_names,
};

pub(crate) fn names() -> Names {
    Names::default().in_dialect(Dialect::Kyverno)
}

fn compiled(source: &str) -> Program {
    Program::compile(source, &names()).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn roots(object: &Value) -> Roots<'_> {
    Roots {
        object: Some(object),
        ..Roots::default()
    }
}

fn evaluated(source: &str, object: &Value) -> Result<bool, EvalError> {
    let program = compiled(source);
    Machine::new(roots(object), &[], Budget::default()).truth(&program)
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

pub(crate) fn compile_errors(cases: &[(&str, &str)]) {
    for (source, error) in cases {
        let found = Program::compile(source, &names()).map(|_| ());
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, Err((*error).to_owned()), "{source}");
    }
}

#[test]
fn each_dialect_has_its_own_functions_and_names() {
    let kyverno = function_names(Dialect::Kyverno);
    let kubernetes = function_names(Dialect::Kubernetes);
    assert!(kubernetes.iter().any(|name| name == "x.startsWith"));
    assert!(kyverno.iter().any(|name| name == "md5"));
    assert!(kubernetes.iter().all(|name| kyverno.contains(name)));
    for name in kyverno.iter().filter(|name| !kubernetes.contains(name)) {
        let call = match name.strip_prefix("x.") {
            Some(name) => format!("object.{name}()"),
            None => format!("{name}()"),
        };
        assert!(
            Program::compile(&call, &Names::default()).is_err(),
            "{call}"
        );
    }
    for source in [
        "math.abs(1) == 1",
        "cel.bind(x, 1, x == 1)",
        "request.object.a == 1",
        "exceptions.allowedImages == []",
        "Object{} == null",
        "object.`a-b` == 1",
    ] {
        assert!(Program::compile(source, &names()).is_ok(), "{source}");
        assert!(
            Program::compile(source, &Names::default()).is_err(),
            "{source}"
        );
    }
    let there = "object, oldObject, request, namespaceObject, exceptions";
    let params = names().with_params();
    for name in ["params", "authorizer", "unknown"] {
        let error = Program::compile(&format!("{name}.a == 1"), &params).unwrap_err();
        let expected = format!("there is no `{name}`; there are {there}");
        assert_eq!(error.to_string(), expected);
    }
    compile_errors(&[
        (
            "exceptions == null",
            "`exceptions` stands only before allowedImages or allowedValues",
        ),
        (
            "exceptions.allowed == []",
            "`exceptions` has no field `allowed`; it has allowedImages and allowedValues",
        ),
        ("request.path == ''", "`request` has no field `path` here"),
        ("math.abs() == 1", "math.abs() takes 1 arguments"),
        ("object.path('a') == 1", "there is no function path()"),
        ("cel.bind(x, 1)", "cel.bind() takes 3 arguments"),
        (
            "cel.bind(x.y, 1, true)",
            "the variable of cel.bind() is a simple name",
        ),
    ]);
    let old = Program::compile("object.a.orValue(1) == 1", &Names::default()).unwrap();
    let object = json!({"a": 1});
    let found = Machine::new(roots(&object), &[], Budget::default()).truth(&old);
    assert_eq!(
        found.unwrap_err().to_string(),
        "no such overload: orValue(int)"
    );
}

#[test]
fn fields_in_backticks_are_read_and_written_again() {
    let object = json!({"m": {"a/b": 1, "a.b-c d": 2, "in": 3}});
    for (source, text) in [
        ("object.m.`a/b` == 1", "object.m.`a/b` == 1"),
        ("has(object.m.`a.b-c d`)", "has(object.m.`a.b-c d`)"),
        ("object.m.`in` == 3", "object.m.`in` == 3"),
        ("object.`m` != null", "object.m != null"),
        (
            "object.m.?`a/b`.orValue(0) == 1",
            "object.m[?\"a/b\"].orValue(0) == 1",
        ),
        ("Object{`a-b`: 1}.`a-b` == 1", "Object{`a-b`: 1}.`a-b` == 1"),
        ("{'a//b': 4}.`a//b` == 4", "{\"a//b\": 4}.`a//b` == 4"),
    ] {
        let program = compiled(source);
        assert_eq!(evaluated(source, &object), Ok(true), "{source}");
        assert_eq!(program.text(&names()), text, "{source}");
        assert_eq!(compiled(text).text(&names()), text, "{source}");
    }
    for source in ["`object`.m", "object.``", "object.`a", "object.`m`()"] {
        assert!(Program::compile(source, &names()).is_err(), "{source}");
    }
}

#[test]
fn a_bound_value_is_evaluated_where_it_is_needed_and_once() {
    all_true(
        &json!({"a": [1, 2]}),
        &[
            "cel.bind(x, object.a, x.size() == 2 && x[0] == 1)",
            "cel.bind(x, 1, cel.bind(y, x + 1, cel.bind(x, 5, x + y))) == 7",
            "object.a.map(x, cel.bind(y, x * 2, y + x)) == [3, 6]",
            "cel.bind(x, object.a.map(y, y + 1), object.a.map(z, cel.bind(w, z, x[0] + w + x[0]))) == [5, 6]",
            "cel.bind(x, object.nothing, true || x) && cel.bind(x, object.nothing, cel.bind(y, x, true))",
            "cel.bind(x, 1, cel.bind(y, [x].map(x, x + 1), y.map(z, z + x + y[0]))) == [5]",
        ],
    );
    all_errors(
        &json!({}),
        &[
            ("cel.bind(x, object.y, x)", "no such key: y"),
            ("cel.bind(x, object.y, x && x)", "no such key: y"),
            ("cel.bind(x, cel.bind(y, object.z, y), x)", "no such key: z"),
        ],
    );
    let nested = "cel.bind(x, object.a, x.exists(y, y == x[0]))";
    let text = "cel.bind(_0, object.a, _0.exists(_1, _1 == _0[0]))";
    assert_eq!(compiled(nested).text(&names()), text);
    let spent = |source: &str| {
        let program = compiled(source);
        let object = json!({"list": vec![1; 100]});
        let mut machine = Machine::new(roots(&object), &[], Budget::default());
        machine.truth(&program).unwrap();
        crate::STEPS_MAX - machine.budget().steps
    };
    let once = spent("object.list.map(y, y).size() == 100");
    let four = spent("cel.bind(x, object.list.map(y, y), x.size() + x.size() + x.size() > 0)");
    assert!(four < once + 50, "{four} {once}");
}

#[test]
fn a_fact_is_asked_for_by_the_fields_of_a_map_that_is_the_same_each_time() {
    let mut names = names().with_facts(FactScope::Cluster);
    let sources = ["{'a': object.b}", "{'a': random()}", "object.b"];
    for (name, source) in ["m", "drawn", "other"].into_iter().zip(sources) {
        let variable = Program::compile(source, &names).unwrap();
        names.define(name, &variable);
    }
    for (name, read) in [("m", &[][..]), ("drawn", &[1][..]), ("other", &[2][..])] {
        let source = format!("resource.List('v1', 'pods', '', variables.{name}).size() == 0");
        let program = Program::compile(&source, &names).unwrap();
        assert_eq!(program.variables(), read, "{source}");
    }
}

#[test]
fn bound_values_within_each_other_are_limited() {
    let run = || {
        let mut names = names();
        let mut variables = vec![compiled("1")];
        names.define("v0", &variables[0]);
        for at in 0..127 {
            let source = format!("cel.bind(a, variables.v{at}, cel.bind(b, a + 1, b + 0))");
            let program = Program::compile(&source, &names).unwrap();
            names.define(&format!("v{}", at + 1), &program);
            variables.push(program);
        }
        for (last, expected) in [(20, Some(Ok(true))), (127, None)] {
            let source = format!("variables.v{last} == {}", last + 1);
            let program = Program::compile(&source, &names).unwrap();
            let mut machine = Machine::new(Roots::default(), &variables, Budget::default());
            let found = machine.truth(&program);
            let expected = expected.unwrap_or(Err(EvalError::TooDeep));
            assert_eq!(found, expected, "{last}");
        }
    };
    // A stack as small as those that evaluations run on.
    let builder = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    builder.spawn(run).unwrap().join().unwrap();
}

#[test]
fn request_holds_the_objects_and_exceptions_their_lists() {
    let (object, old) = (json!({"a": 1}), json!({"a": 0}));
    let images = [json!("nginx")];
    let request = json!({"name": "x", "namespace": ""});
    let mut roots = Roots {
        object: Some(&object),
        old_object: Some(&old),
        request: Some(&request),
        allowed_images: &images,
        ..Roots::default()
    };
    let run = |roots: Roots<'_>, source: &str| {
        Machine::new(roots, &[], Budget::default()).truth(&compiled(source))
    };
    for source in [
        "request.object.a == 1 && request.oldObject.a == 0 && has(request.object)",
        "request.?object.?a.orValue(9) == 1 && request.?object.a.value() == 1",
        "exceptions.allowedImages == ['nginx'] && exceptions.allowedValues == []",
        "has(exceptions.allowedValues) && 'nginx' in exceptions.allowedImages",
        "request.?name.value() == 'x' && !request.?namespace.hasValue()",
        "[1].all(request, request == 1)",
    ] {
        assert_eq!(run(roots, source), Ok(true), "{source}");
    }
    roots.old_object = None;
    assert_eq!(run(roots, "!has(request.oldObject)"), Ok(true));
    // `request` holds the object as the API server sent it.
    let request = json!({"object": {"a": 7}});
    roots.request = Some(&request);
    assert_eq!(
        run(roots, "request.object.a == 7 && object.a == 1"),
        Ok(true)
    );
    // The objects may also stand apart from the other fields.
    let (sent, null) = (json!({"a": 8}), Value::Null);
    (roots.request_object, roots.request_old_object) = (Some(&sent), Some(&old));
    let apart = "request.object.a == 8 && object.a == 1 && request.oldObject.a == 0";
    assert_eq!(run(roots, apart), Ok(true));
    roots.request_object = Some(&null);
    assert_eq!(run(roots, "request.object.a == 1"), Ok(true));
    let program = compiled("request.object.spec.a == exceptions.allowedValues");
    let paths: Vec<_> = program.request_paths().map(<[_]>::to_vec).collect();
    assert_eq!(paths, [["object", "spec", "a"].map(Box::from).to_vec()]);
    assert!(program.reads_exceptions() && !program.reads_params());
    assert!(!compiled("object.a == 1").reads_exceptions());
}

#[test]
fn an_expression_about_a_pod_is_about_the_template() {
    let object = json!({
        "metadata": {"name": "web", "namespace": "ns", "labels": {"a": "outer"}},
        "spec": {"template": {
            "metadata": {"namespace": "inner", "labels": {"a": "template"}},
            "spec": {"host": "x"},
        }},
    });
    let within = names().within_template(&["spec", "template"]);
    let roots = Roots {
        object: Some(&object),
        old_object: Some(&object),
        ..Roots::default()
    };
    for source in [
        "object.spec.host == 'x' && oldObject.spec.host == 'x'",
        "object.?spec.?host.orValue('') == 'x' && object['spec']['host'] == 'x'",
        "object[?'spec'].host.value() == 'x' && request.object.spec.host == 'x'",
        "request.?object.?spec.?host.orValue('') == 'x' && request.oldObject['spec'].host == 'x'",
        "object.metadata.labels.a == 'template' && object.?metadata.labels.a.value() == 'template'",
        "object.metadata.namespace == 'ns' && oldObject.metadata.namespace == 'ns'",
        "object.metadata.?namespace.orValue('') == 'ns' && object['metadata']['namespace'] == 'ns'",
        "object.?metadata.?namespace.orValue('') == 'ns' && object.?metadata.namespace.value() == 'ns'",
        "request.object.metadata.namespace == 'ns' && has(object.metadata.namespace)",
        "request.?object.?metadata.?namespace.orValue('') == 'ns'",
        "[object].all(o, o.metadata.namespace == 'ns' && o.spec.template.spec.host == 'x')",
    ] {
        let program = Program::compile(source, &within).unwrap();
        let found = Machine::new(roots, &[], Budget::default()).truth(&program);
        assert_eq!(found, Ok(true), "{source}");
    }
    let with_own = within.with_own_metadata();
    for source in [
        "object.metadata.name == 'web' && object.?metadata.?name.orValue('') == 'web'",
        "object['metadata']['name'] == 'web' && has(object.metadata.name) && !has(object.metadata.uid)",
        "object.metadata.labels.a == 'template' && object.metadata.?labels.a.value() == 'template'",
        "!has(object.metadata.annotations) && object.metadata.namespace == 'ns' && object.spec.host == 'x'",
    ] {
        let program = Program::compile(source, &with_own).unwrap();
        let found = Machine::new(roots, &[], Budget::default()).truth(&program);
        assert_eq!(found, Ok(true), "{source}");
    }
    let other = Names::default().within_template(&["spec", "template"]);
    let program = Program::compile("object.metadata.namespace == 'inner'", &other).unwrap();
    let found = Machine::new(roots, &[], Budget::default()).truth(&program);
    assert_eq!(found, Ok(true));
}

#[test]
fn a_missing_object_is_empty_in_kyvernos_kinds_and_null_elsewhere() {
    let object = json!({"a": 1});
    let mut roots = roots(&object);
    for (source, if_empty, if_null) in [
        ("oldObject == null", Ok(false), Ok(true)),
        (
            "oldObject == {} && size(oldObject) == 0",
            Ok(true),
            Ok(false),
        ),
        ("has(oldObject.a)", Ok(false), Ok(false)),
        ("oldObject.?a.orValue(2) == 2", Ok(true), Ok(true)),
        ("object.a == 1", Ok(true), Ok(true)),
        ("request.oldObject == null", Ok(true), Ok(true)),
    ] {
        for (absent_is_empty, expected) in [(true, &if_empty), (false, &if_null)] {
            roots.absent_is_empty = absent_is_empty;
            let found = Machine::new(roots, &[], Budget::default()).truth(&compiled(source));
            assert_eq!(&found, expected, "{source} {absent_is_empty}");
        }
    }
}

#[test]
fn a_pinned_variable_is_evaluated_on_its_own_object() {
    let (before, after) = (json!({"a": 1}), json!({"a": 2}));
    let mut names = names();
    let variables: Vec<_> = ["object.a", "variables.first * 10 + object.a", "object.a"]
        .into_iter()
        .zip(["first", "both", "unread"])
        .map(|(source, name)| {
            let program = Program::compile(source, &names).unwrap();
            names.define(name, &program);
            program
        })
        .collect();
    let program = Program::compile("variables.both == 12 && object.a == 2", &names).unwrap();
    let pinned = [Some(&before), None, None];
    let machine = Machine::new(roots(&after), &variables, Budget::default());
    let mut machine = machine.with_pinned(&pinned);
    assert_eq!(machine.truth(&program), Ok(true));
    assert_eq!(machine.evaluated().collect::<Vec<_>>(), [0, 1]);
}

fn texts(sources: &[String], arrival: Arrival, other: bool) -> Vec<Option<String>> {
    let programs: Vec<_> = sources.iter().map(|source| compiled(source)).collect();
    let more = compiled("random() + random('[a-z]{3}')");
    let object = json!({"list": [1, 2, 3]});
    let mut machine = Machine::new(roots(&object), &[], Budget::default()).with_arrival(arrival);
    let mut all = Vec::new();
    for program in &programs {
        if other {
            machine.text(&more).unwrap();
        }
        all.push(machine.text(program).unwrap());
    }
    all
}

#[test]
fn the_clock_is_that_of_the_arrival() {
    let arrival = Arrival {
        now_ns: 1_704_164_645_000_000_000,
        seed: 3,
    };
    let program =
        compiled("time.now() == timestamp('2024-01-02T03:04:05Z') && time.now() == time.now()");
    let mut machine = Machine::new(Roots::default(), &[], Budget::default()).with_arrival(arrival);
    assert_eq!(machine.truth(&program), Ok(true));
    let far = Arrival {
        now_ns: i128::MAX,
        ..arrival
    };
    let mut machine = Machine::new(Roots::default(), &[], Budget::default()).with_arrival(far);
    let error = machine.truth(&program).unwrap_err().to_string();
    assert_eq!(error, "the time is not within the years 0 to 9999");
}

#[test]
fn random_texts_match_their_patterns_and_differ() {
    let arrival = Arrival { now_ns: 0, seed: 3 };
    let random = |source: &str| {
        let program = compiled(source);
        let object = json!({"list": [1, 2, 3]});
        let mut machine =
            Machine::new(roots(&object), &[], Budget::default()).with_arrival(arrival);
        machine.truth(&program).map_err(|error| error.to_string())
    };
    for source in [
        "random().matches('^[0-9a-z]{8}$') && random.random().matches('^[0-9a-z]{8}$')",
        "random('pod-[a-f]{3}').matches('^pod-[a-f]{3}$')",
        "random() != random() && random('[a-z]{9}') != random('[a-z]{9}')",
        "object.list.map(x, random()).distinct().size() == 3",
    ] {
        assert_eq!(random(source), Ok(true), "{source}");
    }
    for (source, error) in [
        ("random('') == ''", "the pattern is empty"),
        (
            "random('(a{1000}){5}') == ''",
            "the text grows beyond 4096 bytes",
        ),
    ] {
        assert_eq!(random(source), Err(error.to_owned()), "{source}");
    }
}

proptest! {
    #[test]
    fn a_restart_draws_the_same_random_values(seed: u64, count in 1_usize..5, other: bool) {
        let sources: Vec<_> = (0..count)
            .map(|at| format!("object.list.map(x, random('[a-z]{{4}}')).join('-') + random() + '{at}'"))
            .collect();
        let arrival = Arrival { now_ns: 0, seed };
        let first = texts(&sources, arrival, false);
        // What else is drawn meanwhile changes nothing.
        prop_assert_eq!(&texts(&sources, arrival, other), &first);
        let another = Arrival { now_ns: 0, seed: seed.wrapping_add(1) };
        prop_assert_ne!(&texts(&sources, another, false), &first);
    }
}

#[test]
fn functions_that_make_much_of_little_stay_within_the_budget() {
    let bomb = "gzip.decompress(gzip.compress(object.big)).size() > 0";
    let object = json!({
        "big": "a".repeat(1_000_000),
        "json": format!("[{}1]", "1,".repeat(400_000)),
        "map": format!("{{{}}}", (0..3_000).map(|at| format!("\"k{at}\":{at}")).collect::<Vec<_>>().join(",")),
        "list": vec![1; 2_000],
    });
    let with = |source: &str, budget: Budget| {
        let program = compiled(source);
        let arrival = Arrival { now_ns: 0, seed: 0 };
        let mut machine = Machine::new(roots(&object), &[], budget).with_arrival(arrival);
        (machine.truth(&program), machine.budget().clone())
    };
    let (found, left) = with(bomb, Budget::default());
    assert_eq!(found, Ok(true));
    let built_bytes = crate::BUILT_BYTES_MAX - left.built_bytes;
    let edge = |built_bytes| {
        let budget = Budget {
            built_bytes,
            ..Budget::default()
        };
        with(bomb, budget).0
    };
    assert_eq!(edge(built_bytes), Ok(true));
    assert_eq!(edge(built_bytes - 1), Err(EvalError::Bytes));
    let few = Budget {
        steps: 500,
        ..Budget::default()
    };
    let (found, _) = with("random('[a-z]{1000}') != ''", few);
    assert_eq!(found, Err(EvalError::Steps));
    for source in [
        "json.unmarshal(object.json + object.json + object.json + object.json).size() > 0",
        "cel.bind(m, json.unmarshal(object.map), object.list.all(a, object.list.all(b, has(m.k2999))))",
        "object.list.all(a, object.list.all(b, random('[a-z]{40}') != ''))",
        "object.list.all(a, sha256(object.big) != '')",
        "object.list.all(a, gzip.compress(object.big).size() > 0)",
        "object.list.all(a, regex.replace(object.big, 'b', 'c') != '')",
        "object.list.all(a, math.greatest(object.list) == 1)",
        "object.list.all(a, json.marshal(object.list) != '')",
        "object.list.all(a, base64.decode(object.big) != b'')",
    ] {
        let (found, _) = with(source, Budget::default());
        assert!(
            found.as_ref().is_err_and(EvalError::is_budget),
            "{source}: {found:?}"
        );
    }
}
