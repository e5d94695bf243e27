//! What the watcher counts. Names are registered once; labels of a view go when the view goes.

use std::time::Duration;

use anteroom_model::{Group, GroupVersionResource, ViewId, ViewState};
use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
};

use crate::publish::ViewStats;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ViewLabel {
    view: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabel {
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GroupLabel {
    group: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    view: String,
    code: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// All of them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatcherMetrics {
    objects: Family<ViewLabel, Gauge>,
    bytes: Family<ViewLabel, Gauge>,
    age: Family<ViewLabel, Gauge<f64, std::sync::atomic::AtomicU64>>,
    pending: Family<ViewLabel, Gauge>,
    synced: Family<ViewLabel, Gauge>,
    lists: Family<ViewLabel, Counter>,
    events: Family<ViewLabel, Counter>,
    malformed: Family<ViewLabel, Counter>,
    errors: Family<ErrorLabels, Counter>,
    watches: Gauge,
    feeds: Family<TypeLabel, Gauge>,
    derived: Family<TypeLabel, Gauge>,
    references: Family<TypeLabel, Gauge>,
    idle: Family<TypeLabel, Gauge>,
    leader: Gauge,
    groups: Family<GroupLabel, Gauge>,
    term: Gauge,
    status_writes: Family<ResultLabel, Counter>,
    /// Of the writer of the log.
    pub writer: WriterMetrics,
}

/// Of the writer of the log. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WriterMetrics {
    records: Histogram,
    body_bytes: Histogram,
    seconds: Histogram,
    retries: Counter,
}

impl Default for WriterMetrics {
    fn default() -> Self {
        Self {
            records: Histogram::new(exponential_buckets(1.0, 4.0, 5)),
            body_bytes: Histogram::new(exponential_buckets(256.0, 8.0, 6)),
            seconds: Histogram::new(exponential_buckets(0.000_25, 4.0, 8)),
            retries: Counter::default(),
        }
    }
}

impl WriterMetrics {
    pub(crate) fn batch(&self, records: usize, body_bytes: usize, took: Duration) {
        self.records.observe(records as f64);
        self.body_bytes.observe(body_bytes as f64);
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn retry(&self) {
        self.retries.inc();
    }
}

impl WatcherMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let all = Self::default();
        let one = |name: &str, help: &str, family: &Family<ViewLabel, Gauge>| {
            metrics.register(name, help, family.clone());
        };
        one(
            "anteroom_watch_objects",
            "Objects of a view at its source",
            &all.objects,
        );
        one(
            "anteroom_watch_bytes",
            "Bytes of a view's bodies as published",
            &all.bytes,
        );
        one(
            "anteroom_watch_pending",
            "Changes of a view that wait to be written",
            &all.pending,
        );
        one(
            "anteroom_watch_synced",
            "Whether readers were told that a view is synced",
            &all.synced,
        );
        let of_type = |name: &str, help: &str, family: &Family<TypeLabel, Gauge>| {
            metrics.register(name, help, family.clone());
        };
        of_type(
            "anteroom_feeds",
            "Watches of a type that are planned",
            &all.feeds,
        );
        let derived = "Views of a type beyond its watches: derived from those of others";
        of_type("anteroom_derived_views", derived, &all.derived);
        let references = "Objects of a type that are referenced one by one";
        of_type("anteroom_references", references, &all.references);
        let idle = "Referenced objects of a type that nobody reads, and that are not watched";
        of_type("anteroom_references_idle", idle, &all.idle);
        let many = |name: &str, help: &str, family: &Family<ViewLabel, Counter>| {
            metrics.register(name, help, family.clone());
        };
        many(
            "anteroom_watch_lists",
            "Lists of a view that were completed",
            &all.lists,
        );
        many(
            "anteroom_watch_events",
            "Events of a view's watch, without bookmarks",
            &all.events,
        );
        many(
            "anteroom_watch_malformed_objects",
            "Objects that could not be published",
            &all.malformed,
        );
        let age = "How old the news of a view in the log is";
        metrics.register("anteroom_watch_age_seconds", age, all.age.clone());
        let errors = "Faults of a view's lists and watches, by status code or kind";
        metrics.register("anteroom_watch_errors", errors, all.errors.clone());
        metrics.register(
            "anteroom_watches",
            "Watches that are open",
            all.watches.clone(),
        );
        metrics.register(
            "anteroom_leader",
            "Whether this watcher is the coordinator",
            all.leader.clone(),
        );
        metrics.register(
            "anteroom_term",
            "The term in which this watcher is the coordinator, or last was",
            all.term.clone(),
        );
        let groups = "Whether this watcher writes the views of a group";
        metrics.register("anteroom_group_leader", groups, all.groups.clone());
        let writes = "Writes of conditions and of Kubernetes Events, by result";
        metrics.register("anteroom_status_writes", writes, all.status_writes.clone());
        let writer = &all.writer;
        metrics.register(
            "anteroom_publish_batch_records",
            "Records in a batch",
            writer.records.clone(),
        );
        metrics.register(
            "anteroom_publish_batch_bytes",
            "Bytes of a batch",
            writer.body_bytes.clone(),
        );
        metrics.register(
            "anteroom_publish_seconds",
            "Time until a batch was in the log",
            writer.seconds.clone(),
        );
        metrics.register(
            "anteroom_publish_retries",
            "Attempts at a batch that failed",
            writer.retries.clone(),
        );
        all
    }

    /// Sets the gauges of a view.
    pub(crate) fn view(&self, stats: &ViewStats) {
        let label = label(&stats.view);
        let set = |family: &Family<ViewLabel, Gauge>, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.get_or_create(&label).set(value);
        };
        set(&self.objects, stats.objects);
        set(&self.bytes, stats.bytes);
        set(&self.pending, stats.pending as u64);
        set(
            &self.synced,
            u64::from(stats.told == Some(ViewState::Synced)),
        );
        if stats.news_age_ms != u64::MAX {
            self.age
                .get_or_create(&label)
                .set(stats.news_age_ms as f64 / 1000.0);
        }
    }

    /// Sets the gauges of a type.
    pub(crate) fn planned(
        &self,
        gvr: &GroupVersionResource,
        feeds: usize,
        derived: usize,
        references: usize,
        idle: usize,
    ) {
        let resource = gvr.to_string();
        for (family, value) in [
            (&self.feeds, feeds),
            (&self.derived, derived),
            (&self.references, references),
            (&self.idle, idle),
        ] {
            let label = TypeLabel {
                resource: resource.clone(),
            };
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.get_or_create(&label).set(value);
        }
    }

    /// Forgets a view.
    pub(crate) fn forget(&self, view: &ViewId) {
        let label = label(view);
        for gauge in [&self.objects, &self.bytes, &self.pending, &self.synced] {
            gauge.remove(&label);
        }
        self.age.remove(&label);
        for counter in [&self.lists, &self.events, &self.malformed] {
            counter.remove(&label);
        }
    }

    /// Whether this watcher leads the group, and in which term.
    pub(crate) fn leads(&self, group: Group, term: Option<u32>) {
        let label = GroupLabel { group: group.0 };
        let leads = i64::from(term.is_some());
        self.groups.get_or_create(&label).set(leads);
        if group == Group::COORDINATOR {
            self.leader.set(leads);
            if let Some(term) = term {
                self.term.set(i64::from(term));
            }
        }
    }

    pub(crate) fn status_write(&self, succeeded: bool) {
        let result = if succeeded { "written" } else { "failed" };
        self.status_writes
            .get_or_create(&ResultLabel { result })
            .inc();
    }

    /// What one watch counts.
    pub(crate) fn of_watch(&self, view: &ViewId) -> WatchMetrics {
        WatchMetrics {
            all: self.clone(),
            view: view.clone(),
        }
    }
}

/// What one watch counts.
#[derive(Clone, Debug)]
pub(crate) struct WatchMetrics {
    all: WatcherMetrics,
    view: ViewId,
}

impl WatchMetrics {
    pub(crate) fn listed(&self) {
        self.all.lists.get_or_create(&label(&self.view)).inc();
    }

    pub(crate) fn event(&self) {
        self.all.events.get_or_create(&label(&self.view)).inc();
    }

    pub(crate) fn malformed(&self) {
        self.all.malformed.get_or_create(&label(&self.view)).inc();
    }

    pub(crate) fn error(&self, code: String) {
        let labels = ErrorLabels {
            view: self.view.to_string(),
            code,
        };
        self.all.errors.get_or_create(&labels).inc();
    }

    /// Counts a watch as open until it is dropped.
    pub(crate) fn open(&self) -> OpenWatch {
        self.all.watches.inc();
        OpenWatch(self.all.watches.clone())
    }
}

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct OpenWatch(Gauge);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn label(view: &ViewId) -> ViewLabel {
    ViewLabel {
        view: view.to_string(),
    }
}
