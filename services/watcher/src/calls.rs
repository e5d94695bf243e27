//! API calls that are made at intervals, once for the whole cluster, by the coordinator.

mod spec;

pub(crate) use spec::{CallSpec, OnFailure};
