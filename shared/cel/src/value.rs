//! Values of expressions.
//!
//! A value of the request borrows its JSON, and one of a view the object's body; a computed one is shared.
//! So a value is cheap to pass on, whatever its size.

mod compare;
mod image;
mod json;
mod list;
mod map;
mod quantity;
mod scalar;
mod structs;

use std::{net::IpAddr, ops::Deref, sync::Arc};

use anteroom_functions::values::{Cidr, Format, Url};
use anteroom_jmespath::{Node as _, Number, Shape};
use anteroom_wire::body::BodyNode;
use jiff::Timestamp;
use serde_json::Value;

pub(crate) use compare::{compare, equal};
pub(crate) use image::Image;
pub(crate) use json::{of_json, to_json};
pub(crate) use list::{Iter, List};
pub(crate) use map::{Map, same_key};
pub(crate) use quantity::{ONE, Quantity};
pub(crate) use scalar::{scalar_of, scalar_of_node};
pub(crate) use structs::{OBJECT, OPERATIONS, PATCH, StructVal, is_object_type, misplaced};

use crate::error::EvalError;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Val<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'v>),
    Bytes(Arc<[u8]>),
    List(List<'v>),
    Map(Map<'v>),
    /// A duration in nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    /// The name of a type.
    Type(&'static str),
    Optional(Option<Arc<Val<'v>>>),
    Quantity(Quantity),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Semver(Arc<semver::Version>),
    Format(&'static Format),
    Image(Arc<Image>),
    /// A value of a type that has a name.
    Struct(Arc<StructVal<'v>>),
}

/// A text, of the request or made.
#[derive(Clone, Debug)]
pub(crate) enum Text<'v> {
    Lent(&'v str),
    Own(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Lent(text) => text,
            Self::Own(text) => text,
        }
    }
}

impl<'v> Val<'v> {
    /// A whole number is an int, as long as it is one of those; any other is a double.
    pub(crate) fn of(json: &'v Value) -> Self {
        match json {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(Text::Lent(text)),
            Value::Array(elements) => Self::List(List::Json(elements)),
            Value::Object(entries) => Self::Map(Map::Json(entries)),
        }
    }

    /// Converts a node, which is read in place, as [`Val::of`] converts JSON.
    pub(crate) fn of_node(node: BodyNode<'v>) -> Self {
        match node.shape() {
            Shape::Null => Self::Null,
            Shape::Bool(value) => Self::Bool(value),
            Shape::Number(number) => Self::number(number),
            Shape::String(text) => Self::Text(Text::Lent(text)),
            Shape::Array(_) => Self::List(List::Body(node)),
            Shape::Object(_) => Self::Map(Map::Body(node)),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "beyond an int it is the float that JSON readers make of it"
    )]
    fn number(number: Number) -> Self {
        match number {
            Number::I64(value) => Self::Int(value),
            Number::U64(value) => match i64::try_from(value) {
                Ok(value) => Self::Int(value),
                Err(_) => Self::Double(value as f64),
            },
            Number::F64(value) => Self::Double(value),
        }
    }

    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(Text::Own(text.into()))
    }

    pub(crate) fn list(elements: Vec<Val<'v>>) -> Self {
        Self::List(List::Own(elements.into()))
    }

    pub(crate) fn some(value: Val<'v>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the type's name, as `type()` gives it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Image(_) => "kyverno.Image",
            Self::Struct(made) if made.is_patch() => PATCH,
            Self::Struct(_) => OBJECT,
        }
    }
}

/// The second in which the year 1 begins.
const YEAR_ONE: i64 = -62_135_596_800;

/// Returns whether a time is a timestamp of CEL, which has none before the year 1.
pub(crate) fn is_timestamp(at: Timestamp) -> bool {
    at.as_nanosecond() >= i128::from(YEAR_ONE) * 1_000_000_000
}

/// The error that an operator or function is not for arguments of such types.
pub(crate) fn no_overload(function: &str, arguments: &[Val<'_>]) -> EvalError {
    let names: Vec<_> = arguments.iter().map(Val::type_name).collect();
    EvalError::NoSuchOverload {
        function: function.to_owned(),
        types: names.join(", "),
    }
}

#[cfg(test)]
mod tests;
