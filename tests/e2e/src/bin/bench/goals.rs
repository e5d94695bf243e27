//! What was to be reached, and how far each figure came.

use serde_json::Value;

/// A goal with what was measured.
pub(crate) struct Goal {
    pub(crate) measure: String,
    pub(crate) reach: &'static str,
    pub(crate) got: String,
    /// `None`: it was not measured, or in a quick run, which is none to judge by.
    pub(crate) met: Option<bool>,
    /// The scenario that measures it.
    scenario: &'static str,
}

/// A megabyte, as limits of memory are said.
const MB: f64 = 1e6;

/// All goals, in order.
pub(crate) fn all(report: &Value) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (name, words) in [
        ("unique-call", "unchanged apiCall from a view"),
        ("unique-entry", "entry"),
    ] {
        of_decisions(&Found { report, name }, words, &mut goals);
    }
    of_change(report, &mut goals);
    of_size(report, &mut goals);
    for goal in &mut goals {
        if goal.met.is_some() && scenario(report, goal.scenario)["quick"] != false {
            goal.met = None;
            goal.got.push_str(", in a quick run");
        }
    }
    goals
}

/// A scenario's result.
struct Found<'a> {
    report: &'a Value,
    name: &'static str,
}

impl Found<'_> {
    fn result(&self) -> &Value {
        result(self.report, self.name)
    }

    fn row(&self, protocol: &str, at_once: u64) -> &Value {
        let rows = self.result()["rows"].as_array();
        let wanted = |row: &&Value| row["protocol"] == protocol && row["at_once"] == at_once;
        rows.into_iter()
            .flatten()
            .find(wanted)
            .unwrap_or(&Value::Null)
    }
}

/// The result of a scenario; null where it did not run.
pub(crate) fn result<'a>(report: &'a Value, name: &str) -> &'a Value {
    &scenario(report, name)["result"]
}

fn scenario<'a>(report: &'a Value, name: &str) -> &'a Value {
    let scenarios = report["scenarios"].as_array();
    let found = scenarios
        .into_iter()
        .flatten()
        .find(|scenario| scenario["name"] == name);
    found.unwrap_or(&Value::Null)
}

fn of_decisions(found: &Found<'_>, words: &str, goals: &mut Vec<Goal>) {
    let mut goal = |measure: &str, reach, got: Option<(String, bool)>| {
        let (got, met) = got.map_or(("not measured".to_owned(), None), |(got, met)| {
            (got, Some(met))
        });
        let measure = format!("host and path, {words}: {measure}");
        goals.push(Goal {
            measure,
            reach,
            got,
            met,
            scenario: found.name,
        });
    };
    let closed = |protocol, at_once| {
        let load = &found.row(protocol, at_once)["closed"]["load"];
        let latency = |name: &str| load["latency_ms"][name].as_f64();
        Some((
            load["decisions_per_second"].as_f64()?,
            latency("p50")?,
            latency("p99")?,
            latency("p999")?,
        ))
    };
    let http1 = |at_once| closed("HTTP/1.1", at_once);
    goal(
        "HTTP/1.1, one at a time",
        "p50 ≤ 0.3 ms, p99 ≤ 1.0 ms",
        http1(1).map(|(_, p50, p99, _)| (format!("{p50} ms, {p99} ms"), p50 <= 0.3 && p99 <= 1.0)),
    );
    goal(
        "8 at once",
        "p99 ≤ 5 ms, ≥ 6,500/s",
        http1(8).map(|(rate, _, p99, _)| {
            (
                format!("{p99} ms, {rate:.0}/s"),
                p99 <= 5.0 && rate >= 6_500.0,
            )
        }),
    );
    goal(
        "16 at once",
        "≥ 7,000/s, p99 ≤ 8 ms",
        http1(16).map(|(rate, _, p99, _)| {
            (
                format!("{rate:.0}/s, {p99} ms"),
                p99 <= 8.0 && rate >= 7_000.0,
            )
        }),
    );
    let cpu = |at_once| {
        found.row("HTTP/1.1", at_once)["closed"]["cpu_ms_per_decision"]["webhook_replica_nats"]
            .as_f64()
    };
    let most = [8, 16].into_iter().filter_map(cpu).reduce(f64::max);
    goal(
        "CPU of webhook, replica and NATS under load",
        "≤ 0.13 ms",
        most.map(|ms| (format!("{ms:.3} ms"), ms <= 0.13)),
    );
    let ratio = |at_once| {
        let ((rate1, p50_1, ..), (rate2, p50_2, _, p999)) =
            (http1(at_once)?, closed("HTTP/2", at_once)?);
        Some((rate1 / rate2, p50_2 / p50_1, p999))
    };
    let ratios: Vec<_> = [1, 8, 16].into_iter().filter_map(ratio).collect();
    let worst = ratios
        .into_iter()
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1), a.2.max(b.2)));
    goal(
        "HTTP/2 on one connection against HTTP/1.1",
        "≤ 1.4 times, no stalls of 40 ms",
        worst.map(|(rate, p50, p999)| {
            let got = format!(
                "at worst {rate:.2} times fewer a second, p50 {p50:.2} times, p99.9 {p999} ms"
            );
            (got, rate <= 1.4 && p50 <= 1.4 && p999 < 40.0)
        }),
    );
}

fn of_change(report: &Value, goals: &mut Vec<Goal>) {
    for (name, measure, reach, limit) in [
        (
            "scale",
            "p99 over the most Ingresses against 1,000",
            "≤ 1.5 times",
            1.5,
        ),
        (
            "beside",
            "p99 while 500 deltas/s arrive against quiet",
            "≤ 1.25 times",
            1.25,
        ),
    ] {
        let ratios = &result(report, name)["p99_ratio"];
        let both = ratios["one_at_a_time"]
            .as_f64()
            .zip(ratios["open"].as_f64());
        goals.push(goal_of(
            name,
            measure,
            reach,
            both.map(|(one, open)| {
                let got = format!("{one:.2} times one at a time, {open:.2} times in the open loop");
                (got, one <= limit && open <= limit)
            }),
        ));
    }
    let sides = &result(report, "delta")["sides"];
    let cost = |side: usize| sides[side]["with_indexes"]["cpu_us_per_delta"].as_f64();
    goals.push(goal_of(
        "delta",
        "one delta with 10 indexed expressions on the most Ingresses",
        "≤ 50 µs of replica CPU, flat",
        cost(0).zip(cost(1)).map(|(few, many)| {
            (
                format!("{many} µs ({few} µs over 1,000)"),
                many <= 50.0 && many <= few * 1.25,
            )
        }),
    ));
}

fn of_size(report: &Value, goals: &mut Vec<Goal>) {
    let rss =
        |name: &str, process: &str| result(report, name)["memory"][process]["rss_bytes"].as_f64();
    goals.push(goal_of(
        "size-7000",
        "7,000 objects of 2 KB, replica",
        "RSS ≤ 35 MB",
        rss("size-7000", "replica")
            .map(|bytes| (format!("{:.1} MB", bytes / MB), bytes <= 35.0 * MB)),
    ));
    let pods = result(report, "size-pods");
    let packed = pods["objects"]["packed_bytes"].as_f64();
    let replica = rss("size-pods", "replica");
    goals.push(goal_of(
        "size-pods",
        "Pods of 5.2 KB JSON, replica against their MessagePack bytes",
        "≤ 1.15 times",
        replica.zip(packed).map(|(rss, packed)| {
            let got = format!(
                "{:.2} times ({:.0} of {:.0} MB)",
                rss / packed,
                rss / MB,
                packed / MB
            );
            (got, rss <= 1.15 * packed)
        }),
    ));
    let together: Option<f64> = ["watcher", "replica", "webhook"]
        .into_iter()
        .map(|of| rss("size-pods", of))
        .sum();
    goals.push(goal_of(
        "size-pods",
        "the same, watcher, replica and webhook together",
        "≤ 400 MB",
        together.map(|bytes| (format!("{:.0} MB", bytes / MB), bytes <= 400.0 * MB)),
    ));
    goals.push(goal_of(
        "size-pods-referenced",
        "the same with `retain: Referenced` for a label policy, replica",
        "≤ 60 MB",
        rss("size-pods-referenced", "replica")
            .map(|bytes| (format!("{:.1} MB", bytes / MB), bytes <= 60.0 * MB)),
    ));
    goals.push(goal_of(
        "start",
        "Pods of 3.7 KB MessagePack: replica's start; peak; settled",
        "≤ 4 s; ≤ 1.2 times settled; ≤ 1.15 times the bytes",
        of_start(report),
    ));
}

/// The worst of all starts.
fn of_start(report: &Value) -> Option<(String, bool)> {
    let started = result(report, "start");
    let packed = started["objects"]["packed_bytes"].as_f64()?;
    let count = started["objects"]["count"].as_u64()?;
    let starts = started["starts"].as_array()?.iter().filter_map(|start| {
        let of = |name: &str| start["memory"][name].as_f64();
        Some((
            start["synced_s"].as_f64()?,
            of("rss_most_bytes")?,
            of("rss_bytes")?,
        ))
    });
    let (seconds, peak, settled) =
        starts.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1), a.2.max(b.2)))?;
    let (over, of_bytes) = (peak / settled, settled / packed);
    let got = format!("{count}: {seconds:.2} s; {over:.2} times; {of_bytes:.2} times");
    Some((got, seconds <= 4.0 && over <= 1.2 && of_bytes <= 1.15))
}

fn goal_of(
    scenario: &'static str,
    measure: &str,
    reach: &'static str,
    got: Option<(String, bool)>,
) -> Goal {
    let (got, met) = got.map_or(("not measured".to_owned(), None), |(got, met)| {
        (got, Some(met))
    });
    Goal {
        measure: measure.to_owned(),
        reach,
        got,
        met,
        scenario,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn met(report: &Value, measure: &str) -> Option<bool> {
        let goals = all(report);
        let of: Vec<_> = goals
            .iter()
            .filter(|goal| goal.measure.contains(measure))
            .collect();
        assert_eq!(of.len(), 1, "{measure}");
        of[0].met
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert!(all(&json!({})).iter().all(|goal| goal.met.is_none()));
    }

    #[test]
    fn goals_are_met_up_to_their_limit() {
        let report = |rss: u64, rate: f64, quick: bool| {
            let row = json!({ "protocol": "HTTP/1.1", "at_once": 8, "closed": { "load": {
                "decisions_per_second": rate, "latency_ms": { "p50": 1.0, "p99": 5.0, "p999": 6.0 } } } });
            json!({ "scenarios": [
                { "name": "size-7000", "quick": false, "result": { "memory": { "replica": { "rss_bytes": rss } } } },
                { "name": "unique-call", "quick": quick, "result": { "rows": [row] } },
            ] })
        };
        let at_limit = report(35_000_000, 6_500.0, false);
        assert_eq!(met(&at_limit, "7,000 objects"), Some(true));
        assert_eq!(
            met(&at_limit, "unchanged apiCall from a view: 8 at once"),
            Some(true)
        );
        let over = report(35_000_001, 6_499.0, false);
        assert_eq!(met(&over, "7,000 objects"), Some(false));
        assert_eq!(
            met(&over, "unchanged apiCall from a view: 8 at once"),
            Some(false)
        );
        assert_eq!(
            met(&over, "unchanged apiCall from a view: 16 at once"),
            None
        );
        let quick = report(35_000_000, 6_500.0, true);
        assert_eq!(met(&quick, "7,000 objects"), Some(true));
        assert_eq!(
            met(&quick, "unchanged apiCall from a view: 8 at once"),
            None
        );
    }
}
