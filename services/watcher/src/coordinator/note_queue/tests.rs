use anteroom_model::{EntryKind, ResourceVersion};
use anteroom_policy::PolicyKind;
use tracing::Span;

use super::*;
use crate::source::reflect::{Origin, RawObject};

const ENTRIES: Manifests = Manifests::Entries(EntryKind::Cached);
const CLUSTER_POLICIES: Manifests = Manifests::Policies(PolicyKind::Cluster);
const POLICIES: Manifests = Manifests::Policies(PolicyKind::Namespaced);

/// A note of an object `NAMESPACE/NAME`, or `NAME` of the cluster, with so many bytes.
fn put(object: &str, bytes: usize) -> Note {
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    let object = RawObject {
        key: ObjectKey::new(namespace, name),
        version: ResourceVersion::default(),
        json: "x".repeat(bytes).into(),
    };
    let origin = Origin::List;
    Note::Put { object, origin }
}

fn gone(object: &str) -> Note {
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    Note::Gone {
        key: ObjectKey::new(namespace, name),
        version: ResourceVersion::default(),
        span: Span::none(),
    }
}

fn heard(version: &str) -> Note {
    let version = Some(ResourceVersion::new(version));
    Note::Heard { version }
}

fn begin() -> Note {
    let version = ResourceVersion::default();
    Note::Begin {
        afresh: false,
        version,
    }
}

fn listed() -> Note {
    let version = ResourceVersion::default();
    Note::Listed { version }
}

fn shown(note: &Note) -> String {
    match note {
        Note::Put { object, .. } => format!("{} {}", object.key, object.json.len()),
        Note::Gone { key, .. } => format!("{key} gone"),
        Note::Heard { version } => format!("heard {}", version.clone().unwrap_or_default()),
        Note::Begin { .. } => "begin".to_owned(),
        Note::Listed { .. } => "listed".to_owned(),
        other => format!("{other:?}"),
    }
}

fn queue(notes: impl IntoIterator<Item = (Manifests, Note)>) -> NoteQueue {
    let mut queue = NoteQueue::default();
    let now = Instant::now();
    for (of, note) in notes {
        assert!(queue.push(of, note, now).is_none());
    }
    queue
}

fn take_all(queue: &mut NoteQueue) -> Vec<String> {
    let taken: Vec<_> = std::iter::from_fn(|| queue.take())
        .map(|(_, note, _)| shown(&note))
        .collect();
    assert!(queue.is_empty());
    taken
}

#[test]
fn of_each_object_the_last_note_waits_in_the_place_of_the_first() {
    let mut queue = queue([
        (CLUSTER_POLICIES, put("a", 1)),
        (CLUSTER_POLICIES, put("b", 1)),
        (CLUSTER_POLICIES, put("a", 2)),
        (CLUSTER_POLICIES, gone("b")),
        // An entry and a policy may have the same name.
        (ENTRIES, put("a", 3)),
        (CLUSTER_POLICIES, put("a", 4)),
    ]);
    assert_eq!(take_all(&mut queue), ["a 4", "b gone", "a 3"]);
}

#[test]
fn the_clusters_objects_go_first_and_namespaces_take_turns() {
    let mut queue = queue([
        (POLICIES, put("a/1", 1)),
        (POLICIES, put("a/2", 1)),
        (POLICIES, put("a/3", 1)),
        (POLICIES, put("b/1", 1)),
        (POLICIES, put("b/2", 1)),
        (ENTRIES, put("e", 1)),
        (POLICIES, put("c/1", 1)),
        (CLUSTER_POLICIES, put("p", 1)),
    ]);
    let expected = [
        "e 1", "p 1", "a/1 1", "b/1 1", "c/1 1", "a/2 1", "b/2 1", "a/3 1",
    ];
    assert_eq!(take_all(&mut queue), expected);
}

/// The loop pushes its note again whenever it was taken.
#[test]
fn one_who_changes_an_object_in_a_loop_lets_others_wait_for_one_note() {
    for (of, looped, other_of, other, turns) in [
        (POLICIES, "a/p", POLICIES, "b/q", 1),
        (POLICIES, "b/p", POLICIES, "a/q", 1),
        (POLICIES, "a/p", CLUSTER_POLICIES, "q", 0),
        (
            CLUSTER_POLICIES,
            "p",
            POLICIES,
            "a/q",
            CLUSTER_IN_A_ROW_MAX as usize,
        ),
    ] {
        let now = Instant::now();
        let mut queue = queue([(of, put(looped, 1))]);
        // Its last turn is over.
        queue.take().unwrap();
        queue.cluster_in_a_row = 0;
        queue.push(of, put(looped, 1), now);
        queue.push(other_of, put(other, 1), now);
        let mut waited = 0;
        while !shown(&queue.take().unwrap().1).starts_with(other) {
            waited += 1;
            queue.push(of, put(looped, 1), now);
        }
        assert!(waited <= turns, "{looped} {other}: {waited}");
    }
}

/// Objects that no list had are gone once it ends.
#[test]
fn no_note_crosses_the_begin_or_the_end_of_its_collections_list() {
    let mut queue = queue([
        (CLUSTER_POLICIES, put("a", 1)),
        (CLUSTER_POLICIES, begin()),
        (CLUSTER_POLICIES, put("a", 2)),
        (CLUSTER_POLICIES, put("b", 1)),
        (CLUSTER_POLICIES, listed()),
        (CLUSTER_POLICIES, put("b", 2)),
        (CLUSTER_POLICIES, heard("1")),
        (CLUSTER_POLICIES, begin()),
        (ENTRIES, put("e", 1)),
        (CLUSTER_POLICIES, listed()),
    ]);
    let taken = take_all(&mut queue);
    let of_policies: Vec<_> = taken.iter().filter(|note| *note != "e 1").collect();
    let expected = [
        "a 1", "begin", "a 2", "b 1", "listed", "b 2", "heard 1", "begin", "listed",
    ];
    assert_eq!(of_policies, expected);
}

#[test]
fn news_follow_the_changes_that_came_before_and_are_put_off_by_no_later_ones() {
    let now = Instant::now();
    let mut queue = queue([
        (POLICIES, put("a/1", 1)),
        (POLICIES, put("b/1", 1)),
        (POLICIES, heard("1")),
        (POLICIES, put("a/1", 2)),
        (POLICIES, heard("2")),
        (POLICIES, put("a/2", 1)),
        (POLICIES, heard("3")),
    ]);
    let mut taken = Vec::new();
    for _ in 0..3 {
        let (_, note, _) = queue.take().unwrap();
        taken.push(shown(&note));
        // The loop goes on.
        queue.push(POLICIES, put("a/1", 3), now);
    }
    assert_eq!(taken, ["a/1 2", "b/1 1", "heard 1"]);
    // The news between are left out.
    assert_eq!(take_all(&mut queue), ["a/2 1", "heard 3", "a/1 3"]);
}

#[test]
fn news_between_the_first_and_the_last_are_left_out() {
    let versions = ["1", "2", "3", "4"];
    let notes = versions.map(|version| (POLICIES, heard(version)));
    assert_eq!(take_all(&mut queue(notes)), ["heard 1", "heard 4"]);
    let notes = [heard("1"), heard("2"), Note::Skipped, heard("3")];
    let notes = notes.map(|note| (POLICIES, note));
    let expected = ["heard 1", "heard 2", "Skipped", "heard 3"];
    assert_eq!(take_all(&mut queue(notes)), expected);
}

#[test]
fn each_collection_has_room_of_its_own() {
    let now = Instant::now();
    let name = |number: usize| format!("a/{number}");
    let mut queue = queue((0..NOTES_MAX).map(|number| (POLICIES, put(&name(number), 1))));
    assert!(queue.push(POLICIES, put("b/late", 1), now).is_some());
    assert!(queue.push(POLICIES, put("a/7", 2), now).is_none());
    assert!(queue.push(POLICIES, gone("a/8"), now).is_none());
    assert!(queue.push(ENTRIES, put("e", 1), now).is_none());
    queue.take().unwrap();
    queue.take().unwrap();
    assert!(queue.push(POLICIES, put("b/late", 1), now).is_none());

    let mut queue = self::queue([(POLICIES, put("a/large", BYTES_MAX + 1))]);
    assert!(queue.push(POLICIES, put("b/p", 1), now).is_some());
    assert!(queue.push(ENTRIES, put("e", 1), now).is_none());
    assert_eq!(shown(&queue.take().unwrap().1), "e 1");
    queue.take().unwrap();
    assert!(queue.push(POLICIES, put("b/p", BYTES_MAX), now).is_none());
    assert!(queue.push(POLICIES, put("b/q", 1), now).is_some());
    assert!(
        queue
            .push(POLICIES, put("b/p", BYTES_MAX - 1), now)
            .is_none()
    );
    assert!(queue.push(POLICIES, put("b/q", 1), now).is_none());
    let grown = queue.push(POLICIES, put("b/q", 2), now);
    assert!(grown.is_some(), "objects may grow while they wait");
    assert!(queue.push(POLICIES, gone("b/p"), now).is_none());
    assert!(queue.push(POLICIES, put("b/q", 2), now).is_none());
}
