//! A `serde_json::Value` as a [`Node`].

use serde_json::Value;

use super::{Node, Number, Shape};

impl<'a> Node<'a> for &'a Value {
    type Elements = std::slice::Iter<'a, Value>;
    type Entries = Entries<'a>;

    fn shape(self) -> Shape<'a> {
        match self {
            Value::Null => Shape::Null,
            Value::Bool(boolean) => Shape::Bool(*boolean),
            Value::Number(number) => number_shape(number),
            Value::String(string) => Shape::String(string),
            Value::Array(elements) => Shape::Array(elements.len()),
            Value::Object(entries) => Shape::Object(entries.len()),
        }
    }

    fn field(self, name: &str) -> Option<Self> {
        self.as_object()?.get(name)
    }

    fn element(self, index: usize) -> Option<Self> {
        self.as_array()?.get(index)
    }

    fn elements(self) -> Self::Elements {
        self.as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
    }

    fn entries(self) -> Self::Entries {
        Entries(self.as_object().map(serde_json::Map::iter))
    }
}

fn number_shape<'a>(number: &serde_json::Number) -> Shape<'a> {
    if let Some(number) = number.as_u64() {
        Shape::Number(Number::U64(number))
    } else if let Some(number) = number.as_i64() {
        Shape::Number(Number::I64(number))
    } else if let Some(number) = number.as_f64() {
        Shape::Number(Number::F64(number))
    } else {
        // Only with serde_json's `arbitrary_precision`, which the workspace does not enable.
        Shape::Null
    }
}

/// The entries of a JSON object; none for what is not one.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Option<serde_json::map::Iter<'a>>);

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.as_mut()?.next()?;
        Some((name, value))
    }
}
