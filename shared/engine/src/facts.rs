//! Facts, from whichever backend has them, within the time that the API server waits.
//!
//! ```text
//! FactRequest ── route ──▶ backends ──▶ views ──▶ View ──▶ Fallback     (a replica)
//!                            │
//!                            └────────▶ live ──▶ Live                   (a watcher)
//! ```
//!
//! - `source`: the seam: a place that facts come from.
//! - `bus`: facts of a cluster. `pending` has those on their way.
//! - `route` chooses the backends for a fact; `confined` checks the reads of a namespaced policy.
//! - `views` asks replicas, and before them views of this process (`local`): `attempts` hedges, `outages` waits for who is away, `floors` keeps decisions from going back in
//!   time.
//! - `live` asks a watcher; `seal` opens sealed answers of replicas and watchers about Secrets. `message` encodes
//!   requests and answers.
//! - `decode` reads answers, in the `memory` that large facts share. `waiting` is the memory of rules that wait for them.
//! - `audit` compares some answers of views with live reads.

mod attempts;
mod audit;
mod bus;
mod confined;
mod decode;
mod floors;
mod live;
mod local;
mod memory;
mod message;
mod origin;
mod outages;
mod pending;
mod route;
mod seal;
mod source;
mod views;
mod waiting;

pub use bus::BusFacts;
pub use local::LocalViews;
#[cfg(test)]
pub(crate) use memory::FactMemory;
pub use memory::{FactHolder, FactPermit};
pub use origin::Origin;
pub use source::{Arriving, Deadline, FactAnswer, FactResult, FactSource, RuleRequests};
pub(crate) use waiting::{ReviewWaiting, WaitingMemory, WaitingPermit};

#[cfg(test)]
mod tests;
