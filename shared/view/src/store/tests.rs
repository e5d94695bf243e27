use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn recount(store: &Draft) -> ViewBytes {
    let mut bytes = ViewBytes::default();
    for object in store.objects() {
        bytes.bodies += object.body().len();
        bytes.keys += object.namespace().len() + object.name().len() + object.version_bytes();
        bytes.indexes += object.spare_bytes();
    }
    bytes.indexes += store.objects.bytes();
    for key in store.aside.tombstones.by_key.keys() {
        bytes.indexes += tombstone_bytes(key);
    }
    bytes.indexes += Holes::of(store.objects()).bytes();
    bytes.indexes += store.unreadable.bytes();
    bytes
}

fn redigest(store: &Store) -> Digest {
    let mut digest = Digest::EMPTY;
    for object in store.objects() {
        let key = ObjectKey::new(object.namespace(), object.name());
        digest.add(&key, &object.version());
    }
    digest
}

fn put(name: &str, epoch: u64, version: &str, body: &str) -> Delta<Vec<u8>> {
    Delta {
        key: ObjectKey::new("ns", name),
        epoch: Epoch(epoch),
        version: ResourceVersion::new(version),
        op: Op::Put(body.as_bytes().to_vec()),
    }
}

fn delete(name: &str, epoch: u64, version: &str) -> Delta<Vec<u8>> {
    Delta {
        op: Op::Delete,
        ..put(name, epoch, version, "")
    }
}

/// Deltas that a writer with every fault might send: any order of epochs and versions.
fn deltas() -> impl Strategy<Value = Vec<Delta<Vec<u8>>>> {
    let version = prop_oneof!["[0-9]{1,2}", Just(String::from("opaque"))];
    let bytes = prop::collection::vec(any::<u8>(), 0..6);
    let stub = "[a-z]{0,3}".prop_map(|reason| unreadable::stub(&reason, None).to_vec());
    let op = prop::option::weighted(0.7, prop_oneof![9 => bytes, 1 => stub]);
    let delta = ("[ab]{0,2}", "[a-c]{1,2}", 0_u64..3, version, op).prop_map(
        |(namespace, name, epoch, version, op)| Delta {
            key: ObjectKey::new(namespace, name),
            epoch: Epoch(epoch),
            version: ResourceVersion::new(version),
            op: op.map_or(Op::Delete, Op::Put),
        },
    );
    prop::collection::vec(delta, 0..60)
}

/// The last record of each key: epoch, version, and the body if it is there.
type Model = BTreeMap<ObjectKey, (Epoch, ResourceVersion, Option<Vec<u8>>)>;

proptest! {
    #[test]
    fn any_order_of_deltas_ends_as_the_apply_rule_demands(
        deltas in deltas(),
        repeats in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        compact in any::<bool>(),
    ) {
        let (mut store, mut model) = (Draft::default(), Model::new());
        for (position, delta) in (1..).zip(&deltas) {
            store.apply(Revision(position), delta, None);
            let held = model.get(&delta.key);
            if held.is_none_or(|(epoch, version, _)| delta.supersedes(*epoch, version)) {
                let body = match &delta.op {
                    Op::Put(body) => Some(body.clone()),
                    Op::Delete => None,
                };
                model.insert(delta.key.clone(), (delta.epoch, delta.version.clone(), body));
            }
        }
        for repeat in repeats {
            if let Some(delta) = deltas.get(repeat.index(deltas.len().max(1))) {
                let position = Revision(repeat.index(deltas.len()) as u64 + 1);
                let applied = store.apply(position, delta, None);
                prop_assert!(matches!(applied, Applied::Ignored(Ignored::Repeated)));
            }
        }
        if compact {
            store.settle();
        }
        model.retain(|_, (_, _, body)| body.is_some());

        prop_assert_eq!(store.revision(), Revision(deltas.len() as u64));
        prop_assert_eq!(store.len(), model.len());
        prop_assert_eq!(store.is_empty(), model.is_empty());
        prop_assert_eq!(store.bytes(), recount(&store));
        prop_assert_eq!(store.digest(), redigest(&store));
        for (object, (key, (epoch, version, body))) in store.objects().zip(&model) {
            prop_assert_eq!((object.namespace(), object.name()), (&*key.namespace, &*key.name));
            prop_assert_eq!((object.epoch(), object.version()), (*epoch, version.clone()));
            let stub = body.as_deref().and_then(unreadable::document);
            prop_assert_eq!(Some(object.body()), stub.or(body.as_deref()));
            prop_assert_eq!(store.unreadable().has(key), stub.is_some());
            prop_assert_eq!(store.get(&key.namespace, &key.name), Some(object));
        }
        for namespace in ["", "a", "aa", "ab", "b", "ba", "bb", "c"] {
            let names: Vec<_> = store.namespace(namespace).map(Object::name).collect();
            let expected: Vec<_> = model
                .keys()
                .filter(|key| &*key.namespace == namespace)
                .map(|key| &*key.name)
                .collect();
            prop_assert_eq!(names, expected);
        }
    }
}

#[test]
fn applying_a_delta_returns_the_replaced_object() {
    let mut store = Draft::default();
    let applied = store.apply(Revision(1), &put("a", 1, "1", "x"), None);
    assert!(matches!(applied, Applied::Put { old: None }));
    let applied = store.apply(Revision(2), &put("a", 1, "2", "y"), None);
    assert!(matches!(applied, Applied::Put { old: Some(old) } if old.body() == b"x"));
    let applied = store.apply(Revision(3), &delete("a", 1, "3"), None);
    assert!(matches!(applied, Applied::Deleted { old } if old.body() == b"y"));
    let applied = store.apply(Revision(4), &delete("a", 1, "4"), None);
    assert!(matches!(applied, Applied::Ignored(Ignored::Absent)));
}

#[test]
fn a_deleted_object_is_not_put_back_by_an_older_record() {
    let mut store = Draft::default();
    store.apply(Revision(1), &delete("a", 2, "10"), None);
    for (position, old) in [(2, put("a", 2, "9", "x")), (3, put("a", 1, "99", "x"))] {
        let applied = store.apply(Revision(position), &old, None);
        assert!(matches!(applied, Applied::Ignored(Ignored::Superseded)));
    }
    store.apply(Revision(4), &put("a", 2, "11", "x"), None);
    assert_eq!(store.len(), 1);
}

#[test]
fn the_oldest_deletion_is_forgotten_over_the_limit() {
    let mut store = Draft::default();
    let name = |n: usize| format!("n{n}");
    for n in 0..=TOMBSTONES_MAX {
        let position = Revision(n as u64 + 1);
        store.apply(position, &delete(&name(n), 1, "10"), None);
    }
    assert_eq!(store.aside.tombstones.by_key.len(), TOMBSTONES_MAX);
    assert_eq!(store.aside.tombstones.order.len(), TOMBSTONES_MAX);
    assert_eq!(store.bytes(), recount(&store));
    let mut next = TOMBSTONES_MAX as u64 + 2;
    let mut is_applied = |n| {
        let applied = store.apply(Revision(next), &put(&name(n), 1, "9", ""), None);
        next += 1;
        matches!(applied, Applied::Put { .. })
    };
    assert!(is_applied(0));
    assert!(!is_applied(1));
    // One that is made again is forgotten alone, and in both places.
    store.apply(Revision(next), &put(&name(2), 1, "11", ""), None);
    assert_eq!(store.aside.tombstones.by_key.len(), TOMBSTONES_MAX - 1);
    assert_eq!(store.aside.tombstones.order.len(), TOMBSTONES_MAX - 1);
}

#[test]
fn two_states_share_unchanged_objects() {
    let mut one = Draft::default();
    one.apply(Revision(1), &put("a", 1, "1", "same"), None);
    one.apply(Revision(2), &put("b", 1, "1", "old"), None);
    let mut other = Draft::default();
    for (position, delta) in [put("a", 2, "1", "same"), put("b", 1, "2", "new")]
        .iter()
        .enumerate()
    {
        let twin = one.get("ns", &delta.key.name);
        other.apply(Revision(position as u64 + 1), delta, twin);
    }
    let pair = |name| [&one, &other].map(|store| store.get("ns", name).unwrap());
    let [held, again] = pair("a");
    assert!(again.shares_with(held));
    assert_eq!(again.epoch(), Epoch(2));
    let [held, changed] = pair("b");
    assert!(!changed.shares_with(held));
}

/// A view that was dropped and wanted again begins afresh, whatever a reader missed.
#[test]
fn records_before_the_views_origin_are_void() {
    let mut store = Draft::default();
    store.apply(Revision(1), &put("a", 1, "1", "x"), None);
    store.apply(Revision(2), &put("b", 3, "2", "y"), None);
    let source = anteroom_model::Source::System { name: "t".into() };
    let record = |origin| ViewRecord {
        view: source.view_id(),
        info: anteroom_model::SourceInfo {
            source: source.clone(),
            kind: String::new(),
            namespaced: true,
        },
        epoch: Epoch(3),
        state: anteroom_model::ViewState::Synced,
        version: ResourceVersion::new("2"),
        objects: 1,
        digest: Digest::EMPTY,
        origin: Epoch(origin),
        age_max_ms: None,
    };
    store.control(Revision(3), record(1));
    assert_eq!(store.len(), 2);
    store.control(Revision(4), record(2));
    let left: Vec<_> = store.objects().map(Object::name).collect();
    assert_eq!(left, ["b"]);
    assert_eq!(store.digest(), redigest(&store));
    assert_eq!(store.bytes(), recount(&store));
    let late = store.apply(Revision(5), &put("c", 1, "9", "z"), None);
    assert!(matches!(late, Applied::Ignored(Ignored::Superseded)));
}

#[test]
fn a_copy_counts_only_bytes_that_it_does_not_share() {
    let mut store = Draft::default();
    store.apply(Revision(1), &put("a", 1, "1", "same"), None);
    store.apply(Revision(2), &put("b", 1, "2", "old"), None);
    store.apply(Revision(3), &delete("c", 1, "3"), None);
    store.apply(Revision(4), &put("d", 1, "4", "kept"), None);
    let mut copy = store.writable_copy();
    assert_eq!(copy.own_bytes().bodies, 0);
    let twin = |name| store.get("ns", name);
    copy.apply(Revision(5), &put("b", 1, "5", "newer"), twin("b"));
    assert_eq!(copy.own_bytes().bodies, 5);
    copy.apply(Revision(6), &delete("a", 1, "6"), twin("a"));
    assert_eq!(copy.own_bytes().bodies, 5);
    assert_eq!(copy.bytes(), recount(&copy));
    copy.settle();
    assert_eq!(copy.own_bytes(), copy.bytes());
}

fn synced() -> ViewRecord {
    let source = anteroom_model::Source::System { name: "t".into() };
    ViewRecord {
        view: source.view_id(),
        info: anteroom_model::SourceInfo {
            source,
            kind: String::new(),
            namespaced: true,
        },
        epoch: Epoch(1),
        state: ViewState::Synced,
        version: ResourceVersion::new("1"),
        objects: 0,
        digest: Digest::EMPTY,
        origin: Epoch::default(),
        age_max_ms: None,
    }
}

/// In the order of the keys, others may stand among the objects of a namespace then.
#[test]
fn a_namespace_has_all_of_its_objects_where_names_hold_a_slash() {
    let mut store = Draft::default();
    for (revision, (namespace, name)) in
        (1..).zip([("a", "b"), ("a/b", "x"), ("a", "c"), ("b", "a")])
    {
        let delta = Delta {
            key: ObjectKey::new(namespace, name),
            ..put("", 1, "1", "")
        };
        store.apply(Revision(revision), &delta, None);
    }
    let names: Vec<_> = store.namespace("a").map(Object::name).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn objects_are_packed_until_the_view_is_whole_and_not_again() {
    // Chunks are packed once they are full, or hold many bytes; the rest when the view is whole.
    for (objects, bytes) in [(400_u64, 900), (30, 4_000)] {
        let is_alone = |store: &Draft| store.objects().filter(|object| object.is_alone()).count();
        let name = |n: u64| format!("n{n:03}");
        let body = "x".repeat(bytes);
        let mut store = Draft::default();
        for n in 0..objects {
            store.apply(Revision(n + 1), &put(&name(n), 1, "1", &body), None);
        }
        assert!((1..store.len()).contains(&is_alone(&store)), "{objects}");
        assert_eq!(store.bytes(), recount(&store));
        store.control(Revision(objects + 1), synced());
        assert_eq!(is_alone(&store), 0, "{objects}");
        assert_eq!(store.bytes(), recount(&store));

        // Whoever shares some objects holds the allocations of all.
        let mut again = Draft::default();
        for n in (0..objects).step_by(10) {
            let twin = store.get("ns", &name(n));
            again.apply(Revision(n + 1), &put(&name(n), 1, "1", &body), twin);
        }
        again.settle();
        assert!(again.aside.holes.bytes() > 0);
        assert_eq!(again.bytes(), recount(&again));
        drop(again);

        store.apply(Revision(objects + 2), &put(&name(0), 1, "2", &body), None);
        store.control(Revision(objects + 3), synced());
        assert_eq!(is_alone(&store), 1, "{objects}");
        let anew = ViewRecord {
            epoch: Epoch(2),
            origin: Epoch(2),
            ..synced()
        };
        store.control(Revision(objects + 4), anew);
        assert!(store.is_empty());
        assert_eq!(store.bytes(), recount(&store));
        assert_eq!(store.aside.holes.bytes(), 0);
    }
}

#[test]
fn void_objects_keep_no_memory_that_they_shared() {
    let mut store = Draft::default();
    for n in 0..400 {
        let epoch = if n % 8 == 0 { 2 } else { 1 };
        let delta = put(&format!("n{n:03}"), epoch, "1", &"x".repeat(900));
        store.apply(Revision(n + 1), &delta, None);
    }
    let begun_anew = |origin| ViewRecord {
        epoch: Epoch(2),
        origin: Epoch(origin),
        ..synced()
    };
    store.control(Revision(401), begun_anew(1));
    assert!(store.objects().all(|object| !object.is_alone()));
    store.control(Revision(402), begun_anew(2));
    assert_eq!(store.len(), 50);
    assert_eq!(store.aside.holes.bytes(), 0);
    assert_eq!(store.bytes(), recount(&store));
}

fn body_of(n: u32, round: u32) -> String {
    let bytes = 900 + (n * 37 + round * 101) % 1_500;
    format!("{n}-{round}-").repeat(bytes as usize / 6)
}

proptest! {
    /// Objects move in and out of allocations that they share; nobody may tell.
    #[test]
    fn packed_objects_keep_their_content(
        objects in 1_u32..400,
        changes in prop::collection::vec((0_u32..400, prop::bool::weighted(0.8)), 0..600),
        held_at in 0_usize..600,
    ) {
        let mut store = Draft::default();
        let mut model = BTreeMap::new();
        let mut revision = 0;
        let mut apply = |store: &mut Draft, n: u32, round: u32, is_put: bool| {
            revision += 2;
            let (name, version) = (format!("n{:03}", n * 7 % 400), (revision + 1).to_string());
            let delta = match is_put {
                true => put(&name, 1, &version, &body_of(n, round)),
                false => delete(&name, 1, &version),
            };
            store.apply(Revision(revision), &delta, None);
            match is_put {
                true => model.insert(name, body_of(n, round)),
                false => model.remove(&name),
            };
            model.clone()
        };
        for n in 0..objects {
            apply(&mut store, n, 0, true);
        }
        store.control(Revision(2 * u64::from(objects) + 1), synced());
        let mut held = None;
        for (at, (n, is_put)) in (1..).zip(changes) {
            let model = apply(&mut store, n, at, is_put);
            if at as usize == held_at {
                held = Some((store.snapshot(), model));
            }
        }
        let bodies = |store: &Store| -> BTreeMap<_, _> {
            let text = |object: &Object| String::from_utf8(object.body().to_vec()).unwrap();
            store.objects().map(|object| (object.name().to_owned(), text(object))).collect()
        };
        prop_assert_eq!(bodies(&store), model);
        prop_assert_eq!(store.bytes(), recount(&store));
        let bytes: usize = store.objects().map(Object::len).sum();
        // What is left of an allocation that is a third holes has moved out.
        prop_assert!(store.aside.holes.bytes() * 2 <= bytes + 128 * 1024);
        if let Some((state, model)) = held {
            prop_assert_eq!(bodies(&state), model);
        }
    }
}
