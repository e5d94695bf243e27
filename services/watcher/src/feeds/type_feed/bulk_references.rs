//! References by the hundred thousand: they join a running wide watch, and leave it, without a new plan of the
//! watches. Those of which the log has stubs are read again beside their watches.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use anteroom_model::ObjectKey;
use tokio::{sync::Notify, task::JoinSet};

use super::{Done, FeedTools, TypeFeed};
use crate::{
    feeds::{hub::Hub, join::Joining, plan::WatchScope, reads::JOINS_MAX},
    log_writer::publish::WriteQueue,
};

/// The number of objects in a list that cost the API server about as much as a read of one object. If enough
/// references wait, the watch lists again, on behalf of all.
const OBJECTS_PER_READ: u64 = 100;

/// The shortest time from one list for references to the next.
const LISTS_APART: Duration = Duration::from_millis(250);

/// The least ratio of the time between two lists for references to the duration of the last one.
const LISTS_APART_FACTOR: u32 = 3;

/// The outcome for references that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::feeds) enum AssignOutcome {
    /// There is nothing left to do.
    All,
    /// Some wait until more can be read.
    Later,
    /// Watches have to be planned.
    ByPlan,
}

impl TypeFeed {
    /// Sends references that came since the last plan to the running wide watch, if there is one. The watch only
    /// becomes more useful by them, so no new plan is needed. A few objects are read one by one beside the watch; for
    /// many, the watch lists again.
    pub(in crate::feeds) fn assign_to_running_watch(
        &mut self,
        tools: &FeedTools,
        planned: &Arc<Notify>,
        tasks: &mut JoinSet<Done>,
    ) -> AssignOutcome {
        let mut hub = self.hub.lock();
        if hub.references.handle.is_none() {
            self.stub_reads.clear();
        }
        if hub.references.fresh.is_empty() && self.stub_reads.is_empty() {
            return AssignOutcome::All;
        }
        if hub.references.handle.is_none() {
            return AssignOutcome::ByPlan;
        }
        let mut joining = Vec::new();
        let outcome = loop {
            let Some(object) = hub.references.fresh.front().cloned() else {
                break AssignOutcome::All;
            };
            let Some(scope) = self.wide_for(&hub, &object) else {
                break AssignOutcome::ByPlan;
            };
            if hub.references.awaits_first(&object) {
                let Some(join) = read_object(&mut hub, &scope, &object) else {
                    break AssignOutcome::Later;
                };
                joining.extend(join.map(|join| (scope.clone(), join)));
            }
            hub.references.fresh.pop_front();
            if let Some(reference) = hub.references.by_object.get_mut(&object)
                && reference.scope.is_none()
            {
                reference.scope = Some(scope.clone());
                if let Some(Some(spare)) = self.wide.get_mut(&scope) {
                    *spare += 1;
                }
            }
        };
        // Nobody waits for these as for a new reference.
        joining.extend(read_stubs(&mut hub, &mut self.stub_reads));
        self.record_metrics(&hub);
        self.watch_context(tools, planned).join(joining, tasks);
        match outcome {
            AssignOutcome::All if self.has_stub_reads() => AssignOutcome::Later,
            outcome => outcome,
        }
    }

    /// Removes the reference to an object. Returns whether the watches have to be planned again: not while the wide
    /// watch of the object still saves more than it costs.
    pub(in crate::feeds) fn unrefer(&mut self, object: &ObjectKey) -> bool {
        let unrefer = |hub: &mut Hub, queue: &mut WriteQueue| hub.references.unrefer(object, queue);
        let Some(scope) = self.hub.locked(unrefer) else {
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
        self.needs_plan |= replan;
        replan
    }

    fn wide_for(&self, hub: &Hub, object: &ObjectKey) -> Option<WatchScope> {
        let runs = |scope: &WatchScope| {
            let planned = self.wide.contains_key(scope) && hub.watches.contains_key(scope);
            planned && !hub.forbidden.contains_key(scope)
        };
        let all = Some(WatchScope::all()).filter(runs);
        all.or_else(|| Some(WatchScope::of_namespace(&object.namespace)).filter(runs))
    }
}

/// Begins the reads of referenced objects of which the log has stubs, as far as their watches permit that now.
fn read_stubs(hub: &mut Hub, stubs: &mut VecDeque<ObjectKey>) -> Vec<(WatchScope, Joining)> {
    let mut joining = Vec::new();
    while let Some(object) = stubs.front() {
        let Some(read) = read_stub(hub, object) else {
            break;
        };
        joining.extend(read);
        stubs.pop_front();
    }
    joining
}

/// Returns the read of the object beside its watch; `Some(None)`: a list of the watch brings it, or nothing watches it;
/// `None`: it has to wait.
fn read_stub(hub: &mut Hub, object: &ObjectKey) -> Option<Option<(WatchScope, Joining)>> {
    let (era, reference) = (hub.references.era, hub.references.by_object.get(object));
    let Some(scope) = reference.and_then(|reference| reference.scope.clone()) else {
        return Some(None);
    };
    let Some(watch) = hub.watches.get_mut(&scope) else {
        return Some(None);
    };
    if !watch.has_listed() || watch.lists_next() {
        return Some(None);
    }
    if !scope.is_wide() {
        watch.ask(); // It lists this object alone.
        return Some(None);
    }
    let free = JOINS_MAX.saturating_sub(watch.joining);
    if !watch.can_be_joined() || !watch.reads.may_begin(free) {
        return None;
    }
    watch.joining += 1;
    let object = object.clone();
    Some(Some((scope, Joining::Object { object, era })))
}

/// Returns the read of the object beside the watch; `Some(None)`: the watch's next list brings it; `None`: it has to
/// wait.
fn read_object(hub: &mut Hub, scope: &WatchScope, object: &ObjectKey) -> Option<Option<Joining>> {
    let (era, waiting) = (hub.references.era, hub.references.fresh.len());
    let watch = hub.watches.get_mut(scope)?;
    if !watch.has_listed() {
        return Some(None); // Its first list serves as well.
    }
    let free = JOINS_MAX.saturating_sub(watch.joining);
    let many = waiting > free && waiting as u64 * OBJECTS_PER_READ >= watch.objects;
    let apart = LISTS_APART.max(watch.list_took * LISTS_APART_FACTOR);
    if watch.lists_next() || (many && watch.can_be_joined() && watch.since_list() >= apart) {
        watch.ask();
        return Some(None);
    }
    if !many && watch.can_be_joined() && watch.reads.may_begin(free) {
        watch.joining += 1;
        let object = object.clone();
        return Some(Some(Joining::Object { object, era }));
    }
    None
}
