//! The costs of the processes: CPU time, allocations and memory.

use std::{collections::BTreeMap, fs, time::Instant};

use anteroom_e2e::process::{Process, cpu_ms_of, cpu_ms_of_all};
use anyhow::Context;
use serde_json::{Value, json};

use crate::ground::Ground;

/// CPU time so far in milliseconds.
pub(crate) struct Cpu {
    by_process: BTreeMap<String, f64>,
    /// The CPU time of the whole machine, less all of these and this process.
    others: f64,
    at: Instant,
}

/// The processes whose CPU time is a decision's own.
const OF_A_DECISION: [&str; 3] = ["webhook", "replica", "nats"];

/// CPU time so far of all that runs; several replicas are counted together.
pub(crate) fn cpu(ground: &Ground) -> anyhow::Result<Cpu> {
    let processes = ground.processes().into_iter();
    cpu_of(processes.map(|(name, process)| (name, process.id())))
}

/// Returns the CPU time of the processes so far, added up by name.
pub(crate) fn cpu_of<'a>(processes: impl Iterator<Item = (&'a str, u32)>) -> anyhow::Result<Cpu> {
    let mut by_process: BTreeMap<String, f64> = BTreeMap::new();
    for (name, id) in processes {
        let ms = cpu_ms_of(id).with_context(|| format!("{name}, process {id}"))?;
        *by_process.entry(name.to_owned()).or_default() += ms;
    }
    let counted = by_process.values().sum::<f64>() + cpu_ms_of(std::process::id())?;
    Ok(Cpu {
        by_process,
        others: cpu_ms_of_all()? - counted,
        at: Instant::now(),
    })
}

/// Returns the CPU time between two looks, for each of `count`, and what of it is a decision's own. What
/// others took of the machine meanwhile stands beside it, in cores: much of it makes latencies worthless.
pub(crate) fn cpu_each(before: &Cpu, after: &Cpu, count: u64) -> Value {
    let own = |name: &str| OF_A_DECISION.contains(&name);
    each(before, after, count, "webhook_replica_nats", own)
}

/// The same of processes that are all a decision's own: what they took together is `together`.
pub(crate) fn cpu_each_of_all(before: &Cpu, after: &Cpu, count: u64) -> Value {
    each(before, after, count, "together", |_| true)
}

fn each(before: &Cpu, after: &Cpu, count: u64, sum: &str, of: fn(&str) -> bool) -> Value {
    let count = count.max(1) as f64;
    let each = after.by_process.iter().map(|(name, ms)| {
        let before = before.by_process.get(name).copied();
        (&**name, (ms - before.unwrap_or_default()) / count)
    });
    let mut each: BTreeMap<&str, f64> = each.collect();
    let own = each.iter().filter(|(name, _)| of(name));
    let own = own.map(|(_, ms)| ms).sum();
    each.insert(sum, own);
    let seconds = (after.at - before.at).as_secs_f64();
    let others = (after.others - before.others) / 1e3 / seconds;
    each.insert("others_cores", others.max(0.0));
    let rounded = each
        .into_iter()
        .map(|(name, ms)| (name, (ms * 1e5).round() / 1e5));
    json!(rounded.collect::<BTreeMap<_, _>>())
}

/// The allocations of a process since its start: how many, and their bytes.
type Allocated = BTreeMap<&'static str, [f64; 2]>;

/// Reads the services' own counts; several replicas are counted together.
pub(crate) async fn allocated(ground: &Ground) -> anyhow::Result<Allocated> {
    let system = &ground.system;
    let replicas = system.replicas.iter().flatten().map(|of| ("replica", of));
    let mut allocated = Allocated::new();
    for (name, running) in replicas.chain([("webhook", &system.webhook)]) {
        let of: &mut [f64; 2] = allocated.entry(name).or_default();
        for (sum, counter) in of.iter_mut().zip(["allocations", "bytes"]) {
            let counter = format!("anteroom_allocator_{counter}_total");
            *sum += running.metric(&counter, &[]).await?;
        }
    }
    Ok(allocated)
}

/// Returns the allocations between two looks, for each of `count`; the looks themselves are in it. Null where
/// a process does not count.
pub(crate) fn allocated_each(before: &Allocated, after: &Allocated, count: u64) -> Value {
    let each = after.iter().map(|(name, [times, bytes])| {
        let before = before.get(name).copied().unwrap_or_default();
        let each = |now: f64, before: f64| {
            let each = (now - before) / count.max(1) as f64;
            (now > before).then_some((each * 10.0).round() / 10.0)
        };
        let of = json!({ "count": each(*times, before[0]), "bytes": each(*bytes, before[1]) });
        ((*name).to_owned(), of)
    });
    each.collect::<serde_json::Map<_, _>>().into()
}

/// Memory of every process in bytes, as the kernel counts it.
pub(crate) fn memory(ground: &Ground) -> anyhow::Result<Value> {
    memory_of_all(ground.processes())
}

/// The same of these processes. A name that was there before gets a number.
pub(crate) fn memory_of_all(processes: Vec<(&str, &Process)>) -> anyhow::Result<Value> {
    let mut memory = serde_json::Map::new();
    for (at, (name, process)) in processes.into_iter().enumerate() {
        let name = match memory.contains_key(name) {
            true => format!("{name}-{at}"),
            false => name.to_owned(),
        };
        memory.insert(name, memory_of(process)?);
    }
    Ok(Value::Object(memory))
}

/// Returns the resident memory, the proportional share of shared memory, and the peak of a process.
pub(crate) fn memory_of(process: &Process) -> anyhow::Result<Value> {
    memory_of_id(process.id())
}

/// Returns the memory figures of the process with this id.
pub(crate) fn memory_of_id(id: u32) -> anyhow::Result<Value> {
    let field = |file: &str, name: &str| -> anyhow::Result<u64> {
        let path = format!("/proc/{id}/{file}");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let kib = text.lines().find_map(|line| {
            line.strip_prefix(name)?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        Ok(kib.with_context(|| format!("no {name} in {path}"))? * 1024)
    };
    Ok(json!({
        "rss_bytes": field("smaps_rollup", "Rss:")?,
        "pss_bytes": field("smaps_rollup", "Pss:")?,
        "rss_most_bytes": field("status", "VmHWM:")?,
    }))
}
