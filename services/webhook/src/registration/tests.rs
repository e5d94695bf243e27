mod kinds;
mod order;
mod sizes;

use anteroom_model::ObjectKey;
use serde_json::{Value, json};

use super::*;
use anteroom_engine::testing;

fn registration(url: Option<&str>) -> Registration {
    Registration {
        name: "anteroom".into(),
        address: match url {
            Some(url) => Address::Url(url.into()),
            None => Address::Service {
                name: "anteroom-webhook".into(),
                namespace: "anteroom".into(),
                port: 443,
            },
        },
        own_namespace: "anteroom".into(),
        exempt_namespaces: vec!["anteroom".into(), "kube-system".into()],
        object_metadata: ObjectMetadata::default(),
        is_shadow: false,
    }
}

fn policy(kinds: &[&str], operations: &[&str], failure: &str, seconds: Option<u32>) -> Value {
    let mut resources = json!({ "kinds": kinds });
    if !operations.is_empty() {
        resources["operations"] = json!(operations);
    }
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": {
            "failurePolicy": failure,
            "webhookTimeoutSeconds": seconds,
            "rules": [{
                "name": "r",
                "match": { "any": [{ "resources": resources }] },
                "validate": { "message": "m", "deny": {} },
            }],
        },
    })
}

fn configuration(url: Option<&str>, policies: &[Value]) -> Value {
    configuration_of(Phase::Validation, url, policies)
}

fn configuration_of(phase: Phase, url: Option<&str>, policies: &[Value]) -> Value {
    let made = registration(url).configuration(phase, &set(policies), &testing::kinds(), "PEM", "");
    let id = made.id.clone();
    assert_eq!(id.len(), 32);
    let mut made = serde_json::to_value(made.object()).unwrap();
    // The last is the proof's: see below.
    let last = made["webhooks"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(last["name"], proof::NAME);
    // Every path of objects names the configuration.
    let made = made.to_string().replace(&id, "ID");
    serde_json::from_str(&made).unwrap()
}

/// The policies, in order; each is named for its place.
fn set(policies: &[Value]) -> PolicySet {
    let manifests = policies.iter().enumerate().map(|(at, policy)| {
        let body = anteroom_wire::body::encode_json(policy).unwrap();
        let namespace = policy["metadata"]["namespace"].as_str().unwrap_or_default();
        (ObjectKey::new(namespace, at.to_string()), body)
    });
    let set = PolicySet::build(&PolicySet::default(), manifests);
    assert_eq!(set.counts().1, 0, "{set:?}");
    set
}

/// The same policy, of a namespace.
fn of_namespace(namespace: &str, mut policy: Value) -> Value {
    policy["kind"] = "Policy".into();
    policy["metadata"]["namespace"] = namespace.into();
    policy
}

/// The identifier of a configuration is a hash of its content.
#[test]
fn each_configuration_can_be_proven() {
    let probe = |phase: Phase, kinds: &[&str]| {
        let set = set(&[policy(kinds, &[], "Fail", None)]);
        let made = registration(None).configuration(phase, &set, &testing::kinds(), "PEM", "");
        let probe = serde_json::to_value(made.webhooks.last()).unwrap();
        let labels = &probe["objectSelector"]["matchLabels"];
        assert_eq!(labels["anteroom.dev/probe"], *made.id, "{probe}");
        made.id
    };
    let of = |kinds: &[&str]| probe(Phase::Validation, kinds);
    let (pods, services) = (of(&["Pod"]), of(&["Service"]));
    assert!(!pods.is_empty());
    assert_ne!(pods, services);
    assert_eq!(of(&["Pod"]), pods);
    assert_ne!(probe(Phase::Mutation, &["Pod"]), pods);
}

/// All webhooks but the last, through which policies themselves are admitted.
fn of_objects(made: &Value) -> &[Value] {
    let (last, others) = made["webhooks"].as_array().unwrap().split_last().unwrap();
    assert_eq!(last["name"], POLICIES);
    others
}

fn rules(policies: &[Value]) -> Vec<String> {
    let made = configuration(None, policies);
    let webhooks = of_objects(&made);
    webhooks
        .iter()
        .flat_map(|webhook| webhook["rules"].as_array().unwrap())
        .map(|rule| {
            let list = |field: &str| {
                let values = rule[field].as_array().unwrap();
                let texts = values.iter().map(|value| value.as_str().unwrap());
                texts.collect::<Vec<_>>().join(",")
            };
            let (group, version) = (list("apiGroups"), list("apiVersions"));
            format!(
                "{group}/{version} {} {}",
                list("resources"),
                list("operations")
            )
        })
        .collect()
}

#[test]
fn a_policy_becomes_a_webhook_of_the_validating_configuration() {
    let mut made = configuration(None, &[policy(&["Service"], &["CREATE"], "Fail", None)]);
    made["webhooks"] = of_objects(&made).into();
    assert_eq!(
        made,
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {
                "name": "anteroom",
                "labels": { "app.kubernetes.io/managed-by": "anteroom-webhook" },
            },
            "webhooks": [{
                "name": "fail-10.validate.anteroom.svc",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "caBundle": "UEVN",
                    "service": {
                        "name": "anteroom-webhook", "namespace": "anteroom", "port": 443,
                        "path": "/validate/ID/fail-10",
                    },
                },
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": { "matchExpressions": [{
                    "key": "kubernetes.io/metadata.name", "operator": "NotIn",
                    "values": ["anteroom", "kube-system"],
                }] },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["services"], "scope": "*",
                }],
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }],
        })
    );
}

/// Policies are judged when they are written, and nobody is kept from writing one where we do
/// not answer.
#[test]
fn policies_themselves_are_admitted_by_the_last() {
    let made = configuration(Some("https://127.0.0.1:9443"), &[]);
    assert_eq!(
        made["webhooks"],
        json!([{
            "name": "policies.anteroom.svc",
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "caBundle": "UEVN", "url": "https://127.0.0.1:9443/policies" },
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "rules": [{
                "apiGroups": ["kyverno.io"], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["clusterpolicies", "policies"], "scope": "*",
            }, {
                "apiGroups": ["kyverno.io"], "apiVersions": ["v2", "v2beta1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["policyexceptions"], "scope": "*",
            }, {
                "apiGroups": ["policies.kyverno.io"], "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [
                    "validatingpolicies", "namespacedvalidatingpolicies", "mutatingpolicies",
                    "namespacedmutatingpolicies", "policyexceptions",
                ],
                "scope": "*",
            }],
            "sideEffects": "None",
            "timeoutSeconds": 5,
        }])
    );
}

#[test]
fn a_shadow_is_passed_over_where_it_fails() {
    let policies = set(&[policy(&["Pod"], &[], "Fail", None)]);
    let shadow = Registration {
        is_shadow: true,
        ..registration(None)
    };
    for (registration, expected) in [(registration(None), "Fail"), (shadow, "Ignore")] {
        let kinds = testing::kinds();
        let made = registration.configuration(Phase::Validation, &policies, &kinds, "", "");
        let of_objects = made
            .webhooks
            .iter()
            .find(|webhook| webhook.name.contains(".validate."));
        assert_eq!(
            of_objects.unwrap().failure_policy.as_deref(),
            Some(expected)
        );
    }
}

#[test]
fn policies_are_grouped_by_failure_policy_and_timeout() {
    let made = configuration(
        Some("https://127.0.0.1:9443"),
        &[
            policy(&["Pod"], &["CREATE"], "Fail", Some(30)),
            policy(&["Pod"], &["CREATE"], "Ignore", None),
            policy(&["Service"], &["CREATE"], "Fail", Some(30)),
            policy(&["Service"], &["CREATE"], "Fail", None),
        ],
    );
    let urls: Vec<_> = of_objects(&made)
        .iter()
        .map(|webhook| webhook["clientConfig"]["url"].as_str().unwrap())
        .collect();
    assert_eq!(
        urls,
        [
            "https://127.0.0.1:9443/validate/ID/fail-10",
            "https://127.0.0.1:9443/validate/ID/fail-30",
            "https://127.0.0.1:9443/validate/ID/ignore-10",
        ]
    );
}

#[test]
fn operations_of_several_policies_on_one_resource_are_one_rule() {
    let policies = [
        policy(&["Service"], &["DELETE"], "Fail", None),
        policy(&["Service"], &["CREATE"], "Fail", None),
    ];
    assert_eq!(rules(&policies), ["/v1 services CREATE,DELETE"]);
}

#[test]
fn without_policies_or_kinds_there_is_no_webhook_of_objects() {
    let none: &[Value] = &[];
    assert_eq!(of_objects(&configuration(None, &[])), none);
    let unknown = [policy(&["Widget"], &["CREATE"], "Fail", None)];
    assert_eq!(of_objects(&configuration(None, &unknown)), none);
}

/// Returns the policy as a mutate rule instead of a validate rule.
fn changing(mut policy: Value) -> Value {
    let rule = policy["spec"]["rules"][0].as_object_mut().unwrap();
    rule.remove("validate");
    let patch = json!({ "patchStrategicMerge": { "metadata": { "labels": { "a": "b" } } } });
    rule.insert("mutate".to_owned(), patch);
    policy
}

#[test]
fn mutate_rules_are_in_the_mutating_configuration_alone() {
    let policies = [changing(policy(&["Service"], &[], "Fail", None))];
    let none: &[Value] = &[];
    assert_eq!(of_objects(&configuration(None, &policies)), none);
    let made = configuration_of(Phase::Mutation, None, &policies);
    assert_eq!(
        made,
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {
                "name": "anteroom",
                "labels": { "app.kubernetes.io/managed-by": "anteroom-webhook" },
            },
            "webhooks": [{
                "name": "fail-10.mutate.anteroom.svc",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "caBundle": "UEVN",
                    "service": {
                        "name": "anteroom-webhook", "namespace": "anteroom", "port": 443,
                        "path": "/mutate/ID/fail-10",
                    },
                },
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": { "matchExpressions": [{
                    "key": "kubernetes.io/metadata.name", "operator": "NotIn",
                    "values": ["anteroom", "kube-system"],
                }] },
                "reinvocationPolicy": "IfNeeded",
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["services"], "scope": "*",
                }],
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }],
        })
    );
    let judged = [policy(&["Service"], &[], "Fail", None)];
    assert_eq!(
        configuration_of(Phase::Mutation, None, &judged)["webhooks"],
        json!([])
    );
}

/// Conditions are evaluated here: what one policy says is in nobody's way at the API server.
#[test]
fn policies_with_match_conditions_share_the_webhook_of_their_group() {
    let services = || policy(&["Service"], &["CREATE"], "Fail", None);
    let mut conditional = services();
    conditional["spec"]["webhookConfiguration"] = json!({
        "matchConditions": [{ "name": "c", "expression": "object.x == 1" }],
    });
    for (conditional, plain, phase) in [
        (conditional.clone(), services(), Phase::Validation),
        (changing(conditional), changing(services()), Phase::Mutation),
    ] {
        let made = configuration_of(phase, None, &[conditional]);
        assert_eq!(made, configuration_of(phase, None, &[plain]));
        assert!(!made.to_string().contains("matchConditions"), "{made}");
    }
}

/// The API server does not even send requests from these namespaces.
#[test]
fn namespaces_that_are_filtered_whole_are_exempt() {
    let exempt = |rules: &str| {
        let rules = ExemptionRules::parse(rules).unwrap();
        registration(None)
            .exempting(&rules)
            .exempt_namespaces
            .join(" ")
    };
    let usual = "anteroom kube-node-lease kube-public kube-system";
    assert_eq!(exempt("{}"), usual);
    assert_eq!(exempt("resourceFilters: []"), "anteroom kube-system");
    let filters = "resourceFilters: '[*/*,a,*][*,b,*][*/*,c*,*][*/*,kube-system,*][Pod,d,*]'";
    assert_eq!(exempt(filters), "a anteroom kube-system");
    let nowhere_else = "{exemptNamespaces: [], resourceFilters: []}";
    assert_eq!(exempt(nowhere_else), "anteroom");
}

/// The name of each webhook of objects, with its namespaces, the scope of its rules and its timeout.
fn reach(policies: &[Value]) -> Vec<String> {
    let made = configuration(None, policies);
    let webhook = |webhook: &Value| {
        let selector = &webhook["namespaceSelector"]["matchExpressions"][0];
        let values = selector["values"].as_array().unwrap();
        let values: Vec<_> = values.iter().map(|value| value.as_str().unwrap()).collect();
        let operator = selector["operator"].as_str().unwrap();
        let rules = webhook["rules"].as_array().unwrap();
        let scopes: BTreeSet<_> = rules
            .iter()
            .map(|rule| rule["scope"].as_str().unwrap())
            .collect();
        let spares = webhook.get("matchConditions").is_some();
        assert_eq!(spares, operator == "In", "{webhook}");
        let name = webhook["name"].as_str().unwrap();
        let name = name.strip_suffix(".validate.anteroom.svc").unwrap();
        let (values, seconds) = (values.join(","), &webhook["timeoutSeconds"]);
        format!("{name} {operator} {values} {scopes:?} {seconds}")
    };
    of_objects(&made).iter().map(webhook).collect()
}

/// No other namespace, and nothing that lives in none, is sent to the webhook for it.
#[test]
fn a_policy_of_a_namespace_is_registered_for_its_namespace_alone() {
    let everything = policy(&["*/*"], &[], "Fail", Some(1));
    assert_eq!(
        reach(&[of_namespace("a", everything)]),
        ["fail.a In a {\"Namespaced\"} 1"]
    );
}

#[test]
fn policies_of_one_namespace_share_a_webhook_of_their_failure_policy() {
    let all: Vec<_> = (1..=30)
        .flat_map(|seconds| {
            ["Fail", "Ignore"].map(|failure| {
                of_namespace("a", policy(&["Pod"], &["CREATE"], failure, Some(seconds)))
            })
        })
        .collect();
    assert_eq!(
        reach(&all),
        [
            "fail.a In a {\"Namespaced\"} 30",
            "ignore.a In a {\"Namespaced\"} 30",
        ]
    );
}

#[test]
fn namespaces_with_the_same_rules_share_a_webhook() {
    let services = |namespace, seconds| {
        of_namespace(
            namespace,
            policy(&["Service"], &["CREATE"], "Fail", seconds),
        )
    };
    assert_eq!(
        reach(&[
            services("c", None),
            services("a", None),
            services("b", Some(30)),
            of_namespace("d", policy(&["Pod"], &["CREATE"], "Fail", None)),
            // No policy decides there.
            services("kube-system", None),
        ]),
        [
            "fail.a In a,c {\"Namespaced\"} 10",
            "fail.b In b {\"Namespaced\"} 30",
            "fail.d In d {\"Namespaced\"} 10",
        ]
    );
}

#[test]
fn a_policy_of_a_namespace_needs_no_webhook_where_one_is_called_anyway() {
    let of = |kinds: &[&str], operations: &[&str], failure: &str, seconds| {
        of_namespace("a", policy(kinds, operations, failure, seconds))
    };
    let (own, cluster) = (
        "fail.a In a {\"Namespaced\"} 10",
        "fail-10 NotIn anteroom,kube-system {\"*\"} 10",
    );
    for (whole, tenant, expected) in [
        (
            &["Service"][..],
            of(&["Service"], &["CREATE"], "Fail", None),
            &[cluster][..],
        ),
        (
            &["*"],
            of(&["Service", "Pod"], &["CREATE"], "Fail", None),
            &[cluster],
        ),
        (
            &["*/*"],
            of(&["Pod/exec"], &["CREATE"], "Fail", None),
            &[cluster],
        ),
        (
            &["*"],
            of(&["Pod/exec"], &["CREATE"], "Fail", None),
            &[cluster, own],
        ),
        (
            &["Service"],
            of(&["Service"], &["DELETE"], "Fail", None),
            &[cluster, own],
        ),
        (
            &["Service"],
            of(&["Pod"], &["CREATE"], "Fail", None),
            &[cluster, own],
        ),
        (
            &["Service"],
            of(&["Service"], &["CREATE"], "Fail", Some(30)),
            &[cluster, "fail.a In a {\"Namespaced\"} 30"],
        ),
        (
            &["Service"],
            of(&["Service"], &["CREATE"], "Ignore", None),
            &[cluster, "ignore.a In a {\"Namespaced\"} 10"],
        ),
    ] {
        let whole = policy(whole, &["CREATE"], "Fail", None);
        assert_eq!(reach(&[whole, tenant.clone()]), expected, "{tenant}");
    }
}

/// Whatever tenants write, the API server takes the configuration, and no other namespace is in it.
#[test]
fn many_namespaces_share_what_is_left_of_the_webhooks() {
    let operations = ["CREATE", "UPDATE", "DELETE", "CONNECT"];
    let kinds = ["Service", "Pod", "Ingress", "Deployment", "*/*"];
    // A hundred and more that come to different rules.
    let tenants: Vec<_> = (1..16 * 31)
        .map(|at: usize| {
            let of = |all: &[&'static str], bits: usize| -> Vec<&'static str> {
                let picked = all.iter().enumerate();
                let picked = picked.filter(|(bit, _)| bits >> bit & 1 == 1);
                picked.map(|(_, one)| *one).collect()
            };
            let (operations, kinds) = (of(&operations, at % 15 + 1), of(&kinds, at / 15 + 1));
            of_namespace(
                &format!("tenant-{at:03}"),
                policy(&kinds, &operations, "Fail", None),
            )
        })
        .collect();
    let reached = reach(&tenants);
    assert!(
        reached.len() <= webhooks::NAMESPACE_WEBHOOKS_MAX,
        "{}",
        reached.len()
    );
    assert!(
        reached
            .iter()
            .all(|webhook| webhook.contains(" In tenant-"))
    );
    let named = |namespace: &Value| {
        let namespace = namespace.as_str().unwrap();
        reached
            .iter()
            .filter(|webhook| webhook.split([' ', ',']).any(|part| part == namespace))
            .count()
    };
    for tenant in &tenants {
        assert_eq!(named(&tenant["metadata"]["namespace"]), 1);
    }
    let made = registration(None).configuration(
        Phase::Validation,
        &set(&tenants),
        &testing::kinds(),
        &"x".repeat(20_000),
        "",
    );
    assert!(made.bytes() <= CONFIGURATION_BYTES_MAX, "{}", made.bytes());
    for (policy, webhook) in made.assignment.policies() {
        let webhook = made.assignment.position(webhook).unwrap();
        let selector = made.webhooks[webhook].namespace_selector.as_ref().unwrap();
        let values = selector.match_expressions.as_ref().unwrap()[0]
            .values
            .as_ref();
        assert!(
            values.unwrap().contains(&policy.namespace.to_string()),
            "{policy}"
        );
    }
}

#[test]
fn every_path_has_the_prefix_and_the_configuration_is_the_same_without() {
    let registration = registration(None);
    let set = set(&[policy(&["Pod"], &[], "Fail", None)]);
    let of = |prefix| {
        let phase = Phase::Validation;
        registration.configuration(phase, &set, &testing::kinds(), "PEM", prefix)
    };
    let (plain, secret) = (of(""), of("/r/x"));
    assert_eq!(plain.id, secret.id);
    assert_ne!(plain, secret);
    let id = &secret.id;
    let paths = secret.webhooks.iter().map(|webhook| {
        let service = webhook.client_config.service.as_ref().unwrap();
        service.path.clone().unwrap()
    });
    let fail = format!("/r/x/validate/{id}/fail-10");
    assert_eq!(
        paths.collect::<Vec<_>>(),
        [&*fail, "/r/x/policies", "/r/x/probe"]
    );
}
