//! Push-down: which expressions of a rule can be evaluated where their facts are kept.
//!
//! A fact is most often a list of which a rule needs little: the elements that agree with the request, the length,
//! whether some element exists. If a replica can evaluate every use of the list, the list is not fetched. Each use
//! then becomes a query of its own (a subquery).
//!
//! - `visitor` walks the expressions of a rule, and knows which entries are visible to each;
//! - `dependency` finds out how an expression depends on one variable;
//! - `subquery` makes one query of an entry's expression and of a use;
//! - `multi_fact` does so for expressions about several facts;
//! - `fact_fields` finds the fields that a rule reads of a fact, for facts that are fetched whole;
//! - `fact_uses` puts these together for a rule, and `explain` describes the result for people;
//! - `references` lists the views that a policy needs, and `request_parts` the parts of a request that it reads.
//!
//! Push-down is only an optimisation: if a subquery fails or is not answered, the rule evaluates the expression
//! itself, over the fact, with the same result.
//!
//! # When an expression can be pushed down
//!
//! An expression reaches a context entry only through subexpressions that are evaluated on the context itself. If each
//! of these subexpressions is the entry, or does not depend on the entry, the expression is a function of the entry's
//! value. Then the expression can follow the entry's own one: `rules[?host == '{{ element.host }}'].path` over
//! `items[].spec.rules[]` becomes the query `items[].spec.rules[] | [?host == $q0].path`. A condition with `AnyIn` and
//! its kin, `In`, `Equals` or their opposites becomes a query with a boolean result: `any_in($key, …)`.
//!
//! - An entry is pushed down only if all of its uses can be, messages aside. A message that needs the list
//!   loads it when there is a violation.
//! - A use that could give another result without an error is not pushed down. A pipe gives null for a missing key,
//!   so a pipe is used only where no key can be missing. An expression that sees the order of an object's fields is
//!   evaluated in the rule.
//! - A subquery is never a live read, since each subquery would read the fact once more.
//! - Subqueries of one step are answered from one snapshot. Those of different steps may be answered from different
//!   snapshots, which never go back in time.
//!
//! `tests/parts.rs` compares all this with whole facts, for random rules, facts and requests.

mod dependency;
mod explain;
mod fact;
mod fact_fields;
mod fact_uses;
mod multi_fact;
mod references;
pub(crate) mod request_parts;
mod subquery;
mod visitor;

pub use dependency::may_miss_key;
pub use explain::{ExplainedRead, ReadSource, Usage};
pub(crate) use fact_uses::prepare;
pub use request_parts::RequestParts;

#[cfg(test)]
mod tests;
