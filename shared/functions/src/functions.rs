//! The functions that expressions of policies may call: JMESPath's own, and Kyverno's additions.
//!
//! The queries of context entries are evaluated with the same table and a few functions more
//! ([`query_functions`]). Those stand for what a rule does with a fact, and no policy may write them.
//!
//! Some give another value the next time: [`is_nondeterministic`]. The time and random numbers come from the
//! evaluation's [`EvalSeed`](anteroom_jmespath::EvalSeed). A rule's evaluation has one. A replica has none, so
//! whatever calls one of these functions is evaluated in the rule.

mod addresses;
mod arguments;
mod arithmetic;
mod certificates;
mod collections;
mod hashes;
mod keep_only;
mod letters;
mod membership;
mod notes;
mod patterns;
mod random;
mod regexes;
mod strings;
mod times;
mod versions;

use std::sync::LazyLock;

use anteroom_jmespath::{Expression, FunctionTable};
pub use arithmetic::rounded;
pub use certificates::certificate;
pub use hashes::{md5, sha1, sha256};
pub use keep_only::KEEP_ONLY;
pub use membership::condition_function;
pub use notes::note;
pub use random::{Chance, random_text};
pub use strings::{base64_bytes, base64_text, parsed_json, parsed_yaml, yaml_steps};
pub use times::{cron, truncated};

/// The table, one for all.
pub fn functions() -> &'static FunctionTable {
    static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| {
        let mut table = FunctionTable::standard();
        strings::register(&mut table);
        patterns::register(&mut table);
        collections::register(&mut table);
        versions::register(&mut table);
        arithmetic::register(&mut table);
        times::register(&mut table);
        hashes::register(&mut table);
        random::register(&mut table);
        addresses::register(&mut table);
        certificates::register(&mut table);
        table
    });
    &TABLE
}

/// The table that queries are evaluated with, next to the data: [`functions`], and the operators of
/// conditions that may be about lists: `any_in(KEY, VALUE)`, `all_in`, `any_not_in`, `all_not_in`, `is_in`,
/// `is_not_in`, `equals`, `not_equals`.
/// Each takes what a condition's key and value are, of any type, and gives whether the condition is met.
/// And `keep_only(VALUE, FIELDS)`: of a value, and of each element of a list, only these fields.
pub fn query_functions() -> &'static FunctionTable {
    static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| {
        let mut table = functions().clone();
        membership::register(&mut table);
        keep_only::register(&mut table);
        table
    });
    &TABLE
}

/// Returns whether a function reads the clock or draws random numbers; `false` for one that there is not.
pub fn is_nondeterministic(function: &str) -> bool {
    let function = query_functions().get(function);
    function.is_some_and(|function| function.signature().is_nondeterministic())
}

/// Returns whether a function's result shows in which order an object's fields stand.
pub fn is_order_sensitive(function: &str) -> bool {
    let function = query_functions().get(function);
    function.is_some_and(|function| function.signature().is_order_sensitive())
}

/// Returns whether an expression calls a function that [`is_nondeterministic`].
pub fn calls_nondeterministic(expression: &Expression) -> bool {
    let mut called = expression.ast().functions().iter();
    called.any(|function| is_nondeterministic(function))
}

#[cfg(test)]
mod tests;
