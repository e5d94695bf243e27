//! The metrics of the reporter.

use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use crate::result::ReportOutcome;

/// The reporter's metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ReporterMetrics {
    leads: Gauge,
    policies: Gauge,
    views: Gauge,
    objects: Gauge,
    unsettled: Gauge,
    unread: Gauge,
    objects_left_out: Gauge,
    findings_bytes: Gauge,
    reports: Gauge,
    reports_beyond: Gauge,
    left_out: Gauge,
    waiting: Gauge,
    facts_waiting: Gauge,
    facts_changed: Counter,
    judged: Counter,
    unreadable: Counter,
    results: Family<ResultLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
    events: Family<OutcomeLabels, Counter>,
    hearing_interrupted: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl ReporterMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            leads: metrics.create(
                "anteroom_reporter_leads",
                "Whether this reporter holds the lease",
            ),
            policies: metrics.create("anteroom_reporter_policies", "Policies that are scanned"),
            views: metrics.create("anteroom_reporter_views", "Views that are scanned"),
            objects: metrics.create(
                "anteroom_reporter_objects",
                "Objects that some policy speaks of",
            ),
            unsettled: metrics.create(
                "anteroom_reporter_kinds_unsettled",
                "Kinds of which not every object was judged yet; one that stays cannot be read by the watcher",
            ),
            unread: metrics.create(
                "anteroom_reporter_objects_unread",
                "Objects that cannot be read now: their reports of before stay as they are",
            ),
            objects_left_out: metrics.create(
                "anteroom_reporter_objects_left_out",
                "Objects that some policy speaks of and that have no report: there are more than this reporter holds",
            ),
            findings_bytes: metrics.create(
                "anteroom_reporter_book_bytes",
                "Memory of what is known of objects, about",
            ),
            reports: metrics.create(
                "anteroom_reporter_reports",
                "Reports that are remembered, by what they say",
            ),
            reports_beyond: metrics.create(
                "anteroom_reporter_reports_beyond",
                "Reports that may be there and are not remembered, about: they may say what they said before",
            ),
            left_out: metrics.create(
                "anteroom_reporter_kinds_left_out",
                "Kinds that policies speak of and that are not scanned: too many for one policy, or not to be watched",
            ),
            waiting: metrics.create(
                "anteroom_reporter_reports_waiting",
                "Reports that may have to be written",
            ),
            facts_waiting: metrics.create(
                "anteroom_reporter_changed_facts_waiting",
                "Policies whose facts changed, and that have not judged by them yet",
            ),
            facts_changed: metrics.create(
                "anteroom_reporter_changed_facts",
                "Times that a policy judged everything anew since its facts changed",
            ),
            judged: metrics.create(
                "anteroom_reporter_objects_judged",
                "Objects taken through the policies, each time that they were",
            ),
            unreadable: metrics.create(
                "anteroom_reporter_objects_unreadable",
                "Times that an object could not be read",
            ),
            results: metrics.create(
                "anteroom_reporter_rule_results",
                "Rules that spoke of an object, by result",
            ),
            writes: metrics.create(
                "anteroom_reporter_report_writes",
                "Reports written and deleted, by outcome",
            ),
            events: metrics.create(
                "anteroom_reporter_events",
                "Events of violations, by what became of them",
            ),
            hearing_interrupted: metrics.create(
                "anteroom_reporter_hearing_interrupted",
                "Times that what webhooks find was not heard for a while: each time some Events may be missing",
            ),
        }
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    pub(crate) fn policies(&self, count: usize) {
        set(&self.policies, count);
    }

    pub(crate) fn views(&self, count: usize) {
        set(&self.views, count);
    }

    pub(crate) fn objects(&self, count: usize) {
        set(&self.objects, count);
    }

    pub(crate) fn unsettled(&self, count: usize) {
        set(&self.unsettled, count);
    }

    pub(crate) fn set_unread(&self, count: usize) {
        set(&self.unread, count);
    }

    pub(crate) fn objects_left_out(&self, count: usize) {
        set(&self.objects_left_out, count);
    }

    pub(crate) fn findings_bytes(&self, bytes: usize) {
        set(&self.findings_bytes, bytes);
    }

    pub(crate) fn reports(&self, remembered: usize, beyond: usize) {
        set(&self.reports, remembered);
        set(&self.reports_beyond, beyond);
    }

    pub(crate) fn left_out(&self, count: usize) {
        set(&self.left_out, count);
    }

    pub(crate) fn waiting(&self, count: usize) {
        set(&self.waiting, count);
    }

    pub(crate) fn facts_waiting(&self, count: usize) {
        set(&self.facts_waiting, count);
    }

    pub(crate) fn facts_changed(&self) {
        self.facts_changed.inc();
    }

    pub(crate) fn judged(&self, count: usize) {
        self.judged.inc_by(count as u64);
    }

    pub(crate) fn count_unreadable(&self) {
        self.unreadable.inc();
    }

    pub(crate) fn result(&self, outcome: ReportOutcome) {
        let result = outcome.as_str();
        self.results.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn wrote(&self, verb: &'static str, well: bool) {
        let outcome = if well { "ok" } else { "error" };
        self.writes
            .get_or_create(&WriteLabels { verb, outcome })
            .inc();
    }

    pub(crate) fn event(&self, outcome: &'static str) {
        self.events(outcome, 1);
    }

    pub(crate) fn events(&self, outcome: &'static str, count: u64) {
        self.events
            .get_or_create(&OutcomeLabels { outcome })
            .inc_by(count);
    }

    pub(crate) fn hearing_interrupted(&self) {
        self.hearing_interrupted.inc();
    }
}

fn set(gauge: &Gauge, count: usize) {
    gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
}
