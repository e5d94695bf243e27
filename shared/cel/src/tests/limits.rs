//! Limits on cost, and malformed texts.

use anteroom_functions::meter;
use anteroom_jmespath::Node as _;
use anteroom_wire::body::{BodyNode, encode_json};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{chain, compiled, evaluated, object};
use crate::{
    Budget, Dialect, EVALUATION_DEPTH_MAX, EXPRESSION_DEPTH_MAX, EvalError, FactScope, Input,
    ListInput, Machine, Names, Program, ReadDepth, Roots, STEPS_MAX, TOKENS_MAX, functions,
};

#[test]
fn variables_that_grow_come_to_an_end() {
    let doubling = |unit: &str, make: &dyn Fn(usize) -> String| {
        let mut sources = vec![unit.to_owned()];
        sources.extend((0..60).map(make));
        chain(&sources)
    };
    let text = |at| format!("variables.v{at} + variables.v{at}");
    let list = |at| format!("[variables.v{at}, variables.v{at}]");
    for (unit, make, check, error) in [
        (
            "'0123456789'",
            &text as &dyn Fn(usize) -> String,
            "variables.v60 == ''",
            EvalError::Bytes,
        ),
        ("[1, 2, 3]", &text, "variables.v60 == []", EvalError::Bytes),
        // Small to hold, and huge to go through.
        (
            "[1]",
            &list,
            "variables.v60 == variables.v60",
            EvalError::Steps,
        ),
        (
            "[1]",
            &list,
            "'%s'.format([variables.v60]) == ''",
            EvalError::Steps,
        ),
        (
            "[1]",
            &list,
            "variables.v60.flatten(70) == []",
            EvalError::Steps,
        ),
        (
            "[1]",
            &list,
            "[variables.v60].distinct() == [] || [variables.v60, variables.v60].distinct() == []",
            EvalError::Steps,
        ),
    ] {
        let (names, variables) = doubling(unit, make);
        let program = Program::compile(check, &names).unwrap();
        let mut machine = Machine::new(Roots::default(), &variables, Budget::default());
        let found = machine.truth(&program);
        assert!(
            found == Err(error.clone()) || matches!(found, Err(ref other) if other.is_budget()),
            "{check}: {found:?}"
        );
    }
}

/// Each variable names the one before twice, so a walk that follows each name takes for ever.
#[test]
fn variables_that_name_others_twice_are_analysed_once_each() {
    for (first, make) in [
        ("object", "V == V"),
        ("view.items", "V + V"),
        ("view.items", "true ? V : V"),
        ("view.items[0]", "true ? V.a : V.b"),
    ] {
        let mut names = Names::default();
        names.add_input("view");
        let mut variables: Vec<Program> = Vec::new();
        for at in 0..64 {
            let source = match at {
                0 => first.to_owned(),
                _ => make.replace('V', &format!("variables.v{}", at - 1)),
            };
            let program = Program::compile(&source, &names).unwrap();
            let program = program.with_subqueries(&variables, &names);
            names.define(&format!("v{at}"), &program);
            variables.push(program);
        }
        let program = Program::compile("[variables.v63].size() == 1", &names).unwrap();
        let program = program.with_subqueries(&variables, &names);
        assert_eq!(program.fact_reads(&variables).len(), 0, "{make}");
        let mut is_whole = false;
        let documents = [ListInput::List("view")];
        program.object_reads(&names, &variables, &documents, &mut |_, depth| {
            is_whole |= depth == ReadDepth::Whole;
        });
        assert_eq!(is_whole, first != "object", "{make}");
    }
}

/// Each map calls with the one before twice, which is written out in its place.
#[test]
fn compiling_ends_by_the_steps_of_a_meter() {
    let compiled = |maps: usize| {
        let mut names = Names::default()
            .in_dialect(Dialect::Kyverno)
            .with_facts(FactScope::Cluster);
        let mut made = Program::compile("{'a': 'b'}", &names);
        for at in 0..maps {
            names.define(&format!("m{at}"), made.as_ref().ok()?);
            let list = format!("resource.List('v1', 'pods', '', variables.m{at}).size()");
            made = Program::compile(&format!("{{'a': {list}, 'b': {list}}}"), &names);
        }
        made.ok()
    };
    let (few, left) = meter::within(100_000, || compiled(4));
    assert!(few.is_some() && left > 0);
    let (many, left) = meter::within(100_000, || compiled(40));
    assert!(many.is_none() && left == 0);
    let pattern = |text: &str| meter::within(50_000, || functions::pattern(text)).0;
    assert!(pattern("(?:a{100}){10}").is_ok());
    assert!(pattern("(?:a{1000}){10}").is_err());
}

#[test]
fn functions_and_look_ups_are_charged_by_the_texts_that_they_are_given() {
    let map = |value: &str| -> Value {
        let entries = (0..1_000).map(|n| (format!("k{n}"), value.into()));
        Value::Object(entries.collect())
    };
    let object = json!({
        "l": vec![1; 600], "t": "x".repeat(60_000), "m": {"a": 1}, "many": vec![1; 1_000],
        "large": map("a"), "other": map("b"),
    });
    for check in [
        "isCIDR(object.t)",
        "isIP(object.t)",
        "!object.t.startsWith(object.t)",
        "!object.t.endsWith(object.t)",
        "object.t in object.m",
        "object.m[?object.t].hasValue()",
        "object.large == object.other",
        "sets.intersects(object.many, [])",
        "isSemver(object.t)",
        "'%.9f'.format([1.5]) == ''",
    ] {
        let source = format!("object.l.exists(a, object.l.exists(b, {check}))");
        assert_eq!(
            evaluated(&source, &object),
            Err(EvalError::Steps),
            "{check}"
        );
    }
    // The entries of a map are listed before the first is compared.
    let program = compiled("object.large == object.other");
    let roots = Roots {
        object: Some(&object),
        ..Roots::default()
    };
    let mut machine = Machine::new(roots, &[], Budget::default());
    assert_eq!(machine.truth(&program), Ok(false));
    let spent = STEPS_MAX - machine.budget().steps;
    assert!((250..500).contains(&spent), "{spent}");
}

#[test]
fn values_that_are_skipped_are_charged_to_the_evaluation_that_skips_them() {
    let mut names = Names::default();
    names.add_input("list");
    let program = Program::compile("list[10000] == 10000", &names).unwrap();
    let elements: Vec<_> = (0..=10_000).collect();
    let body = encode_json(&json!(elements)).unwrap();
    let list = BodyNode::new(&body);
    let inputs = [Input::body(list)];
    let machine = Machine::new(Roots::default(), &[], Budget::default());
    let mut machine = machine.with_inputs(&inputs);
    // What is skipped before the evaluation begins is not its own.
    assert!(list.element(10_000).is_some());
    assert_eq!(machine.truth(&program), Ok(true));
    let spent = STEPS_MAX - machine.budget().steps;
    assert!((625..650).contains(&spent), "{spent}");
}

#[test]
fn an_exceeded_budget_is_not_hidden_by_logic() {
    let object = json!({"list": vec![1; 2000]});
    for source in [
        "object.list.all(a, object.list.all(b, a == b)) || true",
        "object.list.exists(a, object.list.all(b, a == b && object.list.all(c, c == 1))) || true",
        "true && object.list.map(a, object.list.map(b, [a, b])) != []",
        "object.list.all(a, object.list.distinct() == [1] && object.list.all(b, b == 1))",
    ] {
        let error = evaluated(source, &object).unwrap_err();
        assert!(error.is_budget(), "{source}: {error}");
    }
    // It ends where the budget does, and not before.
    let program = compiled("object.list.all(a, a == 1)");
    let roots = Roots {
        object: Some(&object),
        ..Roots::default()
    };
    let with = |steps| {
        let budget = Budget {
            steps,
            ..Budget::default()
        };
        let mut machine = Machine::new(roots, &[], budget);
        (machine.truth(&program), machine.budget().steps)
    };
    let (found, left) = with(STEPS_MAX);
    assert_eq!(found, Ok(true));
    let needed = STEPS_MAX - left;
    assert_eq!(with(needed), (Ok(true), 0));
    assert_eq!(with(needed - 1), (Err(EvalError::Steps), 0));
}

#[test]
fn built_bytes_are_limited_at_the_edge() {
    let with = |source: &str, built_bytes| {
        let budget = Budget {
            built_bytes,
            ..Budget::default()
        };
        Machine::new(Roots::default(), &[], budget).truth(&compiled(source))
    };
    let edge = "('a' + 'b').size() == 2";
    assert_eq!(with(edge, 2), Ok(true));
    for source in [
        edge,
        // The other side and the next element need nothing, and forgive nothing.
        "('a' + 'b').size() == 2 || true",
        "[1, 2].exists(x, x == 1 ? 'a' + 'b' == '' : true)",
    ] {
        assert_eq!(with(source, 1), Err(EvalError::Bytes), "{source}");
    }
}

/// The sort of the standard library panics where a comparison fails halfway, or where the order is not total.
#[test]
fn a_sort_that_runs_out_of_steps_or_has_no_total_order_never_panics() {
    let mixed: Vec<_> = (0..64).map(|n| (n * 37 % 64).to_string()).collect();
    let program = compiled(&format!("[{}].sort()[63] == 63", mixed.join(", ")));
    let outcomes = (0..2_000).map(|steps| {
        let budget = Budget {
            steps,
            ..Budget::default()
        };
        Machine::new(Roots::default(), &[], budget).truth(&program)
    });
    let (done, failed): (Vec<_>, Vec<_>) = outcomes.partition(Result::is_ok);
    assert!(done.len() > 100 && failed.len() > 100);
    assert!(failed.iter().all(|failed| *failed == Err(EvalError::Steps)));
    let mut with_nan: Vec<_> = mixed.iter().map(|number| format!("{number}.0")).collect();
    for at in (0..64).step_by(3) {
        with_nan[at] = "double('NaN')".to_owned();
    }
    let program = compiled(&format!("[{}].sort().size() == 64", with_nan.join(", ")));
    let found = Machine::new(Roots::default(), &[], Budget::default()).truth(&program);
    assert_eq!(found, Ok(true));
}

/// Runs on a stack as small as those that evaluations run on.
fn on_small_stack(run: impl FnOnce() + Send + 'static) {
    let builder = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    builder.spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_nesting_is_an_error_and_never_overflows() {
    on_small_stack(|| {
        let many = |open: &str, count: usize, middle: &str, close: &str| {
            format!("{}{middle}{}", open.repeat(count), close.repeat(count))
        };
        for count in [30, 60, 500, 5_000, 100_000] {
            for source in [
                many("(", count, "1", ")"),
                many("[", count, "1", "]"),
                many("{'a': ", count, "1", "}"),
                many("size(", count, "1", ")"),
                many("[1].all(x, ", count, "true", ")"),
                many("-!", count, "1", ""),
                many("!", count, "true", ""),
                many("true ? ", count, "1", " : 2"),
                many("true ? 1 : ", count, "1", ""),
                format!("object{}", ".a".repeat(count)),
                format!("object{}", ".?a".repeat(count)),
                format!("object{}", "[0]".repeat(count)),
                format!("object{}", ".trim()".repeat(count)),
                format!("1{}", " + 1".repeat(count)),
                format!("true{}", " && true".repeat(count)),
                format!("true{}", " ? true".repeat(count)),
                "(".repeat(count),
                "[".repeat(count),
                "'".repeat(count),
                ".".repeat(count),
                "a{".repeat(count),
                "\"\\".repeat(count),
            ] {
                if let Ok(program) = Program::compile(&source, &Names::default()) {
                    let object = json!({"a": 1});
                    let roots = Roots {
                        object: Some(&object),
                        ..Roots::default()
                    };
                    let _ = Machine::new(roots, &[], Budget::default()).truth(&program);
                }
            }
        }
    });
}

#[test]
fn the_depth_of_an_expression_ends_at_the_edge() {
    let of = |levels: usize| format!("object{}", ".a".repeat(levels - 1));
    assert!(Program::compile(&of(EXPRESSION_DEPTH_MAX), &Names::default()).is_ok());
    let error = Program::compile(&of(EXPRESSION_DEPTH_MAX + 1), &Names::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains(&format!("{EXPRESSION_DEPTH_MAX} levels")),
        "{error}"
    );
    let many = format!("true{}", " && true".repeat(TOKENS_MAX / 3 - 1));
    assert!(Program::compile(&many, &Names::default()).is_ok());
}

#[test]
fn variables_that_refer_to_variables_end_at_a_depth() {
    on_small_stack(|| {
        let mut sources = vec!["1".to_owned()];
        sources.extend((0..EVALUATION_DEPTH_MAX).map(|at| format!("variables.v{at} + 1")));
        let (names, variables) = chain(&sources);
        let with = |at: usize| {
            let program =
                Program::compile(&format!("variables.v{at} == {}", at + 1), &names).unwrap();
            Machine::new(Roots::default(), &variables, Budget::default()).truth(&program)
        };
        assert_eq!(with(20), Ok(true));
        assert_eq!(with(EVALUATION_DEPTH_MAX - 1), Err(EvalError::TooDeep));
        // In order, none of them is deep.
        let mut machine = Machine::new(Roots::default(), &variables, Budget::default());
        for variable in &variables {
            let _ = machine.value(variable);
        }
    });
}

#[test]
fn a_large_object_costs_only_what_an_expression_reads() {
    let object = json!({"spec": {"name": "a"}, "data": "x".repeat(1_500_000), "list": vec!["y"; 100_000],
        "patterns": (0..1_000).map(|at| format!("x|{at}")).collect::<Vec<_>>()});
    let program = compiled("object.spec.name == 'a' && size(object.list) > 5");
    let roots = Roots {
        object: Some(&object),
        ..Roots::default()
    };
    let mut machine = Machine::new(roots, &[], Budget::default());
    assert_eq!(machine.truth(&program), Ok(true));
    assert!(STEPS_MAX - machine.budget().steps < 20);
    for source in [
        "object.data.replace('x', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy') == ''",
        "object.list.map(a, object.data + a).size() == 0",
        "object.data.split('').size() == 0",
        "object.data.findAll('x').size() == 1500000",
        "object.list.join(object.data) == ''",
        "object.list.all(a, !object.data.matches('z'))",
        "object.patterns.all(a, 'x'.matches(a))",
        "object.list.sort() == object.list && object.list.all(a, object.list.indexOf('z') == -1)",
    ] {
        let error = evaluated(source, &object).unwrap_err();
        assert!(error.is_budget(), "{source}: {error}");
    }
}

#[test]
fn regular_expressions_are_bounded() {
    for (source, error) in [
        ("'a'.matches('(a')", "not a regular expression"),
        (
            "'a'.matches('((a{1000}){1000}){1000}')",
            "bytes when it is compiled",
        ),
        (
            "'a'.matches('((((((((((((((((((((((((((((((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))))))))))))))))))))))))))))))')",
            "not a regular expression",
        ),
    ] {
        let found = Program::compile(source, &Names::default())
            .unwrap_err()
            .to_string();
        assert!(found.contains(error), "{found}");
    }
    let found = evaluated("'a'.matches(object.p)", &json!({"p": "(a"})).unwrap_err();
    assert!(
        found.to_string().contains("not a regular expression"),
        "{found}"
    );
}

/// Seconds of work each: an expression that is read again and again, and states that are followed for each byte.
#[test]
fn patterns_of_the_object_and_long_searches_end_by_steps() {
    let object = json!({
        "pattern": "a.".repeat(4_000) + "(", "long": "ab".repeat(25_000),
        "folded": r"(?i:\p{Any})".repeat(500),
    });
    for source in [
        "[1, 2, 3, 4, 5, 6, 7, 8, 9].exists(i, 'x'.matches(object.pattern))",
        "'x'.matches(object.folded)",
        "object.long.matches('(?:a|b)*a(?:[ab]{1000}){3}c')",
        "object.long.findAll('[ab]*c|[ab]').size() == 0",
    ] {
        let error = evaluated(source, &object).unwrap_err();
        assert!(
            error.is_budget() || error.to_string().contains("regular expression"),
            "{source}: {error}"
        );
    }
}

/// Texts that are often nearly expressions.
fn nearly() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "object",
        "oldObject",
        "request",
        "params",
        "variables",
        "x",
        ".spec",
        ".?a",
        "[0]",
        "[?'a']",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
        " && ",
        " || ",
        " == ",
        " in ",
        " + ",
        "-",
        "!",
        "1",
        "2u",
        "1.5",
        "'a'",
        "b'\\xff'",
        "r'\\d'",
        "true",
        "null",
        "has(",
        ".all(x, ",
        ".map(x, ",
        ".exists(x, ",
        ".filter(x, ",
        ".optMap(x, ",
        ".size()",
        ".matches('a+')",
        ".format([1])",
        ".split('')",
        ".substring(1)",
        "duration('1h')",
        "timestamp('2024-01-01T00:00:00Z')",
        "quantity('1Ki')",
        "ip('::1')",
        "cidr('10.0.0.0/8')",
        "url('http://a')",
        "semver('1.2.3')",
        "optional.of(",
        "optional.none()",
        ".orValue(1)",
        ".sum()",
        ".sort()",
        ".getHours('+01:00')",
        "'é'",
        "\"\\u00e9\"",
        "'''",
        "//",
        "\n",
        "type(",
        "%",
        "/",
        "`a`",
        ".lastIndexOf('a', 1)",
        ".charAt(0)",
        ".replace('a', 'b', 2)",
        "strings.quote(",
        "sets.contains([1], ",
    ]);
    prop::collection::vec(words, 0..14).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]

    #[test]
    fn no_source_text_panics(source in prop_oneof![nearly(), ".{0,60}", "[a-z().\\[\\]?:'\"\\\\ +!-]{0,80}"]) {
        let names = Names::default().with_params();
        if let Ok(program) = Program::compile(&source, &names) {
            let object = object();
            let roots = Roots { object: Some(&object), params: Some(&object), request: Some(&object), ..Roots::default() };
            let budget = Budget { steps: 50_000, built_bytes: 1 << 20, json_bytes: 1 << 22 };
            let mut machine = Machine::new(roots, &[], budget);
            let _ = machine.truth(&program);
            let _ = machine.text(&program);
        }
    }
}
