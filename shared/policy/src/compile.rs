//! From a manifest to a policy.
//!
//! The manifest is walked field by field against tables of known fields, so that no field goes unread: a field
//! is evaluated, or changes nothing that is decided here, or is a problem. Walking goes on after a problem.
//!
//! Knows `ir` alone.

mod actions;
mod api_call;
mod autogen;
mod cel;
mod cel_exception;
mod check;
mod conditions;
mod context;
mod exception;
mod expressions;
mod fields;
mod foreach;
mod kinds;
mod match_conditions;
mod mutate;
mod mutate_existing;
mod pod_security;
mod policy;
mod resources;
mod rule;
mod settings;
mod sources;
mod templates;

pub use context::CONTEXT_ENTRIES_MAX;
pub use mutate_existing::TARGETS_MAX;
pub(crate) use policy::policy;
pub use policy::{RULES_MAX, derived_rules, none_run};
pub use sources::STALENESS_MAX_MS;

#[cfg(test)]
mod tests;
