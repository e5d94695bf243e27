//! What is known of types before there is an object.

use crate::ast::Operator;

/// The type of a term, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nobody knows before there is an object.
    Any,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    List,
    Map,
    Duration,
    Timestamp,
    Type,
    Optional,
    Quantity,
    Url,
    Ip,
    Cidr,
    Semver,
    Format,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Map => "map",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Type => "type",
            Self::Optional => "optional",
            Self::Quantity => "quantity",
            Self::Url => "url",
            Self::Ip => "ip",
            Self::Cidr => "cidr",
            Self::Semver => "semver",
            Self::Format => "format",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether it can be one of these.
    pub(crate) fn can_be(self, kinds: &[Self]) -> bool {
        self == Self::Any || kinds.contains(&self)
    }

    /// What both are, if they are the same.
    pub(crate) fn or(self, other: Self) -> Self {
        match self == other {
            true => self,
            false => Self::Any,
        }
    }
}

/// What comes of an operator on such types; `None`: an error, whatever the values.
pub(crate) fn of_operator(operator: Operator, left: Kind, right: Kind) -> Option<Kind> {
    use Kind::{Any, Bool, Bytes, Double, Duration, Int, List, Map, Null, Text, Timestamp, Uint};
    let alike = left == right || left == Any || right == Any;
    let comparable = alike || (left.is_number() && right.is_number());
    let either = if left == Any { right } else { left };
    match operator {
        Operator::Equal | Operator::NotEqual => {
            (comparable || left == Null || right == Null).then_some(Bool)
        }
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            let ordered = &[Bool, Int, Uint, Double, Text, Bytes, Duration, Timestamp];
            (comparable && left.can_be(ordered) && right.can_be(ordered)).then_some(Bool)
        }
        Operator::In => right.can_be(&[List, Map]).then_some(Bool),
        Operator::Add => match (left, right) {
            (Timestamp, Duration) | (Duration, Timestamp) => Some(Timestamp),
            (Timestamp | Duration, Any) | (Any, Timestamp | Duration) => Some(Any),
            _ => {
                let added = &[Int, Uint, Double, Text, Bytes, List, Duration];
                (alike && either.can_be(added)).then_some(either)
            }
        },
        Operator::Subtract => match (left, right) {
            (Timestamp, Timestamp) => Some(Duration),
            (Timestamp, Duration) => Some(Timestamp),
            (Timestamp, Any) | (Any, Timestamp | Duration) | (Duration, Any) => Some(Any),
            _ => (alike && either.can_be(&[Int, Uint, Double, Duration])).then_some(either),
        },
        Operator::Multiply | Operator::Divide => {
            (alike && either.can_be(&[Int, Uint, Double])).then_some(either)
        }
        Operator::Modulo => (alike && either.can_be(&[Int, Uint])).then_some(either),
    }
}
