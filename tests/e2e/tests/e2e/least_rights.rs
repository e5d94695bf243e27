//! What each service's account may not do at a real API server, by the roles as they are deployed.

use anteroom_e2e::world::World;
use anyhow::{Context, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

/// A verb, a group, a resource with its subresource, a namespace and a name; all but verb and resource may be empty.
type Access = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// Nobody may do this.
const FORBIDDEN: [Access; 28] = [
    ("create", "", "secrets", "anteroom", ""),
    ("get", "", "secrets", "default", "token"),
    ("list", "", "secrets", "", ""),
    ("watch", "", "secrets", "anteroom", ""),
    ("get", "", "secrets", "anteroom", "anteroom-nats-server"),
    ("get", "", "secrets", "anteroom", "anteroom-seal-keys"),
    ("get", "", "secrets", "anteroom", "anteroom-asker-keys"),
    ("delete", "", "secrets", "anteroom", "anteroom-webhook-tls"),
    ("create", "", "secrets", "default", ""),
    ("create", "", "pods", "default", ""),
    ("update", "", "pods", "default", "a"),
    ("patch", "", "configmaps", "default", "a"),
    ("delete", "", "namespaces", "", "default"),
    ("create", "", "pods/exec", "default", "a"),
    (
        "create",
        "",
        "serviceaccounts/token",
        "anteroom",
        "anteroom-watcher",
    ),
    ("impersonate", "", "users", "", "admin"),
    (
        "impersonate",
        "",
        "serviceaccounts",
        "anteroom",
        "anteroom-watcher",
    ),
    (
        "update",
        "apps",
        "deployments",
        "anteroom",
        "anteroom-webhook",
    ),
    ("create", "kyverno.io", "clusterpolicies", "", ""),
    ("update", "kyverno.io", "clusterpolicies", "", "p"),
    ("delete", "kyverno.io", "policies", "default", "p"),
    ("create", "kyverno.io", "policyexceptions", "default", ""),
    ("update", "kyverno.io", "cachedcontextentries", "", "e"),
    (
        "escalate",
        "rbac.authorization.k8s.io",
        "clusterroles",
        "",
        "a",
    ),
    (
        "bind",
        "rbac.authorization.k8s.io",
        "clusterroles",
        "",
        "cluster-admin",
    ),
    (
        "create",
        "rbac.authorization.k8s.io",
        "rolebindings",
        "default",
        "",
    ),
    (
        "patch",
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "",
        "somebody-elses",
    ),
    (
        "delete",
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "",
        "anteroom",
    ),
];

/// Rights that only one service uses.
const ONE_SERVICES: [(&str, Access); 6] = [
    ("watcher", ("list", "kyverno.io", "clusterpolicies", "", "")),
    (
        "watcher",
        ("patch", "kyverno.io", "clusterpolicies/status", "", "p"),
    ),
    (
        "webhook",
        (
            "patch",
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            "",
            "anteroom",
        ),
    ),
    (
        "webhook",
        ("get", "", "secrets", "anteroom", "anteroom-webhook-tls"),
    ),
    (
        "reporter",
        ("patch", "wgpolicyk8s.io", "policyreports", "default", "r"),
    ),
    (
        "reporter",
        ("delete", "wgpolicyk8s.io", "clusterpolicyreports", "", "r"),
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_account_may_do_more_than_its_service_does() -> anyhow::Result<()> {
    let world = World::start().await?;
    let mut wrong = Vec::new();
    for account in ["watcher", "webhook", "reporter", "cache-replica"] {
        for access in FORBIDDEN {
            if may(&world, account, access).await? {
                wrong.push(format!("{account} may {access:?}"));
            }
        }
        for (whose, access) in ONE_SERVICES {
            if may(&world, account, access).await? != (whose == account) {
                wrong.push(format!("{account}: {access:?} is {whose}'s"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

async fn may(world: &World, account: &str, access: Access) -> anyhow::Result<bool> {
    let (verb, group, resource, namespace, name) = access;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let groups = ["system:serviceaccounts", "system:serviceaccounts:anteroom"];
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:anteroom:anteroom-{account}")),
            groups: Some(groups.map(str::to_owned).to_vec()),
            resource_attributes: Some(ResourceAttributes {
                verb: text(verb),
                group: text(group),
                resource: text(resource),
                subresource: text(subresource),
                namespace: text(namespace),
                name: text(name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(world.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("an answer")?.allowed)
}
