//! Policies and objects that nobody meant: whatever is compiled and evaluated, nothing panics, nothing goes
//! on for ever, and what a rule makes of an object is not much larger than what it was given.
//!
//! Policies that use all of the language are changed at random (parts replaced by hostile values, moved,
//! doubled, nested, keys turned into anchors), and so are objects. `PROPTEST_CASES` says how many are tried.
#![allow(clippy::unwrap_used, reason = "nothing here comes from outside")]
#![allow(clippy::print_stdout, reason = "a test says what it has seen")]

mod change;
mod seeds;

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anteroom_model::FactError;
use anteroom_policy::{
    AdmissionRequest, Driver, Evaluation, FactRequest, Policy, PolicyException, Rule, RuleOutcome,
    RuleStep, compile_for,
};
use change::Tape;
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

/// Steps of one evaluation: facts and parts have limits of their own, far below.
const STEPS_MAX: usize = 1_000;

/// The factor by which a rule may make an object larger than object and policy together: a patch for each of the
/// elements that a `foreach` goes through.
const GROWTH_MAX: usize = 1_000;

/// Counts of what was seen; a run that saw little says little.
#[derive(Debug, Default)]
struct Seen {
    compiled: Cell<usize>,
    refused: Cell<usize>,
    failed: Cell<usize>,
    passed: Cell<usize>,
    mutated: Cell<usize>,
    errors: Cell<usize>,
    slowest: Cell<Duration>,
}

fn count(cell: &Cell<usize>) {
    cell.set(cell.get() + 1);
}

/// Facts of any shape, and such as cannot be had.
fn fact(need: &FactRequest, tape: &mut Tape<'_>) -> Option<Result<Value, FactError>> {
    match tape.below(6) {
        0 if need.is_pushed_down => None,
        0 | 1 => Some(Err(FactError::EvaluationFailed {
            message: "{{ hostile }} `x` \" ' \\".to_owned(),
        })),
        2 => Some(Ok(change::hostile(tape))),
        _ => Some(Ok(json!({
            "items": [{"spec": {"host": "a", "x": tape.below(9)}}, {}],
            "data": {"key": "[\"a\"]"}, "configData": {"config": {"User": "0"}},
        }))),
    }
}

fn evaluate(
    policy: &Policy,
    rule: &Rule,
    request: &AdmissionRequest,
    tape: &mut Tape<'_>,
) -> RuleOutcome {
    let mut evaluation = Evaluation::start(policy, rule, request);
    for _ in 0..STEPS_MAX {
        let needs = match evaluation.step() {
            RuleStep::Done(report) => return report.outcome,
            RuleStep::Need(needs) => needs,
        };
        assert!(!needs.is_empty());
        for need in needs {
            match fact(&need, tape) {
                Some(answer) => evaluation.supply(need.id, answer),
                None => evaluation.decline(need.id),
            }
        }
    }
    panic!("it goes on");
}

fn bytes(value: &Value) -> usize {
    value.to_string().len()
}

fn try_one(tape: &[u32], seen: &Seen) {
    let tape = &mut Tape::new(tape);
    let all = seeds::policies();
    let mut manifest = tape.pick(&all).clone();
    for _ in 0..tape.below(6) {
        change::once(&mut manifest, &all, tape);
    }
    let objects = seeds::objects();
    let mut object = tape.pick(&objects).clone();
    for _ in 0..tape.below(5) {
        change::once(&mut object, &objects, tape);
    }
    let request = change::request(object, tape);
    let Ok(request) = AdmissionRequest::new(request) else {
        return; // An API server sends no such thing: refused as a whole.
    };
    if tape.below(4) == 0 {
        let mut exception = seeds::exception();
        change::once(&mut exception, &all, tape);
        let _ = PolicyException::compile(&exception, Driver::ALL);
    }
    let policy = match compile_for(&manifest, Driver::ALL) {
        Ok(policy) => policy,
        Err(problems) => {
            assert!(!problems.is_empty());
            return count(&seen.refused);
        }
    };
    count(&seen.compiled);
    for rule in policy.rules() {
        match evaluate(&policy, rule, &request, tape) {
            RuleOutcome::Pass => count(&seen.passed),
            RuleOutcome::Fail { .. } => count(&seen.failed),
            RuleOutcome::Error(error) => {
                let _ = (error.code(), error.to_string());
                count(&seen.errors);
            }
            RuleOutcome::Mutated { object } => {
                let given = bytes(&manifest) + bytes(&request.value());
                assert!(bytes(&object) <= given * GROWTH_MAX, "{manifest}");
                count(&seen.mutated);
            }
            _ => {}
        }
    }
}

#[test]
fn hostile_policies_and_requests_end_without_a_panic() {
    let seen = Seen::default();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(Config::default().cases.max(4_000))
    });
    let tapes = prop::collection::vec(any::<u32>(), 0..200);
    let result = runner.run(&tapes, |tape| {
        let begun = Instant::now();
        try_one(&tape, &seen);
        seen.slowest.set(seen.slowest.get().max(begun.elapsed()));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    println!("{seen:?}");
    let least = [
        (&seen.compiled, 500),
        (&seen.refused, 300),
        (&seen.failed, 50),
        (&seen.passed, 50),
        (&seen.mutated, 20),
        (&seen.errors, 50),
    ];
    assert!(
        least.iter().all(|(cell, least)| cell.get() >= *least),
        "{seen:?}"
    );
}

#[test]
fn every_seed_compiles() {
    for manifest in seeds::policies() {
        let outcome = compile_for(&manifest, Driver::ALL);
        assert!(outcome.is_ok(), "{outcome:#?} of {manifest:#}");
    }
    assert!(PolicyException::compile(&seeds::exception(), Driver::ALL).is_ok());
}
