//! Metrics of the watches that are planned for a type, from its first plan to the end of its feed.

use anteroom_model::GroupVersionResource;
use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabel {
    resource: String,
}

/// The metrics of all types. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FeedMetrics {
    feeds: Family<TypeLabel, Gauge>,
    derived: Family<TypeLabel, Gauge>,
    references: Family<TypeLabel, Gauge>,
    idle: Family<TypeLabel, Gauge>,
}

impl FeedMetrics {
    /// Registers all of them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            feeds: metrics.create(
                "anteroom_watches_planned",
                "Watches of a type that are planned",
            ),
            derived: metrics.create(
                "anteroom_derived_views",
                "Views of a type beyond its watches: derived from those of others",
            ),
            references: metrics.create(
                "anteroom_references",
                "Objects of a type that are referenced one by one",
            ),
            idle: metrics.create(
                "anteroom_references_idle",
                "Referenced objects of a type that nobody reads, and that are not watched",
            ),
        }
    }

    /// Returns the gauges of a type, which are removed when the guard is dropped.
    pub(super) fn of_type(&self, gvr: &GroupVersionResource) -> TypeGauges {
        TypeGauges {
            all: self.clone(),
            label: TypeLabel {
                resource: gvr.to_string(),
            },
        }
    }
}

/// The gauges of a type that is fed.
#[derive(Debug)]
pub(super) struct TypeGauges {
    all: FeedMetrics,
    label: TypeLabel,
}

impl TypeGauges {
    /// Sets the gauges.
    pub(super) fn planned(&self, feeds: usize, derived: usize, references: usize, idle: usize) {
        for (family, value) in [
            (&self.all.feeds, feeds),
            (&self.all.derived, derived),
            (&self.all.references, references),
            (&self.all.idle, idle),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            family.get_or_create(&self.label).set(value);
        }
    }
}

impl Drop for TypeGauges {
    fn drop(&mut self) {
        let FeedMetrics {
            feeds,
            derived,
            references,
            idle,
        } = &self.all;
        for family in [feeds, derived, references, idle] {
            family.remove(&self.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_runtime::Service;

    use super::*;

    /// A watcher that hands a group over no longer counts the watches that its successor plans.
    #[test]
    fn the_gauges_of_a_type_end_with_its_feed() {
        let service = Service::new("test");
        let metrics = FeedMetrics::register(&service.metrics);
        let of_type = |resource| metrics.of_type(&GroupVersionResource::new("", "v1", resource));
        let series = |resource: &str| {
            let label = format!("resource=\"{resource}.v1\"");
            let text = service.metrics.encode();
            text.lines().filter(|line| line.contains(&label)).count()
        };
        let (pods, secrets) = (of_type("pods"), of_type("secrets"));
        pods.planned(2, 1, 3, 1);
        secrets.planned(1, 0, 0, 0);
        assert_eq!((series("pods"), series("secrets")), (4, 4));
        drop(pods);
        assert_eq!((series("pods"), series("secrets")), (0, 4));
    }
}
