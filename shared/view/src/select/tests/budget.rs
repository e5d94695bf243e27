//! The steps that an evaluation pays for a selection, beside its own.

use anteroom_jmespath::Budget;
use serde_json::Map;

use super::*;

#[test]
fn finding_the_objects_is_paid_from_the_budget() {
    let names: Vec<_> = (0..200).map(|n| n.to_string()).collect();
    let keys: Vec<_> = names.iter().map(|name| ("a", name.as_str())).collect();
    let view = configmaps(&keys);
    let labelled = Selection {
        label_selector: "of=nobody".into(),
        ..list()
    };
    let select = Select::new(&labelled).unwrap();
    let selected = select.apply(view.read(0, 0).unwrap()).unwrap();
    let expression = Expression::parse("length(items)").unwrap();
    let within = |steps| {
        let mut environment = Environment::default();
        environment.budget.steps = steps;
        selected.evaluate(&expression, &environment)
    };
    assert!(within(250).is_ok());
    let error = within(200).unwrap_err();
    assert!(matches!(error, FactError::BudgetExceeded { .. }), "{error}");
}

/// In a body, a value is found by skipping those before it.
#[test]
fn values_that_are_skipped_are_paid_from_the_budget() {
    const KEYS: u64 = 10_000;
    let data: Map<_, _> = (0..KEYS).map(|n| (format!("k{n:05}"), json!(""))).collect();
    let numbers: Vec<_> = (0..KEYS).collect();
    let object = json!({"data": data, "numbers": numbers, "pairs": [numbers, 0]});
    let source = Source::Collection(Collection::all(gvr("", "configmaps")));
    let view = view_of(source, "ConfigMap", &[("a", "b", object)]);
    let select = Select::new(&list()).unwrap();
    let selected = select.apply(view.read(0, 0).unwrap()).unwrap();
    for expression in [
        "items[0].data.none",
        "items[0].data.k09999",
        "items[0].numbers[-1]",
        "items[0].pairs[1]",
        "items[0].none",
        "items[0].pairs[*].none",
    ] {
        let parsed = Expression::parse(expression).unwrap();
        let mut left = Budget::default();
        selected
            .evaluate_out_of(&parsed, &Environment::default(), &mut left)
            .unwrap();
        let steps = Budget::default().steps - left.steps;
        // What the last subexpression skips is charged to the next one.
        let twice = Expression::parse(&format!("[{expression}, {expression}, @]")).unwrap();
        let mut left = Budget::default();
        selected
            .evaluate_out_of(&twice, &Environment::default(), &mut left)
            .unwrap();
        let steps_twice = Budget::default().steps - left.steps;
        assert!(
            steps_twice >= 2 * KEYS / 16 && steps_twice >= 2 * steps,
            "{expression}: {steps_twice}, {steps}"
        );
    }
}
