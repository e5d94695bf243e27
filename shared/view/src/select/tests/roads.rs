//! A selection by other roads than a document: each object by itself, candidates, a list that is not looked at.

use super::*;

fn key_of(object: &Object) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

/// Whoever looks at single objects has to find the same objects as the selection.
pub(super) fn check(
    view: &View,
    selection: &Selection,
    plain: &[Value],
) -> Result<(), TestCaseError> {
    let read = view.read(0, 0).unwrap();
    let select = Select::new(selection).unwrap();
    let unlimited = Selection {
        limit: None,
        ..selection.clone()
    };
    let meant = expected(plain, &unlimited);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let keys: Vec<_> = meant
        .iter()
        .map(|object| &object["metadata"])
        .map(|metadata| {
            format!(
                "{}/{}",
                text(&metadata["namespace"]),
                text(&metadata["name"])
            )
        })
        .collect();
    let admitted = read.objects().filter(|object| select.admits(object));
    let admitted: Vec<_> = admitted.map(key_of).collect();
    prop_assert_eq!(&admitted, &keys);

    let is_limited = selection.limit.is_some_and(|limit| limit > 0);
    let among = select.among(read, read.objects());
    prop_assert_eq!(among.is_none(), is_limited);
    if let Some(among) = among {
        let document = crate::node::tests::json_of(among.node());
        let items = match selection.shape {
            Shape::Array => document,
            _ => document["items"].clone(),
        };
        prop_assert_eq!(items, json!(meant));
    }
    let selects = !selection.label_selector.is_empty() || !selection.field_selector.is_empty();
    let whole = (!selects && !is_limited).then_some(selection.namespace.as_str());
    prop_assert_eq!(select.whole_namespace(read), whole);
    prop_assert_eq!(select.shape(), selection.shape);
    prop_assert_eq!(select.is_bare(read), selection.shape == Shape::List);
    let plural = (selection.shape == Shape::Document).then_some("configmaps");
    prop_assert_eq!(select.plural(read), plural);

    prop_assert_eq!(select.lazy(read).is_err(), is_limited);
    let select = Select::new(&unlimited).unwrap();
    let Lazy::List(list) = select.lazy(read).unwrap() else {
        panic!("{selection:?}");
    };
    let listed: Vec<_> = list.iter().map(key_of).collect();
    prop_assert_eq!(&listed, &keys);
    prop_assert_eq!(list.len(), keys.len());
    prop_assert_eq!(list.is_empty(), keys.is_empty());
    prop_assert!(list.is_within(keys.len()));
    prop_assert!(keys.is_empty() || !list.is_within(keys.len() - 1));
    for at in 0..=keys.len() {
        prop_assert_eq!(list.get(at).map(key_of), keys.get(at).cloned());
    }
    for object in read.objects() {
        let key = key_of(object);
        let found = keys.contains(&key).then_some(key);
        prop_assert_eq!(list.find(object).map(key_of), found);
    }
    let namespace = Some(selection.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    prop_assert_eq!(list.namespace(), namespace);
    prop_assert_eq!(list.version(), ResourceVersion::new("77"));
    Ok(())
}

#[test]
fn objects_without_a_namespace_are_in_none_that_is_asked_for() {
    let mut view = configmaps(&[("", "x")]);
    let mut record = view.served().record().unwrap().clone();
    record.info.namespaced = false;
    view.control(Revision(100), record);
    let of_c = Selection {
        namespace: "c".into(),
        ..list()
    };
    for selection in [list(), one("", "x")] {
        assert!(select(&view, &selection).is_ok(), "{selection:?}");
    }
    for selection in [of_c, one("c", "x")] {
        let error = select(&view, &selection).unwrap_err();
        assert!(matches!(error, FactError::RequestInvalid { .. }), "{error}");
    }
}
