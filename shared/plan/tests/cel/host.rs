//! Indexes that are made when they are first asked for.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

use anteroom_plan::{Index, IndexKey, Language, ListHost};
use anteroom_view::Snapshot;
use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Host {
    state: Mutex<Option<Snapshot>>,
    indexes: Mutex<HashMap<IndexKey, Index>>,
    scans: bool,
    asked: AtomicU64,
    answered: AtomicU64,
    /// One of so many asks is not answered; 0: all are.
    lost: AtomicU8,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(None),
            indexes: Mutex::default(),
            scans: false,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            lost: AtomicU8::new(0),
        }
    }

    pub(crate) fn scanning() -> Self {
        Self {
            scans: true,
            ..Self::new()
        }
    }

    pub(crate) fn is_of(&self, state: &Snapshot) {
        *self.state.lock() = Some(state.clone());
    }

    pub(crate) fn lose_one_in(&self, count: u8) {
        self.lost.store(count, Relaxed);
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// The number of indexes that were made.
    pub(crate) fn indexes(&self) -> usize {
        self.indexes.lock().len()
    }
}

impl ListHost for Host {
    fn ask(&self, key: &IndexKey, ask: &mut dyn FnMut(&Index)) -> bool {
        let asked = 1 + self.asked.fetch_add(1, Relaxed);
        let lost = u64::from(self.lost.load(Relaxed));
        if self.scans || (lost > 0 && asked.is_multiple_of(lost + 1)) {
            return false;
        }
        self.answered.fetch_add(1, Relaxed);
        let state = self.state.lock();
        let state = state.as_ref().unwrap();
        let mut indexes = self.indexes.lock();
        let index = indexes.entry(key.clone()).or_insert_with(|| {
            let language = Language {
                functions: anteroom_functions::query_functions(),
                matches: anteroom_functions::wildcard::matches,
            };
            Index::new(key.clone(), language, state)
        });
        index.advance(state);
        ask(index);
        true
    }
}
