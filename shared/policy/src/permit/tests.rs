use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    FactSubject,
    ir::call::tests::{B, policy_of, request, subject, with_variables},
};

const A: &str = "{{ request.object.metadata.labels.a }}";

fn permits(own: Option<&str>, entry: &Value, call: Call<'_>) -> Result<String, String> {
    let policy = policy_of(own, entry).unwrap();
    match policy.permits("r", "x", call) {
        Ok(Permit::Api { path }) => Ok(path),
        Ok(Permit::Service { url, .. }) => Ok(url),
        Ok(Permit::ConfigMap | Permit::Image { .. }) => Ok(String::new()),
        Err(refusal) => Err(refusal.to_string()),
    }
}

fn api(own: Option<&str>, template: &str, path: &str) -> Result<String, String> {
    let entry = json!({"apiCall": {"urlPath": template.replace("AAA", A)}});
    permits(own, &entry, Call::Api { path, data: None })
}

/// The watcher makes the policies' own calls, in one spelling.
#[test]
fn the_policys_own_paths_are_permitted() {
    for (template, path, made) in [
        ("/version", "/version", "/version"),
        (
            "/api/v1/pods?limit=5",
            "/api/v1/pods?limit=5",
            "/api/v1/pods?limit=5",
        ),
        (
            "/api/v1/namespaces/AAA/pods",
            "/api/v1/namespaces/a/pods",
            "/api/v1/namespaces/a/pods",
        ),
        (
            "/api/v1/namespaces/AAA/pods",
            "/api/v1/namespaces/%61/pods",
            "/api/v1/namespaces/a/pods",
        ),
        (
            "/api/v1/nodes/x-AAA-y",
            "/api/v1/nodes/x-1-y-2-y",
            "/api/v1/nodes/x-1-y-2-y",
        ),
        (
            "/api/v1/nodes/x-AAA-y",
            "/api/v1/nodes/x--y",
            "/api/v1/nodes/x--y",
        ),
        (
            "/api/v1/pods?labelSelector=app=AAA,b",
            "/api/v1/pods?labelSelector=app%3Dweb%2Cb",
            "/api/v1/pods?labelSelector=app%3Dweb,b",
        ),
        (
            "/api/v1/pods?labelSelector=AAA",
            "/api/v1/pods?labelSelector=a,b!=c",
            "/api/v1/pods?labelSelector=a,b%21%3Dc",
        ),
        (
            "/api/v1/pods?x=AAA",
            "/api/v1/pods?x=a%26watch%3Dtrue",
            "/api/v1/pods?x=a%26watch%3Dtrue",
        ),
    ] {
        assert_eq!(
            api(None, template, path).as_deref(),
            Ok(made),
            "{template} {path}"
        );
    }
}

/// Whoever can ask for a live read can ask for nothing else.
#[test]
fn paths_other_than_the_policys_are_refused() {
    let pods = "/api/v1/namespaces/AAA/pods";
    for (template, path) in [
        ("/version", "/versions"),
        ("/version", "/version/"),
        ("/version", "/version?x=y"),
        ("/version", "/VERSION"),
        ("/version", "version"),
        ("/version", "//version"),
        ("/version", "https://elsewhere/version"),
        (pods, "/api/v1/namespaces/a/secrets"),
        (pods, "/api/v1/namespaces/a/b/pods"),
        (pods, "/api/v1/namespaces/a/pods/b"),
        (pods, "/api/v1/namespaces//pods"),
        (pods, "/api/v1/namespaces/../pods"),
        (pods, "/api/v1/namespaces/./pods"),
        (pods, "/api/v1/namespaces/%2e%2e/pods"),
        (pods, "/api/v1/namespaces/.%2e/pods"),
        (pods, "/api/v1/namespaces/%252e%252e/pods"),
        (pods, "/api/v1/namespaces/a%2fsecrets%2fb/pods"),
        (pods, "/api/v1/namespaces/a%252fsecrets/pods"),
        (pods, "/api/v1/namespaces/a%5cb/pods"),
        (pods, "/api/v1/namespaces/a\\b/pods"),
        (pods, "/api/v1/namespaces/a%00/pods"),
        (pods, "/api/v1/namespaces/a\n/pods"),
        (pods, "/api/v1/namespaces/a%0d%0aHost:x/pods"),
        (pods, "/api/v1/namespaces/%ff/pods"),
        (pods, "/api/v1/namespaces/%6/pods"),
        (pods, "/api/v1/namespaces/a/secrets?x=/pods"),
        (pods, "/api/v1/namespaces/a/secrets#/pods"),
        (pods, "/api/v1/namespaces/a%23/pods"),
        (pods, "/api/v1/namespaces/a%3fb/pods"),
        (pods, "/api/v1/namespaces/a/pods?watch=true"),
        (pods, "/api/v1/namespaces/a/pods?"),
        (pods, "/x/../api/v1/namespaces/a/pods"),
        (pods, "/api/v1/namespaces/a/../b/pods"),
        ("/api/v1/nodes/x-AAA", "/api/v1/nodes/y-1"),
        ("/api/v1/nodes/x-AAA", "/api/v1/nodes/x"),
        ("/api/v1/pods?limit=5", "/api/v1/pods"),
        ("/api/v1/pods?limit=5", "/api/v1/pods?limit=50"),
        ("/api/v1/pods?limit=5", "/api/v1/pods?limit=5&limit=6"),
        ("/api/v1/pods?limit=5", "/api/v1/pods?Limit=5"),
        ("/api/v1/pods?a=1&b=2", "/api/v1/pods?b=2&a=1"),
        (
            "/api/v1/pods?labelSelector=app=AAA",
            "/api/v1/pods?labelSelector=tier=x",
        ),
        (
            "/api/v1/pods?labelSelector=app=AAA",
            "/api/v1/pods?labelSelector=app=x%2Ctier",
        ),
        (
            "/api/v1/pods?labelSelector=app=AAA",
            "/api/v1/pods?labelSelector=app=x%20in%20(y)",
        ),
        (
            "/api/v1/pods?labelSelector=app=AAA",
            "/api/v1/pods?labelSelector=app=x&watch=true",
        ),
    ] {
        let found = api(None, template, path);
        assert!(found.is_err(), "{template} {path}: {found:?}");
    }
    let long = format!("/api/v1/namespaces/{}/pods", "a".repeat(10_000));
    assert!(api(None, pods, &long).unwrap_err().contains("longer"));
}

/// Invariant 7 of ARCHITECTURE.md.
#[test]
fn a_confined_policys_path_stays_in_its_namespace() {
    let template = "/api/v1/namespaces/AAA/AAA/x/AAA";
    assert!(api(Some("own"), template, "/api/v1/namespaces/own/pods/x/log").is_ok());
    for path in [
        "/api/v1/namespaces/other/pods/x/log",
        "/api/v1/namespaces/own/services/x/proxy",
        "/api/v1/namespaces/Own/pods/x/log",
    ] {
        let refusal = api(Some("own"), template, path).unwrap_err();
        assert!(refusal.contains("leads outside namespace own"), "{refusal}");
    }
}

#[test]
fn only_the_policys_own_request_body_is_permitted() {
    let entry = json!({"apiCall": {
        "urlPath": "/apis/authorization.k8s.io/v1/subjectaccessreviews", "method": "POST",
        "data": [
            {"key": "kind", "value": "SubjectAccessReview"},
            {"key": "spec", "value": {"user": A, "groups": ["g", format!("x-{A}")], "n": 5}},
        ],
    }});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let policy = policy_of(None, &entry).unwrap();
    let Ok(FactSubject::Api(own)) = subject(&policy, &request("v", "")) else {
        panic!()
    };
    let expected = json!({
        "kind": "SubjectAccessReview", "spec": {"user": "v", "groups": ["g", "x-v"], "n": 5},
    });
    assert_eq!((own.data.as_ref(), own.by_view), (Some(&expected), None));
    let posted = |data: &Value| {
        permits(
            None,
            &entry,
            Call::Api {
                path,
                data: Some(data),
            },
        )
    };
    assert!(posted(&expected).is_ok());
    let mut other = expected.clone();
    other["spec"]["user"] = json!({"any": "value"});
    assert!(posted(&other).is_ok());
    for (pointer, value) in [
        ("/kind", json!("Pod")),
        ("/spec/n", json!(6)),
        ("/spec/groups", json!(["g"])),
        ("/spec/groups/0", json!("system:masters")),
        ("/spec/groups/1", json!("y")),
        (
            "/spec",
            json!({"user": "v", "groups": ["g", "x-v"], "n": 5, "more": 1}),
        ),
        ("", json!({"kind": "SubjectAccessReview"})),
        ("", json!([])),
    ] {
        let mut other = expected.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        assert!(posted(&other).is_err(), "{other}");
    }
    let get = Call::Api { path, data: None };
    assert!(permits(None, &entry, get).unwrap_err().contains("POST"));
    let get = json!({"apiCall": {"urlPath": path}});
    let call = Call::Api {
        path,
        data: Some(&expected),
    };
    assert!(permits(None, &get, call).unwrap_err().contains("GET"));
}

/// A service is called where the policy says, with the policy's headers and authority.
#[test]
fn only_the_policys_own_service_url_is_permitted() {
    let entry = json!({"apiCall": {"service": {
        "url": format!("https://s.ns:8443/v1/{A}?q={A}"),
        "headers": [{"key": "Authorization", "value": "Bearer x"}], "caBundle": "PEM",
    }}});
    let policy = policy_of(None, &entry).unwrap();
    let own = "https://s.ns:8443/v1/a?q=b%26c";
    let call = |url| policy.permits("r", "x", Call::Service { url, data: None });
    assert_eq!(
        call(own),
        Ok(Permit::Service {
            url: own.to_owned(),
            headers: &[("Authorization".to_owned(), "Bearer x".to_owned())],
            ca_bundle: "PEM",
            takes_any_status: false,
        })
    );
    for url in [
        "http://s.ns:8443/v1/a?q=b",
        "https://s.ns:8443.evil/v1/a?q=b",
        "https://s.ns:84430/v1/a?q=b",
        "https://s.ns:8443@evil/v1/a?q=b",
        "https://evil/?https://s.ns:8443/v1/a?q=b",
        "https://evil#https://s.ns:8443/v1/a?q=b",
        "https://user@s.ns:8443/v1/a?q=b",
        "HTTPS://s.ns:8443/v1/a?q=b",
        " https://s.ns:8443/v1/a?q=b",
        "https://s.ns:8443\\@evil/v1/a?q=b",
        "https://s.ns:8443/v1/../admin?q=b",
        "https://s.ns:8443/v1/%2e%2e?q=b",
        "https://s.ns:8443/v1/a/b?q=b",
        "https://s.ns:8443/v2/a?q=b",
        "https://s.ns:8443/v1/a",
        "https://s.ns:8443/v1/a?q=b&r=c",
        "https://s.ns:8443/v1/a?q=b#c",
        "//s.ns:8443/v1/a?q=b",
        "/v1/a?q=b",
    ] {
        assert!(call(url).is_err(), "{url}");
    }
    for url in [
        "s/x",
        "ftp://s/",
        "https://",
        "https:///x",
        "https://user@s/",
        "https://user:password@s/",
        "https://{{ request.namespace }}.svc/",
        "{{ request.namespace }}",
        "http{{ request.namespace }}://s/",
        "https://s/a#b",
        "https://s/../b",
        "https://s?{{ request.namespace }}=a",
        "https://s é/",
    ] {
        let entry = json!({"apiCall": {"service": {"url": url}}});
        let problem = policy_of(None, &entry).unwrap_err();
        let place = "AR302 spec.rules[0].context[0].apiCall.service.url: ";
        assert!(problem.starts_with(place), "{url}: {problem}");
    }
    for url in ["http://s", "http://s?a=b", "http://[::1]:80/"] {
        let entry = json!({"apiCall": {"service": {"url": url}}});
        let made = permits(None, &entry, Call::Service { url, data: None });
        assert_eq!(made.as_deref(), Ok(url));
    }
}

#[test]
fn only_the_policys_own_config_map_is_permitted() {
    let read = |own, entry: Value, namespace: &str, name: &str| {
        let object = ObjectKey::new(namespace, name);
        let entry = json!({"configMap": entry});
        permits(own, &entry, Call::ConfigMap { object: &object }).is_ok()
    };
    let variable = || json!({"name": format!("m-{A}"), "namespace": A});
    for (entry, namespace, name, permitted) in [
        (json!({"name": "m", "namespace": "n"}), "n", "m", true),
        (json!({"name": "m", "namespace": "n"}), "n", "x", false),
        (json!({"name": "m", "namespace": "n"}), "x", "m", false),
        (
            json!({"name": "m", "namespace": "n"}),
            "default",
            "m",
            false,
        ),
        (json!({"name": "m"}), "default", "m", true),
        (json!({"name": "m"}), "n", "m", false),
        (variable(), "n", "m-1", true),
        (variable(), "default", "m-1", true),
        (variable(), "n", "x-1", false),
        (variable(), "n", "m-/x", false),
        (variable(), "n", "m-..", false),
        (variable(), "..", "m-1", false),
        (variable(), "", "m-1", false),
        (variable(), "a/b", "m-1", false),
    ] {
        assert_eq!(
            read(None, entry.clone(), namespace, name),
            permitted,
            "{entry} {namespace}/{name}"
        );
    }
    assert!(read(Some("own"), json!({"name": "m"}), "own", "m"));
    assert!(read(Some("own"), variable(), "own", "m-1"));
    assert!(!read(Some("own"), variable(), "other", "m-1"));
    assert!(!read(Some("own"), json!({"name": "m"}), "default", "m"));
}

#[test]
fn only_the_entry_that_makes_the_call_permits_it() {
    let policy = policy_of(None, &json!({"apiCall": {"urlPath": "/version"}})).unwrap();
    let call = Call::Api {
        path: "/version",
        data: None,
    };
    assert!(policy.permits("r", "x", call).is_ok());
    let object = ObjectKey::new("default", "m");
    for (rule, variable, call) in [
        ("other", "x", call),
        ("r", "other", call),
        (
            "r",
            "x",
            Call::Service {
                url: "/version",
                data: None,
            },
        ),
        ("r", "x", Call::ConfigMap { object: &object }),
    ] {
        let refusal = policy.permits(rule, variable, call).unwrap_err();
        assert!(matches!(refusal, Refusal::Unknown { .. }), "{refusal}");
    }
    let cached = policy_of(None, &json!({"cachedContextEntry": {"name": "e"}})).unwrap();
    assert!(cached.permits("r", "x", call).is_err());
}

proptest! {
    /// Whatever stands in the variables of a service's URL and of a ConfigMap's name: what is
    /// rendered is permitted.
    #[test]
    fn rendered_urls_and_config_maps_are_permitted(a in "[a-c./?#%=,& :~é\\\\-]{0,6}", b in "own|[a-c./@:-]{0,4}") {
        let url = with_variables("https://s.ns:8443/v1/x-AAA/BBB?q=AAA&r=x-BBB");
        let service = policy_of(None, &json!({"apiCall": {"service": {"url": url}}})).unwrap();
        if let Ok(FactSubject::Service { url, .. }) = subject(&service, &request(&a, &b)) {
            let permit = service.permits("r", "x", Call::Service { url: &url, data: None });
            prop_assert!(permit.is_ok(), "{url}: {permit:?}");
        }
        let entry = json!({"configMap": {"name": with_variables("m-AAA"), "namespace": B}});
        for own in [None, Some("own")] {
            let policy = policy_of(own, &entry).unwrap();
            if let Ok(FactSubject::ConfigMap { object, literal }) = subject(&policy, &request(&a, &b)) {
                let permit = policy.permits("r", "x", Call::ConfigMap { object: &object });
                prop_assert!(permit.is_ok() && !literal, "{object}: {permit:?}");
            }
        }
    }
}

#[test]
fn the_policys_own_images_are_permitted() {
    let image = |template: &str, reference: &str| {
        let entry = json!({"imageRegistry": {"reference": template.replace("AAA", A)}});
        permits(None, &entry, Call::Image { reference }).is_ok()
    };
    for (template, reference, permitted) in [
        ("ghcr.io/a/b:1", "ghcr.io/a/b:1", true),
        ("ghcr.io/a/b:1", "ghcr.io/a/b:2", false),
        ("AAA", "registry.example:5000/a/b@sha256:0", true),
        ("AAA", "two words", false),
        ("ghcr.io/AAA", "ghcr.io/a/b", true),
        ("ghcr.io/AAA", "evil.example/ghcr.io/a", false),
    ] {
        assert_eq!(
            image(template, reference),
            permitted,
            "{template} {reference}"
        );
    }
    let call = json!({"apiCall": {"urlPath": "/version"}});
    assert!(permits(None, &call, Call::Image { reference: "a" }).is_err());
}

/// A policy with entries named `x` that read the image `a`, and sign in as these say.
fn signing_in(credentials: &[Value]) -> Policy {
    let context: Vec<_> = credentials
        .iter()
        .map(|credentials| {
            let image = json!({"reference": "a", "imageRegistryCredentials": credentials});
            json!({"name": "x", "imageRegistry": image})
        })
        .collect();
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "context": context, "validate": {"deny": {}},
        }]},
    });
    crate::compile(&manifest).unwrap()
}

#[test]
fn an_image_is_permitted_with_its_registry_credentials() {
    let image = Call::Image { reference: "a" };
    for (entry, secrets, shared, insecure) in [
        (json!({}), &[][..], true, false),
        (json!({"providers": ["default"]}), &[], true, false),
        (
            json!({"secrets": ["s", "/n/t"]}),
            &["s", "n/t"],
            false,
            false,
        ),
        (
            json!({"secrets": ["s"], "providers": ["default"], "allowInsecureRegistry": true}),
            &["s"],
            true,
            true,
        ),
    ] {
        let policy = signing_in(&[entry.clone(), entry.clone()]);
        let Ok(Permit::Image { credentials }) = policy.permits("r", "x", image) else {
            panic!("{entry}");
        };
        let found: Vec<_> = credentials
            .secrets
            .iter()
            .map(|name| name.as_str())
            .collect();
        assert_eq!(found, secrets, "{entry}");
        assert_eq!(
            (credentials.shared, credentials.insecure),
            (shared, insecure)
        );
    }
    let policy = signing_in(&[json!({"secrets": ["s"]}), json!({})]);
    let refusal = policy.permits("r", "x", image).unwrap_err().to_string();
    assert!(refusal.contains("give each a name of its own"), "{refusal}");
}
