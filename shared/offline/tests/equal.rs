//! Published policies in two languages, held against each other.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anteroom_offline::{
    Comparison, EqualError, LoadedPolicies, Scenario, Search, Suite, equal, manifests, suites,
    take_suite,
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
    let side =
        |path: &Path| LoadedPolicies::new(manifests(path).unwrap(), &path.display().to_string());
    let mut scenario = Scenario::default();
    scenario.arrival = Some(Arrival {
        now_ns: 1_700_000_000_000_000_000,
        seed: 7,
    });
    for path in [old, new] {
        for file in suites(path, "kyverno-test.yaml").unwrap() {
            for suite in Suite::read(&file).unwrap() {
                take_suite(&mut scenario, &suite).unwrap();
            }
        }
    }
    equal(scenario, [side(old)?, side(new)?], search, &|| false)
}

/// Pairs of the same name, where both folders are whole.
const PAIRS: usize = 68;

/// Pairs that cannot be compared, and why: rules that change what exists are not run without targets, and a suite has
/// a subresource that nothing is made from.
const NOT_COMPARED: &[(&str, &str)] = &[
    ("add-privileged-existing-namespaces (psa-mpol)", "AR301"),
    (
        "block-pod-exec-by-pod-name (other-vpol)",
        "no object to begin at",
    ),
    ("label-nodes-cri (other-mpol)", "AR301"),
];

/// Pairs that decide alike, as far as this search can tell. One that is found different is either a fault of ours, or
/// was not searched well enough before.
const ALIKE: &[&str] = &[
    "add-karpenter-daemonset-priority-class (karpenter-mpol)",
    "add-karpenter-donot-evict (karpenter-mpol)",
    "add-labels (other-mpol)",
    "add-psa-labels (psa-mpol)",
    "check-deprecated-apis (best-practices-cel)",
    "limit-containers-per-pod (other-vpol)",
    "limit-hostpath-type-pv (other-cel)",
    "prevent-linkerd-pod-injection-override (linkerd-cel)",
    "require-deployments-have-multiple-replicas (other-cel)",
    "require-labels (best-practices-cel)",
    "require-tekton-bundle (tekton-cel)",
    "restrict-sa-automount-sa-token (other-cel)",
    "restrict-sa-automount-sa-token (other-vpol)",
];

/// Differences that are the policies' own: each was looked at.
const DIFFERENT: &[(&str, &str)] = &[
    // The one is exempt in `istio-system`.
    ("add-ambient-mode-namespace (istio-mpol)", "Match"),
    // The annotation that keeps the classic rule to Pods means nothing to the other kind.
    ("add-runtimeClassName (psp-migration-mpol)", "Autogen"),
    // A strategic merge replaces the options of DNS; the JSON patch adds to them.
    ("add-ndots (other-mpol)", "Mutation"),
    // `tolerations` without a key.
    ("add-tolerations (other-mpol)", "Error"),
    // A path that only begins with the socket's.
    ("disallow-cri-sock-mount (best-practices-cel)", "Judgement"),
    // Containers that the expressions do not look at.
    ("disallow-latest-tag (best-practices-cel)", "Judgement"),
    ("disallow-latest-tag (best-practices-vpol)", "Judgement"),
    ("forbid-cpu-limits (other-cel)", "Action"),
    // It always writes a list of init containers.
    ("prepend-image-registry (other-mpol)", "Mutation"),
    ("require-annotations (other-vpol)", "Autogen"),
    // Fields that expressions take for granted.
    ("ingress-host-match-tls (other-vpol)", "Error"),
    (
        "require-deployments-have-multiple-replicas (other-vpol)",
        "Error",
    ),
    ("restrict-binding-system-groups (other-vpol)", "Error"),
    ("restrict-loadbalancer (other-vpol)", "Error"),
    ("restrict-wildcard-verbs (other-vpol)", "Error"),
    // A toleration without a key may be for any.
    ("restrict-controlplane-scheduling (other-cel)", "Judgement"),
    // The host of another organisation's repository.
    ("verify-git-repositories (flux-cel)", "Judgement"),
];

/// Compares a pair: the kinds of its differences, or why it is not compared.
fn told(old: &Path, new: &Path) -> Result<BTreeSet<String>, String> {
    let search = Search {
        requests_max: 300,
        operations: vec![Operation::Create],
        valid_only: true,
        ..Search::default()
    };
    let found = compared(old, new, &search).map_err(|error| error.to_string())?;
    assert!(found.requests > 0, "{}", new.display());
    for difference in &found.differences {
        assert!(!difference.examples.is_empty(), "{}", new.display());
        for example in &difference.examples {
            let (old, new) = (&example.old, &example.new);
            let is_same = old.decision == new.decision
                && old.reported == new.reported
                && old.patched == new.patched;
            assert!(!is_same, "{}", example.object);
        }
    }
    let kinds = found
        .differences
        .iter()
        .map(|one| format!("{:?}", one.kind));
    Ok(kinds.collect())
}

#[test]
fn published_pairs_are_compared_and_their_differences_are_known() {
    let Some(corpus) = corpus() else {
        return;
    };
    let (mut classic, mut cel) = (BTreeMap::new(), BTreeMap::new());
    policies(&corpus.join("kyverno-policies"), &mut classic);
    policies(&corpus.join("kyverno-policies-cel"), &mut cel);
    let mut results = BTreeMap::new();
    for (name, olds) in &classic {
        for (old, new) in olds.iter().flat_map(|old| {
            cel.get(name)
                .into_iter()
                .flatten()
                .map(move |new| (old, new))
        }) {
            let group = new.parent().unwrap().file_name().unwrap();
            let pair = format!("{name} ({})", group.to_str().unwrap());
            let result = told(old, new);
            println!("{pair}: {result:?}");
            results.insert(pair, result);
        }
    }
    assert_eq!(results.len(), PAIRS);
    let wrong = results.iter().filter(|(pair, result)| match result {
        Err(error) => !NOT_COMPARED
            .iter()
            .any(|(name, says)| *name == **pair && error.contains(says)),
        Ok(kinds) => {
            let mut known = DIFFERENT.iter().filter(|(name, _)| *name == **pair);
            let is_alike = ALIKE.contains(&&***pair);
            (is_alike && !kinds.is_empty()) || !known.all(|(_, kind)| kinds.contains(*kind))
        }
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
