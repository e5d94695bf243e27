//! The cost of compiling many policies.

use std::time::Instant;

use anteroom_e2e::manifests;
use anteroom_policy::compile;
use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use crate::say;

/// Compiles `count` policies, variations of those in `text`, one after the other, as a webhook that starts
/// does; a few times, of which the median is taken.
pub(crate) fn run(text: &str, count: usize) -> anyhow::Result<Value> {
    const TURNS: usize = 5;
    let own = manifests::parse(text)?;
    let mut turns = Vec::new();
    for turn in 0..TURNS {
        let all: Vec<Value> = (0..count)
            .map(|n| varied(&own[n % own.len()], turn * count + n))
            .collect::<Result<_, _>>()?;
        let begun = Instant::now();
        let mut rules = 0;
        for manifest in &all {
            let policy = compile(manifest).map_err(|problems| anyhow!("{problems:?}"))?;
            rules += policy.rules().len();
        }
        turns.push((begun.elapsed().as_secs_f64(), rules));
    }
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (seconds, rules) = turns[TURNS / 2];
    say(&format!("{count} policies, {rules} rules: {seconds:.4} s"));
    Ok(json!({ "policies": count, "rules": rules, "seconds": seconds }))
}

/// Under another name, with derived rules, and with texts of its own, so that nothing is compiled twice.
fn varied(manifest: &Value, n: usize) -> anyhow::Result<Value> {
    let text = manifest.to_string();
    let text = text.replace("element.", &format!("element.x{n}.y || element."));
    let mut manifest: Value = serde_json::from_str(&text)?;
    let name = manifest["metadata"]["name"].as_str().context("a name")?;
    manifest["metadata"] = json!({ "name": format!("{name}-{n}"), "uid": n.to_string() });
    Ok(manifest)
}
