//! Objects that change in nothing that an index reads, up to the limits of what is noted of them.

use anteroom_model::ViewState;
use anteroom_view::testing::TestView;
use anteroom_wire::body;
use serde_json::{Value, json};

use super::{
    newest::{NEWEST_BYTES_MAX, NEWEST_MAX},
    *,
};
use crate::{Document, narrow};

/// A view of Pods with one label and a status.
struct Pods(TestView);

impl Pods {
    fn new() -> Self {
        Self(TestView::new("", "pods", "Pod"))
    }

    /// Objects that are there before the view is synced, and are packed then.
    fn packed(objects: usize) -> Self {
        let mut pods = Self(TestView::without_state("", "pods", "Pod"));
        pods.0.control(ViewState::Syncing);
        (0..objects).for_each(|n| pods.put(n, "a", &json!(0)));
        pods.0.control(ViewState::Synced);
        pods
    }

    fn put(&mut self, n: usize, app: &str, status: &Value) {
        let name = format!("pod-{n:05}");
        let object = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "status": status,
        });
        self.0.put("ns", &name, &object);
    }

    fn delete(&mut self, n: usize) {
        self.0.delete("ns", &format!("pod-{n:05}"));
    }

    fn state(&self) -> Snapshot {
        self.0.snapshot()
    }
}

/// An index of objects by their label.
struct LabelIndex {
    narrow: crate::Narrow,
    index: Index,
}

impl LabelIndex {
    fn of(state: &Snapshot) -> Self {
        let expression = "items[?metadata.labels.app == $p]".parse().unwrap();
        let narrow = narrow(&expression, Document::List { plural: None }).unwrap();
        let language = Language {
            functions: FunctionTable::standard_shared(),
            matches: |pattern, text| pattern == text,
        };
        let key = IndexKey::of(narrow.probes()[0], false, true);
        let index = Index::new(key, language, state);
        Self { narrow, index }
    }

    /// Returns true if a newer version of this object is noted.
    fn has_noted(&self, object: &Object) -> bool {
        !std::ptr::eq(self.index.newest.version_of(object), object)
    }

    /// Names and states of the objects with this label.
    fn found(&self, app: &str) -> Vec<(String, Value)> {
        let (app, admits) = (json!(app), |_: &Object| true);
        let parameters = [("p", &app)];
        let options = LookupOptions {
            objects_max: usize::MAX,
            steps_max: usize::MAX,
            admits: &admits,
            parameters: &parameters,
        };
        let mut found = self.index.gather(self.narrow.probes()[0], options).unwrap();
        found.sort_unstable();
        let read = |object: &Object| {
            let body = body::to_json(object.body()).unwrap();
            (object.name().to_owned(), body["status"].clone())
        };
        found.iter().map(read).collect()
    }
}

#[test]
fn an_index_finds_the_newest_versions_however_many_objects_change_in_unread_fields() {
    let objects = NEWEST_MAX + 10;
    let mut pods = Pods::new();
    for n in 0..objects {
        pods.put(n, ["a", "b"][n % 2], &json!(0));
    }
    let mut asked = LabelIndex::of(&pods.state());
    for round in 1..=2 {
        for n in 0..objects {
            pods.put(n, ["a", "b"][n % 2], &json!(round));
        }
        asked.index.advance(&pods.state());
        assert!(asked.index.newest.take_one_over().is_none());
        for (app, first) in [("a", 0), ("b", 1)] {
            let all = (first..objects).step_by(2);
            let expected: Vec<_> = all.map(|n| (format!("pod-{n:05}"), json!(round))).collect();
            assert_eq!(asked.found(app), expected);
        }
    }
}

#[test]
fn an_index_holds_no_more_bodies_than_its_limit() {
    let mut pods = Pods::new();
    let long = |round: usize| json!(format!("{round}{}", "x".repeat(100_000)));
    let objects = 2 * NEWEST_BYTES_MAX / 100_000;
    for n in 0..objects {
        pods.put(n, "a", &long(0));
    }
    let mut asked = LabelIndex::of(&pods.state());
    let before = asked.index.bytes();
    for n in 0..objects {
        pods.put(n, "a", &long(1));
    }
    asked.index.advance(&pods.state());
    let more = asked.index.bytes() - before;
    assert!(
        more > NEWEST_BYTES_MAX / 2 && more < NEWEST_BYTES_MAX + 100_000,
        "{more}"
    );
    let found = asked.found("a");
    assert_eq!(found.len(), objects);
    assert!(found.iter().all(|(_, status)| *status == long(1)));
}

#[test]
fn an_index_does_not_hold_a_packed_allocation_for_one_object() {
    let mut pods = Pods::packed(500);
    let state = pods.state();
    let before: Vec<Object> = state.read().objects().cloned().collect();
    assert!(before.iter().all(|object| !object.is_alone()));
    let mut asked = LabelIndex::of(&state);
    let empty = asked.index.bytes();
    let changed = || (0..500).step_by(100);
    let mut expected: Vec<_> = (0..500)
        .map(|n| (format!("pod-{n:05}"), json!(0)))
        .collect();
    for round in 1..=3 {
        for n in changed() {
            pods.put(n, "a", &json!(round));
            expected[n].1 = json!(round);
        }
        asked.index.advance(&pods.state());
        assert_eq!(asked.found("a"), expected);
        // Put anew once, they are alone from then on.
        assert_eq!(asked.index.bytes() > empty, round > 1);
        for object in &before {
            assert_eq!(
                asked.has_noted(object),
                round > 1 && changed().any(|n| before[n] == *object)
            );
        }
    }
    let noted = asked.index.bytes() - empty;
    assert!(noted < 4_096, "{noted}");
}

#[test]
fn the_objects_that_changed_last_are_noted_and_the_first_ones_indexed_anew() {
    let objects = 3 * NEWEST_MAX;
    let mut pods = Pods::new();
    for round in 0..2 {
        (0..objects).for_each(|n| pods.put(n, "a", &json!(round)));
    }
    let state = pods.state();
    let before: Vec<Object> = state.read().objects().cloned().collect();
    assert!(before.iter().all(Object::is_alone));
    let mut asked = LabelIndex::of(&state);
    for n in 0..objects {
        pods.put(n, "a", &json!(2));
        asked.index.advance(&pods.state());
    }
    for (n, object) in before.iter().enumerate() {
        assert_eq!(asked.has_noted(object), n >= objects - NEWEST_MAX, "{n}");
    }
}

#[test]
fn an_object_that_is_deleted_and_created_again_and_again_takes_no_more_memory() {
    let mut pods = Pods::new();
    pods.put(0, "a", &json!(0));
    let mut asked = LabelIndex::of(&pods.state());
    let mut most = 0;
    for round in 0..3 * NEWEST_MAX {
        pods.put(0, "a", &json!(1));
        asked.index.advance(&pods.state());
        pods.delete(0);
        asked.index.advance(&pods.state());
        pods.put(0, "a", &json!(0));
        asked.index.advance(&pods.state());
        if round == NEWEST_MAX + 1 {
            most = asked.index.newest.bytes();
        }
    }
    assert_eq!(asked.index.newest.bytes(), most);
}

#[test]
fn an_object_that_goes_or_changes_a_read_field_is_no_longer_noted() {
    let mut pods = Pods::new();
    for n in 0..3 {
        pods.put(n, "a", &json!(0));
    }
    let mut asked = LabelIndex::of(&pods.state());
    let empty = asked.index.newest.bytes();
    for n in 0..3 {
        pods.put(n, "a", &json!(1));
    }
    asked.index.advance(&pods.state());
    assert!(asked.index.newest.bytes() > empty);
    pods.put(0, "b", &json!(2));
    pods.delete(1);
    asked.index.advance(&pods.state());
    pods.put(1, "a", &json!(3));
    asked.index.advance(&pods.state());
    let named = |n: usize, status: u64| (format!("pod-{n:05}"), json!(status));
    assert_eq!(asked.found("a"), [named(1, 3), named(2, 1)]);
    assert_eq!(asked.found("b"), [named(0, 2)]);
    // The other way round too.
    pods.put(2, "b", &json!(1));
    asked.index.advance(&pods.state());
    assert_eq!(asked.found("b"), [named(0, 2), named(2, 1)]);
    assert_eq!(asked.found("a"), [named(1, 3)]);
}

/// Otherwise a few large objects would be looked through by every lookup.
#[test]
fn a_large_object_without_the_value_is_no_candidate() {
    let mut view = TestView::new("", "pods", "Pod");
    let mut put = |name: &str, rules: Vec<Value>| {
        view.put("ns", name, &json!({"spec": {"rules": rules}}));
    };
    put("empty", vec![json!({}); 50_000]);
    let host = |n: usize| json!({"host": format!("h{n}")});
    put("many", (0..10_000).map(host).collect());
    put("too-many", (0..20_000).map(host).collect());
    put("few", vec![json!({"host": "a"})]);
    let expression = "items[?contains(spec.rules[].host, $p)]".parse().unwrap();
    let narrow = narrow(&expression, Document::List { plural: None }).unwrap();
    let language = Language {
        functions: FunctionTable::standard_shared(),
        matches: |pattern, text| pattern == text,
    };
    let key = IndexKey::of(narrow.probes()[0], false, true);
    let index = Index::new(key, language, &view.snapshot());
    let (host, admits) = (json!("a"), |_: &Object| true);
    let parameters = [("p", &host)];
    let options = LookupOptions {
        objects_max: usize::MAX,
        steps_max: usize::MAX,
        admits: &admits,
        parameters: &parameters,
    };
    let found = index.gather(narrow.probes()[0], options).unwrap();
    let mut names: Vec<&str> = found.iter().map(Object::name).collect();
    names.sort_unstable();
    assert_eq!(names, ["few", "too-many"]);
}

/// An index of objects by their label, for keys that may have wildcards.
struct AlikeIndex {
    narrow: crate::Narrow,
    index: Index,
}

impl AlikeIndex {
    fn of(state: &Snapshot) -> Self {
        let expression = "any_in($p, items[].metadata.labels.app)".parse().unwrap();
        let narrow = narrow(&expression, Document::List { plural: None }).unwrap();
        let language = Language {
            functions: anteroom_functions::query_functions(),
            matches: anteroom_functions::wildcard::matches,
        };
        let key = IndexKey::of(narrow.probes()[0], false, true);
        let index = Index::new(key, language, state);
        Self { narrow, index }
    }

    /// The labels of at least one object whose key resembles `key`, if any exists; `None`: the search exceeds
    /// `steps_max`.
    fn found(&self, key: &str, steps_max: usize) -> Option<Vec<String>> {
        let (key, admits) = (json!([key]), |_: &Object| true);
        let parameters = [("p", &key)];
        let options = LookupOptions {
            objects_max: usize::MAX,
            steps_max,
            admits: &admits,
            parameters: &parameters,
        };
        let found = self.index.gather(self.narrow.probes()[0], options)?;
        let label = |object: &Object| {
            let body = body::to_json(object.body()).unwrap();
            body["metadata"]["labels"]["app"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        Some(found.iter().map(label).collect())
    }
}

#[test]
fn values_are_found_by_either_end_of_a_key_with_wildcards() {
    let mut pods = Pods::new();
    let names = [
        "a.example",
        "b.example",
        "é.example",
        "é.other",
        "example",
        "x",
    ];
    for (n, name) in names.iter().enumerate() {
        pods.put(n, name, &json!(0));
    }
    let mut asked = AlikeIndex::of(&pods.state());
    for (key, expected) in [
        ("*.example", &["a.example", "b.example", "é.example"][..]),
        ("?.other", &["é.other"]),
        ("é*", &["é.example", "é.other"]),
        ("*é*", &["é.example", "é.other"]),
        ("*e", &["a.example", "b.example", "é.example", "example"]),
        ("*.none", &[]),
        ("a*e", &["a.example"]),
    ] {
        // The first lookup puts the values in order, the second goes by it.
        for _ in 0..2 {
            // One decides, whichever it is.
            let found = asked.found(key, usize::MAX).unwrap();
            assert_eq!(found.is_empty(), expected.is_empty(), "{key}");
            assert!(
                found.iter().all(|label| expected.contains(&&**label)),
                "{key}: {found:?}"
            );
        }
    }
    assert_eq!(
        asked.found("*.none", 1),
        Some(Vec::new()),
        "no value is looked at"
    );
    assert_eq!(asked.found("*z*", names.len() - 1), None);
    pods.put(names.len(), "new.example", &json!(0));
    pods.delete(0);
    asked.index.advance(&pods.state());
    let found = asked.found("*w.example", usize::MAX);
    assert_eq!(found, Some(vec!["new.example".to_owned()]));
    let gone = asked.found("*a.example", 0);
    assert_eq!(gone, Some(Vec::new()), "no value is looked at");
}

#[test]
fn an_index_that_would_take_more_bytes_than_it_may_is_not_built() {
    let mut pods = Pods::new();
    (0..100).for_each(|n| pods.put(n, &format!("app-{n:03}"), &json!(0)));
    let Index { key, language, .. } = LabelIndex::of(&pods.state()).index;
    let within = |bytes_max| Index::new_within(key.clone(), language, &pods.state(), bytes_max);
    let bytes = within(usize::MAX).unwrap().bytes();
    assert!(bytes > 100 * "app-000".len());
    assert_eq!(within(bytes).unwrap().values(), 100);
    assert!(within(bytes - 1).is_none());
}

/// An index by the key of the only lookup in this expression.
fn index_of(text: &str, state: &Snapshot) -> Index {
    let narrow = narrow(&text.parse().unwrap(), Document::List { plural: None }).unwrap();
    let language = Language {
        functions: FunctionTable::standard_shared(),
        matches: |pattern, text| pattern == text,
    };
    Index::new(
        IndexKey::of(narrow.probes()[0], false, true),
        language,
        state,
    )
}

#[test]
fn an_index_tells_how_many_objects_have_a_value_unless_one_is_irregular() {
    let mut view = TestView::new("", "pods", "Pod");
    let values = [json!("x"), json!("x"), json!("y"), json!(null)];
    for (n, value) in values.iter().enumerate() {
        view.put("ns", &n.to_string(), &json!({"a": value, "list": ["x"]}));
    }
    let text = |text: &str| Scalar::Text(text.into());
    let mut index = index_of("items[?a == $p]", &view.snapshot());
    for (value, count) in [
        (text("x"), 2),
        (text("y"), 1),
        (text("z"), 0),
        (Scalar::Null, 1),
    ] {
        assert_eq!(index.exact(&value), Some(count), "{value:?}");
    }
    // Beside an element of a list there may be others.
    let of_list = index_of("items[?contains(list, $p)]", &view.snapshot());
    assert_eq!(of_list.having(&text("x")), 4);
    assert_eq!(of_list.exact(&text("x")), None);
    for (value, irregular, count) in [(json!(["x"]), 1, None), (json!("z"), 0, Some(1))] {
        view.put("ns", "0", &json!({"a": value}));
        index.advance(&view.snapshot());
        assert_eq!(index.always(), irregular, "{value}");
        assert_eq!(index.exact(&text("x")), count, "{value}");
    }
}

#[test]
fn the_objects_of_a_value_are_read_from_any_place_on() {
    let mut pods = Pods::new();
    for (n, app) in ["a", "b", "a", "a"].iter().enumerate() {
        pods.put(n, app, &json!(0));
    }
    let state = pods.state();
    let objects: Vec<Object> = state.read().objects().cloned().collect();
    let index = LabelIndex::of(&state).index;
    for (app, from, expected) in [
        ("a", Bound::Unbounded, &[0, 2, 3][..]),
        ("a", Bound::Included(&objects[2]), &[2, 3]),
        ("a", Bound::Excluded(&objects[2]), &[3]),
        ("b", Bound::Unbounded, &[1]),
        ("b", Bound::Included(&objects[1]), &[1]),
        ("b", Bound::Included(&objects[2]), &[]),
        ("b", Bound::Excluded(&objects[0]), &[1]),
        ("b", Bound::Excluded(&objects[1]), &[]),
    ] {
        let found = index.having_from(&Scalar::Text(app.into()), from, 9);
        let expected: Vec<Object> = expected
            .iter()
            .map(|n: &usize| objects[*n].clone())
            .collect();
        assert_eq!(found, expected, "{app} from {from:?}");
    }
}

#[test]
fn an_index_counts_the_memory_of_what_it_holds_and_gives_it_back() {
    const VALUES: usize = 200;
    let label = |n: usize| {
        let wildcard = if n.is_multiple_of(2) { "*" } else { "" };
        format!("{}{n}{wildcard}", "x".repeat(100))
    };
    let mut pods = Pods::new();
    let mut index = AlikeIndex::of(&pods.state()).index;
    for ordered in [&index.forward, &index.backward] {
        ordered.get_or_sort(&index.by_value);
    }
    (0..3 * VALUES).for_each(|n| pods.put(n, &label(n / 3), &json!(0)));
    index.advance(&pods.state());
    let text = Scalar::Text(label(0).into()).bytes();
    let slot = size_of::<(Scalar, Posting)>();
    let values = VALUES * (3 * text + 5 * IN_SET_BYTES + slot);
    let held = values + VALUES / 2 * (text + size_of::<Box<str>>());
    let bytes = index.bytes();
    assert!((held..2 * held).contains(&bytes), "{bytes} for {held}");
    (0..3 * VALUES).for_each(|n| pods.delete(n));
    index.advance(&pods.state());
    let left = index.bytes();
    assert!(left < VALUES * slot, "{left} of {bytes}");
}
