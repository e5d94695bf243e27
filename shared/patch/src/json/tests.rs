use std::cell::Cell;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    DEPTH_MAX,
    json::{apply::PADDING_MAX, diff::OPERATIONS_MAX},
};

fn diff(before: &Value, after: &Value) -> Value {
    diff_charged(before, after, &|_| true).unwrap()
}

fn patched(document: &Value, patch: &Value, leniency: Leniency) -> Result<Value, String> {
    Patch::parse(patch)
        .and_then(|patch| patch.apply(document, leniency))
        .map_err(|error| error.to_string())
}

/// The examples of the RFC's appendix A; A.11 and A.13 are about what a reader passes over.
#[test]
fn json_patch_follows_the_examples_of_the_rfc() {
    let table = [
        // A.1
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            Ok(json!({"baz": "qux", "foo": "bar"})),
        ),
        // A.2
        (
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            Ok(json!({"foo": ["bar", "qux", "baz"]})),
        ),
        // A.3
        (
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "remove", "path": "/baz"}]),
            Ok(json!({"foo": "bar"})),
        ),
        // A.4
        (
            json!({"foo": ["bar", "qux", "baz"]}),
            json!([{"op": "remove", "path": "/foo/1"}]),
            Ok(json!({"foo": ["bar", "baz"]})),
        ),
        // A.5
        (
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
            Ok(json!({"baz": "boo", "foo": "bar"})),
        ),
        // A.6
        (
            json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
            json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
            Ok(json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}})),
        ),
        // A.7
        (
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
            Ok(json!({"foo": ["all", "cows", "eat", "grass"]})),
        ),
        // A.8
        (
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
            json!([
                {"op": "test", "path": "/baz", "value": "qux"},
                {"op": "test", "path": "/foo/1", "value": 2}
            ]),
            Ok(json!({"baz": "qux", "foo": ["a", 2, "c"]})),
        ),
        // A.9
        (
            json!({"baz": "qux"}),
            json!([{"op": "test", "path": "/baz", "value": "bar"}]),
            Err("test at `/baz`: the document has another value there"),
        ),
        // A.10
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
            Ok(json!({"foo": "bar", "child": {"grandchild": {}}})),
        ),
        // A.11
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
            Ok(json!({"foo": "bar", "baz": "qux"})),
        ),
        // A.12
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz/bat", "value": "qux"}]),
            Err("add at `/baz/bat`: there is no field `baz`"),
        ),
        // A.14
        (
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            Ok(json!({"/": 9, "~1": 10})),
        ),
        // A.15
        (
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": "10"}]),
            Err("test at `/~01`: the document has another value there"),
        ),
        // A.16
        (
            json!({"foo": ["bar"]}),
            json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
            Ok(json!({"foo": ["bar", ["abc", "def"]]})),
        ),
    ];
    for (document, patch, expected) in table {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(
            patched(&document, &patch, Leniency::NONE),
            expected,
            "{patch}"
        );
    }
}

#[test]
fn json_patch_follows_the_text_of_the_rfc() {
    let table = [
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "", "value": 2}]),
            Ok(json!(2)),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/a", "value": null}]),
            Ok(json!({"a": null})),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 1.0}]),
            Ok(json!({"a": 1})),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "copy", "from": "/a", "path": "/b"}]),
            Ok(json!({"a": 1, "b": 1})),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "move", "from": "/a", "path": "/a"}]),
            Ok(json!({"a": 1})),
        ),
        (
            json!({"a": {}}),
            json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
            Err("move at `/a/b`: a value cannot be moved into itself"),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "/b", "value": 1}]),
            Err("replace at `/b`: there is no field `b`"),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "remove", "path": "/b"}]),
            Err("remove at `/b`: there is no field `b`"),
        ),
        (
            json!([1]),
            json!([{"op": "add", "path": "/2", "value": 1}]),
            Err("add at `/2`: element 2 is behind the end of 1"),
        ),
        (
            json!([1]),
            json!([{"op": "replace", "path": "/-", "value": 1}]),
            Err("replace at `/-`: `-` is behind the last element"),
        ),
        (
            json!([1, 2]),
            json!([{"op": "remove", "path": "/01"}]),
            Err("remove at `/01`: `01` is no index of a list"),
        ),
        (
            json!([1, 2]),
            json!([{"op": "remove", "path": "/-1"}]),
            Err("remove at `/-1`: `-1` is no index of a list"),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "remove", "path": ""}]),
            Err("remove at ``: the whole document cannot be removed"),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            Err("add at `/a/b`: `b` is below what is neither an object nor a list"),
        ),
    ];
    for (document, patch, expected) in table {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(
            patched(&document, &patch, Leniency::NONE),
            expected,
            "{patch}"
        );
    }
}

#[test]
fn lenient_patches_are_applied_as_in_kyverno() {
    let add = |path: &str| json!([{"op": "add", "path": path, "value": 7}]);
    let remove = |path: &str| json!([{"op": "remove", "path": path}]);
    let table = [
        (json!([1, 2]), add("/-1"), Ok(json!([1, 2, 7]))),
        (json!([1, 2]), add("/-2"), Ok(json!([1, 7, 2]))),
        (json!([1, 2]), remove("/-1"), Ok(json!([1]))),
        (json!({}), add("/a/b"), Ok(json!({"a": {"b": 7}}))),
        (json!({}), add("/a/-"), Ok(json!({"a": [7]}))),
        (json!({}), add("/a/-1/b/-1"), Ok(json!({"a": [{"b": [7]}]}))),
        (
            json!({"a": [{"c": 1}]}),
            add("/a/-1/b"),
            Ok(json!({"a": [{"b": 7, "c": 1}]})),
        ),
        (json!({}), add("/a/2"), Ok(json!({"a": [null, null, 7]}))),
        (
            json!({"a": [1]}),
            add("/a/3/b"),
            Ok(json!({"a": [1, null, null, {"b": 7}]})),
        ),
        (json!({"a": null}), add("/a/b"), Ok(json!({"a": {"b": 7}}))),
        (json!({"a": 1}), remove("/b/c"), Ok(json!({"a": 1}))),
        (json!({"a": [1]}), remove("/a/4"), Ok(json!({"a": [1]}))),
        // Nothing can be below what is no index, so nothing is removed.
        (json!({"a": [1]}), remove("/a/x/y"), Ok(json!({"a": [1]}))),
        (
            json!({"a": [1]}),
            remove("/a/x"),
            Err("remove at `/a/x`: `x` is no index of a list"),
        ),
        (
            json!({"a": "b"}),
            add("/a/b/c"),
            Err("add at `/a/b/c`: `b` is below what is neither an object nor a list"),
        ),
    ];
    for (document, patch, expected) in table {
        let expected = expected.map_err(str::to_owned);
        assert_eq!(
            patched(&document, &patch, Leniency::KYVERNO),
            expected,
            "{patch}"
        );
    }
}

#[test]
fn a_malformed_json_patch_is_refused() {
    let table = [
        (json!({}), "the patch: it is not a list"),
        (json!([1]), "operation 0: it is not an object"),
        (json!([{"path": ""}]), "operation 0: it has no `op`"),
        (
            json!([{"op": "Add", "path": ""}]),
            "operation 0: `Add` is none of add, copy, move, remove, replace, test",
        ),
        (
            json!([{"op": "add", "path": ""}]),
            "operation 0: it has no `value`",
        ),
        (
            json!([{"op": "remove", "path": 1}]),
            "operation 0: `path` is not a string",
        ),
        (
            json!([{"op": "remove", "path": "a"}]),
            "operation 0: the path `a` does not begin with `/`",
        ),
        (
            json!([{"op": "copy", "path": "/a"}]),
            "operation 0: it has no `from`",
        ),
    ];
    for (patch, expected) in table {
        assert_eq!(
            patched(&json!({}), &patch, Leniency::NONE),
            Err(expected.to_owned())
        );
    }
}

#[test]
fn json_patch_limits_hold_at_their_edge() {
    let at = |index: usize| json!([{"op": "add", "path": format!("/a/{index}"), "value": 1}]);
    assert!(patched(&json!({}), &at(PADDING_MAX), Leniency::KYVERNO).is_ok());
    assert!(patched(&json!({}), &at(PADDING_MAX + 1), Leniency::KYVERNO).is_err());

    let deep = |levels| json!([{"op": "add", "path": "/a".repeat(levels), "value": 1}]);
    assert!(patched(&json!({}), &deep(DEPTH_MAX), Leniency::KYVERNO).is_ok());
    let error = patched(&json!({}), &deep(DEPTH_MAX + 1), Leniency::KYVERNO);
    assert_eq!(error, Err(PatchError::TooDeep.to_string()));

    let many = |count| Value::Array(vec![json!({"op": "remove", "path": "/a"}); count]);
    assert!(patched(&json!({}), &many(OPERATIONS_MAX), Leniency::KYVERNO).is_ok());
    assert!(patched(&json!({}), &many(OPERATIONS_MAX + 1), Leniency::KYVERNO).is_err());

    // Each copies the whole into itself.
    let copies = (0..40).map(|at| json!({"op": "copy", "from": "", "path": format!("/{at}")}));
    let copies = Value::Array(copies.collect());
    let error = patched(&json!({"text": "x".repeat(1_000)}), &copies, Leniency::NONE);
    assert!(error == Err(PatchError::TooLarge.to_string()));
}

/// Small objects take a hundred times their bytes of text.
#[test]
fn a_patch_adds_a_limited_memory() {
    let document = json!({"list": vec![json!({"a": 1}); 1_000]});
    let copies = |count: usize| -> Value {
        let copy = |at| json!({"op": "copy", "from": "/list", "path": format!("/{at}")});
        (0..count).map(copy).collect()
    };
    assert!(patched(&document, &copies(10), Leniency::KYVERNO).is_ok());
    let error = patched(&document, &copies(100), Leniency::KYVERNO);
    assert!(error == Err(PatchError::TooLarge.to_string()));
    let deep = |at| json!({"op": "add", "path": format!("/{at}{}", "/a".repeat(400)), "value": 1});
    let parents: Value = (0..1_000).map(deep).collect();
    let error = patched(&json!({}), &parents, Leniency::KYVERNO);
    assert!(error == Err(PatchError::TooLarge.to_string()));
}

/// Policies may apply thousands of operations to each of a thousand elements.
#[test]
fn operations_are_charged_by_what_they_copy_compare_and_shift() {
    let keys = |count: usize| -> Map<String, Value> {
        (0..count).map(|at| (format!("k{at}"), json!(1))).collect()
    };
    let document = json!({"a": keys(2_000), "b": 1, "list": vec![json!(1); 10_000]});
    let copied = 2_000 * 16..2_000 * 64;
    let small = 16..256;
    for (operation, expected) in [
        (json!({"op": "move", "from": "/a", "path": "/a"}), &small),
        (json!({"op": "move", "from": "/a", "path": "/c"}), &copied),
        (json!({"op": "copy", "from": "/a", "path": "/c"}), &copied),
        (json!({"op": "copy", "from": "/b", "path": "/c"}), &small),
        (
            json!({"op": "test", "path": "/a", "value": keys(2_000)}),
            &copied,
        ),
        (
            json!({"op": "add", "path": "/c", "value": keys(2_000)}),
            &copied,
        ),
        (
            json!({"op": "replace", "path": "/b", "value": keys(2_000)}),
            &copied,
        ),
        (json!({"op": "remove", "path": "/a"}), &small),
        (json!({"op": "remove", "path": "/list/9999"}), &small),
        (
            json!({"op": "remove", "path": "/list/0"}),
            &(40_000..41_000),
        ),
        (
            json!({"op": "add", "path": "/list/0", "value": 1}),
            &(40_000..41_000),
        ),
        (
            json!({"op": "add", "path": "/c/1000", "value": 1}),
            &(16_000..17_000),
        ),
        (
            json!({"op": "remove", "path": "/x".repeat(500)}),
            &(8_000..10_000),
        ),
    ] {
        let charged = Cell::new(0_usize);
        let patch = Patch::parse(&json!([operation])).unwrap();
        let count = |bytes: usize| {
            charged.set(charged.get() + bytes);
            true
        };
        let made = patch.apply_charged(&document, Leniency::KYVERNO, &count);
        assert_eq!(made, patch.apply(&document, Leniency::KYVERNO));
        assert!(made.is_ok(), "{operation}: {made:?}");
        let charged = charged.get();
        assert!(
            expected.contains(&charged),
            "{}: {charged}",
            operation["op"]
        );
    }
}

#[test]
fn a_patch_whose_work_is_too_much_ends_there() {
    let patch = vec![json!({"op": "remove", "path": "/a"}); 100];
    let patch = Patch::parse(&json!(patch)).unwrap();
    let asked = Cell::new(0_usize);
    let ten = |_: usize| {
        asked.set(asked.get() + 1);
        asked.get() < 10
    };
    let made = patch.apply_charged(&json!({}), Leniency::KYVERNO, &ten);
    assert_eq!(made, Err(PatchError::TooCostly));
    assert_eq!(asked.get(), 10);
}

/// A key of 30 KB stands in the path of each of 14,000 elements.
#[test]
fn a_patch_is_never_much_larger_than_the_documents() {
    let key = "k".repeat(30_000);
    let numbers = |from: u32| Value::from((from..from + 14_000).collect::<Vec<_>>());
    let many =
        |from: u32| (0..OPERATIONS_MAX as u32 + 1).map(move |at| (format!("k{at}"), json!(from)));
    for (before, after, paths) in [
        (
            json!({"data": {&key: numbers(0)}, "kind": "A"}),
            json!({"data": {&key: numbers(1)}, "kind": "B"}),
            vec!["/data", "/kind"],
        ),
        (
            json!({"numbers": numbers(0), "spec": {"a": 1}}),
            json!({"numbers": numbers(5), "spec": {"a": 2}}),
            vec!["/numbers", "/spec/a"],
        ),
        (
            Value::Object(many(0).collect()),
            Value::Object(many(1).collect()),
            vec![""],
        ),
    ] {
        let patch = diff(&before, &after);
        assert!(patch.to_string().len() < 1_000 + after.to_string().len());
        let found: Vec<_> = patch
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["path"])
            .collect();
        assert_eq!(found, paths);
        assert_eq!(patched(&before, &patch, Leniency::NONE), Ok(after));
    }
    let few = diff(&json!({"n": numbers(0)}), &json!({"n": []}));
    assert_eq!(few[0]["op"], "replace");
}

#[test]
fn a_difference_is_the_patch_between_two_documents() {
    let table = [
        (json!({"a": 1}), json!({"a": 1}), json!([])),
        (
            json!({"a": 1, "b/~": 2}),
            json!({"b/~": 3, "c": null}),
            json!([
                {"op": "remove", "path": "/a"},
                {"op": "replace", "path": "/b~1~0", "value": 3},
                {"op": "add", "path": "/c", "value": null},
            ]),
        ),
        (
            json!({"a": [1, 2, 3]}),
            json!({"a": [1, 9, 2, 3]}),
            json!([{"op": "add", "path": "/a/1", "value": 9}]),
        ),
        (
            json!([{"n": 1}, {"n": 2}, {"n": 3}, 4]),
            json!([{"n": 7}, 4]),
            json!([
                {"op": "replace", "path": "/0/n", "value": 7},
                {"op": "remove", "path": "/2"},
                {"op": "remove", "path": "/1"},
            ]),
        ),
        (
            json!(1),
            json!([]),
            json!([{"op": "replace", "path": "", "value": []}]),
        ),
    ];
    for (before, after, expected) in table {
        assert_eq!(diff(&before, &after), expected);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab01-]", inner, 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn any_pointer() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        Just("-"),
        Just("-1"),
        Just("0"),
        Just("1"),
        Just("2"),
        Just("a"),
        Just("b"),
        Just("~0"),
        Just(""),
    ];
    prop::collection::vec(step, 0..4)
        .prop_map(|steps| steps.iter().map(|step| format!("/{step}")).collect())
}

fn any_patch() -> impl Strategy<Value = Value> {
    let operation = (0..OPERATIONS.len(), any_pointer(), any_pointer(), any_value()).prop_map(
        |(name, path, from, value)| {
            json!({"op": OPERATIONS[name], "path": path, "from": from, "value": value})
        },
    );
    prop::collection::vec(operation, 0..6).prop_map(Value::from)
}

proptest! {
    #[test]
    fn no_json_patch_panics(document in any_value(), patch in any_patch(), is_lenient in any::<bool>()) {
        let leniency = if is_lenient { Leniency::KYVERNO } else { Leniency::NONE };
        let _ = patched(&document, &patch, leniency);
    }

    #[test]
    fn a_strict_patch_gives_the_same_leniently(document in any_value(), patch in any_patch()) {
        if let Ok(strict) = patched(&document, &patch, Leniency::NONE) {
            prop_assert_eq!(patched(&document, &patch, Leniency::KYVERNO), Ok(strict));
        }
    }

    #[test]
    fn an_added_value_is_found_and_can_be_removed(document in any_value(), value in any_value()) {
        prop_assume!(document.is_object());
        let add = json!([
            {"op": "add", "path": "/new", "value": value},
            {"op": "test", "path": "/new", "value": value},
        ]);
        let added = patched(&document, &add, Leniency::NONE).unwrap();
        let remove = json!([{"op": "remove", "path": "/new"}]);
        prop_assert_eq!(patched(&added, &remove, Leniency::NONE), Ok(document));
    }

    #[test]
    fn a_pointer_is_written_as_it_is_read(path in any_pointer()) {
        let pointer = Pointer::parse(&path, "").unwrap();
        prop_assert_eq!(pointer.to_string(), path);
    }

    #[test]
    fn a_difference_leads_from_one_document_to_the_other(before in any_value(), after in any_value()) {
        let patch = diff(&before, &after);
        prop_assert_eq!(patched(&before, &patch, Leniency::NONE), Ok(after));
    }
}

#[test]
fn a_test_operation_without_a_value_tests_for_null() {
    let document = json!({"a": null, "b": 1});
    for (path, holds) in [("/a", true), ("/c", true), ("/b", false)] {
        let patch = json!([{"op": "test", "path": path}]);
        let found = patched(&document, &patch, Leniency::KYVERNO);
        assert_eq!(found.is_ok(), holds, "{path}");
    }
}

#[test]
fn a_test_for_null_and_a_removal_behind_the_end() {
    let document = json!({"a": {"b": null}, "l": [1]});
    let table = [
        ("test", "/a/x", true, false),
        ("test", "/a/b", true, true),
        ("test", "/x/y", false, false),
        ("test", "/l/7", false, false),
        ("test", "/l/0", false, false),
        ("remove", "/l/-", false, false),
        ("remove", "/l/7", true, false),
        ("remove", "/l/-0", false, false),
        ("remove", "/x/-", true, false),
    ];
    for (op, path, lenient, strict) in table {
        let patch = json!([{"op": op, "path": path, "value": null}]);
        let applies = |leniency| patched(&document, &patch, leniency) == Ok(document.clone());
        assert_eq!(applies(Leniency::KYVERNO), lenient, "{op} {path}");
        assert_eq!(applies(Leniency::NONE), strict, "{op} {path}");
    }
}
