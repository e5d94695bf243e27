mod limits;

use super::*;

pub(crate) fn subject(uid: &str) -> ReportSubject {
    ReportSubject {
        uid: uid.into(),
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "n".into(),
        name: uid.into(),
    }
}

pub(crate) fn scan(policy: &str) -> PolicyScan {
    PolicyScan {
        policy: ObjectKey::new("", policy),
        view: ViewId::new("pods.v1"),
    }
}

pub(crate) fn result(rule: &str, outcome: ReportOutcome) -> RuleResult {
    RuleResult {
        rule: rule.into(),
        outcome,
        message: "m".into(),
        properties: None,
    }
}

fn take_all(findings: &mut Findings) -> Vec<String> {
    std::iter::from_fn(|| findings.take_changed())
        .map(|subject| subject.uid.to_string())
        .collect()
}

#[test]
fn only_findings_that_differ_are_a_change() {
    let mut findings = Findings::default();
    let (a, p) = (subject("a"), scan("p"));
    findings.put(&a, &p, vec![result("r", ReportOutcome::Fail)], 1);
    assert_eq!(take_all(&mut findings), ["a"]);
    findings.mark_sent("a");
    findings.put(&a, &p, vec![result("r", ReportOutcome::Fail)], 2);
    assert_eq!(take_all(&mut findings), [""; 0]);
    let since = |findings: &Findings| findings.of_object("a").unwrap().by_scan(&p)[0].since_s;
    assert_eq!(since(&findings), 1, "it is what it was");
    assert!(!findings.of_object("a").unwrap().by_scan(&p)[0].is_new);
    findings.put(&a, &p, vec![result("r", ReportOutcome::Pass)], 3);
    assert_eq!(take_all(&mut findings), ["a"]);
    assert_eq!(since(&findings), 3);
    findings.put(&a, &scan("q"), Vec::new(), 4);
    assert_eq!(take_all(&mut findings), [""; 0]);
    findings.put(&a, &p, Vec::new(), 5);
    assert_eq!(take_all(&mut findings), ["a"]);
    assert_eq!(findings.len(), 0);
}

#[test]
fn an_error_with_other_numbers_is_no_change() {
    let mut findings = Findings::default();
    let (a, p) = (subject("a"), scan("p"));
    let error = |message: &str| {
        let mut error = result("r", ReportOutcome::Error);
        error.message = message.into();
        vec![error]
    };
    findings.put(&a, &p, error("AR201 after 1 s"), 1);
    take_all(&mut findings);
    findings.put(&a, &p, error("AR201 after 2 s"), 2);
    assert_eq!(take_all(&mut findings), [""; 0]);
    findings.put(&a, &p, error("AR202 after 2 s"), 3);
    assert_eq!(take_all(&mut findings), ["a"]);
}

#[test]
fn each_changed_object_gets_its_turn() {
    let mut findings = Findings::default();
    let mut taken = Vec::new();
    findings.put(
        &subject("b"),
        &scan("p"),
        vec![result("r", ReportOutcome::Pass)],
        0,
    );
    for rule in ["1", "2", "3"] {
        let changed = vec![result(rule, ReportOutcome::Pass)];
        findings.put(&subject("a"), &scan("p"), changed, 0);
        taken.extend(
            findings
                .take_changed()
                .map(|subject| subject.uid.to_string()),
        );
    }
    assert_eq!(taken, ["a", "b", "a"]);
}

#[test]
fn touching_a_policy_marks_the_objects_it_found_as_changed() {
    let mut findings = Findings::default();
    let results = || vec![result("r", ReportOutcome::Pass)];
    findings.put(&subject("a"), &scan("p"), results(), 1);
    findings.put(&subject("b"), &scan("q"), results(), 1);
    take_all(&mut findings);
    findings.touch(|policy| &*policy.name == "q");
    assert_eq!(take_all(&mut findings), ["b"]);
}

#[test]
fn findings_of_scans_that_are_gone_are_forgotten() {
    let mut findings = Findings::default();
    let results = || vec![result("r", ReportOutcome::Error)];
    findings.put(&subject("a"), &scan("p"), results(), 1);
    findings.put(&subject("a"), &scan("q"), results(), 1);
    findings.put(&subject("b"), &scan("p"), results(), 1);
    take_all(&mut findings);
    assert_eq!(findings.errors_of(&scan("p")).len(), 2);
    findings.retain(|scan| &*scan.policy.name == "q");
    assert_eq!(take_all(&mut findings), ["a", "b"]);
    assert!(findings.of_object("a").is_some() && findings.of_object("b").is_none());
    findings.forget("a", &scan("q"));
    findings.forget("a", &scan("q"));
    assert_eq!(take_all(&mut findings), ["a"]);
    assert_eq!(findings.len(), 0);
}

#[test]
fn gone_scans_among_many_are_forgotten_also_beyond_the_limit() {
    let mut findings = Findings::with_limits(Limits {
        objects_max: 20,
        ..Limits::default()
    });
    let names: Vec<_> = (0..30).map(|number| format!("{number:02}")).collect();
    for (object, name) in names.iter().enumerate() {
        for policy in &names[object..] {
            let results = vec![result("r", ReportOutcome::Pass)];
            findings.put(&subject(name), &scan(policy), results, 1);
        }
    }
    assert_eq!((findings.len(), findings.left_out()), (20, 10));
    take_all(&mut findings);
    let stays = |scan: &PolicyScan| scan.policy.name.as_bytes()[1] < b'5';
    findings.retain(stays);
    assert_eq!(
        take_all(&mut findings).len(),
        20,
        "each had one of the others"
    );
    // Of the last ones nobody else speaks.
    assert_eq!((findings.len(), findings.left_out()), (20, 5));
    for (object, name) in names.iter().take(20).enumerate() {
        let of_object = findings.of_object(name).unwrap();
        let found = of_object
            .findings
            .iter()
            .map(|found| &*found.scan.policy.name);
        let expected = names[object..]
            .iter()
            .filter(|name| name.as_bytes()[1] < b'5');
        assert!(found.eq(expected), "{name}");
    }
    findings.retain(stays);
    assert_eq!(take_all(&mut findings), [""; 0]);
}
