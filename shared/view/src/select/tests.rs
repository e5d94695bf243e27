use anteroom_jmespath::{Environment, Expression};
use anteroom_model::{
    Collection, Delta, Digest, Epoch, Failure, GroupVersionResource, Op, ResourceVersion, Revision,
    ViewRecord, ViewState,
};
use anteroom_wire::body;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::View;

mod budget;
mod roads;

fn gvr(group: &str, plural: &str) -> GroupVersionResource {
    GroupVersionResource::new(group, "v1", plural)
}

fn view_of(source: Source, kind: &str, objects: &[(&str, &str, Value)]) -> View {
    let bodies = objects.iter().map(|(namespace, name, object)| {
        let body = body::encode_json(object).unwrap();
        (ObjectKey::new(*namespace, *name), body)
    });
    view_of_bodies(source, kind, bodies.collect())
}

fn view_of_bodies(source: Source, kind: &str, objects: Vec<(ObjectKey, Bytes)>) -> View {
    let mut view = View::live(source.view_id());
    let count = objects.len() as u64;
    for (position, (key, body)) in (1..).zip(objects) {
        let delta = Delta {
            key,
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new(position.to_string()),
            op: Op::Put(body),
        };
        view.apply(Revision(position), &delta);
    }
    let record = ViewRecord {
        view: source.view_id(),
        info: SourceInfo {
            source,
            kind: kind.into(),
            namespaced: true,
        },
        epoch: Epoch::new(1, 0),
        state: ViewState::Synced,
        version: ResourceVersion::new("77"),
        objects: count,
        digest: Digest::EMPTY,
        origin: Epoch::default(),
        age_max_ms: None,
    };
    view.control(Revision(count + 1), record);
    view
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    })
}

fn configmap(namespace: &str, name: &str) -> Value {
    object(
        "v1",
        "ConfigMap",
        namespace,
        name,
        &json!({"of": namespace}),
    )
}

fn configmaps(keys: &[(&str, &str)]) -> View {
    let objects: Vec<_> = keys
        .iter()
        .map(|(namespace, name)| (*namespace, *name, configmap(namespace, name)))
        .collect();
    let source = Source::Collection(Collection::all(gvr("", "configmaps")));
    view_of(source, "ConfigMap", &objects)
}

fn select(view: &View, selection: &Selection) -> Result<Value, FactError> {
    let read = view.read(0, 0)?;
    let whole = Expression::parse("@").unwrap();
    let selected = Select::new(selection)?.apply(read)?;
    let result = selected.evaluate(&whole, &Environment::default())?;
    // The node has to agree with itself, by whatever road it is read.
    crate::node::tests::json_of(selected.node());
    Ok(body::to_json(&result).unwrap())
}

fn list() -> Selection {
    Selection {
        shape: Shape::List,
        ..Selection::default()
    }
}

fn one(namespace: &str, name: &str) -> Selection {
    Selection {
        shape: Shape::Object,
        object: Some(ObjectKey::new(namespace, name)),
        ..Selection::default()
    }
}

fn bare(namespace: &str, name: &str) -> Value {
    json!({"metadata": configmap(namespace, name)["metadata"]})
}

/// The same JSON shape as the API server's.
#[test]
fn a_list_has_the_json_shape_of_the_api_server() {
    let view = configmaps(&[("a", "x"), ("a-b", "y"), ("b", "z")]);
    let items = [bare("a-b", "y"), bare("a", "x"), bare("b", "z")];
    let whole = json!({
        "apiVersion": "v1",
        "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "77"},
        "items": items,
    });
    assert_eq!(select(&view, &list()), Ok(whole));
    let none = Selection {
        label_selector: "of=nobody".into(),
        ..list()
    };
    assert_eq!(select(&view, &none).unwrap()["items"], json!([]));
}

#[test]
fn items_of_custom_resources_keep_their_kind() {
    for (group, bare) in [
        ("networking.istio.io", false),
        ("gateway.networking.k8s.io", false),
        ("networking.k8s.io", true),
        ("apps", true),
    ] {
        let source = Source::Collection(Collection::all(gvr(group, "things")));
        let api_version = format!("{group}/v1");
        let thing = object(&api_version, "Thing", "a", "x", &json!({}));
        let view = view_of(source, "Thing", &[("a", "x", thing.clone())]);
        let listed = select(&view, &list()).unwrap();
        assert_eq!(listed["items"][0].get("kind").is_none(), bare, "{group}");
        assert_eq!(listed["items"][0]["metadata"], thing["metadata"]);
        // A GET of one object has them, and so has an array.
        assert_eq!(select(&view, &one("a", "x")), Ok(thing.clone()));
        let array = Selection {
            shape: Shape::Array,
            ..Selection::default()
        };
        assert_eq!(select(&view, &array), Ok(json!([thing])));
    }
}

#[test]
fn a_list_cut_by_its_limit_states_the_remaining_count() {
    let view = configmaps(&[("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")]);
    let limited = |selection: Selection, limit| Selection {
        limit: Some(limit),
        ..selection
    };
    let listed = select(&view, &limited(list(), 1)).unwrap();
    assert_eq!(listed["items"], json!([bare("a", "1")]));
    assert_eq!(listed["metadata"]["remainingItemCount"], json!(3));
    assert!(!listed["metadata"]["continue"].as_str().unwrap().is_empty());
    for limit in [0, 4, 5] {
        let listed = select(&view, &limited(list(), limit)).unwrap();
        assert_eq!(listed["items"].as_array().unwrap().len(), 4, "{limit}");
        assert_eq!(listed["metadata"], json!({"resourceVersion": "77"}));
    }
    let in_a = Selection {
        namespace: "a".into(),
        ..list()
    };
    let listed = select(&view, &limited(in_a, 2)).unwrap();
    assert_eq!(listed["items"], json!([bare("a", "1"), bare("a", "2")]));
    assert_eq!(listed["metadata"]["remainingItemCount"], json!(1));
    // With a selector, the API server does not say how many are left.
    let labelled = Selection {
        label_selector: "of=a".into(),
        ..list()
    };
    let listed = select(&view, &limited(labelled, 2)).unwrap();
    assert!(listed["metadata"].get("continue").is_some());
    assert!(listed["metadata"].get("remainingItemCount").is_none());
}

#[test]
fn a_document_of_some_objects_has_them_under_both_names() {
    let view = configmaps(&[("a", "x"), ("b", "y")]);
    let of_b = Selection {
        namespace: "b".into(),
        ..Selection::default()
    };
    let document = select(&view, &of_b).unwrap();
    assert_eq!(document["items"], json!([configmap("b", "y")]));
    assert_eq!(document["configmaps"]["items"], document["items"]);
    assert!(document.get("metadata").is_none());
}

#[test]
fn a_missing_object_is_not_found_in_the_api_servers_words() {
    let view = configmaps(&[("a", "x")]);
    let error = select(&view, &one("a", "y")).unwrap_err();
    assert_eq!(error.to_string(), "configmaps \"y\" not found");
    let source = Source::Collection(Collection::all(gvr("networking.k8s.io", "ingresses")));
    let view = view_of(source, "Ingress", &[]);
    let error = select(&view, &one("a", "y")).unwrap_err();
    let text = "ingresses.networking.k8s.io \"y\" not found";
    assert_eq!(error.to_string(), text);
}

/// Rule 1: what a view does not hold is unknown, not absent.
#[test]
fn objects_outside_of_a_view_are_refused_and_not_absent() {
    let confined = Collection {
        namespaces: vec!["a".into(), "b".into()],
        ..Collection::all(gvr("", "configmaps"))
    };
    let object = ("a", "x", configmap("a", "x"));
    let view = view_of(Source::Collection(confined), "ConfigMap", &[object]);
    assert!(select(&view, &one("a", "x")).is_ok());
    assert!(select(&view, &list()).is_ok());
    let of_c = Selection {
        namespace: "c".into(),
        ..list()
    };
    let array_of_responses = Selection {
        shape: Shape::Response,
        ..Selection::default()
    };
    let unnamed = Selection {
        shape: Shape::Object,
        ..Selection::default()
    };
    for refused in [
        of_c,
        one("c", "x"),
        one("", "x"),
        array_of_responses,
        unnamed,
    ] {
        let error = select(&view, &refused).unwrap_err();
        let told = matches!(error, FactError::RequestInvalid { .. });
        assert!(told, "{refused:?}: {error}");
    }
}

#[test]
fn selectors_that_cannot_be_read_are_refused() {
    let view = configmaps(&[]);
    let labels = Selection {
        label_selector: "a b".into(),
        ..list()
    };
    let fields = Selection {
        field_selector: "spec.nodeName=a".into(),
        ..list()
    };
    for selection in [labels, fields] {
        let error = select(&view, &selection).unwrap_err();
        assert!(matches!(error, FactError::RequestInvalid { .. }), "{error}");
    }
}

/// Not registered, not synced and not found are three different errors.
#[test]
fn each_state_of_a_referenced_object_has_its_own_answer() {
    let found = referenced::found(&body::encode_json(&configmap("a", "found")).unwrap());
    let failure = Failure::new("Forbidden", "no");
    let records = [
        ("found", found),
        ("pending", referenced::pending().unwrap()),
        ("idle", referenced::idle().unwrap()),
        ("absent", referenced::absent().unwrap()),
        ("failed", referenced::failed(&failure).unwrap()),
    ];
    let records = records.map(|(name, body)| (ObjectKey::new("a", name), body));
    let gvr = gvr("", "configmaps");
    let view = view_of_bodies(Source::Objects { gvr }, "ConfigMap", records.into());
    assert_eq!(
        select(&view, &one("a", "found")),
        Ok(configmap("a", "found"))
    );
    for (name, code) in [
        ("pending", "AR103"),
        ("idle", "AR103"),
        ("absent", "AR110"),
        ("failed", "AR105"),
        ("nobody's", "AR109"),
    ] {
        let error = select(&view, &one("a", name)).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{name}: {error}");
        let select = Select::new(&one("a", name)).unwrap();
        let known = select
            .referenced_object(view.read(0, 0).unwrap())
            .unwrap()
            .state;
        let expected = match name {
            "pending" => ReferenceState::Pending,
            "idle" => ReferenceState::Idle,
            "nobody's" => ReferenceState::Unregistered,
            _ => ReferenceState::Settled,
        };
        assert_eq!(known, expected, "{name}");
    }
    let error = select(&view, &list()).unwrap_err();
    assert!(matches!(error, FactError::RequestInvalid { .. }), "{error}");
}

#[test]
fn a_kept_api_response_is_returned_unchanged() {
    let source = Source::ApiCall {
        url: "https://a.example".into(),
        id: "1".into(),
    };
    let response = Selection {
        shape: Shape::Response,
        ..Selection::default()
    };
    let came = json!([1, {"a": null}, "b"]);
    let view = view_of(source.clone(), "", &[("", Source::RESPONSE, came.clone())]);
    assert_eq!(select(&view, &response), Ok(came.clone()));
    let selected = Select::new(&response).unwrap();
    let Ok(Lazy::One(node)) = selected.lazy(view.read(0, 0).unwrap()) else {
        panic!("a response is no list");
    };
    assert_eq!(
        crate::node::tests::json_of(crate::ViewNode::body(node)),
        came
    );
    let error = select(&view_of(source, "", &[]), &response).unwrap_err();
    assert!(matches!(error, FactError::NotSynced { .. }), "{error}");
}

fn labels() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[ab]", "[xy]", 0..3).prop_map(|labels| json!(labels))
}

fn selection() -> impl Strategy<Value = Selection> {
    let shape = prop_oneof![Just(Shape::Document), Just(Shape::List), Just(Shape::Array)];
    let selector = prop_oneof![
        Just(""),
        Just("a=x"),
        Just("a!=x"),
        Just("a in (x,y),!b"),
        Just("b notin (y)"),
        Just("a"),
    ];
    let names = prop_oneof![
        Just(""),
        Just("metadata.name=1"),
        Just("metadata.namespace!=a")
    ];
    let namespace = prop_oneof![Just(""), Just("a"), Just("a-b"), Just("none")];
    (
        shape,
        selector,
        names,
        namespace,
        proptest::option::of(0..6_u64),
    )
        .prop_map(|(shape, labels, fields, namespace, limit)| Selection {
            shape,
            object: None,
            namespace: namespace.into(),
            label_selector: labels.into(),
            field_selector: fields.into(),
            limit,
        })
}

/// The same, by plain means: a list of JSON objects, filtered.
fn expected(objects: &[Value], selection: &Selection) -> Vec<Value> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let key = |object: &Value| {
        let metadata = &object["metadata"];
        format!(
            "{}/{}",
            metadata["namespace"].as_str().unwrap(),
            metadata["name"].as_str().unwrap()
        )
    };
    let mut objects: Vec<_> = objects.to_vec();
    objects.sort_by_key(key);
    objects.retain(|object| {
        let metadata = &object["metadata"];
        let (a, b) = (
            text(&metadata["labels"]["a"]),
            text(&metadata["labels"]["b"]),
        );
        let labels = match selection.label_selector.as_str() {
            "" => true,
            "a=x" => a.as_deref() == Some("x"),
            "a!=x" => a.as_deref() != Some("x"),
            "a in (x,y),!b" => a.is_some() && b.is_none(),
            "b notin (y)" => b.as_deref() != Some("y"),
            "a" => a.is_some(),
            other => panic!("{other}"),
        };
        let fields = match selection.field_selector.as_str() {
            "metadata.name=1" => metadata["name"] == "1",
            "metadata.namespace!=a" => metadata["namespace"] != "a",
            _ => true,
        };
        let namespace =
            selection.namespace.is_empty() || metadata["namespace"] == selection.namespace.as_str();
        labels && fields && namespace
    });
    if let Some(limit @ 1..) = selection.limit {
        objects.truncate(limit as usize);
    }
    if selection.shape == Shape::List {
        for object in &mut objects {
            let fields = object.as_object_mut().unwrap();
            fields.retain(|name, _| name != "kind" && name != "apiVersion");
        }
    }
    objects
}

proptest! {
    #[test]
    fn a_selection_equals_filtering_a_plain_list(
        keys in proptest::collection::btree_map(("a|a-b|b", "[0-4]"), labels(), 0..12),
        selection in selection(),
    ) {
        let objects: Vec<_> = keys.iter().map(|((namespace, name), labels)| {
            (namespace.as_str(), name.as_str(), object("v1", "ConfigMap", namespace, name, labels))
        }).collect();
        let source = Source::Collection(Collection::all(gvr("", "configmaps")));
        let view = view_of(source, "ConfigMap", &objects);
        let plain: Vec<_> = objects.into_iter().map(|(_, _, object)| object).collect();
        let got = select(&view, &selection).unwrap();
        let items = match selection.shape {
            Shape::Array => got,
            _ => got["items"].clone(),
        };
        prop_assert_eq!(items, json!(expected(&plain, &selection)));
        roads::check(&view, &selection, &plain)?;
    }
}

#[test]
fn a_selection_is_within_limits_of_objects_and_of_bytes() {
    let mut view = crate::testing::TestView::new("", "pods", "Pod");
    for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "1")] {
        view.put(namespace, name, &json!({"long": "x".repeat(100)}));
    }
    let state = view.snapshot();
    let bytes = state.read().objects().next().unwrap().body().len();
    let of = |namespace: &str| Selection {
        namespace: namespace.into(),
        ..Selection::default()
    };
    let one = |name: &str| Selection {
        shape: Shape::Object,
        object: Some(ObjectKey::new("a", name)),
        ..Selection::default()
    };
    for (selection, objects) in [
        (of(""), 3),
        (of("a"), 2),
        (of("b"), 1),
        (of("none"), 0),
        (one("2"), 1),
        (one("none"), 0),
    ] {
        let select = Select::new(&selection).unwrap();
        let is_within = |objects, bytes| select.is_within(state.read(), objects, bytes);
        assert!(is_within(objects, objects * bytes), "{selection:?}");
        assert!(is_within(objects + 1, objects * bytes), "{selection:?}");
        assert_eq!(select.object_key(), selection.object.as_ref());
        let is_list = selection.object.is_none();
        assert_eq!(select.among(state.read(), [].iter()).is_some(), is_list);
        let looked_at = if is_list { objects } else { 1 };
        for most in [0, 2, usize::MAX] {
            let looks_at = select.looks_at(state.read(), most);
            assert_eq!(looks_at, looked_at.min(most), "{selection:?}");
        }
        if objects > 0 {
            assert!(!is_within(objects - 1, usize::MAX), "{selection:?}");
            assert!(!is_within(objects, objects * bytes - 1), "{selection:?}");
        }
    }
}

/// Of the second object of namespace `a` the log has a stub.
fn with_stub(labels: Option<&unreadable::Labels>) -> View {
    let source = Source::Collection(Collection::all(gvr("apps", "widgets")));
    let whole = |name: &str| body::encode_json(&json!({"metadata": {"name": name}})).unwrap();
    let stub = unreadable::stub("it nests too deep", labels);
    let bodies = [
        ("a", "deep", stub),
        ("a", "x", whole("x")),
        ("b", "y", whole("y")),
    ];
    let keyed = bodies.map(|(namespace, name, body)| (ObjectKey::new(namespace, name), body));
    view_of_bodies(source, "Widget", keyed.into())
}

fn refused(view: &View, selection: &Selection) -> Option<String> {
    let selected = Select::new(selection).unwrap();
    let read = view.read(0, 0).unwrap();
    let error = selected.apply(read).err()?;
    assert_eq!(selected.check_readable(read), Err(error.clone()));
    assert!(selected.among(read, [].iter()).is_none());
    match error {
        FactError::ObjectUnreadable { object, reason, .. } => Some(format!("{object}: {reason}")),
        other => panic!("{other}"),
    }
}

#[test]
fn an_object_that_cannot_be_shown_is_the_error_of_queries_that_could_see_it_alone() {
    let app = unreadable::Labels::from([("app".to_owned(), "web".to_owned())]);
    let view = with_stub(Some(&app));
    let all = Selection::default();
    let within = |namespace: &str| Selection {
        namespace: namespace.into(),
        ..Selection::default()
    };
    let labelled = |selector: &str| Selection {
        label_selector: selector.into(),
        ..Selection::default()
    };
    let named = |field: &str| Selection {
        field_selector: field.into(),
        ..Selection::default()
    };
    let one = |name: &str| Selection {
        shape: Shape::Object,
        object: Some(ObjectKey::new("a", name)),
        ..Selection::default()
    };
    let error = Some("a/deep: it nests too deep".to_owned());
    for sees in [
        all,
        within("a"),
        labelled("app=web"),
        named("metadata.name=deep"),
        one("deep"),
    ] {
        assert_eq!(refused(&view, &sees), error, "{sees:?}");
    }
    for passes in [
        within("b"),
        labelled("app=api"),
        named("metadata.name=x"),
        one("x"),
    ] {
        assert_eq!(refused(&view, &passes), None, "{passes:?}");
    }
    // Labels that nobody knows may be any.
    let unlabelled = with_stub(None);
    assert_eq!(refused(&unlabelled, &labelled("app=api")), error);
    assert_eq!(refused(&unlabelled, &named("metadata.name!=deep")), None);
}

#[test]
fn an_object_that_can_be_shown_again_is_shown() {
    let mut view = with_stub(None);
    let put = Delta {
        key: ObjectKey::new("a", "deep"),
        epoch: Epoch::new(1, 0),
        version: ResourceVersion::new("9"),
        op: Op::Put(body::encode_json(&json!({"metadata": {"name": "deep"}})).unwrap()),
    };
    let stub = Delta {
        version: ResourceVersion::new("10"),
        op: Op::Put(unreadable::stub("again", None)),
        ..put.clone()
    };
    let gone = Delta {
        version: ResourceVersion::new("11"),
        op: Op::Delete,
        ..put.clone()
    };
    let bytes = view.bytes();
    for (revision, delta, is_refused) in [(10, put, false), (11, stub, true), (12, gone, false)] {
        view.apply(Revision(revision), &delta);
        assert_eq!(refused(&view, &Selection::default()).is_some(), is_refused);
    }
    assert!(view.bytes().total() < bytes.total() + 1_000);
    assert_eq!(view.read(0, 0).unwrap().len(), 2);
}
