//! The count of writes of statuses.

use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counts writes of conditions and of Kubernetes Events. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StatusMetrics {
    writes: Family<ResultLabel, Counter>,
}

impl StatusMetrics {
    /// Registers the counter.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            writes: metrics.create(
                "anteroom_status_writes",
                "Writes of conditions and of Kubernetes Events, by result",
            ),
        }
    }

    /// Counts a write.
    pub(super) fn written(&self, succeeded: bool) {
        let result = if succeeded { "written" } else { "failed" };
        self.writes.get_or_create(&ResultLabel { result }).inc();
    }
}
