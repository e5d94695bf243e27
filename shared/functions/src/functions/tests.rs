use anteroom_jmespath::{Budget, Environment, EvalError, EvalSeed, Expression};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{membership::FUNCTIONS as MEMBERSHIP, *};
use crate::{operator::Operator, testing::any_json};

mod flags;

fn evaluate(expression: &str) -> Result<Value, String> {
    let document = json!({
        "labels": {"app": "web", "tier": "front"}, "list": ["x", "y"], "n": 5, "long": "x".repeat(100_000),
    });
    let environment = Environment::standard().with_functions(functions());
    let expression = Expression::parse(expression).unwrap();
    expression
        .check(functions())
        .map_err(|error| error.to_string())?;
    expression
        .evaluate_json(&document, &environment)
        .map_err(|error| error.to_string())
}

#[test]
fn every_function_gives_the_same_as_in_kyverno() {
    for (expression, value) in [
        ("add(`1`, n)", json!(6)),
        ("add('1Ki', '1')", json!("1025")),
        ("add('1h', '30m0s')", json!("1h30m0s")),
        ("subtract(`1.5`, `1`)", json!(0.5)),
        ("subtract('1', '1500m')", json!("-500m")),
        ("multiply('100m', `10`)", json!("1")),
        ("multiply(`1.5`, '1h')", json!("1h30m0s")),
        ("divide('1Gi', '256Mi')", json!(4)),
        ("divide('1h', `4`)", json!("15m0s")),
        ("divide('1h', '900s')", json!(4)),
        ("multiply(`3`, `2.5`)", json!(7.5)),
        (
            "add(`9007199254740991`, `1`)",
            json!(9_007_199_254_740_992_u64),
        ),
        ("divide(`1`, `4`)", json!(0.25)),
        ("modulo(`7`, `4`)", json!(3)),
        ("modulo('7', '4')", json!("3")),
        ("modulo('7h', '2h')", json!("1h0m0s")),
        ("divide('1', `3`)", json!("0")),
        ("divide('100m', `3`)", json!("33m")),
        ("round(`2.345`, `1`)", json!(2.3)),
        ("round(`-2.5`, `0`)", json!(-3)),
        ("round(`2.5`, `0.0`)", json!(3)),
        ("round(`2.5`, compare('a', 'a'))", json!(3)),
        ("sum(`[1, 2]`)", json!(3)),
        ("sum(`[true]`)", json!(true)),
        ("add('0', '1Gi')", json!("1Gi")),
        ("subtract('0', '1Ki')", json!("-1Ki")),
        ("add('512Mi', '1.2')", json!("536870913200m")),
        ("add('1e3', '500')", json!("1500")),
        ("add('1e3', '1k')", json!("2e3")),
        ("divide('1.5Gi', `-2.5`)", json!("-644245094400m")),
        ("divide('10', `0.3`)", json!("33300m")),
        ("divide('1.5Gi', `1000`)", json!("1610612736m")),
        ("divide('1Gi', `1000`)", json!("1073741")),
        ("divide('10M', `1000000`)", json!("0")),
        ("divide('0.0005Ki', `0.0001`)", json!("5120")),
        ("multiply('15000000E', `10`)", json!("150000000E")),
        ("multiply('1h', `1e-7`)", json!("359.999µs")),
        ("divide('1h', `7`)", json!("8m34.285714285s")),
        ("divide('1h', '7s')", json!(3600.0 / 7.0)),
        ("base64_decode('YWJj\n')", json!("abc")),
        (
            "time_utc('9999-12-31T23:59:59Z')",
            json!("9999-12-31T23:59:59Z"),
        ),
        (
            "time_after('2024-01-01T00:00:00Z', '9999-12-31T23:59:59Z')",
            json!(false),
        ),
        ("pattern_match('1234567?', `12345678.25`)", json!(true)),
        ("sum(`[\"1Ki\", \"1\"]`)", json!("1025")),
        ("sum(`[\"1h\", \"30m0s\", \"5s\"]`)", json!("1h30m5s")),
        ("sum(`[\"1500m\"]`)", json!("1500m")),
        ("sum(`[\"-128E2\", \"2Ki\", \"2m\"]`)", json!("-10751998m")),
        ("md5('hello')", json!("5d41402abc4b2a76b9719d911017c592")),
        (
            "sha1('hello')",
            json!("aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
        ),
        (
            "sha256('')",
            json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ),
        ("image_normalize('nginx')", json!("docker.io/nginx:latest")),
        (
            "image_normalize('docker.io/library/nginx')",
            json!("docker.io/library/nginx:latest"),
        ),
        (
            "image_normalize('ghcr.io/a/b:v1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')",
            json!(
                "ghcr.io/a/b@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
            ),
        ),
        ("path_canonicalize('///run//x.sock')", json!("/run/x.sock")),
        ("is_external_url('http://10.0.0.1')", json!(false)),
        ("compare('a', 'b')", json!(-1)),
        ("compare('a', 'a')", json!(0)),
        ("equal_fold('Web', 'wEB')", json!(true)),
        ("equal_fold('ſ', 's')", json!(true)),
        ("equal_fold('µ', 'μ')", json!(true)),
        ("equal_fold('ẞ', 'ß')", json!(true)),
        ("equal_fold('ß', 'ss')", json!(false)),
        ("equal_fold('İ', 'i̇')", json!(false)),
        ("equal_fold('İ', 'i')", json!(false)),
        ("equal_fold('ı', 'i')", json!(false)),
        ("to_upper('aé')", json!("AÉ")),
        ("to_upper('ßᾀᾳŉ')", json!("ßᾈᾼŉ")),
        ("to_lower('A')", json!("a")),
        ("to_lower('İ')", json!("i")),
        ("to_lower('ΑΣ')", json!("ασ")),
        ("trim('--a-b-', '-')", json!("a-b")),
        ("trim_prefix('v1', 'v')", json!("1")),
        ("trim_prefix('1', 'v')", json!("1")),
        ("split('a:b:', ':')", json!(["a", "b", ""])),
        ("split('ab', '')", json!(["a", "b"])),
        ("split('ab', ':')", json!(["ab"])),
        ("'a:b'.split(@, ':')[1]", json!("b")),
        ("replace('aaa', 'a', 'b', `2`)", json!("bba")),
        ("replace('aaa', 'a', 'b', `-1`)", json!("bbb")),
        ("replace('aaa', 'a', 'b', `0`)", json!("aaa")),
        ("replace('aaa', 'a', 'b', `-0.5`)", json!("aaa")),
        ("replace_all('a.a', '.', '')", json!("aa")),
        ("truncate('éab', `2`)", json!("éa")),
        ("truncate('ab', `-1`)", json!("")),
        ("to_boolean('TRUE')", json!(true)),
        ("base64_decode(base64_encode('é'))", json!("é")),
        ("parse_json('{\"a\": [1]}').a[0]", json!(1)),
        ("parse_yaml('a: [1]').a[0]", json!(1)),
        ("parse_yaml('')", json!(null)),
        ("parse_yaml('a: 1\n---\nb: 2')", json!({"a": 1})),
        ("regex_match('^[0-9]+%$', '50%')", json!(true)),
        ("regex_match('^5$', n)", json!(true)),
        ("regex_replace_all('(a)(b)', 'abab', '$2$1')", json!("baba")),
        (
            "regex_replace_all('(?P<x>a)', 'a', '$x-${x}b$$1$-${1')",
            json!("a-ab$1$-${1"),
        ),
        // Names that no group has.
        (
            "regex_replace_all('(a)', 'a', '<$1_$1é$é$01$1٣$9>')",
            json!("<>"),
        ),
        (
            "regex_replace_all('(a)', 'a', '$1²$1\u{301}')",
            json!("a²a\u{301}"),
        ),
        (
            "regex_replace_all_literal('a', 'aba', '$1')",
            json!("$1b$1"),
        ),
        ("pattern_match('w*', 'web')", json!(true)),
        ("pattern_match('5?', `51`)", json!(true)),
        ("label_match(`{\"app\": \"web\"}`, labels)", json!(true)),
        ("label_match(`{}`, labels)", json!(true)),
        ("label_match(`{\"app\": \"db\"}`, labels)", json!(false)),
        ("label_match(`{\"none\": \"web\"}`, labels)", json!(false)),
        ("lookup(labels, 'app')", json!("web")),
        ("lookup(labels, 'none')", json!(null)),
        ("lookup(list, `1`)", json!("y")),
        ("lookup(list, `-1`)", json!(null)),
        ("lookup(list, `0.0`)", json!("x")),
        (
            "items(labels, 'k', 'v')",
            json!([{"k": "app", "v": "web"}, {"k": "tier", "v": "front"}]),
        ),
        ("items(list, 'k', 'v')[1]", json!({"k": 1, "v": "y"})),
        ("object_from_lists(list, `[1]`)", json!({"x": 1, "y": null})),
        ("semver_compare('1.2.3', '>=1.2.0 <2.0.0')", json!(true)),
        (
            "semver_compare('2.0.0', '>=1.2.0 <2.0.0 || 2.x')",
            json!(true),
        ),
        ("semver_compare('1.3.0', '1.2.x')", json!(false)),
        ("semver_compare('1.3.0', '> 1.2.x')", json!(true)),
        ("semver_compare('1.0.0-rc.1', '<1.0.0')", json!(true)),
        ("semver_compare('1.0.0', '!=1.0.0')", json!(false)),
        // What is no version is the first of all.
        ("semver_compare('v1', '>=0.0.1')", json!(false)),
        ("semver_compare('v1', '<0.0.1')", json!(true)),
        ("semver_compare('1.5.0', '1.x.x')", json!(false)),
        ("semver_compare('1.0.9', '1.x.x')", json!(true)),
        ("semver_compare('2.0.0', '!1.x')", json!(false)),
        ("semver_compare('2.0.0', '1.0.0 - 2.0.0')", json!(false)),
        ("semver_compare('2.0.0', '>= 1.0.0  <= 2.0.0')", json!(true)),
    ] {
        assert_eq!(evaluate(expression), Ok(value), "{expression}");
    }
}

#[test]
fn an_unusable_argument_is_an_error() {
    for expression in [
        "to_boolean('yes')",
        "base64_decode('%')",
        "base64_decode('/w==')",
        "parse_json('{')",
        "regex_match('(', 'a')",
        "lookup(labels, `1`)",
        "lookup(list, 'a')",
        "lookup(list, `0.5`)",
        "lookup('a', 'a')",
        "object_from_lists(`[[]]`, list)",
        "semver_compare('1.0.0', '1')",
        "semver_compare('1.0.0', '>1.0.0||<0.1.0')",
        "semver_compare('1.0.0', '>1.0.0 || || <0.1.0')",
        "sum(`[]`)",
        "sum(`[true, 1]`)",
        "pattern_match('true', `true`)",
        "regex_match('true', `true`)",
        "semver_compare('1.0.0', '')",
        "semver_compare('1.0.0', '1.0.0 ||')",
        "semver_compare('1.0.0', '~1.0.0')",
        "semver_compare('1.0.0', '<1.0.0 || nonsense')",
        "to_upper(n)",
        "time_now()",
        "random('[a-z]')",
        "sum('a')",
        "sum(`[1, \"1\"]`)",
        "sum(`[\"1\", \"1h\"]`)",
        "sum(`[\"x\", \"y\"]`)",
        "image_normalize('a b')",
        "image_normalize('a@sha256:ab12')",
        "x509_decode('a')",
        "add('1h', '30m')",
        "add(`1`, '1')",
        "subtract('x', `1`)",
        "multiply('1', '1')",
        "divide(`1`, `0`)",
        "divide('1h', '0s')",
        "divide('1Gi', `0`)",
        "divide(`1`, '1')",
        "modulo(`1.5`, `1`)",
        "modulo('1500m', '1')",
        "modulo('1', '0')",
        "multiply('1E', `1e30`)",
        "round(`1`, `-1`)",
        "round(`1`, `0.5`)",
    ] {
        assert!(evaluate(expression).is_err(), "{expression}");
    }
}

#[test]
fn hostile_yaml_is_an_error() {
    let parse = |text: &str| {
        let environment = Environment::standard().with_functions(functions());
        let expression = Expression::parse("parse_yaml(@)").unwrap();
        expression.evaluate_json(&json!(text), &environment)
    };
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(&deep(60)).is_ok());
    assert!(parse(&deep(70)).is_err());
    assert!(parse(&deep(100_000)).is_err());
    let laughs: String = (1..30)
        .map(|at| format!("a{at}: &a{at} [*a{0}, *a{0}, *a{0}, *a{0}]\n", at - 1))
        .collect();
    assert!(parse(&format!("a0: &a0 x\n{laughs}")).is_err());
    assert!(parse("a: [").is_err());
}

/// References of YAML make much of little, and JSON of many small objects takes more than its text says.
#[test]
fn texts_are_parsed_into_the_memory_that_there_is() {
    let parse = |expression: &str, text: &str, json_bytes: u64| {
        let budget = Budget {
            json_bytes,
            ..Budget::default()
        };
        let environment = Environment::standard()
            .with_functions(functions())
            .with_budget(budget);
        let expression = Expression::parse(expression).unwrap();
        expression.evaluate_json(&json!(text), &environment)
    };
    let yaml = format!("- &a |\n  {}\n{}", "x".repeat(10_000), "- *a\n".repeat(90));
    let json = format!("[{}1]", "{\"a\":1},".repeat(2_000));
    for (expression, text, length) in [
        ("length(parse_yaml(@))", &yaml, 91),
        ("length(parse_json(@))", &json, 2_001),
    ] {
        assert_eq!(parse(expression, text, 2_000_000), Ok(json!(length)));
        let error = parse(expression, text, 1_000_000).unwrap_err();
        let is_of_memory = matches!(
            error,
            EvalError::Budget {
                which: anteroom_jmespath::BudgetKind::BuiltBytes,
                limit: 1_000_000,
            }
        );
        assert!(is_of_memory, "{expression}: {error}");
    }
}

#[test]
fn growing_results_are_charged_before_they_are_built() {
    for expression in [
        "replace_all(long, 'x', long)",
        "regex_replace_all('x', long, long)",
        "split(replace_all(long, 'x', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'), '')",
    ] {
        assert!(
            evaluate(expression).unwrap_err().contains("budget"),
            "{expression}"
        );
    }
}

#[test]
fn a_list_or_an_object_is_no_text_and_is_not_converted_to_find_out() {
    for expression in [
        "object_from_lists(`[[]]`, list)",
        "object_from_lists(`[{}]`, list)",
        "object_from_lists(`[null]`, list)",
    ] {
        let error = evaluate(expression).unwrap_err();
        assert!(error.contains("a string or a number is needed"), "{error}");
    }
    let keys = evaluate("keys(object_from_lists(`[1, -2, 1.5, true, \"a\"]`, list))");
    assert_eq!(keys, Ok(json!(["-2", "1", "1.5", "a", "true"])));
}

/// Two documents that a function takes are there at once, and none after it.
#[test]
fn the_documents_of_a_call_share_the_memory_for_json() {
    let (list, environment) = (json!(vec![1; 100]), Environment::standard());
    let within = |expression: &str, lists: u64| {
        let budget = Budget {
            json_bytes: lists * anteroom_jmespath::json_memory::list_bytes(100),
            ..Budget::default()
        };
        let environment = environment
            .with_functions(query_functions())
            .with_budget(budget);
        let expression = Expression::parse(expression).unwrap();
        expression.evaluate_json(&list, &environment)
    };
    assert_eq!(within("equals(@, @)", 2), Ok(json!(true)));
    assert!(matches!(
        within("equals(@, @)", 1),
        Err(EvalError::Budget { .. })
    ));
    let one_by_one = "[equals(@, `1`), equals(@, `2`), equals(@, `3`)]";
    assert_eq!(within(one_by_one, 1), Ok(json!([false, false, false])));
}

#[test]
fn what_takes_long_for_its_bytes_is_charged_by_them() {
    let environment = Environment::standard().with_functions(query_functions());
    let charged = |text: &str, document: &Value| {
        let mut left = Budget::default();
        let expression = Expression::parse(text).unwrap();
        let _ = expression.evaluate_out_of(document, &environment, &mut left);
        Budget::default().steps - left.steps
    };
    let key = "k".repeat(64_000);
    for (expression, document, at_least) in [
        ("parse_yaml(@)", json!("a: [1]\n".repeat(1_000)), 80_000),
        ("equals(@, `1`)", json!({ &key: 1 }), 5_000),
        ("items(@, 'a', 'b')", json!(vec![1; 1_000]), 2_000),
        ("semver_compare(@, '1.0.0')", json!(key), 1_000),
    ] {
        let steps = charged(expression, &document);
        assert!(steps >= at_least, "{expression}: {steps}");
    }
}

#[test]
fn regular_expressions_of_the_data_are_charged_before_they_are_compiled() {
    let environment = Environment::standard().with_functions(functions());
    let expression = Expression::parse("length([?regex_match(@, 'x')])").unwrap();
    let matched = |patterns: Vec<String>| expression.evaluate_json(&json!(patterns), &environment);
    let large = |at| format!("(?:.{{100}}){{10}}{at:05}");
    let error = matched((0..2_000).map(large).collect());
    assert!(matches!(error, Err(EvalError::Budget { .. })), "{error:?}");
    let error = matched((0..2_000).map(|at| format!("a{at}")).collect());
    assert!(matches!(error, Err(EvalError::Budget { .. })), "{error:?}");
    // One expression for many texts costs once.
    assert_eq!(matched(vec!["^[x]$".to_owned(); 2_000]), Ok(json!(2_000)));
}

/// A probe is the condition that it stands for, whatever key and value are.
#[test]
fn a_membership_function_is_its_operator() {
    proptest::proptest!(|(key in any_json(), value in any_json(), of_document in proptest::bool::ANY)| {
        for (name, operator) in MEMBERSHIP {
            let text = match of_document {
                true => format!("{name}($key, value)"),
                false => format!("{name}(key, $value)"),
            };
            let expression = Expression::parse(&text).unwrap();
            let environment = Environment::standard().with_functions(query_functions());
            let (document, parameters) = (json!({"key": key, "value": value}), json!({"key": key, "value": value}));
            let environment = environment.with_parameters(parameters.as_object().unwrap());
            let found = expression.evaluate_json(&document, &environment);
            proptest::prop_assert_eq!(found, Ok(json!(operator.holds(&key, &value))), "{}", text);
        }
    });
}

#[test]
fn a_membership_function_is_for_queries_alone_and_charged() {
    for (name, operator) in MEMBERSHIP {
        let expression = Expression::parse(&format!("{name}(list, long)")).unwrap();
        assert!(expression.check(functions()).is_err(), "{name}");
        assert!(expression.check(query_functions()).is_ok(), "{name}");
        assert!(evaluate(&format!("{name}(list, long)")).is_err());
        assert!(Operator::names().any(|known| Operator::parse(known) == Some(operator)));
        assert_eq!(condition_function(operator), Some(name));
    }
    let many = |before: &str| -> Vec<_> { (0..20_000).map(|at| format!("{before}{at}")).collect() };
    let expression = Expression::parse("any_in(key, value)").unwrap();
    let environment = Environment::standard().with_functions(query_functions());
    let asked = |key: &str| {
        let document = json!({ "key": many(key), "value": many("b") });
        expression.evaluate_json(&document, &environment)
    };
    // Plain texts are found by their hash; each pattern is compared with each text.
    assert_eq!(asked("a"), Ok(json!(false)));
    let error = asked("*c");
    assert!(matches!(error, Err(EvalError::Budget { .. })), "{error:?}");
}

/// A replica sends no field that is not named.
#[test]
fn keep_only_cuts_objects_and_each_element_of_a_list() {
    let environment = Environment::standard().with_functions(query_functions());
    let document = json!({
        "a": [{"b": 1, "c": {"d": 2, "e": 3}}, {"f": 4}, "text", null], "g": {"b": 5},
    });
    for (fields, expected) in [
        ("true", document.clone()),
        ("{\"g\": true, \"absent\": true}", json!({"g": {"b": 5}})),
        (
            "{\"a\": {\"b\": true, \"c\": {\"e\": true}}}",
            json!({"a": [{"b": 1, "c": {"e": 3}}, {}, "text", null]}),
        ),
    ] {
        let expression = Expression::parse(&format!("keep_only(@, `{fields}`)")).unwrap();
        let kept = expression.evaluate_json(&document, &environment);
        assert_eq!(kept, Ok(expected), "{fields}");
    }
}

/// Whatever a function is given, it comes to a value or to an error, and to the same one again.
#[test]
fn no_function_panics_for_any_argument() {
    let names: Vec<&str> = functions().names().collect();
    let any_text = proptest::sample::select(vec![
        "2021-01-02T15:04:05-07:00",
        "Mon Jan _2 15:04:05 MST 2006",
        "1h30m",
        "-9223372036854775808ns",
        "100Mi",
        "1e999999999",
        "[a-z]{3}",
        "(((",
        "http://[::1]:80",
        "ghcr.io/a:b@sha256:00",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "1.2.3 || >=4",
        "{\"a\": [1]}",
        "",
        "é\u{0}*?",
    ])
    .prop_map(Value::from);
    let argument = proptest::prop_oneof![any_json(), any_text];
    let arguments = proptest::collection::vec(argument, 0..5);
    let seeds = (proptest::sample::select(names), arguments, any::<u64>());
    proptest::proptest!(proptest::test_runner::Config::with_cases(2_000), |((name, arguments, seed) in seeds)| {
        let shown: Vec<_> = (0..arguments.len()).map(|at| match name {
            "map" if at == 0 => "&@".to_owned(),
            "sort_by" | "max_by" | "min_by" if at == 1 => "&@".to_owned(),
            _ => format!("[{at}]"),
        }).collect();
        let expression = Expression::parse(&format!("{name}({})", shown.join(", "))).unwrap();
        let found = || {
            let seed = EvalSeed::new(i128::from(seed) * 1_000, seed);
            let environment = Environment::standard().with_functions(functions()).with_seed(Some(&seed));
            expression.evaluate_json(&json!(arguments), &environment)
        };
        proptest::prop_assert_eq!(found(), found());
    });
}
