//! Functions see their arguments through a call, and are charged by it.

use anteroom_jmespath::{
    Budget, BudgetKind, Environment, EvalError, Expression, FunctionTable, Number, Signature,
    Types, count_skipped,
};
use serde_json::{Value, json};

const ANY: Types = Types::ANY;

#[test]
fn a_function_sees_values_through_its_call() {
    let mut functions = FunctionTable::empty();
    functions
        .register("pick", Signature::of([ANY, Types::STRING]), |call| {
            let name = call.string(call.argument(1))?.to_owned();
            match call.field(call.argument(0), &name) {
                Some(found) => Ok(found),
                None => call.new_string("none"),
            }
        })
        .register("same", Signature::of([ANY, ANY]), |call| {
            let same = call.equal(call.argument(0), call.argument(1))?;
            call.new_boolean(same)
        })
        .register("copied", Signature::of([ANY]), |call| {
            let json = call.to_json(call.argument(0))?;
            call.new_json(&json)
        })
        .register(
            "second",
            Signature::of([ANY]).with_optional([ANY]),
            |call| {
                call.new_string("lies where a second argument would")?;
                Ok(call.argument(1))
            },
        );
    let environment = Environment::standard().with_functions(&functions);
    let document = json!({"a": {"b": 1}, "c": null});
    for (text, expected) in [
        ("pick(@, 'a')", json!({"b": 1})),
        ("pick(@, 'c')", json!(null)),
        ("pick(a, 'c')", json!("none")),
        ("pick('a', 'a')", json!("none")),
        ("same(a, {b: `1.0`})", json!(true)),
        ("same(a, c)", json!(false)),
        ("copied(@)", document.clone()),
        ("second(a, 'x')", json!("x")),
        ("second(a)", json!(null)),
    ] {
        let value = Expression::parse(text)
            .unwrap()
            .evaluate_json(&document, &environment);
        assert_eq!(value, Ok(expected), "{text}");
    }
}

/// `hold(bytes, &expression)` holds a document of so many bytes, evaluates the expression, and returns the bytes of a
/// document that there still may be.
fn hold() -> FunctionTable {
    let mut functions = FunctionTable::empty();
    let signature = Signature::of([Types::NUMBER]).with_optional([Types::EXPRESSION]);
    functions.register("hold", signature, |call| {
        let bytes = call.number(call.argument(0))?.integer().unwrap();
        call.charge_json(u64::try_from(bytes).unwrap())?;
        if call.arguments().len() > 1 {
            let expression = call.reference(1)?;
            call.apply(expression, call.argument(0))?;
        }
        let left = call.json_bytes_max();
        call.new_number(Number::U64(left))
    });
    functions
}

#[test]
fn the_documents_that_calls_hold_share_one_limit_until_the_calls_return() {
    let functions = hold();
    let environment = Environment::standard().with_functions(&functions);
    let document = json!(1);
    let ended = |text: &str, steps: u64, json_bytes: u64| -> (Result<Value, EvalError>, u64) {
        let expression = Expression::parse(text).unwrap();
        let mut left = Budget {
            steps,
            json_bytes,
            ..Budget::default()
        };
        let value = expression.evaluate_out_of(&document, &environment, &mut left);
        let value = value.and_then(|value| value.to_json_within(1_000));
        (value, left.steps)
    };
    let over = |which, limit| Err(EvalError::Budget { which, limit });
    for (text, expected) in [
        ("hold(`400`)", Ok(json!(600))),
        ("hold(`1000`)", Ok(json!(0))),
        ("hold(`1001`)", over(BudgetKind::BuiltBytes, 1_000)),
        ("hold(`600`, &hold(`100`))", Ok(json!(400))),
        (
            "hold(`600`, &hold(`401`))",
            over(BudgetKind::BuiltBytes, 1_000),
        ),
        ("[hold(`600`), hold(`600`)]", Ok(json!([400, 400]))),
    ] {
        let (value, _) = ended(text, 10_000, 1_000);
        assert_eq!(value, expected, "{text}");
    }

    // A document takes a step for each 64 bytes, and a refused document costs the steps of the largest possible one.
    let made = |steps| ended("hold(`64000`)", steps, 64_000);
    assert_eq!(made(2_000), (Ok(json!(0)), 2_000 - 2 - 1_000));
    assert_eq!(made(500), (over(BudgetKind::Steps, 500), 0));
    let refused = ended("hold(`64001`)", 2_000, 64_000);
    let over = over(BudgetKind::BuiltBytes, 64_000);
    assert_eq!(refused, (over, 2_000 - 2 - 1_000));
}

#[test]
fn a_function_knows_the_steps_that_are_left() {
    let mut functions = FunctionTable::empty();
    functions.register("left", Signature::of([]), |call| {
        let left = call.steps_left();
        call.new_number(Number::U64(left))
    });
    let environment = Environment::standard()
        .with_functions(&functions)
        .with_budget(Budget {
            steps: 100,
            ..Budget::default()
        });
    let expression = Expression::parse("left()").unwrap();
    let left = expression.evaluate_json(&json!(1), &environment);
    assert_eq!(left, Ok(json!(99)));
}

/// A document that is read in place skips values to get at others, which takes time that no expression shows.
#[test]
fn values_that_are_skipped_are_charged_with_the_next_step() {
    let mut functions = FunctionTable::empty();
    functions.register("skip", Signature::of([]), |call| {
        count_skipped(16_000);
        call.new_null()
    });
    let expression = Expression::parse("[skip(), @]").unwrap();
    let evaluate = |steps| {
        let environment = Environment::standard()
            .with_functions(&functions)
            .with_budget(Budget {
                steps,
                ..Budget::default()
            });
        expression.evaluate_json(&json!(1), &environment)
    };
    assert_eq!(evaluate(2_000), Ok(json!([null, 1])));
    let over = EvalError::Budget {
        which: BudgetKind::Steps,
        limit: 1_000,
    };
    assert_eq!(evaluate(1_000), Err(over));
}
