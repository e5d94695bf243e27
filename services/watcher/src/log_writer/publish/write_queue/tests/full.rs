//! The queue while the log is full.

mod tenants;

use anteroom_bus::LogSize;
use anteroom_model::Collection;

use super::*;

const KIB: usize = 1024;

/// A log of 1 MiB with one reader: objects of a view that is dropped are purged.
struct FullLog {
    queue: WriteQueue,
    reader: Reader,
    bytes_max: u64,
    now: Instant,
}

impl FullLog {
    fn new() -> Self {
        let mut log = Self {
            queue: WriteQueue::new(1),
            reader: Reader::default(),
            bytes_max: 1024 * KIB as u64,
            now: Instant::now(),
        };
        log.look();
        log
    }

    fn open(&mut self, name: &str) -> WriteHandle {
        self.open_collection(name, Vec::new())
    }

    /// Opens a view that only policies of this namespace read.
    fn open_in_quota(&mut self, name: &str, namespace: &str) -> WriteHandle {
        let handle = self.open_collection(name, vec![namespace.to_owned()]);
        self.queue.set_in_quota(&handle.view, true);
        handle
    }

    fn open_collection(&mut self, name: &str, namespaces: Vec<String>) -> WriteHandle {
        let gvr = anteroom_model::GroupVersionResource::new("", "v1", name);
        let info = SourceInfo {
            source: Source::Collection(Collection {
                namespaces,
                ..Collection::all(gvr)
            }),
            kind: String::new(),
            namespaced: true,
        };
        let handle = self.queue.open(info, HashMap::new());
        self.queue.begin_list(&handle);
        handle
    }

    fn put(&mut self, handle: &WriteHandle, name: &str, version: u64, bytes: usize) {
        let body = Bytes::from(vec![0; bytes]);
        let (now, origin) = (self.now, ChangeOrigin::List);
        self.queue
            .put(handle, key(name), rv(version), body, now, origin);
    }

    fn fill(&mut self, handle: &WriteHandle, objects: usize) {
        (0..objects).for_each(|at| self.put(handle, &at.to_string(), 1, 64 * KIB));
    }

    fn listed(&mut self, handle: &WriteHandle) {
        self.queue.listed(handle, &rv(1), self.now);
    }

    fn bytes(&self) -> u64 {
        let objects = self.reader.views.values().flat_map(|view| &view.objects);
        objects.map(|(_, (_, _, body))| body.len() as u64).sum()
    }

    fn look(&mut self) {
        let size = LogSize {
            bytes: self.bytes(),
            bytes_max: Some(self.bytes_max),
        };
        self.queue.set_room(size);
    }

    fn write(&mut self) {
        while let Some(work) = self.queue.next_work(self.now) {
            if let Work::Append(batch) = work {
                let last = self.reader.append(&batch);
                self.queue.written(&batch, last);
            }
            assert!(self.bytes() <= self.bytes_max);
        }
        self.look();
    }

    fn state(&self, handle: &WriteHandle) -> Option<&ViewState> {
        self.reader.views.get(&handle.view)?.state.as_ref()
    }

    fn is_synced(&self, handle: &WriteHandle) -> bool {
        self.state(handle) == Some(&ViewState::Synced)
    }

    fn has_no_room_for(&self, handle: &WriteHandle) -> bool {
        self.failed_with("LogFull", handle)
    }

    fn exceeds_its_quota(&self, handle: &WriteHandle) -> bool {
        self.failed_with("QuotaExceeded", handle)
    }

    fn failed_with(&self, reason: &str, handle: &WriteHandle) -> bool {
        let failed = match self.state(handle) {
            Some(ViewState::Failed { failure }) => failure.reason == reason,
            _ => false,
        };
        failed && self.reader.content(&handle.view).is_empty()
    }

    /// Writes a view again as its feeder does.
    fn resume_after_full(&mut self, handle: &mut WriteHandle) {
        self.now += Duration::from_secs(10);
        assert_eq!(
            self.queue.next_to_resume(self.now),
            Some(handle.view.clone())
        );
        self.queue.resume_after_full(&handle.view, self.now);
        self.queue.reread(handle);
        self.queue.begin_list(handle);
    }
}

#[test]
fn a_view_without_room_is_suspended_whole_and_the_others_go_on() {
    let mut log = FullLog::new();
    let (large, small) = (log.open("large"), log.open("small"));
    log.put(&small, "x", 1, KIB);
    log.listed(&small);
    log.fill(&large, 20);
    log.listed(&large);
    log.write();
    assert!(log.has_no_room_for(&large));
    assert!(log.is_synced(&small));
    log.put(&small, "y", 2, KIB);
    log.put(&large, "more", 2, KIB);
    log.write();
    assert_eq!(log.reader.content(&small.view).len(), 2);
    assert!(log.has_no_room_for(&large));
    assert_eq!(log.queue.pending_bytes, 0);
    let stats = log.queue.stats(log.now);
    assert_eq!(stats[0].refused_bytes, (20 * 64 * KIB + KIB) as u64);
}

#[test]
fn a_view_is_written_again_once_all_of_it_fits() {
    let mut log = FullLog::new();
    let mut large = log.open("large");
    log.fill(&large, 20);
    log.listed(&large);
    log.write();
    log.now += Duration::from_secs(10);
    assert_eq!(log.queue.next_to_resume(log.now), None, "it is too large");
    for at in 5..20 {
        log.queue.delete(
            &large,
            &key(&at.to_string()),
            rv(2),
            log.now,
            ChangeOrigin::List,
        );
    }
    log.write();
    log.resume_after_full(&mut large);
    log.fill(&large, 5);
    log.listed(&large);
    log.write();
    assert!(log.is_synced(&large));
    assert_eq!(log.reader.content(&large.view).len(), 5);
}

#[test]
fn a_larger_limit_brings_a_view_back() {
    let mut log = FullLog::new();
    let mut large = log.open("large");
    log.fill(&large, 20);
    log.listed(&large);
    log.write();
    log.bytes_max *= 4;
    log.look();
    log.resume_after_full(&mut large);
    log.fill(&large, 20);
    log.listed(&large);
    log.write();
    assert!(log.is_synced(&large));
}

/// Before its list is complete, nobody knows how large a view is.
#[test]
fn a_view_whose_list_is_not_complete_stays_suspended() {
    let mut log = FullLog::new();
    let large = log.open("large");
    log.fill(&large, 14);
    log.write();
    assert!(log.has_no_room_for(&large));
    log.now += Duration::from_secs(10);
    assert_eq!(log.queue.next_to_resume(log.now), None);
    log.queue
        .delete(&large, &key("0"), rv(2), log.now, ChangeOrigin::List);
    for at in 3..14 {
        let name = at.to_string();
        log.queue
            .delete(&large, &key(&name), rv(2), log.now, ChangeOrigin::List);
    }
    assert_eq!(log.queue.next_to_resume(log.now), None);
    log.listed(&large);
    assert_eq!(log.queue.next_to_resume(log.now), Some(large.view.clone()));
}

/// The deletion of an object and the state of a view go into the reserve.
#[test]
fn tombstones_and_control_records_are_written_to_a_full_log() {
    let mut log = FullLog::new();
    let small = log.open("small");
    log.put(&small, "x", 1, KIB);
    log.listed(&small);
    log.write();
    let full = LogSize {
        bytes: log.bytes_max,
        bytes_max: Some(log.bytes_max),
    };
    log.queue.set_room(full);
    log.queue
        .delete(&small, &key("x"), rv(2), log.now, ChangeOrigin::List);
    log.queue
        .refused(&small, Failure::new("Forbidden", "not any more"));
    log.write();
    assert!(log.reader.content(&small.view).is_empty());
    assert!(matches!(
        log.state(&small),
        Some(ViewState::Failed { failure }) if failure.reason == "Forbidden"
    ));
}

/// What the coordinator writes is small, and everything else follows from it.
#[test]
fn system_views_are_written_to_the_reserve() {
    let mut log = FullLog::new();
    let system = log.queue.open(info("a"), HashMap::new());
    let small = log.open("small");
    log.queue.set_room(LogSize {
        bytes: log.bytes_max,
        bytes_max: Some(log.bytes_max),
    });
    log.put(&system, "x", 1, KIB);
    log.put(&small, "x", 1, KIB);
    log.listed(&small);
    log.write();
    assert_eq!(log.reader.content(&system.view).len(), 1);
    assert!(log.has_no_room_for(&small));
}

/// Other groups may have filled the log since it was looked at.
#[test]
fn a_batch_that_the_server_refuses_is_written_without_its_largest_view() {
    let mut log = FullLog::new();
    let (large, small) = (log.open("large"), log.open("small"));
    log.write();
    log.put(&large, "x", 1, 2 * KIB);
    log.put(&small, "y", 1, KIB);
    log.listed(&large);
    log.listed(&small);
    let Some(Work::Append(batch)) = log.queue.next_work(log.now) else {
        panic!("there is a batch");
    };
    let rest = log.queue.refuse(batch, log.now).unwrap();
    assert!(rest.records.iter().all(|(r, _)| *r.view() == small.view));
    assert_eq!(rest.body_bytes, KIB);
    let last = log.reader.append(&rest);
    log.queue.written(&rest, last);
    log.write();
    assert!(log.is_synced(&small));
    assert!(log.has_no_room_for(&large));

    log.queue
        .delete(&small, &key("y"), rv(2), log.now, ChangeOrigin::List);
    let Some(Work::Append(batch)) = log.queue.next_work(log.now) else {
        panic!("there is a batch");
    };
    let kept = log.queue.refuse(batch, log.now).unwrap_err();
    assert_eq!(kept.records.len(), 1, "there is no object to leave out");
}

/// Readers are served what they have until the log says that the view failed: it grows old meanwhile.
#[test]
fn a_view_grows_old_from_the_first_change_that_is_dropped() {
    let mut log = FullLog::new();
    let large = log.open("large");
    log.fill(&large, 5);
    log.listed(&large);
    log.write();
    let begun = log.now;
    log.put(&large, "huge", 2, 900 * KIB);
    log.now += Duration::from_secs(3);
    let Some(Work::Append(batch)) = log.queue.next_work(log.now) else {
        panic!("there is a batch");
    };
    log.queue.mark_fresh(&large, None, log.now);
    log.now += Duration::from_secs(4);
    let age = log.queue.beats(log.now)[0].news_age_ms;
    assert!(u128::from(age) >= (log.now - begun).as_millis(), "{age}");
    let last = log.reader.append(&batch);
    log.queue.written(&batch, last);
    log.write();
    assert!(log.has_no_room_for(&large));
    log.queue.mark_fresh(&large, None, log.now);
    assert_eq!(log.queue.beats(log.now)[0].news_age_ms, 0);
}

/// A view that changes its watch, or whose source restarts, stays suspended.
#[test]
fn a_view_that_starts_over_stays_suspended() {
    let mut log = FullLog::new();
    let mut large = log.open("large");
    log.fill(&large, 20);
    log.listed(&large);
    log.write();
    for is_reread in [false, true] {
        log.queue.switch_watches(&mut large);
        if is_reread {
            log.queue.reread(&mut large);
        }
        log.queue.begin_list(&large);
        log.fill(&large, 20);
        log.listed(&large);
        log.write();
        assert!(log.has_no_room_for(&large));
    }
}

/// What replaces an object of its size needs no room.
#[test]
fn an_update_that_does_not_make_the_log_grow_is_written_to_a_full_log() {
    let mut log = FullLog::new();
    let small = log.open("small");
    log.put(&small, "x", 1, KIB);
    log.listed(&small);
    log.write();
    log.queue.set_room(LogSize {
        bytes: log.bytes_max,
        bytes_max: Some(log.bytes_max),
    });
    log.put(&small, "x", 2, 2 * KIB);
    log.put(&small, "x", 3, KIB);
    log.write();
    assert!(log.is_synced(&small));
    assert_eq!(log.reader.content(&small.view)[&key("x")].0, rv(3));
}

/// A quota that holds four objects of [`FullLog::fill`], and a log that holds everything.
fn log_with_quota() -> FullLog {
    let mut log = FullLog::new();
    log.bytes_max = u64::MAX;
    log.look();
    log.queue.limit_namespaces(Some(5 * 64 * KIB as u64));
    log
}

#[test]
fn views_of_one_namespace_share_a_quota_and_no_other_view_is_suspended_for_it() {
    let mut log = log_with_quota();
    let (one, two) = (log.open_in_quota("one", "a"), log.open_in_quota("two", "a"));
    let (other, cluster) = (log.open_in_quota("one", "b"), log.open("one"));
    for (handle, objects) in [(&one, 3), (&two, 1), (&other, 4), (&cluster, 40)] {
        log.fill(handle, objects);
        log.listed(handle);
    }
    log.write();
    for handle in [&one, &two, &other, &cluster] {
        assert!(log.is_synced(handle), "{}", handle.view);
    }
    log.put(&two, "more", 2, 64 * KIB);
    log.write();
    assert!(log.exceeds_its_quota(&one), "the largest");
    for handle in [&two, &other, &cluster] {
        assert!(log.is_synced(handle), "{}", handle.view);
    }
    assert_eq!(log.reader.content(&two.view).len(), 2);
}

#[test]
fn a_view_over_its_quota_is_written_again_once_it_fits() {
    let mut log = log_with_quota();
    let (mut one, two) = (log.open_in_quota("one", "a"), log.open_in_quota("two", "a"));
    log.fill(&two, 2);
    log.listed(&two);
    log.fill(&one, 3);
    log.listed(&one);
    log.write();
    assert!(log.exceeds_its_quota(&one));
    log.now += Duration::from_secs(10);
    assert_eq!(
        log.queue.next_to_resume(log.now),
        None,
        "it does not fit yet"
    );
    let now = log.now;
    log.queue
        .delete(&two, &key("0"), rv(2), now, ChangeOrigin::List);
    log.write();
    log.resume_after_full(&mut one);
    log.fill(&one, 3);
    log.listed(&one);
    log.write();
    assert!(log.is_synced(&one) && log.is_synced(&two));
}

#[test]
fn a_view_that_somebody_else_reads_too_is_in_no_quota() {
    let mut log = log_with_quota();
    let mut view = log.open_in_quota("one", "a");
    log.fill(&view, 9);
    log.listed(&view);
    log.write();
    assert!(log.exceeds_its_quota(&view));
    log.queue.set_in_quota(&view.view, false);
    log.resume_after_full(&mut view);
    log.fill(&view, 9);
    log.listed(&view);
    log.write();
    assert!(log.is_synced(&view));
    log.queue.close(&view.view);
    assert!(log.queue.quotas.is_empty());
}

#[test]
fn a_view_that_is_gone_leaves_its_quota() {
    let mut log = log_with_quota();
    let (gone, stays) = (log.open_in_quota("one", "a"), log.open_in_quota("two", "a"));
    log.fill(&gone, 4);
    log.listed(&gone);
    log.write();
    log.queue.close(&gone.view);
    log.fill(&stays, 4);
    log.listed(&stays);
    log.write();
    assert!(log.is_synced(&stays));
}
