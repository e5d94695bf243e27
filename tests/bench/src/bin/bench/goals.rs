//! The goals, and how far each figure came.

use serde_json::Value;

/// A goal with what was measured.
pub(crate) struct Goal {
    pub(crate) measure: String,
    pub(crate) reach: &'static str,
    pub(crate) got: String,
    /// `None`: it was not measured, could not be, or in a quick run, which is none to judge by.
    pub(crate) met: Option<bool>,
    /// The scenario that measures it.
    scenario: &'static str,
}

/// Why there is no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// The scenario did not run, or not this part of it.
    NotMeasured,
    /// The result can be no figure: nothing takes no time, no memory, or less. What was to be
    /// measured is below the noise, and no goal is reached by that.
    NotMeasurable,
}

/// The verdict on a goal: words for people, and whether it is reached.
type Judged = Result<(String, bool), Missing>;

/// A figure of a report. Of all that is measured here none can be 0 or less.
fn figure(value: &Value) -> Result<f64, Missing> {
    match value.as_f64() {
        Some(figure) if figure > 0.0 => Ok(figure),
        Some(_) => Err(Missing::NotMeasurable),
        None => Err(Missing::NotMeasured),
    }
}

/// A megabyte, as limits of memory are said.
const MB: f64 = 1e6;

/// All goals, in order.
pub(crate) fn all(report: &Value) -> Vec<Goal> {
    let mut goals = Vec::new();
    let on_host_and_path = [
        ("unique-call", "unchanged apiCall from a view"),
        ("unique-entry", "entry"),
    ];
    for (name, words) in on_host_and_path {
        of_floor(&Found { report, name }, words, &mut goals);
    }
    for (name, words) in on_host_and_path {
        of_decisions(&Found { report, name }, words, &mut goals);
    }
    of_policies(report, &mut goals);
    of_cel(report, &mut goals);
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

/// Adds the goals of decisions beside the floor's.
fn of_floor(found: &Found<'_>, words: &str, goals: &mut Vec<Goal>) {
    let ratio = |at_once: u64, name: &str| {
        let row = found.row("HTTP/1.1", at_once);
        figure(&row["to_floor"]["closed"][name])
    };
    let measure = |what: &str| format!("host and path, {words}, beside the floor: {what}");
    goals.push(goal_of(
        found.name,
        &measure("CPU of all services and NATS, 16 at once"),
        "≤ 1.2 times",
        ratio(16, "cpu").map(|times| (format!("{times:.2} times"), times <= 1.2)),
    ));
    let at_worst = |name| worst([1, 8, 16].map(|at_once| ratio(at_once, name)));
    let latency = || {
        let (p50, p99) = (at_worst("p50")?, at_worst("p99")?);
        let got = format!("at worst {p50:.2} times, {p99:.2} times");
        Ok((got, p50 <= 1.1 && p99 <= 1.1))
    };
    goals.push(goal_of(
        found.name,
        &measure("p50, p99; one, 8 and 16 at once"),
        "≤ 1.1 times",
        latency(),
    ));
}

fn of_decisions(found: &Found<'_>, words: &str, goals: &mut Vec<Goal>) {
    let mut goal = |measure: &str, reach, judged| {
        let measure = format!("host and path, {words}: {measure}");
        goals.push(goal_of(found.name, &measure, reach, judged));
    };
    let run = |protocol, at_once, way: &str| Run::of(&found.row(protocol, at_once)[way]["load"]);
    let http1 = |at_once| run("HTTP/1.1", at_once, "closed");
    goal(
        "HTTP/1.1, one at a time",
        "p50 ≤ 0.3 ms, p99 ≤ 1.0 ms",
        http1(1)
            .map(|Run { p50, p99, .. }| (format!("{p50} ms, {p99} ms"), p50 <= 0.3 && p99 <= 1.0)),
    );
    goal(
        "8 at once",
        "p99 ≤ 5 ms, ≥ 6,500/s",
        http1(8).map(|Run { rate, p99, .. }| {
            let met = p99 <= 5.0 && rate >= 6_500.0;
            (format!("{p99} ms, {rate:.0}/s"), met)
        }),
    );
    goal(
        "16 at once",
        "≥ 7,000/s, p99 ≤ 8 ms",
        http1(16).map(|Run { rate, p99, .. }| {
            let met = p99 <= 8.0 && rate >= 7_000.0;
            (format!("{rate:.0}/s, {p99} ms"), met)
        }),
    );
    let cpu = |at_once| {
        let closed = &found.row("HTTP/1.1", at_once)["closed"];
        figure(&closed["cpu_ms_per_decision"]["webhook_replica_nats"])
    };
    goal(
        "CPU of webhook, replica and NATS under load",
        "≤ 0.13 ms",
        worst([8, 16].map(cpu)).map(|ms| (format!("{ms:.3} ms"), ms <= 0.13)),
    );
    let versus = |of: fn(&Run, &Run) -> f64| {
        let ratio = |at_once| Ok(of(&http1(at_once)?, &run("HTTP/2", at_once, "closed")?));
        worst([1, 8, 16].map(ratio))
    };
    let against = || {
        let rate = versus(|one, two| one.rate / two.rate)?;
        let p50 = versus(|one, two| two.p50 / one.p50)?;
        let slowest = |at_once| {
            let closed = run("HTTP/2", at_once, "closed")?.p999;
            Ok(closed.max(run("HTTP/2", at_once, "open")?.p999))
        };
        let p999 = worst([1, 8, 16].map(slowest))?;
        let got = format!(
            "at worst {rate:.2} times fewer a second, p50 {p50:.2} times, p99.9 of both loops {p999} ms"
        );
        Ok((got, rate <= 1.4 && p50 <= 1.4 && p999 < 40.0))
    };
    goal(
        "HTTP/2 on one connection against HTTP/1.1",
        "≤ 1.4 times, no stalls of 40 ms",
        against(),
    );
}

/// The figures by which a run is judged.
struct Run {
    rate: f64,
    p50: f64,
    p99: f64,
    p999: f64,
}

impl Run {
    fn of(load: &Value) -> Result<Self, Missing> {
        let latency = |name: &str| figure(&load["latency_ms"][name]);
        Ok(Self {
            rate: figure(&load["decisions_per_second"])?,
            p50: latency("p50")?,
            p99: latency("p99")?,
            p999: latency("p999")?,
        })
    }
}

/// The largest of all, where all are there.
fn worst<const N: usize>(figures: [Result<f64, Missing>; N]) -> Result<f64, Missing> {
    let all: Vec<f64> = figures.into_iter().collect::<Result<_, _>>()?;
    all.into_iter().reduce(f64::max).ok_or(Missing::NotMeasured)
}

/// Adds the goals of policies that ask about no other object.
fn of_policies(report: &Value, goals: &mut Vec<Goal>) {
    let found = Found {
        report,
        name: "sixteen",
    };
    let cpu = |at_once| {
        let closed = &found.row("HTTP/1.1", at_once)["closed"];
        figure(&closed["cpu_ms_per_decision"]["webhook"])
    };
    goals.push(goal_of(
        found.name,
        "a decision through 16 usual policies without context, CPU of the webhook",
        "< 1 ms",
        worst([1, 8, 16].map(cpu)).map(|ms| (format!("{ms:.3} ms"), ms < 1.0)),
    ));
    let seconds = figure(&result(report, "compiled")["seconds"]);
    goals.push(goal_of(
        "compiled",
        "300 policies compiled",
        "< 1 s",
        seconds.map(|seconds| (format!("{seconds:.3} s"), seconds < 1.0)),
    ));
}

/// A policy in CEL beside the classic one that says the same: by scenario, words for it, and how many times as much it may
/// take.
const CEL: [(&str, &str, &str, f64); 8] = [
    ("cel-no-context", "no context at all", "≤ 1.1 times", 1.1),
    (
        "cel-hosts",
        "unique host, 3,000 Ingresses",
        "≤ 1.3 times",
        1.3,
    ),
    (
        "cel-hosts-many",
        "unique host, 100,000 Ingresses",
        "≤ 1.3 times",
        1.3,
    ),
    (
        "cel-entry",
        "unique host, 3,000 Ingresses of an entry",
        "≤ 1.3 times",
        1.3,
    ),
    (
        "cel-hosts-half",
        "unique host, half of 3,000 Ingresses without one",
        "≤ 1.5 times",
        1.5,
    ),
    (
        "cel-hosts-half-many",
        "unique host, half of 100,000 Ingresses without one",
        "≤ 1.5 times",
        1.5,
    ),
    (
        "cel-paths",
        "unique path, 3,000 Ingresses",
        "≤ 1.3 times",
        1.3,
    ),
    (
        "cel-paths-many",
        "unique path, 100,000 Ingresses",
        "≤ 1.3 times",
        1.3,
    ),
];

fn of_cel(report: &Value, goals: &mut Vec<Goal>) {
    for (name, words, reach, limit) in CEL {
        let of = result(report, name);
        let ratios = || {
            let p50 = figure(&of["p50_ratio"]["one_at_a_time"])?;
            let p99 = figure(&of["p99_ratio"]["one_at_a_time"])?;
            let fewer = figure(&of["throughput_ratio"])?;
            let got = format!("p50 {p50:.2}, p99 {p99:.2}, {fewer:.2} times fewer a second");
            Ok((got, [p50, p99, fewer].iter().all(|ratio| *ratio <= limit)))
        };
        let measure = format!("in CEL against the classic policy: {words}");
        goals.push(goal_of(name, &measure, reach, ratios()));
    }
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
        let both = || {
            let one = figure(&ratios["one_at_a_time"])?;
            let open = figure(&ratios["open"])?;
            let got = format!("{one:.2} times one at a time, {open:.2} times in the open loop");
            Ok((got, one <= limit && open <= limit))
        };
        goals.push(goal_of(name, measure, reach, both()));
    }
    goals.push(goal_of(
        "attacked",
        "p99 beside four reviews of 20,000 wildcard hosts, and the webhook's memory",
        "≤ 2 times the quiet p99 + 50 ms; ≤ 256 MiB",
        attacked(&result(report, "attacked")["sides"]),
    ));
    let sides = &result(report, "delta")["sides"];
    let cost = |side: usize| figure(&sides[side]["with_indexes"]["cpu_us_per_delta"]);
    let both = || {
        let (few, many) = (cost(0)?, cost(1)?);
        let got = format!("{many:.1} µs ({few:.1} µs over 1,000)");
        Ok((got, many <= 50.0 && many <= few * 1.25))
    };
    goals.push(goal_of(
        "delta",
        "one delta with 10 indexed expressions on the most Ingresses",
        "≤ 50 µs of replica CPU, flat",
        both(),
    ));
}

fn attacked(sides: &Value) -> Judged {
    let p99 = |side: usize, way: &str| figure(&sides[side][way]["load"]["latency_ms"]["p99"]);
    let mut got = Vec::new();
    let mut is_reached = true;
    for way in ["one_at_a_time", "open"] {
        let (quiet, beside) = (p99(0, way)?, p99(1, way)?);
        got.push(format!("{beside:.1} ms ({quiet:.1} ms)"));
        is_reached &= beside <= 2.0 * quiet + 50.0;
    }
    let mib = figure(&sides[1]["webhook_peak_bytes"])? / f64::from(1 << 20);
    got.push(format!("{mib:.0} MiB"));
    Ok((got.join(", "), is_reached && mib <= 256.0))
}

fn of_size(report: &Value, goals: &mut Vec<Goal>) {
    let small = &result(report, "size-7000")["memory"];
    goals.push(goal_of(
        "size-7000",
        "7,000 objects of 2 KB, replica",
        "RSS ≤ 35 MB",
        rss(small, &["replica"]).map(|bytes| at_most(bytes, 35.0)),
    ));
    let pods = result(report, "size-pods");
    let (whole, referenced) = (
        &pods["memory"],
        &result(report, "size-pods-referenced")["memory"],
    );
    of_pods("size-pods", "Pods of 5.2 KB JSON", pods, whole, goals);
    goals.push(goal_of(
        "size-pods-referenced",
        "the same with `retain: Referenced` for a label policy, replica",
        "≤ 60 MB",
        rss(referenced, &["replica"]).map(|bytes| at_most(bytes, 60.0)),
    ));
    goals.push(goal_of(
        "start",
        "Pods of 3.7 KB MessagePack: replica's start; peak; settled",
        "≤ 4 s; ≤ 1.2 times settled; ≤ 1.15 times the bytes",
        of_start(report),
    ));
    let real = result(report, "real-pods");
    for (entry, words) in [
        ("whole", "entry on 40,000 Pods created"),
        ("referenced", "the same with `retain: Referenced`"),
    ] {
        let usable = figure(&real[entry]["usable_s"]);
        goals.push(goal_of(
            "real-pods",
            &format!("{words}, to usable at a replica, real API server"),
            "≤ 6 s",
            usable.map(|seconds| (format!("{seconds:.2} s"), seconds <= 6.0)),
        ));
    }
    let (whole, referenced) = (&real["whole"]["memory"], &real["referenced"]["memory"]);
    of_pods("real-pods", "Pods of a real API server", real, whole, goals);
    goals.push(goal_of(
        "real-pods",
        "Pods of a real API server with `retain: Referenced` for a label policy, replica",
        "≤ 60 MB",
        rss(referenced, &["replica"]).map(|bytes| at_most(bytes, 60.0)),
    ));
}

/// Adds the goals of holding whole Pods.
fn of_pods(
    scenario: &'static str,
    words: &str,
    result: &Value,
    memory: &Value,
    goals: &mut Vec<Goal>,
) {
    let against = || {
        let packed = figure(&result["objects"]["packed_bytes"])?;
        let rss = rss(memory, &["replica"])?;
        let (times, of) = (rss / packed, (rss / MB, packed / MB));
        let got = format!("{times:.2} times ({:.0} of {:.0} MB)", of.0, of.1);
        Ok((got, rss <= 1.15 * packed))
    };
    let measure = format!("{words}, replica against their MessagePack bytes");
    goals.push(goal_of(scenario, &measure, "≤ 1.15 times", against()));
    let together = rss(memory, &["watcher", "replica", "webhook"]);
    goals.push(goal_of(
        scenario,
        "the same, watcher, replica and webhook together",
        "≤ 400 MB",
        together.map(|bytes| at_most(bytes, 400.0)),
    ));
}

/// Resident bytes of these processes together.
fn rss(memory: &Value, of: &[&str]) -> Result<f64, Missing> {
    of.iter()
        .map(|process| figure(&memory[*process]["rss_bytes"]))
        .sum()
}

fn at_most(bytes: f64, limit_mb: f64) -> (String, bool) {
    (format!("{:.1} MB", bytes / MB), bytes <= limit_mb * MB)
}

/// The worst of all starts.
fn of_start(report: &Value) -> Judged {
    let started = result(report, "start");
    let packed = figure(&started["objects"]["packed_bytes"])?;
    let count = figure(&started["objects"]["count"])?;
    let starts = started["starts"].as_array().ok_or(Missing::NotMeasured)?;
    let most = |of: fn(&Value) -> &Value| {
        let all: Vec<f64> = starts
            .iter()
            .map(|start| figure(of(start)))
            .collect::<Result<_, _>>()?;
        all.into_iter().reduce(f64::max).ok_or(Missing::NotMeasured)
    };
    let seconds = most(|start| &start["synced_s"])?;
    let peak = most(|start| &start["memory"]["rss_most_bytes"])?;
    let settled = most(|start| &start["memory"]["rss_bytes"])?;
    let (over, of_bytes) = (peak / settled, settled / packed);
    let got = format!("{count}: {seconds:.2} s; {over:.2} times; {of_bytes:.2} times");
    Ok((got, seconds <= 4.0 && over <= 1.2 && of_bytes <= 1.15))
}

fn goal_of(scenario: &'static str, measure: &str, reach: &'static str, judged: Judged) -> Goal {
    let (got, met) = match judged {
        Ok((got, met)) => (got, Some(met)),
        Err(Missing::NotMeasured) => ("not measured".to_owned(), None),
        Err(Missing::NotMeasurable) => ("not measurable: 0 or less came out".to_owned(), None),
    };
    Goal {
        measure: measure.to_owned(),
        reach,
        got,
        met,
        scenario,
    }
}

#[cfg(test)]
mod tests;
