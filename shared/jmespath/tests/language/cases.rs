//! Cases of ours: what the product adds to JMESPath, and enough of JMESPath that the tests mean
//! something without the official suite.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anteroom_jmespath::ast::{Argument, Expr};
use anteroom_jmespath::{
    Environment, EvalError, EvalSeed, Expression, FunctionTable, Parameters, Signature, Types,
};
use serde_json::{Value, json};

fn ingresses() -> Value {
    json!({"items": [
        {"metadata": {"name": "a", "namespace": "one", "labels": {"app.kubernetes.io/name": "shop"}},
         "spec": {"rules": [{"host": "a.example.com"}, {"host": "b.example.com"}]}},
        {"metadata": {"name": "b", "namespace": "two"}, "spec": {"rules": [{"host": "c.example.com"}]}},
        {"metadata": {"name": "c", "namespace": "two"}, "spec": {"defaultBackend": {"port": 9_007_199_254_740_993_u64}}},
    ]})
}

fn evaluate(text: &str, document: &Value) -> Result<Value, EvalError> {
    Expression::parse(text)
        .unwrap()
        .evaluate_json(document, &Environment::default())
}

#[test]
fn expressions_have_their_values() {
    let table = [
        (
            "items[].spec.rules[].host",
            json!(["a.example.com", "b.example.com", "c.example.com"]),
        ),
        (
            "items[*].spec.rules[*].host",
            json!([["a.example.com", "b.example.com"], ["c.example.com"]]),
        ),
        (
            "items[?(spec.rules[].host || `[]`) | contains(@, 'c.example.com')].metadata.name",
            json!(["b"]),
        ),
        ("items[?metadata.namespace == 'two'] | length(@)", json!(2)),
        (
            "items[?metadata.namespace == 'two'] | [-1].metadata.name",
            json!("c"),
        ),
        ("items[::-2].metadata.name", json!(["c", "a"])),
        (
            "items[0].metadata.labels.\"app.kubernetes.io/name\"",
            json!("shop"),
        ),
        (
            "items[].{n: metadata.name, r: spec.rules && length(spec.rules)} | [1:]",
            json!([{"n": "b", "r": 1}, {"n": "c", "r": null}]),
        ),
        ("items[].metadata.*[] | length(@)", json!(7)),
        ("items[0].metadata.labels.*", json!(["shop"])),
        (
            "items[2].spec.defaultBackend.port == `9007199254740993`",
            json!(true),
        ),
        (
            "items[2].spec.defaultBackend.port == `9007199254740992`",
            json!(false),
        ),
        (
            "items[2].spec.defaultBackend.port == `9007199254740992.0`",
            json!(false),
        ),
        (
            "items[2].spec.defaultBackend.port",
            json!(9_007_199_254_740_993_u64),
        ),
        ("`1` == `1.0`", json!(true)),
        (
            "`{\"a\": 1, \"b\": [2]}` == {b: [`2.0`], a: `1`}",
            json!(true),
        ),
        ("`[1, 2]` == [`1`, `2`, `3`]", json!(false)),
        ("`{\"a\": 1}` == `{\"a\": 1, \"b\": 2}`", json!(false)),
        ("`{\"a\": 1}` == `{\"b\": 1}`", json!(false)),
        ("sum(`[1, 2]`)", json!(3)),
        ("sum(`[1, 2.5]`)", json!(3.5)),
        ("sum(`[]`)", json!(0)),
        ("avg(`[1, 2]`)", json!(1.5)),
        ("avg(`[1, 3]`)", json!(2)),
        ("avg(`[1.5, 2.5]`)", json!(2.0)),
        ("avg(`[]`)", json!(null)),
        ("ceil(`1.2`)", json!(2)),
        ("abs(`-3`)", json!(3)),
        ("to_number('18446744073709551615')", json!(u64::MAX)),
        ("to_number(' 1')", json!(null)),
        ("to_number('1 ')", json!(null)),
        ("to_number('01')", json!(1)),
        ("to_number('+1')", json!(1)),
        ("to_number('.5')", json!(0.5)),
        ("to_number('5.')", json!(5.0)),
        ("to_number('1_000')", json!(1000)),
        ("to_number('1__0')", json!(null)),
        ("to_number('_1')", json!(null)),
        ("to_number('1_')", json!(null)),
        ("to_number('+_1')", json!(null)),
        ("to_number('0x10')", json!(null)),
        (
            "to_string(`{\"a\": [1, \"é\"]}`)",
            json!("{\"a\":[1,\"é\"]}"),
        ),
        ("length('é✓𝄞')", json!(3)),
        ("reverse('aé𝄞')", json!("𝄞éa")),
        // By code points, where UTF-16 has it the other way round.
        (
            "sort(['𝄞', '\u{ff5e}', 'z'])",
            json!(["z", "\u{ff5e}", "𝄞"]),
        ),
        (
            "sort_by(`[{\"a\": 2}, {\"a\": 1.5}, {\"a\": -1}]`, &a)[].a",
            json!([-1, 1.5, 2]),
        ),
        ("merge({a: `1`, b: `1`}, {b: `2`})", json!({"a": 1, "b": 2})),
        ("{a: `1`, a: `2`}", json!({"a": 2})),
        ("'it\\'s'", json!("it's")),
        ("`\"a\\`b\"`", json!("a`b")),
        ("a.*.b.c", json!(null)),
    ];
    for (text, expected) in table {
        assert_eq!(evaluate(text, &ingresses()), Ok(expected), "{text}");
    }
}

#[test]
fn parameters_are_bound_by_name() {
    let expression = Expression::parse(
        "items[?metadata.namespace == $namespace && contains($hosts, spec.rules[0].host)].metadata.name | {names: @, of: $namespace}",
    )
    .unwrap();
    assert_eq!(
        expression.parameters().collect::<Vec<_>>(),
        ["namespace", "hosts"]
    );

    let mut parameters = BTreeMap::from([("namespace".to_owned(), json!("two"))]);
    let document = ingresses();
    let evaluate = |parameters: &BTreeMap<String, Value>| {
        expression.evaluate_json(
            &document,
            &Environment::standard().with_parameters(parameters),
        )
    };
    let unbound = EvalError::UnboundParameter {
        name: "hosts".into(),
    };
    assert_eq!(evaluate(&parameters), Err(unbound));
    parameters.insert("hosts".into(), json!(["c.example.com"]));
    assert_eq!(
        evaluate(&parameters),
        Ok(json!({"names": ["b"], "of": "two"}))
    );
}

#[test]
fn any_map_binds_parameters() {
    let one = || ("p".to_owned(), json!(7));
    let maps: [Box<dyn Parameters>; 4] = [
        Box::new(BTreeMap::from([one()])),
        Box::new(HashMap::from([one()])),
        Box::new(serde_json::Map::from_iter([one()])),
        Box::new(Arc::new(BTreeMap::from([one()]))),
    ];
    for map in &maps {
        assert_eq!(map.parameter("p"), Some(&json!(7)));
        assert_eq!(map.parameter("q"), None);
    }
}

#[test]
fn a_parameter_is_never_code() {
    let expression = Expression::parse("items[?metadata.name == $name]").unwrap();
    let injected = json!("' || 'a' == 'a");
    let parameters = [("name", &injected)];
    let environment = Environment::standard().with_parameters(&parameters);
    assert_eq!(
        expression.evaluate_json(&ingresses(), &environment),
        Ok(json!([]))
    );
}

#[test]
fn errors_state_their_problem_and_position() {
    let table = [
        (
            "foo.]",
            "syntax error at byte 4: expected a name, '*', '[' or '{' after '.', found ']'\n  foo.]\n      ^",
        ),
        (
            "a = b",
            "syntax error at byte 2: '=' is not an operator; equality is '=='\n  a = b\n    ^",
        ),
        (
            "a[b]",
            "syntax error at byte 2: expected an index, a slice or '*' after '['\n  a[b]\n    ^",
        ),
        (
            "\"f\"(a)",
            "syntax error at byte 3: the name of a function is never quoted\n  \"f\"(a)\n     ^",
        ),
        (
            "f(a,",
            "syntax error at byte 4: expected an expression, found the end of the expression\n  f(a,\n      ^",
        ),
        (
            "",
            "syntax error at byte 0: expected an expression, found the end of the expression\n  \n  ^",
        ),
        (
            "a[::0]",
            "invalid value at byte 4: the step of a slice can not be 0\n  a[::0]\n      ^",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(
            format!("{:#}", Expression::parse(text).unwrap_err()),
            expected
        );
    }
    let table = [
        (
            "length(`1`)",
            "length(): argument 1 is a number, expected a string or an array or an object",
        ),
        (
            "join(',', [`1`])",
            "join(): argument 2 is an array, expected an array of strings",
        ),
        (
            "sort_by(items, &metadata)",
            "sort_by(): a value of the expression is an object, expected a number or a string",
        ),
        (
            "sort(&a)",
            "sort(): argument 1 is an expression, expected an array of numbers or an array of strings",
        ),
        ("abs(`1`, `2`)", "abs() takes 1 argument, and was given 2"),
        ("nope(@)", "there is no function nope()"),
    ];
    for (text, expected) in table {
        assert_eq!(
            evaluate(text, &ingresses()).unwrap_err().to_string(),
            expected
        );
    }
}

#[test]
fn calls_are_checked_ahead_of_evaluation() {
    let check = |text| {
        Expression::parse(text)
            .unwrap()
            .check(&FunctionTable::standard())
    };
    assert_eq!(check("a || length(b)"), Ok(()));
    let unknown = EvalError::UnknownFunction {
        function: "nope".into(),
    };
    assert_eq!(check("a || nope(b)"), Err(unknown));
    assert!(matches!(
        check("[?length(a, b)]"),
        Err(EvalError::InvalidArity { .. })
    ));
    // Evaluation sees only what it reaches.
    assert_eq!(
        evaluate("items && `1` || nope(b)", &ingresses()),
        Ok(json!(1))
    );
}

#[test]
fn functions_are_added_without_the_evaluator() {
    let mut functions = FunctionTable::standard();
    functions
        .register(
            "items",
            Signature::of([Types::OBJECT, Types::STRING, Types::STRING]),
            |call| {
                let (key_name, value_name) = (call.argument(1), call.argument(2));
                let mut items = Vec::new();
                for (key, value) in call.entries(call.argument(0))? {
                    items.push(call.new_object(&[(key_name, key), (value_name, value)])?);
                }
                call.new_array(&items)
            },
        )
        .register("parse_json", Signature::of([Types::STRING]), |call| {
            let parsed = serde_json::from_str(call.string(call.argument(0))?)
                .map_err(|error| call.invalid_value(format!("not JSON: {error}")))?;
            call.new_json(&parsed)
        })
        .register(
            "twice",
            Signature::of([Types::EXPRESSION]).with_optional([Types::ANY]),
            |call| {
                let expression = call.reference(0)?;
                let once = call.apply(expression, call.argument(1))?;
                call.apply(expression, once)
            },
        );
    let environment = Environment::standard().with_functions(&functions);
    let evaluate = |text| {
        Expression::parse(text)
            .unwrap()
            .evaluate_json(&ingresses(), &environment)
    };
    assert_eq!(
        evaluate("items(items[0].metadata.labels, 'k', 'v')"),
        Ok(json!([{"k": "app.kubernetes.io/name", "v": "shop"}])),
    );
    assert_eq!(
        evaluate("parse_json('{\"a\": [1.5, null]}').a"),
        Ok(json!([1.5, null]))
    );
    assert_eq!(
        evaluate("parse_json('{')").unwrap_err().to_string(),
        "parse_json(): not JSON: EOF while parsing an object at line 1 column 1",
    );
    assert_eq!(evaluate("twice(&[@], `1`)"), Ok(json!([[1]])));
    assert_eq!(evaluate("twice(&type(@))"), Ok(json!("string")));
}

#[test]
fn the_syntax_tree_of_an_expression_is_readable() {
    let expression =
        Expression::parse(" items[?metadata.name==$name] .spec.rules[].host ").unwrap();
    let ast = expression.ast();
    let Expr::Project { left, right } = ast.expr(ast.root()) else {
        panic!("{:?}", ast.expr(ast.root()))
    };
    assert_eq!(*ast.expr(*right), Expr::Field("host".into()));
    let Expr::Flatten(flattened) = ast.expr(*left) else {
        panic!("{:?}", ast.expr(*left))
    };
    let Expr::Filter {
        left,
        condition,
        right,
    } = ast.expr(*flattened)
    else {
        panic!("{:?}", ast.expr(*flattened))
    };
    assert_eq!(*ast.expr(*left), Expr::Field("items".into()));
    assert_eq!(
        &expression.as_str()[ast.span_bytes(*condition)],
        "metadata.name==$name"
    );
    assert_eq!(&expression.as_str()[ast.span_bytes(*right)], "spec.rules");
    let Expr::Path(steps) = ast.expr(*right) else {
        panic!("{:?}", ast.expr(*right))
    };
    assert_eq!(steps.len(), 2);

    let call = Expression::parse("sort_by(@, &a.b)").unwrap();
    let Expr::Call {
        function,
        arguments,
    } = call.ast().expr(call.ast().root())
    else {
        panic!()
    };
    assert_eq!(call.ast().function_name(*function), "sort_by");
    let functions: Vec<&str> = call.ast().functions().iter().map(|name| &**name).collect();
    assert_eq!(functions, ["sort_by"]);
    assert!(matches!(
        arguments[..],
        [Argument::Value(_), Argument::Reference(_)]
    ));
}

#[test]
fn white_space_does_not_matter() {
    let parse = |text| Expression::parse(text).unwrap();
    assert_eq!(
        parse("a.b[0]|length( @ )"),
        parse(" a .\tb [ 0 ]\n| length (@)\r")
    );
    assert_eq!(parse("(a.b).c"), parse("a.b.c"));
    assert_ne!(parse("a.b.c"), parse("a.c.b"));
}

#[test]
fn an_expression_is_shared_between_threads() {
    fn shareable<T: Send + Sync + Clone>() {}
    shareable::<Expression>();
    shareable::<FunctionTable>();
}

#[test]
fn only_a_function_that_is_registered_as_nondeterministic_is_given_a_seed() {
    let mut functions = FunctionTable::standard();
    functions
        .register("flagged", Signature::of([]).nondeterministic(), |call| {
            let now_ns = i64::try_from(call.now_ns()?).unwrap();
            call.new_json(&json!(now_ns))
        })
        .register("forgotten", Signature::of([]), |call| {
            let drawn = call.draw()?;
            call.new_json(&json!(drawn))
        });
    let seed = EvalSeed::new(7, 1);
    let environment = Environment::standard()
        .with_functions(&functions)
        .with_seed(Some(&seed));
    let evaluate = |text| {
        Expression::parse(text)
            .unwrap()
            .evaluate_json(&json!({}), &environment)
    };
    assert_eq!(evaluate("flagged()"), Ok(json!(7)));
    let error = evaluate("forgotten()").unwrap_err().to_string();
    assert!(
        error.contains("not registered as nondeterministic"),
        "{error}"
    );
}
