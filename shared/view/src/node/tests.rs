use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, SourceInfo, ViewRecord, ViewState, system,
};
use anteroom_wire::body;
use serde_json::{Value, json};

use super::*;
use crate::store::Draft;

fn ingresses(kind: &str, plural: &str) -> SourceInfo {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", plural);
    SourceInfo {
        source: anteroom_model::Source::Collection(Collection::all(gvr)),
        kind: kind.into(),
        namespaced: true,
    }
}

fn store(info: SourceInfo, names: &[&str]) -> Draft {
    let mut store = Draft::default();
    for (position, name) in (1..).zip(names) {
        let body = json!({"metadata": {"name": name}});
        let delta = Delta {
            key: ObjectKey::new("ns", *name),
            epoch: Epoch(1),
            version: ResourceVersion::new("1"),
            op: Op::Put(body::encode_json(&body).unwrap()),
        };
        store.apply(Revision(position), &delta, None);
    }
    let record = ViewRecord {
        view: info.source.view_id(),
        info,
        epoch: Epoch(1),
        state: ViewState::Synced,
        version: ResourceVersion::new("1"),
        objects: names.len() as u64,
        digest: Digest::EMPTY,
        origin: anteroom_model::Epoch::default(),
        age_max_ms: None,
    };
    store.control(Revision(names.len() as u64 + 1), record);
    store
}

pub(crate) fn json_of(node: ViewNode<'_>) -> Value {
    match node.shape() {
        Shape::Null => Value::Null,
        Shape::Bool(value) => value.into(),
        Shape::Number(Number::I64(value)) => value.into(),
        Shape::Number(Number::U64(value)) => value.into(),
        Shape::Number(Number::F64(value)) => value.into(),
        Shape::String(value) => value.into(),
        Shape::Array(length) => {
            let values: Vec<_> = node.elements().map(json_of).collect();
            assert_eq!(values.len(), length);
            for (index, value) in values.iter().enumerate() {
                assert_eq!(node.element(index).map(json_of).as_ref(), Some(value));
            }
            assert!(node.element(length).is_none() && node.element(usize::MAX).is_none());
            values.into()
        }
        Shape::Object(length) => {
            let entries = node.entries().map(|(name, value)| (name, json_of(value)));
            let entries: Vec<_> = entries.collect();
            assert_eq!(entries.len(), length);
            for (name, value) in &entries {
                assert_eq!(node.field(name).map(json_of).as_ref(), Some(value));
            }
            for name in ["absent", "apiVersion", "kind"] {
                let has_entry = entries.iter().any(|(own, _)| *own == name);
                assert_eq!(node.field(name).is_some(), has_entry, "{name}");
            }
            let entries = entries.into_iter();
            entries
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        }
    }
}

#[test]
fn a_collection_is_a_list_under_both_names() {
    let store = store(ingresses("Ingress", "ingresses"), &["c", "a", "b"]);
    let list = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressList",
        "items": [
            {"metadata": {"name": "a"}},
            {"metadata": {"name": "b"}},
            {"metadata": {"name": "c"}},
        ],
    });
    let mut whole = list.clone();
    whole["ingresses"] = list;
    assert_eq!(json_of(ViewNode::root(&store)), whole);
}

#[test]
fn a_system_view_has_items_alone() {
    let info = SourceInfo {
        source: system::policies_source(),
        kind: String::new(),
        namespaced: false,
    };
    let store = store(info, &["a"]);
    let whole = json!({"items": [{"metadata": {"name": "a"}}]});
    assert_eq!(json_of(ViewNode::root(&store)), whole);
}

#[test]
fn a_view_without_objects_is_an_empty_list() {
    let store = store(ingresses("Ingress", "ingresses"), &[]);
    let items = ViewNode::root(&store).field("items").unwrap();
    assert_eq!(json_of(items), json!([]));
}

#[test]
fn some_objects_are_an_array_by_themselves() {
    let store = store(ingresses("Ingress", "ingresses"), &["b", "a", "c"]);
    let objects: Vec<_> = store.objects().skip(1).cloned().collect();
    let array = json!([{"metadata": {"name": "b"}}, {"metadata": {"name": "c"}}]);
    for bare in [true, false] {
        assert_eq!(json_of(ViewNode::array_of(&objects, bare)), array);
    }
}

#[test]
fn only_lists_have_elements_and_only_objects_have_fields() {
    let store = store(ingresses("Ingress", "ingresses"), &["a"]);
    let root = ViewNode::root(&store);
    assert_eq!(root.elements().count(), 0);
    assert!(root.element(0).is_none());
    let items = root.field("items").unwrap();
    assert_eq!(items.entries().count(), 0);
    assert!(items.field("items").is_none());
    let kind = root.field("kind").unwrap();
    assert_eq!(kind.entries().count() + kind.elements().count(), 0);
    assert!(kind.field("kind").is_none() && kind.element(0).is_none());
}

#[test]
fn a_resource_called_items_has_its_list_under_that_name() {
    let store = store(ingresses("Item", "items"), &["a"]);
    let items = ViewNode::root(&store).field("items").unwrap();
    assert_eq!(json_of(items), json!([{"metadata": {"name": "a"}}]));
    // Its entries are distinct all the same.
    let names: Vec<_> = ViewNode::root(&store)
        .entries()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["apiVersion", "kind", "items"]);
}
