//! Published reports, by hand and beside a model.

mod limits;
mod model;

use anteroom_model::ObjectKey;
use serde_json::Value;

use super::*;

fn key(name: &str) -> ReportKey {
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
fn list(published: &mut PublishedReports, all: Vec<Listed>, now: Instant) -> bool {
    published.listed(all, now);
    published.listed_all(now)
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

fn apply(content: &str) -> ReportAction {
    ReportAction::Apply(Box::new(report(content)))
}

/// Everything that is due.
fn due(published: &mut PublishedReports, now: Instant) -> Vec<String> {
    std::iter::from_fn(|| published.take_due(now))
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn an_earlier_report_stays_until_all_policies_are_settled() {
    let now = Instant::now();
    let mut published = PublishedReports::default();
    published.listing();
    let before = ["a", "b", "c"].map(|name| listed(name, "whole"));
    list(&mut published, before.into(), now);
    assert_eq!(
        due(&mut published, now),
        [""; 0],
        "nobody knows what there is"
    );
    assert_eq!(
        published.begin(&key("a"), None, Some(report("part"))),
        ReportAction::Nothing
    );
    assert_eq!(
        published.begin(&key("b"), None, None),
        ReportAction::Nothing
    );
    assert_eq!(
        published.begin(&key("c"), None, Some(report("whole"))),
        ReportAction::UpToDate
    );
    assert_eq!(
        published.begin(&key("c"), None, Some(report("more"))),
        apply("more")
    );
    assert_eq!(
        published.begin(&key("d"), None, Some(report("new"))),
        apply("new")
    );
    published.settle(unseen(), now);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("part"))),
        ReportAction::Nothing
    );
    published.settle(unread(&[]), now);
    assert_eq!(due(&mut published, now), ["a", "b"]);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("all"))),
        ReportAction::ReadFirst
    );
    published.settle(unread(&[]), now);
    published.done(&key("a"), Err(()), 0, now);
    let later = now + Duration::from_secs(60);
    assert_eq!(
        due(&mut published, later),
        ["b", "a"],
        "it could not be read"
    );
    assert_eq!(
        published.begin(&key("a"), None, Some(report("all"))),
        ReportAction::ReadFirst
    );
    published.was_read(&key("a"), now);
    assert_eq!(due(&mut published, now), ["a"]);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("all"))),
        apply("all")
    );
    assert_eq!(published.begin(&key("b"), None, None), ReportAction::Delete);
}

#[test]
fn a_write_that_failed_may_have_arrived() {
    let now = Instant::now();
    let mut published = PublishedReports::default();
    published.settle(unread(&[]), now);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("x"))),
        apply("x")
    );
    published.done(&key("a"), Err(()), 1, now);
    assert_eq!(published.begin(&key("a"), None, None), ReportAction::Delete);
    published.done(&key("a"), Err(()), 1, now);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("x"))),
        apply("x")
    );
    published.done(&key("a"), Ok(Some("x".to_owned())), 1, now);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("x"))),
        ReportAction::UpToDate
    );
    assert!(published.rows.values().all(|row| row.backoff.is_none()));
    assert_eq!(published.waiting(), 0);
}

#[test]
fn a_failed_write_is_queued_for_one_retry() {
    let now = Instant::now();
    let mut published = PublishedReports::default();
    for _ in 0..3 {
        // Changes meanwhile make no second row of trials.
        published.begin(&key("a"), None, Some(report("x")));
        published.begin(&key("a"), None, Some(report("y")));
        published.done(&key("a"), Err(()), u64::MAX, now);
        assert_eq!(published.waiting(), 1);
    }
    assert!(published.next_at().is_some_and(|at| at > now));
    assert_eq!(due(&mut published, now), [""; 0]);
    assert_eq!(due(&mut published, now + Duration::from_secs(60)), ["a"]);
    assert_eq!(published.begin(&key("a"), None, None), ReportAction::Delete);
    published.done(&key("a"), Ok(None), 0, now);
    assert_eq!(
        published.begin(&key("a"), None, None),
        ReportAction::Nothing
    );
    assert!(published.rows.is_empty() && published.later.is_empty());
}

#[test]
fn a_report_that_changes_during_its_write_is_looked_at_again() {
    let now = Instant::now();
    let mut published = PublishedReports::default();
    published.begin(&key("a"), None, Some(report("x")));
    published.begin(&key("a"), None, Some(report("y")));
    published.done(&key("a"), Ok(Some("x".to_owned())), 0, now);
    assert_eq!(due(&mut published, now), ["a"]);
    assert_eq!(
        published.begin(&key("a"), None, Some(report("y"))),
        apply("y")
    );
}

#[test]
fn changes_by_others_to_reports_are_found_by_the_next_list() {
    let now = Instant::now();
    let mut published = PublishedReports::default();
    published.settle(unread(&[]), now);
    for name in ["gone", "other", "same", "busy"] {
        published.begin(&key(name), None, Some(report("x")));
        published.done(&key(name), Ok(Some("x".to_owned())), 0, now);
    }
    published.listing();
    published.begin(&key("busy"), None, Some(report("y")));
    published.begin(&key("new"), None, Some(report("x")));
    published.done(&key("new"), Ok(Some("x".to_owned())), 0, now);
    let found = [
        ("other", "z"),
        ("same", "x"),
        ("strange", "x"),
        ("busy", "x"),
    ];
    let found = found.map(|(name, content)| listed(name, content));
    list(&mut published, found.into(), now);
    assert_eq!(due(&mut published, now), ["gone", "other", "strange"]);
    assert_eq!(
        published.begin(&key("gone"), None, Some(report("x"))),
        apply("x")
    );
    assert_eq!(
        published.begin(&key("other"), None, Some(report("x"))),
        apply("x")
    );
    assert_eq!(
        published.begin(&key("strange"), None, None),
        ReportAction::Delete
    );
}

#[test]
fn an_unreadable_object_keeps_no_other_report_as_it_was() {
    let now = Instant::now();
    let mut published = PublishedReports::default();
    published.listing();
    let before = ["gone", "other", "unread"].map(|name| listed(name, "before"));
    list(&mut published, before.into(), now);
    published.settle(unread(&["unread"]), now);
    assert_eq!(due(&mut published, now), ["gone", "other"]);
    assert_eq!(
        published.begin(&key("gone"), None, None),
        ReportAction::Delete
    );
    assert_eq!(
        published.begin(&key("other"), None, Some(report("now"))),
        ReportAction::ReadFirst
    );
    published.was_read(&key("other"), now);
    assert_eq!(
        published.begin(&key("other"), None, Some(report("now"))),
        apply("now")
    );
    // Another policy reads the object by another view: that is not all there is to say.
    for known in [None, Some(report("part"))] {
        assert_eq!(
            published.begin(&key("unread"), None, known),
            ReportAction::Nothing
        );
    }
    published.settle(unread(&[]), now);
    assert_eq!(due(&mut published, now), ["unread"]);
    assert_eq!(
        published.begin(&key("unread"), None, None),
        ReportAction::Delete
    );
}
