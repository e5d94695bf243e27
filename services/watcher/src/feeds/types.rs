//! One type: what is wanted of it, and the watches that run for it.

mod crowd;

pub(super) use crowd::{Placed, Reads};

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_model::{Collection, GroupVersionResource, ResourceVersion, Source, ViewId};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use super::{
    FeedTools,
    assign::assign,
    hub::{Feed, Hub, Member},
    join::{Join, Joins},
    plan::{self, Lens, Scope, Wants},
    sink::FeedSink,
};
use crate::{
    apiserver::Fault,
    publish::{Publisher, Tenure},
    reflect::{self, Control, Target},
};

/// After how long a size is asked for again, and whether a wide watch that was forbidden is allowed by
/// now, where nothing is missed without it.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The same where a view or an object is not served: rights that are given back should be seen in
/// seconds.
const ASK_AGAIN_MISSED: Duration = Duration::from_secs(5);

/// How long a view keeps in mind what is gone after one watch took the place of another, which is
/// longer than one may be behind the other.
const OVERLAP: Duration = Duration::from_secs(60);

/// What a task of a feeder ended with.
#[derive(Debug)]
pub(super) enum Done {
    /// Never, for a watch.
    Watched,
    /// The size of a type.
    Sized(GroupVersionResource, Size),
    /// A list beside a watch of the type.
    Joined(GroupVersionResource),
    /// Of the wide watches that were forbidden, these are allowed by now.
    Allowed(GroupVersionResource, Vec<Scope>),
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
    overlaps: Vec<(Tenure, Instant)>,
    /// The wide watches of the last plan, and how many of what they save may go before it is made
    /// anew; `None`: any number.
    wide: BTreeMap<Scope, Option<usize>>,
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
            overlaps: Vec::new(),
            wide: BTreeMap::new(),
            idle: 0,
        }
    }

    pub(super) fn left_at(&mut self, version: ResourceVersion) {
        if self.left_at.compare(&version) != Some(Ordering::Greater) && !version.is_empty() {
            self.left_at = version;
        }
    }

    pub(super) fn view(&mut self, tenure: Tenure, collection: &Collection, sealed: bool) {
        let member = Member {
            lens: Lens::new(collection),
            sealed,
            kept: collection.kept.clone().map(Arc::new),
            feeds: BTreeSet::new(),
            old: BTreeSet::new(),
            done: BTreeSet::new(),
            refused: BTreeMap::new(),
            joins: BTreeMap::new(),
            tenure,
        };
        self.hub.lock().insert(member);
    }

    pub(super) fn objects(&mut self, mut tenure: Tenure, sealed: bool, publisher: &Publisher) {
        publisher.with(|book| book.begin_list(&mut tenure, false));
        self.hub.lock().references.opened(tenure, sealed, publisher);
        if self.settled {
            self.settle(publisher);
        }
    }

    /// All references are known.
    pub(super) fn settle(&mut self, publisher: &Publisher) {
        self.settled = true;
        if let Some(tenure) = &self.hub.lock().references.tenure {
            let (version, now) = (ResourceVersion::default(), Instant::now());
            publisher.with(|book| book.listed(tenure, &version, now));
        }
    }

    pub(super) fn forget(&mut self, view: &ViewId) {
        let mut hub = self.hub.lock();
        hub.remove(view);
        let objects = Source::Objects {
            gvr: self.gvr.clone(),
        };
        if objects.view_id() == *view {
            hub.references.tenure = None;
        }
        self.dirty = true;
    }

    /// Bodies of the view have to be written anew.
    pub(super) fn seal(&mut self, view: &ViewId, sealed: bool, publisher: &Publisher) {
        let mut hub = self.hub.lock();
        let Hub {
            members,
            feeds,
            references,
            ..
        } = &mut *hub;
        if let Some(member) = members.get_mut(view) {
            member.sealed = sealed;
            publisher.with(|book| book.begin_list(&mut member.tenure, true));
            member.done.clear();
            member.joins.clear();
            let own = feeds
                .iter_mut()
                .filter(|(scope, _)| member.feeds.contains(scope));
            own.for_each(|(_, feed)| feed.ask());
        } else if let Some(tenure) = references.tenure.as_mut().filter(|own| own.view == *view) {
            references.sealed = sealed;
            publisher.with(|book| {
                book.begin_list(tenure, true);
                book.complete(tenure);
            });
            references.anew();
            feeds.values_mut().for_each(Feed::ask);
            self.dirty = true;
        }
    }

    /// The sealing key changed.
    pub(super) fn reseal(&mut self, publisher: &Publisher) {
        let views: Vec<ViewId> = {
            let hub = self.hub.lock();
            let members = hub.members.values().filter(|member| member.sealed);
            let objects = hub
                .references
                .tenure
                .iter()
                .filter(|_| hub.references.sealed);
            let members = members.map(|member| &member.tenure);
            members
                .chain(objects)
                .map(|tenure| tenure.view.clone())
                .collect()
        };
        views
            .iter()
            .for_each(|view| self.seal(view, true, publisher));
    }

    pub(super) fn sized(&mut self, size: &Size) {
        self.sizing = false;
        self.sized = Some(Instant::now());
        self.dirty = true;
        match size {
            Ok(objects) => self.objects = Some(*objects),
            Err(Fault::Refused { code: 403, .. }) => {
                let mut hub = self.hub.lock();
                hub.forbidden.insert(Scope::all(), Instant::now());
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
            feeds, forbidden, ..
        } = &mut *hub;
        for (scope, at) in forbidden {
            if !feeds.contains_key(scope) && now.saturating_duration_since(*at) >= after {
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

    /// The answer. Says whether watches have to be planned.
    pub(super) fn allowed(&mut self, scopes: &[Scope]) -> bool {
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

    /// What time alone brings about. Says whether watches have to be planned.
    pub(super) fn look(
        &mut self,
        idle_after: Duration,
        now: Instant,
        publisher: &Publisher,
    ) -> bool {
        let past = |at: &Instant, after| now.saturating_duration_since(*at) >= after;
        let mut hub = self.hub.lock();
        let mut changed = false;
        if hub
            .members
            .values()
            .any(|member| !member.done.is_superset(&member.feeds))
            || !hub.references.of.is_empty()
        {
            changed |= hub.references.rest(idle_after, now, publisher);
            changed |= hub.references.is_out_of_step(now);
            let scopes = hub.references.of.values();
            let scopes: BTreeSet<&Scope> = scopes.filter_map(|of| of.scope.as_ref()).collect();
            let heard = hub.oldest(&scopes.into_iter().cloned().collect());
            if let Some(tenure) = &hub.references.tenure {
                let heard = if hub.references.is_watched() {
                    heard
                } else {
                    Some(now)
                };
                heard
                    .into_iter()
                    .for_each(|at| publisher.with(|book| book.heard(tenure, None, at)));
            }
        } else if let Some(tenure) = &hub.references.tenure {
            publisher.with(|book| book.heard(tenure, None, now));
        }
        let joins = |tenure: &Tenure| {
            let member = hub.members.get(&tenure.view);
            member.is_some_and(|member| !member.joins.is_empty())
        };
        let ended: Vec<_> = self
            .overlaps
            .extract_if(.., |(tenure, since)| past(since, OVERLAP) && !joins(tenure))
            .collect();
        for (tenure, _) in ended {
            if !self.overlaps.iter().any(|(other, _)| *other == tenure) {
                publisher.with(|book| book.set_overlap(&tenure, false));
            }
        }
        self.dirty |= changed;
        changed
    }

    fn join(
        &self,
        joins: Vec<(Scope, Joins)>,
        tools: &FeedTools,
        planned: &Arc<Notify>,
        tasks: &mut JoinSet<Done>,
    ) {
        for (scope, joins) in joins {
            let join = Join {
                api: tools.api.clone(),
                gvr: self.gvr.clone(),
                sink: sink(&self.gvr, &self.kind, &scope, &self.hub, tools, planned),
            };
            let gvr = self.gvr.clone();
            tasks.spawn(async move {
                join.run(joins).await;
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
        let watched = hub.references.tenure.is_some();
        let references = hub.references.to_watch(Instant::now());
        let wants = Wants {
            views: hub
                .members
                .iter()
                .map(|(view, of)| (view.clone(), of.lens.clone()))
                .collect(),
            references: if watched { references } else { BTreeSet::new() },
            objects: self.objects,
            forbidden: hub.forbidden.keys().cloned().collect(),
            current: hub.feeds.keys().cloned().collect(),
        };
        let again = !wants.forbidden.contains(&Scope::all())
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
            if !hub.feeds.contains_key(scope) {
                let feed = start(
                    &self.gvr,
                    &self.kind,
                    &self.left_at,
                    scope,
                    &self.hub,
                    tools,
                    planned,
                    tasks,
                );
                hub.feeds.insert(scope.clone(), feed);
            }
        }
        self.wide = plan::spare(&wants, &plan);
        let moves = assign(&mut hub, &plan, &wants, &tools.publisher);
        self.overlaps.extend(moves.overlaps);
        self.join(moves.joins, tools, planned, tasks);
        let Hub { feeds, members, .. } = &mut *hub;
        feeds.retain(|scope, feed| {
            let heard = members
                .values()
                .any(|of| of.feeds.contains(scope) || of.old.contains(scope));
            let used = heard || plan.scopes.contains(scope);
            if !used {
                feed.stop.abort();
            }
            used
        });
        self.idle = hub.references.idle();
        self.tell(&hub, tools);
    }

    fn tell(&self, hub: &Hub, tools: &FeedTools) {
        let (open, views) = (hub.feeds.len(), hub.members.len());
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
            .feeds
            .values()
            .for_each(|feed| feed.stop.abort());
    }
}

fn sink(
    gvr: &GroupVersionResource,
    kind: &str,
    scope: &Scope,
    hub: &Arc<Mutex<Hub>>,
    tools: &FeedTools,
    planned: &Arc<Notify>,
) -> FeedSink {
    let collection = scope.collection(gvr).canonical();
    let view = Source::Collection(collection).view_id();
    FeedSink {
        scope: scope.clone(),
        hub: Arc::clone(hub),
        publisher: tools.publisher.clone(),
        keys: tools.options.keys.clone(),
        metrics: tools.metrics.of_watch(&view),
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
    scope: &Scope,
    hub: &Arc<Mutex<Hub>>,
    tools: &FeedTools,
    planned: &Arc<Notify>,
    tasks: &mut JoinSet<Done>,
) -> Feed {
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
    let run = reflect::run_with(tools.api.clone(), target, sink, metrics, served, control);
    let stop = tasks.spawn(async move {
        run.await;
        Done::Watched
    });
    Feed::new(relist, stop)
}
