//! A view beside a simulated log, against a plain map.

use std::collections::BTreeMap;

use anteroom_model::{
    Collection, Digest, Epoch, Failure, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Source, SourceInfo, ViewState,
};
use proptest::prelude::*;

use super::*;

type Content = BTreeMap<ObjectKey, (ResourceVersion, Vec<u8>)>;

#[derive(Clone)]
enum Logged {
    Delta(Delta<Vec<u8>>),
    Control(Box<ViewRecord>),
}

/// A log as the bus keeps it, with the state after every position to compare with.
#[derive(Default)]
struct SimLog {
    /// `records[p - 1]` stands at position `p`; `None` once superseded or purged.
    records: Vec<Option<Logged>>,
    /// `content[p]` is what the source had after position `p`.
    content: Vec<Content>,
    state: Vec<Option<ViewState>>,
    epoch: u64,
    version: u64,
}

fn info() -> SourceInfo {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    SourceInfo {
        source: Source::Collection(Collection::all(gvr)),
        kind: "Pod".into(),
        namespaced: true,
    }
}

fn key(n: u8) -> ObjectKey {
    ObjectKey::new(["", "a", "b"][usize::from(n % 3)], format!("n{}", n % 6))
}

fn failed() -> ViewState {
    let failure = Failure::new("Forbidden", "no");
    ViewState::Failed { failure }
}

impl SimLog {
    fn new() -> Self {
        Self {
            content: vec![Content::new()],
            state: vec![None],
            ..Self::default()
        }
    }

    fn head(&self) -> u64 {
        self.records.len() as u64
    }

    fn now(&self) -> &Content {
        &self.content[self.records.len()]
    }

    fn push(&mut self, record: Logged, content: Content, state: Option<ViewState>) {
        let same_subject = |held: &Option<Logged>| match (held, &record) {
            (Some(Logged::Delta(held)), Logged::Delta(new)) => held.key == new.key,
            (Some(Logged::Control(_)), Logged::Control(_)) => true,
            _ => false,
        };
        for held in self.records.iter_mut().filter(|held| same_subject(held)) {
            *held = None;
        }
        self.records.push(Some(record));
        self.content.push(content);
        self.state.push(state);
    }

    fn change(&mut self, n: u8, body: Option<Vec<u8>>) {
        self.version += 1;
        let (key, version) = (key(n), ResourceVersion::new(self.version.to_string()));
        let mut content = self.now().clone();
        let op = match body {
            Some(body) => {
                content.insert(key.clone(), (version.clone(), body.clone()));
                Op::Put(body)
            }
            None => {
                content.remove(&key);
                Op::Delete
            }
        };
        let delta = Delta {
            key,
            epoch: Epoch(self.epoch),
            version,
            op,
        };
        let state = self.state[self.records.len()].clone();
        self.push(Logged::Delta(delta), content, state);
    }

    fn control(&mut self, state: ViewState) {
        let mut digest = Digest::EMPTY;
        for (key, (version, _)) in self.now() {
            digest.add(key, version);
        }
        let dropped = state == ViewState::Dropped;
        let record = ViewRecord {
            view: info().source.view_id(),
            info: info(),
            epoch: Epoch(self.epoch),
            state: state.clone(),
            version: ResourceVersion::new(self.version.to_string()),
            objects: self.now().len() as u64,
            digest,
        };
        let content = if dropped {
            Content::new()
        } else {
            self.now().clone()
        };
        self.push(Logged::Control(Box::new(record)), content, Some(state));
        if dropped {
            // The writer purges the objects, which no reader is told.
            for record in &mut self.records {
                if matches!(record, Some(Logged::Delta(_))) {
                    *record = None;
                }
            }
        }
    }
}

/// Whoever follows the log for a view, as a mirror does.
struct Reader {
    logs: Vec<SimLog>,
    /// Which log what is served was read from.
    served_from: usize,
    view: View,
    /// The last position delivered.
    cursor: u64,
    is_live: bool,
}

impl Reader {
    fn new() -> Self {
        Self {
            logs: vec![SimLog::new()],
            served_from: 0,
            view: View::reading(info().source.view_id()),
            cursor: 0,
            is_live: false,
        }
    }

    fn log(&mut self) -> &mut SimLog {
        self.logs.last_mut().unwrap()
    }

    /// Delivers the next record, or says that there is none.
    fn read_one(&mut self) {
        let log = self.logs.last().unwrap();
        let ahead = (self.cursor + 1..=log.head()).find_map(|position| {
            let record = log.records[position as usize - 1].clone()?;
            Some((position, record))
        });
        let Some((position, record)) = ahead else {
            self.cursor = self.cursor.max(log.head());
            if !self.is_live {
                self.is_live = true;
                self.caught_up();
            }
            return;
        };
        self.cursor = position;
        self.deliver(position, record);
    }

    fn deliver(&mut self, position: u64, record: Logged) {
        match record {
            Logged::Delta(delta) => {
                self.view.apply(Revision(position), &delta);
            }
            Logged::Control(record) => {
                let effect = self.view.control(Revision(position), *record);
                self.carried_out(effect);
                if self.is_live && self.differs() {
                    let effect = self.view.broken();
                    self.carried_out(effect);
                }
            }
        }
    }

    fn caught_up(&mut self) {
        let effect = if self.differs() {
            self.view.broken()
        } else {
            self.view.caught_up()
        };
        self.carried_out(effect);
    }

    /// Whether the writer's last word is of now, and not what is held.
    fn differs(&self) -> bool {
        let store = self.view.followed();
        store.record().is_some_and(|record| {
            record.state == ViewState::Synced
                && self.logs.last().unwrap().state.last() == Some(&Some(ViewState::Synced))
                && matches!(
                    self.logs.last().unwrap().records.last(),
                    Some(Some(Logged::Control(_)))
                )
                && (record.digest != store.digest() || record.objects != store.len() as u64)
        })
    }

    fn carried_out(&mut self, effect: Effect) {
        match effect {
            Effect::Install | Effect::Free => self.served_from = self.logs.len() - 1,
            Effect::AskRestart => self.restart(),
            Effect::None | Effect::StageEmpty | Effect::StageCopy => {}
        }
    }

    fn restart(&mut self) {
        self.cursor = 0;
        self.is_live = false;
        let effect = self.view.restart();
        self.carried_out(effect);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(n, body) => self.log().change(n, Some(body)),
            Step::Delete(n) => self.log().change(n, None),
            // See `a_view_dropped_and_wanted_again_while_away`.
            Step::Say(ViewState::Dropped) if !self.is_live => {}
            Step::Say(state) => {
                if state == ViewState::Syncing {
                    self.log().epoch += 1;
                }
                self.log().control(state);
            }
            Step::Read => self.read_one(),
            Step::Restart => self.restart(),
            Step::Away => {
                self.is_live = false;
                let effect = self.view.away();
                self.carried_out(effect);
            }
            Step::NewLog => {
                // Tenures and versions begin again.
                self.logs.push(SimLog::new());
                self.restart();
            }
            Step::Repeat(back) => {
                let position = self.cursor.saturating_sub(u64::from(back)).max(1);
                let held = self.logs.last().unwrap().records.get(position as usize - 1);
                if let Some(Some(record)) = held.cloned()
                    && position <= self.cursor
                {
                    self.deliver(position, record);
                }
            }
            Step::Broken => {
                let effect = self.view.broken();
                self.carried_out(effect);
            }
            Step::Aged(over) => {
                self.view.aged(over);
            }
            Step::Evict => {
                self.view.evict();
                self.restart();
            }
        }
        // A reader that is live reads what is written at once.
        while self.is_live && self.cursor < self.logs.last().unwrap().head() {
            self.read_one();
        }
    }

    /// What is served is what the source had at that position, whole, or nothing is.
    fn check(&self) -> Result<(), TestCaseError> {
        let Ok(read) = self.view.read(0, 0) else {
            return Ok(());
        };
        let log = &self.logs[self.served_from];
        let at = read.revision().0 as usize;
        prop_assert_eq!(
            &log.state[at],
            &Some(ViewState::Synced),
            "complete at {}",
            at
        );
        let served: Content = read
            .objects()
            .map(|object| {
                let key = ObjectKey::new(object.namespace(), object.name());
                (key, (object.version(), object.body().to_vec()))
            })
            .collect();
        prop_assert_eq!(&served, &log.content[at], "at {}", at);
        prop_assert_eq!(read.len(), served.len());
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
    Say(ViewState),
    Read,
    Restart,
    Away,
    NewLog,
    Repeat(u8),
    Broken,
    Aged(bool),
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        5 => Just(ViewState::Synced),
        3 => Just(ViewState::Syncing),
        1 => Just(failed()),
        1 => Just(ViewState::Dropped),
    ];
    let step = prop_oneof![
        12 => (any::<u8>(), prop::collection::vec(any::<u8>(), 0..3))
            .prop_map(|(n, body)| Step::Put(n, body)),
        5 => any::<u8>().prop_map(Step::Delete),
        8 => state.prop_map(Step::Say),
        16 => Just(Step::Read),
        1 => Just(Step::Restart),
        3 => Just(Step::Away),
        1 => Just(Step::NewLog),
        4 => (0_u8..8).prop_map(Step::Repeat),
        1 => Just(Step::Broken),
        1 => any::<bool>().prop_map(Step::Aged),
        1 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn it_answers_only_from_what_was_complete_and_ends_equal_to_the_source(steps in steps()) {
        let mut reader = Reader::new();
        for step in steps {
            reader.step(step);
            reader.check()?;
        }
        // The writer has the last word, and the log is read to its end.
        reader.step(Step::Say(ViewState::Synced));
        for _ in 0..1_000 {
            reader.step(Step::Read);
            reader.check()?;
        }
        reader.step(Step::Aged(false));
        prop_assert_eq!(reader.view.state(), &State::Synced);
        prop_assert_eq!(reader.view.log(), Log::Live);
        prop_assert_eq!(reader.served_from, reader.logs.len() - 1);
        let read = reader.view.read(0, 0).unwrap();
        prop_assert_eq!(read.revision().0, reader.logs.last().unwrap().head());
    }
}

fn synced() -> Reader {
    let mut reader = Reader::new();
    reader.step(Step::Say(ViewState::Syncing));
    reader.step(Step::Put(1, vec![1]));
    reader.step(Step::Put(2, vec![2]));
    reader.step(Step::Say(ViewState::Synced));
    while !reader.is_live {
        reader.step(Step::Read);
    }
    assert_eq!(reader.view.state(), &State::Synced);
    reader
}

fn names(reader: &Reader) -> Vec<String> {
    let read = reader.view.read(0, 0).unwrap();
    read.objects()
        .map(|object| object.name().to_owned())
        .collect()
}

#[test]
fn a_new_writers_differences_are_seen_together() {
    let mut reader = synced();
    reader.step(Step::Say(ViewState::Syncing));
    reader.step(Step::Delete(1));
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Put(3, vec![3]));
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Say(ViewState::Synced));
    assert_eq!(names(&reader), ["n3", "n2"]);
}

#[test]
fn what_was_written_while_away_is_seen_together() {
    let mut reader = synced();
    reader.step(Step::Away);
    reader.step(Step::Delete(1));
    reader.step(Step::Put(3, vec![3]));
    reader.step(Step::Read);
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Read);
    reader.step(Step::Read);
    assert_eq!(names(&reader), ["n3", "n2"]);
}

#[test]
fn an_emptied_log_does_not_empty_what_is_served() {
    let mut reader = synced();
    reader.step(Step::NewLog);
    reader.step(Step::Read);
    assert_eq!(reader.view.log(), Log::Rebuilding);
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Say(ViewState::Synced));
    assert_eq!(names(&reader), [""; 0]);
}

/// Objects that the writer purges have no tombstones, so one who was away over it holds too much,
/// and only the digest tells.
#[test]
fn a_view_dropped_and_wanted_again_while_away() {
    let mut reader = synced();
    reader.step(Step::Away);
    reader.log().control(ViewState::Dropped);
    reader.step(Step::Say(ViewState::Syncing));
    reader.step(Step::Put(3, vec![3]));
    reader.step(Step::Say(ViewState::Synced));
    while !reader.is_live {
        reader.step(Step::Read);
        reader.check().unwrap();
    }
    assert_eq!(names(&reader), ["n3"]);
}

#[test]
fn reading_again_shares_what_did_not_change() {
    let mut reader = synced();
    reader.step(Step::Put(2, vec![9]));
    let before: Vec<_> = reader.view.served().objects().cloned().collect();
    reader.step(Step::Restart);
    while !reader.is_live {
        reader.step(Step::Read);
    }
    for (again, held) in reader.view.served().objects().zip(&before) {
        assert!(again.shares_with(held), "{}", held.name());
    }
}

#[test]
fn an_earlier_tenure_says_nothing() {
    let mut reader = synced();
    let mut record = reader.view.served().record().unwrap().clone();
    record.epoch = Epoch(0);
    record.state = failed();
    let effect = reader.view.control(Revision(100), record);
    assert_eq!(effect, Effect::None);
    assert_eq!(reader.view.state(), &State::Synced);
}

#[test]
fn every_refusal_has_its_reason() {
    let refusal = |view: &View| view.answerable(5, 10).unwrap_err().to_string();
    let id = info().source.view_id();
    assert_eq!(
        refusal(&View::reading(id.clone())),
        "view `pods.v1` is not synced yet: the log is being read"
    );
    assert_eq!(
        refusal(&View::live(id)),
        "view `pods.v1` is not synced yet: the watcher has not written it yet"
    );

    let mut reader = synced();
    assert_eq!(reader.view.answerable(10, 10), Ok(()));
    assert_eq!(
        reader.view.answerable(11, 10).unwrap_err().to_string(),
        "view `pods.v1` is stale: its news is 11 ms old, 10 ms are accepted"
    );
    reader.view.aged(true);
    assert_eq!(
        reader.view.answerable(99, 100),
        Ok(()),
        "whoever accepts the age"
    );

    let mut broken = reader.view.clone();
    broken.broken();
    assert_eq!(
        refusal(&broken),
        "view `pods.v1` is not synced yet: something was missing, and the log has to be read again"
    );
    let mut evicted = reader.view.clone();
    evicted.evict();
    assert!(refusal(&evicted).ends_with("its objects were freed to save memory"));
    assert_eq!(evicted.bytes(), ViewBytes::default());

    reader.step(Step::Say(failed()));
    assert_eq!(
        refusal(&reader.view),
        "view `pods.v1` cannot be read at its source: Forbidden: no"
    );
    reader.step(Step::Say(ViewState::Syncing));
    assert!(refusal(&reader.view).ends_with("the watcher has not read its source whole yet"));
    reader.step(Step::Say(ViewState::Dropped));
    assert!(refusal(&reader.view).ends_with("no entry and no policy needs it any more"));
    assert_eq!(reader.view.bytes().bodies, 0);
}

#[test]
fn a_view_that_gathers_counts_both() {
    let mut reader = synced();
    let bodies = reader.view.bytes().bodies;
    reader.step(Step::Away);
    reader.step(Step::Put(3, vec![3, 3]));
    reader.step(Step::Read);
    assert_eq!(reader.view.bytes().bodies, 2 * bodies + 2);
    reader.step(Step::Read);
    assert_eq!(reader.view.bytes().bodies, bodies + 2);
}
