//! Facts that are not there yet, in what only Kyverno's dialect has.

use std::cell::RefCell;

use serde_json::{Value, json};

use super::names;
use crate::{
    Budget, EvalError, Fact, FactScope, Host, JsonPatchOperation, Machine, Program, Roots, Site,
};

/// Knows the entries of these names, and notes the others.
struct Entries<'v> {
    known: &'v [(&'v str, Value)],
    asked: RefCell<Vec<String>>,
}

impl<'v> Host<'v> for Entries<'v> {
    fn read(&self, site: &'v Site, _: Vec<Value>, _: bool) -> Fact<'v> {
        let name = site.name();
        let known = self.known.iter();
        match known.into_iter().find(|(known, _)| name.contains(known)) {
            Some((_, value)) => Fact::Value(value),
            None => {
                self.asked.borrow_mut().push(name.to_owned());
                Fact::Unknown
            }
        }
    }
}

fn evaluated(source: &str, known: &[(&str, Value)]) -> (Result<Value, EvalError>, usize) {
    let names = names().with_facts(FactScope::Cluster);
    let program = Program::compile(source, &names).unwrap();
    let host = Entries {
        known,
        asked: RefCell::default(),
    };
    let result = {
        let machine = Machine::new(Roots::default(), &[], Budget::default());
        let mut machine = machine.with_host(&host);
        match program.can_be_patches() && source.starts_with("[JSONPatch") {
            true => machine.patches(&program).map(|patches| {
                let all = patches.iter().map(JsonPatchOperation::to_json);
                Value::Array(all.collect())
            }),
            false => machine.json(&program),
        }
    };
    (result, host.asked.into_inner().len())
}

#[test]
fn a_value_with_an_unknown_part_is_unknown_and_all_parts_are_asked_for() {
    for (source, asked) in [
        (
            "Object{a: globalContext.get('a'), b: globalContext.get('b')}",
            2,
        ),
        (
            "[JSONPatch{op: 'add', path: globalContext.get('a'), value: globalContext.get('b')}]",
            2,
        ),
        ("cel.bind(x, globalContext.get('a'), [x, x, 1])", 1),
        ("globalContext.get('a').orValue(1)", 1),
        // An error behind something unknown may never be reached, and another value may decide.
        ("[globalContext.get('a'), 1 / 0]", 1),
        ("globalContext.get('a') + 1 / 0", 1),
        ("globalContext.get('a') && true", 1),
        ("globalContext.get('a') || 1 / 0 == 1", 1),
        ("false || globalContext.get('a')", 1),
        (
            "optional.of(globalContext.get('a')).or(optional.of(globalContext.get('b'))).value()",
            2,
        ),
        (
            "optional.none().or(optional.of(globalContext.get('b'))).value()",
            1,
        ),
        (
            "json.marshal([globalContext.get('a'), globalContext.get('b')])",
            2,
        ),
    ] {
        assert_eq!(
            evaluated(source, &[]),
            (Err(EvalError::Unknown), asked),
            "{source}"
        );
    }
}

#[test]
fn a_bound_fact_that_does_not_matter_is_not_asked_for() {
    for (source, expected) in [
        (
            "cel.bind(x, globalContext.get('a'), true || x)",
            json!(true),
        ),
        ("cel.bind(x, globalContext.get('a'), 1)", json!(1)),
        (
            "optional.of(1).or(optional.of(globalContext.get('a'))).value()",
            json!(1),
        ),
    ] {
        assert_eq!(evaluated(source, &[]), (Ok(expected), 0), "{source}");
    }
    let known = [("\"a\"", json!({"n": 2})), ("\"b\"", json!("/b"))];
    for (source, expected) in [
        (
            "cel.bind(x, globalContext.get('a'), Object{a: x.n, b: x})",
            json!({"a": 2, "b": {"n": 2}}),
        ),
        (
            "[JSONPatch{op: 'add', path: globalContext.get('b'), value: globalContext.get('a').orValue(1)}]",
            json!([{"op": "add", "path": "/b", "value": {"n": 2}}]),
        ),
    ] {
        assert_eq!(evaluated(source, &known), (Ok(expected), 0), "{source}");
    }
}
