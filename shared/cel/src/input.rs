//! Inputs: values from outside of an expression, by name.

use anteroom_wire::body::BodyNode;
use serde_json::Value;

use crate::{
    EvalError,
    objects::ObjectList,
    value::{List, Map, Text, Val},
};

/// An [input](crate::Names::add_input) of an expression: a parameter, or a document.
#[derive(Clone, Debug)]
pub struct Input<'v>(pub(crate) Result<Val<'v>, EvalError>);

impl<'v> Input<'v> {
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
    pub fn record(fields: Vec<(&'v str, Input<'v>)>) -> Self {
        let entries = fields.into_iter().map(|(name, Input(value))| {
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

    /// Returns the null value.
    pub fn null() -> Self {
        Self(Ok(Val::Null))
    }

    /// Returns an input that is an error. The error counts only if the evaluation reaches the input.
    pub fn failed(error: EvalError) -> Self {
        Self(Err(error))
    }
}
