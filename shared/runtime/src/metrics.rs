//! Metrics of a process, as OpenMetrics text.

#[cfg(feature = "jemalloc")]
mod jemalloc;
mod merge;
mod proc;

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::text,
    metrics::info::Info,
    registry::{Metric, Registry},
};

/// A registry of metrics. Cheap to clone; all clones and scopes are served together.
#[derive(Clone, Debug)]
pub struct Metrics {
    shared: Arc<Mutex<Shared>>,
    scope: usize,
}

#[derive(Debug)]
struct Shared {
    /// One per service of this process. The first is the process's own.
    scopes: Vec<MetricScope>,
}

#[derive(Debug)]
struct MetricScope {
    registry: Registry,
    names: HashSet<String>,
}

impl MetricScope {
    fn new(registry: Registry) -> Self {
        Self {
            registry,
            names: HashSet::new(),
        }
    }
}

impl Metrics {
    pub(crate) fn new(service: &'static str) -> Self {
        let mut registry = Registry::default();
        registry.register(
            "anteroom_build",
            "The version that runs",
            Info::new([("service", service), ("version", env!("CARGO_PKG_VERSION"))]),
        );
        registry.register_collector(Box::new(proc::ProcessCollector));
        #[cfg(feature = "jemalloc")]
        registry.register_collector(Box::new(jemalloc::JemallocCollector));
        Self {
            shared: Arc::new(Mutex::new(Shared {
                scopes: vec![MetricScope::new(registry)],
            })),
            scope: 0,
        }
    }

    pub(crate) fn scope(&self, service: &'static str) -> Self {
        let label = (Cow::Borrowed("service"), Cow::Borrowed(service));
        let mut shared = self.shared.lock();
        let registry = Registry::with_labels([label].into_iter());
        shared.scopes.push(MetricScope::new(registry));
        Self {
            shared: Arc::clone(&self.shared),
            scope: shared.scopes.len() - 1,
        }
    }

    /// Creates a metric and registers it: see [`Metrics::register`].
    pub fn create<M: Metric + Clone + Default>(&self, name: &str, help: &str) -> M {
        self.register(name, help, M::default())
    }

    /// Registers a metric and returns it: changing it changes what is served. `name` starts with `anteroom_` and ends
    /// with its unit; a counter's `_total` is appended when it is encoded, and so is left off here.
    ///
    /// A name that this service has registered before is a mistake in the service: it is logged,
    /// and the first one stays.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let mut shared = self.shared.lock();
        let scope = &mut shared.scopes[self.scope];
        if scope.names.insert(name.to_owned()) {
            scope.registry.register(name, help, metric.clone());
        } else {
            tracing::error!(
                name,
                "metric registered twice: the second is not served; please report this bug"
            );
        }
        metric
    }

    /// All metrics of the process as OpenMetrics text.
    pub fn encode(&self) -> String {
        let shared = self.shared.lock();
        let texts = shared.scopes.iter().map(|scope| {
            let mut text = String::new();
            // Writing to a `String` cannot fail, and a metric that fails to encode itself is a
            // mistake in that metric, which must not hide the others.
            if let Err(error) = text::encode_registry(&mut text, &scope.registry) {
                tracing::error!(
                    %error,
                    "metric not encoded: the response lacks it; please report this bug"
                );
            }
            text
        });
        merge::families(texts)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn services_of_one_process_share_families_and_not_series() {
        let process = Metrics::new("anteroom");
        for service in ["watcher", "webhook"] {
            let metrics = process.scope(service);
            let counter: Counter = metrics.create("anteroom_things", "Things seen");
            let _: Counter = metrics.create("anteroom_things", "Things seen");
            counter.inc();
        }
        let text = process.encode();
        assert_eq!(text.matches("# TYPE anteroom_things counter").count(), 1);
        for service in ["watcher", "webhook"] {
            let line = format!("anteroom_things_total{{service=\"{service}\"}} 1\n");
            assert_eq!(text.matches(&line).count(), 1, "{text}");
        }
        assert!(text.contains("anteroom_build_info{service=\"anteroom\",version="));
        assert!(text.ends_with("# EOF\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn metrics_hold_the_resident_size_of_the_process() {
        let text = Metrics::new("anteroom").encode();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
        assert!(line.unwrap().parse::<u64>().unwrap() > 100_000, "{text}");
    }
}
