//! The official compliance suite (jmespath/jmespath.test), read from beside the workspace: its
//! licence keeps it out of the project. `cases.rs` holds cases of ours.

use std::fs;
use std::path::{Path, PathBuf};

use anteroom_jmespath::{Environment, EvalError, Expression, ParseErrorKind};
use serde::Deserialize;
use serde_json::Value;

use crate::support::same;

#[derive(Deserialize)]
struct Suite {
    given: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    expression: String,
    #[serde(default)]
    result: Value,
    error: Option<String>,
    bench: Option<String>,
}

#[test]
fn the_compliance_suite_passes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/jmespath");
    let Ok(listing) = fs::read_dir(&directory) else {
        let required = std::env::var_os("ANTEROOM_CORPUS_REQUIRED").is_some();
        assert!(!required, "no compliance suite at {}", directory.display());
        println!(
            "SKIPPED: no compliance suite at {}; no case was run",
            directory.display()
        );
        return;
    };
    let mut files: Vec<PathBuf> = listing.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let (mut run, mut failures) = (0, Vec::new());
    for file in &files {
        let suites: Vec<Suite> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for suite in &suites {
            for case in &suite.cases {
                run += 1;
                if let Err(failure) = check(&suite.given, case) {
                    let file = file.file_name().unwrap_or_default().display();
                    failures.push(format!("{file}: {}: {failure}", case.expression));
                }
            }
        }
    }
    println!("{run} compliance cases run, {} failed", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(run > 0, "{} holds no case", directory.display());
}

fn check(given: &Value, case: &Case) -> Result<(), String> {
    let outcome = evaluate(&case.expression, given);
    match (&case.error, &case.bench, outcome) {
        (Some(expected), _, Err(error)) if *expected == error => Ok(()),
        (Some(expected), _, outcome) => {
            Err(format!("expected the error {expected}, got {outcome:?}"))
        }
        // A benchmark only has to run: most benchmarks ask for absent fields.
        (None, Some(_), outcome) => outcome.map(drop),
        (None, None, Ok(result)) if same(&result, &case.result) => Ok(()),
        (None, None, outcome) => Err(format!("expected {}, got {outcome:?}", case.result)),
    }
}

/// The value, or the suite's name for the error.
fn evaluate(text: &str, given: &Value) -> Result<Value, String> {
    let expression = Expression::parse(text).map_err(|error| match error.kind {
        ParseErrorKind::InvalidValue => "invalid-value".to_owned(),
        _ => "syntax".to_owned(),
    })?;
    expression
        .evaluate_json(given, &Environment::default())
        .map_err(|error| match error {
            EvalError::InvalidType { .. } => "invalid-type".to_owned(),
            EvalError::InvalidArity { .. } => "invalid-arity".to_owned(),
            EvalError::InvalidValue { .. } => "invalid-value".to_owned(),
            EvalError::UnknownFunction { .. } => "unknown-function".to_owned(),
            other => other.to_string(),
        })
}
