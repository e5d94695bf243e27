//! Types of what operators come to.

use crate::{ast::Operator, kind::Kind};

/// Returns the type of an operator's result on such types; `None`: an error, whatever the values.
pub(super) fn of_operator(operator: Operator, left: Kind, right: Kind) -> Option<Kind> {
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
