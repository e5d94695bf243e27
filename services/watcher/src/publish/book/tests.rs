use std::collections::BTreeMap;

use anteroom_model::{Delta, Op, Source};
use proptest::prelude::*;

use super::*;

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

/// A log and one reader of it, by the rules that readers follow.
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
fn write_all(book: &mut Book, reader: &mut Reader) {
    while let Some(work) = book.next_work(Instant::now()) {
        if let Work::Append(batch) = work {
            let last = reader.append(&batch);
            book.written(&batch, last);
        }
    }
}

/// As a sink does it.
fn put(book: &mut Book, tenure: &Tenure, name: &str, version: u64) {
    let (key, version, body) = (key(name), rv(version), body(version));
    if !book.is_known(tenure, &key, &version) {
        book.put(tenure, key, version, body, Instant::now(), Span::none());
    }
}

fn unusable(book: &mut Book, tenure: &Tenure, name: &str, version: u64) {
    let brought = Brought {
        key: key(name),
        version: rv(version),
        by: Some(Width::Own),
        since: Instant::now(),
        span: Span::none(),
    };
    book.bring(tenure, brought, Err("too large".into()));
}

fn delete(book: &mut Book, tenure: &Tenure, name: &str, version: u64) {
    book.delete(
        tenure,
        &key(name),
        rv(version),
        Instant::now(),
        Span::none(),
    );
}

fn records(book: &mut Book) -> usize {
    let mut records = 0;
    while let Some(work) = book.next_work(Instant::now()) {
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
    let mut book = Book::new(1);
    let tenure = book.open(info("a"), HashMap::new());
    for version in 1..100 {
        put(&mut book, &tenure, "x", version);
    }
    put(&mut book, &tenure, "gone", 1);
    delete(&mut book, &tenure, "gone", 2);
    assert_eq!(records(&mut book), 1);
    assert_eq!(book.pending_bytes, 0);
}

#[test]
fn a_new_leader_writes_only_what_differs() {
    let mut book = Book::new(2);
    let seed = HashMap::from([
        (key("same"), rv(1)),
        (key("old"), rv(2)),
        (key("gone"), rv(3)),
    ]);
    let mut tenure = book.open(info("a"), seed);
    book.begin_list(&mut tenure, false);
    put(&mut book, &tenure, "same", 1);
    put(&mut book, &tenure, "old", 5);
    book.listed(&tenure, &rv(9), Instant::now());
    let stats = book.stats(Instant::now());
    assert_eq!(
        (stats[0].objects, stats[0].bytes),
        (2, 2),
        "sizes are known without writing"
    );
    assert_eq!(records(&mut book), 2, "one changed, one is gone");
}

#[test]
fn a_history_that_restarted_is_written_anew_in_a_higher_epoch() {
    let (mut book, mut reader) = (Book::new(1), Reader::default());
    let mut tenure = book.open(info("a"), HashMap::new());
    book.begin_list(&mut tenure, false);
    put(&mut book, &tenure, "x", 50);
    put(&mut book, &tenure, "y", 60);
    book.listed(&tenure, &rv(60), Instant::now());
    write_all(&mut book, &mut reader);
    put(&mut book, &tenure, "z", 70); // Never written.
    let before = tenure.clone();
    book.begin_list(&mut tenure, true);
    assert!(tenure.epoch > before.epoch);
    put(&mut book, &before, "late", 71);
    put(&mut book, &tenure, "x", 40);
    put(&mut book, &tenure, "y", 60);
    book.listed(&tenure, &rv(60), Instant::now());
    assert_eq!(
        records(&mut book),
        2,
        "the same version may be another object"
    );
}

#[test]
fn an_object_that_cannot_be_published_fails_its_view_until_it_goes() {
    let failed = |book: &mut Book, reader: &mut Reader| {
        write_all(book, reader);
        let stats = book.stats(Instant::now());
        matches!(stats[0].told, Some(ViewState::Failed { .. }))
    };
    let (mut book, mut reader) = (Book::new(1), Reader::default());
    let mut tenure = book.open(info("a"), HashMap::new());
    book.begin_list(&mut tenure, false);
    unusable(&mut book, &tenure, "huge", 1);
    put(&mut book, &tenure, "x", 1);
    book.listed(&tenure, &rv(9), Instant::now());
    assert!(failed(&mut book, &mut reader));
    delete(&mut book, &tenure, "x", 10);
    assert!(
        failed(&mut book, &mut reader),
        "another object's going changes nothing"
    );
    put(&mut book, &tenure, "huge", 11);
    assert!(!failed(&mut book, &mut reader));
    unusable(&mut book, &tenure, "huge", 12);
    put(&mut book, &tenure, "huge", 11); // Of a watch that is behind.
    assert!(failed(&mut book, &mut reader));
    delete(&mut book, &tenure, "huge", 13);
    assert!(!failed(&mut book, &mut reader));
}

/// A record that the bus never takes would hold up everything behind it.
#[test]
fn what_the_log_cannot_hold_fails_its_view_and_holds_up_no_other() {
    let (mut book, mut reader) = (Book::new(1), Reader::default());
    book.limit_messages(100_000);
    let [one, other] = ["a", "b"].map(|name| book.open(info(name), HashMap::new()));
    let long = "n".repeat(5_000);
    let now = Instant::now();
    put(&mut book, &one, &long, 1);
    put(&mut book, &one, "x", 1);
    let large = Bytes::from(vec![0; 100_000]);
    book.put(&one, key("huge"), rv(1), large, now, Span::none());
    put(&mut book, &other, "y", 1);
    book.listed(&one, &rv(9), now);
    book.listed(&other, &rv(9), now);
    write_all(&mut book, &mut reader);
    assert!(book.is_done());
    let content = |reader: &Reader, tenure: &Tenure| reader.content(&tenure.view).into_keys();
    assert_eq!(content(&reader, &one).collect::<Vec<_>>(), [key("x")]);
    assert_eq!(content(&reader, &other).collect::<Vec<_>>(), [key("y")]);
    let stats = book.stats(now);
    let Some(ViewState::Failed { failure }) = &stats[0].told else {
        panic!("{:?}", stats[0].told);
    };
    assert!(failure.message.starts_with("2 object(s)"), "{failure}");
    assert!(failure.message.len() < 1_000, "a name is shown in part");
    assert_eq!(stats[1].told, Some(ViewState::Synced));
    delete(&mut book, &one, &long, 10);
    put(&mut book, &one, "huge", 11);
    write_all(&mut book, &mut reader);
    assert_eq!(book.stats(now)[0].told, Some(ViewState::Synced));
}

#[test]
fn a_view_that_is_dropped_and_wanted_again_begins_anew() {
    let (mut book, mut reader) = (Book::new(1), Reader::default());
    let tenure = book.open(info("a"), HashMap::new());
    put(&mut book, &tenure, "x", 1);
    book.close(&tenure.view);
    let again = book.open(info("a"), HashMap::new());
    put(&mut book, &tenure, "stale", 2);
    put(&mut book, &again, "y", 3);
    book.listed(&again, &rv(3), Instant::now());
    let mut purged_at = None;
    while let Some(work) = book.next_work(Instant::now()) {
        match work {
            Work::Append(batch) => {
                let last = reader.append(&batch);
                book.written(&batch, last);
            }
            Work::Purge(_) => purged_at = Some(reader.position),
        }
    }
    let content = reader.content(&tenure.view);
    assert_eq!(content.into_keys().collect::<Vec<_>>(), [key("y")]);
    assert!(
        purged_at.is_some_and(|at| at < reader.position),
        "nothing new is purged"
    );
    assert_eq!(book.pending_bytes, 0);
}

#[test]
fn batches_keep_their_limits() {
    let mut book = Book::new(1);
    let tenure = book.open(info("a"), HashMap::new());
    let large = Bytes::from(vec![0; BATCH_BYTES_MAX / 2]);
    for name in ["a", "b", "c"] {
        book.put(
            &tenure,
            key(name),
            rv(1),
            large.clone(),
            Instant::now(),
            Span::none(),
        );
    }
    for n in 0..1_000 {
        put(&mut book, &tenure, &format!("k{n}"), 1);
    }
    let mut batches = Vec::new();
    while let Some(Work::Append(batch)) = book.next_work(Instant::now()) {
        assert!(batch.body_bytes <= BATCH_BYTES_MAX);
        batches.push(batch.records.len());
    }
    assert_eq!(batches[0], 3, "a control record and two large ones");
    assert!(batches.iter().all(|records| *records <= BATCH_MESSAGES_MAX));
    assert_eq!(batches.iter().sum::<usize>(), 1_004);
}

#[test]
fn the_age_of_news_counts_what_waits() {
    let start = Instant::now();
    let later = |ms| start + Duration::from_millis(ms);
    let mut book = Book::new(1);
    let tenure = book.open(info("a"), HashMap::new());
    assert_eq!(
        book.beats(start)[0].news_age_ms,
        u64::MAX,
        "never heard from"
    );
    book.heard(&tenure, None, start);
    assert_eq!(book.beats(later(100))[0].news_age_ms, 100);
    book.put(&tenure, key("x"), rv(1), body(1), later(40), Span::none());
    assert_eq!(book.beats(later(100))[0].news_age_ms, 160);
    let Some(Work::Append(batch)) = book.next_work(later(100)) else {
        panic!()
    };
    assert_eq!(
        book.beats(later(100))[0].news_age_ms,
        160,
        "on its way is not there"
    );
    book.written(&batch, Revision(2));
    let beat = book.beats(later(100)).remove(0);
    assert_eq!((beat.news_age_ms, beat.revision), (100, Revision(2)));
}

#[test]
fn control_records_are_repeated() {
    let start = Instant::now();
    let mut book = Book::new(1);
    let tenure = book.open(info("a"), HashMap::new());
    book.listed(&tenure, &rv(1), start);
    let controls = |book: &mut Book, now| {
        book.refresh(now);
        let mut controls = 0;
        while let Some(Work::Append(batch)) = book.next_work(now) {
            let of = batch
                .records
                .iter()
                .filter(|(r, _)| matches!(r, Record::Control(_)));
            controls += of.count();
        }
        controls
    };
    assert_eq!(controls(&mut book, start), 2, "syncing, then synced");
    assert_eq!(controls(&mut book, start + CONTROL_AFTER_CHANGE), 0);
    assert_eq!(controls(&mut book, start + CONTROL_WITHOUT_CHANGE), 1);
    put(&mut book, &tenure, "x", 2);
    let changed = start + CONTROL_WITHOUT_CHANGE;
    assert_eq!(controls(&mut book, changed), 0);
    assert_eq!(controls(&mut book, changed + CONTROL_AFTER_CHANGE), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    List(Vec<u8>),
    Restart,
    Drop,
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..6_u8).prop_map(Step::Put),
        3 => (0..6_u8).prop_map(Step::Delete),
        2 => proptest::collection::vec(0..6_u8, 0..6).prop_map(Step::List),
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
        let (mut book, mut reader) = (Book::new(1), Reader::default());
        let mut source: BTreeMap<String, u64> = BTreeMap::new();
        let mut clock = 100;
        let mut tenure = book.open(info("a"), HashMap::new());
        book.begin_list(&mut tenure, false);
        book.listed(&tenure, &rv(clock), Instant::now());
        for step in steps {
            clock += 1;
            match step {
                Step::Put(n) => {
                    source.insert(format!("k{n}"), clock);
                    put(&mut book, &tenure, &format!("k{n}"), clock);
                }
                Step::Delete(n) => {
                    source.remove(&format!("k{n}"));
                    delete(&mut book, &tenure, &format!("k{n}"), clock);
                }
                // Events were missed: the source is now something else.
                Step::List(names) => {
                    source.retain(|name, _| names.iter().any(|n| *name == format!("k{n}")));
                    source.extend(names.iter().map(|n| (format!("k{n}"), clock)));
                    book.begin_list(&mut tenure, false);
                    for (name, version) in &source {
                        put(&mut book, &tenure, name, *version);
                    }
                    book.listed(&tenure, &rv(clock), Instant::now());
                }
                // The source was restored from a backup: versions are older, and not the same.
                Step::Restart => {
                    clock = clock.saturating_sub(50);
                    source.values_mut().for_each(|version| *version = (*version).min(clock));
                    book.begin_list(&mut tenure, true);
                    for (name, version) in &source {
                        put(&mut book, &tenure, name, *version);
                    }
                    book.listed(&tenure, &rv(clock), Instant::now());
                }
                Step::Drop => {
                    book.close(&tenure.view);
                    tenure = book.open(info("a"), HashMap::new());
                    book.begin_list(&mut tenure, false);
                    for (name, version) in &source {
                        put(&mut book, &tenure, name, *version);
                    }
                    book.listed(&tenure, &rv(clock), Instant::now());
                }
                Step::Write => write_all(&mut book, &mut reader),
            }
        }
        write_all(&mut book, &mut reader);
        let expected: BTreeMap<_, _> =
            source.iter().map(|(name, version)| (key(name), (rv(*version), body(*version)))).collect();
        prop_assert_eq!(reader.content(&tenure.view), expected);
        prop_assert_eq!(&reader.views[&tenure.view].state, &Some(ViewState::Synced));
        prop_assert_eq!(book.pending_bytes, 0);
        let bytes: usize = source.values().map(|version| body(*version).len()).sum();
        prop_assert_eq!(book.stats(Instant::now())[0].bytes, bytes as u64);
    }
}

/// What a policy's place in the log is found by.
#[test]
fn what_was_handed_in_has_a_position_once_it_is_written() {
    let now = Instant::now();
    let mut book = Book::new(1);
    let mut log = Reader::default();
    let tenure = book.open(info("v"), HashMap::new());
    let (left, a, b) = ([key("other")], [key("a")], [key("b")]);
    assert_eq!(
        book.logged(&tenure, &left),
        None,
        "nothing was written in this term"
    );
    let write = |book: &mut Book, log: &mut Reader| {
        let Some(Work::Append(batch)) = book.next_work(now) else {
            panic!("nothing to write");
        };
        let on_its_way = book.all_logged(&tenure);
        let last = log.append(&batch);
        book.written(&batch, last);
        on_its_way
    };
    write(&mut book, &mut log);
    assert_eq!(book.logged(&tenure, &left), Some(Revision(1)));

    book.put(&tenure, key("a"), rv(2), body(2), now, Span::none());
    assert_eq!(book.logged(&tenure, &a), None, "it waits");
    assert_eq!(book.all_logged(&tenure), None);
    assert_eq!(
        book.logged(&tenure, &left),
        Some(Revision(1)),
        "others do not"
    );
    assert_eq!(write(&mut book, &mut log), None, "it is on its way");
    assert_eq!(book.logged(&tenure, &a), Some(Revision(2)));
    assert_eq!(book.all_logged(&tenure), Some(Revision(2)));

    book.delete(&tenure, &key("b"), rv(3), now, Span::none());
    assert_eq!(
        book.logged(&tenure, &b),
        Some(Revision(2)),
        "it was never there"
    );
    assert_eq!(book.logged(&tenure, &[]), Some(Revision(2)));
}
