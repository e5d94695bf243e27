//! One type: its views and references, and the watches that run for them.

mod bulk_references;
mod watch_context;

pub(super) use bulk_references::AssignOutcome;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use anteroom_model::{
    Collection, GroupVersionResource, ObjectKey, ResourceVersion, Source, ViewId,
};
use tokio::time::Instant;
use tokio::{sync::Notify, task::JoinSet};

use super::{
    FeedTools,
    assign::assign,
    hub::Hub,
    member::Member,
    metrics::TypeGauges,
    plan::{self, PlanInput, ViewFilter, WatchScope},
    running_watch::RunningWatch,
    shared_hub::SharedHub,
};
use crate::{
    log_writer::publish::WriteHandle,
    source::{apiserver::Fault, reflect},
};

/// The time after which the API server is asked again for the size of a type, and for a forbidden wide watch without
/// which nothing is missing.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The time until a forbidden watch is tried again, if a view or an object is not served without it. A right that is
/// granted again should work within seconds.
const ASK_AGAIN_MISSED: Duration = Duration::from_secs(5);

/// The result of a task of a feeder.
#[derive(Debug)]
pub(super) enum Done {
    /// A watch of this view ended, which none does by itself.
    Watched(ViewId),
    /// The size of a type.
    Sized(GroupVersionResource, Size),
    /// A list beside a watch of the type.
    Joined(GroupVersionResource),
    /// Wide watches that were forbidden and are allowed by now.
    Allowed(GroupVersionResource, Vec<WatchScope>),
}

pub(super) type Size = Result<u64, Fault>;

/// The number of a type's objects, for which the API server is asked where the plan depends on it.
#[derive(Debug, Default)]
struct TypeSize {
    /// The number in the last answer that was no error.
    objects: Option<u64>,
    /// The API server is being asked.
    is_asked: bool,
    /// The time of the last answer, which may be an error; `None`: it may be asked at once.
    answered_at: Option<Instant>,
}

/// One type: its views and references, and the plan of their watches.
#[derive(Debug)]
pub(super) struct TypeFeed {
    gvr: GroupVersionResource,
    pub(super) kind: String,
    pub(super) hub: SharedHub,
    /// Views, references or what is known of the type changed: its watches have to be planned anew.
    pub(super) needs_plan: bool,
    /// The newest version up to which an earlier term knew one of its views.
    inherited_version: ResourceVersion,
    size: TypeSize,
    /// The API server is being asked whether a forbidden watch is allowed again.
    probing: bool,
    /// All references that were made before this term are known: a view of referenced objects can be complete.
    knows_references: bool,
    /// The wide watches of the last plan, each with the number of saved watches that may end before a new plan is
    /// made; `None`: any number.
    wide: BTreeMap<WatchScope, Option<usize>>,
    /// References that rested then.
    idle: usize,
    /// Referenced objects of which the log has stubs, and that are to be read one by one.
    stub_reads: VecDeque<ObjectKey>,
    gauges: TypeGauges,
}

impl TypeFeed {
    /// `knows_references`: all references that were made before are known.
    pub(super) fn new(
        gvr: GroupVersionResource,
        knows_references: bool,
        tools: &FeedTools,
    ) -> Self {
        Self {
            gauges: tools.metrics.of_type(&gvr),
            gvr,
            kind: String::new(),
            hub: SharedHub::new(Hub::default(), tools.publisher.clone()),
            needs_plan: true,
            inherited_version: ResourceVersion::default(),
            size: TypeSize::default(),
            probing: false,
            knows_references,
            wide: BTreeMap::new(),
            idle: 0,
            stub_reads: VecDeque::new(),
        }
    }

    /// An earlier term knew a view up to this version.
    pub(super) fn inherit_version(&mut self, version: ResourceVersion) {
        let is_known = self.inherited_version.compare(&version) == Some(Ordering::Greater);
        if !is_known && !version.is_empty() {
            self.inherited_version = version;
        }
    }

    pub(super) fn view(&mut self, handle: WriteHandle, collection: &Collection, sealed: bool) {
        let member = Member {
            handle,
            filter: ViewFilter::new(collection),
            sealed,
            retained: collection.retained.clone().map(Arc::new),
            since: ResourceVersion::default(),
            watches: BTreeMap::new(),
            is_refused: false,
        };
        self.hub.lock().insert(member);
    }

    /// Begins the view of the type's referenced objects.
    pub(super) fn objects(&mut self, handle: WriteHandle, sealed: bool) {
        self.hub.locked(|hub, queue| {
            queue.begin_list(&handle);
            hub.references.opened(handle, sealed, queue);
        });
        if self.knows_references {
            self.settle();
        }
    }

    /// All references are known.
    pub(super) fn settle(&mut self) {
        self.knows_references = true;
        self.hub.locked(|hub, queue| {
            if let Some(handle) = &hub.references.handle {
                queue.listed(handle, &ResourceVersion::default(), Instant::now());
            }
        });
    }

    pub(super) fn forget(&mut self, view: &ViewId) {
        let mut hub = self.hub.lock();
        hub.remove(view);
        let objects = Source::Objects {
            gvr: self.gvr.clone(),
        };
        if objects.view_id() == *view {
            hub.references.handle = None;
        }
        self.needs_plan = true;
    }

    /// Bodies of the view have to be written anew.
    pub(super) fn seal(&mut self, view: &ViewId, sealed: bool) {
        self.needs_plan |= self.hub.locked(|hub, queue| {
            if let Some(member) = hub.members.get_mut(view) {
                member.sealed = sealed;
                hub.reread(view, queue);
                return false;
            }
            let Hub {
                watches,
                references,
                ..
            } = hub;
            let Some(handle) = references.handle.as_mut().filter(|own| own.view == *view) else {
                return false;
            };
            references.sealed = sealed;
            queue.reread(handle);
            queue.begin_list(handle);
            queue.complete(handle);
            references.reread();
            watches.values_mut().for_each(RunningWatch::ask);
            true
        });
    }

    /// The view was suspended for want of room in the log, and there is room now.
    pub(super) fn resume_after_full(&mut self, view: &ViewId, now: Instant) {
        self.needs_plan |= self.hub.locked(|hub, queue| {
            if hub.members.contains_key(view) {
                queue.resume_after_full(view, now);
                hub.reread(view, queue);
                return false;
            }
            let Hub {
                watches,
                references,
                ..
            } = hub;
            let handle = references.handle.as_ref();
            if handle.is_none_or(|own| own.view != *view) {
                return false;
            }
            queue.resume_after_full(view, now);
            references.resume_after_full(now, queue);
            watches.values_mut().for_each(RunningWatch::ask);
            true
        });
    }

    /// There may be room in the log for objects of the view that are stubs there. The watches of a collection list again,
    /// and single objects are read alone: the watches of their type serve other views too.
    pub(super) fn list_for_stubs(&mut self, view: &ViewId, now: Instant) {
        let single = self.hub.locked(|hub, queue| {
            let stubs = queue.list_for_stubs(view, now);
            if hub.members.contains_key(view) {
                hub.ask_watches_of(view);
                return None;
            }
            let handle = hub.references.handle.as_ref();
            if handle.is_none_or(|own| own.view != *view) {
                return None;
            }
            hub.references.read_again(&stubs);
            let is_watched = |object: &ObjectKey| {
                let reference = hub.references.by_object.get(object);
                reference.is_some_and(|reference| reference.scope.is_some())
            };
            let are_watched = stubs.iter().all(is_watched);
            Some((stubs, are_watched))
        });
        if let Some((stubs, are_watched)) = single {
            let waiting = &mut self.stub_reads;
            let new = stubs.into_iter().filter(|stub| !waiting.contains(stub));
            let new: Vec<_> = new.collect();
            waiting.extend(new);
            self.needs_plan |= !are_watched;
        }
    }

    /// Returns whether single objects wait to be read that are stubs in the log.
    pub(super) fn has_stub_reads(&self) -> bool {
        !self.stub_reads.is_empty()
    }

    /// The sealing key changed.
    pub(super) fn reseal(&mut self) {
        let views: Vec<ViewId> = {
            let hub = self.hub.lock();
            let members = hub.members.values().filter(|member| member.sealed);
            let members = members.map(|member| &member.handle);
            let references = &hub.references;
            let objects = references.handle.iter().filter(|_| references.sealed);
            let handles = members.chain(objects);
            handles.map(|handle| handle.view.clone()).collect()
        };
        for view in &views {
            self.seal(view, true);
        }
    }

    /// Takes the API server's answer about the number of objects.
    pub(super) fn take_size(&mut self, size: &Size) {
        self.size.is_asked = false;
        self.size.answered_at = Some(Instant::now());
        self.needs_plan = true;
        match size {
            Ok(objects) => self.size.objects = Some(*objects),
            Err(Fault::Refused { code: 403, .. }) => {
                let mut hub = self.hub.lock();
                hub.forbidden.insert(WatchScope::all(), Instant::now());
            }
            Err(_) => {} // It is planned without.
        }
    }

    /// Asks whether wide watches are allowed by now that were forbidden. One that runs asks by itself.
    pub(super) fn probe_forbidden(
        &mut self,
        now: Instant,
        tools: &FeedTools,
        tasks: &mut JoinSet<Done>,
    ) {
        let mut hub = self.hub.lock();
        if self.probing || hub.forbidden.is_empty() {
            return;
        }
        let after = match hub.misses() {
            true => ASK_AGAIN_MISSED,
            false => ASK_AGAIN,
        };
        let mut scopes = Vec::new();
        let Hub {
            watches, forbidden, ..
        } = &mut *hub;
        for (scope, at) in forbidden {
            if !watches.contains_key(scope) && now.saturating_duration_since(*at) >= after {
                *at = now;
                scopes.push(scope.clone());
            }
        }
        if scopes.is_empty() {
            return;
        }
        self.probing = true;
        let (api, gvr) = (tools.api.clone(), self.gvr.clone());
        tasks.spawn(async move {
            let mut allowed = Vec::new();
            for scope in scopes {
                let collection = scope.collection(&gvr).canonical();
                if reflect::probe(&api, &collection).await.is_ok() {
                    allowed.push(scope);
                }
            }
            Done::Allowed(gvr, allowed)
        });
    }

    /// Takes the answer about forbidden watches. Returns whether watches have to be planned.
    pub(super) fn allowed(&mut self, scopes: &[WatchScope]) -> bool {
        self.probing = false;
        let mut hub = self.hub.lock();
        let before = hub.forbidden.len();
        hub.forbidden.retain(|scope, _| !scopes.contains(scope));
        let changed = hub.forbidden.len() != before;
        let unwanted: Vec<_> = hub
            .forbidden
            .keys()
            .filter(|scope| !hub.wants_within(scope))
            .cloned()
            .collect();
        unwanted.iter().for_each(|scope| {
            hub.forbidden.remove(scope);
        });
        if changed {
            self.needs_plan = true;
            self.size.answered_at = None; // It may be told by now.
        }
        changed
    }

    /// Does the steps that become due by time alone. Returns whether watches have to be planned.
    pub(super) fn tick(&mut self, idle_after: Duration, now: Instant) -> bool {
        let changed = self.hub.locked(|hub, queue| {
            let rests = hub.references.rest(idle_after, now, queue);
            let heard = hub.references_heard(now);
            if let (Some(handle), Some(at)) = (&hub.references.handle, heard) {
                queue.mark_fresh(handle, None, at);
            }
            rests
        });
        self.needs_plan |= changed;
        changed
    }

    pub(super) fn reconcile(
        &mut self,
        tools: &FeedTools,
        planned: &Arc<Notify>,
        tasks: &mut JoinSet<Done>,
    ) {
        let mut hub = self.hub.lock();
        hub.references.fresh.clear();
        let watched = hub.references.handle.is_some();
        let references = hub.references.to_watch();
        let input = PlanInput {
            views: hub
                .members
                .iter()
                .map(|(view, member)| (view.clone(), member.filter.clone()))
                .collect(),
            references: if watched { references } else { BTreeSet::new() },
            objects: self.size.objects,
            forbidden: hub.forbidden.keys().cloned().collect(),
            current: hub.watches.keys().cloned().collect(),
        };
        let again = !input.forbidden.contains(&WatchScope::all())
            && self
                .size
                .answered_at
                .is_none_or(|at| at.elapsed() >= ASK_AGAIN);
        if self.size.is_asked || (again && plan::asks_for_size(&input)) {
            if !std::mem::replace(&mut self.size.is_asked, true) {
                let (api, gvr) = (tools.api.clone(), self.gvr.clone());
                tasks.spawn(async move {
                    let size = reflect::size(&api, &Collection::all(gvr.clone())).await;
                    Done::Sized(gvr, size)
                });
            }
            return;
        }
        let plan = plan::plan(&input);
        let context = self.watch_context(tools, planned);
        for scope in &plan.scopes {
            if !hub.watches.contains_key(scope) {
                hub.watches
                    .insert(scope.clone(), context.start(scope, tasks));
            }
        }
        self.wide = plan::watches_to_spare(&input, &plan);
        let joining = hub.with_queue(|hub, queue| assign(hub, &plan, &input, queue));
        self.watch_context(tools, planned).join(joining, tasks);
        hub.watches.retain(|scope, watch| {
            let used = plan.scopes.contains(scope);
            if !used {
                watch.stop();
            }
            used
        });
        self.idle = hub.references.idle();
        self.record_metrics(&hub);
    }

    fn record_metrics(&self, hub: &Hub) {
        let (open, views) = (hub.watches.len(), hub.members.len());
        let derived = views.saturating_sub(open);
        let references = hub.references.by_object.len();
        self.gauges.planned(open, derived, references, self.idle);
    }
}

impl Drop for TypeFeed {
    fn drop(&mut self) {
        self.hub
            .lock()
            .watches
            .values()
            .for_each(RunningWatch::stop);
    }
}
