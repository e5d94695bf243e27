//! The coordinator's part: the desired views, the entries and policies that need them, and their statuses.
//!
//! [`Reconciler`] and its parts are pure: events in, effects out. [`Controller`] owns all IO.
//!
//! [`Reconciler`]: reconciler::Reconciler
//!
//! # Ready means enforced
//!
//! A policy is `Ready` when it decides the next request. The coordinator learns that without asking any service. The
//! log has one order, so a policy has a position: behind its own record, the records that it reads, and the kinds. A
//! webhook's heartbeat names one position, whatever the number of policies. Once every live webhook has passed the
//! policy's position, and a replica serves each of its views, the policy is in force. A policy that waits for its
//! views delays no other. `docs/ready.md` has the rules for webhooks that come and go.
//!
//! Statuses of many entries are many writes, and each write is an event. So news go first, and ages and
//! figures share one rate.
//!
//! | module | content |
//! |---|---|
//! | `controller`, `reconciler`, `effect` | the task; the pure core; the effects that it asks for |
//! | `note_queue`, `note_channel` | notes that wait for the task, in fair turns; the channel around them |
//! | `collection`, `manifests`, `manifest_list` | entries, policies and exceptions as the API server has them |
//! | `entry_store`, `policy_store`, `exception_store` | entries; policies, by the sources that they read; exceptions of both groups |
//! | `resolver`, `resolve`, `permits` | the source of an entry or reference; the permissions by an administrator |
//! | `registry` | which views are desired, and who needs them |
//! | `policies_in_log` | the policies that were in force before this term |
//! | `quotas`, `policy_size` | the sources that policies may have kept; the size of all policies of a namespace |
//! | `webhooks`, `enforcement` | live webhooks; whether a policy is in force |
//! | `status` | statuses: the states of views, conditions, and who writes them |
//! | `system_views`, `call_pollers` | the views that the coordinator itself writes to the log |

mod call_pollers;
mod collection;
mod controller;
mod effect;
mod enforcement;
mod entry_store;
mod exception_store;
mod manifest_list;
mod manifests;
mod note_channel;
mod note_queue;
mod permits;
mod policies_in_log;
mod policy_size;
mod policy_store;
mod quotas;
mod reconciler;
mod registry;
mod resolve;
mod resolver;
mod status;
mod system_views;
mod webhooks;

pub(crate) use collection::Manifests;
pub(crate) use controller::{Controller, Deps, Rights};
pub(crate) use exception_store::ExceptionKind;
pub(crate) use note_channel::{NoteSender, note_channel};
pub use permits::{CacheApiCalls, PolicyWriter, SecretsReader};
pub(crate) use permits::{PolicyWriters, SecretsReaders};
pub(crate) use resolver::Options;
pub(crate) use status::{
    server::{StatusServer, Statuses},
    writer::{StatusMetrics, StatusWriter},
};
