//! Targets that an expression gives.

use super::*;

const BY_EXPRESSION: &str = r#"
evaluation: {mutateExisting: {enabled: true}}
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}
targetMatchConstraints:
  expression: "object.data.all == 'yes' ? resource.List('v1', 'configmaps', 'shop') : resource.Get('v1', 'configmaps', 'shop', object.data.follower)"
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}
targetMatchConditions:
- {name: follows, expression: "object.metadata.labels.role == 'follows'"}
mutations:
- jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/data/said', value: request.object.data.says}]"}
"#;

#[test]
fn the_objects_of_an_expression_are_read_anew_by_name() {
    let policy = policy_of("MutatingPolicy", BY_EXPRESSION);
    let rule = on_existing(&policy);
    assert!(!rule.runs_on_policy_update(), "nothing triggers it then");
    let of = |data: Value| {
        let object = config_map("leader", "leads", &data);
        let request = of_resource("UPDATE", CONFIG_MAP, &object);
        let evaluation = Evaluation::start(&policy, rule, &request).with_whole_facts();
        let (report, asked) = run_with(evaluation, |subject| {
            Ok(match subject {
                FactSubject::Api(api) if api.path.ends_with("/nothing") => {
                    return Err(FactError::LiveReadFailed {
                        code: 404,
                        message: "configmaps \"nothing\" not found".to_owned(),
                    });
                }
                // Parts of them, and old.
                FactSubject::Api(api) if api.path.ends_with("/configmaps") => json!({
                    "apiVersion": "v1", "kind": "ConfigMapList",
                    "items": [{"metadata": {"name": "a", "namespace": "shop"}},
                        {"metadata": {"name": "b", "namespace": "shop"}}]}),
                FactSubject::Api(_) => json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "a", "namespace": "shop"}}),
                FactSubject::Existing(objects) => {
                    let role = if objects.name == "b" {
                        "leads"
                    } else {
                        "follows"
                    };
                    let data = json!({"kept": "yes"});
                    json!({"items": [config_map(&objects.name, role, &data)]})
                }
                other => panic!("{other}"),
            })
        });
        let asked = asked.into_iter().filter_map(|subject| match subject {
            FactSubject::Existing(objects) => Some(objects),
            _ => None,
        });
        (report, asked.collect::<Vec<_>>())
    };
    let (report, asked) = of(json!({"all": "no", "follower": "a", "says": "hi"}));
    assert_eq!(asked.len(), 1);
    assert_eq!((&*asked[0].namespace, &*asked[0].name), ("shop", "a"));
    assert_eq!(
        (&*asked[0].kind, &*asked[0].resource),
        ("ConfigMap", "configmaps")
    );
    assert_eq!(
        report.changed[0].object["data"],
        json!({"kept": "yes", "said": "hi"})
    );
    let (report, asked) = of(json!({"all": "yes", "says": "hi"}));
    assert_eq!(asked.len(), 2);
    assert_eq!(
        names(&report.changed),
        ["a"],
        "`b` does not meet the condition"
    );
    let (report, asked) = of(json!({"all": "no", "follower": "nothing", "says": "hi"}));
    assert_eq!(asked, []);
    assert!(
        matches!(report.outcome, RuleOutcome::Skipped { .. }),
        "{report:?}"
    );
}

#[test]
fn an_expression_gives_no_objects_of_other_types_and_namespaces() {
    let of = |kind: &str, expression: &str| {
        let spec = BY_EXPRESSION.replace(
            "  expression: \"object.data.all == 'yes' ? resource.List('v1', 'configmaps', 'shop') : \
             resource.Get('v1', 'configmaps', 'shop', object.data.follower)\"",
            &format!("  expression: \"{expression}\""),
        );
        let spec = spec.replace(
            "resources: [configmaps]}\ntargetMatchConditions",
            "resources: [configmaps], resourceNames: [x]}\ntargetMatchConditions",
        );
        assert!(spec.contains("resourceNames"));
        let policy = policy_of(kind, &spec);
        let object = config_map("leader", "leads", &json!({"says": "hi"}));
        let request = of_resource("UPDATE", CONFIG_MAP, &object);
        let (report, asked) = run(&policy, &request, |_| json!({"items": []}));
        (report.outcome, asked.len())
    };
    let named = |kind: &str, namespace: &str| {
        format!(
            "{{'apiVersion': 'v1', 'kind': '{kind}', 'metadata': {{'name': 'x', 'namespace': '{namespace}'}}}}"
        )
    };
    let cluster = "MutatingPolicy";
    for (kind, expression, reads, says) in [
        (cluster, named("ConfigMap", "other"), 1, None),
        (
            cluster,
            format!("[{0}, {0}]", named("ConfigMap", "n")),
            1,
            None,
        ),
        (cluster, "null".to_owned(), 0, None),
        (cluster, named("Pod", "n"), 0, Some("no type that")),
        (
            cluster,
            named("ConfigMap", "n").replace("'v1'", "'v2'"),
            0,
            Some("no type that"),
        ),
        (
            cluster,
            named("ConfigMap", "n").replace("'x'", "'y'"),
            0,
            Some("no type that"),
        ),
        (
            cluster,
            "{'kind': 'ConfigMap'}".to_owned(),
            0,
            Some("gives no object"),
        ),
        (cluster, "'web'".to_owned(), 0, Some("gives no object")),
        // Others are changed all the same.
        (
            cluster,
            format!("[{}, {}]", named("Pod", "n"), named("ConfigMap", "n")),
            1,
            Some("no type that"),
        ),
        (
            "NamespacedMutatingPolicy",
            named("ConfigMap", "shop"),
            1,
            None,
        ),
        (
            "NamespacedMutatingPolicy",
            named("ConfigMap", "n"),
            0,
            Some("nothing outside it"),
        ),
    ] {
        let (outcome, asked) = of(kind, &expression);
        assert_eq!(asked, reads, "{expression}: {outcome:?}");
        match (says, &outcome) {
            (Some(says), RuleOutcome::Error(error)) => {
                assert!(error.to_string().contains(says), "{expression}: {error}");
            }
            (None, RuleOutcome::Skipped { .. }) => {}
            _ => panic!("{expression}: {outcome:?}"),
        }
    }
}
