//! References by the hundred thousand: they come to a wide watch that runs, and leave it, without the
//! watches being planned anew.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_model::ObjectKey;
use tokio::{sync::Notify, task::JoinSet};

use super::{Done, FeedTools, Type};
use crate::{
    feeds::{
        hub::Hub,
        join::{JOINS_MAX, Joins},
        plan::Scope,
    },
    publish::Publisher,
};

/// Reading one object costs the API server about as much as so many more in a list: where enough
/// references wait, the watch lists again for all of them.
const OBJECTS_PER_READ: u64 = 100;

/// In so long a time as many single objects are read as may be read at once.
const READS_PERIOD: Duration = Duration::from_millis(50);

/// The shortest time from one list for references to the next.
const LISTS_APART: Duration = Duration::from_millis(250);

/// Lists for references take a share of the time at most: the next one begins after so many times
/// what the last one took.
const LISTS_APART_FACTOR: u32 = 3;

/// What became of references that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::feeds) enum Placed {
    /// There is nothing left to do.
    All,
    /// Some wait until more can be read.
    Later,
    /// Watches have to be planned.
    ByPlan,
}

impl Type {
    /// References that came since the last plan go to the wide watch that runs, if there is one: it
    /// is worth only more for them, so nothing else has to be looked at. A few are read one by one,
    /// beside it; where there are many, it lists again for all of them.
    pub(in crate::feeds) fn place(
        &mut self,
        tools: &FeedTools,
        planned: &Arc<Notify>,
        tasks: &mut JoinSet<Done>,
    ) -> Placed {
        let mut hub = self.hub.lock();
        if hub.references.fresh.is_empty() {
            return Placed::All;
        }
        if hub.references.tenure.is_none() {
            return Placed::ByPlan;
        }
        let mut joins = Vec::new();
        let placed = loop {
            let Some(object) = hub.references.fresh.front().cloned() else {
                break Placed::All;
            };
            let Some(scope) = self.wide_for(&hub, &object) else {
                break Placed::ByPlan;
            };
            if hub.references.awaits_first(&object) {
                let Some(join) = read(&mut hub, &scope, &object) else {
                    break Placed::Later;
                };
                joins.extend(join.map(|join| (scope.clone(), join)));
            }
            hub.references.fresh.pop_front();
            if let Some(reference) = hub.references.of.get_mut(&object)
                && reference.scope.is_none()
            {
                reference.scope = Some(scope.clone());
                if let Some(Some(spare)) = self.wide.get_mut(&scope) {
                    *spare += 1;
                }
            }
        };
        self.tell(&hub, tools);
        self.join(joins, tools, planned, tasks);
        placed
    }

    /// The object is not referenced any more. Says whether watches have to be planned: not while the
    /// wide one that brought it is still worth what it costs.
    pub(in crate::feeds) fn unrefer(&mut self, object: &ObjectKey, publisher: &Publisher) -> bool {
        let left = self.hub.lock().references.unrefer(object, publisher);
        let Some(scope) = left else {
            return false; // Nothing was watched for it.
        };
        let replan = match self.wide.get_mut(&scope) {
            Some(None) => false,
            Some(Some(spare)) if *spare > 0 => {
                *spare -= 1;
                false
            }
            Some(Some(_)) | None => true,
        };
        self.dirty |= replan;
        replan
    }

    fn wide_for(&self, hub: &Hub, object: &ObjectKey) -> Option<Scope> {
        let runs = |scope: &Scope| {
            let planned = self.wide.contains_key(scope) && hub.feeds.contains_key(scope);
            planned && !hub.forbidden.contains_key(scope)
        };
        let all = Some(Scope::all()).filter(runs);
        all.or_else(|| Some(Scope::of_namespace(&object.namespace)).filter(runs))
    }
}

/// How the object is read: by itself, or (`Some(None)`) by the next list of the watch. `None`: it
/// waits.
fn read(hub: &mut Hub, scope: &Scope, object: &ObjectKey) -> Option<Option<Joins>> {
    let (era, waiting) = (hub.references.era, hub.references.fresh.len());
    let feed = hub.feeds.get_mut(scope)?;
    if !feed.has_listed() {
        return Some(None); // Its first list serves as well.
    }
    let free = JOINS_MAX.saturating_sub(feed.joining);
    let many = waiting > free && waiting as u64 * OBJECTS_PER_READ >= feed.objects;
    let apart = LISTS_APART.max(feed.list_took * LISTS_APART_FACTOR);
    if feed.lists_next() || (many && feed.can_be_joined() && feed.since_list() >= apart) {
        feed.ask();
        return Some(None);
    }
    if !many && feed.can_be_joined() && feed.reads.may_begin(free) {
        feed.joining += 1;
        let object = object.clone();
        return Some(Some(Joins::Object { object, era }));
    }
    None
}

/// Reads of single objects beside a watch, so that they stay few.
#[derive(Debug, Default)]
pub(in crate::feeds) struct Reads {
    since: Option<Instant>,
    count: usize,
}

impl Reads {
    /// Whether one more may begin, where so many could run beside those that do.
    fn may_begin(&mut self, free: usize) -> bool {
        let over = |since: Instant| since.elapsed() >= READS_PERIOD;
        if self.since.is_none_or(over) {
            (self.since, self.count) = (Some(Instant::now()), 0);
        }
        let may = free > 0 && self.count < JOINS_MAX;
        self.count += usize::from(may);
        may
    }
}
