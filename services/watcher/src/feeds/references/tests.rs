use std::collections::BTreeSet;

use anteroom_bus::LogSize;
use anteroom_model::{GroupVersionResource, Op, Revision, Source, SourceInfo, ViewState};
use anteroom_wire::envelope::Record;

use super::*;
use crate::log_writer::publish::Work;

/// Writes everything. Returns the keys that were written since the view was dropped last, and the last state.
fn write(queue: &mut WriteQueue) -> (BTreeSet<String>, Option<ViewState>) {
    let (mut written, mut state) = (BTreeSet::new(), None);
    while let Some(work) = queue.next_work(Instant::now()) {
        let Work::Append(batch) = work else { continue };
        queue.written(&batch, Revision(batch.records.len() as u64));
        for (record, _) in batch.records {
            match record {
                Record::Control(record) if record.state == ViewState::Dropped => {
                    written.clear();
                }
                Record::Control(record) => state = Some(record.state),
                Record::Delta { delta, .. } => {
                    written.insert(delta.key.to_string());
                }
            }
        }
    }
    (written, state)
}

/// Writes everything. Returns the bodies that were written.
fn put_bodies(queue: &mut WriteQueue) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    while let Some(work) = queue.next_work(Instant::now()) {
        let Work::Append(batch) = work else { continue };
        queue.written(&batch, Revision(batch.records.len() as u64));
        for (record, _) in batch.records {
            if let Record::Delta { delta, .. } = record
                && let Op::Put(body) = delta.op
            {
                bodies.push(body);
            }
        }
    }
    bodies
}

fn info() -> SourceInfo {
    let gvr = GroupVersionResource::new("", "v1", "configmaps");
    SourceInfo {
        source: Source::Objects { gvr },
        kind: String::new(),
        namespaced: true,
    }
}

#[test]
fn the_last_failure_of_an_object_is_published_and_an_equal_one_is_not_written_again() {
    let (mut queue, mut references) = (WriteQueue::new(1), References::default());
    let handle = queue.open(info(), HashMap::new());
    queue.begin_list(&handle);
    references.opened(handle.clone(), false, &mut queue);
    let object = ObjectKey::new("n", "a");
    references.refer(&object, false, Instant::now(), &mut queue);
    queue.listed(&handle, &ResourceVersion::default(), Instant::now());
    write(&mut queue);
    for failure in [
        Failure::new("NotFound", "the API server serves no such kind"),
        Failure::new("Forbidden", "nobody may list it"),
        Failure::new("Forbidden", "nobody may watch it"),
    ] {
        references.fail(&object, &failure, &mut queue);
        let bodies = put_bodies(&mut queue);
        assert_eq!(bodies, [referenced::failed(&failure).unwrap()]);
        references.fail(&object, &failure, &mut queue);
        assert!(put_bodies(&mut queue).is_empty());
        assert!(references.misses());
    }
}

/// A heartbeat that calls old what is new makes replicas refuse the view.
#[tokio::test(start_paused = true)]
async fn a_reference_that_comes_hours_after_a_new_sealing_key_is_new() {
    let (mut queue, mut references) = (WriteQueue::new(1), References::default());
    let mut handle = queue.open(info(), HashMap::new());
    queue.listed(&handle, &ResourceVersion::default(), Instant::now());
    queue.reread(&mut handle);
    queue.begin_list(&handle);
    queue.complete(&handle);
    references.opened(handle.clone(), true, &mut queue);
    write(&mut queue);

    tokio::time::advance(Duration::from_secs(2 * 60 * 60)).await;
    let now = Instant::now();
    queue.mark_fresh(&handle, None, now);
    let object = ObjectKey::new("n", "a");
    references.refer(&object, false, now, &mut queue);
    assert_eq!(queue.beats(now)[0].news_age_ms, 0, "it waits to be written");
    write(&mut queue);
    references.unrefer(&object, &mut queue);
    assert_eq!(queue.beats(now)[0].news_age_ms, 0, "so does its going");
}

/// After an outage, an object may be gone since the last word before it.
#[tokio::test(start_paused = true)]
async fn an_object_that_a_list_lacks_may_be_gone_since_the_news_before_the_list() {
    let (mut queue, mut references) = (WriteQueue::new(1), References::default());
    let handle = queue.open(info(), HashMap::new());
    queue.begin_list(&handle);
    references.opened(handle.clone(), false, &mut queue);
    let (object, scope) = (ObjectKey::new("n", "a"), WatchScope::default());
    references.refer(&object, false, Instant::now(), &mut queue);
    queue.listed(&handle, &ResourceVersion::default(), Instant::now());
    references.take(&object, &ResourceVersion::new("5"), None);
    write(&mut queue);

    let before = Instant::now();
    tokio::time::advance(Duration::from_secs(100)).await;
    let now = Instant::now();
    references.begin_list(&scope, false);
    references.swept(&scope, &ResourceVersion::new("9"), before, &mut queue);
    queue.mark_fresh(&handle, None, now);
    assert_eq!(queue.beats(now)[0].news_age_ms, 100_000, "it waits");
    write(&mut queue);
    assert_eq!(queue.beats(now)[0].news_age_ms, 0);
}

/// A view that says nothing of a reference would mean that there is none.
#[test]
fn every_reference_is_announced_when_its_view_is_written_again() {
    let (mut queue, mut references) = (WriteQueue::new(1), References::default());
    let now = Instant::now();
    let handle = queue.open(info(), HashMap::new());
    let view = handle.view.clone();
    queue.begin_list(&handle);
    references.opened(handle.clone(), false, &mut queue);
    let objects = ["a", "b", "idle"].map(|name| ObjectKey::new("n", name));
    for object in &objects {
        references.refer(object, false, now, &mut queue);
    }
    queue.listed(&handle, &ResourceVersion::default(), now);
    let all = BTreeSet::from(["n/a", "n/b", "n/idle"].map(str::to_owned));
    assert_eq!(write(&mut queue), (all.clone(), Some(ViewState::Synced)));
    references.by_object.get_mut(&objects[2]).unwrap().state = State::Idle;

    let size = |bytes| LogSize {
        bytes,
        bytes_max: Some(10_000),
    };
    queue.set_room(size(10_000));
    let (body, version) = (Bytes::from(vec![0; 1_000]), ResourceVersion::new("5"));
    references.take(&objects[0], &version, None);
    let origin = ChangeOrigin::List;
    queue.put(&handle, objects[0].clone(), version, body, now, origin);
    let (written, state) = write(&mut queue);
    assert!(written.is_empty());
    assert!(matches!(state, Some(ViewState::Failed { .. })));

    queue.set_room(size(0));
    queue.resume_after_full(&view, now);
    references.resume_after_full(now, &mut queue);
    assert_eq!(write(&mut queue), (all, Some(ViewState::Synced)));
    let mut states = references
        .by_object
        .values()
        .map(|reference| reference.state);
    assert!(states.all(|state| state == State::Pending));
}

/// The log has a stub of the object meanwhile, of the same version.
#[test]
fn an_object_that_is_read_again_is_news_in_the_same_version() {
    let (mut queue, mut references) = (WriteQueue::new(1), References::default());
    let handle = queue.open(info(), HashMap::new());
    references.opened(handle, false, &mut queue);
    let (object, version) = (ObjectKey::new("n", "a"), ResourceVersion::new("5"));
    references.refer(&object, true, Instant::now(), &mut queue);
    assert!(references.take(&object, &version, None));
    assert!(!references.take(&object, &version, None));
    references.read_again(std::slice::from_ref(&object));
    assert!(references.take(&object, &version, None));
}

/// Writes a body of 4 KiB as the object's, where the quota of a namespace is 1 KiB. Returns whether the log has a stub.
fn is_stub(
    queue: &mut WriteQueue,
    handle: &WriteHandle,
    object: &ObjectKey,
    version: &str,
) -> bool {
    let (body, version) = (Bytes::from(vec![0; 4_096]), ResourceVersion::new(version));
    let (now, origin) = (Instant::now(), ChangeOrigin::List);
    queue.put(handle, object.clone(), version, body, now, origin);
    let bodies = put_bodies(queue);
    let stub = bodies
        .last()
        .and_then(|body| anteroom_wire::unreadable::document(body));
    stub.is_some()
}

#[test]
fn an_object_that_the_cluster_refers_to_needs_no_room_in_the_quota_of_its_namespace() {
    let (mut queue, mut references) = (WriteQueue::new(1), References::default());
    let now = Instant::now();
    queue.limit_namespaces(Some(1_024));
    let [tenants, clusters] = ["tenants", "clusters"].map(|name| ObjectKey::new("n", name));
    references.refer(&clusters, false, now, &mut queue);
    let handle = queue.open(info(), HashMap::new());
    queue.limit_each_namespace(&handle.view, false);
    references.opened(handle.clone(), false, &mut queue);
    references.refer(&tenants, true, now, &mut queue);
    let is_stub = |queue: &mut WriteQueue, object: &ObjectKey, version| {
        is_stub(queue, &handle, object, version)
    };
    assert!(is_stub(&mut queue, &tenants, "5"));
    assert!(!is_stub(&mut queue, &clusters, "6"));
    // The cluster refers to the other too, and then to neither.
    references.refer(&tenants, false, now, &mut queue);
    assert!(!is_stub(&mut queue, &tenants, "7"));
    references.refer(&tenants, true, now, &mut queue);
    references.refer(&clusters, true, now, &mut queue);
    assert!(is_stub(&mut queue, &tenants, "8"));
    assert!(is_stub(&mut queue, &clusters, "9"));
}
