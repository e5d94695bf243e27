//! Configurations of policies that name very many kinds.

use anteroom_policy::PolicyKind;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use proptest::prelude::*;

use super::*;
use crate::registration::webhooks::NAMESPACE_WEBHOOKS_MAX;

/// Kinds of groups that nobody serves.
fn unserved(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers
        .map(|number| format!("g{number}.example.com/v1/Kind"))
        .collect()
}

/// A policy of a namespace, or of the cluster where it is empty.
fn naming(namespace: &str, kinds: &[String], failure: &str, seconds: u32) -> Value {
    let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
    let policy = policy(&kinds, &["CREATE"], failure, Some(seconds));
    match namespace {
        "" => policy,
        namespace => of_namespace(namespace, policy),
    }
}

/// A policy in CEL with so many rules of 32 groups and 32 resources, all of them others.
fn in_cel(namespace: &str, first: usize, rules: usize) -> Value {
    let rules = (first..first + rules).map(|rule| {
        let texts = |of: &str| -> Vec<_> { (0..32).map(|at| format!("{of}{rule}x{at}")).collect() };
        json!({
            "apiGroups": texts("g"), "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": texts("r"),
        })
    });
    let kind = match namespace {
        "" => PolicyKind::Validating,
        _ => PolicyKind::NamespacedValidating,
    };
    json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": kind.as_str(),
        "metadata": { "name": "p", "namespace": namespace },
        "spec": {
            "matchConstraints": { "resourceRules": rules.collect::<Vec<_>>() },
            "validations": [{ "expression": "true" }],
        },
    })
}

/// The policies, in order, whether they compile or not; each is named for its place.
fn set_of_all(policies: &[Value]) -> PolicySet {
    let manifests = policies.iter().enumerate().map(|(at, policy)| {
        let metadata = &policy["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let version = policy["apiVersion"].as_str().unwrap();
        let kind = PolicyKind::of_manifest(version, policy["kind"].as_str().unwrap());
        let key = kind.unwrap().key(namespace, &format!("{at:04}"));
        (key, anteroom_wire::body::encode_json(policy).unwrap())
    });
    PolicySet::build(&PolicySet::default(), manifests)
}

fn made(policies: &PolicySet) -> Configuration {
    let kinds = testing::kinds();
    let made = registration(None).configuration(Phase::Validation, policies, &kinds, "PEM", "");
    assert!(made.bytes() <= CONFIGURATION_BYTES_MAX, "{}", made.bytes());
    made
}

fn found<'c>(made: &'c Configuration, name: &str) -> Option<&'c MutatingWebhook> {
    let name = format!("{name}.validate.anteroom.svc");
    made.webhooks.iter().find(|webhook| webhook.name == name)
}

/// The rules of a webhook as group, version, resources and operations.
fn shown(made: &Configuration, name: &str) -> Vec<String> {
    let rules = found(made, name).and_then(|webhook| webhook.rules.as_ref());
    let list = |texts: &Option<Vec<String>>| texts.as_deref().unwrap_or_default().join(",");
    let shown = rules.into_iter().flatten().map(|rule| {
        let parts = [
            &rule.api_groups,
            &rule.api_versions,
            &rule.resources,
            &rule.operations,
        ];
        parts.map(list).join(" ")
    });
    shown.collect()
}

fn namespaces(made: &Configuration, name: &str) -> String {
    let selector = found(made, name).and_then(|webhook| webhook.namespace_selector.as_ref());
    let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
    let expression = &expressions.unwrap()[0];
    let values = expression.values.as_deref().unwrap_or_default();
    format!("{} {}", expression.operator, values.join(","))
}

/// Whatever the policies of a namespace name, the API server takes the configuration, and other namespaces keep their webhooks.
#[test]
fn policies_that_name_too_many_kinds_are_called_for_all_resources_of_their_namespaces() {
    let groups = (0..15).map(|at| unserved(2_000 * at..2_000 * (at + 1)));
    let mut policies: Vec<_> = groups
        .map(|kinds| naming("a", &kinds, "Fail", 10))
        .collect();
    // 64 rules of 32 x 32.
    policies.extend((0..32).map(|at| in_cel("b", 2 * at, 2)));
    let others = [
        naming("c", &["Service".to_owned()], "Fail", 10),
        naming("a", &["Pod/exec".to_owned()], "Fail", 10),
    ];
    policies.extend(others);
    let policies = set_of_all(&policies);
    assert_eq!(policies.counts(), (49, 0));
    let made = made(&policies);
    assert_eq!(shown(&made, "fail.c"), [" v1 services CREATE"]);
    assert_eq!(namespaces(&made, "fail.c"), "In c");
    assert_eq!(shown(&made, "fail.a"), [" v1 pods/exec CREATE"]);
    assert_eq!(shown(&made, "fail-all.a"), ["* * */* CREATE"]);
    assert_eq!(namespaces(&made, "fail-all.a"), "In a,b");
    assert_eq!(
        made.webhooks.len(),
        5,
        "with those of policies and of the proof"
    );
}

/// A tenant that names another version of a resource takes no conversions of its objects from others.
#[test]
fn namespaces_that_share_a_webhook_name_the_same_versions() {
    let ingress = |version: &str| format!("networking.k8s.io/{version}/Ingress");
    // As many namespaces as have webhooks of their own, and more, with fewer resources.
    let mut policies: Vec<_> = (0..150)
        .map(|at| naming(&format!("few{at}"), &unserved(at..at + 1), "Fail", 10))
        .collect();
    for (at, (namespace, version)) in [
        ("old", "v1beta1"),
        ("other-old", "v1beta1"),
        ("new", "v1"),
        ("both", "*"),
        ("none", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let mut kinds = unserved(200 + 5 * at..205 + 5 * at);
        kinds.extend((!version.is_empty()).then(|| ingress(version)));
        policies.push(naming(namespace, &kinds, "Fail", 10));
    }
    let made = made(&set_of_all(&policies));
    assert!(made.webhooks.len() <= 2 + NAMESPACE_WEBHOOKS_MAX);
    let versions = |namespace: &str| -> Vec<String> {
        let is_called = |webhook: &&MutatingWebhook| {
            let selector = webhook.namespace_selector.as_ref();
            let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
            let mut values = expressions
                .into_iter()
                .flatten()
                .flat_map(|one| &one.values);
            values.any(|values| values.iter().any(|value| value == namespace))
        };
        let called: Vec<_> = made.webhooks.iter().filter(is_called).collect();
        assert_eq!(called.len(), 1, "{namespace}");
        let rules = called[0].rules.iter().flatten();
        let ingresses = rules.filter(|rule| {
            rule.resources
                .as_ref()
                .is_some_and(|resources| resources.iter().any(|name| name == "ingresses"))
        });
        ingresses
            .flat_map(|rule| rule.api_versions.clone().unwrap_or_default())
            .collect()
    };
    assert_eq!(versions("old"), ["v1beta1"]);
    assert_eq!(versions("other-old"), ["v1beta1"]);
    assert_eq!(versions("new"), ["v1"]);
    assert_eq!(versions("both"), ["v1", "v1beta1"]);
    assert_eq!(versions("none"), [""; 0]);
}

/// Cluster-wide policies are not limited to a namespace, and the configuration is not less so.
#[test]
fn cluster_wide_policies_that_name_too_many_kinds_are_called_for_all_resources() {
    let groups = (0..15).map(|at| unserved(2_000 * at..2_000 * (at + 1)));
    let mut policies: Vec<_> = (1..)
        .zip(groups)
        .map(|(seconds, kinds)| naming("", &kinds, "Fail", seconds))
        .collect();
    policies.extend((0..32).map(|at| in_cel("", 2 * at, 2)));
    policies.push(naming("", &["Service".to_owned()], "Fail", 7));
    policies.push(naming("c", &["Service".to_owned()], "Ignore", 7));
    let made = made(&set_of_all(&policies));
    assert_eq!(shown(&made, "fail-all"), ["* * */* CREATE"]);
    assert_eq!(namespaces(&made, "fail-all"), "NotIn anteroom,kube-system");
    // Policies of all timeouts share a webhook, with the longest of those that fit.
    let of_services = |seconds: &u32| {
        let shown = shown(&made, &format!("fail-{seconds}"));
        shown.contains(&" v1 services CREATE".to_owned())
    };
    assert_eq!((1..=30).filter(of_services).count(), 1);
    assert_eq!(shown(&made, "ignore.c"), [" v1 services CREATE"]);
}

#[test]
fn a_policy_that_does_not_compile_for_its_kinds_is_registered_for_few_of_them() {
    for policy in [
        naming("a", &unserved(0..30_000), "Fail", 10),
        in_cel("a", 0, 64),
        naming("a", &["g".repeat(400_000) + ".com/v1/K"], "Fail", 10),
        naming("", &["g".repeat(900_000) + ".com/v1/K"], "Fail", 10),
    ] {
        let policies = set_of_all(&[policy]);
        assert_eq!(policies.counts(), (0, 1));
        let made = made(&policies);
        assert!(
            made.webhooks
                .iter()
                .any(|webhook| webhook.name.starts_with("ignore")),
            "{:?}",
            made.webhooks
        );
    }
}

/// The name of the webhook whose rules are this one.
fn name_of(made: &Configuration, rule: &str) -> String {
    let names = made.webhooks.iter().map(|webhook| &webhook.name);
    let names = names.filter_map(|name| name.strip_suffix(".validate.anteroom.svc"));
    let mut names = names.filter(|name| shown(made, name) == [rule]);
    names.next().unwrap().to_owned()
}

/// A policy that names another version of a resource, or all, takes no conversions from others.
#[test]
fn policies_that_name_some_versions_share_no_webhook_with_others_that_name_other_versions() {
    let in_cel = |namespace: &str, version: &str| {
        let kind = match namespace {
            "" => PolicyKind::Validating,
            _ => PolicyKind::NamespacedValidating,
        };
        json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": kind.as_str(),
            "metadata": { "name": "p", "namespace": namespace },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["networking.k8s.io"], "apiVersions": [version], "operations": ["CREATE"],
                    "resources": ["ingresses"],
                }] },
                "validations": [{ "expression": "true" }],
            },
        })
    };
    let all = |namespace: &str, kind: &str| naming(namespace, &[kind.to_owned()], "Fail", 10);
    let policies = [
        all("", "*"),
        in_cel("", "v1"),
        in_cel("", "v1beta1"),
        in_cel("", "*"),
        all("a", "Ingress"),
        in_cel("a", "v1"),
        in_cel("b", "v1beta1"),
        in_cel("b", "v1beta2"),
    ];
    let made = made(&set_of_all(&policies));
    let ingresses = |version: &str| format!("networking.k8s.io {version} ingresses CREATE");
    let [v1, v1beta1] = ["v1", "v1beta1"].map(|version| name_of(&made, &ingresses(version)));
    let of = |policy: &str| -> Vec<String> {
        let assigned = made.assignment.policies();
        let assigned = assigned.into_iter();
        let of_policy = assigned.filter(|(key, _)| key.name.ends_with(policy));
        of_policy.map(|(_, webhook)| webhook.to_owned()).collect()
    };
    for (policy, expected) in [
        ("0000", "fail-10"),
        ("0001", &*v1),
        ("0002", &*v1beta1),
        ("0003", "fail-10"),
        // The namespace is in the selector of the cluster's webhooks too.
        ("0004", "fail-10"),
        ("0005", &*v1),
        ("0006", &*v1beta1),
        // No named version is served, so the API server converts nothing.
        ("0007", "fail-10"),
    ] {
        assert_eq!(of(policy), [expected], "{policy}");
    }
}

/// The API server refuses a configuration in which two webhooks have one name. Tenants choose what names are made of.
#[test]
fn webhooks_that_would_have_one_name_are_numbered() {
    let of = |namespace: &str, failure: &str| naming(namespace, &["Pod".to_owned()], failure, 10);
    let set = set_of_all(&[of("", "Fail"), of("a", "Fail"), of("a", "Ignore")]);
    let alone = || webhooks::of_policies(Phase::Validation, &set, &testing::kinds());
    let mut all: Vec<_> = alone().into_iter().chain(alone()).chain(alone()).collect();
    webhooks::number(&mut all);
    let names: Vec<_> = all.iter().map(webhooks::ObjectWebhook::name).collect();
    assert_eq!(
        names,
        [
            "fail-10",
            "fail.a",
            "ignore.a",
            "fail-10-2",
            "fail-2.a",
            "ignore-2.a",
            "fail-10-3",
            "fail-3.a",
            "ignore-3.a",
        ]
    );
}

/// The API server converts a request to a version that a webhook lists only if no rule of the webhook takes another version.
#[test]
fn a_kind_that_is_named_in_some_versions_stays_listed_for_requests_to_be_converted() {
    let mut kinds = unserved(0..1_000);
    kinds.extend(["networking.k8s.io/v1/Ingress", "Service"].map(str::to_owned));
    let policies = set_of_all(&[
        naming("a", &["Pod/exec".to_owned()], "Fail", 10),
        naming("a", &kinds, "Fail", 10),
    ]);
    let made = made(&policies);
    let in_v1 = name_of(&made, "networking.k8s.io v1 ingresses CREATE");
    assert_eq!(shown(&made, "fail.a"), [" v1 pods/exec CREATE"]);
    assert_eq!(
        shown(&made, &in_v1),
        ["networking.k8s.io v1 ingresses CREATE"]
    );
    assert_eq!(shown(&made, "fail-all.a"), ["* * */* CREATE"]);
    let assigned: Vec<_> = made
        .assignment
        .policies()
        .into_iter()
        .map(|(policy, webhook)| format!("{} {webhook}", policy.name))
        .collect();
    let in_v1 = format!("0001 {in_v1}");
    assert_eq!(assigned, ["0000 fail.a", "0001 fail-all.a", &in_v1]);
}

/// Returns whether a rule takes all requests for a resource, which may have wildcards.
fn takes(rule: &RuleWithOperations, name: &str, operation: &str) -> bool {
    let has = |texts: &Option<Vec<String>>, text: &str| {
        let mut texts = texts.iter().flatten();
        texts.any(|one| one == text || one == "*")
    };
    let parts: Vec<_> = name.splitn(3, ' ').collect();
    let [group, version, resource] = parts[..] else {
        panic!("{name}");
    };
    let mut resources = rule.resources.iter().flatten();
    let takes = |listed: &String| {
        listed == resource || listed == "*/*" || (listed == "*" && !resource.contains('/'))
    };
    has(&rule.api_groups, group)
        && has(&rule.api_versions, version)
        && rule.operations.iter().flatten().any(|one| one == operation)
        && resources.any(takes)
}

/// Returns whether a webhook is called for a namespace, or, where it is empty, for all that are not exempt.
fn reaches(webhook: &MutatingWebhook, namespace: &str) -> bool {
    let selector = webhook.namespace_selector.as_ref().unwrap();
    let expression = &selector.match_expressions.as_ref().unwrap()[0];
    let mut values = expression.values.iter().flatten();
    expression.operator == "NotIn" || values.any(|value| value == namespace)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The webhooks of a policy beside others take every request that the webhook of the policy alone takes.
    #[test]
    fn no_policy_is_called_for_less_than_alone(
        policies in proptest::collection::vec(
            (0..5_usize, 0..40_usize, 0..1_200_usize, any::<bool>(), 1..4_u32, any::<prop::sample::Index>()),
            1..40,
        ),
    ) {
        let served = [
            "Pod", "Service", "*", "*/*", "networking.k8s.io/v1/Ingress", "networking.k8s.io/v1beta1/Ingress", "Ing*",
        ];
        let policies: Vec<_> = policies
            .iter()
            .map(|(namespace, first, count, fails, seconds, kind)| {
                let namespace = ["", "a", "b", "c", "d"][*namespace];
                let mut kinds = unserved(1_000 * first..1_000 * first + count);
                kinds.push((*kind.get(&served)).to_owned());
                naming(namespace, &kinds, if *fails { "Fail" } else { "Ignore" }, *seconds)
            })
            .collect();
        let set = set_of_all(&policies);
        let made = made(&set);
        let names: std::collections::BTreeSet<_> = made.webhooks.iter().map(|one| &one.name).collect();
        prop_assert_eq!(names.len(), made.webhooks.len());
        for alone in webhooks::of_policies(Phase::Validation, &set, &testing::kinds()) {
            let key = &alone.policies[0];
            let assigned: Vec<_> = made.assignment.policies().into_iter()
                .filter(|(policy, _)| *policy == key)
                .filter_map(|(_, webhook)| found(&made, webhook))
                .filter(|webhook| reaches(webhook, &key.namespace))
                .collect();
            for (name, operations) in &alone.operations {
                let name = format!("{} {} {}", name.group, name.version, name.resource);
                for operation in operations {
                    let mut rules = assigned.iter().flat_map(|webhook| webhook.rules.iter().flatten());
                    let operation = operation.to_string();
                    prop_assert!(rules.any(|rule| takes(rule, &name, &operation)), "{key} {name}");
                }
            }
        }
    }
}
