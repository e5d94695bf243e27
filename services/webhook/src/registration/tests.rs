use anteroom_model::ObjectKey;
use serde_json::{Value, json};

use super::*;
use crate::kinds::tests as some_kinds;

fn registration(url: Option<&str>) -> Registration {
    Registration {
        name: "anteroom".into(),
        reach: match url {
            Some(url) => Reach::Url(url.into()),
            None => Reach::Service {
                name: "anteroom-webhook".into(),
                namespace: "anteroom".into(),
                port: 443,
            },
        },
        exempt_namespaces: vec!["anteroom".into(), "kube-system".into()],
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
    let manifests = policies.iter().enumerate().map(|(at, policy)| {
        let body = anteroom_wire::body::encode_json(policy).unwrap();
        (ObjectKey::new("", at.to_string()), body)
    });
    let set = PolicySet::build(&PolicySet::default(), manifests);
    assert_eq!(set.counts().1, 0, "{set:?}");
    let made = registration(url).configuration(
        phase,
        &set,
        &some_kinds::some(),
        "PEM",
        &Refusals::default(),
    );
    let mut made = serde_json::to_value(made.object()).unwrap();
    // The last is the proof's: see below.
    let last = made["webhooks"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(last["name"], proof::NAME);
    made
}

/// A configuration is known by what is in it.
#[test]
fn each_configuration_can_be_proven() {
    let probe = |phase: Phase, kinds: &[&str]| {
        let body = anteroom_wire::body::encode_json(&policy(kinds, &[], "Fail", None)).unwrap();
        let manifests = [(ObjectKey::new("", "p"), body)];
        let set = PolicySet::build(&PolicySet::default(), manifests);
        let made = registration(None).configuration(
            phase,
            &set,
            &some_kinds::some(),
            "PEM",
            &Refusals::default(),
        );
        proof::token_of(&made).to_owned()
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
fn a_policy_is_a_webhook() {
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
                        "path": "/validate/fail/10",
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
            }],
            "sideEffects": "None",
            "timeoutSeconds": 5,
        }])
    );
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
            "https://127.0.0.1:9443/validate/fail/10",
            "https://127.0.0.1:9443/validate/fail/30",
            "https://127.0.0.1:9443/validate/ignore/10",
        ]
    );
}

#[test]
fn kinds_become_resources() {
    let of = |kinds: &[&str]| rules(&[policy(kinds, &["UPDATE", "CREATE"], "Fail", None)]);
    assert_eq!(
        of(&["Pod"]),
        // And what makes Pods, as far as it is served.
        [
            "/v1 pods,pods/ephemeralcontainers CREATE,UPDATE",
            "apps/v1 deployments CREATE,UPDATE",
        ]
    );
    assert_eq!(
        of(&["Ingress", "Service"]),
        [
            "/v1 services CREATE,UPDATE",
            "networking.k8s.io/v1 ingresses CREATE,UPDATE",
            "networking.k8s.io/v1beta1 ingresses CREATE,UPDATE",
        ]
    );
    assert_eq!(
        of(&["apps/v1/Deployment/scale"]),
        ["apps/v1 deployments/scale CREATE,UPDATE"]
    );
    assert_eq!(of(&["*"]), ["*/* *,pods/ephemeralcontainers CREATE,UPDATE"]);
    assert_eq!(of(&["*/*"]), ["*/* */* CREATE,UPDATE"]);
    assert_eq!(of(&["*", "*/*"]), ["*/* */* CREATE,UPDATE"]);
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

/// The same policy, where it changes what it is about.
fn changing(mut policy: Value) -> Value {
    let rule = policy["spec"]["rules"][0].as_object_mut().unwrap();
    rule.remove("validate");
    let patch = json!({ "patchStrategicMerge": { "metadata": { "labels": { "a": "b" } } } });
    rule.insert("mutate".to_owned(), patch);
    policy
}

#[test]
fn rules_that_change_objects_are_of_the_other_configuration() {
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
                        "path": "/mutate/fail/10",
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

#[test]
fn what_may_be_passed_over_changes_objects_first() {
    let policies = [
        changing(policy(&["Pod"], &["CREATE"], "Fail", Some(30))),
        changing(policy(&["Pod"], &["CREATE"], "Ignore", None)),
        changing(policy(&["Service"], &["CREATE"], "Fail", None)),
        policy(&["Service"], &["CREATE"], "Ignore", Some(20)),
    ];
    let made = configuration_of(Phase::Mutation, None, &policies);
    let webhooks = made["webhooks"].as_array().unwrap().iter();
    let names: Vec<_> = webhooks.map(|webhook| &webhook["name"]).collect();
    assert_eq!(
        names,
        [
            "ignore-10.mutate.anteroom.svc",
            "fail-30.mutate.anteroom.svc",
            "fail-10.mutate.anteroom.svc",
        ]
    );
}

/// The same policy, where the API server is to ask this before.
fn asking(mut policy: Value, expression: &str) -> Value {
    let conditions = json!([{ "name": "c", "expression": expression }]);
    policy["spec"]["webhookConfiguration"] = json!({ "matchConditions": conditions });
    policy
}

fn set(policies: &[(&str, &str, Value)]) -> PolicySet {
    let manifests = policies.iter().map(|(namespace, name, policy)| {
        let mut policy = policy.clone();
        policy["metadata"]["name"] = (*name).into();
        if !namespace.is_empty() {
            policy["kind"] = "Policy".into();
            policy["metadata"]["namespace"] = (*namespace).into();
        }
        let body = anteroom_wire::body::encode_json(&policy).unwrap();
        (ObjectKey::new(*namespace, *name), body)
    });
    let set = PolicySet::build(&PolicySet::default(), manifests);
    assert_eq!(set.counts().1, 0, "{set:?}");
    set
}

fn made(phase: Phase, set: &PolicySet, refusals: &Refusals) -> Configuration {
    registration(Some("https://w")).configuration(phase, set, &some_kinds::some(), "PEM", refusals)
}

fn names_in(made: &Configuration) -> Vec<&str> {
    made.webhooks.iter().map(|webhook| &*webhook.name).collect()
}

#[test]
fn a_policy_with_conditions_has_a_webhook_of_its_own() {
    let services = |failure: &str, seconds| policy(&["Service"], &["CREATE"], failure, seconds);
    let pods = policy(&["Pod"], &["CREATE"], "Fail", None);
    let set = set(&[
        ("", "a", asking(services("Fail", Some(30)), "object.x == 1")),
        ("", "b", asking(services("Ignore", None), "true")),
        ("", "c", pods),
        ("ns", "a", asking(services("Fail", None), "true")),
        ("ns", "m", asking(changing(services("Fail", None)), "true")),
    ]);
    let validating = made(Phase::Validation, &set, &Refusals::default());
    assert_eq!(
        names_in(&validating),
        [
            "fail-10.validate.anteroom.svc",
            "b.clusterpolicy.validate.anteroom.svc",
            "a.clusterpolicy.validate.anteroom.svc",
            "a.ns.policy.validate.anteroom.svc",
            POLICIES,
            proof::NAME,
        ]
    );
    // What others share knows nothing of its kinds.
    let shared = serde_json::to_value(&validating.webhooks[0]).unwrap();
    assert!(!shared.to_string().contains("services"), "{shared}");
    assert!(shared["matchConditions"].is_null());
    assert_eq!(
        serde_json::to_value(&validating.webhooks[2]).unwrap(),
        json!({
            "name": "a.clusterpolicy.validate.anteroom.svc",
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "caBundle": "UEVN", "url": "https://w/validate/fail/30/policy/a" },
            "failurePolicy": "Fail",
            "matchConditions": [{ "name": "c", "expression": "object.x == 1" }],
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
            "timeoutSeconds": 30,
        })
    );
    let mutating = made(Phase::Mutation, &set, &Refusals::default());
    assert_eq!(
        names_in(&mutating),
        ["m.ns.policy.mutate.anteroom.svc", proof::NAME]
    );
    let url = mutating.webhooks[0].client_config.url.as_deref();
    assert_eq!(url, Some("https://w/mutate/fail/10/policy/ns/m"));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_of_one_policy_is_left_out() {
    let one = |expression| asking(policy(&["Service"], &["CREATE"], "Fail", None), expression);
    let both = set(&[("", "bad", one("object.a == 1")), ("", "good", one("true"))]);
    let mut refusals = Refusals::default();
    let whole = made(Phase::Validation, &both, &refusals);
    assert_eq!((whole.apart.len(), whole.left_out.len()), (2, 0));
    refusals.refused(
        &whole.apart[0],
        "undeclared reference",
        (1, tokio::time::Instant::now()),
    );
    let rest = made(Phase::Validation, &both, &refusals);
    assert_eq!(
        names_in(&rest)[0],
        "good.clusterpolicy.validate.anteroom.svc"
    );
    let told: Vec<_> = rest.left_out.iter().collect();
    assert_eq!(
        told,
        [(
            &ObjectKey::new("", "bad"),
            &"undeclared reference".to_owned()
        )]
    );
    // Once it says something else, it is tried again.
    let mended = set(&[("", "bad", one("object.a == 2")), ("", "good", one("true"))]);
    assert_eq!(made(Phase::Validation, &mended, &refusals).apart.len(), 2);
}

#[test]
fn policies_with_conditions_share_the_room_that_there_is() {
    let count = |policies: usize, expression: &str| {
        let one = asking(policy(&["Service"], &["CREATE"], "Fail", None), expression);
        let names: Vec<_> = (0..policies).map(|at| format!("p{at:04}")).collect();
        let all: Vec<_> = names
            .iter()
            .map(|name| ("", &**name, one.clone()))
            .collect();
        let made = made(Phase::Validation, &set(&all), &Refusals::default());
        (made.apart.len(), made.left_out.len())
    };
    assert_eq!(count(apart::APART_MAX, "true"), (apart::APART_MAX, 0));
    assert_eq!(count(apart::APART_MAX + 1, "true"), (apart::APART_MAX, 1));
    let long = format!(
        "'{}' == ''",
        "x".repeat(16 * 1024 - 9 - apart::AROUND_BYTES)
    );
    assert_eq!(long.len() + 1 + apart::AROUND_BYTES, 16 * 1024);
    let fit = apart::CONDITIONS_BYTES_MAX / (16 * 1024);
    assert_eq!(count(fit, &long), (fit, 0));
    assert_eq!(count(fit + 1, &long), (fit, 1));
}

#[test]
fn what_has_to_be_asked_pushes_out_what_may_be_passed_over() {
    let one = |failure: &str| asking(policy(&["Service"], &["CREATE"], failure, None), "true");
    let names: Vec<_> = (0..apart::APART_MAX)
        .map(|at| format!("p{at:04}"))
        .collect();
    // As many as one namespace has room for, of each.
    let namespaces: Vec<_> = (0..apart::APART_MAX)
        .map(|at| format!("a{}", at / apart::OF_NAMESPACE_MAX))
        .collect();
    let own = namespaces.iter().zip(&names);
    let own = own.map(|(namespace, name)| (&**namespace, &**name, one("Ignore")));
    let all: Vec<_> = own
        .chain([("", "q", one("Ignore")), ("", "z", one("Fail"))])
        .collect();
    let made = made(Phase::Validation, &set(&all), &Refusals::default());
    assert_eq!(made.apart.len(), apart::APART_MAX);
    let left_out: Vec<_> = made.left_out.keys().map(ToString::to_string).collect();
    assert_eq!(left_out, ["a9/p0198", "a9/p0199"]);
    // What may be passed over is asked first all the same.
    let keys: Vec<_> = made.apart.iter().map(|(key, _)| key.to_string()).collect();
    assert_eq!((&*keys[0], &*keys[apart::APART_MAX - 1]), ("q", "z"));
}

#[test]
fn one_namespace_takes_no_room_from_others() {
    let one = |expression: &str| {
        let policy = policy(&["Service"], &["CREATE"], "Fail", None);
        asking(policy, expression)
    };
    let names: Vec<_> = (0..=apart::OF_NAMESPACE_MAX)
        .map(|at| format!("p{at:04}"))
        .collect();
    let own = names.iter().map(|name| ("a", &**name, one("true")));
    let all: Vec<_> = own.chain([("b", "p", one("true"))]).collect();
    let found = made(Phase::Validation, &set(&all), &Refusals::default());
    assert_eq!(found.apart.len(), apart::OF_NAMESPACE_MAX + 1);
    let left_out: Vec<_> = found.left_out.iter().collect();
    let [(key, words)] = &*left_out else {
        panic!("{left_out:?}");
    };
    assert_eq!(key.to_string(), "a/p0020");
    assert!(words.contains("of namespace `a`"), "{words}");
    // And no more bytes.
    let half = apart::OF_NAMESPACE_BYTES_MAX / 2;
    let long = format!("'{}' == ''", "x".repeat(half - 2 * apart::AROUND_BYTES));
    let own = ["p", "q", "r"].map(|name| ("a", name, one(&long)));
    let all: Vec<_> = own.into_iter().chain([("", "q", one(&long))]).collect();
    let found = made(Phase::Validation, &set(&all), &Refusals::default());
    let left_out: Vec<_> = found.left_out.keys().map(ToString::to_string).collect();
    assert_eq!(left_out, ["a/r"]);
}

/// What no policy is asked about in a whole namespace is not sent.
#[test]
fn namespaces_that_are_filtered_whole_are_exempt() {
    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }
    let exempt = |given: &[&str]| {
        let given = ["webhook"].iter().chain(given);
        let args = <Alone as clap::Parser>::parse_from(given).args;
        Registration::new(&args).exempt_namespaces.join(" ")
    };
    let usual = "anteroom kube-node-lease kube-public kube-system";
    assert_eq!(exempt(&[]), usual);
    assert_eq!(exempt(&["--resource-filters="]), "anteroom kube-system");
    let filters = "--resource-filters=[*/*,a,*][*,b,*][*/*,c*,*][*/*,kube-system,*][Pod,d,*]";
    assert_eq!(exempt(&[filters]), "a anteroom kube-system");
}
