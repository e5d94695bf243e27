//! The page that shows a report to people.

mod floor;
mod peer;

use std::fmt::Write;

use serde_json::Value;

use crate::goals::{self, result};

const INTRODUCTION: &str = include_str!("page/introduction.md");
const METHOD: &str = include_str!("page/method.md");

/// Scenarios of decisions, in the page's order, and what each is called there.
const DECISIONS: [(&str, &str); 11] = [
    ("no-context", "no context at all"),
    ("unique-call", "host and path, unchanged apiCall"),
    ("unique-entry", "host and path, entry"),
    ("hosts-call", "host in a list, unchanged apiCall"),
    ("hosts-entry", "host in a list, entry"),
    ("hosts-projection", "host in a list, projection"),
    ("count-call", "filter and count, unchanged apiCall"),
    ("count-entry", "filter and count, entry"),
    ("count-projection", "filter and count, projection"),
    ("count-pods", "Pods, filter and count, entry"),
    ("sixteen", "a Pod through 16 policies, no context"),
];

const MB: f64 = 1e6;

/// The whole page, in Markdown. Writing to a string cannot fail.
pub(crate) fn write(report: &Value) -> String {
    let mut page = INTRODUCTION.to_owned();
    machine(report, &mut page);
    goals_table(report, &mut page);
    page.push_str(&floor::section(report));
    decisions(report, &mut page);
    allocations(report, &mut page);
    page.push_str(&peer::section(report));
    in_cel(report, &mut page);
    changes(report, &mut page);
    memory(report, &mut page);
    instructions(report, &mut page);
    page.push_str(METHOD);
    page
}

fn machine(report: &Value, page: &mut String) {
    let of = &report["machine"];
    let text = |name: &str| of[name].as_str().unwrap_or_default();
    let _ = writeln!(
        page,
        "Measured {} on {} cores ({}), {} MiB, Linux {}; {}; runs of {} s, {} replica(s).\n",
        text("measured"),
        of["cores"],
        text("cpu"),
        of["memory_mib"],
        text("kernel"),
        text("nats_server"),
        report["seconds"],
        report["replicas"],
    );
    if let Some(note) = report["note"].as_str() {
        let _ = writeln!(page, "**{note}**\n");
    }
    let scenarios = report["scenarios"].as_array();
    let mut scenarios = scenarios.into_iter().flatten();
    if scenarios.any(|scenario| scenario["quick"] == true) {
        page.push_str("**Some of it was a quick run, of fewer objects and too short for figures: no goal is judged by that.**\n\n");
    }
}

fn goals_table(report: &Value, page: &mut String) {
    page.push_str("## Goals\n\n| measure | goal | measured | reached |\n|---|---|---|---|\n");
    for goal in goals::all(report) {
        let met = match goal.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {met} |",
            goal.measure, goal.reach, goal.got
        );
    }
    page.push('\n');
}

fn decisions(report: &Value, page: &mut String) {
    page.push_str("## Decisions\n\nClosed loop: a connection sends its next review when the last one is answered. Latencies are p50 / p99 / p99.9 in ms.\nCPU is in ms for a decision: webhook + replica + nats-server (of the floor: webhook + holder + nats-server), and the\ngenerator. *Others* are the cores that other processes used meanwhile: where that is not near 0, latencies are worth\nlittle.\n\n| policy | | at once | decisions/s | latency | open loop: a second | its latency, and most | longest stall, unanswered, machine late | CPU | generator | others |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (name, words) in DECISIONS {
        for row in result(report, name)["rows"]
            .as_array()
            .into_iter()
            .flatten()
        {
            decision(words, row, ["replica", "webhook_replica_nats"], page);
            let floor = &row["floor"];
            if !floor.is_null() {
                let words = format!("{words}: the floor");
                decision(&words, floor, ["holder", "together"], page);
            }
        }
    }
    page.push('\n');
}

/// Writes a line of decisions, with the CPU time of the process that holds the facts, and of all processes of a decision.
fn decision(words: &str, row: &Value, [holding, all]: [&str; 2], page: &mut String) {
    let (closed, open) = (&row["closed"], &row["open"]);
    let cpu = |name: &str| figure(&closed["cpu_ms_per_decision"][name], 3);
    let _ = writeln!(
        page,
        "| {words} | {} | {} | {} | {} | {} | {} / {} | {} | {} + {} + {} = {} | {} | {} |",
        row["protocol"].as_str().unwrap_or_default(),
        row["at_once"],
        figure(&closed["load"]["decisions_per_second"], 0),
        latency(&closed["load"]),
        figure(&open["per_second"], 0),
        latency(&open["load"]),
        figure(&open["load"]["latency_ms"]["max"], 1),
        stall(&open["load"]),
        cpu("webhook"),
        cpu(holding),
        cpu("nats"),
        cpu(all),
        figure(&closed["load"]["generator_cpu_ms"], 3),
        cpu("others_cores"),
    );
}

fn allocations(report: &Value, page: &mut String) {
    let mut rows = String::new();
    for (name, words) in DECISIONS {
        let all = result(report, name)["rows"].as_array();
        for row in all.into_iter().flatten() {
            let closed = &row["closed"];
            let allocated = &closed["cpu_ms_per_decision"]["allocated"];
            if allocated.is_null() {
                continue;
            }
            let of = |process: &str| {
                let of = &allocated[process];
                format!("{} / {}", figure(&of["count"], 0), figure(&of["bytes"], 0))
            };
            let (webhook, replica) = (of("webhook"), of("replica"));
            let protocol = row["protocol"].as_str().unwrap_or_default();
            let _ = writeln!(
                rows,
                "| {words} | {protocol} | {} | {webhook} | {replica} |",
                row["at_once"]
            );
        }
    }
    if !rows.is_empty() {
        let _ = writeln!(
            page,
            "Allocations for a decision, and their bytes, as the services' allocator counts them:\n\n| policy | | at once | webhook | replica |\n|---|---|---|---|---|\n{rows}"
        );
    }
}

/// Scenarios of a classic policy and one in CEL.
const IN_CEL: [(&str, &str); 8] = [
    ("cel-no-context", "no context at all"),
    ("cel-hosts", "unique host"),
    ("cel-hosts-many", "unique host"),
    ("cel-entry", "unique host, of an entry"),
    ("cel-hosts-half", "unique host, half without one"),
    ("cel-hosts-half-many", "unique host, half without one"),
    ("cel-paths", "unique path"),
    ("cel-paths-many", "unique path"),
];

fn in_cel(report: &Value, page: &mut String) {
    page.push_str("## Policies in CEL\n\nA classic policy and one in CEL that says the same, in turns. Medians, in ms.\n\n| policy | Ingresses | language | one at a time | 8 at once, open loop | 16 at once, a second |\n|---|---|---|---|---|---|\n");
    for (name, words) in IN_CEL {
        let sides = result(report, name)["sides"].as_array();
        for (side, language) in sides.into_iter().flatten().zip(["classic", "CEL"]) {
            let _ = writeln!(
                page,
                "| {words} | {} | {language} | {} | {} at {}/s | {} |",
                side["ingresses"],
                latency(&side["one_at_a_time"]["load"]),
                latency(&side["open"]["load"]),
                figure(&side["open"]["per_second"], 0),
                figure(&side["decisions_per_second"], 0),
            );
        }
    }
    page.push('\n');
}

fn changes(report: &Value, page: &mut String) {
    page.push_str("## Many objects, and changes\n\nMedians of several turns, in ms.\n\n| | one at a time | 8 at once, open loop |\n|---|---|---|\n");
    for (name, key, words) in [
        ("scale", "ingresses", "Ingresses"),
        ("beside", "deltas_applied_per_second", "deltas a second"),
        ("scans", "scans_per_second", "scans a second"),
        ("attacked", "large_decided", "large reviews decided"),
    ] {
        for side in result(report, name)["sides"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let _ = writeln!(
                page,
                "| {} {words} | {} | {} at {}/s |",
                figure(&side[key], 0),
                latency(&side["one_at_a_time"]["load"]),
                latency(&side["open"]["load"]),
                figure(&side["open"]["per_second"], 0),
            );
        }
    }
    page.push_str("\nA delta, in µs of the replica's CPU, at 500 a second and at 5,000:\n\n| Ingresses | without indexes | with 10 |\n|---|---|---|\n");
    for side in result(report, "delta")["sides"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let cost = |of: &Value| {
            format!(
                "{} / {}",
                figure(&of["cpu_us_per_delta"], 1),
                figure(&of["cpu_us_per_delta_in_a_burst"], 1)
            )
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            side["ingresses"],
            cost(&side["without_indexes"]),
            cost(&side["with_indexes"])
        );
    }
    page.push('\n');
}

fn memory(report: &Value, page: &mut String) {
    page.push_str("## Memory\n\nAt rest; RSS / PSS in MB, as the kernel counts them.\n\n| | objects | JSON | MessagePack | replica | watcher | webhook | nats-server |\n|---|---|---|---|---|---|---|---|\n");
    for (name, words) in [
        ("size-7000", "Services and Ingresses"),
        ("size-pods", "Pods"),
        ("size-pods-referenced", "Pods, `retain: Referenced`"),
    ] {
        let of = result(report, name);
        if of.is_null() {
            continue;
        }
        let process = |name: &str| {
            let bytes = |field: &str| megabytes(&of["memory"][name][field]);
            format!("{} / {}", bytes("rss_bytes"), bytes("pss_bytes"))
        };
        let objects = &of["objects"];
        let _ = writeln!(
            page,
            "| {words} | {} | {} | {} | {} | {} | {} | {} |",
            objects["count"],
            megabytes(&objects["json_bytes"]),
            megabytes(&objects["packed_bytes"]),
            process("replica"),
            process("watcher"),
            process("webhook"),
            process("nats"),
        );
    }
    real(report, page);
    let started = result(report, "start");
    if let Some(starts) = started["starts"].as_array() {
        let _ = writeln!(
            page,
            "\nA replica's start over {} Pods, {} MB of MessagePack:\n\n| synced after | CPU | most RSS | settled RSS |\n|---|---|---|---|",
            started["objects"]["count"],
            megabytes(&started["objects"]["packed_bytes"])
        );
        for start in starts {
            let _ = writeln!(
                page,
                "| {} s | {} ms | {} MB | {} MB |",
                figure(&start["synced_s"], 2),
                figure(&start["cpu_ms"], 0),
                megabytes(&start["memory"]["rss_most_bytes"]),
                megabytes(&start["memory"]["rss_bytes"])
            );
        }
    }
    page.push('\n');
}

fn real(report: &Value, page: &mut String) {
    let of = result(report, "real-pods");
    if of.is_null() {
        return;
    }
    let objects = &of["objects"];
    let _ = writeln!(
        page,
        "\nAn entry on {} Pods of a real API server ({} MB of JSON, {} MB of MessagePack). Seconds from its\ncreation to the first answer over all; of them, from when the first page was asked for to when the last\nwas there, how long the API server took for pages, and the log for batches. CPU in seconds; RSS / PSS of\nthe three services after that, in MB.\n\n| | usable | list | API server | log | CPU: API server | watcher | nats-server | replica | replica | watcher | webhook |\n|---|---|---|---|---|---|---|---|---|---|---|---|",
        objects["count"],
        megabytes(&objects["json_bytes"]),
        megabytes(&objects["packed_bytes"]),
    );
    for (entry, words) in [("whole", "whole"), ("referenced", "`retain: Referenced`")] {
        let (of, phases) = (&of[entry], &of[entry]["phases"]);
        let listed = phases["last_page_s"].as_f64();
        let listed = listed.zip(phases["first_page_asked_s"].as_f64());
        let listed = listed.map_or("–".to_owned(), |(last, first)| {
            format!("{:.2}", last - first)
        });
        let cpu = |process: &str| {
            let ms = phases["cpu_ms"][process].as_f64();
            ms.map_or("–".to_owned(), |ms| format!("{:.2}", ms / 1e3))
        };
        let memory = |process: &str| {
            let bytes = |field: &str| megabytes(&of["memory"][process][field]);
            format!("{} / {}", bytes("rss_bytes"), bytes("pss_bytes"))
        };
        let _ = writeln!(
            page,
            "| {words} | {} | {listed} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            figure(&of["usable_s"], 2),
            figure(&phases["api_server_in_pages_s"], 2),
            figure(&phases["log_in_batches_s"], 2),
            cpu("apiserver"),
            cpu("watcher"),
            cpu("nats"),
            cpu("replica"),
            memory("replica"),
            memory("watcher"),
            memory("webhook"),
        );
    }
}

fn instructions(report: &Value, page: &mut String) {
    let Some(counted) = report["instructions"].as_object() else {
        return;
    };
    page.push_str("## Instructions\n\nBy `cargo xtask instructions`: webhook and replica in one process, without TLS and NATS.\n\n| | instructions | allocations |\n|---|---|---|\n");
    for (name, of) in counted {
        let (instructions, allocations) = (&of["instructions"], &of["allocations"]);
        let _ = writeln!(
            page,
            "| {name} | {} | {} |",
            figure(instructions, 0),
            figure(allocations, 1)
        );
    }
    page.push('\n');
}

/// Writes how long requests were slow without a break, how long the server took for any of them once it was sent,
/// and how long the machine's cores did not serve a thread that was due meanwhile. Where the second is much
/// less than the first, requests waited for their turn: the server was slower for a while, not stuck.
fn stall(load: &Value) -> String {
    let longest = &load["stalls"][0];
    let ms = |name: &str| figure(&longest[name], 1);
    let [lasted, unanswered] = [ms("lasted_ms"), ms("unanswered_ms")];
    format!("{lasted} / {unanswered} / {}", ms("machine_late_ms"))
}

fn latency(load: &Value) -> String {
    let ms = |name: &str| figure(&load["latency_ms"][name], 2);
    format!("{} / {} / {}", ms("p50"), ms("p99"), ms("p999"))
}

fn figure(value: &Value, digits: usize) -> String {
    value
        .as_f64()
        .map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

fn megabytes(value: &Value) -> String {
    value
        .as_f64()
        .map_or("–".to_owned(), |bytes| format!("{:.1}", bytes / MB))
}
