//! Scalars, by which elements of lists are looked up, of values.

use anteroom_jmespath::{Node as _, Scalar, Shape};
use anteroom_wire::body::BodyNode;

use super::Val;

/// Returns the scalar of a value that is read in place; `None` for a list or a map.
pub(crate) fn scalar_of_node(node: BodyNode<'_>) -> Option<Scalar> {
    match node.shape() {
        Shape::Array(_) | Shape::Object(_) => None,
        // Only `Val::of_node` decides the type of a number.
        _ => scalar_of(&Val::of_node(node)),
    }
}

/// Returns the scalar of a value; `None` for one that equals no JSON scalar, as NaN.
pub(crate) fn scalar_of(value: &Val<'_>) -> Option<Scalar> {
    Some(match value {
        Val::Null => Scalar::Null,
        Val::Bool(value) => Scalar::Bool(*value),
        Val::Int(value) => Scalar::Whole((*value).into()),
        Val::Uint(value) => Scalar::Whole((*value).into()),
        Val::Double(value) if value.is_nan() => return None,
        Val::Double(value) => Scalar::float(*value),
        Val::Text(text) => Scalar::Text((&**text).into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anteroom_wire::body::encode_json;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Budget, value::equal};

    fn scalars() -> impl Strategy<Value = Val<'static>> {
        prop_oneof![
            Just(Val::Null),
            any::<bool>().prop_map(Val::Bool),
            any::<i64>().prop_map(Val::Int),
            (-3_i64..3).prop_map(Val::Int),
            any::<u64>().prop_map(Val::Uint),
            (0_u64..3).prop_map(Val::Uint),
            any::<f64>().prop_map(Val::Double),
            (-3_i32..3).prop_map(|whole| Val::Double(whole.into())),
            prop::sample::select(vec![
                9_007_199_254_740_992.0,
                9_007_199_254_740_993.0,
                9.223_372_036_854_776e18,
                1.844_674_407_370_955_2e19,
                1e300,
                -0.0,
                0.5,
            ])
            .prop_map(Val::Double),
            Just(Val::Int(9_007_199_254_740_993)),
            Just(Val::Int(i64::MAX)),
            Just(Val::Uint(u64::MAX)),
            "[a01]{0,2}".prop_map(Val::text),
        ]
    }

    #[test]
    fn scalars_of_bodies_are_those_of_their_values() {
        for (json, expected) in [
            (json!(null), Some(Scalar::Null)),
            (json!(true), Some(Scalar::Bool(true))),
            (json!(-3), Some(Scalar::Whole(-3))),
            (json!("a"), Some(Scalar::Text("a".into()))),
            (json!([1]), None),
            (json!({"a": 1}), None),
        ] {
            let body = encode_json(&json).unwrap();
            assert_eq!(scalar_of_node(BodyNode::new(&body)), expected, "{json}");
        }
        assert_eq!(scalar_of(&Val::Double(f64::NAN)), None);
    }

    proptest! {
        #[test]
        fn scalars_are_equal_where_values_are(one in scalars(), other in scalars()) {
            let by_value = equal(&one, &other, &mut Budget::default()).unwrap();
            let by_scalar = match (scalar_of(&one), scalar_of(&other)) {
                (Some(one), Some(other)) => one == other,
                _ => false, // NaN
            };
            prop_assert_eq!(by_value, by_scalar, "{:?} {:?}", one, other);
        }
    }
}
