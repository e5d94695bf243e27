//! Metrics of the log's writer: batches, written views, led groups.

use std::{sync::atomic::AtomicU64, time::Duration};

use anteroom_bus::LogSize;
use anteroom_model::{Group, ViewId, ViewState};
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

use super::publish::ViewStats;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ViewLabel {
    view: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct GroupLabel {
    group: u16,
}

/// The metrics of all groups. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LogMetrics {
    objects: Family<ViewLabel, Gauge>,
    bytes: Family<ViewLabel, Gauge>,
    refused_bytes: Family<ViewLabel, Gauge>,
    log_bytes: Gauge,
    log_bytes_max: Gauge,
    age: Family<ViewLabel, Gauge<f64, AtomicU64>>,
    pending: Family<ViewLabel, Gauge>,
    synced: Family<ViewLabel, Gauge>,
    leader: Gauge,
    groups: Family<GroupLabel, Gauge>,
    term: Gauge,
    beats_unsent: Counter,
    /// The metrics of batches.
    pub batches: BatchMetrics,
}

/// The metrics of batches that are appended to the log. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BatchMetrics {
    records: Histogram,
    body_bytes: Histogram,
    seconds: Histogram,
    retries: Counter,
}

impl BatchMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            records: metrics.register(
                "anteroom_publish_batch_records",
                "Records in a batch",
                Histogram::new(exponential_buckets(1.0, 4.0, 5)),
            ),
            body_bytes: metrics.register(
                "anteroom_publish_batch_bytes",
                "Bytes of a batch",
                Histogram::new(exponential_buckets(256.0, 8.0, 6)),
            ),
            seconds: metrics.register(
                "anteroom_publish_seconds",
                "Time until a batch was in the log",
                Histogram::new(exponential_buckets(0.000_25, 4.0, 8)),
            ),
            retries: metrics.create(
                "anteroom_publish_retries",
                "Attempts at a batch that failed",
            ),
        }
    }

    pub(crate) fn batch(&self, records: usize, body_bytes: usize, took: Duration) {
        self.records.observe(records as f64);
        self.body_bytes.observe(body_bytes as f64);
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn retry(&self) {
        self.retries.inc();
    }
}

impl LogMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            objects: metrics.create("anteroom_watch_objects", "Objects of a view at its source"),
            bytes: metrics.create(
                "anteroom_watch_bytes",
                "Bytes of a view's bodies as published",
            ),
            refused_bytes: metrics.create(
                "anteroom_watch_refused_bytes",
                "Bytes of a view's bodies that the log has no room for",
            ),
            log_bytes: metrics.create("anteroom_log_bytes", "Bytes that the log takes"),
            log_bytes_max: metrics.create(
                "anteroom_log_bytes_max",
                "Bytes that the log may take; 0: any number",
            ),
            age: metrics.create(
                "anteroom_watch_age_seconds",
                "How old the news of a view in the log is",
            ),
            pending: metrics.create(
                "anteroom_watch_pending",
                "Changes of a view that wait to be written",
            ),
            synced: metrics.create(
                "anteroom_watch_synced",
                "Whether readers were told that a view is synced",
            ),
            leader: metrics.create("anteroom_leader", "Whether this watcher is the coordinator"),
            groups: metrics.create(
                "anteroom_group_leader",
                "Whether this watcher writes the views of a group",
            ),
            term: metrics.create(
                "anteroom_term",
                "The term in which this watcher is the coordinator, or last was",
            ),
            beats_unsent: metrics.create(
                "anteroom_writer_beats_unsent",
                "Heartbeats of groups that could not be sent",
            ),
            batches: BatchMetrics::register(metrics),
        }
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
        set(&self.refused_bytes, stats.refused_bytes);
        set(&self.pending, stats.pending as u64);
        let is_synced = stats.reported_state == Some(ViewState::Synced);
        set(&self.synced, u64::from(is_synced));
        if stats.news_age_ms != u64::MAX {
            let age_seconds = stats.news_age_ms as f64 / 1000.0;
            self.age.get_or_create(&label).set(age_seconds);
        }
    }

    /// Sets the gauges of the log's size.
    pub(crate) fn size(&self, size: LogSize) {
        let number = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.log_bytes.set(number(size.bytes));
        self.log_bytes_max
            .set(number(size.bytes_max.unwrap_or_default()));
    }

    /// Removes the view's labels.
    pub(crate) fn forget(&self, view: &ViewId) {
        let label = label(view);
        for gauge in [
            &self.objects,
            &self.bytes,
            &self.refused_bytes,
            &self.pending,
            &self.synced,
        ] {
            gauge.remove(&label);
        }
        self.age.remove(&label);
    }

    /// Counts a heartbeat that could not be sent.
    pub(crate) fn beat_unsent(&self) {
        self.beats_unsent.inc();
    }

    /// Notes the term in which this watcher leads the group; `None`: this watcher does not lead.
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
}

fn label(view: &ViewId) -> ViewLabel {
    ViewLabel {
        view: view.to_string(),
    }
}
