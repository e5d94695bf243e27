//! Our figures as ratios to the floor's.

use std::fmt::Write;

use serde_json::Value;

use super::{DECISIONS, figure};
use crate::goals::result;

const INTRODUCTION: &str = "## Beside the floor\n\nThe floor is a minimal webhook in Rust: TLS, one request over NATS, and one look-up in a set, without policies,\nmetrics and traces. Each figure is ours divided by the floor's, the median over turns of both. Decisions a second are\nbetter above 1, and all others are better below. CPU is that of all services and of nats-server, for a decision.\n\n| policy | | at once | decisions/s | p50 | p99 | CPU | open loop: p50 | p99 | CPU |\n|---|---|---|---|---|---|---|---|---|---|\n";

/// A table of ratios; empty where no scenario had the floor beside it.
pub(super) fn section(report: &Value) -> String {
    let mut rows = String::new();
    for (name, words) in DECISIONS {
        let all = result(report, name)["rows"].as_array();
        for row in all.into_iter().flatten() {
            let of = &row["to_floor"];
            if of.is_null() {
                continue;
            }
            let ratio = |way: &str, name: &str| figure(&of[way][name], 2);
            // Writing to a string cannot fail.
            let _ = writeln!(
                rows,
                "| {words} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row["protocol"].as_str().unwrap_or_default(),
                row["at_once"],
                ratio("closed", "decisions_per_second"),
                ratio("closed", "p50"),
                ratio("closed", "p99"),
                ratio("closed", "cpu"),
                ratio("open", "p50"),
                ratio("open", "p99"),
                ratio("open", "cpu"),
            );
        }
    }
    match rows.is_empty() {
        true => rows,
        false => format!("{INTRODUCTION}{rows}\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::page;

    fn report(beside_floor: bool) -> Value {
        let side = |rate: u64, cpu: Value| {
            let load = json!({ "decisions_per_second": rate,
                "latency_ms": { "p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0 } });
            json!({ "protocol": "HTTP/2", "at_once": 8,
                "closed": { "load": load, "cpu_ms_per_decision": cpu },
                "open": { "per_second": 70, "load": load } })
        };
        let mut row = side(
            800,
            json!({ "replica": 0.02, "webhook_replica_nats": 0.15 }),
        );
        if beside_floor {
            row["floor"] = side(1_000, json!({ "holder": 0.01, "together": 0.1 }));
            let ratios =
                json!({ "decisions_per_second": 0.8, "p50": 1.25, "p99": 1.5, "cpu": 1.5 });
            row["to_floor"] = json!({ "closed": ratios, "open": { "p50": 1.1 } });
        }
        json!({ "scenarios": [{ "name": "unique-call", "result": { "rows": [row] } }] })
    }

    #[test]
    fn the_page_shows_ratios_to_the_floor_before_what_was_measured() {
        let page = page::write(&report(true));
        let words = "| host and path, unchanged apiCall";
        let at = |text: String| {
            let found = page.find(&text);
            found.unwrap_or_else(|| panic!("no {text} in {page}"))
        };
        let lines = [
            at(format!(
                "{words} | HTTP/2 | 8 | 0.80 | 1.25 | 1.50 | 1.50 | 1.10 | – | – |\n"
            )),
            at(format!("{words} | HTTP/2 | 8 | 800 | 1.00 / 2.00 / 3.00 |")),
            at(format!("{words}: the floor | HTTP/2 | 8 | 1000 |")),
            at("+ 0.010 + – = 0.100 |".to_owned()),
        ];
        assert!(lines.is_sorted(), "{page}");
    }

    #[test]
    fn without_the_floor_the_page_has_no_ratios() {
        assert_eq!(section(&report(false)), "");
        assert!(!page::write(&report(false)).contains("the floor |"));
    }
}
