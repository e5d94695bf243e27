//! Exceptions of policies.kyverno.io.

use super::*;

#[test]
fn an_exception_exempts_the_policy_that_it_names_until_it_expires() {
    let policy = policy_of("ValidatingPolicy", REQUIRE_APP);
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let request = request.arrived(crate::Arrival {
        now_ns: 1_000,
        seed: 1,
    });
    let of = |spec: &str| {
        let exception = exception(spec);
        let rule = &policy.rules()[0];
        let evaluation = Evaluation::start(&policy, rule, &request);
        match evaluation.with_exceptions([&exception]).step() {
            RuleStep::Done(report) => report.outcome,
            step => panic!("{step:?}"),
        }
    };
    let named = "policyRefs: [{kind: ValidatingPolicy, name: p}]\n";
    let is_skip = |outcome: &RuleOutcome| matches!(outcome, RuleOutcome::Skipped { .. });
    let fails = |outcome: &RuleOutcome| matches!(outcome, RuleOutcome::Fail { .. });
    assert!(is_skip(&of(named)));
    assert_eq!(
        of(&format!("{named}reportResult: pass\n")),
        RuleOutcome::Pass
    );
    assert!(fails(&of(
        "policyRefs: [{kind: MutatingPolicy, name: p}]\n"
    )));
    let condition =
        |text: &str| format!("{named}matchConditions: [{{name: c, expression: \"{text}\"}}]\n");
    assert!(is_skip(&of(&condition("object.metadata.name == 'web'"))));
    assert!(fails(&of(&condition("object.metadata.name == 'other'"))));
    let at = |seconds: u8| format!("time.now() < timestamp('1970-01-01T00:00:0{seconds}Z')");
    assert!(is_skip(&of(&condition(&at(1)))));
    assert!(fails(&of(&condition(&at(0)))));
    assert!(matches!(
        of(&condition("object.nothing == 1")),
        RuleOutcome::Error(_)
    ));
    assert!(fails(&of(&format!(
        "{named}expiresAt: 1970-01-01T00:00:00.000001Z\n"
    ))));
    let later = format!("{named}expiresAt: 1970-01-01T00:00:01Z\n");
    assert!(is_skip(&of(&later)));
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let exception = exception(&later);
    let at_no_time = Evaluation::start(&policy, &policy.rules()[0], &request);
    match at_no_time.with_exceptions([&exception]).step() {
        RuleStep::Done(report) => assert!(fails(&report.outcome), "{:?}", report.outcome),
        step => panic!("{step:?}"),
    }
}

/// The result of a policy that refuses a Pod, with exceptions by which it may be exempt. The namespace `shop` is labelled
/// `tier: trial`.
fn with_exceptions(policy: &Policy, exceptions: &[&PolicyException]) -> RuleOutcome {
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let rule = &policy.rules()[0];
    let mut evaluation =
        Evaluation::start(policy, rule, &request).with_exceptions(exceptions.iter().copied());
    loop {
        let requests = match evaluation.step() {
            RuleStep::Done(report) => return report.outcome,
            RuleStep::Need(requests) => requests,
        };
        for request in requests {
            assert_eq!(request.variable, "namespaceObject");
            let path = crate::Call::Api {
                path: "/api/v1/namespaces/shop",
                data: None,
            };
            assert!(policy.permits("", &request.variable, path).is_ok());
            let namespace = json!({"metadata": {"name": "shop", "labels": {"tier": "trial"}}});
            evaluation.supply(request.id, Ok(namespace));
        }
    }
}

#[test]
fn a_condition_of_an_exception_sees_the_namespace_and_what_fails_exempts_nothing() {
    let named = "policyRefs: [{kind: ValidatingPolicy, name: p}]\n";
    let of = |expression: &str| {
        exception(&format!(
            "{named}matchConditions: [{{name: c, expression: \"{expression}\"}}]\n"
        ))
    };
    let ignoring = policy_of(
        "ValidatingPolicy",
        &format!("failurePolicy: Ignore\n{REQUIRE_APP}"),
    );
    let policy = policy_of("ValidatingPolicy", REQUIRE_APP);
    let trial = of("namespaceObject.metadata.labels.tier == 'trial'");
    let references: Vec<_> = trial.references().map(|one| one.name()).collect();
    assert_eq!(references, ["/v1/namespaces/?&"]);
    for policy in [&policy, &ignoring] {
        let outcome = with_exceptions(policy, &[&trial]);
        assert!(
            matches!(outcome, RuleOutcome::Skipped { .. }),
            "{outcome:?}"
        );
        let other = of("namespaceObject.metadata.labels.tier == 'paid'");
        let outcome = with_exceptions(policy, &[&other]);
        assert!(matches!(outcome, RuleOutcome::Fail { .. }), "{outcome:?}");
    }
    let broken = of("1 / 0 == 1");
    let outcome = with_exceptions(&policy, &[&broken]);
    assert!(matches!(outcome, RuleOutcome::Error(_)), "{outcome:?}");
    // Otherwise the error would admit what the policy denies.
    let outcome = with_exceptions(&ignoring, &[&broken]);
    assert!(matches!(outcome, RuleOutcome::Fail { .. }), "{outcome:?}");
}

#[test]
fn the_exception_of_the_highest_priority_says_what_is_reported() {
    let policy = policy_of("ValidatingPolicy", REQUIRE_APP);
    let of = |priority: &str, result: &str| {
        let manifest = json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "PolicyException",
            "metadata": {
                "name": "e", "namespace": "shop", "labels": {"polex.kyverno.io/priority": priority},
            },
            "spec": {
                "policyRefs": [{"kind": "ValidatingPolicy", "name": "p"}], "reportResult": result,
            },
        });
        PolicyException::compile(&manifest, crate::Driver::ALL).unwrap()
    };
    for (skips, passes, expected) in [("2", "1", "skip"), ("1", "2", "pass"), ("x", "", "pass")] {
        let (skips, passes) = (of(skips, "skip"), of(passes, "pass"));
        for both in [[&skips, &passes], [&passes, &skips]] {
            let found = match with_exceptions(&policy, &both) {
                RuleOutcome::Pass => "pass",
                RuleOutcome::Skipped { .. } => "skip",
                outcome => panic!("{outcome:?}"),
            };
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn an_exception_with_values_gives_them_to_expressions() {
    let spec = "matchConstraints:\n  resourceRules:\n  - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
                resources: [pods]}\nvalidations:\n- expression: object.metadata.name in exceptions.allowedValues\n";
    let policy = policy_of("ValidatingPolicy", spec);
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let of = |values: &str| {
        let spec = format!(
            "policyRefs: [{{kind: ValidatingPolicy, name: p}}]\nallowedValues: [{values}]\n"
        );
        let exception = exception(&spec);
        let evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
        match evaluation.with_exceptions([&exception]).step() {
            RuleStep::Done(report) => report.outcome,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(of("a, web"), RuleOutcome::Pass);
    assert!(matches!(of("a"), RuleOutcome::Fail { .. }));
}
