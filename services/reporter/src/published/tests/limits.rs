//! No more published reports are remembered than the limit says, and the others are treated right.

use super::*;

/// All are settled.
fn settled(reports_max: usize, now: Instant) -> PublishedReports {
    let mut published = PublishedReports::with_limit(reports_max);
    published.settle(unread(&[]), now);
    published
}

fn is_from(name: &str) -> Option<Owner> {
    Some(pod(name))
}

/// Writes the reports `names` successfully.
fn write(published: &mut PublishedReports, names: &[&str], now: Instant) {
    for name in names {
        let action = published.begin(&key(name), is_from(name).as_ref(), Some(report("x")));
        assert_eq!(action, apply("x"), "{name}");
        published.done(&key(name), Ok(Some("x".to_owned())), 0, now);
    }
}

#[test]
fn reports_are_remembered_up_to_the_limit_and_no_more() {
    let now = Instant::now();
    let mut published = settled(2, now);
    write(&mut published, &["a", "b"], now);
    assert_eq!((published.len(), published.beyond()), (2, 0));
    write(&mut published, &["c"], now);
    assert_eq!((published.len(), published.beyond()), (2, 1));
    for (name, expected) in [
        ("a", ReportAction::UpToDate),
        ("b", ReportAction::UpToDate),
        ("c", ReportAction::ReadFirst),
    ] {
        let action = published.begin(&key(name), is_from(name).as_ref(), Some(report("x")));
        assert_eq!(action, expected, "{name}");
    }
    // The report is written once its old content was read, and then forgotten again.
    published.was_read(&key("c"), now);
    assert_eq!(due(&mut published, now), ["c"]);
    assert_eq!(
        published.begin(&key("c"), None, Some(report("x"))),
        apply("x")
    );
    published.done(&key("c"), Ok(Some("x".to_owned())), 0, now);
    assert_eq!(published.len(), 2);
}

#[test]
fn a_report_beyond_the_limit_is_deleted_once_it_has_no_results() {
    let now = Instant::now();
    let mut published = settled(1, now);
    write(&mut published, &["a", "b"], now);
    let b = is_from("b");
    assert_eq!(
        published.begin(&key("b"), b.as_ref(), None),
        ReportAction::Delete
    );
    published.done(&key("b"), Ok(None), 0, now);
    assert_eq!(published.len(), 1);
    // Of what is not settled nothing is touched, and after the next list all is looked at.
    published.settle(unread(&["b"]), now);
    for report in [None, Some(report("part"))] {
        assert_eq!(
            published.begin(&key("b"), b.as_ref(), report),
            ReportAction::Nothing
        );
    }
    published.listing();
    let there = ["a", "b"].map(|name| listed(name, "x"));
    assert!(list(&mut published, there.into(), now));
}

#[test]
fn a_failed_write_beyond_the_limit_is_found_by_the_next_look_at_all() {
    let now = Instant::now();
    let mut published = settled(1, now);
    write(&mut published, &["a"], now);
    assert_eq!(
        published.begin(&key("b"), None, Some(report("x"))),
        apply("x")
    );
    published.done(&key("b"), Err(()), 0, now);
    assert_eq!(
        (published.len(), published.waiting(), published.beyond()),
        (1, 0, 1)
    );
    published.listing();
    assert!(list(&mut published, vec![listed("a", "x")], now));
    published.look_at_all(now);
    assert_eq!(due(&mut published, now), ["a"]);
    published.listing();
    assert!(!list(&mut published, vec![listed("a", "x")], now), "once");
}

#[test]
fn a_list_is_remembered_up_to_the_limit_and_the_next_one_goes_on() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d"];
    let mut published = PublishedReports::with_limit(2);
    let mut there: Vec<&str> = names.into();
    published.listing();
    let all = there.iter().map(|name| listed(name, "before")).collect();
    list(&mut published, all, now);
    // Reports that cannot be settled leave room for further reports.
    assert_eq!((published.len(), published.beyond()), (1, 3));
    published.settle(unread(&[]), now);
    for left in [3, 0] {
        for name in due(&mut published, now) {
            assert_eq!(
                published.begin(&key(&name), None, None),
                ReportAction::Delete
            );
            published.done(&key(&name), Ok(None), 0, now);
            there.retain(|there| *there != name);
        }
        assert_eq!(there.len(), left);
        published.listing();
        let all = there.iter().map(|name| listed(name, "before")).collect();
        list(&mut published, all, now);
        assert_eq!(published.beyond(), left.saturating_sub(2));
    }
    assert_eq!(published.len(), 0);
}

/// Correct reports take all the room; a report beyond the limit still has its turn.
#[test]
fn each_report_beyond_the_limit_has_its_turn() {
    let now = Instant::now();
    let mut published = settled(1, now);
    write(&mut published, &["a"], now);
    let there = ["a", "b", "c", "d"].map(|name| listed(name, "x"));
    let mut looked_at = Vec::new();
    for _ in 0..5 {
        published.listing();
        list(&mut published, there.to_vec(), now);
        let due = due(&mut published, now);
        for name in &due {
            assert_eq!(
                published.begin(&key(name), None, Some(report("x"))),
                ReportAction::UpToDate
            );
        }
        assert_eq!(published.len(), 1);
        looked_at.extend(due);
    }
    assert_eq!(looked_at, ["b", "c", "d", "b", "c"]);
}

/// Measures the memory of as many remembered reports as there are findings: `cargo test -p
/// anteroom-reporter --lib -- --ignored --nocapture measures_memory_of_two_hundred_thousand_reports`.
#[test]
#[ignore = "a measurement"]
fn measures_memory_of_two_hundred_thousand_reports() {
    let objects = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = status.split(' ').nth(1).map(str::parse::<usize>);
        resident.and_then(Result::ok).unwrap_or_default()
    };
    let (before, now) = (objects(), Instant::now());
    let mut published = PublishedReports::default();
    let listed = (0..crate::findings::OBJECTS_MAX).map(|number| Listed {
        key: (
            format!("team-{}", number % 40),
            format!("3b1f6d0e-7a58-4f57-9c0f-{number:012}"),
        ),
        content: format!("{number:016x}"),
        owner: (
            (String::new(), "Pod".to_owned()),
            ObjectKey::new(format!("team-{}", number % 40), format!("web-{number:05}")),
        ),
    });
    published.listing();
    for listed in listed {
        published.listed(vec![listed], now);
    }
    published.listed_all(now);
    let told = |what: &str, objects: usize| println!("{what}: {} MB", objects * 4 / 1_024);
    told("as they are listed", objects() - before);
    published.settle(unread(&[]), now);
    told("all to be looked at", objects() - before);
}
