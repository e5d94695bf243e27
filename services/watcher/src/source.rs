//! The API server as a source of objects: discovery, lists and watches, and the fields of an object that are kept.

pub mod api;
pub(crate) mod apiserver;
pub(crate) mod crd;
pub(crate) mod discovery;
pub(crate) mod metrics;
pub(crate) mod prune;
pub(crate) mod reflect;
