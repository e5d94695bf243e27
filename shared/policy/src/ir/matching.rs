//! `match` and `exclude` of rules, and which failure action is about a request. Pure.

mod constraints;
mod filter;
mod kind;
mod matches;
mod overrides;
mod registration;
mod roles;
mod selector;
mod surroundings;
mod users;

pub(crate) use constraints::{Constraints, ResourceRule};
pub(crate) use filter::{Filter, Filters, Match};
pub use kind::{KindPattern, POD_SUBRESOURCES, ResourcePattern, ServedKind};
pub(crate) use matches::Matches;
pub use registration::RegisteredKinds;
pub(crate) use roles::{BINDINGS_OF_USER, names_of_user, roles_of};
pub(crate) use selector::{Requirement, Selector, SetOperator};
pub(crate) use surroundings::{LABELS, Lacking, Matched, NAMESPACE_SELECTOR, ROLES, Surroundings};
pub(crate) use users::{SubjectPattern, Users};
