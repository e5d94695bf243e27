//! The values at the ends of the paths that objects are looked up by.

use anteroom_jmespath::{Node as _, Scalar, Shape};
use anteroom_wire::body::BodyNode;

use crate::{
    key_path::{KeyPath, Missing, Step},
    value::scalar_of_node,
};

impl KeyPath {
    /// Calls `each` with every value at the end of the path that has no parts. Returns true if the object is
    /// *irregular*: an expression that takes the path may come to an error on it, whatever it compares the values
    /// with.
    pub fn values(&self, object: BodyNode<'_>, each: &mut dyn FnMut(Scalar)) -> bool {
        values(object, self.steps(), each)
    }
}

fn values(node: BodyNode<'_>, steps: &[Step], each: &mut dyn FnMut(Scalar)) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        // A list or a map equals no value without parts, and that is no error.
        scalar_of_node(node).into_iter().for_each(each);
        return false;
    };
    match (step, node.shape()) {
        (Step::Field { name, missing }, Shape::Object(_)) => match node.field(name) {
            Some(value) => values(value, rest, each),
            None => absent(missing, rest, each),
        },
        // A scalar has no field, which is no error where the field is asked for with `?` or a guard.
        (
            Step::Field { missing, .. },
            Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::String(_),
        ) => absent(missing, rest, each),
        (Step::Each, Shape::Array(_)) => node
            .elements()
            .fold(false, |irregular, one| values(one, rest, each) | irregular),
        (Step::Each, Shape::Object(_)) if rest.is_empty() => {
            node.entries()
                .for_each(|(key, _)| each(Scalar::Text(key.into())));
            false
        }
        _ => true,
    }
}

/// Passes on the values at the end of a path on which a field is missing. Returns whether the outcome is irregular.
fn absent(missing: &Missing, rest: &[Step], each: &mut dyn FnMut(Scalar)) -> bool {
    match (missing, rest.first()) {
        (Missing::Error, _) => true,
        (Missing::Skip, _) => false,
        (Missing::AsNext, Some(Step::Field { missing, .. })) => {
            absent(missing, rest.get(1..).unwrap_or_default(), each)
        }
        (Missing::AsNext, None | Some(Step::Each)) => true,
        (Missing::Default(value), None) => {
            each(value.clone());
            false
        }
        (Missing::EmptyList | Missing::EmptyMap, None | Some(Step::Each)) => false,
        (Missing::EmptyMap, Some(Step::Field { missing, .. })) => {
            absent(missing, rest.get(1..).unwrap_or_default(), each)
        }
        (Missing::Default(_) | Missing::EmptyList, Some(_)) => true,
    }
}
