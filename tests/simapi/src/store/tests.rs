use proptest::prelude::*;
use serde_json::json;

use super::*;

fn configmap(name: &str, value: u32) -> Value {
    json!({"metadata": {"namespace": "n", "name": name}, "data": {"value": value.to_string()}})
}

fn names(store: &Store, version: Option<u64>) -> Result<Vec<(String, String)>, StoreError> {
    let page = store.list(
        &"configmaps".into(),
        &Selection::default(),
        version,
        None,
        usize::MAX,
    )?;
    let value = |object: &Stored| {
        object.parse().unwrap()["data"]["value"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    Ok(page
        .objects
        .iter()
        .map(|object| (object.name.to_string(), value(object)))
        .collect())
}

#[test]
fn a_write_with_an_outdated_version_is_a_conflict() {
    let store = Store::new(10, None);
    let resource = "configmaps".into();
    let first = store
        .put(&resource, configmap("a", 1), Expected::Absent)
        .unwrap();
    let again = store.put(&resource, configmap("a", 2), Expected::Absent);
    assert_eq!(again.unwrap_err(), StoreError::Conflict);
    let second = store
        .put(
            &resource,
            configmap("a", 2),
            Expected::Version(first.version),
        )
        .unwrap();
    let stale = store.put(
        &resource,
        configmap("a", 3),
        Expected::Version(first.version),
    );
    assert_eq!(stale.unwrap_err(), StoreError::Conflict);
    let stale = store.delete(&resource, "n", "a", Expected::Version(first.version));
    assert_eq!(stale.unwrap_err(), StoreError::Conflict);
    assert!(
        store
            .delete(&resource, "n", "a", Expected::Version(second.version))
            .unwrap()
            .is_some()
    );
    assert!(
        store
            .delete(&resource, "n", "a", Expected::Anything)
            .unwrap()
            .is_none()
    );
    assert_eq!(
        store
            .put(&"none".into(), json!({}), Expected::Anything)
            .unwrap_err(),
        StoreError::NoResource
    );
}

#[test]
fn history_is_bounded_and_says_so() {
    let store = Store::new(3, None);
    let resource = "configmaps".into();
    for value in 0..5 {
        store
            .put(&resource, configmap("a", value), Expected::Anything)
            .unwrap();
    }
    let oldest = store.version() - 3;
    assert_eq!(store.changes_after(&resource, oldest).unwrap().0.len(), 3);
    assert_eq!(
        store.changes_after(&resource, oldest - 1).unwrap_err(),
        StoreError::Expired(oldest)
    );
    assert_eq!(
        names(&store, Some(oldest - 1)).unwrap_err(),
        StoreError::Expired(oldest)
    );
    store.compact(Some(&resource));
    let now = store.version();
    assert_eq!(
        store.changes_after(&resource, now - 1).unwrap_err(),
        StoreError::Expired(now)
    );
    assert_eq!(
        names(&store, Some(now + 1)).unwrap_err(),
        StoreError::Future(now)
    );
}

#[test]
fn a_namespace_takes_its_objects_along() {
    let store = Store::new(10, None);
    store
        .put(
            &NAMESPACES.into(),
            json!({"metadata": {"name": "n"}}),
            Expected::Absent,
        )
        .unwrap();
    store
        .put(&"configmaps".into(), configmap("a", 1), Expected::Absent)
        .unwrap();
    store
        .delete(&NAMESPACES.into(), "", "n", Expected::Anything)
        .unwrap();
    assert!(names(&store, None).unwrap().is_empty());
}

#[test]
fn a_definition_serves_its_resource_until_deleted() {
    let store = Store::new(10, None);
    let things = ResourceName::from("things.a.dev");
    let crd = json!({"metadata": {"name": "things.a.dev"}, "spec": {"group": "a.dev",
        "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true}]}});
    store.put(&CRDS.into(), crd, Expected::Absent).unwrap();
    let mut gone = store.subscribe(&things).unwrap();
    store
        .put(
            &things,
            json!({"metadata": {"name": "x"}}),
            Expected::Absent,
        )
        .unwrap();
    store
        .delete(&CRDS.into(), "", "things.a.dev", Expected::Anything)
        .unwrap();
    assert_eq!(
        store.subscribe(&things).unwrap_err(),
        StoreError::NoResource
    );
    gone.mark_unchanged();
    assert!(gone.has_changed().is_err(), "its watches are told");
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u32),
    Delete(u8),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every version that the history reaches lists as it did when it was the newest, and restoring
    /// it puts exactly that back.
    #[test]
    fn every_past_version_lists_as_it_was(
        steps in prop::collection::vec(
            prop_oneof![
                3 => (0..6_u8, any::<u32>()).prop_map(|(name, value)| Step::Put(name, value)),
                1 => (0..6_u8).prop_map(Step::Delete),
            ],
            1..60,
        ),
        back in 0..30_usize,
    ) {
        let store = Store::new(20, None);
        let mut seen = vec![(store.version(), names(&store, None).unwrap())];
        for step in steps {
            match step {
                Step::Put(name, value) => {
                    let object = configmap(&name.to_string(), value);
                    store.put(&"configmaps".into(), object, Expected::Anything).unwrap();
                }
                Step::Delete(name) => {
                    let name = name.to_string();
                    store.delete(&"configmaps".into(), "n", &name, Expected::Anything).unwrap();
                }
            }
            seen.push((store.version(), names(&store, None).unwrap()));
        }
        seen.dedup_by_key(|(version, _)| *version);
        for (age, (version, expected)) in seen.iter().rev().enumerate() {
            let listed = names(&store, Some(*version));
            prop_assert_eq!(listed.ok(), (age <= 20).then(|| expected.clone()));
        }
        let (version, expected) = &seen[seen.len().saturating_sub(1 + back.min(20))];
        store.restore(*version, 0).unwrap();
        prop_assert_eq!(store.version(), *version);
        prop_assert_eq!(&names(&store, None).unwrap(), expected);
    }
}
