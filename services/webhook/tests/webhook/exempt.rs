//! Requests that no policy is asked about.

use anteroom_engine::exemptions::{ExemptionRules, Exemptions};
use serde_json::{Value, json};

use crate::{
    client::{Client, ingress},
    cluster::{Cluster, exemptions, ingresses, unique_host},
};

/// Returns a policy that denies every object, and a policy that changes every object.
fn of_everything() -> [Value; 2] {
    let of = |name: &str, field: &str, body: Value| {
        unique_host(name, |policy| {
            policy["spec"]["rules"] = json!([{
                "name": "r", "match": { "any": [{ "resources": { "kinds": ["*", "*/*"] } }] }, (field): body,
            }]);
        })
    };
    let labels = json!({ "patchStrategicMerge": { "metadata": { "labels": { "a": "b" } } } });
    [
        of("denies", "validate", json!({ "message": "no", "deny": {} })),
        of("changes", "mutate", labels),
    ]
}

/// A review about an object of this kind, as in `v1 Pod shop/p`.
fn review(what: &str, user: &Value) -> Value {
    let parts: Vec<&str> = what.split(' ').collect();
    let [api_version, kind, place] = *parts else {
        panic!("{what}");
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (namespace, name) = place.split_once('/').unwrap();
    let mut review = ingress("CREATE", name, "a.example");
    let request = &mut review["request"];
    request["kind"] = json!({ "group": group, "version": version, "kind": kind });
    request["namespace"] = namespace.into();
    request["object"] = json!({ "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "namespace": namespace } });
    request["userInfo"] = user.clone();
    review
}

const EVENT: &str = "v1 Event shop/e";
const LEASE: &str = "coordination.k8s.io/v1 Lease kube-node-lease/n";
const REVIEW: &str = "authorization.k8s.io/v1 SubjectAccessReview /";
const POD: &str = "v1 Pod shop/p";

async fn start(cluster: &Cluster, exemptions: Exemptions) -> (anteroom_webhook::Webhook, Client) {
    let started = cluster.webhook_exempting(exemptions).await;
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;
    started
}

#[tokio::test]
async fn events_leases_and_reviews_are_exempt_by_default() {
    let cluster = Cluster::with(&of_everything()).await;
    let (_webhook, client) = start(&cluster, Exemptions::default()).await;
    let node = json!({ "username": "system:node:n", "groups": ["system:nodes"] });
    for (what, exempt) in [(EVENT, true), (LEASE, true), (REVIEW, true), (POD, false)] {
        let review = review(what, &node);
        let denied = client.review("/validate", &review).await;
        assert_eq!(denied["allowed"], exempt, "{what}");
        assert_eq!(denied.get("auditAnnotations").is_none(), exempt, "{what}");
        let changed = client.review("/mutate", &review).await;
        assert_eq!(changed["allowed"], true, "{what}");
        assert_eq!(changed.get("patch").is_none(), exempt, "{what}");
    }
    let metrics = cluster.service.metrics.encode();
    for line in [
        "anteroom_admission_exempt_total{by=\"resource\",phase=\"validate\"} 3",
        "anteroom_admission_exempt_total{by=\"resource\",phase=\"mutate\"} 3",
        "anteroom_admission_decisions_total{decision=\"allowed\",cause=\"policy\",phase=\"validate\"} 3",
        "anteroom_admission_decisions_total{decision=\"denied\",cause=\"policy\",phase=\"validate\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_file_names_the_exempt_users_groups_and_resources() {
    let cluster = Cluster::with(&of_everything()).await;
    let given = exemptions(
        "resourceFilters: ['[Pod/?*,*,*]', '[Ingress,shop,*]', '[Ingress/scale,shop,*]']\n\
         excludeGroups: [system:nodes]\n\
         excludeUsernames: ['system:serviceaccount:ci:*', '!system:serviceaccount:ci:guest']\n",
    );
    let (_webhook, client) = start(&cluster, given).await;
    let account = |name: &str| json!({ "username": format!("system:serviceaccount:ci:{name}"), "groups": [] });
    let node = json!({ "username": "n", "groups": ["system:authenticated", "system:nodes"] });
    let ingress = "networking.k8s.io/v1 Ingress shop/i";
    for (what, user, exempt) in [
        (EVENT, &account("guest"), false),
        (EVENT, &account("runner"), true),
        (EVENT, &node, true),
        (ingress, &account("guest"), true),
        (POD, &json!({ "username": "ann" }), false),
    ] {
        let answer = client.review("/validate", &review(what, user)).await;
        assert_eq!(answer["allowed"], exempt, "{what} by {user}");
    }
    // Of a subresource the resource's kind counts, whatever kind its own object has.
    let mut part = review("autoscaling/v1 Scale shop/i", &account("guest"));
    for (subresource, exempt) in [("scale", true), ("status", false)] {
        part["request"]["subResource"] = subresource.into();
        let answer = client.review("/validate", &part).await;
        assert_eq!(answer["allowed"], exempt, "{subresource}");
    }
    let metrics = cluster.service.metrics.encode();
    let line = "anteroom_admission_exempt_total{by=\"user\",phase=\"validate\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

/// The webhook follows the file without a restart.
#[tokio::test]
async fn the_next_request_is_decided_by_changed_exemptions() {
    let cluster = Cluster::with(&of_everything()).await;
    let given = exemptions("excludeUsernames: [ann]");
    let (_webhook, client) = start(&cluster, given.clone()).await;
    let allowed = async |user: &str| {
        let review = review(POD, &json!({ "username": user }));
        client.review("/validate", &review).await["allowed"] == true
    };
    assert!(allowed("ann").await && !allowed("bob").await);
    given.replace(ExemptionRules::parse("excludeUsernames: [bob]").unwrap());
    assert!(!allowed("ann").await && allowed("bob").await);
    given.replace(ExemptionRules::parse("resourceFilters: '[Pod,*,*]'").unwrap());
    assert!(allowed("ann").await && allowed("bob").await);
    given.replace(ExemptionRules::default());
    assert!(!allowed("ann").await && !allowed("bob").await);
}

/// The policies say nothing of it, so nobody waits for them. Who makes a configuration, or proves one, is answered
/// whatever is filtered.
#[tokio::test]
async fn exempt_requests_are_admitted_before_the_policies_are_read() {
    let cluster = Cluster::new().await;
    let (_webhook, client) = cluster.webhook_at_once(&[]).await;
    let user = json!({ "username": "ann" });
    let allowed = async |path: &str, what: &str| {
        let answer = client.review(path, &review(what, &user)).await;
        answer["allowed"] == true
    };
    assert!(allowed("/validate", EVENT).await);
    assert!(!allowed("/validate", POD).await);
    // Which kind a part belongs to nobody knows yet: it is not the part's own.
    let parts = exemptions("resourceFilters: '[Scale/*,*,*][*/*,ci,*]'");
    let (_parts, of_parts) = cluster.webhook_exempting(parts).await;
    for (what, exempt) in [
        ("autoscaling/v1 Scale shop/i", false),
        ("autoscaling/v1 Scale ci/i", true),
    ] {
        let mut part = review(what, &user);
        part["request"]["subResource"] = "scale".into();
        let answer = of_parts.review("/validate", &part).await;
        assert_eq!(answer["allowed"], exempt, "{what}");
    }
    let every = exemptions("resourceFilters: '[*/*,*,*]'");
    let (_other, client) = cluster.webhook_exempting(every).await;
    let asked = review("authentication.k8s.io/v1 SelfSubjectReview /", &user);
    let refused = client.review("/probe", &asked).await;
    assert_eq!(refused["allowed"], false, "that is how it is proven");
    let mut policy = review("kyverno.io/v1 ClusterPolicy /p", &user);
    policy["request"]["object"]["spec"] = json!({ "nope": 1 });
    let refused = client.review("/policies", &policy).await;
    assert_eq!(refused["allowed"], false, "it is malformed");
}
