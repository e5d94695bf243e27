//! What becomes of reports, by hand and beside a model.

mod limits;
mod model;

use anteroom_model::ObjectKey;
use serde_json::Value;

use super::*;

fn key(name: &str) -> Key {
    ("n".to_owned(), name.to_owned())
}

fn pod(name: &str) -> Owner {
    ((String::new(), "Pod".to_owned()), ObjectKey::new("n", name))
}

fn report(content: &str) -> Report {
    Report {
        content: content.to_owned(),
        manifest: Value::Null,
    }
}

fn listed(name: &str, content: &str) -> Listed {
    Listed {
        key: key(name),
        content: content.to_owned(),
        owner: pod(name),
    }
}

/// A whole list of the reports; whether all has to be looked at.
fn list(ledger: &mut Ledger, all: Vec<Listed>, now: Instant) -> bool {
    ledger.listed(all, now);
    ledger.listed_all(now)
}

/// All Pods but for these are known.
fn unread(names: &[&str]) -> Option<Arc<Unsettled>> {
    Some(Arc::new(Unsettled {
        unseen: BTreeSet::new(),
        unread: names.iter().map(|name| pod(name)).collect(),
        is_full: false,
    }))
}

/// Nothing is known of Pods.
fn unseen() -> Option<Arc<Unsettled>> {
    Some(Arc::new(Unsettled {
        unseen: [pod("").0].into(),
        ..Unsettled::default()
    }))
}

fn apply(content: &str) -> Deed {
    Deed::Apply(Box::new(report(content)))
}

/// Everything that is due.
fn due(ledger: &mut Ledger, now: Instant) -> Vec<String> {
    std::iter::from_fn(|| ledger.take_due(now))
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn a_report_of_before_stays_until_all_is_known() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.listing();
    let before = ["a", "b", "c"].map(|name| listed(name, "whole"));
    list(&mut ledger, before.into(), now);
    assert_eq!(due(&mut ledger, now), [""; 0], "nobody knows what there is");
    assert_eq!(
        ledger.begin(&key("a"), None, Some(report("part"))),
        Deed::Nothing
    );
    assert_eq!(ledger.begin(&key("b"), None, None), Deed::Nothing);
    assert_eq!(
        ledger.begin(&key("c"), None, Some(report("whole"))),
        Deed::Same
    );
    assert_eq!(
        ledger.begin(&key("c"), None, Some(report("more"))),
        apply("more")
    );
    assert_eq!(
        ledger.begin(&key("d"), None, Some(report("new"))),
        apply("new")
    );
    ledger.settle(unseen(), now);
    assert_eq!(
        ledger.begin(&key("a"), None, Some(report("part"))),
        Deed::Nothing
    );
    ledger.settle(unread(&[]), now);
    assert_eq!(due(&mut ledger, now), ["a", "b"]);
    assert_eq!(
        ledger.begin(&key("a"), None, Some(report("all"))),
        Deed::Read
    );
    ledger.settle(unread(&[]), now);
    ledger.done(&key("a"), Err(()), 0, now);
    let later = now + Duration::from_secs(60);
    assert_eq!(due(&mut ledger, later), ["b", "a"], "it could not be read");
    assert_eq!(
        ledger.begin(&key("a"), None, Some(report("all"))),
        Deed::Read
    );
    ledger.was_read(&key("a"), now);
    assert_eq!(due(&mut ledger, now), ["a"]);
    assert_eq!(
        ledger.begin(&key("a"), None, Some(report("all"))),
        apply("all")
    );
    assert_eq!(ledger.begin(&key("b"), None, None), Deed::Delete);
}

#[test]
fn a_write_that_failed_may_have_arrived() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.settle(unread(&[]), now);
    assert_eq!(ledger.begin(&key("a"), None, Some(report("x"))), apply("x"));
    ledger.done(&key("a"), Err(()), 1, now);
    assert_eq!(ledger.begin(&key("a"), None, None), Deed::Delete);
    ledger.done(&key("a"), Err(()), 1, now);
    assert_eq!(ledger.begin(&key("a"), None, Some(report("x"))), apply("x"));
    ledger.done(&key("a"), Ok(Some("x".to_owned())), 1, now);
    assert_eq!(ledger.begin(&key("a"), None, Some(report("x"))), Deed::Same);
    assert!(ledger.rows.values().all(|row| row.backoff.is_none()));
    assert_eq!(ledger.waiting(), 0);
}

#[test]
fn what_failed_is_tried_again_once() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        // Changes meanwhile make no second row of trials.
        ledger.begin(&key("a"), None, Some(report("x")));
        ledger.begin(&key("a"), None, Some(report("y")));
        ledger.done(&key("a"), Err(()), u64::MAX, now);
        assert_eq!(ledger.waiting(), 1);
    }
    assert!(ledger.next_at().is_some_and(|at| at > now));
    assert_eq!(due(&mut ledger, now), [""; 0]);
    assert_eq!(due(&mut ledger, now + Duration::from_secs(60)), ["a"]);
    assert_eq!(ledger.begin(&key("a"), None, None), Deed::Delete);
    ledger.done(&key("a"), Ok(None), 0, now);
    assert_eq!(ledger.begin(&key("a"), None, None), Deed::Nothing);
    assert!(ledger.rows.is_empty() && ledger.later.is_empty());
}

#[test]
fn what_changes_on_the_way_is_looked_at_again() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.begin(&key("a"), None, Some(report("x")));
    ledger.begin(&key("a"), None, Some(report("y")));
    ledger.done(&key("a"), Ok(Some("x".to_owned())), 0, now);
    assert_eq!(due(&mut ledger, now), ["a"]);
    assert_eq!(ledger.begin(&key("a"), None, Some(report("y"))), apply("y"));
}

#[test]
fn what_others_did_to_reports_is_found_by_the_next_list() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.settle(unread(&[]), now);
    for name in ["gone", "other", "same", "busy"] {
        ledger.begin(&key(name), None, Some(report("x")));
        ledger.done(&key(name), Ok(Some("x".to_owned())), 0, now);
    }
    ledger.listing();
    ledger.begin(&key("busy"), None, Some(report("y")));
    ledger.begin(&key("new"), None, Some(report("x")));
    ledger.done(&key("new"), Ok(Some("x".to_owned())), 0, now);
    let found = [
        ("other", "z"),
        ("same", "x"),
        ("strange", "x"),
        ("busy", "x"),
    ];
    let found = found.map(|(name, content)| listed(name, content));
    list(&mut ledger, found.into(), now);
    assert_eq!(due(&mut ledger, now), ["gone", "other", "strange"]);
    assert_eq!(
        ledger.begin(&key("gone"), None, Some(report("x"))),
        apply("x")
    );
    assert_eq!(
        ledger.begin(&key("other"), None, Some(report("x"))),
        apply("x")
    );
    assert_eq!(ledger.begin(&key("strange"), None, None), Deed::Delete);
}

#[test]
fn one_that_cannot_be_read_keeps_no_other_report_as_it_was() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.listing();
    let before = ["gone", "other", "unread"].map(|name| listed(name, "before"));
    list(&mut ledger, before.into(), now);
    ledger.settle(unread(&["unread"]), now);
    assert_eq!(due(&mut ledger, now), ["gone", "other"]);
    assert_eq!(ledger.begin(&key("gone"), None, None), Deed::Delete);
    assert_eq!(
        ledger.begin(&key("other"), None, Some(report("now"))),
        Deed::Read
    );
    ledger.was_read(&key("other"), now);
    assert_eq!(
        ledger.begin(&key("other"), None, Some(report("now"))),
        apply("now")
    );
    // Another policy reads the object by another view: that is not all there is to say.
    for known in [None, Some(report("part"))] {
        assert_eq!(ledger.begin(&key("unread"), None, known), Deed::Nothing);
    }
    ledger.settle(unread(&[]), now);
    assert_eq!(due(&mut ledger, now), ["unread"]);
    assert_eq!(ledger.begin(&key("unread"), None, None), Deed::Delete);
}
