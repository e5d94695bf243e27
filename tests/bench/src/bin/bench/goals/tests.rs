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
fn a_goal_that_was_not_measured_is_neither_met_nor_missed() {
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

#[test]
fn ratios_to_the_floor_are_goals() {
    let report = |cpu: f64, p99: f64, rows: &[u64]| {
        let row = |at_once: &u64| {
            json!({ "protocol": "HTTP/1.1", "at_once": at_once, "to_floor": {
                "closed": { "p50": 1.1, "p99": p99, "cpu": cpu } } })
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        json!({ "scenarios": [
            { "name": "unique-entry", "quick": false, "result": { "rows": rows } },
        ] })
    };
    let cpu = |report: &Value| met(report, "entry, beside the floor: CPU");
    let latency = |report: &Value| met(report, "entry, beside the floor: p50");
    let at_limit = report(1.2, 1.1, &[1, 8, 16]);
    assert_eq!(
        (cpu(&at_limit), latency(&at_limit)),
        (Some(true), Some(true))
    );
    let over = report(1.21, 1.11, &[1, 8, 16]);
    assert_eq!((cpu(&over), latency(&over)), (Some(false), Some(false)));
    let lacking = report(1.2, 1.1, &[1, 16]);
    assert_eq!((cpu(&lacking), latency(&lacking)), (Some(true), None));
}

#[test]
fn a_figure_that_is_not_measurable_meets_no_goal() {
    let delta = |few: Value, many: Value| {
        let side = |us: Value| json!({ "with_indexes": { "cpu_us_per_delta": us } });
        json!({ "scenarios": [{ "name": "delta", "quick": false,
            "result": { "sides": [side(few), side(many)] } }] })
    };
    let of = |few: Value, many: Value| {
        let report = delta(few, many);
        let goals = all(&report);
        let goal = goals.into_iter().find(|goal| goal.scenario == "delta");
        goal.map(|goal| (goal.got, goal.met)).unwrap()
    };
    assert_eq!(of(json!(40.0), json!(50.0)).1, Some(true));
    assert_eq!(of(json!(40.0), json!(50.1)).1, Some(false));
    for (few, many) in [(json!(40.0), json!(-3.0)), (json!(0), json!(50.0))] {
        let (got, met) = of(few, many);
        assert!(got.starts_with("not measurable"), "{got}");
        assert_eq!(met, None);
    }
    for (few, many) in [(json!(40.0), json!(null)), (json!("40"), json!(50.0))] {
        assert_eq!(of(few, many), ("not measured".to_owned(), None));
    }
}

#[test]
fn a_part_that_is_missing_is_not_left_out_of_the_worst() {
    let start = |seconds: Value| {
        json!({ "synced_s": seconds,
            "memory": { "rss_most_bytes": 110.0, "rss_bytes": 105.0 } })
    };
    let report = |last: Value| {
        json!({ "scenarios": [{ "name": "start", "quick": false, "result": {
            "objects": { "packed_bytes": 100.0, "count": 200_000 },
            "starts": [start(json!(3.0)), start(last)] } }] })
    };
    assert_eq!(met(&report(json!(4.0)), "replica's start"), Some(true));
    assert_eq!(met(&report(json!(4.1)), "replica's start"), Some(false));
    assert_eq!(met(&report(json!(0.0)), "replica's start"), None);
    assert_eq!(met(&report(json!(null)), "replica's start"), None);
}
