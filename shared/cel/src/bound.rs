//! Values that names are given from outside of an expression.

use anteroom_jmespath::{Node as _, Shape};
use anteroom_wire::body::BodyNode;
use serde_json::Value;

use crate::{
    EvalError,
    objects::ObjectList,
    scalar::Scalar,
    value::{List, Map, Text, Val},
};

/// The value of a name that an expression is [given](crate::Names::give): a parameter, a document.
#[derive(Clone, Debug)]
pub struct Bound<'v>(pub(crate) Result<Val<'v>, EvalError>);

impl<'v> Bound<'v> {
    /// A JSON value, in place.
    pub fn json(value: &'v Value) -> Self {
        Self(Ok(Val::of(value)))
    }

    /// A body, in place.
    pub fn body(body: BodyNode<'v>) -> Self {
        Self(Ok(Val::of_node(body)))
    }

    /// A list of objects.
    pub fn objects(list: &'v dyn ObjectList) -> Self {
        Self(Ok(Val::List(List::Objects(list))))
    }

    /// A map of these fields, no name twice. A field that is an error is the error of the whole.
    pub fn record(fields: Vec<(&'v str, Bound<'v>)>) -> Self {
        let entries = fields.into_iter().map(|(name, Bound(value))| {
            let name = Val::Text(Text::Lent(name));
            value.map(|value| (name, value))
        });
        let entries = entries.collect::<Result<Vec<_>, _>>();
        Self(entries.map(|entries| Val::Map(Map::Own(entries.into()))))
    }

    /// A text.
    pub fn text(text: &'v str) -> Self {
        Self(Ok(Val::Text(Text::Lent(text))))
    }

    /// Null.
    pub fn null() -> Self {
        Self(Ok(Val::Null))
    }

    /// An error. It counts where the evaluation reaches it.
    pub fn failed(error: EvalError) -> Self {
        Self(Err(error))
    }
}

impl Scalar {
    /// Returns the scalar of a value that is read in place; `None` for a list or a map.
    pub(crate) fn of_node(node: BodyNode<'_>) -> Option<Self> {
        match node.shape() {
            Shape::Array(_) | Shape::Object(_) => None,
            // The one place that says which type a number is of.
            _ => Self::of(&Val::of_node(node)),
        }
    }

    /// Returns the scalar of a value; `None` for one that equals no JSON scalar.
    pub(crate) fn of(value: &Val<'_>) -> Option<Self> {
        Some(match value {
            Val::Null => Self::Null,
            Val::Bool(value) => Self::Bool(*value),
            Val::Int(value) => Self::Whole((*value).into()),
            Val::Uint(value) => Self::Whole((*value).into()),
            Val::Double(value) => return Self::double(*value),
            Val::Text(text) => Self::Text((&**text).into()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn scalars_are_equal_where_values_are(one in scalars(), other in scalars()) {
            let by_value = equal(&one, &other, &mut Budget::default()).unwrap();
            let by_scalar = match (Scalar::of(&one), Scalar::of(&other)) {
                (Some(one), Some(other)) => one == other,
                _ => false, // NaN
            };
            prop_assert_eq!(by_value, by_scalar, "{:?} {:?}", one, other);
        }
    }
}
