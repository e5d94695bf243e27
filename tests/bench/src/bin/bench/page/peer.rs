//! The figures measured in comparison with a second engine.

use std::fmt::Write;

use serde_json::Value;

use super::{DECISIONS, MB, figure, latency};
use crate::goals::result;

const INTRODUCTION: &str = "## Beside another engine\n\nThe same reviews, posted to both in turns, row by row, on one machine; each answer of both is held against\nwhat is right. CPU is ms for a decision, by process; the open loop's rate is of each one's own throughput.\nMemory is RSS after the last run, and the most.\n\n| policy | | | at once | decisions | a second | latency | open loop: a second | its latency, and most | CPU | memory, MB |\n|---|---|---|---|---|---|---|---|---|---|---|\n";

/// A table of both; empty where nothing was measured beside.
pub(super) fn section(report: &Value) -> String {
    let mut rows = String::new();
    for (name, words) in DECISIONS {
        let ours = result(report, name);
        let peer = &ours["peer"];
        let called = peer["name"].as_str().unwrap_or_default();
        let all = |side: &Value| side["rows"].as_array().cloned().unwrap_or_default();
        for (row, theirs) in all(ours).iter().zip(&all(peer)) {
            let sides = [("Anteroom", row, ours), (called, theirs, peer)];
            for (who, row, side) in sides {
                line(words, who, row, &side["memory"], &mut rows);
            }
        }
    }
    match rows.is_empty() {
        true => rows,
        false => format!("{INTRODUCTION}{rows}\n"),
    }
}

/// Writing to a string cannot fail.
fn line(words: &str, who: &str, row: &Value, memory: &Value, rows: &mut String) {
    let (closed, open) = (&row["closed"], &row["open"]);
    let _ = writeln!(
        rows,
        "| {words} | {who} | {} | {} | {} | {} | {} | {} | {} / {} | {} | {} |",
        row["protocol"].as_str().unwrap_or_default(),
        row["at_once"],
        closed["load"]["decisions"],
        figure(&closed["load"]["decisions_per_second"], 1),
        latency(&closed["load"]),
        figure(&open["per_second"], 1),
        latency(&open["load"]),
        figure(&open["load"]["latency_ms"]["max"], 1),
        cpu(&closed["cpu_ms_per_decision"]),
        of_memory(memory),
    );
}

/// Shows each process that used CPU time, by name.
fn cpu(each: &Value) -> String {
    const NO_PROCESS: [&str; 4] = [
        "others_cores",
        "webhook_replica_nats",
        "together",
        "allocated",
    ];
    let fields = each.as_object().into_iter().flatten();
    let told = fields.filter_map(|(name, ms)| {
        let ms = ms.as_f64().filter(|ms| *ms >= 0.000_5)?;
        (!NO_PROCESS.contains(&&**name)).then(|| format!("{name} {ms:.3}"))
    });
    told.collect::<Vec<_>>().join(" + ")
}

fn of_memory(memory: &Value) -> String {
    let fields = memory.as_object().into_iter().flatten();
    let told = fields.filter_map(|(name, of)| {
        let mb = |field: &str| Some(of[field].as_f64()? / MB);
        let (rss, most) = (mb("rss_bytes")?, mb("rss_most_bytes")?);
        Some(format!("{name} {rss:.0} ({most:.0})"))
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_shows_the_peers_row_under_our_own() {
        let row = |cpu: Value| {
            let load = json!({ "decisions": 40, "decisions_per_second": 3.94,
                "latency_ms": { "p50": 252.0, "p99": 438.0, "p999": 438.0, "max": 440.0 } });
            json!({ "protocol": "HTTP/2", "at_once": 1,
                "closed": { "load": load, "cpu_ms_per_decision": cpu },
                "open": { "per_second": 2.7, "load": load } })
        };
        let memory = json!({ "webhook": { "rss_bytes": 5e8, "rss_most_bytes": 1e9 } });
        let ours = row(json!({ "webhook": 0.1, "watcher": 0.0, "webhook_replica_nats": 0.1 }));
        let theirs = row(json!({ "webhook": 245.0, "together": 245.0, "others_cores": 0.1 }));
        let peer = json!({ "name": "other", "rows": [theirs], "memory": memory });
        let alone = json!({ "name": "unique-call", "result": { "rows": [ours] } });
        let mut both = alone.clone();
        both["result"]["peer"] = peer;
        let page = |scenario: Value| section(&json!({ "scenarios": [scenario] }));
        assert_eq!(page(alone), "");
        let page = page(both);
        let lines: Vec<&str> = page.lines().rev().skip(1).take(2).collect();
        assert!(
            lines[1].contains("| Anteroom | HTTP/2 | 1 | 40 | 3.9 |"),
            "{page}"
        );
        assert!(lines[1].contains("| webhook 0.100 |"), "{page}");
        assert!(
            lines[0].contains("| other |")
                && lines[0].ends_with("| webhook 245.000 | webhook 500 (1000) |"),
            "{page}"
        );
    }
}
