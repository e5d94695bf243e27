//! Policies against files, without a cluster: the engine of the webhook, with facts out of files.
//!
//! ```text
//! policies, resources ──▶ Scenario ── apply ──▶ Response per policy and resource ──▶ rows ──▶ report
//! values, entries ────────┘                                                           ▲
//! kyverno-test.yaml ── what is expected ──────────────────────────────────────────────┘
//! ```
//!
//! Policies are those of kyverno.io and those of policies.kyverno.io that validate or mutate.
//!
//! A [`Suite`] is a file of expected results in the format of Kyverno's `cli.kyverno.io/v1alpha1` `Test`;
//! [`check`] holds it against what the rules come to. [`apply`] says what the rules come to, with nothing
//! expected. Both take rules through the engine of the webhook (`anteroom_engine::drive`): only the source of facts is
//! another one.
//!
//! [`equal`] says in what two sets of policies decide otherwise: it searches requests, and shrinks those that show a
//! difference.
//!
//! What a rule reads is taken from, in this order: the values that the test gives its variables, the
//! entries that the test gives data for, and the resources that were given. What none of these has is an
//! error of the rule that reads it, and never an empty answer: an object that is not among the given ones
//! is unknown, not absent. A [`Context`] file is a whole cluster to policies of policies.kyverno.io.
//!
//! | module | content |
//! |---|---|
//! | `scenario` | policies held against resources: [`Scenario`] |
//! | `loaded_policy`, `resource`, `documents` | the inputs, as read from files |
//! | `request` | the request that a resource stands for |
//! | `suite`, `find_suites`, `selector` | suites; where they are; which rows run |
//! | `check`, `report` | expected results against actual ones; the output |
//! | `values` | values that a test gives variables |
//! | `facts`, `cel_facts`, `file_facts` | facts without a cluster |
//! | `declared`, `given_objects`, `api_path` | entries, objects and paths that facts come from |
//! | `context` | a `Context` file in place of a cluster |
//! | `crd` | custom kinds, by their definitions |
//! | `mutate_existing` | the existing objects that rules change |
//! | `equal` | two sets of policies: do they decide alike? |

mod api_path;
mod cel_facts;
mod check;
mod context;
mod crd;
mod declared;
mod documents;
mod equal;
mod facts;
mod file_facts;
mod find_suites;
mod given_objects;
mod loaded_policy;
mod mutate_existing;
mod report;
mod request;
mod resource;
mod scenario;
mod selector;
mod suite;
mod values;

pub use check::{Row, RowResult, check};
pub use context::Context;
pub use declared::DeclaredEntry;
pub use documents::{
    DOCUMENT_BYTES_MAX, FILES_MAX, InputError, documents, listed, manifests, yaml,
};
pub use equal::{
    Comparison, Covered, Decision, Difference, DifferenceKind, EqualError, Example, Explained,
    LoadedPolicies, Outcome, REQUESTS_MAX, Reported, Search, Stopped, equal, take_suite,
};
pub use find_suites::{SUITES_MAX, suites};
pub use loaded_policy::LoadedPolicy;
pub use report::{Applied, Checked, Counts, StatusCounts, applied, json, junit, markdown, table};
pub use request::User;
pub use resource::Resource;
pub use scenario::{Response, RuleResponse, Scenario, Status, apply};
pub use selector::{Selector, SelectorError};
pub use suite::{Expected, Suite, SuiteError};
pub use values::{Values, Variables};
