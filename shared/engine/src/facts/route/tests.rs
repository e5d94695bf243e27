mod parts;
mod secrets;

use std::sync::Arc;

use anteroom_model::{EntryRecord, EntryState, Failure, Projection};
use anteroom_policy::{CALLS, CALLS_DECLARED, CALLS_OFF, NamedObject};

use serde_json::Value;

use super::*;
use crate::{facts::tests::pods, testing};

const PODS: &str = "/api/v1/namespaces/own/pods";

fn entry(kind: EntryKind, name: &str, binding: Binding) -> EntryRecord {
    EntryRecord {
        kind,
        name: name.into(),
        uid: String::new(),
        generation: 1,
        state: EntryState::Bound(binding),
        projections: vec![Projection {
            name: "names".into(),
            expression: "[].metadata.name".into(),
        }],
    }
}

fn invalid(kind: EntryKind, name: &str) -> EntryRecord {
    let failure = Failure::new("ResourceNotFound", "no such resource");
    EntryRecord {
        state: EntryState::Invalid { failure },
        ..entry(kind, name, Binding::whole(ViewId::new("none")))
    }
}

fn catalog(records: &[EntryRecord]) -> Catalog {
    Catalog {
        entries: Arc::new(testing::entries(records)),
        ..Catalog::default()
    }
}

fn by(namespace: Option<&str>) -> RuleRef {
    RuleRef {
        policy: ObjectKey::new(namespace.unwrap_or_default(), "p"),
        rule: "r".into(),
    }
}

fn kept(reference: Reference) -> ViewBackedRead {
    ViewBackedRead {
        reference,
        object: None,
        namespace: "own".into(),
        label_selector: String::new(),
        field_selector: String::new(),
        limit: None,
    }
}

fn one_pod(declared: bool) -> ViewBackedRead {
    let reference = Reference::Object(NamedObject {
        version: "v1".into(),
        resource: "pods".into(),
        namespace: "own".into(),
        name: "p".into(),
        declared,
        ..NamedObject::default()
    });
    ViewBackedRead {
        object: Some(ObjectKey::new("own", "p")),
        ..kept(reference)
    }
}

fn api(by_view: Option<ViewBackedRead>) -> FactSubject {
    FactSubject::Api(ResolvedApiCall {
        path: PODS.into(),
        data: None,
        by_view,
    })
}

fn need(subject: FactSubject) -> FactRequest {
    FactRequest {
        id: 3,
        variable: "v".into(),
        subject,
        expression: "length(@)".into(),
        parameters: Arc::default(),
        missing_key_is_error: true,
        age_max_ms: Some(7),
        is_pushed_down: false,
        cel: None,
    }
}

/// The backends, in short: the view's name and the shape, or `live` with what is read.
fn backends(
    subject: FactSubject,
    namespace: Option<&str>,
    catalog: &Catalog,
) -> Result<Vec<String>, FactError> {
    let route = route(need(subject), &by(namespace), catalog)?;
    let short = |backend: &Backend| match backend {
        Backend::View(read) => {
            let selection = read.query.selection.clone().unwrap_or_default();
            format!("{} {:?}", read.view, selection.shape)
        }
        Backend::Live(LiveRead { call, .. }) => match call {
            LiveCall::Api { path, .. } => format!("live {path}"),
            LiveCall::Service { url, .. } => format!("live {url}"),
            LiveCall::ConfigMap { object } => format!("live configmap {object}"),
            LiveCall::Image { reference } => format!("live image {reference}"),
            other => format!("live {other:?}"),
        },
    };
    Ok(route.backends.iter().map(short).collect())
}

fn labelled() -> EntryRecord {
    let name = Reference::LabelledConfigMaps.name();
    entry(
        EntryKind::Implicit,
        &name,
        Binding::whole(ViewId::new("configmaps.v1~l")),
    )
}

fn all_pods() -> EntryRecord {
    let name = Reference::Collection(pods(false)).name();
    entry(
        EntryKind::Implicit,
        &name,
        Binding::whole(ViewId::new("pods.v1")),
    )
}

/// Each kind of subject, and the backends that have it.
#[test]
fn every_target_has_its_backends() {
    let array = Binding {
        shape: Shape::Array,
        ..Binding::whole(ViewId::new("g"))
    };
    let full = catalog(&[
        entry(EntryKind::Cached, "e", Binding::whole(ViewId::new("c"))),
        entry(EntryKind::Global, "e", array),
        labelled(),
        all_pods(),
    ]);
    let empty = catalog(&[]);
    let named = |kind| FactSubject::Entry {
        kind,
        name: "e".into(),
        projection: String::new(),
    };
    let config_map = |literal| FactSubject::ConfigMap {
        object: ObjectKey::new("own", "c"),
        literal,
    };
    let service = FactSubject::Service {
        url: "https://s".into(),
        data: None,
    };
    let post = FactSubject::Api(ResolvedApiCall {
        path: PODS.into(),
        data: Some(Value::Null),
        by_view: Some(kept(Reference::Collection(pods(false)))),
    });
    let live = format!("live {PODS}");
    let collection = |declared| api(Some(kept(Reference::Collection(pods(declared)))));
    let cases: Vec<(FactSubject, &Catalog, Vec<&str>)> = vec![
        (named(EntryKind::Cached), &full, vec!["c Document"]),
        (named(EntryKind::Global), &full, vec!["g Array"]),
        (
            FactSubject::Collection(pods(true)),
            &full,
            vec!["pods.v1 Document"],
        ),
        (api(None), &full, vec![&live]),
        (post, &full, vec![&live]),
        (service, &full, vec!["live https://s"]),
        (collection(false), &full, vec!["pods.v1 List", &live]),
        (collection(true), &full, vec!["pods.v1 List"]),
        (collection(false), &empty, vec![&live]),
        (
            api(Some(one_pod(false))),
            &empty,
            vec!["pods.v1~objects Object", &live],
        ),
        (
            api(Some(one_pod(true))),
            &empty,
            vec!["pods.v1~objects Object"],
        ),
        (
            config_map(true),
            &full,
            vec![
                "configmaps.v1~l Object",
                "configmaps.v1~objects Object",
                "live configmap own/c",
            ],
        ),
        (
            config_map(false),
            &full,
            vec!["configmaps.v1~l Object", "live configmap own/c"],
        ),
        (
            config_map(true),
            &empty,
            vec!["configmaps.v1~objects Object", "live configmap own/c"],
        ),
        (config_map(false), &empty, vec!["live configmap own/c"]),
    ];
    for (subject, catalog, expected) in cases {
        let text = format!("{subject:?}");
        let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(backends(subject, None, catalog), Ok(expected), "{text}");
    }
}

/// They may be large, and are held while the rule waits.
#[test]
fn all_backends_of_a_fact_share_its_parameters() {
    let fact = need(api(Some(one_pod(false))));
    let parameters = Arc::clone(&fact.parameters);
    let route = route(fact, &by(None), &catalog(&[])).unwrap();
    let queries = route.backends.iter().map(|backend| match backend {
        Backend::View(read) => &read.query,
        Backend::Live(read) => &read.query,
    });
    let stands_for = route.stands_for.iter().map(|read| &read.query);
    let all: Vec<_> = queries.chain(stands_for).collect();
    assert_eq!(all.len(), 3);
    for query in all {
        assert!(Arc::ptr_eq(&query.parameters, &parameters));
    }
}

/// `globalReference: {name: entry.projection}`.
#[test]
fn the_projection_of_an_entry_is_applied_before_the_expression() {
    let catalog = catalog(&[entry(
        EntryKind::Global,
        "e",
        Binding::whole(ViewId::new("g")),
    )]);
    let subject = |projection: &str| FactSubject::Entry {
        kind: EntryKind::Global,
        name: "e".into(),
        projection: projection.into(),
    };
    let expression = |expression: &str| {
        let request = FactRequest {
            expression: expression.into(),
            ..need(subject("names"))
        };
        match &route(request, &by(None), &catalog).unwrap().backends[0] {
            Backend::View(read) => read.query.expression.clone(),
            Backend::Live(_) => panic!("an entry is never read live"),
        }
    };
    assert_eq!(expression("length(@)"), "([].metadata.name) | (length(@))");
    assert_eq!(expression(""), "[].metadata.name");
    let error = backends(subject("other"), None, &catalog).unwrap_err();
    assert_eq!(
        error.to_string(),
        "projection `other` not found: entry `e` has names"
    );
}

#[test]
fn a_fact_without_a_usable_entry_is_an_error_or_read_live() {
    let implicit = |reference: Reference| invalid(EntryKind::Implicit, &reference.name());
    let broken = catalog(&[
        invalid(EntryKind::Cached, "e"),
        implicit(Reference::Collection(pods(false))),
        implicit(Reference::LabelledConfigMaps),
    ]);
    let empty = catalog(&[]);
    let named = |kind, name: &str| FactSubject::Entry {
        kind,
        name: name.into(),
        projection: String::new(),
    };
    let collection = |declared| api(Some(kept(Reference::Collection(pods(declared)))));
    let cases = [
        (named(EntryKind::Cached, "e"), &broken, "AR102"),
        (named(EntryKind::Cached, "nowhere"), &broken, "AR101"),
        (named(EntryKind::Global, "e"), &broken, "AR101"),
        (FactSubject::Collection(pods(true)), &empty, "AR103"),
        (FactSubject::Collection(pods(true)), &broken, "AR102"),
        (collection(true), &empty, "AR103"),
        (collection(true), &broken, "AR102"),
    ];
    for (subject, catalog, code) in cases {
        let text = format!("{subject:?}");
        let error = backends(subject, None, catalog).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{text}");
    }
    // Nobody asked for it to be kept, so nothing is amiss.
    assert_eq!(
        backends(collection(false), None, &broken),
        Ok(vec![format!("live {PODS}")])
    );
    let config_map = FactSubject::ConfigMap {
        object: ObjectKey::new("own", "c"),
        literal: false,
    };
    let live = vec!["live configmap own/c".to_owned()];
    assert_eq!(backends(config_map, None, &broken), Ok(live));
    // As users of Kyverno look for it.
    let error = backends(named(EntryKind::Global, "n"), None, &empty).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to fetch entry key=n: entry `n` not found: create a GlobalContextEntry with this name"
    );
}

/// A namespaced Policy reads its own namespace alone, by every backend.
#[test]
fn a_confined_reader_reads_nothing_outside_its_namespace() {
    let confined = |namespace: &str| Binding {
        namespace: namespace.into(),
        ..Binding::whole(ViewId::new("v"))
    };
    let own_pods = CollectionReference {
        namespace: "own".into(),
        ..pods(true)
    };
    let catalog = catalog(&[
        entry(EntryKind::Cached, "own", confined("own")),
        entry(EntryKind::Cached, "all", confined("")),
        all_pods(),
        entry(
            EntryKind::Implicit,
            &Reference::Collection(own_pods.clone()).name(),
            confined("own"),
        ),
    ]);
    let named = |name: &str| FactSubject::Entry {
        kind: EntryKind::Cached,
        name: name.into(),
        projection: String::new(),
    };
    let call = |path: &str, by_view| {
        FactSubject::Api(ResolvedApiCall {
            path: path.into(),
            data: None,
            by_view,
        })
    };
    let of = |namespace: &str| {
        let whole = kept(Reference::Collection(pods(false)));
        Some(ViewBackedRead {
            namespace: namespace.into(),
            ..whole
        })
    };
    let config_map = |namespace: &str| FactSubject::ConfigMap {
        object: ObjectKey::new(namespace, "c"),
        literal: true,
    };
    let cases = [
        (named("own"), true),
        (named("all"), false),
        (FactSubject::Collection(own_pods), true),
        (FactSubject::Collection(pods(true)), false),
        (call(PODS, None), true),
        (call(PODS, of("own")), true),
        // The path and what was made of it must agree.
        (call(PODS, of("other")), false),
        (call(PODS, of("")), false),
        (call("/api/v1/namespaces/other/pods", of("other")), false),
        (call("/api/v1/pods", None), false),
        (call("/version", None), false),
        (call(PODS, Some(one_pod(false))), true),
        (config_map("own"), true),
        (config_map("other"), false),
    ];
    for (subject, allowed) in cases {
        let text = format!("{subject:?}");
        let found = backends(subject, Some("own"), &catalog);
        assert_eq!(found.is_ok(), allowed, "{text}");
        if let Err(error) = found {
            assert_eq!(error.code().as_str(), "AR304", "{text}");
        }
    }
}

#[test]
fn a_views_error_is_final_where_another_way_would_say_the_same() {
    let first = |subject, catalog: &Catalog| match route(need(subject), &by(None), catalog)
        .unwrap()
        .backends[0]
        .clone()
    {
        Backend::View(read) => read,
        Backend::Live(_) => panic!("no view"),
    };
    let config_map = |literal| FactSubject::ConfigMap {
        object: ObjectKey::new("own", "c"),
        literal,
    };
    let some = first(config_map(true), &catalog(&[labelled()]));
    let alone = first(config_map(false), &catalog(&[labelled()]));
    let referenced = first(config_map(true), &catalog(&[]));
    let absent = FactError::ObjectNotFound {
        resource: "configmaps".into(),
        namespace: "own".into(),
        name: "c".into(),
    };
    let bad = FactError::EvaluationFailed {
        message: "m".into(),
    };
    let unsynced = FactError::NotSynced {
        view: "v".into(),
        state: "s".into(),
    };
    let stub = FactError::ObjectUnreadable {
        view: "v".into(),
        object: "own/c".into(),
        reason: "r".into(),
    };
    for (read, error, ends) in [
        (&some, &stub, false),
        (&alone, &stub, false),
        (&referenced, &stub, true),
        (&some, &absent, false),
        (&referenced, &absent, true),
        (&some, &bad, true),
        (&referenced, &bad, true),
        (&some, &unsynced, false),
        (&referenced, &unsynced, false),
    ] {
        assert_eq!(read.ends_with(error), ends, "{read:?} {error}");
    }
}

/// `--cache-api-calls`. Another policy's reference may have been published all the same.
#[test]
fn calls_that_are_not_kept_are_read_live_and_inline_entries_are_not() {
    let said = |reason: &str| EntryRecord {
        state: EntryState::Invalid {
            failure: Failure::new(reason, "m"),
        },
        ..entry(
            EntryKind::Implicit,
            CALLS,
            Binding::whole(ViewId::new("none")),
        )
    };
    let call = |declared| api(Some(kept(Reference::Collection(pods(declared)))));
    let object = |declared| api(Some(one_pod(declared)));
    let mut inline_object = one_pod(true);
    if let Reference::Object(object) = &mut inline_object.reference {
        object.inline = true;
    }
    let first = |subject, catalog: &Catalog| {
        let backends = backends(subject, None, catalog).unwrap();
        backends[0].starts_with("live").to_string()
    };
    for (reason, undeclared, declared) in [
        ("Auto", "false", "false"),
        (CALLS_DECLARED, "true", "false"),
        (CALLS_OFF, "true", "true"),
    ] {
        let catalog = catalog(&[said(reason), all_pods()]);
        assert_eq!(first(call(false), &catalog), undeclared, "{reason}");
        assert_eq!(first(object(false), &catalog), undeclared, "{reason}");
        assert_eq!(first(call(true), &catalog), declared, "{reason}");
        assert_eq!(first(object(true), &catalog), declared, "{reason}");
        assert_eq!(first(api(Some(inline_object.clone())), &catalog), "false");
        let inline = FactSubject::Collection(pods(true));
        assert_eq!(first(inline, &catalog), "false");
    }
}

/// The API server knows no such path, and a view would answer with an empty list.
#[test]
fn a_path_whose_scope_is_not_the_resources_is_read_live() {
    let kinds = |namespaced| {
        let mut kind = testing::kind(["", "v1", "pods"], "Pod", &[]);
        kind.namespaced = namespaced;
        Arc::new(crate::kinds::Kinds::new(vec![kind]))
    };
    let reference = |resource: Reference| match resource {
        Reference::Collection(collection) => Reference::Collection(CollectionReference {
            group: Some(String::new()),
            ..collection
        }),
        other => other,
    };
    let list = |namespace: &str| ViewBackedRead {
        namespace: namespace.into(),
        ..kept(reference(Reference::Collection(pods(true))))
    };
    let one = |namespace: &str| ViewBackedRead {
        object: Some(ObjectKey::new(namespace, "x")),
        ..list(namespace)
    };
    let name = list("").reference.name();
    let entry = entry(EntryKind::Implicit, &name, Binding::whole(ViewId::new("v")));
    // The path, and whether a view answers it where pods are in namespaces, and where they are not.
    for (subject, namespaced, cluster_scoped) in [
        (list(""), true, true),
        (list("own"), true, false),
        (one("own"), true, false),
        (one(""), false, true),
        (one_pod(true), true, false),
    ] {
        for (scope, by_view) in [(true, namespaced), (false, cluster_scoped)] {
            let catalog = Catalog {
                kinds: kinds(scope),
                ..catalog(std::slice::from_ref(&entry))
            };
            let found = backends(api(Some(subject.clone())), None, &catalog).unwrap();
            let live = found[0].starts_with("live");
            assert_eq!(live, !by_view, "{subject:?} {scope}");
        }
    }
}

fn kept_collection(of: CollectionReference, view: &str) -> EntryRecord {
    let name = Reference::Collection(of).name();
    entry(
        EntryKind::Implicit,
        &name,
        Binding::whole(ViewId::new(view)),
    )
}

#[test]
fn namespace_labels_and_role_bindings_are_read_from_views() {
    let known = catalog(&[
        kept_collection(CollectionReference::namespaces(), "namespaces"),
        kept_collection(CollectionReference::role_bindings(false), "bindings"),
    ]);
    let labels = || FactSubject::NamespaceLabels {
        namespace: "own".into(),
    };
    let live = "live /api/v1/namespaces/own".to_owned();
    let bindings = |cluster| FactSubject::RoleBindings { cluster };
    for reader in [None, Some("own")] {
        let found = backends(labels(), reader, &known).unwrap();
        assert_eq!(found, ["namespaces Object".to_owned(), live.clone()]);
        let unknown = backends(labels(), reader, &catalog(&[])).unwrap();
        assert_eq!(unknown, std::slice::from_ref(&live));
        let found = backends(bindings(false), reader, &known).unwrap();
        assert_eq!(found, ["bindings Document"]);
        let error = backends(bindings(true), reader, &known).unwrap_err();
        assert_eq!(error.code().as_str(), "AR103", "{error}");
    }
    // One that the view does not have may be new: the API server says whether it is there.
    let route = route(need(labels()), &by(None), &known).unwrap();
    let Some(Backend::View(read)) = route.backends.front() else {
        panic!("{route:?}");
    };
    let absent = FactError::ObjectNotFound {
        resource: "namespaces".into(),
        namespace: String::new(),
        name: "own".into(),
    };
    assert!(!read.ends_with(&absent));
}

#[test]
fn an_image_is_read_live() {
    let image = FactSubject::Image {
        reference: "ghcr.io/a/b:1".into(),
        credentials: Default::default(),
    };
    for reader in [None, Some("own")] {
        let found = backends(image.clone(), reader, &catalog(&[])).unwrap();
        assert_eq!(found, ["live image ghcr.io/a/b:1"]);
    }
}
