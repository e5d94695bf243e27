mod full;
mod namespace_parts;
mod news_age;
mod restored;

use std::collections::BTreeMap;

use anteroom_model::{Delta, Op, Revision, Source};
use anteroom_wire::envelope::Record;
use proptest::prelude::*;

use super::*;
use crate::log_writer::publish::work::{Batch, Work};

fn info(name: &str) -> SourceInfo {
    SourceInfo {
        source: Source::System { name: name.into() },
        kind: String::new(),
        namespaced: true,
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("n", name)
}

fn rv(version: u64) -> ResourceVersion {
    ResourceVersion::new(version.to_string())
}

fn body(version: u64) -> Bytes {
    Bytes::from(version.to_string())
}

/// A log with a reader, which applies records by the rules of all readers.
#[derive(Default)]
struct Reader {
    position: u64,
    views: HashMap<ViewId, ReaderView>,
}

#[derive(Default)]
struct ReaderView {
    epoch: Epoch,
    objects: BTreeMap<ObjectKey, (Epoch, ResourceVersion, Bytes)>,
    tombstones: BTreeMap<ObjectKey, (Epoch, ResourceVersion)>,
    state: Option<ViewState>,
}

impl Reader {
    fn append(&mut self, batch: &Batch) -> Revision {
        assert!(batch.records.len() <= BATCH_MESSAGES_MAX);
        for (record, _) in &batch.records {
            self.position += 1;
            let view = self.views.entry(record.view().clone()).or_default();
            match record {
                Record::Delta { delta, .. } => view.apply(delta),
                Record::Control(record) => view.control(record),
            }
        }
        Revision(self.position)
    }

    fn content(&self, view: &ViewId) -> BTreeMap<ObjectKey, (ResourceVersion, Bytes)> {
        let objects = self
            .views
            .get(view)
            .into_iter()
            .flat_map(|view| &view.objects);
        objects
            .map(|(k, (_, version, body))| (k.clone(), (version.clone(), body.clone())))
            .collect()
    }
}

impl ReaderView {
    fn apply(&mut self, delta: &Delta<Bytes>) {
        let object = self
            .objects
            .get(&delta.key)
            .map(|(epoch, version, _)| (*epoch, version));
        let gone = self
            .tombstones
            .get(&delta.key)
            .map(|(epoch, version)| (*epoch, version));
        if let Some((epoch, version)) = object.or(gone)
            && !delta.supersedes(epoch, version)
        {
            panic!(
                "{} is written although the log has something newer",
                delta.key
            );
        }
        match &delta.op {
            Op::Put(body) => {
                self.tombstones.remove(&delta.key);
                let object = (delta.epoch, delta.version.clone(), body.clone());
                self.objects.insert(delta.key.clone(), object);
            }
            Op::Delete => {
                self.objects.remove(&delta.key);
                self.tombstones
                    .insert(delta.key.clone(), (delta.epoch, delta.version.clone()));
            }
        }
    }

    fn control(&mut self, record: &ViewRecord) {
        assert!(record.epoch >= self.epoch, "epochs only grow");
        self.epoch = record.epoch;
        self.state = Some(record.state.clone());
        if record.state == ViewState::Dropped {
            self.objects.clear();
            self.tombstones.clear();
        }
        let mut digest = Digest::default();
        self.objects
            .iter()
            .for_each(|(key, (_, version, _))| digest.add(key, version));
        assert_eq!(
            record.objects,
            self.objects.len() as u64,
            "{:?}",
            record.state
        );
        assert_eq!(record.digest, digest, "{:?}", record.state);
    }
}

/// Writes everything that waits.
fn write_all(queue: &mut WriteQueue, reader: &mut Reader) {
    write_counted(queue, reader);
}

/// The same. Returns how many changes of objects that were.
fn write_counted(queue: &mut WriteQueue, reader: &mut Reader) -> usize {
    let mut deltas = 0;
    while let Some(work) = queue.next_work(Instant::now()) {
        if let Work::Append(batch) = work {
            let records = batch.records.iter();
            deltas += records
                .filter(|(r, _)| matches!(r, Record::Delta { .. }))
                .count();
            let last = reader.append(&batch);
            queue.written(&batch, last);
        }
    }
    deltas
}

/// Puts an object into the queue, as a sink does.
fn put(queue: &mut WriteQueue, handle: &WriteHandle, name: &str, version: u64) {
    let (key, version, body) = (key(name), rv(version), body(version));
    if !queue.is_known(handle, &key, &version) {
        queue.put(
            handle,
            key,
            version,
            body,
            Instant::now(),
            ChangeOrigin::List,
        );
    }
}

fn delete(queue: &mut WriteQueue, handle: &WriteHandle, name: &str, version: u64) {
    queue.delete(
        handle,
        &key(name),
        rv(version),
        Instant::now(),
        ChangeOrigin::List,
    );
}

fn records(queue: &mut WriteQueue) -> usize {
    let mut records = 0;
    while let Some(work) = queue.next_work(Instant::now()) {
        if let Work::Append(batch) = work {
            records += batch
                .records
                .iter()
                .filter(|(r, _)| matches!(r, Record::Delta { .. }))
                .count();
        }
    }
    records
}

#[test]
fn a_key_that_changes_while_nothing_is_written_is_written_once() {
    let mut queue = WriteQueue::new(1);
    let handle = queue.open(info("a"), HashMap::new());
    for version in 1..100 {
        put(&mut queue, &handle, "x", version);
    }
    put(&mut queue, &handle, "gone", 1);
    delete(&mut queue, &handle, "gone", 2);
    assert_eq!(records(&mut queue), 1);
    assert_eq!(queue.pending_bytes, 0);
}

#[test]
fn a_new_leader_writes_only_what_differs() {
    let mut queue = WriteQueue::new(2);
    let seed = HashMap::from([
        (key("same"), rv(1)),
        (key("old"), rv(2)),
        (key("gone"), rv(3)),
    ]);
    let handle = queue.open(info("a"), seed);
    queue.begin_list(&handle);
    put(&mut queue, &handle, "same", 1);
    put(&mut queue, &handle, "old", 5);
    queue.listed(&handle, &rv(9), Instant::now());
    let stats = queue.stats(Instant::now());
    assert_eq!(
        (stats[0].objects, stats[0].bytes),
        (2, 2),
        "sizes are known without writing"
    );
    assert_eq!(records(&mut queue), 2, "one changed, one is gone");
}

#[test]
fn a_history_that_restarted_is_written_anew_in_a_higher_epoch() {
    let (mut queue, mut reader) = (WriteQueue::new(1), Reader::default());
    let mut handle = queue.open(info("a"), HashMap::new());
    queue.begin_list(&handle);
    put(&mut queue, &handle, "x", 50);
    put(&mut queue, &handle, "y", 60);
    queue.listed(&handle, &rv(60), Instant::now());
    write_all(&mut queue, &mut reader);
    put(&mut queue, &handle, "z", 70); // Never written.
    let before = handle.clone();
    queue.reread(&mut handle);
    queue.begin_list(&handle);
    assert!(handle.epoch > before.epoch);
    put(&mut queue, &before, "late", 71);
    put(&mut queue, &handle, "x", 40);
    put(&mut queue, &handle, "y", 60);
    queue.listed(&handle, &rv(60), Instant::now());
    assert_eq!(
        records(&mut queue),
        2,
        "the same version may be another object"
    );
}

/// When a view changes its watch, the log gets only the differences. Readers see the true age of the served objects.
#[test]
fn a_view_that_is_opened_anew_writes_only_what_differs_and_is_as_old_as_what_is_served() {
    let start = Instant::now();
    let later = |ms| start + Duration::from_millis(ms);
    let (mut queue, mut reader) = (WriteQueue::new(1), Reader::default());
    let mut handle = queue.open(info("a"), HashMap::new());
    queue.begin_list(&handle);
    for (name, version) in [("same", 1), ("old", 2), ("gone", 3)] {
        put(&mut queue, &handle, name, version);
    }
    queue.listed(&handle, &rv(3), start);
    write_all(&mut queue, &mut reader);
    put(&mut queue, &handle, "waits", 4);

    let before = handle.clone();
    queue.switch_watches(&mut handle);
    assert!(handle.epoch > before.epoch);
    put(&mut queue, &before, "late", 5);
    assert_eq!(
        write_counted(&mut queue, &mut reader),
        1,
        "what waited is written"
    );
    queue.begin_list(&handle);
    for (name, version) in [("same", 1), ("old", 6), ("waits", 4)] {
        put(&mut queue, &handle, name, version);
    }
    let age = |queue: &WriteQueue, now| queue.beats(now)[0].news_age_ms;
    queue.listed(&handle, &rv(9), later(400));
    assert!(
        age(&queue, later(500)) >= 500,
        "the differences are not in the log yet"
    );
    let deltas = write_counted(&mut queue, &mut reader);
    assert_eq!(deltas, 2, "one changed, one is gone");
    assert_eq!(age(&queue, later(500)), 100);
    assert_eq!(reader.views[&handle.view].state, Some(ViewState::Synced));
}

/// A record that the bus never takes would hold up everything behind it.
#[test]
fn an_object_too_large_for_the_log_stands_in_it_as_a_stub() {
    let (mut queue, mut reader) = (WriteQueue::new(1), Reader::default());
    queue.limit_messages(100_000);
    let handle = queue.open(info("a"), HashMap::new());
    let now = Instant::now();
    put(&mut queue, &handle, "x", 1);
    let large = Bytes::from(vec![0; 100_000]);
    queue.put(&handle, key("huge"), rv(1), large, now, ChangeOrigin::List);
    queue.listed(&handle, &rv(9), now);
    write_all(&mut queue, &mut reader);
    let content = reader.content(&handle.view);
    let stub = |name| unreadable::document(&content[&key(name)].1).is_some();
    assert_eq!((content.len(), stub("huge"), stub("x")), (2, true, false));
    assert_eq!(queue.stats(now)[0].reported_state, Some(ViewState::Synced));
    // The next version is small.
    put(&mut queue, &handle, "huge", 11);
    assert_eq!(write_counted(&mut queue, &mut reader), 1);
}

/// Nobody makes such a key: names are cut where objects are read.
#[test]
fn a_key_that_is_too_long_is_passed_over() {
    let (mut queue, mut reader) = (WriteQueue::new(1), Reader::default());
    let handle = queue.open(info("a"), HashMap::new());
    put(&mut queue, &handle, &"n".repeat(5_000), 1);
    put(&mut queue, &handle, "x", 1);
    queue.listed(&handle, &rv(9), Instant::now());
    write_all(&mut queue, &mut reader);
    let content = reader.content(&handle.view).into_keys();
    assert_eq!(content.collect::<Vec<_>>(), [key("x")]);
    assert_eq!(queue.stats(Instant::now())[0].skipped, 1);
}

#[test]
fn a_view_that_is_dropped_and_wanted_again_begins_anew() {
    let (mut queue, mut reader) = (WriteQueue::new(1), Reader::default());
    let handle = queue.open(info("a"), HashMap::new());
    put(&mut queue, &handle, "x", 1);
    queue.close(&handle.view);
    let again = queue.open(info("a"), HashMap::new());
    put(&mut queue, &handle, "stale", 2);
    put(&mut queue, &again, "y", 3);
    queue.listed(&again, &rv(3), Instant::now());
    let mut purged_at = None;
    while let Some(work) = queue.next_work(Instant::now()) {
        match work {
            Work::Append(batch) => {
                let last = reader.append(&batch);
                queue.written(&batch, last);
            }
            Work::Purge(_) => purged_at = Some(reader.position),
        }
    }
    let content = reader.content(&handle.view);
    assert_eq!(content.into_keys().collect::<Vec<_>>(), [key("y")]);
    assert!(
        purged_at.is_some_and(|at| at < reader.position),
        "nothing new is purged"
    );
    assert_eq!(queue.pending_bytes, 0);
}

#[test]
fn batches_stay_within_their_limits() {
    let mut queue = WriteQueue::new(1);
    let handle = queue.open(info("a"), HashMap::new());
    let large = Bytes::from(vec![0; BATCH_BYTES_MAX / 2]);
    for name in ["a", "b", "c"] {
        queue.put(
            &handle,
            key(name),
            rv(1),
            large.clone(),
            Instant::now(),
            ChangeOrigin::List,
        );
    }
    for n in 0..1_000 {
        put(&mut queue, &handle, &format!("k{n}"), 1);
    }
    let mut batches = Vec::new();
    while let Some(Work::Append(batch)) = queue.next_work(Instant::now()) {
        assert!(batch.body_bytes <= BATCH_BYTES_MAX);
        batches.push(batch.records.len());
    }
    assert_eq!(batches[0], 3, "a control record and two large ones");
    assert!(batches.iter().all(|records| *records <= BATCH_MESSAGES_MAX));
    assert_eq!(batches.iter().sum::<usize>(), 1_004);
}

#[test]
fn control_records_are_repeated() {
    let start = Instant::now();
    let mut queue = WriteQueue::new(1);
    let handle = queue.open(info("a"), HashMap::new());
    queue.listed(&handle, &rv(1), start);
    let controls = |queue: &mut WriteQueue, now| {
        queue.refresh(now);
        let mut controls = 0;
        while let Some(Work::Append(batch)) = queue.next_work(now) {
            let records = batch
                .records
                .iter()
                .filter(|(r, _)| matches!(r, Record::Control(_)));
            controls += records.count();
        }
        controls
    };
    assert_eq!(controls(&mut queue, start), 2, "syncing, then synced");
    assert_eq!(controls(&mut queue, start + CONTROL_AFTER_CHANGE), 0);
    assert_eq!(controls(&mut queue, start + CONTROL_WITHOUT_CHANGE), 1);
    put(&mut queue, &handle, "x", 2);
    let changed = start + CONTROL_WITHOUT_CHANGE;
    assert_eq!(controls(&mut queue, changed), 0);
    assert_eq!(controls(&mut queue, changed + CONTROL_AFTER_CHANGE), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    List(Vec<u8>),
    Move(Vec<u8>),
    Restart,
    Drop,
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..6_u8).prop_map(Step::Put),
        3 => (0..6_u8).prop_map(Step::Delete),
        2 => proptest::collection::vec(0..6_u8, 0..6).prop_map(Step::List),
        2 => proptest::collection::vec(0..6_u8, 0..6).prop_map(Step::Move),
        1 => Just(Step::Restart),
        1 => Just(Step::Drop),
        3 => Just(Step::Write),
    ]
}

proptest! {
    /// Whatever happens, in whatever order it is written: a reader ends with what the source has,
    /// every control record tells the truth where it stands, and nothing is written in vain.
    #[test]
    fn a_reader_ends_with_what_the_source_has(steps in proptest::collection::vec(step(), 0..60)) {
        let (mut queue, mut reader) = (WriteQueue::new(1), Reader::default());
        let mut source: BTreeMap<String, u64> = BTreeMap::new();
        let mut clock = 100;
        let mut handle = queue.open(info("a"), HashMap::new());
        queue.begin_list(&handle);
        queue.listed(&handle, &rv(clock), Instant::now());
        for step in steps {
            clock += 1;
            match step {
                Step::Put(n) => {
                    source.insert(format!("k{n}"), clock);
                    put(&mut queue, &handle, &format!("k{n}"), clock);
                }
                Step::Delete(n) => {
                    source.remove(&format!("k{n}"));
                    delete(&mut queue, &handle, &format!("k{n}"), clock);
                }
                // Events were missed: the source is now something else.
                Step::List(names) => {
                    source.retain(|name, _| names.iter().any(|n| *name == format!("k{n}")));
                    source.extend(names.iter().map(|n| (format!("k{n}"), clock)));
                    queue.begin_list(&handle);
                    for (name, version) in &source {
                        put(&mut queue, &handle, name, *version);
                    }
                    queue.listed(&handle, &rv(clock), Instant::now());
                }
                // As `List`, but the view changes its watch first: a change under the old handle comes too late.
                Step::Move(names) => {
                    source.retain(|name, _| names.iter().any(|n| *name == format!("k{n}")));
                    source.extend(names.iter().map(|n| (format!("k{n}"), clock)));
                    let before = handle.clone();
                    queue.switch_watches(&mut handle);
                    put(&mut queue, &before, "k0", clock + 1);
                    queue.begin_list(&handle);
                    for (name, version) in &source {
                        put(&mut queue, &handle, name, *version);
                    }
                    queue.listed(&handle, &rv(clock), Instant::now());
                }
                // The source was restored from a backup: versions are older, and not the same.
                Step::Restart => {
                    clock = clock.saturating_sub(50);
                    source.values_mut().for_each(|version| *version = (*version).min(clock));
                    queue.reread(&mut handle);
                    queue.begin_list(&handle);
                    for (name, version) in &source {
                        put(&mut queue, &handle, name, *version);
                    }
                    queue.listed(&handle, &rv(clock), Instant::now());
                }
                Step::Drop => {
                    queue.close(&handle.view);
                    handle = queue.open(info("a"), HashMap::new());
                    queue.begin_list(&handle);
                    for (name, version) in &source {
                        put(&mut queue, &handle, name, *version);
                    }
                    queue.listed(&handle, &rv(clock), Instant::now());
                }
                Step::Write => write_all(&mut queue, &mut reader),
            }
        }
        write_all(&mut queue, &mut reader);
        let expected: BTreeMap<_, _> =
            source.iter().map(|(name, version)| (key(name), (rv(*version), body(*version)))).collect();
        prop_assert_eq!(reader.content(&handle.view), expected);
        prop_assert_eq!(&reader.views[&handle.view].state, &Some(ViewState::Synced));
        prop_assert_eq!(queue.pending_bytes, 0);
        let bytes: usize = source.values().map(|version| body(*version).len()).sum();
        prop_assert_eq!(queue.stats(Instant::now())[0].bytes, bytes as u64);
    }
}

/// A written record has a position, by which a policy's place in the log is found.
#[test]
fn a_queued_object_has_a_log_position_once_it_is_written() {
    let now = Instant::now();
    let mut queue = WriteQueue::new(1);
    let mut log = Reader::default();
    let handle = queue.open(info("v"), HashMap::new());
    let (left, a, b) = ([key("other")], [key("a")], [key("b")]);
    assert_eq!(
        queue.logged(&handle, &left),
        None,
        "nothing was written in this term"
    );
    let write = |queue: &mut WriteQueue, log: &mut Reader| {
        let Some(Work::Append(batch)) = queue.next_work(now) else {
            panic!("nothing to write");
        };
        let on_its_way = queue.all_logged(&handle);
        let last = log.append(&batch);
        queue.written(&batch, last);
        on_its_way
    };
    write(&mut queue, &mut log);
    assert_eq!(queue.logged(&handle, &left), Some(Revision(1)));

    queue.put(&handle, key("a"), rv(2), body(2), now, ChangeOrigin::List);
    assert_eq!(queue.logged(&handle, &a), None, "it waits");
    assert_eq!(queue.all_logged(&handle), None);
    assert_eq!(
        queue.logged(&handle, &left),
        Some(Revision(1)),
        "others do not"
    );
    assert_eq!(write(&mut queue, &mut log), None, "it is on its way");
    assert_eq!(queue.logged(&handle, &a), Some(Revision(2)));
    assert_eq!(queue.all_logged(&handle), Some(Revision(2)));

    queue.delete(&handle, &key("b"), rv(3), now, ChangeOrigin::List);
    assert_eq!(
        queue.logged(&handle, &b),
        Some(Revision(2)),
        "it was never there"
    );
    assert_eq!(queue.logged(&handle, &[]), Some(Revision(2)));
}
