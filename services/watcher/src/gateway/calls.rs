//! API calls, to the API server and to other services.
//!
//! Whatever is called outside of the API server, registries included, is called by [`HttpClients`], which connect to
//! permitted addresses alone.
//!
//! [`spec`] reads an entry's call, [`http`] and [`caller`] make it.

mod address;
mod caller;
mod fault;
mod http;
mod services;
mod spec;
#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

pub(crate) use address::{AddressKind, address_kind};
pub(crate) use caller::{Caller, Reply, encode, parse, parse_or_null};
pub(crate) use fault::CallFault;
pub(crate) use http::fuzzing;
pub(crate) use http::{
    AddressFilter, CallAnswer, HttpAnswer, HttpCall, HttpClients, Redirects, Validators,
};
pub(crate) use services::Services;
pub(crate) use spec::{CallSpec, CallTarget, OnFailure, Service, is_of_secrets, parse_url};

/// The longest time for one call, from the connection to the last byte.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest response of an API call, unless the command line has another limit. The response's body in the log
/// must stay below `OBJECT_BYTES_MAX`.
pub(crate) const API_CALL_BYTES_MAX: usize = 2 * 1024 * 1024;
