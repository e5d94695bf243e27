//! The wire: envelopes, subjects, and MessagePack. The only crate that knows either.
//!
//! - [`body`]: objects as compact MessagePack, and [`body::BodyNode`], which reads them in place.
//! - [`envelope`]: a record of the log as subject, headers and body.
//! - [`query`]: a query request and its reply.
//! - [`call`]: what travels beside a query, in headers or before it.
//! - [`beat`]: the writer's heartbeat.
//! - [`replica_beat`]: a replica's heartbeat; [`webhook_beat`]: a webhook's.
//! - [`lease`]: who writes.
//! - [`live`]: a live read through the watcher.
//! - [`referenced`]: a record of an object that is referenced by itself.
//! - [`tap`]: a look at what webhooks decide now.
//! - [`unreadable`]: the stub of an object that cannot be carried.
//! - [`violation`]: what a webhook found at admission.
//! - [`status`]: what the coordinator says of policies and entries.
//! - [`subject`]: the names of subjects.

pub mod beat;
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
