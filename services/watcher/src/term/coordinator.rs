//! The term of the coordinator: the tasks that read manifests and kinds, and the controller.

use std::sync::Arc;

use anteroom_model::{
    Collection, EntryKind, GroupVersionResource, ResourceVersion, ViewId, system,
};
use anteroom_policy::PolicyKind;
use anteroom_runtime::supervise::Tasks;
use tokio::sync::watch;

use super::Context;
use crate::{
    coordinator::{
        Controller, Deps, ExceptionKind, Manifests, NoteSender, Rights, StatusServer, StatusWriter,
        Statuses, note_channel,
    },
    gateway::rights,
    log_writer::{lead::Leadership, log_snapshot::LogSnapshot, publish::Publisher},
    source::{
        discovery::{ResourceQuery, ServedResources, follow::Discovery},
        reflect::{self, Control, NudgeSink, Sink, WatchedCollection},
    },
};

/// The group of entries, and of policies in patterns and JMESPath.
const KYVERNO: &str = "kyverno.io";

/// The group of policies in CEL, and of their exceptions.
const KYVERNO_CEL: &str = "policies.kyverno.io";

/// The version of `GlobalContextEntry` to read while the served versions are unknown.
const GLOBAL_VERSION: &str = "v2alpha1";

/// The version of `PolicyException` to read while the served versions are unknown.
const EXCEPTION_VERSION: &str = "v2";

/// The version of kinds of policies.kyverno.io to read while the served versions are unknown.
const CEL_VERSION: &str = "v1";

/// Stands for all namespaces.
const ALL_NAMESPACES: &str = "*";

/// Starts the tasks of the coordinator for one term.
pub(super) fn spawn(
    context: &Context,
    leadership: &Leadership,
    publisher: &Publisher,
    snapshot: LogSnapshot,
    tasks: &Tasks,
) {
    let start = Start {
        context,
        leadership,
        tasks,
        discovery: Discovery::default(),
        status: StatusWriter::new(
            context.api.clone(),
            context.metrics.status.clone(),
            context.coordinator.is_shadow,
        ),
        statuses: Statuses::default(),
    };
    start.spawn_status_server();
    let (sender, notes) = note_channel();
    let controller = Controller::new(start.controller_deps(publisher), snapshot);
    tasks.spawn("controller", controller.run(notes));
    start.spawn_status_writer();
    let reader = ManifestReader {
        context: context.clone(),
        discovery: start.discovery.clone(),
        notes: sender,
    };
    reader.spawn_manifest_readers(tasks);
    reader.spawn_exception_readers(tasks);
    start.spawn_discovery();
}

/// The parts that the tasks of one term are started with.
struct Start<'a> {
    context: &'a Context,
    leadership: &'a Leadership,
    tasks: &'a Tasks,
    discovery: Discovery,
    status: StatusWriter,
    statuses: Statuses,
}

impl Start<'_> {
    fn spawn_status_server(&self) {
        let server = StatusServer {
            bus: Arc::clone(&self.context.bus),
            statuses: self.statuses.clone(),
            coordinator: self.leadership.holder.clone(),
            incarnation: self.leadership.incarnation.clone(),
            log_size: self.context.log_size.subscribe(),
            log_faults: self.context.log_faults.subscribe(),
        };
        self.tasks
            .spawn_until_shutdown("statuses for operators", server.run());
    }

    fn controller_deps(&self, publisher: &Publisher) -> Deps {
        let context = self.context;
        Deps {
            bus: Arc::clone(&context.bus),
            incarnation: self.leadership.incarnation.clone(),
            highest: context.members.highest().clone(),
            publisher: publisher.clone(),
            discovery: self.discovery.clone(),
            status: self.status.clone(),
            statuses: self.statuses.clone(),
            caller: context.caller.clone(),
            source_metrics: context.metrics.source.clone(),
            entries_check: Arc::clone(&context.checks.entries),
            policies_check: Arc::clone(&context.checks.policies),
            memory: context.feeds.memory.account(),
            rights: self.spawn_rights(),
            options: context.coordinator.clone(),
        }
    }

    /// Starts the tasks that ask for the watcher's write rights, and for its user name.
    fn spawn_rights(&self) -> Rights {
        let (needed, needs) = watch::channel(Arc::default());
        let (found_in, found) = watch::channel(rights::LackingRights::new());
        let (user_in, user) = watch::channel(rights::WriterUser::default());
        let served = self.discovery.served_resources.subscribe();
        let api = self.context.api.clone();
        self.tasks.spawn_until_shutdown("rights", async move {
            let keeps = rights::keep(api.clone(), served, needs, found_in);
            tokio::join!(keeps, rights::find_user(api, user_in));
        });
        Rights {
            needed,
            found,
            user,
        }
    }

    fn spawn_status_writer(&self) {
        let (status, holder) = (self.status.clone(), self.leadership.holder.clone());
        self.tasks
            .spawn_until_shutdown("status writer", async move {
                status.run(&holder).await;
            });
    }

    /// Starts the task that asks for the kinds that are served, and the readers of definitions, which say that
    /// these may have changed. Where definitions may not be watched, the served resources are read every so often.
    fn spawn_discovery(&self) {
        for (group, plural) in [
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("apiregistration.k8s.io", "apiservices"),
        ] {
            let sink = NudgeSink(Arc::clone(&self.discovery.nudge));
            let watched_collection = watched_collection(group, "v1", plural, true);
            let view = system::kinds();
            let watch = watch(
                self.context,
                &self.discovery,
                watched_collection,
                sink,
                &view,
            );
            let name = format!("reader of {plural}");
            self.tasks.spawn_until_shutdown(name, async move {
                watch.await;
            });
        }
        let (discovery, api) = (self.discovery.clone(), self.context.api.clone());
        self.tasks.spawn_until_shutdown("discovery", async move {
            discovery.run(&api).await;
        });
    }
}

/// Reads manifests for the controller.
#[derive(Clone)]
struct ManifestReader {
    context: Context,
    discovery: Discovery,
    notes: NoteSender,
}

/// A kind served in several versions, which depend on the installed definition.
struct VersionedKind {
    manifests: Manifests,
    group: &'static str,
    plural: &'static str,
    /// The version to read while the served versions are unknown.
    version: &'static str,
    view: ViewId,
}

impl ManifestReader {
    /// Starts the readers of entries and policies.
    fn spawn_manifest_readers(&self, tasks: &Tasks) {
        for (manifests, version, plural, view) in [
            (
                Manifests::Entries(EntryKind::Cached),
                "v2alpha1",
                "cachedcontextentries",
                system::entries(),
            ),
            (
                Manifests::Policies(PolicyKind::Cluster),
                "v1",
                "clusterpolicies",
                system::policies(),
            ),
            (
                Manifests::Policies(PolicyKind::Namespaced),
                "v1",
                "policies",
                system::policies(),
            ),
        ] {
            let reader = self.clone();
            tasks.spawn_until_shutdown(format!("reader of {plural}"), async move {
                let watched_collection = watched_collection(KYVERNO, version, plural, false);
                reader.read(manifests, watched_collection, view).await;
            });
        }
        let versioned = PolicyKind::IN_CEL.map(|kind| VersionedKind {
            manifests: Manifests::Policies(kind),
            group: KYVERNO_CEL,
            plural: kind.plural(),
            version: CEL_VERSION,
            view: system::policies(),
        });
        let global = VersionedKind {
            manifests: Manifests::Entries(EntryKind::Global),
            group: KYVERNO,
            plural: "globalcontextentries",
            version: GLOBAL_VERSION,
            view: system::entries(),
        };
        for versioned in versioned.into_iter().chain([global]) {
            self.clone().spawn_versioned(versioned, None, tasks);
        }
    }

    /// Starts the readers of exceptions, if any are to be read.
    fn spawn_exception_readers(&self, tasks: &Tasks) {
        let Some(namespace) = &self.context.exception_namespace else {
            return;
        };
        let namespace = Some(Arc::clone(namespace)).filter(|all| **all != *ALL_NAMESPACES);
        for (kind, group, version) in [
            (ExceptionKind::Classic, KYVERNO, EXCEPTION_VERSION),
            (ExceptionKind::Cel, KYVERNO_CEL, CEL_VERSION),
        ] {
            let versioned = VersionedKind {
                manifests: Manifests::Exceptions(kind),
                group,
                plural: "policyexceptions",
                version,
                view: system::exceptions(),
            };
            self.clone()
                .spawn_versioned(versioned, namespace.clone(), tasks);
        }
    }

    async fn read(
        &self,
        manifests: Manifests,
        watched_collection: WatchedCollection,
        view: ViewId,
    ) {
        let sink = self.notes.sink(manifests);
        watch(
            &self.context,
            &self.discovery,
            watched_collection,
            sink,
            &view,
        )
        .await;
    }

    fn spawn_versioned(self, versioned: VersionedKind, namespace: Option<Arc<str>>, tasks: &Tasks) {
        let name = format!("reader of {}.{}", versioned.plural, versioned.group);
        tasks.spawn_until_shutdown(name, async move {
            self.read_versioned(versioned, namespace.as_deref()).await;
        });
    }

    /// Reads a kind in the version that the API server prefers.
    async fn read_versioned(&self, versioned: VersionedKind, namespace: Option<&str>) {
        let mut served = self.discovery.served_resources.subscribe();
        // Where nothing is known yet, an answer of *not found* would say nothing.
        let _ = served.wait_for(Option::is_some).await;
        loop {
            let preferred = |served: &Option<Arc<ServedResources>>| {
                let served = served.as_deref()?;
                preferred_version(served, &versioned)
            };
            let version = preferred(&served.borrow());
            let version = version.unwrap_or_else(|| versioned.version.to_owned());
            let mut watched_collection =
                watched_collection(versioned.group, &version, versioned.plural, false);
            watched_collection.collection.namespaces =
                namespace.map(str::to_owned).into_iter().collect();
            let other = |served: &Option<Arc<ServedResources>>| {
                preferred(served).is_some_and(|now| now != version)
            };
            let ended = async { served.wait_for(other).await.is_err() };
            tokio::select! {
                () = self.read(versioned.manifests, watched_collection, versioned.view.clone()) => {}
                ended = ended => if ended {
                    return std::future::pending().await; // The term ends.
                },
            }
        }
    }
}

fn preferred_version(served: &ServedResources, versioned: &VersionedKind) -> Option<String> {
    let found = served.resolve(ResourceQuery {
        group: Some(versioned.group),
        version: None,
        kind: versioned.plural,
    });
    found.ok().map(|found| found.record.gvr.version.clone())
}

fn watch<S: Sink + 'static>(
    context: &Context,
    discovery: &Discovery,
    watched_collection: WatchedCollection,
    sink: S,
    view: &ViewId,
) -> impl Future<Output = ()> + use<S> {
    let (api, served) = (context.api.clone(), discovery.served.subscribe());
    let metrics = context.metrics.source.of_watch(view);
    let control = Control {
        stale_after: context.feeds.stale_after,
        ..Control::default()
    };
    reflect::run_with(api, watched_collection, sink, metrics, served, control)
}

fn watched_collection(
    group: &str,
    version: &str,
    plural: &str,
    metadata_only: bool,
) -> WatchedCollection {
    let gvr = GroupVersionResource::new(group, version, plural);
    let left_at = ResourceVersion::default();
    WatchedCollection {
        collection: Collection::all(gvr),
        left_at,
        metadata_only,
    }
}
