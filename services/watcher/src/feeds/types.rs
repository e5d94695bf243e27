//! One type: the views and references of it, and the watches that run for them.

mod bulk_references;

pub(super) use bulk_references::Placed;

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anteroom_model::{Collection, GroupVersionResource, ResourceVersion, Source, ViewId};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use super::{
    FeedTools,
    assign::assign,
    hub::Hub,
    join::{Join, Joining},
    member::Member,
    plan::{self, ViewFilter, Wants, WatchScope},
    running_watch::RunningWatch,
    sink::WatchSink,
};
use crate::{
    log_writer::publish::{Publisher, ViewLease},
    source::{
        apiserver::Fault,
        reflect::{self, Control, Target},
    },
};

/// The time after which a size is asked for again, and whether a wide watch that was forbidden is allowed by
/// now, where nothing is missed without it.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The time after which a forbidden watch is asked for again, where a view or an object is not served for want
/// of it. A right that is given back should be seen in seconds.
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

#[derive(Debug)]
pub(super) struct Type {
    gvr: GroupVersionResource,
    pub(super) kind: String,
    pub(super) hub: Arc<Mutex<Hub>>,
    pub(super) dirty: bool,
    left_at: ResourceVersion,
    objects: Option<u64>,
    sizing: bool,
    sized: Option<Instant>,
    /// It is being asked whether what was forbidden is allowed.
    asking: bool,
    settled: bool,
    /// The wide watches of the last plan, and how many of what they save may go before it is made
    /// anew; `None`: any number.
    wide: BTreeMap<WatchScope, Option<usize>>,
    /// References that rested then.
    idle: usize,
}

impl Type {
    /// `settled`: all references that were made before are known.
    pub(super) fn new(gvr: GroupVersionResource, settled: bool) -> Self {
        Self {
            gvr,
            kind: String::new(),
            hub: Arc::default(),
            dirty: true,
            left_at: ResourceVersion::default(),
            objects: None,
            sizing: false,
            sized: None,
            asking: false,
            settled,
            wide: BTreeMap::new(),
            idle: 0,
        }
    }

    pub(super) fn left_at(&mut self, version: ResourceVersion) {
        if self.left_at.compare(&version) != Some(Ordering::Greater) && !version.is_empty() {
            self.left_at = version;
        }
    }

    pub(super) fn view(&mut self, lease: ViewLease, collection: &Collection, sealed: bool) {
        let member = Member {
            lease,
            filter: ViewFilter::new(collection),
            sealed,
            retained: collection.kept.clone().map(Arc::new),
            since: ResourceVersion::default(),
            watches: BTreeMap::new(),
            is_refused: false,
        };
        self.hub.lock().insert(member);
    }

    pub(super) fn objects(&mut self, mut lease: ViewLease, sealed: bool, publisher: &Publisher) {
        let mut hub = self.hub.lock();
        publisher.with(|queue| {
            queue.begin_list(&mut lease, false);
            hub.references.opened(lease, sealed, queue);
        });
        drop(hub);
        if self.settled {
            self.settle(publisher);
        }
    }

    /// All references are known.
    pub(super) fn settle(&mut self, publisher: &Publisher) {
        self.settled = true;
        if let Some(lease) = &self.hub.lock().references.lease {
            let (version, now) = (ResourceVersion::default(), Instant::now());
            publisher.with(|queue| queue.listed(lease, &version, now));
        }
    }

    pub(super) fn forget(&mut self, view: &ViewId) {
        let mut hub = self.hub.lock();
        hub.remove(view);
        let objects = Source::Objects {
            gvr: self.gvr.clone(),
        };
        if objects.view_id() == *view {
            hub.references.lease = None;
        }
        self.dirty = true;
    }

    /// Bodies of the view have to be written anew.
    pub(super) fn seal(&mut self, view: &ViewId, sealed: bool, publisher: &Publisher) {
        let mut hub = self.hub.lock();
        if let Some(member) = hub.members.get_mut(view) {
            member.sealed = sealed;
            publisher.with(|queue| hub.rewrite(view, queue));
            return;
        }
        let Hub {
            watches,
            references,
            ..
        } = &mut *hub;
        if let Some(lease) = references.lease.as_mut().filter(|own| own.view == *view) {
            references.sealed = sealed;
            publisher.with(|queue| {
                queue.begin_list(lease, true);
                queue.complete(lease);
            });
            references.anew();
            watches.values_mut().for_each(RunningWatch::ask);
            self.dirty = true;
        }
    }

    /// The view was set aside for want of room in the log, and there is room now.
    pub(super) fn write_again(&mut self, view: &ViewId, now: Instant, publisher: &Publisher) {
        let mut hub = self.hub.lock();
        if hub.members.contains_key(view) {
            return publisher.with(|queue| {
                queue.begin_return(view, now);
                hub.rewrite(view, queue);
            });
        }
        let Hub {
            watches,
            references,
            ..
        } = &mut *hub;
        let lease = references.lease.as_ref();
        if lease.is_some_and(|own| own.view == *view) {
            publisher.with(|queue| {
                queue.begin_return(view, now);
                references.write_again(now, queue);
            });
            watches.values_mut().for_each(RunningWatch::ask);
            self.dirty = true;
        }
    }

    /// The sealing key changed.
    pub(super) fn reseal(&mut self, publisher: &Publisher) {
        let views: Vec<ViewId> = {
            let hub = self.hub.lock();
            let members = hub.members.values().filter(|member| member.sealed);
            let members = members.map(|member| &member.lease);
            let references = &hub.references;
            let objects = references.lease.iter().filter(|_| references.sealed);
            let leases = members.chain(objects);
            leases.map(|lease| lease.view.clone()).collect()
        };
        for view in &views {
            self.seal(view, true, publisher);
        }
    }

    pub(super) fn sized(&mut self, size: &Size) {
        self.sizing = false;
        self.sized = Some(Instant::now());
        self.dirty = true;
        match size {
            Ok(objects) => self.objects = Some(*objects),
            Err(Fault::Refused { code: 403, .. }) => {
                let mut hub = self.hub.lock();
                hub.forbidden.insert(WatchScope::all(), Instant::now());
            }
            Err(_) => {} // It is planned without.
        }
    }

    /// Asks whether wide watches are allowed by now that were forbidden. One that runs asks by itself.
    pub(super) fn ask(&mut self, now: Instant, tools: &FeedTools, tasks: &mut JoinSet<Done>) {
        let mut hub = self.hub.lock();
        if self.asking || hub.forbidden.is_empty() {
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
        self.asking = true;
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

    /// Takes the answer in. Returns whether watches have to be planned.
    pub(super) fn allowed(&mut self, scopes: &[WatchScope]) -> bool {
        self.asking = false;
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
            self.dirty = true;
            self.sized = None; // It may be told by now.
        }
        changed
    }

    /// Does what time alone brings about. Returns whether watches have to be planned.
    pub(super) fn look(
        &mut self,
        idle_after: Duration,
        now: Instant,
        publisher: &Publisher,
    ) -> bool {
        let mut hub = self.hub.lock();
        let rests = publisher.with(|queue| hub.references.rest(idle_after, now, queue));
        let heard = hub.references_heard(now);
        if let (Some(lease), Some(at)) = (&hub.references.lease, heard) {
            publisher.with(|queue| queue.heard(lease, None, at));
        }
        let changed = rests | hub.references.is_out_of_step(now);
        self.dirty |= changed;
        changed
    }

    fn join(
        &self,
        joining: Vec<(WatchScope, Joining)>,
        tools: &FeedTools,
        planned: &Arc<Notify>,
        tasks: &mut JoinSet<Done>,
    ) {
        for (scope, joining) in joining {
            let join = Join {
                api: tools.api.clone(),
                gvr: self.gvr.clone(),
                sink: sink(&self.gvr, &self.kind, &scope, &self.hub, tools, planned),
            };
            let gvr = self.gvr.clone();
            tasks.spawn(async move {
                join.run(joining).await;
                Done::Joined(gvr)
            });
        }
    }

    pub(super) fn reconcile(
        &mut self,
        tools: &FeedTools,
        planned: &Arc<Notify>,
        tasks: &mut JoinSet<Done>,
    ) {
        let mut hub = self.hub.lock();
        hub.references.fresh.clear();
        let watched = hub.references.lease.is_some();
        let references = hub.references.to_watch(Instant::now());
        let wants = Wants {
            views: hub
                .members
                .iter()
                .map(|(view, of)| (view.clone(), of.filter.clone()))
                .collect(),
            references: if watched { references } else { BTreeSet::new() },
            objects: self.objects,
            forbidden: hub.forbidden.keys().cloned().collect(),
            current: hub.watches.keys().cloned().collect(),
        };
        let again = !wants.forbidden.contains(&WatchScope::all())
            && self.sized.is_none_or(|at| at.elapsed() >= ASK_AGAIN);
        if self.sizing || (again && plan::asks_for_size(&wants)) {
            if !std::mem::replace(&mut self.sizing, true) {
                let (api, gvr) = (tools.api.clone(), self.gvr.clone());
                tasks.spawn(async move {
                    let size = reflect::size(&api, &Collection::all(gvr.clone())).await;
                    Done::Sized(gvr, size)
                });
            }
            return;
        }
        let plan = plan::plan(&wants);
        for scope in &plan.scopes {
            if !hub.watches.contains_key(scope) {
                let watch = start(
                    &self.gvr,
                    &self.kind,
                    &self.left_at,
                    scope,
                    &self.hub,
                    tools,
                    planned,
                    tasks,
                );
                hub.watches.insert(scope.clone(), watch);
            }
        }
        self.wide = plan::spare(&wants, &plan);
        let joining = tools
            .publisher
            .with(|queue| assign(&mut hub, &plan, &wants, queue));
        self.join(joining, tools, planned, tasks);
        hub.watches.retain(|scope, watch| {
            let used = plan.scopes.contains(scope);
            if !used {
                watch.stop();
            }
            used
        });
        self.idle = hub.references.idle();
        self.tell(&hub, tools);
    }

    fn tell(&self, hub: &Hub, tools: &FeedTools) {
        let (open, views) = (hub.watches.len(), hub.members.len());
        let derived = views.saturating_sub(open);
        let references = hub.references.of.len();
        tools
            .metrics
            .planned(&self.gvr, open, derived, references, self.idle);
    }
}

impl Drop for Type {
    fn drop(&mut self) {
        self.hub
            .lock()
            .watches
            .values()
            .for_each(RunningWatch::stop);
    }
}

fn sink(
    gvr: &GroupVersionResource,
    kind: &str,
    scope: &WatchScope,
    hub: &Arc<Mutex<Hub>>,
    tools: &FeedTools,
    planned: &Arc<Notify>,
) -> WatchSink {
    let collection = scope.collection(gvr).canonical();
    let view = Source::Collection(collection).view_id();
    WatchSink {
        scope: scope.clone(),
        hub: Arc::clone(hub),
        publisher: tools.publisher.clone(),
        keys: tools.options.keys.clone(),
        metrics: tools.source_metrics.of_watch(&view),
        api_version: gvr.api_version(),
        kind: kind.to_owned(),
        planned: Arc::clone(planned),
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of a type, borrowed apart"
)]
fn start(
    gvr: &GroupVersionResource,
    kind: &str,
    left_at: &ResourceVersion,
    scope: &WatchScope,
    hub: &Arc<Mutex<Hub>>,
    tools: &FeedTools,
    planned: &Arc<Notify>,
    tasks: &mut JoinSet<Done>,
) -> RunningWatch {
    let collection = scope.collection(gvr).canonical();
    let sink = sink(gvr, kind, scope, hub, tools, planned);
    let metrics = sink.metrics.clone();
    let target = Target {
        collection,
        left_at: left_at.clone(),
        metadata_only: false,
    };
    let (relist, asked) = watch::channel(0);
    let control = Control {
        relist: asked,
        stale_after: tools.options.stale_after,
    };
    let served = tools.served.subscribe();
    let view = Source::Collection(target.collection.clone()).view_id();
    let run = reflect::run_with(tools.api.clone(), target, sink, metrics, served, control);
    let stop = tasks.spawn(async move {
        run.await;
        Done::Watched(view)
    });
    RunningWatch::new(relist, stop)
}
