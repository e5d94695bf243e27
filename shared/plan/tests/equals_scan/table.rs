//! Questions that an index answers wrongly if a step on the way to it is wrong, over objects that change.

use std::collections::{BTreeMap, HashMap};

use anteroom_jmespath::Expression;
use anteroom_model::Shape;
use anteroom_view::Snapshot;
use anteroom_wire::query::Selection;
use serde_json::{Value, json};

use crate::{
    question::Question,
    world::{Step, World},
};

const OBJECTS: u8 = 24;

/// Every object has the host `all`, and so many objects are not looked at unchecked. Only the rule of the last object
/// with this host is `here`.
fn object(n: u8) -> Value {
    let is_last = n == OBJECTS - 1;
    json!({
        "metadata": {"labels": {"k": "x", "l": format!("v{}", n % 4)}},
        "a": "x",
        "c": if is_last { "yes" } else { "no" },
        "n": n,
        "f": f64::from(n) + 0.5,
        "list": [format!("l{n}"), "all"],
        "selector": {"k": format!("v{}", n % 3)},
        "spec": {"rules": [
            {"host": format!("h{n}"), "to": "here", "paths": [{"path": format!("/{n}")}]},
            {"host": "all", "to": if is_last { "here" } else { "there" }, "paths": []},
        ]},
    })
}

type Put = (u8, Option<Value>);

/// The object with another value at a place.
fn with(n: u8, place: &str, value: Value) -> Put {
    let mut object = object(n);
    *object.pointer_mut(place).unwrap() = value;
    (n, Some(object))
}

fn without(n: u8, field: &str) -> Put {
    let mut object = object(n);
    object.as_object_mut().unwrap().remove(field);
    (n, Some(object))
}

/// The states of a view: the objects above; with other values; with missing fields; with a text for a list; with no
/// object among them; then all as before, but for `a`, which changes once more.
fn states() -> Vec<Snapshot> {
    let all_with = |a: &str| -> Vec<Put> {
        let objects = (0..OBJECTS).map(|n| with(n, "/a", a.into()));
        objects.collect()
    };
    let others = vec![
        with(1, "/selector", json!({"other": "v1"})),
        with(2, "/metadata/labels", json!({"k": "y", "l": "v1"})),
        with(3, "/spec/rules/0/host", "moved".into()),
        with(4, "/spec/rules/0/host", "h3".into()),
        with(10, "/n", "20".into()),
        with(13, "/f", json!(3.5)),
        (20, None),
        with(23, "/c", "no".into()),
    ];
    let phases: [Vec<Put>; 7] = [
        all_with("x"),
        others,
        vec![without(7, "list"), without(11, "spec")],
        vec![with(7, "/list", "l3 and more".into())],
        vec![(21, Some(json!([1])))],
        all_with("y"),
        all_with("z"),
    ];
    let mut world = World::new("apps");
    let put = |phase: Vec<Put>| {
        for (n, object) in phase {
            world.step(Step {
                key: (n, n),
                object,
            });
        }
        world.states.last().unwrap().clone()
    };
    phases.into_iter().map(put).collect()
}

/// Each with its parameters, and the number of objects that an index finds at first; `None`: no index may answer it.
fn questions() -> Vec<(&'static str, Value, Option<usize>)> {
    let host = || json!({"p": "h3"});
    let all = || json!({"keys": ["all"], "q": "no"});
    vec![
        ("items[?absent == $p].a", json!({"p": "x"}), Some(0)),
        ("items[?absent == $p].a", json!({"p": null}), Some(24)),
        ("items[?f == $p].a", json!({"p": 3.5}), Some(1)),
        ("items[?contains(list, $p)].a", json!({"p": "l3"}), Some(1)),
        (
            "items[?contains($keys, metadata.name)].a",
            json!({"keys": ["n3", "n5"]}),
            Some(2),
        ),
        (
            "items[?any_in($keys, list)].a",
            json!({"keys": ["l3", "l5"]}),
            Some(2),
        ),
        (
            "items[?label_match(selector, $labels)].a",
            json!({"labels": {"k": "v1"}}),
            Some(8),
        ),
        (
            "items[?label_match($labels, metadata.labels)].a",
            json!({"labels": {"k": "x", "l": "v1"}}),
            Some(6),
        ),
        // Every object has all of no labels.
        (
            "items[?label_match($labels, metadata.labels)].a",
            json!({"labels": {}}),
            None,
        ),
        // Filters within an object, reached in every way.
        ("items[?spec.rules[?host == $p]].a", host(), Some(1)),
        ("items[?spec.rules[?host == $p] | @].a", host(), Some(1)),
        ("items[?spec | rules | [?host == $p]].a", host(), Some(1)),
        ("items[?spec | rules[?host == $p]].a", host(), Some(1)),
        (
            "items[?spec.rules[?host == $p] | [0] | to].a",
            host(),
            Some(1),
        ),
        (
            "items[?spec.rules[?host == $p] | [?to == 'here']].a",
            host(),
            Some(1),
        ),
        (
            "items[?spec.rules[].paths[?path == $p][]].a",
            json!({"p": "/3"}),
            Some(1),
        ),
        // Of null a function makes something.
        (
            "items[?absent | to_array(@)[?@ == $p].type(@)].a",
            json!({"p": null}),
            None,
        ),
        // Objects without a match contribute an empty list, until something leaves those out.
        (
            "items[].spec.rules[?host == $p] | [*] | []",
            host(),
            Some(1),
        ),
        ("items[].spec.rules[?host == $p] | [*].to", host(), Some(1)),
        (
            "items[].spec.rules[?host == $p] | [*].to.x",
            host(),
            Some(1),
        ),
        (
            "items[].spec.rules[?host == $p] | [*].type(@) | []",
            host(),
            None,
        ),
        ("items[*].contains(list, $p) | []", json!({"p": "l3"}), None),
        // One object stands for all with a host; but a filter leaves out the first objects.
        (
            "any_in($keys, (items[?c != $q].spec.rules[].host))",
            all(),
            Some(1),
        ),
        (
            "any_in($keys, ((items[].spec.rules[]) | [?to != $q].host))",
            json!({"keys": ["all"], "q": "there"}),
            Some(1),
        ),
        // A number is compared as a text.
        ("any_in($keys, items[].n)", json!({"keys": ["2?"]}), Some(4)),
    ]
}

#[test]
fn indexes_answer_as_a_scan_does_while_the_objects_change() {
    let states = states();
    for (text, parameters, objects) in questions() {
        let expression = Expression::parse(text).unwrap();
        let parameters: BTreeMap<String, Value> = serde_json::from_value(parameters).unwrap();
        for missing_key_is_error in [false, true] {
            let question = Question {
                expression: text.to_owned(),
                parameters: parameters.clone(),
                missing_key_is_error,
                selection: Selection {
                    shape: Shape::List,
                    ..Selection::default()
                },
                way: 0,
            };
            let mut indexes = HashMap::new();
            // In the end the indexes come back to the first state.
            for (place, state) in states.iter().chain(&states[..1]).enumerate() {
                let found = question.looked_up(&expression, state, &mut indexes);
                assert_eq!(found.is_some(), objects.is_some(), "{place}: {question:?}");
                let Some(found) = found else {
                    continue;
                };
                let scanned = question.scanned(&expression, state);
                assert_eq!(found.value, scanned, "{place}: {question:?}");
                if state.is(&states[0]) {
                    assert_eq!(Some(found.objects), objects, "{place}: {question:?}");
                }
            }
        }
    }
}
