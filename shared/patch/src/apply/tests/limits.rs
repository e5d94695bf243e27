//! Limits, each at its edge.

use std::cell::RefCell;

use super::*;

/// A list of lists of lists.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!({ "a": value }))
}

#[test]
fn depth_is_limited() {
    let schema = every_sort();
    let free = |levels: usize| json!({"spec": {"free": nested(levels - 2)}});
    let (deepest, deeper) = (free(DEPTH_MAX), free(DEPTH_MAX + 1));
    assert_eq!(
        apply(&deepest, &deepest, &schema, Atomics::Refused),
        Ok(deepest.clone())
    );
    for (object, patch) in [(&deepest, &deeper), (&deeper, &deepest)] {
        let refused = apply(object, patch, &schema, Atomics::Refused);
        assert_eq!(refused, Err(ApplyError::TooDeep));
    }
}

#[test]
fn size_is_limited() {
    let schema = every_sort();
    let sized = |bytes: usize| {
        let empty = crate::weight(&json!({"spec": {"text": ""}}));
        json!({"spec": {"text": "x".repeat(bytes - empty)}})
    };
    let object = sized(BUILT_BYTES_MAX / 2);
    let fits = apply(&object, &object, &schema, Atomics::Refused);
    assert_eq!(fits.as_ref(), Ok(&object));
    let larger = sized(BUILT_BYTES_MAX / 2 + 1);
    let refused = apply(&object, &larger, &schema, Atomics::Refused);
    assert_eq!(refused, Err(ApplyError::TooLarge));
}

#[test]
fn a_schema_is_limited_in_depth() {
    // Each level is one below `properties`.
    let nested = |levels: usize| {
        (0..levels).fold(
            json!({"type": "object"}),
            |schema, _| json!({"type": "object", "properties": {"a": schema}}),
        )
    };
    assert!(ObjectSchema::from_crd(&nested(DEPTH_MAX / 2 - 1)).is_ok());
    let refused = ObjectSchema::from_crd(&nested(DEPTH_MAX / 2)).unwrap_err();
    assert_eq!(refused, SchemaError::TooDeep);
}

#[test]
fn a_schema_is_limited_in_types() {
    let with_fields = |fields: usize| {
        let fields = (0..fields).map(|field| (format!("f{field}"), json!({"type": "string"})));
        let fields: serde_json::Map<String, Value> = fields.collect();
        json!({"type": "object", "properties": fields})
    };
    let fits = |fields| ObjectSchema::from_crd(&with_fields(fields));
    let own = fits(1).unwrap().types().len() - 1;
    assert!(fits(TYPES_MAX - own).is_ok());
    assert_eq!(
        fits(TYPES_MAX - own + 1).unwrap_err(),
        SchemaError::TooLarge
    );
    let types = vec!["s"; TYPES_MAX];
    let record = |types: &[&str]| json!({"root": 0, "types": types}).to_string();
    assert!(ObjectSchema::from_record(&record(&types)).is_ok());
    let more = vec!["s"; TYPES_MAX + 1];
    assert_eq!(
        ObjectSchema::from_record(&record(&more)).unwrap_err(),
        SchemaError::TooLarge
    );
}

#[test]
fn long_lists_are_merged_in_time() {
    let list = |names: std::ops::Range<usize>| -> Value {
        names
            .rev()
            .map(|name| json!({"name": name.to_string()}))
            .collect()
    };
    let (object, patch) = (list(0..40_000), list(20_000..60_000));
    let merged = of_every_sort(
        &json!({"keyed": object}),
        &json!({"keyed": patch}),
        Atomics::Refused,
    );
    assert_eq!(merged.unwrap()["keyed"].as_array().unwrap().len(), 60_000);
}

/// A Pod whose container has so many variables.
fn pod_of(variables: usize) -> Value {
    let variables = (0..variables).map(|at| json!({"name": at.to_string()}));
    let variables: Vec<Value> = variables.collect();
    json!({"spec": {"containers": [{"name": "a", "env": variables}]}})
}

/// Merges into a Pod, and returns the charges, of which the last of `charges_max` ends the merge.
fn charged(
    object: &Value,
    patch: &Value,
    charges_max: usize,
) -> (Result<Value, ApplyError>, Vec<usize>) {
    let charges = RefCell::new(Vec::new());
    let charge = |bytes: usize| {
        charges.borrow_mut().push(bytes);
        charges.borrow().len() < charges_max
    };
    let schema = ObjectSchema::built_in("v1", "Pod").unwrap();
    let made = apply_charged(object, patch, &schema, Atomics::Refused, &charge);
    (made, charges.into_inner())
}

/// Every list by keys is checked by its elements' identities, and a list that the patch names is merged by them too.
#[test]
fn a_merge_by_types_is_charged_by_what_it_checks_copies_and_identifies() {
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    for variables in [1_000, 10_000] {
        let object = pod_of(variables);
        let copied = 2 * crate::size::work(&object);
        let identities = variables * item::IDENTITY_BYTES;
        for (patch, times) in [(&labels, 1), (&pod_of(1), 3)] {
            let (made, charges) = charged(&object, patch, usize::MAX);
            let expected = copied + times * identities;
            let charges: usize = charges.iter().sum();
            assert!(made.is_ok(), "{made:?}");
            assert!(
                (expected..expected + 3_000).contains(&charges),
                "{charges} of {expected}"
            );
        }
    }
}

#[test]
fn a_merge_by_types_whose_work_is_too_much_ends_there() {
    let (object, patch) = (pod_of(3), pod_of(2));
    let (made, all) = charged(&object, &patch, usize::MAX);
    assert_eq!(made, Ok(object.clone()));
    for charges_max in 1..=all.len() {
        let (made, charges) = charged(&object, &patch, charges_max);
        assert_eq!(made, Err(ApplyError::TooCostly));
        assert_eq!(charges, all[..charges_max]);
    }
}
