//! Published policies in two languages, held against each other.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anteroom_offline::{
    Bench, Comparison, EqualError, Search, Side, Suite, equal, manifests, suites, take_suite,
};
use anteroom_policy::{Arrival, Operation};

/// The corpus; `None`, said aloud, if it is absent.
fn corpus() -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    for name in ["kyverno-policies", "kyverno-policies-cel"] {
        let folder = corpus.join(name);
        if !folder.is_dir() {
            let required = std::env::var_os("ANTEROOM_CORPUS_REQUIRED").is_some();
            assert!(!required, "there is no {}", folder.display());
            println!("skipped: there is no {}", folder.display());
            return None;
        }
    }
    Some(corpus)
}

/// The folders of policies, by their own names.
fn policies(folder: &Path, found: &mut BTreeMap<String, Vec<PathBuf>>) {
    let mut inside: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inside.sort();
    for path in inside {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with('.') || !path.is_dir() {
            continue;
        }
        if fs::read_dir(&path)
            .unwrap()
            .any(|entry| entry.unwrap().path().is_file())
        {
            found.entry(name).or_default().push(path.clone());
        }
        policies(&path, found);
    }
}

fn compared(old: &Path, new: &Path, search: &Search) -> Result<Comparison, EqualError> {
    let side = |path: &Path| Side::new(manifests(path).unwrap(), &path.display().to_string());
    let mut bench = Bench::default();
    bench.arrival = Some(Arrival {
        now_ns: 1_700_000_000_000_000_000,
        seed: 7,
    });
    for path in [old, new] {
        for file in suites(path, "kyverno-test.yaml").unwrap() {
            for suite in Suite::read(&file).unwrap() {
                take_suite(&mut bench, &suite).unwrap();
            }
        }
    }
    equal(bench, [side(old)?, side(new)?], search, &|| false)
}

/// Pairs of the same name, where both folders are whole.
const PAIRS: usize = 71;

#[test]
fn published_pairs_are_compared_and_their_differences_are_known() {
    let Some(corpus) = corpus() else {
        return;
    };
    let (mut classic, mut cel) = (BTreeMap::new(), BTreeMap::new());
    policies(&corpus.join("kyverno-policies"), &mut classic);
    policies(&corpus.join("kyverno-policies-cel"), &mut cel);
    let search = Search {
        requests_max: std::env::var("REQUESTS").map_or(300, |text| text.parse().unwrap()),
        operations: vec![Operation::Create],
        valid_only: true,
        ..Search::default()
    };
    let mut pairs = 0;
    for (name, olds) in &classic {
        for new in cel.get(name).into_iter().flatten() {
            for old in olds {
                pairs += 1;
                let of = new.parent().unwrap().file_name().unwrap().to_str().unwrap();
                match compared(old, new, &search) {
                    Err(error) => println!("## {name} ({of}): {error}"),
                    Ok(found) => {
                        let kinds: BTreeSet<_> = found
                            .differences
                            .iter()
                            .map(|one| format!("{:?}", one.kind))
                            .collect();
                        println!(
                            "## {name} ({of}): {} requests, {} different: {kinds:?}",
                            found.requests, found.different
                        );
                        for one in &found.differences {
                            println!("  - {:?} {} requests", one.kind, one.requests);
                            for example in one.examples.iter().take(2) {
                                println!(
                                    "      {} {:?} {} <- {:?}",
                                    example.operation,
                                    example.user,
                                    example.object,
                                    example.changes
                                );
                                for (side, outcome) in
                                    [("old", &example.old), ("new", &example.new)]
                                {
                                    println!(
                                        "        {side}: {:?} {:?}",
                                        outcome.decision, outcome.reported
                                    );
                                    for rule in &outcome.rules {
                                        println!(
                                            "          {} {} {}",
                                            rule.rule,
                                            rule.status,
                                            rule.message
                                                .chars()
                                                .take(160)
                                                .collect::<String>()
                                                .replace('\n', " ")
                                        );
                                    }
                                    if let Some(patched) = &outcome.patched {
                                        println!("          => {patched}");
                                    }
                                }
                            }
                        }
                        for (side, rules) in [("old", &found.old), ("new", &found.new)] {
                            for rule in rules {
                                if let Some(gap) = rule.gap() {
                                    println!("  gap {side} {}: {gap}", rule.rule);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(pairs, PAIRS);
}
