//! Ratios of our figures to the floor's. Pure.

use serde_json::{Value, json};

use crate::turns;

/// A figure of a run, ours or the floor's.
type Figure = fn(&Value) -> Option<f64>;

/// Returns a row of both: of each side the turn with the median throughput, the median of each ratio over the turns, and
/// all turns.
pub(super) fn row(turns: &[[Value; 2]]) -> Value {
    let mut row = median_turn(turns, 0);
    row["floor"] = median_turn(turns, 1);
    row["to_floor"] = json!({
        "closed": ratios(turns, "closed"),
        "open": ratios(turns, "open"),
    });
    row["turns"] = json!(turns);
    row
}

fn ratios(turns: &[[Value; 2]], way: &str) -> Value {
    let of = |figure: Figure| {
        let ratios = turns.iter().map(|[ours, floor]| {
            let floor = figure(&floor[way]).filter(|figure| *figure > 0.0)?;
            Some(figure(&ours[way])? / floor)
        });
        turns::median(ratios.collect::<Option<_>>()?)
    };
    json!({
        "decisions_per_second": of(rate),
        "p50": of(|run| run["load"]["latency_ms"]["p50"].as_f64()),
        "p99": of(|run| run["load"]["latency_ms"]["p99"].as_f64()),
        "cpu": of(cpu),
    })
}

fn rate(run: &Value) -> Option<f64> {
    run["load"]["decisions_per_second"].as_f64()
}

/// The CPU time of a whole decision, ours or the floor's.
fn cpu(run: &Value) -> Option<f64> {
    let each = &run["cpu_ms_per_decision"];
    let ours = each["webhook_replica_nats"].as_f64();
    ours.or_else(|| each["together"].as_f64())
}

/// Returns the turn of a side with the median throughput in the closed loop.
fn median_turn(turns: &[[Value; 2]], side: usize) -> Value {
    let mut own: Vec<&Value> = turns.iter().map(|turn| &turn[side]).collect();
    own.sort_by(|a, b| {
        let of = |turn: &Value| rate(&turn["closed"]).unwrap_or_default();
        of(a).total_cmp(&of(b))
    });
    let median = own.len().saturating_sub(1) / 2;
    own.get(median).map_or(Value::Null, |turn| (*turn).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn of a side: decisions a second, p99 in the open loop, and CPU time.
    fn turn(rate: f64, p99: f64, cpu: &Value) -> Value {
        let run = |p99: f64| {
            json!({ "load": { "decisions_per_second": rate,
                "latency_ms": { "p50": 1.0, "p99": p99 } }, "cpu_ms_per_decision": cpu })
        };
        json!({ "protocol": "HTTP/1.1", "at_once": 8, "closed": run(2.0), "open": run(p99) })
    }

    fn pair(ours: [f64; 2], floor: [f64; 2]) -> [Value; 2] {
        let own = json!({ "webhook": 0.1, "webhook_replica_nats": 0.15 });
        let of_floor = json!({ "webhook": 0.05, "together": 0.1 });
        [
            turn(ours[0], ours[1], &own),
            turn(floor[0], floor[1], &of_floor),
        ]
    }

    #[test]
    fn ratios_to_the_floor_are_medians_over_the_turns() {
        let turns = [
            pair([9_000.0, 3.0], [10_000.0, 2.0]),
            // The machine was slow for both.
            pair([4_000.0, 60.0], [5_000.0, 50.0]),
            pair([8_000.0, 90.0], [10_000.0, 2.0]),
        ];
        let row = row(&turns);
        let of = &row["to_floor"];
        assert_eq!(of["closed"]["decisions_per_second"], 0.8);
        assert_eq!(of["closed"]["p50"], 1.0);
        assert_eq!(of["open"]["p99"], 1.5);
        let cpu = of["closed"]["cpu"].as_f64().unwrap();
        assert!((cpu - 1.5).abs() < 1e-9, "{cpu}");
        assert_eq!(rate(&row["closed"]), Some(8_000.0));
        assert_eq!(rate(&row["floor"]["closed"]), Some(10_000.0));
        assert_eq!(row["at_once"], 8);
        assert_eq!(row["turns"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_turn_without_a_figure_has_no_ratio_to_the_floor() {
        let mut turns = [pair([1.0, 1.0], [1.0, 1.0]), pair([1.0, 1.0], [0.0, 1.0])];
        turns[1][1]["closed"]["cpu_ms_per_decision"] = Value::Null;
        let row = row(&turns);
        let of = &row["to_floor"]["closed"];
        assert!(
            of["decisions_per_second"].is_null(),
            "nothing is divided by 0"
        );
        assert!(of["cpu"].is_null());
        assert_eq!(of["p99"], 1.0);
    }
}
