//! The published Kyverno policies: each compiles, or its problems name the fields that cannot.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod published;

use std::collections::BTreeMap;

use anteroom_policy::{Driver, Problem, compile, compile_for};

use published::{folder, policies};

/// The field that a problem is about, without its place: `validate.pattern`.
fn field(problem: &Problem) -> String {
    let names: Vec<&str> = problem
        .path
        .split('.')
        .map(|name| name.split('[').next().unwrap_or_default())
        .collect();
    names[names.len().saturating_sub(2)..].join(".")
}

#[test]
fn every_policy_compiles_or_says_why_not() {
    let Some(folder) = folder() else {
        return;
    };
    let policies = policies(&folder);
    assert!(
        policies.len() > 50,
        "only {} policies were found",
        policies.len()
    );
    let (mut compiled, mut fields) = (0, BTreeMap::<String, usize>::new());
    for (path, manifest) in &policies {
        match compile(manifest) {
            Ok(_) => compiled += 1,
            Err(problems) => {
                assert!(!problems.is_empty(), "{}", path.display());
                for problem in &problems {
                    assert!(
                        !problem.path.is_empty() && !problem.message.is_empty(),
                        "{problem}"
                    );
                    if problem.code.as_str() == "AR302" {
                        println!(
                            "{}: {problem}",
                            path.strip_prefix(&folder).unwrap().display()
                        );
                    }
                }
                let mut named: Vec<_> = problems.iter().map(field).collect();
                named.sort();
                named.dedup();
                named
                    .into_iter()
                    .for_each(|name| *fields.entry(name).or_default() += 1);
            }
        }
    }
    println!("{} policies, {compiled} compiled", policies.len());
    for (field, count) in fields {
        println!("{count:5} {field}");
    }
}

/// The reasons for which a policy with `context` may not compile: rules that are
/// not run, and the objects that exist already.
const NOT_RUN: &[&str] = &["generate", "verifyImages", "targets", "mutateExisting"];

/// Published files that are no policies: Kyverno's own schema refuses them too.
const MALFORMED: &[&str] = &["schedule-based-quotas"];

/// The number of policies with `context` that compile, if the folder is whole.
const COMPILED_MIN: usize = 31;

/// Each compiles as it is published.
#[test]
fn published_policies_with_context_compile_unchanged() {
    let Some(folder) = folder() else {
        return;
    };
    let mut compiled = 0;
    for (path, manifest) in policies(&folder) {
        let rules = manifest["spec"]["rules"].to_string();
        let path = path.strip_prefix(&folder).unwrap().display().to_string();
        let is_ours = rules.contains("\"context\":") || path.contains("inspect-csr");
        let is_malformed = MALFORMED.iter().any(|name| path.contains(name));
        if !is_ours || is_malformed || path.contains("/.") {
            continue;
        }
        match compile_for(&manifest, Driver::ALL) {
            Ok(_) => compiled += 1,
            Err(problems) => {
                let is_known = |problem: &Problem| {
                    let mut known = NOT_RUN.iter();
                    known.any(|known| problem.path.contains(known))
                };
                assert!(problems.iter().all(is_known), "{path}: {problems:#?}");
                println!("{path}: {problems:?}");
            }
        }
    }
    println!("{compiled} compiled");
    assert!(compiled >= COMPILED_MIN, "{compiled}");
}
