use anteroom_model::{ErrorCode, ViewId};
use tokio::time::Instant;

use super::*;

fn record(state: EntryState) -> EntryRecord {
    EntryRecord {
        kind: anteroom_model::EntryKind::Cached,
        projections: Vec::new(),
        name: "a".into(),
        uid: "u".into(),
        generation: 4,
        state,
    }
}

fn bound() -> EntryRecord {
    record(EntryState::Bound(anteroom_model::Binding::whole(
        ViewId::new("pods.v1"),
    )))
}

fn stats(
    reported_state: Option<ViewState>,
    trouble: Option<Failure>,
    news_age_ms: u64,
) -> ViewStats {
    ViewStats {
        view: ViewId::new("pods.v1"),
        reported_state,
        trouble,
        objects: 1,
        refused_bytes: 0,
        bytes: 1,
        pending: 0,
        skipped: 0,
        heard: Some(Instant::now()),
        news_age_ms,
    }
}

fn said(record: &EntryRecord, stats: Option<&ViewStats>) -> (&'static str, String) {
    let ready = of_entry(record, stats, Holders::default());
    assert_eq!(ready.generation, 4);
    (ready.status, ready.reason)
}

#[test]
fn an_entry_is_ready_once_its_view_was_published_as_synced() {
    let failure = Failure::new("Forbidden", "no");
    let trouble = Failure::new("Unreachable", "refused");
    let failed = ViewState::Failed {
        failure: failure.clone(),
    };
    for (told, trouble, age, expected) in [
        (None, None, u64::MAX, ("Unknown", "Syncing")),
        (
            Some(ViewState::Syncing),
            None,
            u64::MAX,
            ("Unknown", "Syncing"),
        ),
        (
            Some(ViewState::Syncing),
            Some(trouble.clone()),
            u64::MAX,
            ("False", "Unreachable"),
        ),
        (Some(ViewState::Synced), None, 0, ("True", "Synced")),
        (
            Some(ViewState::Synced),
            Some(trouble.clone()),
            1_000,
            ("True", "Synced"),
        ),
        (
            Some(ViewState::Synced),
            Some(trouble),
            AGE_MAX_DEFAULT_MS + 1,
            ("False", "Stale"),
        ),
        (Some(failed), None, 0, ("False", "Forbidden")),
    ] {
        let stats = stats(told, trouble, age);
        let (status, reason) = said(&bound(), Some(&stats));
        assert_eq!((status, reason.as_str()), expected);
    }
    assert_eq!(said(&bound(), None).0, "Unknown");
    assert_eq!(
        said(&record(EntryState::Invalid { failure }), None).0,
        "False"
    );
}

#[test]
fn the_time_of_transition_moves_with_the_status_only() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let ready = |status, reason| Ready::new(status, Failure::new(reason, "m"), 1);
    let mut other = ready("True", "Other").put_into(&[], at(1));
    other[0].type_ = "Other".into();

    let first = ready("False", "A").put_into(&other, at(10));
    assert_eq!(first.len(), 2, "what others say stays");
    let second = ready("False", "B").put_into(&first, at(20));
    assert_eq!(find(&second).unwrap().last_transition_time, Time(at(10)));
    let third = ready("True", "B").put_into(&second, at(30));
    assert_eq!(find(&third).unwrap().last_transition_time, Time(at(30)));
    assert!(ready("True", "B").is_said_by(find(&third).unwrap()));
    assert!(!ready("True", "C").is_said_by(find(&third).unwrap()));
}

/// The test has entries of Kyverno's own kind too.
#[test]
fn a_policy_is_ready_when_it_compiles_and_its_entries_are() {
    let problem = Problem {
        code: ErrorCode::POLICY_UNSUPPORTED,
        path: "spec.rules[0].mutate".into(),
        message: "not evaluated".into(),
    };
    let entry = |status| Some(Ready::new(status, Failure::new("X", "why"), 1));
    let need = |kind, ready| {
        let name = "hosts".to_owned();
        vec![Need {
            kind,
            name,
            ready,
            refused: false,
        }]
    };
    let refused = |kind| {
        let mut needs = need(kind, entry("False"));
        needs[0].refused = true;
        needs
    };
    let named = |ready| need(EntryKind::Cached, ready);
    let declared = |ready| need(EntryKind::Implicit, ready);
    let global = |ready| need(EntryKind::Global, ready);
    for (problems, entries, status, reason, says) in [
        (vec![], vec![], "True", "Succeeded", "served"),
        (vec![], named(entry("True")), "True", "Succeeded", "served"),
        (
            vec![],
            named(entry("Unknown")),
            "False",
            "EntryNotReady",
            "`hosts` is not ready: X: why",
        ),
        (vec![], named(None), "False", "EntryNotFound", "`hosts`"),
        (
            vec![],
            declared(None),
            "False",
            "ReferenceNotSynced",
            "`hosts`",
        ),
        (
            vec![],
            declared(entry("False")),
            "False",
            "ReferenceNotSynced",
            "X: why",
        ),
        // GlobalContextEntries: `gctxentry-not-exist` and `apicall-failed`.
        (vec![], global(None), "True", "Succeeded", "served"),
        (
            vec![],
            global(entry("False")),
            "True",
            "Succeeded",
            "served",
        ),
        // Which the policy may not read at all.
        (
            vec![],
            refused(EntryKind::Global),
            "False",
            "EntryNotReady",
            "X: why",
        ),
        (
            vec![problem],
            named(None),
            "False",
            "Unsupported",
            "spec.rules[0].mutate",
        ),
    ] {
        let ready = of_policy(1, &problems, &entries, "");
        assert_eq!((ready.status, ready.reason.as_str()), (status, reason));
        assert!(ready.message.contains(says), "{ready:?}");
    }
}

#[test]
fn an_entry_that_no_replica_holds_any_more_says_so() {
    let stats = stats(Some(ViewState::Synced), None, 0);
    let holders = |evicted| Holders {
        total: 2,
        serving: 2 - evicted,
        evicted,
    };
    let said = |evicted| of_entry(&bound(), Some(&stats), holders(evicted));
    assert_eq!(said(1).reason, "Synced");
    assert_eq!(
        (said(2).status, said(2).reason.as_str()),
        ("False", "Evicted")
    );
}

/// `onForbidden: Stop` holds over a change of the coordinator.
#[test]
fn a_generation_that_was_given_up_is_read_from_its_condition() {
    let at = Timestamp::from_second(1).unwrap();
    let said = |reason: &str| {
        let failure = Failure::new(reason, "no");
        Ready::new("False", failure, 3).put_into(&[], at)
    };
    assert_eq!(forbidden(&said("Forbidden"), 3).unwrap().message, "no");
    assert!(forbidden(&said("Forbidden"), 4).is_none());
    assert!(forbidden(&said("Syncing"), 3).is_none());
}
