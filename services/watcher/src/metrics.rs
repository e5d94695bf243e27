//! All metrics of the watcher, module by module. Names are registered once. Labels of a view are removed when the view
//! goes, those of a watch when the watch ends, and those of a type when its feed ends.

use anteroom_model::ViewId;
use anteroom_runtime::Metrics;

use crate::{
    coordinator::StatusMetrics, feeds::FeedMetrics, log_writer::metrics::LogMetrics,
    source::metrics::SourceMetrics,
};

/// The metrics of every main module but the gateway, which has its own. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WatcherMetrics {
    /// Lists and watches.
    pub source: SourceMetrics,
    /// The writer of the log.
    pub log: LogMetrics,
    /// Planned watches.
    pub feeds: FeedMetrics,
    /// Writes of statuses.
    pub status: StatusMetrics,
}

impl WatcherMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            source: SourceMetrics::register(metrics),
            log: LogMetrics::register(metrics),
            feeds: FeedMetrics::register(metrics),
            status: StatusMetrics::register(metrics),
        }
    }

    /// Removes the view's labels.
    pub(crate) fn forget(&self, view: &ViewId) {
        self.log.forget(view);
    }
}
