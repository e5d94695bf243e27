//! Objects that change in nothing that an index reads, up to the limits of what is noted of them.

use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_view::View;
use anteroom_wire::body;
use serde_json::{Value, json};

use super::{
    renewed::{RENEWED_BYTES_MAX, RENEWED_MAX},
    *,
};
use crate::{Document, narrow};

struct Ground {
    view: View,
    info: SourceInfo,
    revision: u64,
}

impl Ground {
    fn new() -> Self {
        let gvr = GroupVersionResource::new("", "v1", "pods");
        let info = SourceInfo {
            source: Source::Collection(Collection::all(gvr)),
            kind: "Pod".into(),
            namespaced: true,
        };
        let view = View::live(info.source.view_id());
        let mut ground = Self {
            view,
            info,
            revision: 0,
        };
        ground.control(ViewState::Synced);
        ground
    }

    /// One that is read: these objects are there before it is whole, and are packed then.
    fn read(objects: usize) -> Self {
        let mut ground = Self::new();
        ground.view = View::live(ground.info.source.view_id());
        ground.control(ViewState::Syncing);
        (0..objects).for_each(|n| ground.put(n, "a", &json!(0)));
        ground.control(ViewState::Synced);
        ground
    }

    fn control(&mut self, state: ViewState) {
        self.revision += 1;
        let record = ViewRecord {
            view: self.view.id().clone(),
            info: self.info.clone(),
            epoch: Epoch::new(1, 0),
            state,
            version: ResourceVersion::new(self.revision.to_string()),
            objects: 0,
            digest: Digest::EMPTY,
            origin: Epoch::default(),
            age_max_ms: None,
        };
        self.view.control(Revision(self.revision), record);
    }

    fn apply(&mut self, n: usize, op: Op<bytes::Bytes>) {
        self.revision += 1;
        let delta = Delta {
            key: ObjectKey::new("ns", format!("pod-{n:05}")),
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new(self.revision.to_string()),
            op,
        };
        self.view.apply(Revision(self.revision), &delta);
    }

    fn put(&mut self, n: usize, app: &str, status: &Value) {
        let object = json!({
            "metadata": {"name": format!("pod-{n:05}"), "labels": {"app": app}},
            "status": status,
        });
        self.apply(n, Op::Put(body::encode_json(&object).unwrap()));
    }

    fn state(&self) -> Snapshot {
        self.view.snapshot(0, 0).unwrap()
    }
}

/// What is asked of the index: objects by their label.
struct Asked {
    narrow: crate::Narrow,
    index: Index,
}

impl Asked {
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

    /// Whether it is noted what this object, as it was put in, is now.
    fn has_noted(&self, object: &Object) -> bool {
        !std::ptr::eq(self.index.renewed.newest(object), object)
    }

    /// Names and states of the objects with this label.
    fn found(&self, app: &str) -> Vec<(String, Value)> {
        let (app, admits) = (json!(app), |_: &Object| true);
        let parameters = [("p", &app)];
        let terms = Terms {
            objects_max: usize::MAX,
            steps_max: usize::MAX,
            admits: &admits,
            parameters: &parameters,
        };
        let mut found = self.index.gather(self.narrow.probes()[0], terms).unwrap();
        found.sort_unstable();
        let read = |object: &Object| {
            let body = body::to_json(object.body()).unwrap();
            (object.name().to_owned(), body["status"].clone())
        };
        found.iter().map(read).collect()
    }
}

#[test]
fn what_is_found_is_as_it_is_now_however_many_objects_change_in_what_nobody_reads() {
    let objects = RENEWED_MAX + 10;
    let mut ground = Ground::new();
    for n in 0..objects {
        ground.put(n, ["a", "b"][n % 2], &json!(0));
    }
    let mut asked = Asked::of(&ground.state());
    for round in 1..=2 {
        for n in 0..objects {
            ground.put(n, ["a", "b"][n % 2], &json!(round));
        }
        asked.index.advance(&ground.state());
        assert!(asked.index.renewed.take_one_over().is_none());
        for (app, first) in [("a", 0), ("b", 1)] {
            let all = (first..objects).step_by(2);
            let expected: Vec<_> = all.map(|n| (format!("pod-{n:05}"), json!(round))).collect();
            assert_eq!(asked.found(app), expected);
        }
    }
}

#[test]
fn no_more_bodies_are_held_than_is_said() {
    let mut ground = Ground::new();
    let long = |round: usize| json!(format!("{round}{}", "x".repeat(100_000)));
    let objects = 2 * RENEWED_BYTES_MAX / 100_000;
    for n in 0..objects {
        ground.put(n, "a", &long(0));
    }
    let mut asked = Asked::of(&ground.state());
    let before = asked.index.bytes();
    for n in 0..objects {
        ground.put(n, "a", &long(1));
    }
    asked.index.advance(&ground.state());
    let more = asked.index.bytes() - before;
    assert!(
        more > RENEWED_BYTES_MAX / 2 && more < RENEWED_BYTES_MAX + 100_000,
        "{more}"
    );
    let found = asked.found("a");
    assert_eq!(found.len(), objects);
    assert!(found.iter().all(|(_, status)| *status == long(1)));
}

#[test]
fn what_is_packed_is_not_held_whole_for_one_object_of_it() {
    let mut ground = Ground::read(500);
    let state = ground.state();
    let before: Vec<Object> = state.read().objects().cloned().collect();
    assert!(before.iter().all(|object| !object.is_alone()));
    let mut asked = Asked::of(&state);
    let empty = asked.index.bytes();
    let changed = || (0..500).step_by(100);
    let mut expected: Vec<_> = (0..500)
        .map(|n| (format!("pod-{n:05}"), json!(0)))
        .collect();
    for round in 1..=3 {
        for n in changed() {
            ground.put(n, "a", &json!(round));
            expected[n].1 = json!(round);
        }
        asked.index.advance(&ground.state());
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
fn who_changed_last_is_noted_and_who_changed_first_is_put_anew() {
    let objects = 3 * RENEWED_MAX;
    let mut ground = Ground::new();
    for round in 0..2 {
        (0..objects).for_each(|n| ground.put(n, "a", &json!(round)));
    }
    let state = ground.state();
    let before: Vec<Object> = state.read().objects().cloned().collect();
    assert!(before.iter().all(Object::is_alone));
    let mut asked = Asked::of(&state);
    for n in 0..objects {
        ground.put(n, "a", &json!(2));
        asked.index.advance(&ground.state());
    }
    for (n, object) in before.iter().enumerate() {
        assert_eq!(asked.has_noted(object), n >= objects - RENEWED_MAX, "{n}");
    }
}

#[test]
fn who_goes_and_comes_again_and_again_takes_no_more() {
    let mut ground = Ground::new();
    ground.put(0, "a", &json!(0));
    let mut asked = Asked::of(&ground.state());
    let mut most = 0;
    for round in 0..3 * RENEWED_MAX {
        ground.put(0, "a", &json!(1));
        asked.index.advance(&ground.state());
        ground.apply(0, Op::Delete);
        asked.index.advance(&ground.state());
        ground.put(0, "a", &json!(0));
        asked.index.advance(&ground.state());
        if round == RENEWED_MAX + 1 {
            most = asked.index.renewed.bytes();
        }
    }
    assert_eq!(asked.index.renewed.bytes(), most);
}

#[test]
fn one_that_changes_in_what_is_read_or_goes_is_noted_no_more() {
    let mut ground = Ground::new();
    for n in 0..3 {
        ground.put(n, "a", &json!(0));
    }
    let mut asked = Asked::of(&ground.state());
    let empty = asked.index.renewed.bytes();
    for n in 0..3 {
        ground.put(n, "a", &json!(1));
    }
    asked.index.advance(&ground.state());
    assert!(asked.index.renewed.bytes() > empty);
    ground.put(0, "b", &json!(2));
    ground.apply(1, Op::Delete);
    asked.index.advance(&ground.state());
    ground.put(1, "a", &json!(3));
    asked.index.advance(&ground.state());
    let named = |n: usize, status: u64| (format!("pod-{n:05}"), json!(status));
    assert_eq!(asked.found("a"), [named(1, 3), named(2, 1)]);
    assert_eq!(asked.found("b"), [named(0, 2)]);
    // The other way round too.
    ground.put(2, "b", &json!(1));
    asked.index.advance(&ground.state());
    assert_eq!(asked.found("b"), [named(0, 2), named(2, 1)]);
    assert_eq!(asked.found("a"), [named(1, 3)]);
}
