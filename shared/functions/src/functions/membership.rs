//! Conditions about lists as functions of a query: what a condition asks of a list is asked where the list
//! is, and a boolean travels.
//!
//! `any_in(KEY, VALUE)` is what the condition `{key: KEY, operator: AnyIn, value: VALUE}` comes to, for
//! whatever both may be.

use crate::{meter, operator::Operator};
use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};

/// The functions, and whose verdict each gives.
pub(super) const FUNCTIONS: [(&str, Operator); 8] = [
    ("any_in", Operator::AnyIn),
    ("all_in", Operator::AllIn),
    ("any_not_in", Operator::AnyNotIn),
    ("all_not_in", Operator::AllNotIn),
    ("is_in", Operator::In),
    ("is_not_in", Operator::NotIn),
    ("equals", Operator::Equals),
    ("not_equals", Operator::NotEquals),
];

pub(super) fn register(table: &mut FunctionTable) {
    for (name, operator) in FUNCTIONS {
        table.register(name, Signature::of([Types::ANY, Types::ANY]), move |call| {
            verdict(call, operator)
        });
    }
}

fn verdict(call: &mut Call<'_>, operator: Operator) -> Result<Handle, EvalError> {
    let key = call.to_json(call.argument(0))?;
    let value = call.to_json(call.argument(1))?;
    let steps = call.steps_left();
    let (holds, left) = meter::within(steps, || operator.holds(&key, &value));
    // If nothing is left, one more step is too many.
    let taken = steps - left + u64::from(left == 0);
    call.charge_steps(usize::try_from(taken).unwrap_or(usize::MAX))?;
    call.new_boolean(holds)
}

/// The function that gives an operator's verdict.
pub fn condition_function(operator: Operator) -> Option<&'static str> {
    FUNCTIONS
        .iter()
        .find(|(_, known)| *known == operator)
        .map(|&(name, _)| name)
}
