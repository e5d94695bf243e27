//! API calls, to the API server and to other services.
//!
//! [`spec`] says what an entry asks for, [`http`] and [`caller`] make one call.

mod caller;
mod fault;
mod http;
mod spec;
#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

pub(crate) use caller::{Caller, Reply, encode, parse};
pub(crate) use fault::CallFault;
pub(crate) use http::{AddressFilter, Answer, HttpAnswer, HttpCall, HttpClient, Validators};
pub(crate) use spec::{CallSpec, CallTarget, OnFailure, is_of_secrets, parse_url};

/// The longest time for one call, from the connection to the last byte.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest response of an API call, where the command line does not say. What it becomes in the
/// log must stay below `OBJECT_BYTES_MAX`.
pub(crate) const API_CALL_BYTES_MAX: usize = 2 * 1024 * 1024;
