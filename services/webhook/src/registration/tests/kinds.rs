//! Kinds of policies become resources of webhooks.

use super::*;

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
fn a_kind_that_is_not_served_yet_is_its_whole_group() {
    let of = |kind: &str| rules(&[policy(&[kind], &["CREATE"], "Fail", None)]);
    assert_eq!(of("example.com/v1/Widget"), ["example.com/* */* CREATE"]);
    assert_eq!(
        of("networking.k8s.io/v1/Ingress"),
        ["networking.k8s.io/v1 ingresses CREATE"]
    );
    for nowhere in [
        "networking.k8s.io/v2/Ingress",
        "Widget",
        "v1/Widget",
        "apps/v1/Widget",
        "*.com/v1/Widget",
    ] {
        let none: [&str; 0] = [];
        assert_eq!(of(nowhere), none, "{nowhere}");
    }
}
