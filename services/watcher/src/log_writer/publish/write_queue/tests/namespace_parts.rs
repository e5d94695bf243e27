//! The parts of namespaces in views of objects of many namespaces.

use std::collections::BTreeSet;

use anteroom_model::{Collection, GroupVersionResource};
use anteroom_wire::body::BodyNode;

use super::*;

const KIB: usize = 1024;

/// The bytes by which an object with a body of one KiB counts.
const OBJECT: u64 = 1024 + 320;

fn config_maps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

fn objects() -> Source {
    Source::Objects { gvr: config_maps() }
}

fn collection() -> Source {
    Source::Collection(Collection::all(config_maps()))
}

/// A view of ConfigMaps of many namespaces.
struct SharedView {
    queue: WriteQueue,
    reader: Reader,
    handle: WriteHandle,
    now: Instant,
}

impl SharedView {
    fn new(source: Source, quota: u64) -> Self {
        let (queue, handle) = Self::open(1, source, quota, HashMap::new());
        Self {
            queue,
            reader: Reader::default(),
            handle,
            now: Instant::now(),
        }
    }

    fn open(
        term: u32,
        source: Source,
        quota: u64,
        seed: HashMap<ObjectKey, ResourceVersion>,
    ) -> (WriteQueue, WriteHandle) {
        let mut queue = WriteQueue::new(term);
        queue.limit_namespaces(Some(quota));
        let info = SourceInfo {
            source,
            kind: String::new(),
            namespaced: true,
        };
        let handle = queue.open(info, seed);
        queue.limit_each_namespace(&handle.view, true);
        queue.begin_list(&handle);
        (queue, handle)
    }

    fn put(&mut self, key: &str, version: u64, bytes: usize) {
        let (body, now) = (Bytes::from(vec![0; bytes]), self.now);
        let (key, origin) = (key_of(key), ChangeOrigin::List);
        self.queue
            .put(&self.handle, key, rv(version), body, now, origin);
    }

    fn delete(&mut self, key: &str, version: u64) {
        let (now, origin) = (self.now, ChangeOrigin::List);
        self.queue
            .delete(&self.handle, &key_of(key), rv(version), now, origin);
    }

    fn exempt(&mut self, key: &str, exempt: bool) {
        self.queue
            .set_exempt(&self.handle.view, &key_of(key), exempt);
    }

    /// Ends a list.
    fn listed(&mut self, version: u64) {
        self.queue.listed(&self.handle, &rv(version), self.now);
    }

    fn write(&mut self) {
        write_all(&mut self.queue, &mut self.reader);
    }

    fn content(&self) -> BTreeMap<ObjectKey, (ResourceVersion, Bytes)> {
        self.reader.content(&self.handle.view)
    }

    /// Writes everything. Returns the objects that are stubs in the log.
    fn stubs(&mut self) -> Vec<String> {
        self.write();
        let content = self.content();
        let stubs = content.iter().filter(|(_, (_, body))| is_stub(body));
        stubs.map(|(key, _)| key.to_string()).collect()
    }

    /// Asks for stubs if that is due. Returns those that will come, in order.
    fn reads_stubs(&mut self) -> Vec<String> {
        let Some(view) = self.queue.next_to_list_for_stubs(self.now) else {
            return Vec::new();
        };
        assert_eq!(view, self.handle.view);
        let stubs = self.queue.list_for_stubs(&view, self.now);
        let mut stubs: Vec<_> = stubs.iter().map(ToString::to_string).collect();
        stubs.sort_unstable();
        stubs
    }

    /// Returns whether stubs are to be asked for. If so, asks for them.
    fn lists_for_stubs(&mut self) -> bool {
        !self.reads_stubs().is_empty()
    }
}

fn key_of(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

fn is_stub(body: &Bytes) -> bool {
    unreadable::document(body).is_some()
}

#[test]
fn objects_beyond_the_part_of_their_namespace_are_stubs_and_others_are_not_touched() {
    for source in [objects(), collection()] {
        for (quota, expected) in [
            (4 * OBJECT, vec![]),
            (4 * OBJECT - 1, vec!["a/3"]),
            (3 * OBJECT, vec!["a/3"]),
            (3 * OBJECT - 1, vec!["a/2", "a/3"]),
        ] {
            let mut view = SharedView::new(source.clone(), quota);
            for key in ["a/0", "a/1", "a/2", "a/3", "b/0"] {
                view.put(key, 1, KIB);
            }
            view.listed(1);
            assert_eq!(view.stubs(), expected, "{quota}");
            let content = view.content();
            assert_eq!(content.len(), 5);
            for stub in expected {
                let document = unreadable::document(&content[&key_of(stub)].1).unwrap();
                let reason = unreadable::reason(BodyNode::new(document)).to_owned();
                assert!(reason.contains("namespace `a`"), "{reason}");
                assert!(reason.contains(&quota.to_string()), "{reason}");
            }
            let state = view.reader.views[&view.handle.view].state.clone();
            assert_eq!(state, Some(ViewState::Synced));
        }
    }
}

#[test]
fn a_stub_is_replaced_by_its_object_once_there_is_room() {
    let mut view = SharedView::new(collection(), 3 * OBJECT);
    for key in ["a/0", "a/1", "a/2"] {
        view.put(key, 1, KIB);
    }
    view.put("a/3", 1, 2 * KIB);
    view.listed(1);
    assert_eq!(view.stubs(), ["a/3"]);
    assert!(!view.lists_for_stubs(), "there is no room");
    view.delete("a/0", 2);
    assert!(!view.lists_for_stubs(), "there is too little");
    view.delete("a/1", 3);
    assert!(view.lists_for_stubs());
    let key = key_of("a/3");
    let known = view.queue.is_known(&view.handle, &key, &rv(1));
    assert!(!known, "its watch brings it again");
    view.put("a/3", 1, 2 * KIB);
    assert!(view.stubs().is_empty());
    assert_eq!(view.content()[&key].0, rv(1));
    // A tenant that makes room again and again leads to few lists.
    view.put("a/4", 4, 2 * KIB);
    assert_eq!(view.stubs(), ["a/4"]);
    view.delete("a/2", 5);
    view.delete("a/3", 6);
    assert!(!view.lists_for_stubs());
    view.now += Duration::from_secs(60);
    assert!(view.lists_for_stubs());
}

/// Otherwise whoever makes room, and takes it again before the list, would lead to a list a minute.
#[test]
fn a_stub_whose_list_did_not_bring_it_is_listed_for_ever_more_rarely() {
    const MINUTE: Duration = Duration::from_secs(60);
    for source in [objects(), collection()] {
        let mut view = SharedView::new(source, OBJECT);
        view.put("a/0", 1, KIB);
        view.put("a/1", 1, KIB);
        view.listed(1);
        view.delete("a/0", 2);
        assert_eq!(view.stubs(), ["a/1"]);
        assert!(view.lists_for_stubs());
        for minutes in [2, 4, 8, 16, 32, 60, 60] {
            view.now += MINUTE * minutes - Duration::from_secs(1);
            assert!(!view.lists_for_stubs(), "{minutes}");
            view.now += Duration::from_secs(1);
            assert!(view.lists_for_stubs(), "{minutes}");
        }
        // The stub comes back, and a later object takes its place.
        view.put("a/1", 1, KIB);
        view.put("a/2", 3, KIB);
        assert_eq!(view.stubs(), ["a/2"]);
        view.delete("a/1", 4);
        assert!(!view.lists_for_stubs());
        view.now += MINUTE;
        assert!(view.lists_for_stubs());
    }
}

#[test]
fn single_objects_are_read_where_their_namespace_has_room_and_each_namespace_waits_by_itself() {
    let mut view = SharedView::new(objects(), OBJECT);
    for key in ["a/0", "a/1", "b/0", "b/1", "c/0", "c/1"] {
        view.put(key, 1, KIB);
    }
    view.listed(1);
    assert_eq!(view.stubs(), ["a/1", "b/1", "c/1"]);
    view.delete("a/0", 2);
    assert_eq!(view.reads_stubs(), ["a/1"]);
    view.delete("b/0", 3);
    assert!(view.reads_stubs().is_empty(), "soon after the last read");
    view.now += Duration::from_secs(10);
    assert_eq!(view.reads_stubs(), ["b/1"]);
    view.now += Duration::from_secs(60);
    assert!(view.reads_stubs().is_empty());
    view.now += Duration::from_secs(60);
    assert_eq!(view.reads_stubs(), ["a/1", "b/1"]);
    // The cluster refers to the third one.
    view.exempt("c/1", true);
    view.now += Duration::from_secs(10);
    assert_eq!(view.reads_stubs(), ["c/1"]);
}

#[test]
fn of_many_single_objects_some_are_read_at_a_time_and_all_in_the_end() {
    const STUBS: usize = 600;
    let mut view = SharedView::new(objects(), OBJECT);
    view.put("a/room", 1, KIB);
    let stubs: BTreeSet<_> = (0..STUBS).map(|n| format!("a/{n}")).collect();
    for key in &stubs {
        view.put(key, 1, KIB);
    }
    view.listed(1);
    view.delete("a/room", 2);
    view.write();
    let mut read = BTreeSet::new();
    for _ in 0..3 {
        let round = view.reads_stubs();
        assert_eq!(round.len(), 256);
        read.extend(round);
        view.now += Duration::from_secs(60 * 60);
    }
    assert_eq!(read, stubs);
    // One that the cluster refers to is not forgotten for the others.
    let round = view.reads_stubs();
    let left = stubs.iter().find(|key| !round.contains(key)).unwrap();
    view.exempt(left, true);
    let mut rounds = 0;
    loop {
        view.now += Duration::from_secs(60 * 60);
        rounds += 1;
        if view.reads_stubs().contains(left) {
            break;
        }
    }
    assert!(rounds <= 3, "{rounds}");
}

#[test]
fn an_object_that_the_cluster_refers_to_is_never_a_stub_and_takes_no_part_of_its_namespace() {
    let mut view = SharedView::new(objects(), 2 * OBJECT);
    view.exempt("a/of-cluster", true);
    for key in ["a/0", "a/1", "a/2"] {
        view.put(key, 1, KIB);
    }
    view.put("a/of-cluster", 1, 8 * KIB);
    view.listed(1);
    assert_eq!(view.stubs(), ["a/2"]);
    view.put("a/of-cluster", 2, 16 * KIB);
    assert_eq!(view.stubs(), ["a/2"]);
    assert!(!view.lists_for_stubs());
    // The cluster refers to the stub too.
    view.exempt("a/2", true);
    assert!(view.lists_for_stubs());
    view.put("a/2", 1, KIB);
    assert!(view.stubs().is_empty());
    view.exempt("a/2", false);
    assert!(view.stubs().is_empty(), "what is there stays");
    // References to many stubs, one after the other, lead to few lists.
    view.put("a/4", 2, KIB);
    assert_eq!(view.stubs(), ["a/4"]);
    view.exempt("a/4", true);
    assert!(!view.lists_for_stubs());
    view.now += Duration::from_secs(10);
    assert!(view.lists_for_stubs());
    view.delete("a/4", 3);
    view.delete("a/0", 3);
    view.put("a/3", 3, KIB);
    assert_eq!(view.stubs(), ["a/3"], "it counts again");
}

#[test]
fn the_own_word_of_the_writer_is_never_a_stub() {
    let mut view = SharedView::new(objects(), OBJECT);
    view.put("a/0", 1, KIB);
    let (body, now) = (Bytes::from(vec![0; 2 * KIB]), view.now);
    let failed = ResourceVersion::new("failed-Forbidden-1");
    view.queue.put(
        &view.handle,
        key_of("a/1"),
        failed,
        body,
        now,
        ChangeOrigin::Own,
    );
    view.listed(1);
    assert!(view.stubs().is_empty());
}

#[test]
fn a_collection_that_somebody_needs_whole_has_no_stubs() {
    let mut view = SharedView::new(collection(), OBJECT);
    for key in ["a/0", "a/1"] {
        view.put(key, 1, KIB);
    }
    view.listed(1);
    assert_eq!(view.stubs(), ["a/1"]);
    view.queue.limit_each_namespace(&view.handle.view, false);
    assert!(view.lists_for_stubs());
    view.put("a/1", 1, KIB);
    view.put("a/2", 1, 8 * KIB);
    assert!(view.stubs().is_empty());
    view.queue.limit_each_namespace(&view.handle.view, true);
    view.put("a/3", 2, KIB);
    assert_eq!(view.stubs(), ["a/3"]);
}

#[test]
fn a_later_term_knows_which_objects_are_stubs() {
    let quota = 2 * OBJECT;
    let mut view = SharedView::new(objects(), quota);
    for key in ["a/0", "a/1", "a/2"] {
        view.put(key, 1, KIB);
    }
    view.listed(1);
    assert_eq!(view.stubs(), ["a/2"]);
    let content = view.content().into_iter();
    let seed = content.map(|(key, (version, _))| (key, version)).collect();
    (view.queue, view.handle) = SharedView::open(2, objects(), quota, seed);
    for key in ["a/2", "a/1", "a/0"] {
        let known = view.queue.is_known(&view.handle, &key_of(key), &rv(1));
        assert!(!known);
        view.put(key, 1, KIB);
    }
    view.listed(1);
    assert_eq!(view.stubs(), ["a/0"]);
}

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

proptest! {
    #[test]
    fn a_namespace_never_exceeds_its_part_and_no_object_is_missing(
        steps in proptest::collection::vec(
            (0..6_u8, 0..3_usize, 0..5_u8, 1..4_usize, any::<bool>()), 1..60
        )
    ) {
        let quota = 6 * KIB;
        let mut view = SharedView::new(objects(), quota as u64);
        let mut model: BTreeMap<String, (u64, usize)> = BTreeMap::new();
        view.exempt("a/0", true);
        view.listed(0);
        for (version, (step, namespace, name, kib, writes)) in (1..).zip(steps) {
            let key = format!("{}/{name}", NAMESPACES[namespace]);
            match step {
                0..3 => {
                    view.put(&key, version, kib * KIB);
                    model.insert(key, (version, kib * KIB));
                }
                3 => {
                    view.delete(&key, version);
                    model.remove(&key);
                }
                _ => {
                    if step == 4 {
                        view.queue.reread(&mut view.handle);
                    }
                    view.queue.begin_list(&view.handle);
                    for (key, (version, bytes)) in &model {
                        view.put(key, *version, *bytes);
                    }
                    view.listed(version);
                }
            }
            if !writes {
                continue;
            }
            view.write();
            let content = view.content();
            prop_assert_eq!(content.len(), model.len());
            let mut parts = BTreeMap::new();
            for (key, (_, body)) in &content {
                let bytes = model[&key.to_string()].1;
                if key.to_string() == "a/0" {
                    prop_assert_eq!(body.len(), bytes);
                } else if !is_stub(body) {
                    prop_assert_eq!(body.len(), bytes);
                    *parts.entry(key.namespace.clone()).or_insert(0) += bytes + 320;
                }
            }
            prop_assert!(parts.values().all(|bytes| *bytes <= quota), "{parts:?}");
        }
        for key in model.keys() {
            view.delete(key, 1_000);
        }
        for namespace in NAMESPACES {
            view.put(&format!("{namespace}/all"), 1_001, quota - 320);
        }
        prop_assert_eq!(view.stubs(), Vec::<String>::new());
    }
}
