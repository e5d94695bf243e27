//! The compiled form of policies and requests, with what each can answer about itself. Pure.
//!
//! The lowest layer: it knows none of the others.
//!
//! | module | content |
//! |---|---|
//! | `policy`, `policy_kind`, `rule`, `settings` | a policy, its kind, its rules, its `spec` |
//! | `matching`, `conditions`, `context`, `mutation`, `mutate_existing`, `cel`, `cel_mutation`, `exception` | parts of a rule; PolicyExceptions |
//! | `template` | `{{ }}` in texts and values |
//! | `reference`, `call` | the sources that a policy reads |
//! | `subquery` | where `pushdown` puts its result |
//! | `request`, `admission`, `filters` | requests, operations and phases, exempt kinds |
//! | `problem`, `manifest`, `cost`, `driver` | the problems of a manifest; limits; the work of compiling; the abilities of a driver |

pub(crate) mod admission;
pub(crate) mod call;
pub(crate) mod cel;
pub(crate) mod cel_mutation;
pub(crate) mod conditions;
pub(crate) mod context;
pub(crate) mod cost;
mod driver;
pub(crate) mod exception;
mod filters;
pub(crate) mod manifest;
pub(crate) mod matching;
pub(crate) mod mutate_existing;
pub(crate) mod mutation;
pub(crate) mod policy;
mod policy_kind;
pub(crate) mod problem;
pub(crate) mod reference;
pub(crate) mod request;
pub(crate) mod rule;
pub(crate) mod settings;
pub(crate) mod subquery;
pub(crate) mod template;

pub use admission::{Operation, Phase};
pub use call::{ImageCredentials, SecretName, service_answer};
pub use cost::COMPILE_STEPS_MAX;
pub use driver::Driver;
pub use exception::PolicyException;
pub use filters::{
    FILTERS_MAX, FilterError, FilterProblem, Filtered, ResourceFilters, is_namespace,
};
pub use manifest::MANIFEST_DEPTH_MAX;
pub use matching::{KindPattern, POD_SUBRESOURCES, RegisteredKinds, ResourcePattern, ServedKind};
pub use mutate_existing::ChangedObject;
pub use policy::{NotRun, Policy};
pub use policy_kind::PolicyKind;
pub use problem::Problem;
pub use reference::{
    CALLS, CALLS_DECLARED, CALLS_OFF, CollectionReference, FIELD_MANAGER, FactSubject, NamedObject,
    Reference, ResolvedApiCall, ViewBackedRead, WRITER,
};
pub use request::{AdmissionRequest, LARGE_REQUEST_BYTES_MIN, RequestError};
pub use rule::{FailureAction, Rule};
pub use settings::{FailurePolicy, Reporting};
pub use template::{VariableError, VariableErrorKind};
