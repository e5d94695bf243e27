//! The policies in whose names reads are asked for: as every service has them, from the log.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anteroom_bus::{Bus, LogScope};
use anteroom_mirror::{Mirror, MirrorConfig, MirrorMetrics, ViewHandle};
use anteroom_model::{ObjectKey, ResourceVersion, system};
use anteroom_policy::Policy;
use anteroom_runtime::{fair_quota::FairQuota, off_thread::off_thread};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::shared_reads::SharedReads;

/// Policies that are kept compiled; with more, all are compiled anew when they are needed.
const COMPILED_MAX: usize = 4_096;

/// Policies that are compiled at once: one of a namespace, or of the cluster, and one of others.
const COMPILING_MAX: u64 = 2;

/// The longest wait for a turn to compile a policy: longer than any caller waits.
const TURN_WAIT: Duration = Duration::from_secs(600);

/// Follows the policies, and the kinds, until `stop` is cancelled or it is dropped.
pub(super) fn mirror(
    bus: Arc<dyn Bus>,
    metrics: MirrorMetrics,
    stop: &CancellationToken,
) -> Mirror {
    let scope = LogScope::Views(vec![system::policies(), system::kinds()]);
    Mirror::start(bus, scope, MirrorConfig::default(), metrics, stop)
}

/// Returns true once all policies have been read.
pub(super) fn are_known(mirror: &Mirror) -> bool {
    let view = mirror.view(&system::policies());
    view.is_some_and(|view| view.read(Some(u64::MAX), |_, _| ()).is_ok())
}

/// Compiled policies.
#[derive(Debug)]
pub(super) struct Policies {
    mirror: Arc<Mirror>,
    compiled: Arc<CompiledPolicies>,
    /// Versions that are being compiled.
    compiling: SharedReads<(ObjectKey, ResourceVersion), Option<Arc<Policy>>>,
    /// The turns of the policies' namespaces.
    turns: Arc<FairQuota<Box<str>>>,
}

/// Compiled policies by key.
type CompiledPolicies = Mutex<HashMap<ObjectKey, Compiled>>;

#[derive(Clone, Debug)]
struct Compiled {
    version: ResourceVersion,
    /// The compiled policy; `None`: it does not compile.
    policy: Option<Arc<Policy>>,
}

impl Policies {
    pub(super) fn new(mirror: Arc<Mirror>) -> Self {
        Self {
            mirror,
            compiled: Arc::default(),
            compiling: SharedReads::default(),
            turns: FairQuota::new(COMPILING_MAX, 1),
        }
    }

    /// Returns the policy's present version; `None`: there is no such policy, or it does not compile. A version that is
    /// not compiled yet is compiled once, beside other tasks, for all who wait for it.
    pub(super) async fn get(&self, key: &ObjectKey) -> Option<Arc<Policy>> {
        // As a webhook takes them: the last that were heard of, whatever their age.
        let found = self.view()?.read(Some(u64::MAX), |view, _| {
            let object = view.get(&key.namespace, &key.name)?;
            Some((object.version(), object.body().to_vec()))
        });
        let (version, body) = found.ok()??;
        if let Some(known) = self.compiled.lock().get(key)
            && known.version == version
        {
            return known.policy.clone();
        }
        let (turns, compiled) = (Arc::clone(&self.turns), Arc::clone(&self.compiled));
        let of = (key.clone(), version);
        let (key, version) = of.clone();
        let compile = move || async move {
            let until = Instant::now() + TURN_WAIT;
            let _turn = turns.take(key.namespace.clone(), 1, until).await.ok()?;
            let policy = off_thread(|| {
                let manifest = anteroom_wire::body::to_json(&body).ok()?;
                anteroom_policy::compile(&manifest).ok().map(Arc::new)
            });
            let known = Compiled {
                version,
                policy: policy.clone(),
            };
            put(&compiled, key, known);
            policy
        };
        let (shared, _) = self.compiling.join(of, compile);
        shared.result().await?
    }

    /// Returns a value that changes whenever a policy may have changed; `None` before there are
    /// policies.
    pub(super) fn changes(
        &self,
    ) -> Option<tokio::sync::watch::Receiver<anteroom_mirror::ViewStatus>> {
        self.view().map(|view| view.status())
    }

    /// The kinds that the API server serves.
    pub(super) fn kinds(&self) -> Option<ViewHandle> {
        self.mirror.view(&system::kinds())
    }

    fn view(&self) -> Option<ViewHandle> {
        self.mirror.view(&system::policies())
    }
}

fn put(compiled: &CompiledPolicies, key: ObjectKey, known: Compiled) {
    let mut compiled = compiled.lock();
    if compiled.len() >= COMPILED_MAX {
        compiled.clear();
    }
    compiled.insert(key, known);
}
