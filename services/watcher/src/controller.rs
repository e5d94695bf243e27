//! The leader's mind: what entries, policies and the API server say goes in; views that start and
//! stop, records of the system views and statuses come out. One task owns all of it.

mod kinds;
mod policies;
mod tell;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{
    apiserver::ApiServer,
    discovery::{Catalog, follow::Discovery},
    left::Left,
    manifests::{Entry, Roster},
    metrics::WatcherMetrics,
    publish::{Publisher, Tenure},
    reflect::{self, Note, Target, content_version},
    registry::{Claim, Effect, Event, Registry},
    resolve::{Resolution, resolve},
    sinks::ViewSink,
    status::StatusWriter,
    watcher::Checks,
};
use anteroom_model::{
    EntryKind, EntryRecord, EntryState, ResourceVersion, Source, SourceInfo, ViewId, system,
};
use anyhow::bail;
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
};

/// How often statuses and metrics are brought up to date when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// Reasons that a change of what the API server serves may remove.
const AWAITED: [&str; 4] = [
    "AmbiguousResource",
    "GroupUnavailable",
    "NotWatchable",
    "ResourceNotFound",
];

/// Where a note comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// `CachedContextEntry`.
    Entries,
    /// `ClusterPolicy`.
    ClusterPolicies,
    /// `Policy`.
    Policies,
}

/// What the controller works with.
#[derive(Clone)]
pub(crate) struct Tools {
    /// Reads.
    pub api: ApiServer,
    /// Writes the log.
    pub publisher: Publisher,
    /// Says what is served.
    pub discovery: Discovery,
    /// Tells authors.
    pub status: StatusWriter,
    /// Counts.
    pub metrics: WatcherMetrics,
    /// Says what is waited for.
    pub checks: Arc<Checks>,
}

/// One term of it.
pub(crate) struct Controller {
    tools: Tools,
    registry: Registry,
    catalog: Option<Arc<Catalog>>,
    entries: Roster<Entry>,
    cluster_policies: policies::PolicyFeed,
    policies: policies::PolicyFeed,
    own: OwnViews,
    /// What the log has of views that were not started in this term.
    left: Left,
    watches: JoinSet<()>,
    running: HashMap<ViewId, AbortHandle>,
    /// Entries and catalog were both read once: what nobody wants now is dropped.
    settled: bool,
}

/// The system views, which the controller writes itself.
struct OwnViews {
    entries: Tenure,
    policies: Tenure,
    kinds: Tenure,
}

impl OwnViews {
    fn open(publisher: &Publisher, left: &mut Left) -> Self {
        let mut open = |source: Source| {
            let info = SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            };
            let left = left.take(&info.source.view_id());
            publisher.with(|book| {
                left.unpurged
                    .into_iter()
                    .for_each(|record| book.free(record));
                let mut tenure = book.open(info, left.objects);
                book.begin_list(&mut tenure, false);
                tenure
            })
        };
        Self {
            entries: open(system::entries_source()),
            policies: open(system::policies_source()),
            kinds: open(system::kinds_source()),
        }
    }
}

impl Controller {
    /// At the start of a term, with what the log has.
    pub(crate) fn new(tools: Tools, mut left: Left) -> Self {
        Self {
            own: OwnViews::open(&tools.publisher, &mut left),
            tools,
            registry: Registry::default(),
            catalog: None,
            entries: Roster::default(),
            cluster_policies: policies::PolicyFeed::new("ClusterPolicy", "clusterpolicies"),
            policies: policies::PolicyFeed::new("Policy", "policies"),
            left,
            watches: JoinSet::new(),
            running: HashMap::new(),
            settled: false,
        }
    }

    /// Works until the term ends.
    ///
    /// # Errors
    /// Where a watch ended by itself, which none should.
    pub(crate) async fn run(
        mut self,
        mut notes: mpsc::Receiver<(Feed, Note)>,
    ) -> anyhow::Result<()> {
        let mut catalog = self.tools.discovery.catalog.subscribe();
        let mut told = self.tools.publisher.told();
        let mut tick = tokio::time::interval(TICK);
        catalog.mark_changed();
        loop {
            tokio::select! {
                note = notes.recv() => match note {
                    Some((feed, note)) => self.note(feed, note),
                    None => return Ok(()),
                },
                Ok(()) = catalog.changed() => self.discovered(&mut catalog),
                Ok(()) = told.changed() => {}
                _ = tick.tick() => {}
                Some(ended) = self.watches.join_next() => match ended {
                    Err(stopped) if stopped.is_cancelled() => {}
                    Err(panic) => bail!("a watch panicked: {panic}"),
                    Ok(()) => bail!("a watch ended by itself"),
                },
            }
            if notes.is_empty() {
                self.tell();
            }
        }
    }

    fn note(&mut self, feed: Feed, note: Note) {
        match feed {
            Feed::Entries => self.entry_note(note),
            Feed::ClusterPolicies | Feed::Policies => self.policy_note(feed, note),
        }
    }

    fn entry_note(&mut self, note: Note) {
        let (now, own) = (Instant::now(), &self.own.entries);
        let publisher = &self.tools.publisher;
        match note {
            Note::Begin { .. } => self.entries.begin(),
            Note::Put { object, span } => {
                let entry = Entry::read(&object, EntryKind::Cached);
                span.in_scope(|| self.resolve(&entry));
                self.entries.put(object.key, entry);
            }
            Note::Gone { key, span, .. } => {
                self.entries.remove(&key);
                span.in_scope(|| self.apply(Event::EntryGone(key.name.into())));
            }
            Note::Skipped => publisher.with(|book| book.skipped(own)),
            Note::Listed { .. } => {
                for key in self.entries.sweep() {
                    self.apply(Event::EntryGone(key.name.into()));
                }
                self.tools.checks.entries.ready();
                self.settle();
            }
            Note::Heard { .. } => publisher.with(|book| book.heard(own, None, now)),
            Note::Refused(failure) => {
                let problem = format!("the API server to serve CachedContextEntry: {failure}");
                self.tools.checks.entries.not_ready(problem);
                publisher.with(|book| book.refused(own, failure));
            }
            Note::Troubled(failure) => publisher.with(|book| book.troubled(own, failure)),
        }
    }

    fn discovered(&mut self, catalog: &mut watch::Receiver<Option<Arc<Catalog>>>) {
        let Some(catalog) = catalog.borrow_and_update().clone() else {
            return;
        };
        self.publish_kinds(&catalog);
        let changed = self.catalog.as_ref() != Some(&catalog);
        self.catalog = Some(catalog);
        if changed {
            let entries: Vec<_> = self.entries.values().cloned().collect();
            for entry in &entries {
                self.resolve(entry);
            }
        }
        self.settle();
    }

    /// What the entry means by what is served now.
    fn resolve(&mut self, entry: &Entry) {
        let Some(catalog) = &self.catalog else {
            return; // It is resolved when there is one.
        };
        let resolution = match &entry.spec {
            Ok(spec) => resolve(&entry.identity.name, spec, catalog),
            Err(failure) => Resolution::Invalid(failure.clone()),
        };
        self.apply(Event::Entry(Box::new(Claim {
            name: entry.identity.name.clone(),
            uid: entry.identity.uid.clone(),
            generation: entry.identity.generation,
            resolution,
        })));
    }

    /// Whether something may begin to be served that an entry waits for.
    fn waits_for_api(&self) -> bool {
        self.registry.entries().any(|record| match &record.state {
            EntryState::Invalid { failure } => AWAITED.contains(&failure.reason.as_str()),
            EntryState::Bound(_) => false,
        })
    }

    fn apply(&mut self, event: Event) {
        for effect in self.registry.apply(event) {
            match effect {
                Effect::StartView(info) => self.start(info),
                Effect::StopView(view) => self.stop(&view),
                Effect::PublishEntry(record) => self.publish_entry(&record),
                Effect::RemoveEntry(name) => {
                    let (key, gone) = (EntryKind::Cached.key(&name), ResourceVersion::default());
                    let (own, now) = (&self.own.entries, Instant::now());
                    let span = tracing::info_span!("publish", otel.kind = "producer");
                    let publisher = &self.tools.publisher;
                    publisher.with(|book| book.delete(own, &key, gone, now, span));
                }
            }
        }
        let waits = self.waits_for_api();
        self.tools.discovery.eager.store(waits, Ordering::Relaxed);
    }

    fn publish_entry(&self, record: &EntryRecord) {
        let body = match anteroom_wire::body::encode(record) {
            Ok(body) => body,
            Err(error) => {
                // A record is a few hundred bytes of plain fields.
                tracing::error!(entry = record.name, %error, "entry cannot be published");
                return;
            }
        };
        let (key, version) = (record.kind.key(&record.name), content_version(&body));
        let span = tracing::info_span!("publish", otel.kind = "producer", entry = record.name);
        let (own, now) = (&self.own.entries, Instant::now());
        self.tools
            .publisher
            .with(|book| book.put(own, key, version, body, now, span));
    }

    fn start(&mut self, info: SourceInfo) {
        let Source::Collection(collection) = info.source.clone() else {
            return; // Only collections are wanted by entries.
        };
        let view = info.source.view_id();
        let left = self.left.take(&view);
        tracing::info!(%view, known = left.objects.len(), "view started");
        let Tools {
            api,
            publisher,
            metrics,
            discovery,
            ..
        } = &self.tools;
        let tenure = publisher.with(|book| {
            left.unpurged
                .into_iter()
                .for_each(|record| book.free(record));
            book.open(info.clone(), left.objects)
        });
        let metrics = metrics.of_watch(&view);
        let sink = ViewSink::new(publisher.clone(), tenure, info, metrics.clone());
        let target = Target {
            collection,
            left_at: left.version,
            metadata_only: false,
        };
        let served = discovery.served.subscribe();
        let watch = reflect::run(api.clone(), target, sink, metrics, served);
        self.running.insert(view, self.watches.spawn(watch));
    }

    fn stop(&mut self, view: &ViewId) {
        tracing::info!(%view, "view stopped: nobody needs it any more");
        if let Some(watch) = self.running.remove(view) {
            watch.abort();
        }
        self.tools.publisher.with(|book| book.close(view));
        self.tools.metrics.forget(view);
    }

    /// Once it is known what is wanted, what is not is freed.
    fn settle(&mut self) {
        if !self.entries.listed || self.catalog.is_none() {
            return;
        }
        let (own, now) = (&self.own.entries, Instant::now());
        let publisher = &self.tools.publisher;
        publisher.with(|book| book.listed(own, &ResourceVersion::default(), now));
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        for record in self.left.drain() {
            tracing::info!(view = %record.view, "view of an earlier term freed: nobody needs it");
            publisher.with(|book| book.free(record));
        }
    }
}
