//! Metrics of lists and watches: one set of counters for each scope that is watched, from the start of its first
//! watch to the end of its last.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use anteroom_model::ViewId;
use anteroom_runtime::Metrics;
use parking_lot::Mutex;
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
    counted: Arc<Mutex<CountedWatches>>,
}

/// The labels in use.
#[derive(Debug, Default)]
struct CountedWatches {
    /// The number of watches that count for each view.
    watches: HashMap<ViewId, usize>,
    /// The error labels of each view.
    errors: HashMap<ViewId, HashSet<ErrorLabels>>,
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
            counted: Arc::default(),
        }
    }

    /// Returns the counters of one watch, which its clones share. The view's labels are removed with the last clone
    /// of the last watch.
    pub(crate) fn of_watch(&self, view: &ViewId) -> WatchMetrics {
        *self.counted.lock().watches.entry(view.clone()).or_default() += 1;
        WatchMetrics(Arc::new(WatchSeries {
            all: self.clone(),
            view: view.clone(),
        }))
    }
}

/// The counters of one watch. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WatchMetrics(Arc<WatchSeries>);

#[derive(Debug)]
struct WatchSeries {
    all: SourceMetrics,
    view: ViewId,
}

impl WatchMetrics {
    pub(crate) fn listed(&self) {
        let WatchSeries { all, view } = &*self.0;
        all.lists.get_or_create(&label(view)).inc();
    }

    pub(crate) fn event(&self) {
        let WatchSeries { all, view } = &*self.0;
        all.events.get_or_create(&label(view)).inc();
    }

    pub(crate) fn malformed(&self) {
        let WatchSeries { all, view } = &*self.0;
        all.malformed.get_or_create(&label(view)).inc();
    }

    pub(crate) fn error(&self, code: String) {
        let WatchSeries { all, view } = &*self.0;
        let labels = ErrorLabels {
            view: view.to_string(),
            code,
        };
        all.errors.get_or_create(&labels).inc();
        let mut counted = all.counted.lock();
        counted
            .errors
            .entry(view.clone())
            .or_default()
            .insert(labels);
    }

    /// Returns the number of open watches, of all views.
    pub(crate) fn open_count(&self) -> usize {
        usize::try_from(self.0.all.watches.get()).unwrap_or(0)
    }

    /// Counts a watch as open until the returned guard is dropped.
    pub(crate) fn open(&self) -> OpenWatch {
        self.0.all.watches.inc();
        OpenWatch(self.0.all.watches.clone())
    }
}

impl Drop for WatchSeries {
    fn drop(&mut self) {
        let Self { all, view } = self;
        let mut counted = all.counted.lock();
        if let Some(watches) = counted.watches.get_mut(view) {
            *watches -= 1;
            if *watches > 0 {
                return;
            }
        }
        counted.watches.remove(view);
        for counter in [&all.lists, &all.events, &all.malformed] {
            counter.remove(&label(view));
        }
        for labels in counted.errors.remove(view).into_iter().flatten() {
            all.errors.remove(&labels);
        }
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

#[cfg(test)]
mod tests {
    use anteroom_runtime::Service;

    use super::*;

    #[test]
    fn the_labels_of_a_watch_end_with_the_last_watch_of_the_same_scope() {
        let service = Service::new("test");
        let metrics = SourceMetrics::register(&service.metrics);
        let count = |watch: &WatchMetrics| {
            watch.listed();
            watch.event();
            watch.malformed();
            watch.error("403".to_owned());
        };
        let series = |view: &str| {
            let label = format!("view=\"{view}\"");
            let text = service.metrics.encode();
            text.lines().filter(|line| line.contains(&label)).count()
        };
        let [first, again] = ["a", "a"].map(|view| metrics.of_watch(&ViewId::new(view)));
        let other = metrics.of_watch(&ViewId::new("b"));
        [&first, &again, &other].into_iter().for_each(count);
        let of_a_list = first.clone();
        assert_eq!((series("a"), series("b")), (4, 4));
        drop((first, again));
        assert_eq!(series("a"), 4, "a list of the watch runs on");
        drop(of_a_list);
        assert_eq!((series("a"), series("b")), (0, 4));
        count(&metrics.of_watch(&ViewId::new("a")));
        assert_eq!(series("a"), 0, "it ended at once");
    }
}
