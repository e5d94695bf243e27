//! The metrics of a replica: its queries, and its memory.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use anteroom_model::ViewId;
use anteroom_runtime::Metrics;
use anteroom_wire::query::QueryOutcome;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

/// Buckets from a remembered result to a scan of a large view.
const DURATION_BUCKETS_SECONDS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5,
];

/// A replica's query metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct QueryMetrics {
    duration_seconds: Family<OutcomeLabel, Histogram>,
    results: Family<OutcomeLabel, Counter>,
    /// The histogram and the counter of queries without an error, found once.
    ok: Arc<(OnceLock<Histogram>, OnceLock<Counter>)>,
    remembered: Counter,
    evaluated: Counter,
    looked_up: Counter,
    counted: Counter,
    scanned: Counter,
    mismatches: Counter,
    in_flight: Gauge,
    unreadable: Counter,
    beats_unsent: Counter,
}

/// `ok`, or an error's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// A request under way.
#[derive(Clone, Copy)]
pub(crate) struct RequestTimer(Instant);

impl QueryMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            duration_seconds: metrics.register(
                "anteroom_query_duration_seconds",
                "From a request's arrival to its reply, by outcome: ok, or an error's code",
                Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS_SECONDS)),
            ),
            results: metrics.create(
                "anteroom_query_results",
                "Results of single queries within answered requests, by outcome",
            ),
            ok: Arc::default(),
            remembered: metrics.create(
                "anteroom_query_memo_hits",
                "Results that were kept from an equal query of the same state",
            ),
            evaluated: metrics.create("anteroom_query_evaluations", "Results that were evaluated"),
            looked_up: metrics.create(
                "anteroom_query_lookups",
                "Queries whose objects were found by indexes, so that the others were not looked at",
            ),
            counted: metrics.create(
                "anteroom_query_counts",
                "Queries whose counts over a list were known from an index or a counter",
            ),
            scanned: metrics.create(
                "anteroom_query_scans_by_slices",
                "Queries that looked through a large view slice by slice",
            ),
            mismatches: metrics.create(
                "anteroom_query_plan_mismatches",
                "Queries of --verify-plans whose result by indexes or counters was not that of a scan: always 0",
            ),
            in_flight: metrics.create("anteroom_query_in_flight", "Requests under way"),
            unreadable: metrics.create(
                "anteroom_query_calls_unreadable",
                "Calls whose protocol version or headers could not be read",
            ),
            beats_unsent: metrics.create(
                "anteroom_replica_beats_unsent",
                "Heartbeats of this replica that could not be sent",
            ),
        }
    }

    pub(crate) fn started(&self) -> RequestTimer {
        self.in_flight.inc();
        RequestTimer(Instant::now())
    }

    pub(crate) fn finished(&self, timer: RequestTimer, outcome: &QueryOutcome) {
        let RequestTimer(at) = timer;
        self.in_flight.dec();
        let of = |error: Option<&anteroom_model::FactError>| OutcomeLabel {
            outcome: error.map_or("ok", |error| error.code().as_str()),
        };
        let took_seconds = at.elapsed().as_secs_f64();
        let (ok_seconds, ok_results) = &*self.ok;
        match outcome {
            Err(error) => self
                .duration_seconds
                .get_or_create(&of(Some(error)))
                .observe(took_seconds),
            Ok(_) => ok_seconds
                .get_or_init(|| self.duration_seconds.get_or_create_owned(&of(None)))
                .observe(took_seconds),
        }
        for result in outcome.iter().flat_map(|reply| &reply.results) {
            match result {
                Err(error) => self.results.get_or_create(&of(Some(error))).inc(),
                Ok(_) => ok_results
                    .get_or_init(|| self.results.get_or_create_owned(&of(None)))
                    .inc(),
            };
        }
    }

    pub(crate) fn remembered(&self) {
        self.remembered.inc();
    }

    pub(crate) fn evaluated(&self) {
        self.evaluated.inc();
    }

    pub(crate) fn looked_up(&self) {
        self.looked_up.inc();
    }

    pub(crate) fn counted(&self) {
        self.counted.inc();
    }

    pub(crate) fn scanned(&self) {
        self.scanned.inc();
    }

    pub(crate) fn mismatch(&self) {
        self.mismatches.inc();
    }

    pub(crate) fn beat_unsent(&self) {
        self.beats_unsent.inc();
    }

    pub(crate) fn count_unreadable(&self) {
        self.unreadable.inc();
    }
}

/// The accounted memory of each part, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBytes {
    pub(crate) views: u64,
    pub(crate) indexes: u64,
    pub(crate) results: u64,
}

/// The metrics of a replica's memory. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct MemoryMetrics {
    bytes: Family<PartLabel, Gauge>,
    limit: Gauge,
    indexes: Gauge,
    evictions: Family<Evicted, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabel {
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evicted {
    view: String,
    reason: &'static str,
}

impl MemoryMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        Self {
            bytes: metrics.create(
                "anteroom_memory_bytes",
                "What is accounted, by part: views, indexes and counters, or results and plans",
            ),
            limit: metrics.create(
                "anteroom_memory_limit_bytes",
                "The memory limit; 0 where there is none",
            ),
            indexes: metrics.create("anteroom_view_indexes", "Indexes and counters of all views"),
            evictions: metrics.create(
                "anteroom_view_evictions",
                "Times that a view was evicted to save memory, by reason",
            ),
        }
    }

    pub(crate) fn set(&self, bytes: MemoryBytes, indexes: usize, limit: Option<u64>) {
        let gauge = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        let MemoryBytes {
            views,
            indexes: of_indexes,
            results,
        } = bytes;
        let parts = [
            ("views", views),
            ("indexes", of_indexes),
            ("results", results),
        ];
        for (part, bytes) in parts {
            self.bytes
                .get_or_create(&PartLabel { part })
                .set(gauge(bytes));
        }
        self.indexes.set(gauge(indexes as u64));
        self.limit.set(gauge(limit.unwrap_or(0)));
    }

    pub(crate) fn evicted(&self, view: &ViewId, reason: &'static str) {
        let view = view.as_str().to_owned();
        self.evictions
            .get_or_create(&Evicted { view, reason })
            .inc();
    }
}
