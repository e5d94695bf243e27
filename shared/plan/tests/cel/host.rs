//! Indexes that are made when they are first asked for.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use anteroom_plan::{Index, IndexKey, Language, ListHost};
use anteroom_view::Snapshot;

#[derive(Debug)]
pub(crate) struct Host {
    state: RefCell<Option<Snapshot>>,
    indexes: RefCell<HashMap<IndexKey, Index>>,
    scans: bool,
    asked: Cell<u64>,
    answered: Cell<u64>,
    /// One of so many asks is not answered; 0: all are.
    lost: Cell<u8>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            state: RefCell::new(None),
            indexes: RefCell::default(),
            scans: false,
            asked: Cell::new(0),
            answered: Cell::new(0),
            lost: Cell::new(0),
        }
    }

    pub(crate) fn scanning() -> Self {
        Self {
            scans: true,
            ..Self::new()
        }
    }

    pub(crate) fn is_of(&self, state: &Snapshot) {
        *self.state.borrow_mut() = Some(state.clone());
    }

    pub(crate) fn lose_one_in(&self, count: u8) {
        self.lost.set(count);
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.get()
    }
}

impl ListHost for Host {
    fn ask(&self, key: &IndexKey, ask: &mut dyn FnMut(&Index)) -> bool {
        self.asked.set(self.asked.get() + 1);
        let lost = u64::from(self.lost.get());
        if self.scans || (lost > 0 && self.asked.get().is_multiple_of(lost + 1)) {
            return false;
        }
        self.answered.set(self.answered.get() + 1);
        let state = self.state.borrow();
        let state = state.as_ref().unwrap();
        let mut indexes = self.indexes.borrow_mut();
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
