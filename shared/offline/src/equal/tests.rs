use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::resource::Resource;

const CLASSIC: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: tags, annotations: {pod-policies.kyverno.io/autogen-controllers: "Deployment,DaemonSet,StatefulSet,ReplicaSet,Job,CronJob"}}
spec:
  validationFailureAction: Enforce
  rules:
    - name: no-latest
      match: {any: [{resources: {kinds: [Pod]}}]}
      exclude: {any: [{resources: {namespaces: [kube-system]}}]}
      validate:
        message: "no latest"
        allowExistingViolations: false
        pattern: {spec: {containers: [{image: "!*:latest"}]}}
"#;

const CEL: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: tags}
spec:
  validationActions: [Deny]
  autogen: {podControllers: {controllers: [deployments, daemonsets, statefulsets, replicasets, jobs, cronjobs]}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  matchConditions: [{name: own, expression: "object.metadata.namespace != 'kube-system'"}]
  validations:
    - {message: "no latest", expression: "object.spec.containers.all(c, !c.image.endsWith(':latest'))"}
"#;

fn side(text: &str) -> LoadedPolicies {
    let manifests = crate::documents::yaml(text).unwrap();
    LoadedPolicies::new(manifests, "a file").unwrap()
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
        "spec": {
            "containers": [
                {"name": "a", "image": "nginx:1.2", "ports": [{"containerPort": 80}]},
                {"name": "b", "image": "redis:7", "env": [{"name": "X", "value": "y"}]},
            ],
            "restartPolicy": "Always",
        },
    })
}

fn search() -> Search {
    Search {
        requests_max: 400,
        valid_only: true,
        operations: vec![Operation::Create],
        ..Search::default()
    }
}

fn compare_on(object: Value, old: &str, new: &str, search: &Search) -> Comparison {
    let scenario = Scenario::new(Vec::new(), Resource::new(object).into_iter().collect());
    equal(scenario, [side(old), side(new)], search, &|| false).unwrap()
}

fn run(old: &str, new: &str) -> Comparison {
    compare_on(pod(), old, new, &search())
}

/// The kinds of the differences that are found, each once.
fn kinds(found: &Comparison) -> BTreeSet<DifferenceKind> {
    found.differences.iter().map(|one| one.kind).collect()
}

#[test]
fn one_policy_in_two_languages_decides_alike() {
    let found = run(CLASSIC, CEL);
    assert!(found.requests > 100, "{}", found.requests);
    assert!(found.is_alike(), "{:#?}", found.differences);
    // A Pod without an image, or without containers, is an error in CEL; an API server takes none.
    let any = Search {
        valid_only: false,
        ..search()
    };
    let found = compare_on(pod(), CLASSIC, CEL, &any);
    assert!(kinds(&found).contains(&DifferenceKind::Error));
    assert!(found.differences.iter().all(|one| one.invalid));
}

#[test]
fn each_injected_difference_is_found_and_shrunk() {
    for (from, to, kind) in [
        ("!*:latest", "!*:newest", DifferenceKind::Judgement),
        ("!*:latest", "*:latest", DifferenceKind::Judgement),
        ("[{image:", "[{=(image):", DifferenceKind::Judgement),
        ("{image: ", "{name: a*, image: ", DifferenceKind::Judgement),
        (
            "spec: {containers",
            "=(metadata): {=(labels): {=(tier): '!back'}}, spec: {containers",
            DifferenceKind::Judgement,
        ),
        ("Action: Enforce", "Action: Audit", DifferenceKind::Action),
        (
            "[kube-system]",
            "[kube-system, other]",
            DifferenceKind::Match,
        ),
        ("[kube-system]", "['kube-*']", DifferenceKind::Match),
        (",StatefulSet,", ",", DifferenceKind::Autogen),
        (
            "      validate:",
            "      preconditions: {all: [{key: \"{{ request.object.metadata.labels.app || '' }}\", operator: NotEquals, value: free}]}\n      validate:",
            DifferenceKind::Condition,
        ),
    ] {
        assert!(CLASSIC.contains(from), "{from}");
        let search = Search {
            // An image has to be there.
            valid_only: from != "[{image:",
            ..search()
        };
        let found = compare_on(pod(), CLASSIC, &CLASSIC.replace(from, to), &search);
        let difference = found.differences.iter().find(|one| one.kind == kind);
        let Some(difference) = difference else {
            panic!("{from} -> {to}: {:#?}", found.differences);
        };
        let example = &difference.examples[0];
        let text = example.object.to_string();
        assert!(text.len() < 320, "{from} -> {to}: {text}");
        assert!(
            !text.contains("restartPolicy") && !text.contains("containerPort"),
            "{text}"
        );
        assert!(
            example.old.rules != example.new.rules || kind == DifferenceKind::Action,
            "{from} -> {to}"
        );
    }
}

#[test]
fn a_missing_guard_in_cel_is_an_error_that_is_named() {
    let rule = |condition: &str| CEL.replace("!c.image.endsWith(':latest')", condition);
    let guarded = rule("!has(c.imagePullPolicy) || c.imagePullPolicy != 'Never'");
    let bare = rule("c.imagePullPolicy != 'Never'");
    let found = run(&guarded, &bare);
    assert_eq!(
        kinds(&found),
        BTreeSet::from([DifferenceKind::Error]),
        "{:#?}",
        found.differences
    );
    let example = &found.differences[0].examples[0];
    assert_eq!(example.new.decision, Decision::RefusedByError);
    assert_eq!(example.old.decision, Decision::Admitted);
    let containers = example.object["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1, "{containers:?}");
    let ignoring = bare.replace(
        "  validationActions",
        "  failurePolicy: Ignore\n  validationActions",
    );
    let found = run(&ignoring, &bare);
    assert_eq!(
        kinds(&found),
        BTreeSet::from([DifferenceKind::FailurePolicy]),
        "{:#?}",
        found.differences
    );
}

#[test]
fn operations_and_existing_violations_differ_where_they_are_asked_about() {
    let all = Search {
        operations: Search::default().operations,
        ..search()
    };
    let object = || {
        let mut pod = pod();
        pod["spec"]["containers"][0]["image"] = "nginx:latest".into();
        pod
    };
    let lenient = CLASSIC.replace(
        "allowExistingViolations: false",
        "allowExistingViolations: true",
    );
    let found = compare_on(object(), CLASSIC, &lenient, &all);
    assert_eq!(
        kinds(&found),
        BTreeSet::from([DifferenceKind::ExistingViolation])
    );
    let example = &found.differences[0].examples[0];
    assert_eq!(example.operation, "UPDATE");
    assert_eq!(example.old_object, None, "the same before");
    let created = CEL.replace("[CREATE, UPDATE]", "[CREATE]");
    let found = compare_on(object(), CEL, &created, &all);
    assert!(
        kinds(&found).contains(&DifferenceKind::Match),
        "{:#?}",
        found.differences
    );
}

const MUTATION: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  rules:
    - name: label
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate: {patchStrategicMerge: {metadata: {labels: {+(team): a}}}}
"#;

#[test]
fn changes_of_objects_are_compared() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}});
    let found = compare_on(map.clone(), MUTATION, MUTATION, &search());
    assert!(found.is_alike());
    let found = compare_on(
        map.clone(),
        MUTATION,
        &MUTATION.replace("team): a", "team): b"),
        &search(),
    );
    assert_eq!(kinds(&found), BTreeSet::from([DifferenceKind::Mutation]));
    let example = &found.differences[0].examples[0];
    assert_eq!(example.object["data"], Value::Null, "{}", example.object);
    let patched =
        |outcome: &Outcome| outcome.patched.clone().unwrap()["metadata"]["labels"].clone();
    assert_eq!(
        (patched(&example.old), patched(&example.new)),
        (json!({"team": "a"}), json!({"team": "b"}))
    );
    // It only differs where there is a label already.
    let found = compare_on(
        map,
        MUTATION,
        &MUTATION.replace("+(team)", "team"),
        &search(),
    );
    assert_eq!(found.differences.len(), 1, "{:#?}", found.differences);
}

#[test]
fn coverage_says_which_rules_were_hardly_tried() {
    let found = run(CLASSIC, CEL);
    for own in found
        .old
        .iter()
        .filter(|own| own.rule == "no-latest")
        .chain(&found.new)
    {
        assert!(own.pass > 0 && own.fail > 0, "{own:?}");
        assert_eq!(own.gap(), None);
    }
    assert!(found.new[0].by_validation["0"] > 0);
    let other = CLASSIC.replace("kinds: [Pod]", "kinds: [example.com/v1/*]");
    let found = run(&other, &other);
    assert_eq!(found.old[0].gap(), Some("it spoke of no request"));
    let satisfied = CLASSIC.replace("!*:latest", "*");
    let found = run(&satisfied, &satisfied);
    assert_eq!(found.old[0].gap(), Some("no request violated it"));
}

#[test]
fn without_objects_bare_ones_are_made_of_the_kinds_that_rules_name() {
    let run = |old: &str| {
        equal(
            Scenario::default(),
            [side(old), side(CEL)],
            &search(),
            &|| false,
        )
    };
    let found = run(&CLASSIC.replace("!*:latest", "!*:newest")).unwrap();
    assert!(kinds(&found).contains(&DifferenceKind::Judgement));
    assert_eq!(found.objects_given, 0);
    let unknown = |text: &str| side(&text.replace("[Pod]", "['*']"));
    let found = equal(
        Scenario::default(),
        [unknown(CLASSIC), unknown(CLASSIC)],
        &search(),
        &|| false,
    );
    assert!(matches!(found, Err(EqualError::NoObject)), "{found:?}");
}

#[test]
fn the_limits_of_a_search_hold_at_their_edges() {
    for max in [1, 7, 50] {
        let search = Search {
            requests_max: max,
            ..search()
        };
        let found = compare_on(pod(), CLASSIC, CEL, &search);
        assert_eq!(
            (found.requests, found.stopped),
            (max, Some(Stopped::Requests))
        );
    }
    let scenario = || Scenario::new(Vec::new(), vec![Resource::new(pod()).unwrap()]);
    let found = equal(scenario(), [side(CLASSIC), side(CEL)], &search(), &|| true).unwrap();
    assert_eq!((found.requests, found.stopped), (0, Some(Stopped::Time)));
}

#[test]
fn the_same_seed_repeats_a_search_and_a_different_seed_changes_it() {
    let run = |seed| {
        let search = Search { seed, ..search() };
        let found = compare_on(
            pod(),
            CLASSIC,
            &CLASSIC.replace("!*:latest", "!*:new*"),
            &search,
        );
        serde_json::to_value(found).unwrap()
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

#[test]
fn policies_that_cannot_be_compared_are_refused_with_the_reason() {
    let refused = |text: &str| {
        let manifests = crate::documents::yaml(text).unwrap();
        LoadedPolicies::new(manifests, "new.yaml")
            .unwrap_err()
            .to_string()
    };
    for (text, says) in [
        (
            "{kind: ConfigMap, apiVersion: v1}",
            "there is no policy that is run here in new.yaml",
        ),
        (
            &*CEL.replace("c.image.endsWith", "d.image.endsWith"),
            "policy tags of new.yaml cannot be compiled: AR",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(says), "{error}");
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        "[a:]{0,3}|nginx:latest".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let key = "containers|image|name|x";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_policy_is_equal_to_itself_on_any_object(spec in json_value(), labels in json_value()) {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": labels}, "spec": spec,
        });
        let search = Search { requests_max: 60, ..Search::default() };
        for policy in [CLASSIC, CEL, MUTATION] {
            let found = compare_on(object.clone(), policy, policy, &search);
            prop_assert!(found.is_alike() && found.differences.is_empty());
        }
    }

    /// What shrinking leaves shows a difference of the same kind by itself.
    #[test]
    fn a_shrunk_example_is_a_difference(spec in json_value()) {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
        let search = Search { requests_max: 40, operations: vec![Operation::Create], ..Search::default() };
        let found = compare_on(object, CLASSIC, CEL, &search);
        for difference in &found.differences {
            for example in &difference.examples {
                let only = Search { requests_max: 1, ..search.clone() };
                let again = compare_on(example.object.clone(), CLASSIC, CEL, &only);
                prop_assert_eq!(again.differences.len(), usize::from(example.user.is_none()));
                prop_assert_eq!(again.differences.first().map(|one| one.kind), Some(difference.kind));
            }
        }
    }
}
