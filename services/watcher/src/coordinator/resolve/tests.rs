use anteroom_model::KindRecord;
use anteroom_policy::{CollectionReference, NamedObject, Reference};
use serde_json::{Value, json};

use super::*;
use crate::source::discovery::{Broken, ServedResource};

fn served(
    group: &str,
    version: &str,
    plural: &str,
    kind: &str,
    namespaced: bool,
) -> ServedResource {
    ServedResource {
        record: KindRecord {
            gvr: GroupVersionResource::new(group, version, plural),
            kind: kind.into(),
            namespaced,
            subresources: Vec::new(),
            preferred: true,
            watchable: kind != "Review",
        },
        singular: kind.to_lowercase(),
    }
}

fn served_resources() -> ServedResources {
    ServedResources {
        resources: vec![
            served("", "v1", "services", "Service", true),
            served("", "v1", "configmaps", "ConfigMap", true),
            served("", "v1", "secrets", "Secret", true),
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

fn spec(text: &str) -> EntrySpec {
    EntrySpec::Cached(serde_json::from_str(text).unwrap())
}

fn view(text: &str) -> Result<String, Failure> {
    match resolve("entry", &spec(text), &served_resources()) {
        Resolution::Found(found) => Ok(found.binding.view.to_string()),
        Resolution::Invalid(failure) | Resolution::Unknown(failure) => Err(failure),
        Resolution::Nothing => panic!("an entry always asks for something"),
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
fn an_entry_that_cannot_be_served_says_why() {
    for (text, reason, says) in [
        (r#"{}"#, "InvalidSpec", "neither"),
        (
            r#"{"resource":{"kind":"services"},"apiCall":{"url":"x"}}"#,
            "InvalidSpec",
            "both",
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
    let mut served = served_resources();
    served.broken.push(Broken {
        group: "metrics.k8s.io".into(),
        version: String::new(),
        problem: "503".into(),
    });
    let resolve = |text: &str| resolve("entry", &spec(text), &served);
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

fn found(spec: &EntrySpec) -> Resolved {
    match resolve("entry", spec, &served_resources()) {
        Resolution::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

fn cached(spec: Value) -> EntrySpec {
    EntrySpec::Cached(serde_json::from_value(spec).unwrap())
}

fn global(spec: Value) -> EntrySpec {
    EntrySpec::Global(serde_json::from_value(spec).unwrap())
}

/// Each kind of entry presents its data in its own shape.
#[test]
fn each_kind_of_entry_has_a_shape_of_its_own() {
    let services = json!({"resource": {"kind": "services"}});
    assert_eq!(found(&cached(services)).binding.shape, Shape::Document);
    let services = json!({"kubernetesResource": {"version": "v1", "resource": "services"}});
    assert_eq!(found(&global(services)).binding.shape, Shape::Array);
    let call = found(&global(json!({"apiCall": {"urlPath": "/version"}})));
    assert_eq!(call.binding.shape, Shape::Response);
    assert_eq!(call.info.source, call.call.unwrap().source());
    let object = json!({"resource": {"kind": "ConfigMap", "namespace": "a", "name": "settings"}});
    let object = found(&cached(object));
    let key = ObjectKey::new("a", "settings");
    assert_eq!(object.binding.shape, Shape::Object);
    assert_eq!(object.binding.object, Some(key.clone()));
    assert_eq!(object.binding.namespace, "a");
    let reference = object.object.unwrap();
    assert_eq!(
        (reference.view(), &reference.object),
        (object.binding.view, &key)
    );
}

/// A list of namespaces is one source, and confined to none of them.
#[test]
fn a_list_of_namespaces_is_one_source() {
    let of = |namespaces: Value| {
        found(&cached(
            json!({"resource": {"kind": "services", "namespaces": namespaces}}),
        ))
    };
    let both = of(json!(["b", "a", "b"]));
    assert_eq!(both.info.source.to_string(), "services.v1 in a, b");
    assert_eq!(both.binding.namespace, "");
    assert_eq!(of(json!(["a"])).binding.namespace, "a");
    let named = found(&cached(
        json!({"resource": {"kind": "services", "namespace": "a"}}),
    ));
    assert_eq!(of(json!(["a"])).binding.view, named.binding.view);
}

/// The view gets the entry's options beside its source.
#[test]
fn options_of_an_entry_reach_its_view() {
    let options = |more: Value| {
        let mut spec = json!({"resource": {"kind": "services"}});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        found(&cached(spec)).options
    };
    assert_eq!(options(json!({})), ViewOptions::default());
    let all = options(json!({"pinned": true, "maxBytes": "1.5Mi", "onForbidden": "Stop"}));
    let expected = ViewOptions {
        pinned: true,
        bytes_max: Some(1_572_864),
        sealed: false,
        stops_when_forbidden: true,
        in_quota: false,
        namespaces_limited: false,
    };
    assert_eq!(all, expected);
    assert_eq!(options(json!({"maxBytes": 4096})).bytes_max, Some(4096));
    let secrets = found(&cached(
        json!({"resource": {"kind": "secrets", "namespace": "a"}}),
    ));
    assert!(secrets.binding.secret && secrets.options.sealed);
}

/// Whatever the schema let through, in the words of the webhook where there is
/// one.
#[test]
fn a_spec_that_means_nothing_is_refused_in_code_too() {
    let resource = |more: Value| {
        let mut resource = json!({"kind": "services"});
        resource
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        cached(json!({"resource": resource}))
    };
    let call = |call: Value| cached(json!({"apiCall": call}));
    let kubernetes = |resource: Value| global(json!({"kubernetesResource": resource}));
    let projected = |name: &str, path: &str| {
        let projections = json!([{"name": name, "jmesPath": path}]);
        global(json!({"apiCall": {"urlPath": "/version"}, "projections": projections}))
    };
    let either = "A global context entry should either have KubernetesResource or APICall";
    let service_or_path = "An External API call should either have Service or URLPath";
    let post = "An External API call with data should have method as POST";
    for (spec, says) in [
        (
            resource(json!({"namespace": "a", "namespaces": ["b"]})),
            "only one of",
        ),
        (resource(json!({"namespaces": []})), "leave it out"),
        (
            resource(json!({"namespaces": ["a,b"]})),
            "not the name of a namespace",
        ),
        (
            resource(json!({"name": "x"})),
            "set `resource.namespace` too",
        ),
        (
            resource(json!({"name": "x", "namespaces": ["a"]})),
            "do not go with it",
        ),
        (
            resource(json!({"name": "x", "namespace": "a", "fieldSelector": "a=b"})),
            "do not go with it",
        ),
        (
            cached(json!({"resource": {"kind": "nodes", "namespaces": ["a"], "name": "x"}})),
            "cluster-scoped",
        ),
        (
            cached(json!({"resource": {"kind": "services"}, "maxBytes": "many"})),
            "`maxBytes`",
        ),
        (
            cached(json!({"resource": {"kind": "services"}, "maxBytes": -1})),
            "`maxBytes`",
        ),
        (call(json!({})), "exactly one of `url`"),
        (
            call(json!({"url": "https://x", "urlPath": "/x"})),
            "exactly one of `url`",
        ),
        (call(json!({"urlPath": "/x", "caBundle": "x"})), "goes with"),
        (call(json!({"url": "https://x", "data": []})), post),
        (call(json!({"url": "ftp://x"})), "the URL of the API call"),
        (call(json!({"url": "not one"})), "the URL of the API call"),
        (call(json!({"urlPath": "/api/v1/../x"})), "`..` part"),
        (call(json!({"urlPath": "/api/v1//x"})), "empty"),
        (call(json!({"urlPath": "/api/v1/%73ecrets"})), "encoded"),
        (
            call(json!({"urlPath": "/api/v1/secrets?limit=1"})),
            "names Secrets",
        ),
        (
            call(json!({"urlPath": "/api/v1/namespaces/a/secrets/b"})),
            "names Secrets",
        ),
        (
            call(json!({"url": "http://x", "refreshInterval": "0s"})),
            "greater than 0",
        ),
        (
            call(json!({"url": "http://x", "refreshInterval": "soon"})),
            "expected a duration",
        ),
        (
            call(json!({"url": "http://x", "refreshInterval": "1s", "refreshIntervalSeconds": 1})),
            "only one of",
        ),
        (
            call(
                json!({"service": {"url": "http://x", "headers": [{"key": "a b", "value": "c"}]}}),
            ),
            "not a header's name",
        ),
        (global(json!({})), either),
        (
            global(json!({
                "kubernetesResource": {"version": "v1", "resource": "services"},
                "apiCall": {"urlPath": "/x"},
            })),
            either,
        ),
        (
            kubernetes(json!({"version": "v2", "resource": "a"})),
            "A Resource entry requires a group",
        ),
        (
            kubernetes(json!({"group": "a", "version": "", "resource": "a"})),
            "A Resource entry requires a version",
        ),
        (
            kubernetes(json!({"version": "v1", "resource": ""})),
            "A Resource entry requires a resource",
        ),
        (global(json!({"apiCall": {}})), service_or_path),
        (
            global(json!({"apiCall": {"urlPath": "/x", "service": {"url": "http://x"}}})),
            service_or_path,
        ),
        (
            global(json!({"apiCall": {"urlPath": "/x", "data": [{"key": "a", "value": 1}]}})),
            post,
        ),
        (
            projected("entry", "@"),
            "different from the global context entry name",
        ),
        (projected("", "@"), "A projection entry requires a name"),
        (projected("a", ""), "A projection entry requires a JMESPath"),
        (projected("a", "items["), "projections[0]: `items[`"),
        (projected("a", "no_such(@)"), "no_such"),
        (
            projected("a", "items[?a == $b]"),
            "nothing is bound to `$b`",
        ),
    ] {
        match resolve("entry", &spec, &served_resources()) {
            Resolution::Invalid(failure) => {
                assert_eq!(failure.reason, "InvalidSpec", "{failure}");
                assert!(failure.message.contains(says), "{failure}");
            }
            other => panic!("{says}: {other:?}"),
        }
    }
}

#[test]
fn references_to_values_elsewhere_are_not_resolved() {
    let headers = json!([{"key": "a", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]);
    let service = json!({"url": "http://x", "headers": headers});
    let resolution = resolve(
        "entry",
        &global(json!({"apiCall": {"service": service}})),
        &served_resources(),
    );
    assert!(matches!(resolution, Resolution::Invalid(failure) if failure.reason == "Unsupported"));
}

/// A reference is kept in a view if that is possible; otherwise it is read live.
#[test]
fn a_reference_that_nobody_declared_need_not_be_kept() {
    let collection = |resource: &str, namespace: &str, declared| {
        Reference::Collection(CollectionReference {
            group: Some(String::new()),
            version: Some("v1".into()),
            resource: resource.into(),
            namespace: namespace.into(),
            declared,
            ..CollectionReference::default()
        })
    };
    let object = |resource: &str, namespace: &str, declared| {
        Reference::Object(NamedObject {
            version: "v1".into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: "x".into(),
            declared,
            ..NamedObject::default()
        })
    };
    let view = |reference: &Reference| match resolve_reference(reference, &served_resources()) {
        Resolution::Found(found) => Some(found.binding.view.to_string()),
        Resolution::Nothing => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        view(&collection("services", "", false)).unwrap(),
        "services.v1"
    );
    assert!(
        view(&collection("services", "a", true))
            .unwrap()
            .starts_with("services.v1~")
    );
    assert_eq!(
        view(&object("configmaps", "a", false)).unwrap(),
        "configmaps.v1~objects"
    );
    assert_eq!(
        view(&object("nodes", "", false)).unwrap(),
        "nodes.v1~objects"
    );
    for nothing in [
        collection("gadgets", "", false),
        collection("nodes", "a", false),
        object("gadgets", "a", false),
        object("configmaps", "", false),
    ] {
        assert_eq!(view(&nothing), None, "{}", nothing.name());
    }
    for declared in [collection("gadgets", "", true), object("nodes", "a", true)] {
        let resolution = resolve_reference(&declared, &served_resources());
        assert!(
            matches!(resolution, Resolution::Invalid(_)),
            "{resolution:?}"
        );
    }
    let silent = ServedResources {
        broken: vec![Broken {
            group: String::new(),
            version: "v1".into(),
            problem: "503".into(),
        }],
        ..ServedResources::default()
    };
    let resolution = resolve_reference(&collection("services", "", false), &silent);
    assert!(
        matches!(resolution, Resolution::Unknown(_)),
        "{resolution:?}"
    );
}

/// One watch, narrowed by the label.
#[test]
fn labelled_config_maps_are_one_narrow_source() {
    let Resolution::Found(found) =
        resolve_reference(&Reference::LabelledConfigMaps, &served_resources())
    else {
        panic!("configmaps are served");
    };
    let source = "configmaps.v1, labels cache.kyverno.io/enabled=true";
    assert_eq!(found.info.source.to_string(), source);
}

/// An object name that the log cannot hold would fail the view for all references to other objects
/// of the type.
#[test]
fn an_object_whose_name_the_log_cannot_hold_is_refused_by_itself() {
    let object = |name: String, declared| {
        let reference = Reference::Object(NamedObject {
            version: "v1".into(),
            resource: "configmaps".into(),
            namespace: "a".into(),
            name,
            declared,
            ..NamedObject::default()
        });
        resolve_reference(&reference, &served_resources())
    };
    assert!(matches!(
        object("n".repeat(253), true),
        Resolution::Found(_)
    ));
    let Resolution::Invalid(failure) = object("n".repeat(NAME_BYTES_MAX + 1), true) else {
        panic!("the name is too long");
    };
    assert!(
        failure.message.contains("at most 512 are read by name"),
        "{failure}"
    );
    assert_eq!(object("n".repeat(4_000), false), Resolution::Nothing);
    let named = "n".repeat(4_000);
    let text = format!(r#"{{"resource":{{"kind":"nodes","name":"{named}"}}}}"#);
    assert_eq!(view(&text).unwrap_err().reason, "InvalidSpec");
}
