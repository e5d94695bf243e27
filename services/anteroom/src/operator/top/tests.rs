//! What `anteroom top` shows.

use std::time::Instant;

use anteroom_wire::tap::{Latencies, Row, Summary, TapRead, Tapped};

use super::{text::Sort, *};

fn heard() -> OperatorState {
    let row = |policy: &str, decided, denied, us| {
        let mut latencies = Latencies::default();
        (0..decided).for_each(|_| latencies.add(us));
        Row {
            policy: policy.into(),
            rule: "r".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            decided,
            denied,
            latencies,
            worst_us: us,
            reads: vec![TapRead {
                entry: "hosts".into(),
                from: "view".into(),
                age_ms: 200,
                objects: 3_010,
                examined: 1,
            }],
            ..Row::default()
        }
    };
    let mut window = Window::new(SPAN);
    let told = Tapped {
        webhook: "w".into(),
        summary: Some(Summary {
            period_ms: 1_000,
            decisions: 30,
            denied: 3,
            rows: vec![row("often", 20, 0, 300), row("denies", 10, 3, 64_000)],
            ..Summary::default()
        }),
        ..Tapped::default()
    };
    window.add(&told, Instant::now());
    OperatorState {
        window,
        system: System::default(),
        lost: 0,
    }
}

fn shown(by: By) -> Shown {
    Shown::new(TopTable::Policies, by, Sort::default())
}

#[test]
fn a_table_says_what_each_rule_decides_and_reads() {
    let text = shown(By::default()).text(&mut heard());
    let expected = "\
30 decisions/s  3 denied/s  0 errors/s  p50 -  p99 -  1 webhook

POLICY / RULE  RATE  DENIED  ERRORS     P50     P99   WORST  READS (OBJECTS LOOKED AT, AGE)
often / r      20/s       0       0  0.3 ms  0.3 ms  0.3 ms  hosts 1 of 3,010, 0.2 s
denies / r     10/s       3       0   64 ms   64 ms   64 ms  hosts 1 of 3,010, 0.2 s";
    assert_eq!(text, expected);
}

#[test]
fn keys_sort_filter_and_pause() {
    let (mut shown, mut heard) = (
        shown(By {
            kind: true,
            namespace: true,
        }),
        heard(),
    );
    let first = |shown: &Shown, heard: &mut OperatorState| {
        shown
            .text(heard)
            .lines()
            .nth(3)
            .unwrap_or_default()
            .to_owned()
    };
    assert!(first(&shown, &mut heard).starts_with("often / r      Pod   shop"));
    shown.press(KeyPress::Character('s'));
    assert!(first(&shown, &mut heard).starts_with("denies / r"));
    shown.press(KeyPress::Character('p'));
    assert!(shown.is_paused() && shown.text(&mut heard).contains("paused"));
    shown.press(KeyPress::Character('/'));
    for typed in "oft".chars() {
        shown.press(KeyPress::Character(typed));
    }
    assert!(shown.is_typing());
    shown.press(KeyPress::Enter);
    assert_eq!(shown.text(&mut heard).lines().count(), 4);
    assert!(first(&shown, &mut heard).starts_with("often / r"));
    shown.press(KeyPress::Escape);
    assert_eq!(shown.text(&mut heard).lines().count(), 5);
    // While a filter is typed, q is a letter.
    shown.press(KeyPress::Character('/'));
    shown.press(KeyPress::Quit);
    assert_eq!(shown.text(&mut heard).lines().count(), 3);
}

#[test]
fn machines_get_the_same_as_people() {
    let json = shown(By::default()).json(&mut heard());
    assert_eq!(
        (&json["perSecond"], &json["lost"]),
        (&30.0.into(), &0.into())
    );
    assert_eq!(json["rules"][0]["policy"], "often");
    assert_eq!(json["rules"][1]["worstUs"], 64_000);
    assert_eq!(json["rules"][1]["reads"][0]["examined"], 1);
}
