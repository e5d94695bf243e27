//! Metrics of lists and watches: one set of counters for each view that is watched.

use anteroom_model::ViewId;
use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ViewLabel {
    view: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    view: String,
    code: String,
}

/// The metrics of all watches. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceMetrics {
    lists: Family<ViewLabel, Counter>,
    events: Family<ViewLabel, Counter>,
    malformed: Family<ViewLabel, Counter>,
    errors: Family<ErrorLabels, Counter>,
    watches: Gauge,
}

impl SourceMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            lists: metrics.create(
                "anteroom_watch_lists",
                "Lists of a view that were completed",
            ),
            events: metrics.create(
                "anteroom_watch_events",
                "Events of a view's watch, without bookmarks",
            ),
            malformed: metrics.create(
                "anteroom_watch_malformed_objects",
                "Objects that could not be published",
            ),
            errors: metrics.create(
                "anteroom_watch_errors",
                "Faults of a view's lists and watches, by status code or kind",
            ),
            watches: metrics.create("anteroom_watches", "Watches that are open"),
        }
    }

    /// Returns the counters of one watch.
    pub(crate) fn of_watch(&self, view: &ViewId) -> WatchMetrics {
        WatchMetrics {
            all: self.clone(),
            view: view.clone(),
        }
    }

    /// Removes the view's labels.
    pub(crate) fn forget(&self, view: &ViewId) {
        let label = label(view);
        for counter in [&self.lists, &self.events, &self.malformed] {
            counter.remove(&label);
        }
    }
}

/// The counters of one watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchMetrics {
    all: SourceMetrics,
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

    /// Returns the number of open watches, of all views.
    pub(crate) fn open_count(&self) -> usize {
        usize::try_from(self.all.watches.get()).unwrap_or(0)
    }

    /// Counts a watch as open until the returned guard is dropped.
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
