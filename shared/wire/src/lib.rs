//! The wire: envelopes, subjects, and MessagePack. The only crate that knows either.
//!
//! | module | content |
//! |---|---|
//! | [`envelope`] | a record of the log: subject, headers, body |
//! | [`body`] | objects as compact MessagePack, read in place |
//! | [`unreadable`], [`referenced`] | the stub of an object; a referenced object |
//! | [`subject`] | the names of subjects |
//! | [`query`], [`call`] | a query and its reply; what travels beside it |
//! | [`live`] | a live read through the watcher |
//! | [`beneficiary`] | the party that a request is counted for |
//! | [`lease`], [`beat`] | who writes; the writer's heartbeat |
//! | [`replica_beat`], [`webhook_beat`] | heartbeats of replicas and webhooks |
//! | [`violation`], [`tap`] | violations at admission; decisions as made |
//! | [`status`] | the coordinator's status of policies and entries |
//! | `header`, `frame`, `escape`, `error` | headers; messages without any; tokens; errors |

pub mod beat;
pub mod beneficiary;
pub mod body;
pub mod call;
pub mod envelope;
pub mod lease;
pub mod live;
pub mod query;
pub mod referenced;
pub mod replica_beat;
pub mod status;
pub mod subject;
pub mod tap;
pub mod unreadable;
pub mod violation;
pub mod webhook_beat;

mod escape;
mod frame;
mod header;

/// The version of everything in this crate that crosses a process border. A reader refuses a
/// version that it does not know, with an error that names both.
pub const PROTOCOL_VERSION: u16 = 2;

mod error;
pub use error::WireError;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod releases;
#[cfg(test)]
mod testing;
