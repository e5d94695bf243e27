//! The machine that it was measured on.

use std::{fs, process::Command};

use anteroom_e2e::process::real_part;
use serde_json::{Value, json};

/// Cores, memory, kernel, and the versions of what runs.
pub(crate) fn describe() -> anyhow::Result<Value> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = || {
        cpu.lines()
            .filter_map(|line| line.strip_prefix("model name"))
    };
    let model = models()
        .next()
        .unwrap_or_default()
        .trim_start_matches([' ', '\t', ':']);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib = memory.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let nats = Command::new(real_part("nats-server")?)
        .arg("--version")
        .output()?;
    Ok(json!({
        "cores": std::thread::available_parallelism()?.get(),
        "cpu": model,
        "memory_mib": memory_kib.unwrap_or_default() / 1024,
        "kernel": kernel.trim(),
        "nats_server": String::from_utf8_lossy(&nats.stdout).trim(),
        "anteroom": env!("CARGO_PKG_VERSION"),
        "measured": anteroom_runtime::wall_clock::now().strftime("%Y-%m-%d").to_string(),
    }))
}
