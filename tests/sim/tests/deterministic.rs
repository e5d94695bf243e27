//! A seed says all of a schedule.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests")]

use std::process::Command;

/// Runs the simulation with these arguments, and returns its lines.
fn lines(args: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anteroom-sim"));
    let output = command.args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_schedule_is_the_same_in_another_process_and_alone() {
    let batch = ["batch", "7", "25"];
    let first = lines(&batch);
    assert_eq!(first.len(), 25);
    assert_eq!(first, lines(&batch));
    for at in [0, 11, 24] {
        let seed = (7 * 50 + at).to_string();
        let alone = lines(&["seed", &seed]);
        assert_eq!(alone, [first[at].clone()]);
    }
}

/// What users do is seen by the owners of hosts, which a restore of the API server changes too.
#[test]
fn a_schedule_without_its_faults_does_the_same_work() {
    let count = |trace: &[String], what: &str| {
        let lines = trace.iter().filter(|line| line.contains(what));
        lines.count()
    };
    let traces = (350..400).map(|seed: u64| {
        let seed = seed.to_string();
        let trace = lines(&["seed", &seed, "--trace"]);
        (seed, trace)
    });
    let mut with_faults =
        traces.filter(|(_, trace)| count(trace, "fault ") > 0 && count(trace, "Restore") == 0);
    let (seed, whole) = with_faults.next().unwrap();
    let none = lines(&["seed", &seed, "--trace", "--faults"]);
    assert_eq!(count(&whole, " owners "), count(&none, " owners "));
    assert_eq!(count(&none, "fault "), 0);
}
