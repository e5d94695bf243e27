mod confined;

use anteroom_model::ObjectKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Concrete, PathTemplate, ViewBackedPlan, service_answer};
use crate::{
    AdmissionRequest, CollectionReference, Evaluation, FactSubject, NamedObject, Policy, Reference,
    Rule, RuleOutcome, RuleStep, ViewBackedRead, compile, ir::template::Template,
};

/// A policy whose only entry is `x`, and is referred to; of namespace `own`, if there is one.
pub(crate) fn policy_of(own: Option<&str>, entry: &Value) -> Result<Policy, String> {
    let mut fields = json!({"name": "x"});
    for (name, value) in entry.as_object().unwrap() {
        fields[name] = value.clone();
    }
    let (kind, namespace) = match own {
        Some(own) => ("Policy", json!(own)),
        None => ("ClusterPolicy", Value::Null),
    };
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": kind, "metadata": {"name": "p", "namespace": namespace},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]}, "context": [fields],
            "validate": {"deny": {"conditions": {"all": [{"key": "{{ x }}", "operator": "Equals", "value": 1}]}}},
        }]},
    });
    compile(&manifest).map_err(|problems| {
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        texts.join("\n")
    })
}

fn path_policy(own: Option<&str>, path: &str) -> Result<Policy, String> {
    policy_of(own, &json!({"apiCall": {"urlPath": path}}))
}

/// A request with labels `a` and `b` of the object, in namespace `own`.
pub(crate) fn request(a: &str, b: &str) -> AdmissionRequest {
    AdmissionRequest::new(json!({
        "uid": "u", "operation": "CREATE", "namespace": "own", "name": "n",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": {"namespace": "own", "labels": {"a": a, "b": b, "n": 5}}},
    }))
    .unwrap()
}

/// Returns the subject that the entry asks about, or the rule's error.
pub(crate) fn subject(policy: &Policy, request: &AdmissionRequest) -> Result<FactSubject, String> {
    let rule: &Rule = &policy.rules()[0];
    match Evaluation::start(policy, rule, request).step() {
        RuleStep::Need(mut facts) => Ok(facts.remove(0).subject),
        RuleStep::Done(report) => match report.outcome {
            RuleOutcome::Error(error) => Err(format!("{} {error}", error.code())),
            other => panic!("{other:?}"),
        },
    }
}

const A: &str = "{{ request.object.metadata.labels.a }}";
pub(crate) const B: &str = "{{ request.object.metadata.labels.b }}";

pub(crate) fn with_variables(text: &str) -> String {
    text.replace("AAA", A).replace("BBB", B)
}

fn api_target(
    own: Option<&str>,
    path: &str,
    a: &str,
    b: &str,
) -> Result<crate::ResolvedApiCall, String> {
    let policy = path_policy(own, &with_variables(path))?;
    match subject(&policy, &request(a, b))? {
        FactSubject::Api(subject) => Ok(subject),
        other => panic!("{other:?}"),
    }
}

fn collection(group: &str, resource: &str, namespace: &str) -> CollectionReference {
    CollectionReference {
        group: Some(group.into()),
        version: Some("v1".into()),
        resource: resource.into(),
        namespace: namespace.into(),
        ..CollectionReference::default()
    }
}

fn kept(reference: impl Into<Reference>) -> ViewBackedRead {
    ViewBackedRead {
        reference: reference.into(),
        object: None,
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
        limit: None,
    }
}

impl From<CollectionReference> for Reference {
    fn from(collection: CollectionReference) -> Self {
        Self::Collection(collection)
    }
}

impl From<NamedObject> for Reference {
    fn from(object: NamedObject) -> Self {
        Self::Object(object)
    }
}

fn object(group: &str, resource: &str, namespace: &str, name: &str) -> NamedObject {
    NamedObject {
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
        declared: false,
        inline: false,
    }
}

/// Each path that a view answers has a reference and a narrowing.
#[test]
fn a_path_of_a_collection_or_an_object_is_kept() {
    let in_ns = |subject: ViewBackedRead, namespace: &str| ViewBackedRead {
        namespace: namespace.into(),
        ..subject
    };
    let named = |subject: ViewBackedRead, namespace: &str, name: &str| ViewBackedRead {
        object: Some(ObjectKey::new(namespace, name)),
        namespace: namespace.into(),
        ..subject
    };
    let narrowed = |labels: &str, fields: &str| {
        kept(CollectionReference {
            label_selector: labels.into(),
            field_selector: fields.into(),
            ..collection("", "pods", "")
        })
    };
    let pods = || kept(collection("", "pods", ""));
    let deployments = |namespace| kept(collection("apps", "deployments", namespace));
    // One name in whichever namespace is kept alone.
    let only = |name: &str| {
        let mut subject = deployments("");
        if let Reference::Collection(collection) = &mut subject.reference {
            collection.field_selector = format!("metadata.name={name}");
        }
        subject
    };
    for (path, expected) in [
        ("/api/v1/pods", pods()),
        ("/apis/apps/v1/deployments", deployments("")),
        (
            "/apis/apps/v1/namespaces/staging/deployments",
            in_ns(deployments("staging"), "staging"),
        ),
        (
            "/apis/apps/v1/namespaces/AAA/deployments",
            in_ns(deployments(""), "va"),
        ),
        (
            "/apis/apps/v1/namespaces/x-AAA/deployments",
            in_ns(deployments(""), "x-va"),
        ),
        (
            "/apis/apps/v1/namespaces/staging/deployments/web",
            named(
                kept(object("apps", "deployments", "staging", "web")),
                "staging",
                "web",
            ),
        ),
        (
            "/apis/apps/v1/namespaces/staging/deployments/AAA",
            named(deployments("staging"), "staging", "va"),
        ),
        (
            "/apis/apps/v1/namespaces/AAA/deployments/BBB",
            named(deployments(""), "va", "vb"),
        ),
        (
            "/apis/apps/v1/namespaces/AAA/deployments/web",
            named(only("web"), "va", "web"),
        ),
        (
            "/api/v1/nodes/AAA",
            named(kept(collection("", "nodes", "")), "", "va"),
        ),
        (
            "/api/v1/nodes/n1",
            named(kept(object("", "nodes", "", "n1")), "", "n1"),
        ),
        ("/api/v1/namespaces", kept(collection("", "namespaces", ""))),
        (
            "/api/v1/namespaces/AAA",
            named(kept(collection("", "namespaces", "")), "", "va"),
        ),
        (
            "/api/v1/namespaces/a",
            named(kept(object("", "namespaces", "", "a")), "", "a"),
        ),
        ("/api/v1/namespaces/AAA/pods", in_ns(pods(), "va")),
        // A subresource of Namespaces, and of nothing else.
        (
            "/apis/g.io/v1/namespaces/a/status",
            in_ns(kept(collection("g.io", "status", "a")), "a"),
        ),
        (
            "/apis/g.io/v1/e2e-tests",
            kept(collection("g.io", "e2e-tests", "")),
        ),
        (
            "/api/v1/pods?labelSelector=app%3Dweb",
            narrowed("app=web", ""),
        ),
        (
            "/api/v1/pods?labelSelector=app=web,b+in+(c,d)",
            narrowed("app=web,b in (c,d)", ""),
        ),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
            narrowed("", "spec.nodeName=n1"),
        ),
        (
            "/api/v1/pods?labelSelector=app=AAA",
            ViewBackedRead {
                label_selector: "app=va".into(),
                ..pods()
            },
        ),
        (
            "/api/v1/pods?labelSelector=AAA",
            ViewBackedRead {
                label_selector: "va".into(),
                ..pods()
            },
        ),
        (
            "/api/v1/pods?fieldSelector=metadata.name!=AAA,metadata.namespace==BBB",
            ViewBackedRead {
                field_selector: "metadata.name!=va,metadata.namespace==vb".into(),
                ..pods()
            },
        ),
        (
            "/api/v1/pods?labelSelector=a&fieldSelector=metadata.name=AAA&limit=5",
            ViewBackedRead {
                field_selector: "metadata.name=va".into(),
                limit: Some(5),
                ..narrowed("a", "")
            },
        ),
        ("/api/v1/pods?limit=0", pods()),
    ] {
        let found = api_target(None, path, "va", "vb").unwrap();
        assert_eq!(found.by_view, Some(expected), "{path}");
    }
}

/// A call that a view answers otherwise than the API server is read from the API server.
#[test]
fn a_path_that_no_view_answers_like_the_api_server_is_read_live() {
    for path in [
        "/version",
        "/healthz",
        "/api",
        "/api/v1",
        "/apis/apps/v1",
        "/api/v1/pods/",
        "/api/v1/watch/pods",
        "/api/v1/namespaces/a/status",
        "/api/v1/namespaces/a/finalize",
        "/api/v1/namespaces/a/pods/b/log",
        "/apis/apps/v1/namespaces/a/deployments/b/scale",
        "/api/v1/nodes/a/proxy/metrics",
        "/apis/route.openshift.io/v1/Routes",
        "/apis/AAA/v1/x",
        "/apis/apps/AAA/deployments",
        "/apis/apps/latest/deployments",
        "/apis/apps/vx/deployments",
        "/apis/apps/v1betax/deployments",
        "/api/v1/AAA",
        "/api/v1/namespaces/a/AAA",
        "/api/v1/pods?watch=true",
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/pods?continue=x",
        "/api/v1/pods?limit=x",
        "/api/v1/pods?limit=1&limit=2",
        "/api/v1/pods?fieldSelector=spec.nodeName=AAA",
        "/api/v1/pods?fieldSelector=AAA",
        "/api/v1/pods?fieldSelector=metadata.name=a,spec.nodeName=AAA",
        "/api/v1/namespaces/a/pods/b?limit=1",
        "/apis/apps/v1/namespaces/a",
        "/metrics/api/v1/pods",
    ] {
        assert_eq!(
            api_target(None, path, "va", "vb").unwrap().by_view,
            None,
            "{path}"
        );
        let declared = json!({"apiCall": {"urlPath": with_variables(path), "cache": true}});
        let problem = policy_of(None, &declared).unwrap_err();
        assert!(
            problem.starts_with(
                "AR302 spec.rules[0].context[0].apiCall.cache: this call cannot be cached: "
            ),
            "{path}: {problem}"
        );
    }
    let post = json!({"apiCall": {"urlPath": "/api/v1/pods", "method": "POST", "cache": true}});
    assert!(policy_of(None, &post).unwrap_err().contains("POST"));
    let service = json!({"apiCall": {"service": {"url": "http://s/"}, "cache": true}});
    assert!(policy_of(None, &service).unwrap_err().contains("service"));
    // A limit that is known to be no number only now.
    assert_eq!(
        api_target(None, "/api/v1/pods?limit=AAA", "x", "")
            .unwrap()
            .by_view,
        None
    );
    // A policy that asks for a live read is answered by the API server.
    let live = policy_of(
        None,
        &json!({"apiCall": {"urlPath": "/api/v1/pods", "cache": false}}),
    );
    assert_eq!(live.unwrap().references().count(), 0);
}

#[test]
fn a_variables_value_cannot_change_the_shape_of_a_path() {
    for (path, a, found) in [
        ("/api/v1/namespaces/AAA/pods", "x/secrets/y?", "`/`"),
        ("/api/v1/namespaces/AAA/pods", "..", "`..`"),
        ("/api/v1/namespaces/AAA/pods", "a..b", "`..`"),
        ("/api/v1/namespaces/AAA/pods", ".", "`.`"),
        ("/api/v1/namespaces/AAA/pods", "", "empty"),
        ("/api/v1/namespaces/AAA/pods", "%2e%2e", "`%`"),
        ("/api/v1/namespaces/AAA/pods", "a%2fb", "`%`"),
        ("/api/v1/namespaces/AAA/pods", "a#b", "`#`"),
        ("/api/v1/namespaces/AAA/pods", "a\\b", "`\\\\`"),
        ("/api/v1/namespaces/AAA/pods", "a\nb", "`\\n`"),
        ("/api/v1/namespaces/.AAA/pods", ".", "`..`"),
        ("/version/AAA", "a?b", "`?`"),
        ("/api/v1/pods?labelSelector=app=AAA", "a,tier!=b", "`,`"),
        ("/api/v1/pods?labelSelector=app=AAA", "a&limit=1", "`&`"),
        ("/api/v1/pods?labelSelector=app=AAA", "a..b", "`..`"),
        ("/api/v1/pods?fieldSelector=metadata.name=AAA", "a=b", "`=`"),
        ("/api/v1/pods?x=AAA", "a\0", "`\\u{0}`"),
    ] {
        let error = api_target(None, path, a, "").unwrap_err();
        assert!(
            error.starts_with("AR303 context entry `x`: urlPath: ") && error.contains(found),
            "{path} {a:?}: {error}"
        );
    }
}

#[test]
fn a_rendered_path_is_escaped_anew() {
    for (path, a, expected) in [
        (
            "/api/v1/nodes/AAA",
            "system:x y",
            "/api/v1/nodes/system:x%20y",
        ),
        ("/api/v1/nodes/%41", "", "/api/v1/nodes/A"),
        ("/api/v1/nodes/a+b", "", "/api/v1/nodes/a+b"),
        ("/api/v1/pods?x=y-AAA", "a&b", "/api/v1/pods?x=y-a%26b"),
        (
            "/api/v1/pods?x=AAA",
            "a&b=c%20d",
            "/api/v1/pods?x=a%26b%3Dc%2520d",
        ),
        (
            "/api/v1/pods?labelSelector=AAA",
            "a in (b)",
            "/api/v1/pods?labelSelector=a%20in%20%28b%29",
        ),
        (
            "/api/v1/pods?labelSelector=app%3Dcritical",
            "",
            "/api/v1/pods?labelSelector=app%3Dcritical",
        ),
        ("/api/v1/pods?x", "", "/api/v1/pods?x="),
        ("/version", "", "/version"),
    ] {
        assert_eq!(
            api_target(None, path, a, "").unwrap().path,
            expected,
            "{path}"
        );
    }
}

#[test]
fn a_malformed_path_is_a_problem() {
    for path in [
        "",
        "api/v1/pods",
        "https://elsewhere/api/v1/pods",
        "AAA",
        "AAA/pods",
        "//api/v1/pods",
        "/api/v1//pods",
        "/api/v1/../pods",
        "/api/v1/%2e%2e/pods",
        "/api/v1/a%2fb",
        "/api/v1/%zz",
        "/api/v1/%AAA",
        "/api/v1/pods#x",
        "/api/v1/pods?x#y",
        "/api/v1\\pods",
        "/api/v1/pods?AAA=x",
        "/api/v1/pods?x=%f",
    ] {
        let problem = path_policy(None, &with_variables(path)).unwrap_err();
        assert!(
            problem.starts_with("AR302 spec.rules[0].context[0].apiCall.urlPath: "),
            "{path}: {problem}"
        );
    }
}

#[test]
fn a_path_has_so_many_segments_and_parameters_at_most() {
    for (segments, parameters, is_fine) in [(32, 16, true), (33, 0, false), (1, 17, false)] {
        let text = "/a".repeat(segments) + "?" + &vec!["x=1"; parameters].join("&");
        let parsed = PathTemplate::parse(&Template::literal(&text), true);
        assert_eq!(parsed.is_ok(), is_fine, "{text}");
        let segments = vec![Template::literal("a"); segments];
        let query = vec![("x".to_owned(), Template::literal("1")); parameters];
        let of_parts = PathTemplate::of_parts(segments, query);
        assert_eq!(of_parts.is_ok(), is_fine, "{text}");
    }
}

#[test]
fn a_path_without_variables_is_read_as_strictly_as_a_template() {
    assert!(Concrete::parse("/a/b+c?x=1").is_ok());
    for path in [
        "a",
        "/a#b",
        "/a//b",
        "/a/%2e%2e",
        "/a?x=#",
        "/a?x=\\",
        "/a?x=\n",
        "/a?x=%0A",
    ] {
        assert!(Concrete::parse(path).is_err(), "{path:?}");
    }
}

#[test]
fn a_path_names_a_list_unless_it_names_an_object() {
    for (path, is_list) in [
        ("/api/v1/pods", true),
        ("/api/v1/namespaces/a/pods?labelSelector=a&limit=5", true),
        ("/api/v1/nodes/n", false),
        ("/api/v1/namespaces/a/pods/p", false),
    ] {
        let template = PathTemplate::parse(&Template::literal(path), true).unwrap();
        let plan = ViewBackedPlan::of(&template, None, false, false).unwrap();
        assert_eq!(plan.is_list(), is_list, "{path}");
        assert_eq!(template.written(), path);
    }
}

#[test]
fn a_services_answer_has_its_status_beside_its_body() {
    for (body, answer) in [
        (json!({"a": 1}), json!({"a": 1, "statusCode": 404})),
        (json!([1]), json!({"body": [1], "statusCode": 404})),
    ] {
        assert_eq!(service_answer(404, body), answer);
    }
}

#[test]
fn each_reference_is_named_once_and_declared_where_any_entry_declares_it() {
    let cache = json!({"group": "", "version": "v1", "kind": "nodes"});
    let context = json!([
        {"name": "k", "apiCall": {"urlPath": "/api/v1/nodes", "cache": true}},
        {"name": "l", "resourceCache": cache},
        {"name": "m", "apiCall": {"urlPath": "/api/v1/nodes"}},
        {"name": "a", "apiCall": {"urlPath": "/api/v1/pods"}},
        {"name": "b", "apiCall": {"urlPath": "/api/v1/pods", "cache": true}},
        {"name": "c", "apiCall": {"urlPath": "/api/v1/pods?labelSelector={{ request.namespace }}"}},
        {"name": "d", "configMap": {"name": "m", "namespace": "n"}},
        {"name": "e", "configMap": {"name": "{{ request.namespace }}"}},
        {"name": "f", "configMap": {"name": "m"}},
        {"name": "g", "apiCall": {"urlPath": "/version"}},
        {"name": "h", "globalReference": {"name": "entry.part"}},
        {"name": "i", "globalReference": {"name": "{{ request.namespace }}"}},
        {"name": "j", "cachedContextEntry": {"name": "entry.part"}},
    ]);
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]}, "context": context,
            "validate": {"deny": {}},
        }]},
    });
    let policy = compile(&manifest).unwrap();
    let mut found: Vec<_> = policy.references().collect();
    found.sort();
    let mut expected = vec![
        Reference::from(CollectionReference {
            declared: true,
            ..collection("", "pods", "")
        }),
        Reference::from(CollectionReference {
            declared: true,
            inline: true,
            ..collection("", "nodes", "")
        }),
        object("", "configmaps", "n", "m").into(),
        object("", "configmaps", "default", "m").into(),
        Reference::LabelledConfigMaps,
    ];
    expected.sort();
    assert_eq!(found, expected);
    use anteroom_model::EntryKind::{Cached, Global};
    assert_eq!(
        policy.entries().collect::<Vec<_>>(),
        [(Cached, "entry.part"), (Global, "entry")]
    );
}

proptest! {
    /// Whatever stands in a path's variables: what is rendered is permitted, as it is, and names the
    /// same thing.
    #[test]
    fn every_rendered_path_is_permitted(a in "[a-c./?#%=,& :~é\\\\-]{0,6}", b in "[a-c.=,!() -]{0,6}") {
        for path in [
            "/api/v1/namespaces/AAA/pods/x-BBB",
            "/api/v1/pods?labelSelector=app=AAA,b!=BBB&fieldSelector=metadata.name=AAA&x=BBB",
            "/apis/g/v1/AAABBB?labelSelector=BBB",
        ] {
            let policy = path_policy(None, &with_variables(path)).unwrap();
            let Ok(FactSubject::Api(rendered)) = subject(&policy, &request(&a, &b)) else {
                continue;
            };
            let call = crate::Call::Api { path: &rendered.path, data: None };
            let expected = crate::Permit::Api { path: rendered.path.clone() };
            prop_assert_eq!(policy.permits("r", "x", call), Ok(expected));
            let segments = rendered.path.split('?').next().unwrap_or_default().matches('/').count();
            prop_assert_eq!(segments, path.split('?').next().unwrap_or_default().matches('/').count());
        }
    }
}
