//! Evaluates one rule for one request, without IO.
//!
//! [`Evaluation`] is the entry: it steps until it needs facts or is done. This is the top layer: it knows `ir`, and
//! the notes of `pushdown` there.
//!
//! | module | content |
//! |---|---|
//! | `evaluation`, `pass` | the steps; one state of the object: match, exceptions, preconditions, work |
//! | `run_state` | the state beside the facts: time and random values, limits, allowed values |
//! | `check`, `foreach`, `cel`, `mutate`, `mutate_existing` | the kinds of work |
//! | `conditions`, `match_conditions`, `exceptions` | the checks before the work |
//! | `changes` | the changes that an update makes to an object |
//! | `scope`, `facts`, `surroundings` | values for expressions; facts asked for; namespace labels and roles |
//! | `report`, `error`, `interrupt`, `limits`, `message` | the results |
//! | `background` | the policies that are scanned, and the kinds of their objects |

mod background;
mod cel;
mod changes;
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
mod run_state;
mod scope;
mod surroundings;

pub use background::{NotScanned, SCANNED_MAX, ScannedKinds, scanned};
pub use error::RuleError;
pub use evaluation::{Evaluation, StepStart, WaitingBytes};
pub use limits::{
    COPIED_BYTES_MAX, EXISTING_BATCHES_MAX, FACTS_PER_RULE_MAX, FOREACH_ELEMENTS_IN_ALL_MAX,
    FOREACH_ELEMENTS_MAX, MUTATED_BYTES_MAX, PARAMETERS_BYTES_MAX, PUSHED_DOWN_PER_RULE_MAX,
    VALUES_BYTES_MAX, WAITING_BYTES_MAX,
};
pub use match_conditions::Conditions;
pub use report::{CelRequest, FactRead, FactRequest, RuleOutcome, RuleReport, RuleStep};

#[cfg(test)]
mod tests;
