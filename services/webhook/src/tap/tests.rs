//! Taps of decisions.

use std::sync::Arc;

use anteroom_bus::local::LocalBus;
use anteroom_engine::{
    facts::Origin,
    rule::RuleName,
    verdict::{self, ChangedPlaces, FactRecord, RuleRecord},
};
use anteroom_model::{ObjectKey, Revision, ViewId};
use anteroom_policy::{FailureAction, RuleOutcome};
use anteroom_wire::tap::{DURATION_MS_MAX, RECORDS_PER_SECOND_MAX, ROWS_MAX, Summary, TapFilter};
use serde_json::json;

use super::*;

fn body(namespace: &str) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
        "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
        "namespace": namespace, "name": "web", "operation": "CREATE",
        "userInfo": {"username": "dana"}, "object": {"metadata": {}}}})
    .to_string()
}

fn fact(examined: u64) -> FactRecord {
    let origin = Origin::View {
        view: ViewId::new("ingresses.v1"),
        replica: "r-1".into(),
        incarnation: "i".into(),
        revision: Revision(9),
        version: "42".into(),
        age_ms: 300,
        objects: 3_000,
        examined,
        last_good: false,
    };
    FactRecord {
        entry: "hosts".into(),
        origin: Some(Arc::new(origin)),
        error: None,
    }
}

fn record(policy: &str, outcome: RuleOutcome) -> RuleRecord {
    RuleRecord {
        name: Arc::new(RuleName::new(ObjectKey::new("", policy), "r")),
        action: FailureAction::Enforce,
        ignore_errors: false,
        warn_on_audit: false,
        facts: vec![fact(1), fact(7)],
        changed: ChangedPlaces::default(),
        excepted_by: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        depends_on_arrival: false,
        knows_secrets: false,
        took: Duration::from_micros(300),
        outcome,
    }
}

fn taken() -> RuleOutcome {
    RuleOutcome::Fail {
        message: "taken".into(),
    }
}

/// Decides a request in this namespace.
fn decide(taps: &Taps, namespace: &str, rules: Vec<RuleRecord>) {
    let body = body(namespace);
    let review = Review::parse(body.as_bytes()).unwrap();
    taps.decided(Decided {
        review: &review,
        phase: Phase::Validation,
        decision: &verdict::decide(rules, Vec::new()),
        took: Duration::from_micros(400),
    });
}

fn tap(id: &str) -> Tap {
    Tap {
        id: id.into(),
        duration_ms: DURATION_MS_MAX,
        ..Tap::default()
    }
}

fn second(from: Instant) -> Instant {
    from + Duration::from_secs(1)
}

/// The only message after a period, which has a summary.
fn summary(taps: &Taps, at: Instant) -> Summary {
    let mut messages = taps.messages(at);
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0).summary.unwrap()
}

#[test]
fn a_summary_counts_exactly_by_rule_kind_and_namespace() {
    let (taps, now) = (Taps::default(), Instant::now());
    taps.take(tap("t"), now).unwrap();
    for namespace in ["a", "a", "b"] {
        let rules = vec![record("p", taken()), record("q", RuleOutcome::Pass)];
        decide(&taps, namespace, rules);
    }
    let found = summary(&taps, second(now));
    assert_eq!((found.decisions, found.denied, found.errors), (3, 3, 0));
    assert_eq!((found.period_ms, found.latencies.count()), (1_000, 3));
    let mut rows = found.rows;
    rows.sort_by(|a, b| (&a.policy, &a.namespace).cmp(&(&b.policy, &b.namespace)));
    let counts: Vec<_> = rows
        .iter()
        .map(|row| (&*row.policy, &*row.namespace, row.decided, row.denied))
        .collect();
    assert_eq!(
        counts,
        [
            ("p", "a", 2, 2),
            ("p", "b", 1, 1),
            ("q", "a", 2, 0),
            ("q", "b", 1, 0)
        ]
    );
    let [read] = &rows[0].reads[..] else {
        panic!("one place was read: {rows:?}");
    };
    assert_eq!((read.objects, read.examined, read.age_ms), (3_000, 7, 300));
    assert_eq!((&*read.from, rows[0].worst_us), ("view", 300));
    // The next period begins with nothing.
    assert_eq!(summary(&taps, second(second(now))).rows, []);
}

#[test]
fn rows_beyond_the_limit_are_counted() {
    let (taps, now) = (Taps::default(), Instant::now());
    taps.take(tap("t"), now).unwrap();
    for namespace in 0..=ROWS_MAX {
        decide(
            &taps,
            &namespace.to_string(),
            vec![record("p", RuleOutcome::Pass)],
        );
    }
    let found = summary(&taps, second(now));
    assert_eq!((found.rows.len(), found.left_out), (ROWS_MAX, 1));
}

#[test]
fn a_filter_leaves_other_decisions_out() {
    let only = |filter| {
        let (taps, now) = (Taps::default(), Instant::now());
        taps.take(Tap { filter, ..tap("t") }, now).unwrap();
        decide(&taps, "a", vec![record("p", taken())]);
        decide(&taps, "b", vec![record("q", RuleOutcome::Pass)]);
        summary(&taps, second(now)).decisions
    };
    let some = |text: &str| Some(text.to_owned());
    let all = TapFilter::default;
    assert_eq!(only(all()), 2);
    assert_eq!(
        only(TapFilter {
            policy: some("q"),
            ..all()
        }),
        1
    );
    assert_eq!(
        only(TapFilter {
            policy: some("x"),
            ..all()
        }),
        0
    );
    assert_eq!(
        only(TapFilter {
            namespace: some("a"),
            ..all()
        }),
        1
    );
    assert_eq!(
        only(TapFilter {
            kind: some("Pod"),
            ..all()
        }),
        0
    );
    assert_eq!(
        only(TapFilter {
            user: some("dana"),
            ..all()
        }),
        2
    );
    assert_eq!(
        only(TapFilter {
            user: some("eve"),
            ..all()
        }),
        0
    );
    assert_eq!(
        only(TapFilter {
            denied: true,
            ..all()
        }),
        1
    );
    assert_eq!(
        only(TapFilter {
            slower_than_us: 400,
            ..all()
        }),
        2
    );
    assert_eq!(
        only(TapFilter {
            slower_than_us: 401,
            ..all()
        }),
        0
    );
}

#[test]
fn decisions_over_the_rate_are_counted_and_not_handed_on() {
    for (asked, given) in [(0, 0), (3, 3), (1_000, RECORDS_PER_SECOND_MAX)] {
        let (taps, now) = (Taps::default(), Instant::now());
        let records_per_second = asked;
        taps.take(
            Tap {
                records_per_second,
                ..tap("t")
            },
            now,
        )
        .unwrap();
        for _ in 0..RECORDS_PER_SECOND_MAX + 5 {
            decide(&taps, "a", vec![record("p", RuleOutcome::Pass)]);
        }
        let messages = taps.messages(second(now));
        let records: usize = messages.iter().map(|message| message.records.len()).sum();
        assert_eq!(records, given as usize, "{asked}");
        let left_out: u64 = messages.iter().map(|message| message.left_out).sum();
        let all = u64::from(RECORDS_PER_SECOND_MAX + 5);
        assert_eq!(
            left_out,
            if asked == 0 {
                0
            } else {
                all - u64::from(given)
            }
        );
        let sequences: Vec<_> = messages.iter().map(|message| message.sequence).collect();
        assert_eq!(sequences, (0..messages.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_denial_is_told_to_a_tap_that_comes_after_it() {
    let (taps, now) = (Taps::default(), Instant::now());
    decide(&taps, "a", vec![record("p", taken())]);
    decide(&taps, "b", vec![record("p", RuleOutcome::Pass)]);
    taps.take(
        Tap {
            past: true,
            ..tap("t")
        },
        now,
    )
    .unwrap();
    let messages = taps.messages(second(now));
    let told: Vec<_> = messages
        .iter()
        .flat_map(|message| &message.records)
        .collect();
    let [denied] = told[..] else {
        panic!("the denial alone is kept: {told:?}");
    };
    assert!(!denied.allowed && denied.age_ms <= 1_000);
    let who = (&*denied.user, &*denied.namespace, &*denied.api_version);
    assert_eq!(who, ("dana", "a", "networking.k8s.io/v1"));
    assert_eq!(denied.rules[0].message, "taken");
    let read = &denied.rules[0].facts[0];
    assert_eq!(
        (&*read.view, &*read.by, read.revision),
        ("ingresses.v1", "r-1", 9)
    );
    // A renewal is not told again.
    taps.take(
        Tap {
            past: true,
            ..tap("t")
        },
        now,
    )
    .unwrap();
    assert_eq!(summary(&taps, second(second(now))).decisions, 0);
}

#[test]
fn the_last_denials_alone_are_kept() {
    let taps = Taps::default();
    for number in 0..=KEPT_MAX {
        decide(&taps, &number.to_string(), vec![record("p", taken())]);
    }
    let state = taps.0.state.lock();
    assert_eq!(state.kept.len(), KEPT_MAX);
    assert_eq!(state.kept[0].1.namespace, "1");
}

#[test]
fn a_record_stays_small_and_counts_what_is_left_out() {
    let taps = Taps::default();
    let mut rule = record(
        "p",
        RuleOutcome::Fail {
            message: "m".repeat(10_000),
        },
    );
    rule.facts = vec![fact(1); 50];
    decide(&taps, &"n".repeat(10_000), vec![rule; 40]);
    let state = taps.0.state.lock();
    let kept = &state.kept[0].1;
    let bytes = anteroom_wire::tap::encode_tapped(&Tapped {
        records: vec![kept.clone()],
        ..Tapped::default()
    });
    assert!(bytes.unwrap().len() < 16 * 1024);
    assert_eq!(kept.rules.len() as u64 + kept.rules_left_out, 40);
    assert!(kept.rules[0].facts_left_out > 0 && !kept.rules.is_empty());
}

#[test]
fn a_tap_withholds_messages_of_rules_that_read_secrets() {
    let taps = Taps::default();
    let secret = RuleRecord {
        knows_secrets: true,
        ..record(
            "p",
            RuleOutcome::Fail {
                message: "hunter2".into(),
            },
        )
    };
    decide(&taps, "a", vec![secret]);
    let kept = format!("{:?}", taps.0.state.lock().kept);
    assert!(
        kept.contains("withheld") && !kept.contains("hunter2"),
        "{kept}"
    );
}

#[test]
fn a_tap_ends_with_its_lease_and_their_number_has_a_limit() {
    let (taps, now) = (Taps::default(), Instant::now());
    let long = Tap {
        duration_ms: u64::MAX,
        ..tap("0")
    };
    taps.take(long, now).unwrap();
    for id in 1..TAPS_MAX {
        taps.take(tap(&id.to_string()), now).unwrap();
    }
    assert!(
        taps.take(tap("one more"), now)
            .unwrap_err()
            .contains("8 others")
    );
    assert!(taps.take(tap(&"x".repeat(254)), now).is_err());
    taps.take(
        Tap {
            duration_ms: 0,
            ..tap("1")
        },
        now,
    )
    .unwrap();
    assert_eq!(taps.0.open_taps.load(Ordering::Relaxed), TAPS_MAX - 1);
    let later = now + Duration::from_millis(DURATION_MS_MAX / 2);
    taps.take(tap("2"), later).unwrap();
    taps.messages(now + Duration::from_millis(DURATION_MS_MAX));
    assert_eq!(taps.0.open_taps.load(Ordering::Relaxed), 1);
    assert_eq!(taps.0.gauge.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_operator_asks_and_is_told_over_the_bus() {
    let bus = LocalBus::new();
    let operator = bus.join();
    let mut told = operator.signals::<Tapped>().await.unwrap();
    let taps = Taps::default();
    let shutdown = Shutdown::new();
    let teller = Teller {
        bus: Arc::new(bus),
        taps: taps.clone(),
        webhook: "w-1".into(),
        is_shadow: true,
    };
    let telling = tokio::spawn(teller.run(shutdown.clone()));
    while taps.is_idle() {
        operator.send(&tap("t")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    decide(&taps, "a", vec![record("p", taken())]);
    let first = told.next().await.unwrap();
    assert_eq!(
        (&*first.id, &*first.webhook, first.shadow),
        ("t", "w-1", true)
    );
    assert_eq!(first.summary.unwrap().denied, 1);
    // Nobody renews it.
    let last = loop {
        match tokio::time::timeout(Duration::from_secs(5), told.next()).await {
            Ok(message) => drop(message),
            Err(_) => break taps.is_idle(),
        }
    };
    assert!(last);
    shutdown.trigger("the test ends");
    telling.await.unwrap().unwrap();
}
