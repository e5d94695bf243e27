//! A log as the bus keeps it, and a reader that follows it as a mirror does.

use std::collections::BTreeMap;

use anteroom_model::{
    Collection, Delta, Digest, Epoch, Failure, GroupVersionResource, ObjectKey, Op,
    ResourceVersion, Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use proptest::prelude::*;

use crate::{StoreEffect, View};

pub(super) type Content = BTreeMap<ObjectKey, (ResourceVersion, Vec<u8>)>;

#[derive(Clone)]
pub(super) enum Logged {
    Delta(Delta<Vec<u8>>),
    Control(Box<ViewRecord>),
}

/// A log as the bus keeps it, with the state after every position to compare with.
#[derive(Default)]
pub(super) struct SimLog {
    /// `records[p - 1]` stands at position `p`; `None` once superseded or purged.
    pub(super) records: Vec<Option<Logged>>,
    /// `content[p]` is what the source had after position `p`.
    pub(super) content: Vec<Content>,
    pub(super) state: Vec<Option<ViewState>>,
    pub(super) epoch: u64,
    pub(super) version: u64,
    /// The view was dropped, and its objects purged.
    dropped: bool,
    /// Since when it has been wanted again.
    origin: u64,
}

pub(super) fn info() -> SourceInfo {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    SourceInfo {
        source: Source::Collection(Collection::all(gvr)),
        kind: "Pod".into(),
        namespaced: true,
    }
}

pub(super) fn key(n: u8) -> ObjectKey {
    ObjectKey::new(["", "a", "b"][usize::from(n % 3)], format!("n{}", n % 6))
}

pub(super) fn failed() -> ViewState {
    let failure = Failure::new("Forbidden", "no");
    ViewState::Failed { failure }
}

impl SimLog {
    pub(super) fn new() -> Self {
        Self {
            content: vec![Content::new()],
            state: vec![None],
            ..Self::default()
        }
    }

    pub(super) fn head(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn now(&self) -> &Content {
        &self.content[self.records.len()]
    }

    pub(super) fn push(&mut self, record: Logged, content: Content, state: Option<ViewState>) {
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

    /// Records after a drop are of a view that is wanted again, and begins afresh.
    fn begin(&mut self) {
        if std::mem::take(&mut self.dropped) {
            self.epoch += 1;
            self.origin = self.epoch;
        }
    }

    pub(super) fn change(&mut self, n: u8, body: Option<Vec<u8>>) {
        self.begin();
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

    pub(super) fn control(&mut self, state: ViewState) {
        let mut digest = Digest::EMPTY;
        for (key, (version, _)) in self.now() {
            digest.add(key, version);
        }
        let dropped = state == ViewState::Dropped;
        if !dropped {
            self.begin();
        }
        let record = ViewRecord {
            view: info().source.view_id(),
            info: info(),
            epoch: Epoch(self.epoch),
            state: state.clone(),
            version: ResourceVersion::new(self.version.to_string()),
            objects: self.now().len() as u64,
            digest,
            origin: Epoch(self.origin),
            age_max_ms: None,
        };
        let content = if dropped {
            Content::new()
        } else {
            self.now().clone()
        };
        self.push(Logged::Control(Box::new(record)), content, Some(state));
        if dropped {
            self.dropped = true;
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
pub(super) struct Reader {
    pub(super) logs: Vec<SimLog>,
    /// The number of the log that the served data was read from.
    pub(super) served_from: usize,
    pub(super) view: View,
    /// The last position delivered.
    pub(super) cursor: u64,
    pub(super) is_live: bool,
    /// Times that the log was read again from its start.
    pub(super) restarts: usize,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            logs: vec![SimLog::new()],
            served_from: 0,
            view: View::reading(info().source.view_id()),
            cursor: 0,
            is_live: false,
            restarts: 0,
        }
    }

    pub(super) fn log(&mut self) -> &mut SimLog {
        self.logs.last_mut().unwrap()
    }

    /// Delivers the next record, or says that there is none.
    pub(super) fn read_one(&mut self) {
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

    pub(super) fn deliver(&mut self, position: u64, record: Logged) {
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

    pub(super) fn caught_up(&mut self) {
        let effect = if self.differs() {
            self.view.broken()
        } else {
            self.view.caught_up()
        };
        self.carried_out(effect);
    }

    /// Returns true if the writer's last word is of now, and differs from the data that is held.
    pub(super) fn differs(&self) -> bool {
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

    pub(super) fn carried_out(&mut self, effect: StoreEffect) {
        match effect {
            StoreEffect::Install | StoreEffect::Free => self.served_from = self.logs.len() - 1,
            StoreEffect::AskRestart => self.restart(),
            StoreEffect::None | StoreEffect::StageEmpty | StoreEffect::StageCopy => {}
        }
    }

    pub(super) fn restart(&mut self) {
        self.restarts += 1;
        self.cursor = 0;
        self.is_live = false;
        let effect = self.view.restart();
        self.carried_out(effect);
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Put(n, body) => self.log().change(n, Some(body)),
            Step::Delete(n) => self.log().change(n, None),
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
                // Epochs and versions begin again.
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

    /// Checks that the served data is exactly the source's data at that position, or that no data is served.
    pub(super) fn check(&self) -> Result<(), TestCaseError> {
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
pub(super) enum Step {
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
