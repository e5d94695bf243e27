//! Limits, each at its edge.

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
