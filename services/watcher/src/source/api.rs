//! `CachedContextEntry` and `GlobalContextEntry`, as users write them.
//!
//! The schema says what it can: types, patterns, "exactly one of". The coordinator checks the rest again in
//! code. An API server may hold entries from before a rule was added, or have another's definition of a
//! `GlobalContextEntry`.

mod cached;
mod call;
mod global;
mod resource;
mod status;

pub use cached::{
    CachedContextEntry, CachedContextEntrySpec, OnFailure, OnForbidden, Retain,
    STALENESS_DEFAULT_SECONDS,
};
pub use call::{ApiCallSource, Datum, Header, Method, ProjectionSpec, ServiceSource};
pub use global::{GlobalApiCall, GlobalContextEntry, GlobalContextEntrySpec, KubernetesResource};
pub use resource::{LabelRequirement, LabelSelector, ResourceSource};
pub use status::{CachedContextEntryStatus, GlobalContextEntryStatus};
