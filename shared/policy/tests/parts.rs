//! The property on which subqueries rest: with them a rule comes to what it comes to over the
//! facts themselves, errors included, whatever the rule, the facts and the request.
#![allow(clippy::unwrap_used)]

mod random;

use std::cell::Cell;

use anteroom_policy::{
    AdmissionRequest, Evaluation, FactRequest, Policy, RuleError, RuleOutcome, RuleStep, compile,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use random::{Case, World, case};
use serde_json::json;

/// The way in which a driver deals with parts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parts {
    /// The facts are asked for instead.
    Never,
    Declined,
    Some,
    All,
}

/// Takes the rule through the request. Says how many parts were answered, too, and how many facts that
/// were cut to what is read.
fn outcome(policy: &Policy, case: &Case, parts: Parts) -> (RuleOutcome, usize, usize) {
    let request = AdmissionRequest::new(case.request.clone()).unwrap();
    let mut evaluation = Evaluation::start(policy, &policy.rules()[0], &request);
    if parts == Parts::Never {
        evaluation = evaluation.with_whole_facts();
    }
    let (mut answered, mut cut) = (0, 0);
    for _ in 0..1_000 {
        let needs = match evaluation.step() {
            RuleStep::Done(report) => return (report.outcome, answered, cut),
            RuleStep::Need(needs) => needs,
        };
        assert!(!needs.is_empty());
        for need in needs {
            assert!(parts != Parts::Never || !need.is_pushed_down);
            match answer(&case.world, &need, parts) {
                Some(answer) => {
                    answered += usize::from(need.is_pushed_down);
                    cut += usize::from(need.expression.contains("keep_only"));
                    evaluation.supply(need.id, answer);
                }
                None => evaluation.decline(need.id),
            }
        }
    }
    panic!("it goes on");
}

fn answer(
    world: &World,
    need: &FactRequest,
    parts: Parts,
) -> Option<Result<serde_json::Value, anteroom_model::FactError>> {
    let declined = match parts {
        Parts::Never | Parts::All => false,
        Parts::Declined => true,
        Parts::Some => need.id.is_multiple_of(2),
    };
    match need.is_pushed_down && declined {
        true => None,
        false => world.answer(need),
    }
}

fn lines(policy: &Policy) -> Vec<String> {
    let line = |read: &anteroom_policy::ExplainedRead| {
        let (usage, field) = (read.usage, &read.field);
        format!("{field} `{}` {usage:?} `{}`", read.written, read.expression)
    };
    policy.rules()[0].reads().iter().map(line).collect()
}

/// Returns whether the rule was over its budget: the only outcome that may be better by parts.
fn is_over_budget(outcome: &RuleOutcome) -> bool {
    matches!(outcome, RuleOutcome::Error(error) if error.code() == anteroom_model::ErrorCode::BUDGET_EXCEEDED)
}

#[test]
fn a_rule_has_the_same_outcome_by_parts_and_by_whole_facts() {
    let (cases, by_parts, failed, errors) =
        (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let (cuts, failed_by_cuts) = (Cell::new(0), Cell::new(0));
    let count = |cell: &Cell<usize>| cell.set(cell.get() + 1);
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(Config::default().cases.max(4_000))
    });
    let result = runner.run(&case(), |case| {
        let Ok(policy) = compile(&case.policy) else {
            return Ok(()); // Not every text that is put together is an expression.
        };
        count(&cases);
        let (whole, _, _) = outcome(&policy, &case, Parts::Never);
        if is_over_budget(&whole) {
            return Ok(());
        }
        for parts in [Parts::Declined, Parts::Some, Parts::All] {
            let (found, answered, cut) = outcome(&policy, &case, parts);
            prop_assert_eq!(&found, &whole, "{:?} of {:#?}", parts, lines(&policy));
            if parts == Parts::All && answered > 0 {
                count(&by_parts);
                if cut > 0 {
                    count(&cuts);
                    if matches!(found, RuleOutcome::Fail { .. }) {
                        count(&failed_by_cuts);
                    }
                }
                match found {
                    RuleOutcome::Fail { .. } => count(&failed),
                    RuleOutcome::Error(RuleError::Fact { .. } | RuleError::Variable { .. }) => {
                        count(&errors);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    // Otherwise it says nothing.
    let seen = [&cases, &by_parts, &failed, &errors, &cuts, &failed_by_cuts].map(Cell::get);
    println!("{seen:?}");
    assert!(
        seen.iter()
            .zip([1_000, 300, 30, 50, 100, 20])
            .all(|(seen, least)| *seen >= least),
        "{seen:?}"
    );
}

/// A `||` stands in for a key that is not there, and not for a variable that comes to nothing.
#[test]
fn a_variable_without_a_value_is_an_error_by_parts_too() {
    for (variable, is_error) in [
        ("request.object.nope", true),
        ("request.object.name", false),
    ] {
        let case = Case {
            policy: json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
                "spec": {"rules": [{
                    "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]},
                    "context": [
                        {"name": "facts", "cachedContextEntry": {"name": "facts"}},
                        {"name": "v", "variable": {"jmesPath": variable}},
                    ],
                    "validate": {"deny": {"conditions": {"any": [{
                        "key": "{{ contains(facts.items[].host, v || 'x') }}",
                        "operator": "Equals", "value": true,
                    }]}}},
                }]},
            }),
            request: json!({
                "uid": "u", "operation": "CREATE", "name": "n", "namespace": "ns",
                "kind": {"group": "", "version": "v1", "kind": "Thing"},
                "object": {"name": "n"}, "oldObject": null,
            }),
            world: World::of(json!({"items": [{"host": "a"}]})),
        };
        let policy = compile(&case.policy).unwrap();
        let (whole, ..) = outcome(&policy, &case, Parts::Never);
        let (found, answered, _) = outcome(&policy, &case, Parts::All);
        assert_eq!(found, whole, "{variable}");
        assert!(answered > 0, "{variable}");
        assert_eq!(
            matches!(found, RuleOutcome::Error(_)),
            is_error,
            "{variable}: {found:?}"
        );
    }
}
