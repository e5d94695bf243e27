//! The metrics of a mirror.

use std::{sync::atomic::AtomicU64, time::Duration};

use anteroom_model::{Group, Revision, ViewId};
use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use crate::ViewStatus;

/// A mirror's metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct MirrorMetrics {
    objects: Family<ViewLabels, Gauge>,
    bytes: Family<ViewLabels, Gauge>,
    age_seconds: Family<ViewLabels, Gauge<f64, AtomicU64>>,
    answering: Family<ViewLabels, Gauge>,
    writer_silent_seconds: Family<GroupLabels, Gauge<f64, AtomicU64>>,
    deltas: Family<RecordLabels, Counter>,
    digest_mismatches: Family<ViewLabels, Counter>,
    /// The mismatches of all views, of those too that are gone. It is no series: heartbeats have the number.
    mismatches_in_all: Counter,
    resyncs: Family<CauseLabels, Counter>,
    loads: Counter,
    undecodable: Counter,
    superseded: Counter,
    position: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ViewLabels {
    view: String,
}

impl ViewLabels {
    fn new(view: &ViewId) -> Self {
        Self {
            view: view.as_str().to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecordLabels {
    view: String,
    result: &'static str,
}

impl RecordLabels {
    fn new(view: &ViewId, changed: bool) -> Self {
        Self {
            view: view.as_str().to_owned(),
            result: if changed { "applied" } else { "superseded" },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabels {
    group: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

impl MirrorMetrics {
    /// Registers the metrics with those of a service. A service has one mirror.
    pub fn register(metrics: &Metrics) -> Self {
        Self {
            objects: metrics.create("anteroom_view_objects", "Objects in the view"),
            bytes: metrics.create(
                "anteroom_view_bytes",
                "What the view takes in memory: bodies, keys, indexes",
            ),
            age_seconds: metrics.create(
                "anteroom_view_age_seconds",
                "How old the view's news is; +Inf while there is none",
            ),
            answering: metrics.create(
                "anteroom_view_answering",
                "1 while the view is complete and fresh, or answers with its source's own error",
            ),
            writer_silent_seconds: metrics.create(
                "anteroom_view_writer_silent_seconds",
                "Time since the watcher that writes the views of a group was last heard from",
            ),
            deltas: metrics.create(
                "anteroom_view_deltas",
                "Deltas read, by whether they were applied or superseded by what is held",
            ),
            digest_mismatches: metrics.create(
                "anteroom_view_digest_mismatches",
                "Times that a view was proven to miss something",
            ),
            mismatches_in_all: Counter::default(),
            resyncs: metrics.create(
                "anteroom_log_resyncs",
                "Times that the log was read from its start, by cause",
            ),
            loads: metrics.create(
                "anteroom_log_loads",
                "Times that the log was read for one view alone",
            ),
            undecodable: metrics.create(
                "anteroom_log_records_undecodable",
                "Records of the log that could not be read",
            ),
            superseded: metrics.create(
                "anteroom_log_records_superseded",
                "Gaps of records that were superseded before they were read: this reader lags",
            ),
            position: metrics.create("anteroom_log_position", "How far the log has been read"),
        }
    }

    pub(crate) fn view(&self, view: &ViewId, status: &ViewStatus, age_ms: u64) {
        let labels = ViewLabels::new(view);
        let age_seconds = match age_ms {
            u64::MAX => f64::INFINITY,
            ms => ms as f64 / 1e3,
        };
        self.objects
            .get_or_create(&labels)
            .set(gauge(status.objects));
        self.bytes.get_or_create(&labels).set(gauge(status.bytes));
        self.age_seconds.get_or_create(&labels).set(age_seconds);
        self.answering
            .get_or_create(&labels)
            .set(i64::from(status.serves()));
    }

    pub(crate) fn removed(&self, view: &ViewId) {
        let labels = ViewLabels::new(view);
        self.objects.remove(&labels);
        self.bytes.remove(&labels);
        self.age_seconds.remove(&labels);
        self.answering.remove(&labels);
        self.digest_mismatches.remove(&labels);
        for changed in [false, true] {
            self.deltas.remove(&RecordLabels::new(view, changed));
        }
    }

    pub(crate) fn writer_silent(&self, group: Group, silence: Duration) {
        let labels = GroupLabels { group: group.0 };
        let silent_seconds = self.writer_silent_seconds.get_or_create(&labels);
        silent_seconds.set(silence.as_secs_f64());
    }

    /// No view of the group is held any more.
    pub(crate) fn writer_gone(&self, group: Group) {
        let labels = GroupLabels { group: group.0 };
        self.writer_silent_seconds.remove(&labels);
    }

    /// The counter of a view's deltas, to be kept until the view is [removed](Self::removed): it takes
    /// longer to find than to increment.
    pub(crate) fn deltas(&self, view: &ViewId, changed: bool) -> Counter {
        self.deltas
            .get_or_create(&RecordLabels::new(view, changed))
            .clone()
    }

    pub(crate) fn digest_mismatch(&self, view: &ViewId) {
        self.digest_mismatches
            .get_or_create(&ViewLabels::new(view))
            .inc();
        self.mismatches_in_all.inc();
    }

    /// Returns how many times a view was proven to miss something, whichever it was.
    pub fn digest_mismatches(&self) -> u64 {
        self.mismatches_in_all.get()
    }

    #[cfg(test)]
    pub(crate) fn digest_mismatches_of(&self, view: &ViewId) -> u64 {
        self.digest_mismatches
            .get_or_create(&ViewLabels::new(view))
            .get()
    }

    pub(crate) fn resync(&self, cause: &'static str) {
        self.resyncs.get_or_create(&CauseLabels { cause }).inc();
    }

    pub(crate) fn load(&self) {
        self.loads.inc();
    }

    pub(crate) fn undecodable(&self) {
        self.undecodable.inc();
    }

    pub(crate) fn superseded(&self) {
        self.superseded.inc();
    }

    pub(crate) fn position(&self, position: Revision) {
        self.position.set(gauge(position.0));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
