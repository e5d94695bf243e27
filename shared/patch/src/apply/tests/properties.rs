//! Properties of random merges, against a model that knows no order: a value is what stands at each path in
//! it, and a merge lays the patch's paths over the object's.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::apply::{
    item,
    types::{Scalar, TypeId, Types},
};

/// Values that fit a type, of lists with each element once.
fn values(types: &Types, id: TypeId, levels: usize) -> BoxedStrategy<Value> {
    let of = &types[id];
    let mut shapes: Vec<BoxedStrategy<Value>> = Vec::new();
    match of.scalar {
        Some(Scalar::Text) => shapes.push(
            prop::sample::select(vec!["a", "b", "c", "d"])
                .prop_map(Value::from)
                .boxed(),
        ),
        Some(Scalar::Number) => shapes.push((0..4).prop_map(Value::from).boxed()),
        Some(Scalar::Boolean) => shapes.push(any::<bool>().prop_map(Value::from).boxed()),
        Some(Scalar::Any) => shapes.push(prop_oneof![Just(json!("a")), Just(json!(1))].boxed()),
        None => {}
    }
    if let Some(list) = of.list.clone().filter(|_| levels > 0) {
        let elements = prop::collection::vec(values(types, list.element, levels - 1), 0..5);
        let each_once = move |mut elements: Vec<Value>| {
            let mut seen = BTreeSet::new();
            if !list.is_atomic {
                elements.retain(|element| {
                    item::identity(&list, element).is_ok_and(|item| seen.insert(item))
                });
            }
            Value::Array(elements)
        };
        shapes.push(elements.prop_map(each_once).boxed());
    }
    if let Some(map) = of.map.clone().filter(|_| levels > 0) {
        let named = map.fields.iter().map(|(name, id)| (name.clone(), *id));
        let other = map
            .element
            .into_iter()
            .flat_map(|id| ["x", "y"].map(|name| (name.to_owned(), id)));
        let fields: Vec<_> = named
            .chain(other)
            .map(|(name, id)| {
                prop::option::of(values(types, id, levels - 1))
                    .prop_map(move |value| Some((name.clone(), value?)))
            })
            .collect();
        let object = |fields: Vec<Option<(String, Value)>>| fields.into_iter().flatten().collect();
        shapes.push(fields.prop_map(object).boxed());
    }
    match shapes.is_empty() {
        true => Just(json!({})).boxed(),
        false => prop::strategy::Union::new(shapes).boxed(),
    }
}

/// Each path in a value, with the shape of what is there, and the value if it is a single or an atomic one.
type Model = BTreeMap<String, (&'static str, Option<Value>)>;

fn collect(types: &Types, id: TypeId, value: &Value, path: &str, found: &mut Model) {
    let of = &types[id];
    let shape = fits::shape(value);
    let single = match (value, &of.map, &of.list) {
        (Value::Object(fields), Some(map), _) if !map.is_atomic => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                collect(types, map.field(name).unwrap(), value, &path, found);
            }
            None
        }
        (Value::Array(elements), _, Some(list)) if !list.is_atomic => {
            for element in elements {
                let item = item::identity(list, element).unwrap();
                let path = format!("{path}{item}");
                collect(types, list.element, element, &path, found);
            }
            None
        }
        (single, ..) => Some(single.clone()),
    };
    found.insert(path.to_owned(), (shape, single));
}

fn model(schema: &ObjectSchema, value: &Value) -> Model {
    let mut found = Model::new();
    collect(schema.types(), schema.root(), value, "", &mut found);
    found
}

/// Returns whether a patch has a value of another shape where the object has one: what is below is gone then.
fn changes_shape(object: &Model, patch: &Model) -> bool {
    let differs = |(path, (shape, _)): (&String, &(&str, _))| {
        patch
            .get(path)
            .is_some_and(|(of_patch, _)| of_patch != shape)
    };
    object.iter().any(differs)
}

/// The names in every list of a value, by the list's path.
fn orders(schema: &ObjectSchema, value: &Value) -> BTreeMap<String, Vec<String>> {
    let mut orders = BTreeMap::new();
    let list = |name: &str, id: TypeId| {
        let elements = value["spec"][name].as_array().cloned().unwrap_or_default();
        let list = schema.types()[id].list.as_ref().unwrap();
        elements
            .iter()
            .map(|element| item::identity(list, element).unwrap())
            .collect()
    };
    let spec = schema.types()[schema.root()].map.as_ref().unwrap().fields["spec"];
    let fields = &schema.types()[spec].map.as_ref().unwrap().fields;
    for name in ["keyed", "set", "numbers"] {
        orders.insert(name.to_owned(), list(name, fields[name]));
    }
    orders
}

fn specs() -> BoxedStrategy<Value> {
    let schema = every_sort();
    let spec = schema.types()[schema.root()].map.as_ref().unwrap().fields["spec"];
    values(schema.types(), spec, 4)
        .prop_map(|spec| json!({ "spec": spec }))
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn a_merge_lays_the_patchs_paths_over_the_objects(object in specs(), patch in specs()) {
        let schema = every_sort();
        let (of_object, of_patch) = (model(&schema, &object), model(&schema, &patch));
        prop_assume!(!changes_shape(&of_object, &of_patch));
        let merged = apply(&object, &patch, &schema, Atomics::Replaced).unwrap();
        let mut expected = of_object;
        expected.extend(of_patch);
        prop_assert_eq!(model(&schema, &merged), expected);
    }

    #[test]
    fn applying_a_patch_twice_equals_applying_it_once(object in specs(), patch in specs()) {
        let schema = every_sort();
        let once = apply(&object, &patch, &schema, Atomics::Replaced).unwrap();
        let twice = apply(&once, &patch, &schema, Atomics::Replaced).unwrap();
        prop_assert_eq!(&twice, &once);
        let itself = apply(&once, &once, &schema, Atomics::Replaced).unwrap();
        prop_assert_eq!(&itself, &once);
    }

    #[test]
    fn lists_keep_both_orders_and_have_each_element_once(object in specs(), patch in specs()) {
        let schema = every_sort();
        let merged = apply(&object, &patch, &schema, Atomics::Replaced).unwrap();
        let of_object = orders(&schema, &object);
        let of_patch = orders(&schema, &patch);
        for (list, merged) in orders(&schema, &merged) {
            let each: BTreeSet<&String> = merged.iter().collect();
            prop_assert_eq!(each.len(), merged.len());
            let kept = |of: &[String]| merged.iter().filter(|item| of.contains(item)).cloned().collect::<Vec<_>>();
            prop_assert_eq!(&kept(&of_patch[&list]), &of_patch[&list]);
            let only_object: Vec<String> = of_object[&list].iter().filter(|item| !of_patch[&list].contains(item)).cloned().collect();
            prop_assert_eq!(kept(&only_object), only_object);
        }
    }

    #[test]
    fn a_patch_of_any_shape_is_merged_or_refused(object in specs(), patch in specs(), odd in specs()) {
        // A value of one field in the place of another's.
        let mut patch = patch;
        let fields = odd["spec"].as_object().cloned().unwrap_or_default();
        for (name, value) in ["text", "keyed", "set", "pair", "any"].into_iter().zip(fields.into_values()) {
            patch["spec"][name] = value;
        }
        let _ = apply(&object, &patch, &every_sort(), Atomics::Refused);
        let _ = apply(&patch, &object, &every_sort(), Atomics::Refused);
    }
}
