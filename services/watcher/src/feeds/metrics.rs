//! Metrics of the watches that are planned for a type.

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
}
