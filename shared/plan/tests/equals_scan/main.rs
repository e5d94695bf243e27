//! The property that everything rests on: over the objects that indexes find, an expression's value is what it is
//! over all objects, errors included, whatever the expression, the objects and their changes.
#![allow(clippy::unwrap_used)]

mod counts;
mod grammar;
mod nulls;
mod question;
mod table;
mod world;

use std::collections::HashMap;

use anteroom_jmespath::Expression;
use anteroom_plan::{Document, Index, IndexKey, LookupOptions, narrow};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use grammar::{question, step, tidy_step};
use world::World;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn indexes_find_every_object_that_matters(
        steps in prop_oneof![
            prop::collection::vec(step(), 0..40),
            prop::collection::vec(tidy_step(), 0..40),
        ],
        questions in prop::collection::vec((question(), any::<prop::sample::Index>()), 1..12),
        built_in in any::<bool>(),
    ) {
        let mut world = World::new(if built_in { "apps" } else { "example.com" });
        steps.into_iter().for_each(|step| world.step(step));
        let mut indexes = HashMap::new();
        for (question, at) in &questions {
            let Ok(expression) = Expression::parse(&question.expression) else {
                panic!("{}", question.expression);
            };
            // Any state and then the last one, so that indexes are brought up and back.
            for state in [at.get(&world.states), world.states.last().unwrap()] {
                if let Some(found) = question.looked_up(&expression, state, &mut indexes) {
                    prop_assert_eq!(found.value, question.scanned(&expression, state), "{:?}", question);
                }
            }
        }
    }
}

/// The property would hold of an empty crate: many of the questions are really looked up, and objects
/// are left out that do not all say nothing.
#[test]
fn many_generated_questions_are_really_looked_up() {
    let mut runner = TestRunner::deterministic();
    let mut world = World::new("apps");
    for _ in 0..40 {
        world.step(step().new_tree(&mut runner).unwrap().current());
    }
    let state = world.states.last().unwrap();
    let mut indexes = HashMap::new();
    let (mut looked_up, mut left_out, mut values, mut errors) = (0, 0, 0, 0);
    for _ in 0..2_000 {
        let question = question().new_tree(&mut runner).unwrap().current();
        let expression = Expression::parse(&question.expression).unwrap();
        let Some(found) = question.looked_up(&expression, state, &mut indexes) else {
            continue;
        };
        looked_up += 1;
        left_out += usize::from(found.objects < state.read().len());
        let is_none = |value: u8| [0x90, 0xc0, 0xc2, 0x00].contains(&value);
        errors += usize::from(found.value.is_err());
        values += usize::from(found.value.is_ok_and(|value| !is_none(value[0])));
    }
    println!(
        "{looked_up} looked up, {left_out} with objects left out, {values} with a value, {errors} failed"
    );
    assert!(looked_up > 600, "{looked_up} of 2,000");
    assert!(left_out > looked_up / 2, "{left_out} of {looked_up}");
    assert!(values > looked_up / 8, "{values} of {looked_up}");
}

/// A lookup keeps to its limits, to the last object and value.
#[test]
fn a_lookup_keeps_to_its_limits_of_objects_and_steps() {
    let mut world = World::new("apps");
    for name in 0..8 {
        let object = Some(serde_json::json!({"a": "x", "b": format!("p{name}*")}));
        world.step(world::Step {
            key: (0, name),
            object,
        });
    }
    let state = world.states.last().unwrap();
    let found = |text: &str, objects_max: usize, steps_max: usize| {
        let expression = Expression::parse(text).unwrap();
        let found = narrow(&expression, Document::List { plural: None }).unwrap();
        let probe = found.probes()[0];
        let index = Index::new(
            IndexKey::of(probe, true, false),
            question::language(),
            state,
        );
        let options = LookupOptions {
            objects_max,
            steps_max,
            admits: &|_| true,
            parameters: &(),
        };
        index.gather(probe, options).map(|found| found.len())
    };
    assert_eq!(found("items[?a == 'x']", 8, 0), Some(8));
    assert_eq!(found("items[?a == 'x']", 7, 0), None);
    // Eight patterns are held against the key, and one object is taken for all.
    assert_eq!(found("any_in('p7.x', items[].b)", 1, 9), Some(1));
    assert_eq!(found("any_in('p7.x', items[].b)", 0, 9), None);
    assert_eq!(found("any_in('q', items[].b)", 0, 8), Some(0));
    assert_eq!(found("any_in('q', items[].b)", 0, 7), None);
    // What begins as a key does is put in order once; then only that is held against it, and what is no
    // text.
    let begins = |text: &str, steps: &[usize]| {
        let expression = Expression::parse(text).unwrap();
        let found = narrow(&expression, Document::List { plural: None }).unwrap();
        let key = IndexKey::of(found.probes()[0], true, false);
        let index = Index::new(key, question::language(), state);
        let found = steps.iter().map(|steps_max| {
            let options = LookupOptions {
                objects_max: 8,
                steps_max: *steps_max,
                admits: &|_| true,
                parameters: &(),
            };
            let found = index.gather(found.probes()[0], options);
            found.map(|found| found.len())
        });
        found.collect::<Vec<_>>()
    };
    let name = "any_in('n1*', items[].metadata.name)";
    assert_eq!(begins(name, &[7, 9, 2, 1]), [None, None, Some(1), None]);
    assert_eq!(begins("any_in('?1', items[].metadata.name)", &[0]), [None]);
    // What is asked for is no list.
    assert_eq!(found("items[?contains('xy', a)]", 8, 8), None);
}
