//! What is wanted of one type, and which watches bring it: one note of a watch goes to every view
//! that it concerns.
//!
//! The ledger of a view keeps no change that is older than what it has, so a view may hear two
//! watches at once, one behind the other. That is how a watch takes the place of another: the view
//! hears both until the new one has listed, and is served all the while.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_model::{Failure, Kept, ObjectKey, ResourceVersion, ViewId};
use tokio::{sync::watch, task::AbortHandle};
use tracing::Span;

use super::{
    index::Index,
    labels::labels_of,
    plan::{Lens, Scope},
    references::References,
    types::Reads,
};
use crate::{
    publish::{Book, Publisher, Tenure, Width},
    reflect::RawObject,
};

/// How often views hear that their watch is alive, beside those that an event concerns.
const SPREAD: Duration = Duration::from_millis(100);

/// One type.
#[derive(Debug, Default)]
pub(super) struct Hub {
    pub(super) feeds: BTreeMap<Scope, Feed>,
    pub(super) members: HashMap<ViewId, Member>,
    index: Index,
    pub(super) references: References,
    /// Wide watches that the API server forbids, and when it said so.
    pub(super) forbidden: HashMap<Scope, Instant>,
}

/// One watch.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) relist: watch::Sender<u64>,
    pub(super) stop: AbortHandle,
    pub(super) heard: Option<Instant>,
    /// It listed at least once since it was last refused.
    pub(super) listed: bool,
    spread: Option<Instant>,
    /// A list runs, and another one is wanted after it.
    listing: bool,
    again: bool,
    /// One was asked for that has not begun.
    relist_asked: bool,
    /// Who takes part in the list that runs, and the number of it.
    begun: HashMap<ViewId, u32>,
    /// When the last list began, how long it took, and what it brought.
    begun_at: Option<Instant>,
    pub(super) list_took: Duration,
    pub(super) objects: u64,
    /// Lists beside it that run, and how many began of late for single objects.
    pub(super) joining: usize,
    pub(super) reads: Reads,
}

/// One view on a collection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) tenure: Tenure,
    pub(super) lens: Lens,
    pub(super) sealed: bool,
    /// What is kept of each object; `None`: all of it.
    pub(super) kept: Option<Arc<Kept>>,
    /// What it is made of.
    pub(super) feeds: BTreeSet<Scope>,
    /// What it was made of, until all of the others have listed.
    pub(super) old: BTreeSet<Scope>,
    /// Those that have listed for it.
    pub(super) done: BTreeSet<Scope>,
    pub(super) refused: BTreeMap<Scope, Failure>,
    /// Lists of its own, read while the watch goes on, and their numbers. Each gives way to a list of
    /// the watch, which has it all.
    pub(super) joins: BTreeMap<Scope, u32>,
}

/// A view that an object has to be written to.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    pub(super) tenure: Tenure,
    pub(super) sealed: bool,
    /// As in [`Member::kept`].
    pub(super) kept: Option<Arc<Kept>>,
    /// By which list it was brought; `None`: by an event.
    pub(super) by: Option<Width>,
}

impl Feed {
    pub(super) fn new(relist: watch::Sender<u64>, stop: AbortHandle) -> Self {
        Self {
            relist,
            stop,
            heard: None,
            listed: false,
            spread: None,
            listing: false,
            again: false,
            relist_asked: false,
            begun: HashMap::new(),
            begun_at: None,
            list_took: Duration::ZERO,
            objects: 0,
            joining: 0,
            reads: Reads::default(),
        }
    }

    /// A list of it was read, or is.
    pub(super) fn has_listed(&self) -> bool {
        self.listed || self.listing
    }

    /// A list was asked for and has not begun: it has all that is referenced until then.
    pub(super) fn lists_next(&self) -> bool {
        self.again || (self.relist_asked && !self.listing)
    }

    /// Since the last list began.
    pub(super) fn since_list(&self) -> Duration {
        self.begun_at.map_or(Duration::MAX, |at| at.elapsed())
    }

    /// The view hears it from now on: it has no part in a list that runs.
    pub(super) fn begins_to_be_heard(&mut self, view: &ViewId) {
        self.begun.remove(view);
    }

    /// What is there can be read beside it: its watch brings everything that comes after.
    pub(super) fn can_be_joined(&self) -> bool {
        self.listed && !self.listing && !self.again
    }

    /// Asks for a list. One that runs comes to its end first, so that asking can never keep it from
    /// that; one that has not begun serves as well.
    pub(super) fn ask(&mut self) {
        if self.listing {
            self.again = true;
        } else if self.listed {
            self.relist_asked = true;
            self.relist.send_modify(|asked| *asked += 1);
        }
    }
}

impl Member {
    pub(super) fn hears(&self, feed: &Scope) -> bool {
        self.feeds.contains(feed) || self.old.contains(feed)
    }

    fn holds(
        &self,
        key: &ObjectKey,
        labels: &mut Option<HashMap<String, String>>,
        json: &[u8],
    ) -> bool {
        let Lens {
            namespaces,
            labels: selector,
            fields,
            ..
        } = &self.lens;
        let within =
            namespaces.is_empty() || namespaces.iter().any(|name| **name == *key.namespace);
        within
            && fields.matches(&key.namespace, &key.name)
            && (selector.is_empty() || {
                let labels = labels.get_or_insert_with(|| labels_of(json));
                selector.matches(|key| labels.get(key).map(String::as_str))
            })
    }
}

impl Member {
    /// The watch says that the object is no longer one of its own.
    fn gone(
        &self,
        feed: &Scope,
        key: &ObjectKey,
        version: &ResourceVersion,
        span: &Span,
        book: &mut Book,
    ) {
        let (tenure, now) = (&self.tenure, Instant::now());
        book.delete(tenure, key, version.clone(), now, span.clone());
        // Of a watch whose list it has, it has heard everything up to here.
        if self.done.contains(feed) && !span.is_none() {
            book.is_up_to(tenure, &feed.namespace, version);
        }
    }

    /// All of what the watch has for it is handed in. Says whether a watch may be left now.
    pub(super) fn listed(&mut self, feed: &Scope, publisher: &Publisher) -> bool {
        self.refused.remove(feed);
        if !self.feeds.contains(feed) {
            return false; // Where it comes back to it, it will have missed something.
        }
        self.done.insert(feed.clone());
        if !self.feeds.is_subset(&self.done) {
            return false;
        }
        if self.refused.is_empty() {
            publisher.with(|book| book.complete(&self.tenure));
        }
        !std::mem::take(&mut self.old).is_empty()
    }
}

impl Hub {
    /// A view or an object is not served, for want of a watch or of rights.
    pub(super) fn misses(&self) -> bool {
        let refused = |of: &Member| of.feeds.is_empty() || !of.refused.is_empty();
        self.members.values().any(refused) || self.references.misses()
    }

    /// Something within it is wanted.
    pub(super) fn wants_within(&self, scope: &Scope) -> bool {
        let mut namespaces = self.members.values().flat_map(|of| of.lens.own());
        namespaces.any(|own| scope.holds_namespace(&own.namespace))
            || (self.references.of.keys()).any(|object| scope.holds_namespace(&object.namespace))
    }

    pub(super) fn insert(&mut self, member: Member) {
        let view = member.tenure.view.clone();
        self.remove(&view);
        self.index.insert(&view, &member.lens);
        self.members.insert(view, member);
    }

    pub(super) fn remove(&mut self, view: &ViewId) {
        if let Some(member) = self.members.remove(view) {
            self.index.remove(view, &member.lens);
        }
    }

    pub(super) fn begin(&mut self, feed: &Scope, publisher: &Publisher, afresh: bool) {
        let mut begun = HashMap::new();
        for (view, member) in self
            .members
            .iter_mut()
            .filter(|(_, member)| member.hears(feed))
        {
            let tenure = &mut member.tenure;
            begun.insert(
                view.clone(),
                publisher.with(|book| book.begin_list_of(tenure, feed.reach(), afresh)),
            );
            member.joins.remove(feed);
            if afresh {
                member.done.clear();
                member.old.clear();
                member.joins.clear();
            }
        }
        self.references.begin(feed, afresh);
        if afresh {
            // The history of a type restarts for all of its watches, and their lists with it.
            let others = self.feeds.iter_mut().filter(|(scope, _)| *scope != feed);
            for (_, other) in others {
                other.begun.retain(|view, _| !begun.contains_key(view));
                other.ask();
            }
        }
        if let Some(own) = self.feeds.get_mut(feed) {
            (own.listing, own.again, own.relist_asked) = (true, false, false);
            own.begun = begun;
            own.begun_at = Some(Instant::now());
            own.objects = 0;
        }
    }

    /// Whom the object has to be written to. Where it is no longer selected, it is deleted.
    pub(super) fn put(
        &mut self,
        feed: &Scope,
        object: &RawObject,
        span: &Span,
        publisher: &Publisher,
    ) -> Vec<Outlet> {
        let (mut labels, mut outlets) = (None, Vec::new());
        let by = span.is_none().then(|| feed.width());
        if let (Some(_), Some(own)) = (by, self.feeds.get_mut(feed)) {
            own.objects += 1;
        }
        let RawObject { key, version, json } = object;
        let members = self.index.of(key).filter_map(|view| self.members.get(view));
        publisher.with(|book| {
            for member in members.filter(|member| member.hears(feed)) {
                let tenure = &member.tenure;
                if member.lens.derivable() && !member.holds(key, &mut labels, json) {
                    // Its own list may still bring what this event took away.
                    if !member.joins.is_empty() || book.holds(tenure, key) {
                        member.gone(feed, key, version, span, book);
                    }
                } else if !book.is_known_by(tenure, key, version, by) {
                    outlets.push(Outlet {
                        tenure: tenure.clone(),
                        sealed: member.sealed,
                        kept: member.kept.clone(),
                        by,
                    });
                }
            }
        });
        outlets
    }

    pub(super) fn gone(
        &mut self,
        feed: &Scope,
        key: &ObjectKey,
        version: &ResourceVersion,
        span: &Span,
        publisher: &Publisher,
    ) {
        let members = self.index.of(key).filter_map(|view| self.members.get(view));
        publisher.with(|book| {
            for member in members.filter(|member| member.hears(feed)) {
                member.gone(feed, key, version, span, book);
            }
        });
        self.references.gone(feed, key, version, publisher);
    }

    /// The list is complete. Says whether other watches have to be planned.
    pub(super) fn listed(
        &mut self,
        feed: &Scope,
        version: &ResourceVersion,
        publisher: &Publisher,
    ) -> bool {
        let now = Instant::now();
        let Some(own) = self.feeds.get_mut(feed) else {
            return false;
        };
        own.listed = true;
        own.listing = false;
        own.list_took = own.since_list();
        if std::mem::take(&mut own.again) {
            own.ask();
        }
        // What others were left to themselves for can save them again.
        let mut left = self.forbidden.remove(feed).is_some();
        let begun = std::mem::take(&mut own.begun);
        for (view, begun) in begun {
            let member = self.members.get_mut(&view);
            let Some(member) = member.filter(|member| member.hears(feed)) else {
                continue; // It did not hear all of it.
            };
            let (tenure, list) = (&member.tenure, feed.reach());
            if publisher.with(|book| book.swept(tenure, begun, list, version, now)) {
                left |= member.listed(feed, publisher);
            }
        }
        self.references.swept(feed, version, publisher);
        self.heard(feed, Some(version), true, publisher);
        left
    }

    /// The watch is alive.
    pub(super) fn heard(
        &mut self,
        feed: &Scope,
        version: Option<&ResourceVersion>,
        at_once: bool,
        publisher: &Publisher,
    ) {
        let now = Instant::now();
        let Some(own) = self.feeds.get_mut(feed) else {
            return;
        };
        own.heard = Some(now);
        let due = own
            .spread
            .is_none_or(|at| now.saturating_duration_since(at) >= SPREAD);
        if !(due || at_once) {
            return;
        }
        own.spread = Some(now);
        for member in self
            .members
            .values()
            .filter(|member| member.feeds.contains(feed))
        {
            if member.feeds.len() == 1 && member.done.contains(feed) {
                publisher.with(|book| book.heard(&member.tenure, version.cloned(), now));
            } else if let Some(oldest) = self.oldest(&member.feeds) {
                publisher.with(|book| book.heard(&member.tenure, None, oldest));
            }
        }
    }

    /// When the last one of these was heard from; `None` where one never was.
    pub(super) fn oldest(&self, feeds: &BTreeSet<Scope>) -> Option<Instant> {
        let heard = feeds.iter().map(|scope| self.feeds.get(scope)?.heard);
        heard.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// The watch is refused. Says whether other watches have to be planned.
    pub(super) fn refused(
        &mut self,
        feed: &Scope,
        failure: &Failure,
        publisher: &Publisher,
    ) -> bool {
        let saves = feed.is_wide() && failure.reason == "Forbidden";
        let newly = saves && !self.forbidden.contains_key(feed);
        if saves {
            self.forbidden.insert(feed.clone(), Instant::now());
        }
        if let Some(own) = self.feeds.get_mut(feed) {
            own.listed = false;
            own.listing = false;
        }
        for member in self
            .members
            .values_mut()
            .filter(|member| member.feeds.contains(feed))
        {
            // What only saves others is left for what they need themselves, and that decides.
            if (saves || !member.old.is_empty()) && !member.lens.own().contains(feed) {
                continue;
            }
            member.done.remove(feed);
            member.joins.remove(feed);
            member.refused.insert(feed.clone(), failure.clone());
            publisher.with(|book| book.refused(&member.tenure, failure.clone()));
        }
        if !saves {
            self.references.failed(feed, failure, publisher);
        }
        newly
    }

    pub(super) fn troubled(&mut self, feed: &Scope, failure: &Failure, publisher: &Publisher) {
        for member in self
            .members
            .values()
            .filter(|member| member.feeds.contains(feed))
        {
            publisher.with(|book| book.troubled(&member.tenure, failure.clone()));
        }
    }

    pub(super) fn skipped(&mut self, feed: &Scope, publisher: &Publisher) {
        for member in self
            .members
            .values()
            .filter(|member| member.feeds.contains(feed))
        {
            publisher.with(|book| book.skipped(&member.tenure));
        }
    }
}

#[cfg(test)]
mod tests;
