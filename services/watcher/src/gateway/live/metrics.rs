//! Metrics of live reads.

use std::time::Duration;

use anteroom_model::FactError;
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

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    /// `ok`, or the code of the error.
    result: &'static str,
}

/// The metrics of live reads and writes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LiveMetrics {
    reads: Family<ResultLabel, Counter>,
    shared: Counter,
    seconds: Histogram,
    under_way: Gauge,
    unread: Counter,
}

impl LiveMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            reads: metrics.create(
                "anteroom_live_reads_served",
                "Live reads that were asked for, by result",
            ),
            shared: metrics.create(
                "anteroom_live_reads_shared",
                "Live reads that were answered by one that was under way already",
            ),
            seconds: metrics.register(
                "anteroom_live_read_served_seconds",
                "Time until a live read was answered",
                Histogram::new(exponential_buckets(0.001, 4.0, 8)),
            ),
            under_way: metrics.create(
                "anteroom_live_reads_under_way",
                "Live reads that are under way at their source",
            ),
            unread: metrics.create(
                "anteroom_live_objects_unread",
                "Objects that a rule changes and that are too large to be read",
            ),
        }
    }

    pub(super) fn ended(&self, error: Option<&FactError>, took: Duration) {
        let result = error.map_or("ok", |error| error.code().as_str());
        self.reads.get_or_create(&ResultLabel { result }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub(super) fn shared(&self) {
        self.shared.inc();
    }

    pub(super) fn unread(&self, count: usize) {
        self.unread.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts a read as under way until it is dropped.
    pub(super) fn under_way(&self) -> UnderWay {
        self.under_way.inc();
        UnderWay(self.under_way.clone())
    }
}

/// A read that is under way.
pub(super) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}
