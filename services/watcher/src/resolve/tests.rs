use anteroom_model::{GroupVersionResource, KindRecord};

use super::*;
use crate::discovery::{Broken, Resource};

fn served(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Resource {
    Resource {
        record: KindRecord {
            gvr: GroupVersionResource::new(group, version, plural),
            kind: kind.into(),
            namespaced,
            subresources: Vec::new(),
            preferred: true,
        },
        singular: kind.to_lowercase(),
        watchable: kind != "Review",
    }
}

fn catalog() -> Catalog {
    Catalog {
        resources: vec![
            served("", "v1", "services", "Service", true),
            served("", "v1", "nodes", "Node", false),
            served("", "v1", "events", "Event", true),
            served("authorization.k8s.io", "v1", "reviews", "Review", false),
            served("events.k8s.io", "v1", "events", "Event", true),
            served("networking.k8s.io", "v1", "ingresses", "Ingress", true),
            served("networking.k8s.io", "v1beta1", "ingresses", "Ingress", true),
            served("networking.k8s.io", "v1beta1", "oldies", "Oldie", true),
            served("one.dev", "v1", "widgets", "Widget", true),
            served("two.dev", "v1", "widgets", "Widget", true),
        ],
        broken: Vec::new(),
    }
}

fn spec(text: &str) -> CachedContextEntrySpec {
    serde_json::from_str(text).unwrap()
}

fn view(text: &str) -> Result<String, Failure> {
    match resolve(&spec(text), &catalog()) {
        Resolution::Found(info) => Ok(info.source.view_id().to_string()),
        Resolution::Invalid(failure) | Resolution::Unknown(failure) => Err(failure),
    }
}

#[test]
fn every_spelling_of_a_resource_is_one_view() {
    let ingresses = "ingresses.v1.networking.k8s.io";
    for (text, expected) in [
        (r#"{"resource":{"kind":"ingresses"}}"#, ingresses),
        (r#"{"resource":{"kind":"Ingress"}}"#, ingresses),
        (
            r#"{"resource":{"group":"networking.k8s.io","kind":"ingresses"}}"#,
            ingresses,
        ),
        (
            r#"{"resource":{"group":"apis/networking.k8s.io","kind":"ingresses"}}"#,
            ingresses,
        ),
        (
            r#"{"resource":{"group":"/apis/networking.k8s.io/v1","kind":"ingresses"}}"#,
            ingresses,
        ),
        (
            r#"{"resource":{"group":"networking.k8s.io/v1","version":"v1","kind":"ingresses"}}"#,
            ingresses,
        ),
        (
            r#"{"resource":{"group":"networking.k8s.io","version":"v1beta1","kind":"ingresses"}}"#,
            "ingresses.v1beta1.networking.k8s.io",
        ),
        (
            r#"{"resource":{"kind":"oldies"}}"#,
            "oldies.v1beta1.networking.k8s.io",
        ),
        (r#"{"resource":{"kind":"services"}}"#, "services.v1"),
        (
            r#"{"resource":{"group":"","kind":"services"}}"#,
            "services.v1",
        ),
        (
            r#"{"resource":{"group":"core","version":"v1","kind":"services"}}"#,
            "services.v1",
        ),
        (
            r#"{"resource":{"group":"api/v1","kind":"services"}}"#,
            "services.v1",
        ),
        (r#"{"resource":{"kind":"events"}}"#, "events.v1"),
        (
            r#"{"resource":{"group":"two.dev","kind":"widgets"}}"#,
            "widgets.v1.two.dev",
        ),
    ] {
        assert_eq!(view(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_cannot_be_served_says_why() {
    for (text, reason, says) in [
        (r#"{}"#, "InvalidSpec", "neither"),
        (
            r#"{"resource":{"kind":"services"},"apiCall":{"url":"x"}}"#,
            "InvalidSpec",
            "both",
        ),
        (
            r#"{"apiCall":{"url":"https://x"}}"#,
            "Unsupported",
            "apiCall",
        ),
        (r#"{"resource":{"kind":""}}"#, "InvalidSpec", "empty"),
        (
            r#"{"resource":{"kind":"gadgets"}}"#,
            "ResourceNotFound",
            "`gadgets`",
        ),
        (
            r#"{"resource":{"group":"","kind":"ingresses"}}"#,
            "ResourceNotFound",
            "core",
        ),
        (
            r#"{"resource":{"version":"v9","kind":"ingresses"}}"#,
            "ResourceNotFound",
            "`v9`",
        ),
        (
            r#"{"resource":{"kind":"widgets"}}"#,
            "AmbiguousResource",
            "`one.dev`, `two.dev`",
        ),
        (
            r#"{"resource":{"kind":"reviews"}}"#,
            "NotWatchable",
            "watched",
        ),
        (
            r#"{"resource":{"kind":"nodes","namespace":"a"}}"#,
            "InvalidSpec",
            "cluster-scoped",
        ),
        (
            r#"{"resource":{"group":"a/v1","version":"v2","kind":"b"}}"#,
            "InvalidSpec",
            "`v2`",
        ),
        (
            r#"{"resource":{"group":"apis/a/v1/b","kind":"b"}}"#,
            "InvalidSpec",
            "`group`",
        ),
    ] {
        let failure = view(text).unwrap_err();
        assert_eq!(failure.reason, reason, "{text}");
        assert!(failure.message.contains(says), "{failure}");
    }
}

#[test]
fn a_silent_api_group_is_not_an_absent_resource() {
    let mut catalog = catalog();
    catalog.broken.push(Broken {
        group: "metrics.k8s.io".into(),
        version: String::new(),
        problem: "503".into(),
    });
    let resolve = |text: &str| resolve(&spec(text), &catalog);
    let unnamed = resolve(r#"{"resource":{"kind":"gadgets"}}"#);
    assert!(matches!(unnamed, Resolution::Unknown(f) if f.reason == "GroupUnavailable"));
    let named = resolve(r#"{"resource":{"group":"metrics.k8s.io","kind":"pods"}}"#);
    assert!(matches!(named, Resolution::Unknown(_)));
    let other = resolve(r#"{"resource":{"group":"one.dev","kind":"gadgets"}}"#);
    assert!(
        matches!(other, Resolution::Invalid(_)),
        "a group that answers is believed"
    );
    assert!(matches!(
        resolve(r#"{"resource":{"kind":"ingresses"}}"#),
        Resolution::Found(_)
    ));
}

fn selector(text: &str) -> Result<String, Failure> {
    label_selector(&serde_json::from_str(text).unwrap())
}

#[test]
fn label_selectors_in_the_api_servers_syntax() {
    let all = r#"{"matchLabels":{"b":"2","a/x":"1"},"matchExpressions":[
        {"key":"c","operator":"In","values":["2","1"]}, {"key":"d","operator":"NotIn","values":["x"]},
        {"key":"e","operator":"Exists"}, {"key":"f","operator":"DoesNotExist"}]}"#;
    assert_eq!(
        selector(all).unwrap(),
        "a/x=1,b=2,c in (1,2),d notin (x),e,!f"
    );
    assert_eq!(selector("{}").unwrap(), "");
    for bad in [
        r#"{"matchLabels":{"a":"x,b=y"}}"#,
        r#"{"matchLabels":{"":"x"}}"#,
        r#"{"matchExpressions":[{"key":"c","operator":"In"}]}"#,
        r#"{"matchExpressions":[{"key":"c","operator":"Exists","values":["x"]}]}"#,
        r#"{"matchExpressions":[{"key":"c","operator":"Like","values":["x"]}]}"#,
    ] {
        assert_eq!(selector(bad).unwrap_err().reason, "InvalidSpec", "{bad}");
    }
}
