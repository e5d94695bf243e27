//! The policies in whose names reads are asked for: as every service has them, from the log.

use std::{collections::HashMap, sync::Arc};

use anteroom_bus::{Bus, LogScope};
use anteroom_mirror::{Mirror, MirrorConfig, MirrorMetrics, ViewHandle};
use anteroom_model::{ObjectKey, ResourceVersion, system};
use anteroom_policy::Policy;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Policies that are kept compiled; with more, all are compiled anew when they are needed.
const COMPILED_MAX: usize = 4_096;

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
    compiled: Mutex<HashMap<ObjectKey, Compiled>>,
}

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
            compiled: Mutex::default(),
        }
    }

    /// Returns the policy's present version; `None`: there is no such policy, or it does not compile.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<Policy>> {
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
        let manifest = anteroom_wire::body::to_json(&body).ok()?;
        let policy = anteroom_policy::compile(&manifest).ok().map(Arc::new);
        let mut compiled = self.compiled.lock();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        let known = Compiled {
            version,
            policy: policy.clone(),
        };
        compiled.insert(key.clone(), known);
        policy
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
