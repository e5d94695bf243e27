use proptest::prelude::*;

use super::*;

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

fn key() -> impl Strategy<Value = ObjectKey> {
    let part = prop_oneof![
        any::<String>(),
        "[a-z0-9.:-]{0,20}",
        "[ *>=.]{0,4}",
        "(ab?|=2E|\\.)?"
    ];
    (part.clone(), part).prop_map(|(namespace, name)| ObjectKey::new(namespace, name))
}

/// Returns whether NATS accepts the subject for publishing.
fn is_literal(subject: &str) -> bool {
    subject.split('.').all(|token| {
        !token.is_empty()
            && token
                .bytes()
                .all(|b| b.is_ascii_graphic() && b != b'*' && b != b'>')
    })
}

proptest! {
    #[test]
    fn every_object_has_its_subject(view in "\\PC{0,20}", key in key()) {
        let (subjects, view) = (subjects(), ViewId::new(view));
        let subject = subjects.object(&view, &key);
        prop_assert!(is_literal(&subject), "{}", subject);
        prop_assert_eq!(subjects.parse(&subject), Ok(Subject::Object { view, key }));
    }

    #[test]
    fn no_two_objects_share_a_subject(one in key(), other in key()) {
        let (subjects, view) = (subjects(), ViewId::new("v"));
        let same = subjects.object(&view, &one) == subjects.object(&view, &other);
        prop_assert_eq!(same, one == other);
    }

    #[test]
    fn every_other_subject_is_read_back(
        view in any::<String>(), replica in any::<String>(), log in any::<String>(),
    ) {
        let (subjects, view, log) = (subjects(), ViewId::new(view), Incarnation(log));
        let cases = [
            (subjects.control(&view), Subject::Control(view.clone())),
            (subjects.query(&view), Subject::Query(view.clone())),
            (subjects.lease(&log, Group(3)), Subject::Lease(log.clone(), Group(3))),
            (subjects.fallback(&view), Subject::Fallback(view.clone())),
            (subjects.live(), Subject::Live),
            (subjects.write(), Subject::Write),
            (subjects.replica_beat(), Subject::ReplicaBeat),
            (subjects.webhook_beat(), Subject::WebhookBeat),
            (subjects.violation(), Subject::Violation),
            (subjects.tap(), Subject::Tap),
            (subjects.tapped(), Subject::Tapped),
            (subjects.status(), Subject::Status),
            (subjects.direct(&replica, &view), Subject::Direct { replica, view }),
            (subjects.beat(), Subject::Beat),
        ];
        for (subject, named) in cases {
            prop_assert!(is_literal(&subject), "{}", subject);
            prop_assert_eq!(subjects.parse(&subject), Ok(named));
        }
    }

    #[test]
    fn reading_a_subject_returns_the_subject_that_was_written(text in "ar\\.test\\.(obj|ctl|q|qi|beat|=|\\.|a){1,6}") {
        let subjects = subjects();
        if let Ok(Subject::Object { view, key }) = subjects.parse(&text) {
            prop_assert_eq!(subjects.object(&view, &key), text);
        }
    }
}

#[test]
fn subjects_have_their_documented_names() {
    let subjects = subjects();
    let view = ViewId::new("pods.v1");
    assert_eq!(subjects.cluster(), "test");
    assert_eq!(subjects.stream(), "anteroom-test");
    assert_eq!(subjects.imported_api(), "ar.test.js");
    assert_eq!(
        subjects.stream_subjects(),
        ["ar.test.obj.>", "ar.test.ctl.>"]
    );
    assert_eq!(
        subjects.object(&view, &ObjectKey::new("", "system:a")),
        "ar.test.obj.pods=2Ev1.=.system=3Aa"
    );
    assert_eq!(subjects.query(&view), "ar.test.q.pods=2Ev1");
    assert_eq!(subjects.direct("r-0", &view), "ar.test.qi.r-0.pods=2Ev1");
    assert_eq!(
        subjects.lease(&Incarnation("a.1".into()), Group(0)),
        "ar.test.ctl.lease.a=2E1.0"
    );
    assert_eq!(subjects.beat(), "ar.test.beat");
}

#[test]
fn stream_filters_match_records_alone() {
    let subjects = subjects();
    assert_eq!(
        subjects.filters(&[ViewId::new("a"), ViewId::new("b.v1")]),
        [
            "ar.test.obj.a.>",
            "ar.test.ctl.view.a",
            "ar.test.obj.b=2Ev1.>",
            "ar.test.ctl.view.b=2Ev1"
        ]
    );
    assert_eq!(subjects.leases(), "ar.test.ctl.lease.>");
    assert_eq!(subjects.every_object(), "ar.test.obj.>");
    assert_eq!(subjects.controls(), "ar.test.ctl.view.>");
}

#[test]
fn the_longest_legal_names_fit_a_subject() {
    let label = "a".repeat(63);
    let group = [label.as_str(); 4].join(".");
    let plain = ViewId::new(format!("{label}.{label}.{group}~0123456789abcdef"));
    // 253 dots are not legal, but nothing longer is.
    let key = ObjectKey::new(label.as_str(), ".".repeat(253));
    let cluster = Subjects::new(&"c".repeat(CLUSTER_BYTES_MAX)).unwrap();
    let subject = cluster.object(&plain, &key);
    assert!(subject.len() < SUBJECT_BYTES_MAX, "{}", subject.len());
}

#[test]
fn an_object_whose_subject_would_be_too_long_is_refused() {
    let longest = Subjects::new(&"c".repeat(CLUSTER_BYTES_MAX)).unwrap();
    let view = ViewId::new("rolebindings.v1.rbac");
    let named = |name: String| {
        let key = ObjectKey::new("", name);
        let bytes = longest.object(&view, &key).len();
        (bytes, check_object(&view, &key).is_ok())
    };
    let (rest, _) = named("n".to_owned());
    let edge = SUBJECT_BYTES_MAX - rest + 1;
    assert_eq!(named("n".repeat(edge)), (SUBJECT_BYTES_MAX, true));
    assert_eq!(named("n".repeat(edge + 1)), (SUBJECT_BYTES_MAX + 1, false));
    assert!(
        !named(".".repeat(edge / 3 + 1)).1,
        "a dot takes three bytes"
    );
}

#[test]
fn malformed_and_foreign_subjects_are_refused() {
    for subject in [
        "",
        "ar.test",
        "ar.other.beat",
        "ar.test.beat.x",
        "ar.test.obj.v.ns",
        "ar.test.obj.v.ns.name.more",
        "ar.test.obj.v..name",
        "ar.test.obj.v.ns.a=2e",
        "ar.test.obj.v.ns.*",
        "ar.test.ctl.other",
        "ar.test.ctl.lease",
        "ar.test.ctl.lease.a",
        "ar.test.ctl.lease.a.01",
        "ar.test.ctl.lease.a.-1",
        "ar.test.q.a b",
        "_INBOX.x",
    ] {
        let refused = Err(WireError::Subject {
            subject: subject.into(),
        });
        assert_eq!(subjects().parse(subject), refused);
    }
}

#[test]
fn malformed_cluster_names_are_refused() {
    for good in ["a", "A_b-9", &"c".repeat(CLUSTER_BYTES_MAX)] {
        assert!(Subjects::new(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "a.b",
        "a b",
        "*",
        "ü",
        &"c".repeat(CLUSTER_BYTES_MAX + 1),
    ] {
        assert!(Subjects::new(bad).is_err(), "{bad}");
    }
}
