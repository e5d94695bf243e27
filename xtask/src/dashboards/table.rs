//! The table of dashboards: each panel's title, unit and queries.

/// A dashboard.
pub(super) struct Dashboard {
    /// The name of its file.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) panels: &'static [Panel],
}

/// A panel with lines over time.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    /// As Grafana names it.
    pub(super) unit: &'static str,
    /// The legend and the expression of each query.
    pub(super) queries: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        title,
        description,
        unit,
        queries,
    }
}

pub(super) const DASHBOARDS: [Dashboard; 2] = [
    Dashboard {
        name: "decisions",
        title: "Anteroom: decisions",
        description: "What webhooks decide, how long it takes, and what they wait for.",
        panels: &[
            panel(
                "Decisions",
                "Reviews decided, by decision",
                "reqps",
                &[(
                    "{{decision}}",
                    "sum by (decision) (rate(anteroom_admission_decisions_total[$__rate_interval]))",
                )],
            ),
            panel(
                "Share with an error",
                "Decisions in which a rule could not be evaluated. An alert speaks above 1 %",
                "percentunit",
                &[(
                    "errors",
                    "(sum(rate(anteroom_admission_decisions_total{cause=\"error\"}[$__rate_interval])) or vector(0)) \
                     / sum(rate(anteroom_admission_decisions_total[$__rate_interval]))",
                )],
            ),
            panel(
                "Time of a decision",
                "From a review's last byte to its answer",
                "s",
                &[
                    (
                        "p50",
                        "histogram_quantile(0.5, sum by (le) (rate(anteroom_admission_duration_seconds_bucket[$__rate_interval])))",
                    ),
                    (
                        "p99",
                        "histogram_quantile(0.99, sum by (le) (rate(anteroom_admission_duration_seconds_bucket[$__rate_interval])))",
                    ),
                ],
            ),
            panel(
                "Reviews in flight",
                "Reviews that are being decided",
                "short",
                &[(
                    "{{pod}}",
                    "sum by (pod) (anteroom_admission_reviews_in_flight)",
                )],
            ),
            panel(
                "Rules by result",
                "The ten most frequent results of rules",
                "ops",
                &[(
                    "{{policy}} / {{rule}}: {{result}}",
                    "topk(10, sum by (policy, rule, result) (rate(anteroom_admission_rule_results_total[$__rate_interval])))",
                )],
            ),
            panel(
                "Slowest rules",
                "The mean time of the ten slowest rules, the facts that they waited for included",
                "s",
                &[(
                    "{{policy}} / {{rule}}",
                    "topk(10, sum by (policy, rule) (rate(anteroom_admission_rule_duration_seconds_sum[$__rate_interval])) \
                     / sum by (policy, rule) (rate(anteroom_admission_rule_duration_seconds_count[$__rate_interval])))",
                )],
            ),
            panel(
                "Queries by outcome",
                "What webhooks asked replicas: ok, or an error's code",
                "reqps",
                &[(
                    "{{outcome}}",
                    "sum by (outcome) (rate(anteroom_webhook_query_duration_seconds_count[$__rate_interval]))",
                )],
            ),
            panel(
                "Time of a query",
                "From a query to its answer, all attempts included",
                "s",
                &[(
                    "p99",
                    "histogram_quantile(0.99, sum by (le) (rate(anteroom_webhook_query_duration_seconds_bucket[$__rate_interval])))",
                )],
            ),
            panel(
                "Live reads by outcome",
                "What was read at the API server or a service while a request waited",
                "reqps",
                &[(
                    "{{outcome}}",
                    "sum by (outcome) (rate(anteroom_webhook_live_read_duration_seconds_count[$__rate_interval]))",
                )],
            ),
            panel(
                "Reviews without a decision",
                "By error code",
                "reqps",
                &[(
                    "{{code}}",
                    "sum by (code) (rate(anteroom_admission_review_errors_total[$__rate_interval]))",
                )],
            ),
            panel(
                "Reviews that no policy is asked about",
                "By what exempts them",
                "reqps",
                &[(
                    "{{by}}",
                    "sum by (by) (rate(anteroom_admission_exempt_total[$__rate_interval]))",
                )],
            ),
            panel(
                "Policies",
                "By whether they are in force. An alert speaks where one is not for 10 minutes",
                "short",
                &[("{{state}}", "max by (state) (anteroom_policies)")],
            ),
        ],
    },
    Dashboard {
        name: "facts",
        title: "Anteroom: facts",
        description: "What views hold, how fresh they are, and who writes and serves them.",
        panels: &[
            panel(
                "Age of news",
                "The ten oldest views. An alert speaks above 30 s; readers refuse above 60 s",
                "s",
                &[(
                    "{{view}}",
                    "topk(10, max by (view) (anteroom_view_age_seconds < +Inf))",
                )],
            ),
            panel(
                "Views without an answer",
                "Views that some replica holds and does not answer for",
                "short",
                &[(
                    "views",
                    "count(min by (view) (anteroom_view_answering) == 0) or vector(0)",
                )],
            ),
            panel(
                "Objects",
                "The ten largest views",
                "short",
                &[(
                    "{{view}}",
                    "topk(10, max by (view) (anteroom_view_objects))",
                )],
            ),
            panel(
                "Bytes of views",
                "The ten largest views, in the memory of one replica",
                "bytes",
                &[("{{view}}", "topk(10, max by (view) (anteroom_view_bytes))")],
            ),
            panel(
                "Memory of replicas",
                "What is accounted, and the limit",
                "bytes",
                &[
                    ("{{pod}}", "sum by (pod) (anteroom_memory_bytes)"),
                    ("limit", "max(anteroom_memory_limit_bytes > 0)"),
                ],
            ),
            panel(
                "Requests to replicas",
                "By outcome: ok, or an error's code",
                "reqps",
                &[(
                    "{{outcome}}",
                    "sum by (outcome) (rate(anteroom_query_duration_seconds_count[$__rate_interval]))",
                )],
            ),
            panel(
                "How queries are answered",
                "By an index, by a count that is kept, by a result that is kept, or slice by slice",
                "ops",
                &[
                    (
                        "index",
                        "sum(rate(anteroom_query_lookups_total[$__rate_interval]))",
                    ),
                    (
                        "count",
                        "sum(rate(anteroom_query_counts_total[$__rate_interval]))",
                    ),
                    (
                        "kept result",
                        "sum(rate(anteroom_query_memo_hits_total[$__rate_interval]))",
                    ),
                    (
                        "scan",
                        "sum(rate(anteroom_query_scans_by_slices_total[$__rate_interval]))",
                    ),
                ],
            ),
            panel(
                "Time of a request to a replica",
                "From its arrival to its reply",
                "s",
                &[(
                    "p99",
                    "histogram_quantile(0.99, sum by (le) (rate(anteroom_query_duration_seconds_bucket[$__rate_interval])))",
                )],
            ),
            panel(
                "Events of watches",
                "The ten views that change most",
                "ops",
                &[(
                    "{{view}}",
                    "topk(10, sum by (view) (rate(anteroom_watch_events_total[$__rate_interval])))",
                )],
            ),
            panel(
                "Faults of watches",
                "By view and kind",
                "ops",
                &[(
                    "{{view}}: {{code}}",
                    "sum by (view, code) (rate(anteroom_watch_errors_total[$__rate_interval]))",
                )],
            ),
            panel(
                "The log",
                "Bytes that it takes, and may take. An alert speaks above 70 %",
                "bytes",
                &[
                    ("takes", "max(anteroom_log_bytes)"),
                    ("limit", "max(anteroom_log_bytes_max > 0)"),
                ],
            ),
            panel(
                "Time until a change is in the log",
                "From a batch being complete to NATS having it",
                "s",
                &[(
                    "p99",
                    "histogram_quantile(0.99, sum by (le) (rate(anteroom_publish_seconds_bucket[$__rate_interval])))",
                )],
            ),
            panel(
                "Leaders",
                "Watchers that coordinate, and groups of views with a leader",
                "short",
                &[
                    ("coordinators", "sum(anteroom_leader)"),
                    ("groups", "sum(anteroom_group_leader)"),
                ],
            ),
            panel(
                "Resident memory",
                "Of each pod",
                "bytes",
                &[("{{pod}}", "sum by (pod) (process_resident_memory_bytes)")],
            ),
        ],
    },
];
