//! The ledger remembers no more reports than its limit says, and does right by those that it does not.

use super::*;

/// All are settled.
fn settled(reports_max: usize, now: Instant) -> Ledger {
    let mut ledger = Ledger::with_limit(reports_max);
    ledger.settle(unread(&[]), now);
    ledger
}

fn is_from(name: &str) -> Option<Owner> {
    Some(pod(name))
}

/// Writes what is to be said of these, well.
fn write(ledger: &mut Ledger, names: &[&str], now: Instant) {
    for name in names {
        let deed = ledger.begin(&key(name), is_from(name).as_ref(), Some(report("x")));
        assert_eq!(deed, apply("x"), "{name}");
        ledger.done(&key(name), Ok(Some("x".to_owned())), 0, now);
    }
}

#[test]
fn at_the_limit_all_are_remembered_and_one_more_is_not() {
    let now = Instant::now();
    let mut ledger = settled(2, now);
    write(&mut ledger, &["a", "b"], now);
    assert_eq!((ledger.len(), ledger.beyond()), (2, 0));
    write(&mut ledger, &["c"], now);
    assert_eq!((ledger.len(), ledger.beyond()), (2, 1));
    for (name, expected) in [("a", Deed::Same), ("b", Deed::Same), ("c", Deed::Read)] {
        let deed = ledger.begin(&key(name), is_from(name).as_ref(), Some(report("x")));
        assert_eq!(deed, expected, "{name}");
    }
    // It is written anew once what it said was read, and forgotten again.
    ledger.was_read(&key("c"), now);
    assert_eq!(due(&mut ledger, now), ["c"]);
    assert_eq!(ledger.begin(&key("c"), None, Some(report("x"))), apply("x"));
    ledger.done(&key("c"), Ok(Some("x".to_owned())), 0, now);
    assert_eq!(ledger.len(), 2);
}

#[test]
fn a_report_that_is_not_remembered_goes_with_what_was_to_be_said() {
    let now = Instant::now();
    let mut ledger = settled(1, now);
    write(&mut ledger, &["a", "b"], now);
    let b = is_from("b");
    assert_eq!(ledger.begin(&key("b"), b.as_ref(), None), Deed::Delete);
    ledger.done(&key("b"), Ok(None), 0, now);
    assert_eq!(ledger.len(), 1);
    // Of what is not settled nothing is touched, and after the next list all is looked at.
    ledger.settle(unread(&["b"]), now);
    for report in [None, Some(report("part"))] {
        assert_eq!(ledger.begin(&key("b"), b.as_ref(), report), Deed::Nothing);
    }
    ledger.listing();
    let there = ["a", "b"].map(|name| listed(name, "x"));
    assert!(list(&mut ledger, there.into(), now));
}

#[test]
fn what_fails_and_is_not_remembered_is_looked_at_with_all_others() {
    let now = Instant::now();
    let mut ledger = settled(1, now);
    write(&mut ledger, &["a"], now);
    assert_eq!(ledger.begin(&key("b"), None, Some(report("x"))), apply("x"));
    ledger.done(&key("b"), Err(()), 0, now);
    assert_eq!((ledger.len(), ledger.waiting(), ledger.beyond()), (1, 0, 1));
    ledger.listing();
    assert!(list(&mut ledger, vec![listed("a", "x")], now));
    ledger.look_at_all(now);
    assert_eq!(due(&mut ledger, now), ["a"]);
    ledger.listing();
    assert!(!list(&mut ledger, vec![listed("a", "x")], now), "once");
}

#[test]
fn a_list_is_taken_in_as_far_as_there_is_room_and_the_next_one_goes_on() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d"];
    let mut ledger = Ledger::with_limit(2);
    let mut there: Vec<&str> = names.into();
    ledger.listing();
    let all = there.iter().map(|name| listed(name, "before")).collect();
    list(&mut ledger, all, now);
    // What nobody can settle leaves room for others.
    assert_eq!((ledger.len(), ledger.beyond()), (1, 3));
    ledger.settle(unread(&[]), now);
    for left in [3, 0] {
        for name in due(&mut ledger, now) {
            assert_eq!(ledger.begin(&key(&name), None, None), Deed::Delete);
            ledger.done(&key(&name), Ok(None), 0, now);
            there.retain(|there| *there != name);
        }
        assert_eq!(there.len(), left);
        ledger.listing();
        let all = there.iter().map(|name| listed(name, "before")).collect();
        list(&mut ledger, all, now);
        assert_eq!(ledger.beyond(), left.saturating_sub(2));
    }
    assert_eq!(ledger.len(), 0);
}

/// Others that say what they should take all the room: what lies behind them has its turn.
#[test]
fn of_those_beyond_the_limit_each_has_its_turn() {
    let now = Instant::now();
    let mut ledger = settled(1, now);
    write(&mut ledger, &["a"], now);
    let there = ["a", "b", "c", "d"].map(|name| listed(name, "x"));
    let mut looked_at = Vec::new();
    for _ in 0..5 {
        ledger.listing();
        list(&mut ledger, there.to_vec(), now);
        let due = due(&mut ledger, now);
        for name in &due {
            assert_eq!(
                ledger.begin(&key(name), None, Some(report("x"))),
                Deed::Same
            );
        }
        assert_eq!(ledger.len(), 1);
        looked_at.extend(due);
    }
    assert_eq!(looked_at, ["b", "c", "d", "b", "c"]);
}

/// What it takes to remember as many as the book holds: `cargo test -p anteroom-reporter --lib -- --ignored
/// --nocapture two_hundred_thousand_reports`.
#[test]
#[ignore = "a measurement"]
fn two_hundred_thousand_reports() {
    let pages = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = status.split(' ').nth(1).map(str::parse::<usize>);
        resident.and_then(Result::ok).unwrap_or_default()
    };
    let (before, now) = (pages(), Instant::now());
    let mut ledger = Ledger::default();
    let listed = (0..crate::book::PAGES_MAX).map(|number| Listed {
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
    ledger.listing();
    for listed in listed {
        ledger.listed(vec![listed], now);
    }
    ledger.listed_all(now);
    let told = |what: &str, pages: usize| println!("{what}: {} MB", pages * 4 / 1_024);
    told("as they are listed", pages() - before);
    ledger.settle(unread(&[]), now);
    told("all to be looked at", pages() - before);
}
