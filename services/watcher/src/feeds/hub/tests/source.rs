//! A model of the API server: all that happened, and watches that tell of it.

use std::collections::VecDeque;

use serde_json::json;

use super::super::*;
use crate::{
    feeds::sink::WatchSink,
    source::reflect::{Note, Sink as _},
};
use anteroom_model::GroupVersionResource;
use tokio::sync::watch;

/// The number of keys: the first half is in namespace `n`, the second half in `m`.
pub(super) const KEYS: u8 = 4;

/// An object after a change. `Some`: whether the object carries the label; `None`: the object is gone.
pub(super) type Became = Option<bool>;

/// All that ever happened at the API server; the version of a change is its place, from 1 on.
#[derive(Default)]
pub(super) struct History(pub(super) Vec<(u8, Became)>);

impl History {
    pub(super) fn now(&self) -> usize {
        self.0.len()
    }

    /// Returns the version of the object's last change up to `version`, and the outcome of the change.
    pub(super) fn at(&self, key: u8, version: usize) -> (usize, Became) {
        let mut changes = self.0[..version].iter().enumerate();
        let last = changes.rfind(|(_, (number, _))| *number == key);
        last.map_or((0, None), |(at, (_, became))| (at + 1, *became))
    }

    /// Returns the first version, at or after `since`, in which `is` holds for the object.
    pub(super) fn was(
        &self,
        key: u8,
        since: usize,
        is: impl Fn((usize, Became)) -> bool,
    ) -> Option<usize> {
        (since..=self.now()).find(|version| is(self.at(key, *version)))
    }
}

pub(super) fn namespace(key: u8) -> &'static str {
    if key < KEYS / 2 { "n" } else { "m" }
}

pub(super) fn selects(scope: &WatchScope, key: u8, became: Became) -> bool {
    let labelled = |labelled| labelled || scope.is_wide();
    scope.holds_namespace(namespace(key)) && became.is_some_and(labelled)
}

pub(super) fn key(key: u8) -> ObjectKey {
    ObjectKey::new(namespace(key), format!("k{key}"))
}

pub(super) fn rv(version: usize) -> ResourceVersion {
    ResourceVersion::new(version.to_string())
}

pub(super) fn object(number: u8, version: usize, became: Became) -> RawObject {
    let app = if became == Some(true) { "a" } else { "b" };
    let metadata = json!({"name": format!("k{number}"), "namespace": namespace(number),
        "labels": {"app": app}, "resourceVersion": version.to_string()});
    RawObject {
        key: key(number),
        version: rv(version),
        json: json!({"metadata": metadata}).to_string().into(),
    }
}

pub(super) fn gvr() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "things")
}

/// A running list: the objects are settled when the list begins, and arrive one at a time.
pub(super) struct Listing {
    pub(super) at: usize,
    pub(super) left: VecDeque<(u8, usize, Became)>,
}

impl Listing {
    pub(super) fn of(scope: &WatchScope, history: &History) -> Self {
        let at = history.now();
        let all = (0..KEYS).map(|key| (key, history.at(key, at)));
        let selected = all.filter(|(key, (_, became))| selects(scope, *key, *became));
        Self {
            at,
            left: selected
                .map(|(key, (version, became))| (key, version, became))
                .collect(),
        }
    }
}

pub(super) enum Phase {
    Idle,
    Asked(Listing),
    Lists(Listing),
    Watches(usize),
}

/// A watch, which goes on one step at a time and may be as far behind as it likes.
pub(super) struct Watch {
    pub(super) sink: WatchSink,
    pub(super) phase: Phase,
    pub(super) relist: watch::Receiver<u64>,
}

impl Watch {
    /// Returns whether there was anything to do.
    pub(super) async fn advance(&mut self, history: &History) -> bool {
        let scope = self.sink.scope.clone();
        let asked = self.relist.has_changed().unwrap_or_default();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.phase = match phase {
            Phase::Watches(_) if asked => {
                self.relist.mark_unchanged();
                Phase::Idle
            }
            Phase::Idle => Phase::Asked(Listing::of(&scope, history)),
            Phase::Asked(listing) => {
                let (afresh, version) = (false, rv(listing.at));
                self.sink.note(Note::Begin { afresh, version }).await;
                Phase::Lists(listing)
            }
            Phase::Lists(mut listing) => match listing.left.pop_front() {
                Some((key, version, became)) => {
                    let (object, origin) = (object(key, version, became), Origin::List);
                    self.sink.note(Note::Put { object, origin }).await;
                    Phase::Lists(listing)
                }
                None => {
                    let version = rv(listing.at);
                    self.sink.note(Note::Listed { version }).await;
                    Phase::Watches(listing.at)
                }
            },
            Phase::Watches(at) if at == history.now() => {
                self.phase = Phase::Watches(at);
                return false;
            }
            Phase::Watches(at) => {
                self.event(history, at + 1).await;
                Phase::Watches(at + 1)
            }
        };
        true
    }

    pub(super) async fn event(&mut self, history: &History, at: usize) {
        let scope = &self.sink.scope;
        let (number, became) = history.0[at - 1];
        let (_, before) = history.at(number, at - 1);
        let span = tracing::info_span!("event");
        let note = if selects(scope, number, became) {
            let object = object(number, at, became);
            let origin = Origin::Event(span);
            Note::Put { object, origin }
        } else if selects(scope, number, before) {
            let (key, version) = (key(number), rv(at));
            Note::Gone { key, version, span }
        } else {
            return;
        };
        self.sink.note(note).await;
        let version = Some(rv(at));
        self.sink.note(Note::Heard { version }).await;
    }

    pub(super) async fn bookmark(&mut self) {
        if let Phase::Watches(at) = self.phase {
            let version = Some(rv(at));
            self.sink.note(Note::Heard { version }).await;
        }
    }

    pub(super) async fn fail(&mut self, refused: bool) {
        let failure = Failure::new("NotFound", "there is no such resource");
        if refused {
            self.phase = Phase::Idle;
            self.sink.note(Note::Refused(failure)).await;
        } else {
            self.sink.note(Note::Troubled(failure)).await;
        }
    }
}
