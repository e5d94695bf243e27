//! The term of the coordinator: what it reads, and the tasks that make something of it.

use std::sync::Arc;

use anteroom_model::{
    Collection, EntryKind, GroupVersionResource, ResourceVersion, ViewId, system,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::Setting;
use crate::{
    calls::Caller,
    controller::{Controller, Feed, Rights, Tools},
    discovery::{Catalog, Wanted, follow::Discovery},
    lead::Leadership,
    left::Left,
    publish::Publisher,
    reflect::{self, Control, Note, Sink, Target},
    rights,
    sinks::{ForwardSink, NudgeSink},
    status::StatusWriter,
};

/// Notes that wait for the controller; at the limit, reading them from the API server waits.
const NOTES_MAX: usize = 1_024;

/// The group of entries and policies.
const KYVERNO: &str = "kyverno.io";

/// The version of `GlobalContextEntry` that is asked for where it is not known which are served.
const GLOBAL_VERSION: &str = "v2alpha1";

/// The version of `PolicyException` that is asked for where it is not known which are served.
const EXCEPTION_VERSION: &str = "v2";

/// Stands for all namespaces.
const ALL_NAMESPACES: &str = "*";

pub(super) fn spawn(
    setting: &Setting,
    leadership: &Leadership,
    publisher: &Publisher,
    left: Left,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) {
    let discovery = Discovery::default();
    let status = StatusWriter::new(setting.api.clone(), setting.metrics.clone());
    let tools = Tools {
        bus: Arc::clone(&setting.bus),
        incarnation: leadership.incarnation.clone(),
        publisher: publisher.clone(),
        discovery: discovery.clone(),
        status: status.clone(),
        caller: Caller::new(setting.api.clone(), setting.api_call_bytes_max),
        metrics: setting.metrics.clone(),
        checks: Arc::clone(&setting.checks),
        cache_api_calls: setting.cache_api_calls,
        background_scans: setting.background_scans,
        secrets: Arc::clone(&setting.secrets),
        memory: Arc::new(setting.feeds.memory.share()),
        reads_exceptions: setting.exception_namespace.is_some(),
        rights: rights(setting, &discovery, tasks),
    };
    let (sender, notes) = mpsc::channel(NOTES_MAX);
    let controller = Controller::new(tools, left);
    tasks.spawn(controller.run(notes));
    let holder = leadership.holder.clone();
    tasks.spawn(async move {
        status.run(&holder).await;
        Ok(())
    });
    let reader = Reader {
        setting: setting.clone(),
        discovery: discovery.clone(),
        notes: sender,
    };
    let cached = Feed::Entries(EntryKind::Cached);
    for (feed, version, plural, view) in [
        (
            cached,
            "v2alpha1",
            "cachedcontextentries",
            system::entries(),
        ),
        (
            Feed::ClusterPolicies,
            "v1",
            "clusterpolicies",
            system::policies(),
        ),
        (Feed::Policies, "v1", "policies", system::policies()),
    ] {
        let reader = reader.clone();
        tasks.spawn(async move {
            reader
                .read(feed, target(KYVERNO, version, plural, false), view)
                .await;
            Ok(())
        });
    }
    if let Some(namespace) = setting.exception_namespace.clone() {
        let reader = reader.clone();
        tasks.spawn(async move {
            let namespace = Some(&*namespace).filter(|namespace| *namespace != ALL_NAMESPACES);
            let served = Served {
                of: Feed::Exceptions,
                plural: "policyexceptions",
                version: EXCEPTION_VERSION,
                view: system::exceptions(),
            };
            reader.read_served(served, namespace).await;
            Ok(())
        });
    }
    tasks.spawn(async move {
        let served = Served {
            of: Feed::Entries(EntryKind::Global),
            plural: "globalcontextentries",
            version: GLOBAL_VERSION,
            view: system::entries(),
        };
        reader.read_served(served, None).await;
        Ok(())
    });
    // Definitions say that what is served may have changed. Where they may not be watched, the
    // catalog is asked for every so often.
    for (group, plural) in [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
    ] {
        let sink = NudgeSink(Arc::clone(&discovery.nudge));
        let target = target(group, "v1", plural, true);
        let watch = watch(setting, &discovery, target, sink, &system::kinds());
        tasks.spawn(async move {
            watch.await;
            Ok(())
        });
    }
    let api = setting.api.clone();
    tasks.spawn(async move {
        discovery.run(&api).await;
        Ok(())
    });
}

/// What may be written, and as whom, is asked by tasks of their own.
fn rights(
    setting: &Setting,
    discovery: &Discovery,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> Rights {
    let (needed, needs) = watch::channel(Arc::default());
    let (found_in, found) = watch::channel(rights::Found::new());
    let (user_in, user) = watch::channel(rights::Writer::default());
    let (api, catalog) = (setting.api.clone(), discovery.catalog.subscribe());
    tasks.spawn(async move {
        let keeps = rights::keep(api.clone(), catalog, needs, found_in);
        tokio::join!(keeps, rights::find_user(api, user_in));
        Ok(())
    });
    Rights {
        needed,
        found,
        user,
    }
}

/// Reads what the controller is told.
#[derive(Clone)]
struct Reader {
    setting: Setting,
    discovery: Discovery,
    notes: mpsc::Sender<(Feed, Note)>,
}

/// A kind that is served in several versions: which ones depends on who installed the definition.
struct Served {
    of: Feed,
    plural: &'static str,
    /// Where it is not known which are served.
    version: &'static str,
    view: ViewId,
}

impl Reader {
    async fn read(&self, of: Feed, target: Target, view: ViewId) {
        let to = self.notes.clone();
        let sink = ForwardSink { of, to };
        watch(&self.setting, &self.discovery, target, sink, &view).await;
    }

    /// In the version that the API server prefers.
    async fn read_served(&self, served: Served, namespace: Option<&str>) {
        let mut catalog = self.discovery.catalog.subscribe();
        // Where nothing is known yet, an answer of *not found* would say nothing.
        let _ = catalog.wait_for(Option::is_some).await;
        loop {
            let preferred = |catalog: &Option<Arc<Catalog>>| {
                let catalog = catalog.as_deref()?;
                preferred_version(catalog, served.plural)
            };
            let version = preferred(&catalog.borrow());
            let version = version.unwrap_or_else(|| served.version.to_owned());
            let mut target = target(KYVERNO, &version, served.plural, false);
            target.collection.namespaces = namespace.map(str::to_owned).into_iter().collect();
            let other = |catalog: &Option<Arc<Catalog>>| {
                preferred(catalog).is_some_and(|now| now != version)
            };
            let ended = async { catalog.wait_for(other).await.is_err() };
            tokio::select! {
                () = self.read(served.of, target, served.view.clone()) => {}
                ended = ended => if ended {
                    return std::future::pending().await; // The term ends.
                },
            }
        }
    }
}

fn preferred_version(catalog: &Catalog, plural: &str) -> Option<String> {
    let found = catalog.resolve(Wanted {
        group: Some(KYVERNO),
        version: None,
        kind: plural,
    });
    found.ok().map(|found| found.record.gvr.version.clone())
}

fn watch<S: Sink + 'static>(
    setting: &Setting,
    discovery: &Discovery,
    target: Target,
    sink: S,
    view: &ViewId,
) -> impl Future<Output = ()> + use<S> {
    let (api, served) = (setting.api.clone(), discovery.served.subscribe());
    let metrics = setting.metrics.of_watch(view);
    let control = Control {
        stale_after: setting.feeds.stale_after,
        ..Control::default()
    };
    reflect::run_with(api, target, sink, metrics, served, control)
}

fn target(group: &str, version: &str, plural: &str, metadata_only: bool) -> Target {
    let gvr = GroupVersionResource::new(group, version, plural);
    let left_at = ResourceVersion::default();
    Target {
        collection: Collection::all(gvr),
        left_at,
        metadata_only,
    }
}
