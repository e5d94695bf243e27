//! The values and functions of Kubernetes and Kyverno, for every expression that a policy holds.
//!
//! Everything here is a pure function of its arguments: no IO, no clock, and no state but the meter of the work.
//!
//! | module | content |
//! |---|---|
//! | [`functions`] | the function table of JMESPath: the standard functions, Kyverno's, and those of queries |
//! | [`values`] | durations, quantities, numbers, ranges, addresses, URLs and formats of names |
//! | [`operator`] | the operators of Kyverno's conditions |
//! | [`pattern`] | Kyverno's patterns: an object compared with a template of it |
//! | [`wildcard`] | `*` and `?` |
//! | [`bounded_regex`] | regular expressions whose work is charged |
//! | [`meter`] | the work that comparisons do, and its limit |
//! | [`images`] | image references, and the images of a Pod |
//! | [`pod_security`] | the Pod Security Standards |
//! | [`yaml`] | YAML as Kubernetes reads it |
//! | [`json`] | JSON, no deeper than it may nest |
//! | [`gzip`] | compression |
//! | [`pure`] | functions of the table over plain values, which CEL calls too |

pub mod bounded_regex;
mod functions;
pub mod gzip;
pub mod images;
pub mod json;
pub mod meter;
pub mod operator;
pub mod pattern;
pub mod pod_security;
pub mod pure;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod values;
pub mod wildcard;
pub mod yaml;

pub use functions::{
    KEEP_ONLY, calls_nondeterministic, condition_function, functions, is_nondeterministic,
    is_order_sensitive, note, query_functions,
};
