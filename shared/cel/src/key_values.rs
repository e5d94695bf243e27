//! The values at the ends of the paths that objects are looked up by.

use anteroom_jmespath::{Node as _, Scalar, Shape};
use anteroom_wire::body::BodyNode;

use crate::{
    key_path::{KeyPath, KeyStep, Missing},
    value::scalar_of_node,
};

impl KeyPath {
    /// Calls `each` with every value at the end of the path that has no parts. Returns true if the object is
    /// *irregular*: an expression that takes the path may come to an error on it. No value that is not passed on can
    /// decide the expression.
    pub fn values(&self, object: BodyNode<'_>, each: &mut dyn FnMut(Scalar)) -> bool {
        values(object, self.steps(), each)
    }
}

fn values(node: BodyNode<'_>, steps: &[KeyStep], each: &mut dyn FnMut(Scalar)) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        // A list or a map equals no value without parts, and that is no error.
        scalar_of_node(node).into_iter().for_each(each);
        return false;
    };
    match (step, node.shape()) {
        (KeyStep::Field { name, missing }, Shape::Object(_)) => match node.field(name) {
            Some(value) => values(value, rest, each),
            None => absent(missing, rest, each),
        },
        (_, Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::String(_)) => {
            in_scalar(steps, each)
        }
        (KeyStep::Field { .. }, Shape::Array(_)) => true,
        (KeyStep::Each, Shape::Array(_)) => node
            .elements()
            .fold(false, |irregular, one| values(one, rest, each) | irregular),
        (KeyStep::Each, Shape::Object(_)) if rest.is_empty() => {
            node.entries()
                .for_each(|(key, _)| each(Scalar::Text(key.into())));
            false
        }
        // The keys are texts, and all alike.
        (KeyStep::Each, Shape::Object(_)) => {
            node.entries().next().is_some() && in_scalar(rest, each)
        }
    }
}

/// Passes on the values of a path in a scalar, which has no fields: where one is asked for with `?` or `has()`, that
/// is no error. Returns whether the outcome is irregular.
fn in_scalar(steps: &[KeyStep], each: &mut dyn FnMut(Scalar)) -> bool {
    match steps.split_first() {
        Some((KeyStep::Field { missing, .. }, rest)) if *missing != Missing::SkipInMap => {
            absent(missing, rest, each)
        }
        _ => true,
    }
}

/// Passes on the values at the end of a path on which a field is missing. Returns whether the outcome is irregular.
fn absent(missing: &Missing, rest: &[KeyStep], each: &mut dyn FnMut(Scalar)) -> bool {
    match (missing, rest.first()) {
        (Missing::Error, _) => true,
        (Missing::Skip | Missing::SkipInMap, _) => false,
        (Missing::AsNext | Missing::EmptyMap, Some(KeyStep::Field { missing, .. })) => {
            absent(missing, rest.get(1..).unwrap_or_default(), each)
        }
        (Missing::AsNext, None | Some(KeyStep::Each)) => true,
        (Missing::Default(value), None) => {
            each(value.clone());
            false
        }
        (Missing::Default(_), Some(_)) => in_scalar(rest, each),
        (Missing::EmptyList | Missing::EmptyMap, None | Some(KeyStep::Each)) => false,
        (Missing::EmptyList, Some(KeyStep::Field { .. })) => true,
    }
}

#[cfg(test)]
mod tests {
    use anteroom_wire::body::encode_json;
    use serde_json::json;

    use super::*;

    fn field(name: &str, missing: Missing) -> KeyStep {
        KeyStep::Field {
            name: name.into(),
            missing,
        }
    }

    #[test]
    fn values_are_those_at_the_end_of_a_path_and_a_path_that_fails_is_irregular() {
        use Missing::{AsNext, Default, EmptyList, EmptyMap, Error, Skip, SkipInMap};

        let text = |text: &str| Scalar::Text(text.into());
        let one = Scalar::Whole(1);
        let below = |missing| vec![field("a", Error), field("b", missing)];
        let each = || vec![field("a", Error), KeyStep::Each];
        let each_below = || vec![field("a", Error), KeyStep::Each, field("b", Error)];
        let other = || Default(text("none"));
        for (steps, object, values, is_irregular) in [
            (
                below(Error),
                json!({"a": {"b": 1}}),
                vec![one.clone()],
                false,
            ),
            (below(Error), json!({"a": {"b": [1]}}), vec![], false),
            (below(Error), json!({"a": {}}), vec![], true),
            (below(Error), json!({"a": 5}), vec![], true),
            (below(Error), json!({"a": [1]}), vec![], true),
            (below(Skip), json!({"a": {}}), vec![], false),
            (below(Skip), json!({"a": 5}), vec![], false),
            (below(SkipInMap), json!({"a": {}}), vec![], false),
            (below(SkipInMap), json!({"a": 5}), vec![], true),
            (below(other()), json!({"a": {}}), vec![text("none")], false),
            (
                below(other()),
                json!({"a": {"b": 1}}),
                vec![one.clone()],
                false,
            ),
            (
                vec![field("a", AsNext), field("b", other())],
                json!({}),
                vec![text("none")],
                false,
            ),
            (
                vec![field("a", EmptyMap), field("b", Error)],
                json!({}),
                vec![],
                true,
            ),
            (
                vec![field("a", EmptyList), KeyStep::Each],
                json!({}),
                vec![],
                false,
            ),
            (
                each(),
                json!({"a": [1, "x", [2]]}),
                vec![one.clone(), text("x")],
                false,
            ),
            (each(), json!({"a": {"k": 1}}), vec![text("k")], false),
            (each(), json!({"a": 5}), vec![], true),
            (
                each_below(),
                json!({"a": [{"b": 1}, {"b": "x"}]}),
                vec![one.clone(), text("x")],
                false,
            ),
            (
                each_below(),
                json!({"a": [{"b": 1}, {}]}),
                vec![one.clone()],
                true,
            ),
            (
                each_below(),
                json!({"a": [{}, {"b": 1}]}),
                vec![one.clone()],
                true,
            ),
            (each_below(), json!({"a": {"k": 1}}), vec![], true),
            (each_below(), json!({"a": {}}), vec![], false),
        ] {
            let path = KeyPath::new(steps);
            let body = encode_json(&object).unwrap();
            let mut found = Vec::new();
            let irregular = path.values(BodyNode::new(&body), &mut |value| found.push(value));
            assert_eq!(
                (found, irregular),
                (values, is_irregular),
                "{path} {object}"
            );
        }
    }
}
