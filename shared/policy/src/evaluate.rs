//! One rule taken through one request, without IO.
//!
//! [`Evaluation`] is the entry: it steps until it needs facts or is done. The top layer: it knows `ir` and what
//! `pushdown` noted there.

mod background;
mod cel;
mod check;
mod conditions;
mod error;
mod evaluation;
mod exceptions;
mod facts;
mod foreach;
mod interrupt;
mod limits;
mod match_conditions;
mod message;
mod mutate;
mod mutate_existing;
mod pass;
mod report;
mod scope;
mod surroundings;

pub use background::{NotScanned, SCANNED_MAX, ScannedKinds, scanned};
pub use error::RuleError;
pub use evaluation::Evaluation;
pub use limits::{
    EXISTING_PARTS_MAX, FACTS_PER_RULE_MAX, FOREACH_ELEMENTS_IN_ALL_MAX, FOREACH_ELEMENTS_MAX,
    MUTATED_BYTES_MAX, PARTS_PER_RULE_MAX,
};
pub use match_conditions::Conditions;
pub use report::{FactRead, FactRequest, RuleOutcome, RuleReport, Step};

#[cfg(test)]
mod tests;
