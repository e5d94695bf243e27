//! Applies the rule to the mirror's views.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use anteroom_mirror::{ContentStamp, Mirror, ViewHandle, ViewSet};
use anteroom_model::{DesiredView, Source, ViewId, ViewOptions, system};
use anteroom_runtime::Check;
use anteroom_view::{LifeState, Object};
use anteroom_wire::body;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    ViewUsages,
    rule::{self, EvictableView, EvictionReason, Phase},
};
use crate::{
    evaluate::Evaluator,
    memory_limit::{PROCESS_BYTES, evaluations_bytes},
    metrics::{MemoryBytes, MemoryMetrics},
    shares,
};

/// The interval at which memory is looked at. A log that is read at 300 MB a second brings 15 MB
/// meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// An eviction within this time of a return counts as one in a row.
const SOON_MS: u64 = 60_000;

/// The longest time that a view may take to go or to come back, before its state counts again.
const SETTLING_MS: u64 = 10_000;

/// Keeps the views within the limits.
pub(crate) struct Keeper {
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) uses: Arc<ViewUsages>,
    pub(crate) evaluator: Arc<Evaluator>,
    pub(crate) metrics: MemoryMetrics,
    pub(crate) replica: String,
    pub(crate) limit: Option<u64>,
    pub(crate) limited: Limited,
    pub(crate) moved: BTreeMap<ViewId, Moved>,
    pub(crate) desired: DesiredOptions,
}

/// The memory that the limit is for.
pub(crate) enum Limited {
    /// The memory of the process. The check is not ready while the views take more than the limit, and none may be
    /// evicted.
    Process(Check),
    /// The views, indexes and results alone. Any view may be evicted, since replicas have it too.
    LocalViews,
}

/// A view that was evicted, or is on its way back.
pub(crate) struct Moved {
    bytes: u64,
    since: u64,
    why: EvictionReason,
    times: u32,
    /// The time at which the mirror was asked to load the view again.
    coming: Option<u64>,
}

/// The options of the views that the mirror has, as the watcher wants them.
#[derive(Default)]
pub(crate) struct DesiredOptions {
    /// The state of the view that they were read from.
    content: Option<ContentStamp>,
    views: HashMap<ViewId, ReadOptions>,
    /// Makes the hashes of records.
    hashes: RandomState,
}

/// The options of a view, and the hash of the record that they were read from; `None`: there was none.
#[derive(Clone, Default)]
struct ReadOptions {
    hash: Option<u64>,
    kept: KeptOptions,
}

/// The options of a view, and the namespace of a tenants' view: see [`EvictableView::tenant`].
#[derive(Clone, Default)]
struct KeptOptions {
    options: ViewOptions,
    tenant: Option<Arc<str>>,
}

impl From<DesiredView> for KeptOptions {
    fn from(desired: DesiredView) -> Self {
        let namespace = match &desired.info.source {
            Source::Collection(collection) => collection.only_namespace(),
            Source::Objects { .. } | Source::ApiCall { .. } | Source::System { .. } => None,
        };
        let is_tenants = desired.options.in_quota;
        Self {
            tenant: is_tenants.then(|| Arc::from(namespace.unwrap_or_default())),
            options: desired.options,
        }
    }
}

impl DesiredOptions {
    /// Reads the records of these views again if any record has changed, or a view is new. Only what has changed is decoded:
    /// tenants can change records of their own views all the time. Old options are better than none.
    fn renew(&mut self, view: Option<ViewHandle>, held: &ViewSet) {
        let Some(view) = view else { return };
        let Ok((desired, position)) = view.snapshot(Some(u64::MAX)) else {
            return;
        };
        let is_new = |id: &ViewId| !self.views.contains_key(id);
        if self.content == Some(position.content) && !held.keys().any(is_new) {
            return;
        }
        let desired = desired.read();
        let read = |id: &ViewId| {
            let record = desired.get("", id.as_str()).map(Object::body);
            let hash = record.map(|record| self.hashes.hash_one(record));
            match self.views.get(id) {
                Some(known) if known.hash == hash => known.clone(),
                _ => ReadOptions {
                    hash,
                    kept: record.map(kept).unwrap_or_default(),
                },
            }
        };
        let views = held.keys().map(|id| (id.clone(), read(id))).collect();
        self.views = views;
        self.content = Some(position.content);
    }

    fn options_of(&self, view: &ViewId) -> KeptOptions {
        let known = self.views.get(view);
        known.map(|known| known.kept.clone()).unwrap_or_default()
    }
}

/// Returns the options in a record; the usual ones, where it cannot be read.
fn kept(record: &[u8]) -> KeptOptions {
    let desired = body::decode::<DesiredView>(record);
    desired.map(KeptOptions::from).unwrap_or_default()
}

impl Keeper {
    /// Looks after memory until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let looking = async {
            loop {
                look.tick().await;
                self.check_memory();
            }
        };
        stop.run_until_cancelled(looking).await;
        Ok(())
    }

    fn check_memory(&mut self) {
        let views = Arc::clone(&self.mirror.views().borrow());
        self.desired
            .renew(self.mirror.view(&system::desired_views()), &views);
        self.moved.retain(|id, _| views.contains_key(id));
        self.uses.retain(|id| views.contains_key(id));
        let now = self.uses.now();
        let derived = self.evaluator.derived();
        let results = self.evaluator.cached_bytes();
        let of_indexes = derived.bytes();
        let others = results + of_indexes;
        let indexes = derived.count();
        let subjects: Vec<_> = views
            .iter()
            .map(|(id, view)| self.subject(now, id, view))
            .collect();
        let ids: Vec<_> = views.keys().collect();
        let of_process = match self.limited {
            Limited::Process(_) => PROCESS_BYTES,
            Limited::LocalViews => 0,
        };
        let room = self.limit.map(|limit| {
            let taken = of_process + evaluations_bytes(limit) + others;
            limit.saturating_sub(taken)
        });
        let decision = rule::decide(now, room, &subjects);
        for (at, why) in decision.evict {
            self.evict(now, ids[at], &subjects[at], why);
        }
        if let Some(at) = decision.load {
            self.load(now, ids[at]);
        }
        self.tell_over(decision.over);
        let bytes = MemoryBytes {
            views: self.mirror.bytes(),
            indexes: of_indexes,
            results,
        };
        self.metrics.set(bytes, indexes, self.limit);
    }

    fn subject(&mut self, now: u64, id: &ViewId, view: &ViewHandle) -> EvictableView {
        let evicted = view.status().borrow().state == LifeState::Evicted;
        let phase = self.phase(now, id, evicted);
        let KeptOptions { options, tenant } = self.desired.options_of(id);
        if options.sealed {
            self.uses.get_or_create(id).set_sealed();
        }
        let known = self.moved.get(id).map_or(0, |moved| moved.bytes);
        let is_pinned = options.pinned && matches!(self.limited, Limited::Process(_));
        EvictableView {
            bytes: match phase {
                Phase::Held => view.bytes(),
                Phase::Coming => view.bytes().max(known),
                Phase::Evicted { .. } => known,
            },
            bytes_max: options.bytes_max,
            stays: is_pinned || id.is_system(),
            tenant,
            used_at: self.uses.get_or_create(id).at(),
            tie: shares::weight(&self.replica, id),
            phase,
        }
    }

    /// Finds the phase of a view from its last eviction or return, and its state now.
    fn phase(&mut self, now: u64, id: &ViewId, evicted: bool) -> Phase {
        let Some(moved) = self.moved.get_mut(id) else {
            return Phase::Held;
        };
        match moved.coming {
            Some(asked) if !evicted || now - asked > SETTLING_MS => {
                if evicted {
                    moved.coming = None; // It did not come: asked again, later.
                    moved.since = now;
                } else {
                    if now - asked > SOON_MS {
                        self.moved.remove(id);
                    }
                    self.uses.get_or_create(id).set_evicted(None);
                    return Phase::Held;
                }
            }
            Some(_) => return Phase::Coming,
            None if !evicted && now - moved.since > SETTLING_MS => {
                // It was dropped, and is desired again.
                self.moved.remove(id);
                self.uses.get_or_create(id).set_evicted(None);
                return Phase::Held;
            }
            None => {}
        }
        self.moved
            .get(id)
            .map_or(Phase::Held, |moved| Phase::Evicted {
                since: moved.since,
                why: moved.why,
                times: moved.times,
            })
    }

    fn evict(&mut self, now: u64, id: &ViewId, subject: &EvictableView, why: EvictionReason) {
        let times = self.moved.get(id).map_or(0, |moved| moved.times) + 1;
        let reason = reason(why, subject, self.limit);
        match self.limited {
            Limited::Process(_) => {
                tracing::warn!(view = %id, bytes = subject.bytes, reason, "view evicted");
            }
            Limited::LocalViews => tracing::warn!(
                view = %id,
                bytes = subject.bytes,
                reason,
                "local view evicted: replicas are asked instead; raise --local-views-memory-limit, or name fewer views"
            ),
        }
        self.metrics.evicted(id, why.label());
        self.uses.get_or_create(id).set_evicted(Some(reason));
        let moved = Moved {
            bytes: subject.bytes,
            since: now,
            why,
            times,
            coming: None,
        };
        self.moved.insert(id.clone(), moved);
        self.mirror.evict(id);
    }

    fn load(&mut self, now: u64, id: &ViewId) {
        if let Some(moved) = self.moved.get_mut(id) {
            moved.coming = Some(now);
            tracing::info!(view = %id, "loading of the evicted view started");
            self.mirror.load(id);
        }
    }

    fn tell_over(&self, over: bool) {
        let Limited::Process(check) = &self.limited else {
            return;
        };
        if over {
            check.not_ready(
                "memory: what is pinned takes more than the limit; raise --memory-limit, or pin less",
            );
        } else {
            check.ready();
        }
    }
}

fn reason(why: EvictionReason, subject: &EvictableView, limit: Option<u64>) -> String {
    let bytes = subject.bytes;
    let limit = limit.unwrap_or_default();
    match why {
        EvictionReason::OwnLimit => format!(
            "it takes {bytes} bytes, and its own limit is {}; it is tried again when it is asked for",
            subject.bytes_max.unwrap_or_default()
        ),
        EvictionReason::Huge => format!(
            "its {bytes} bytes are more than half of what a memory limit of {limit} leaves to views; \
             it comes back when there is room beside the others"
        ),
        EvictionReason::Oldest if subject.tenant.is_some() => format!(
            "the memory limit of {limit} bytes was reached, and only policies of namespaces need it: such \
             views go first; it comes back when there is room beside the others"
        ),
        EvictionReason::Oldest => format!(
            "the memory limit of {limit} bytes was reached, and it was used least recently; it comes \
             back when there is room, or older ones may go"
        ),
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::{Bus, LogScope, local::LocalBus};
    use anteroom_mirror::{
        MirrorConfig, MirrorMetrics,
        testing::{ViewWriter, collection},
    };

    use super::*;

    /// Renews the options, while the writer beats, until a view's are these.
    async fn renewed(
        options: &mut DesiredOptions,
        mirror: &Mirror,
        writer: &ViewWriter,
        view: &ViewId,
        is_tenants: bool,
    ) {
        let renewing = async {
            while options.content.is_none()
                || !options.views.contains_key(view)
                || options.options_of(view).tenant.is_some() != is_tenants
            {
                writer.beat().await;
                tokio::time::sleep(LOOK).await;
                let held = Arc::clone(&mirror.views().borrow());
                options.renew(mirror.view(&system::desired_views()), &held);
            }
        };
        let time = Duration::from_secs(60);
        tokio::time::timeout(time, renewing).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn options_are_read_of_the_views_that_the_mirror_has_alone() {
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let mut writer = ViewWriter::new(Arc::clone(&bus)).await;
        let views = ["here", "elsewhere"].map(|plural| writer.open(collection(plural, "Kind")));
        for view in &views {
            writer.desire(view, true).await;
            writer.synced(view).await;
        }
        let [here, _] = views;
        let scope = LogScope::Views(vec![system::desired_views(), here.clone()]);
        let (config, metrics) = (MirrorConfig::default(), MirrorMetrics::default());
        let stop = CancellationToken::new();
        let mirror = Mirror::start(bus, scope, config, metrics, &stop);
        let mut options = DesiredOptions::default();
        renewed(&mut options, &mirror, &writer, &here, true).await;
        let of: Vec<_> = options.views.keys().filter(|id| !id.is_system()).collect();
        assert_eq!(of, [&here]);
        writer.desire(&here, false).await;
        renewed(&mut options, &mirror, &writer, &here, false).await;
        stop.cancel();
    }
}
