//! The bus: one log for all views, signals, and request-reply.
//!
//! Two implementations stand behind [`Bus`]: [`nats`], the product, and [`local`], for single-process
//! runs and tests. One contract suite (`tests/contract.rs`) runs against both. This is the only crate
//! that knows NATS.
//!
//! | module | content |
//! |---|---|
//! | `contract` | [`Bus`], and the types that it exchanges |
//! | `signal` | messages to all who listen now, never stored |
//! | `position` | where a reader stands, and when it begins again |
//! | `earlier_end` | ends of the log that are earlier than what is acknowledged |
//! | `batch` | the limits of a batch |
//! | [`local`] | a bus in one process |
//! | [`nats`] | the bus over NATS |
//! | `violation_stream` | a subscription to violations, which reports losses |
//! | `counters` | counters of a client |
//! | `testing` | a nats-server for tests (feature `testing`) |

mod batch;
mod contract;
mod counters;
mod earlier_end;
pub mod local;
pub mod nats;
mod position;
mod signal;
#[cfg(feature = "testing")]
pub mod testing;
mod violation_stream;

pub use contract::{
    Address, AppendError, Bus, BusError, Call, Connection, Fence, Follower, Incoming, Lease,
    LogEvent, LogHead, LogIndex, LogScope, LogSize, LogStorage, RequestError, RestartCause,
    Serving, Unreadable,
};
pub use counters::Counters;
pub use earlier_end::EarlierEnd;
pub use signal::{BusExt, Channel, Signal, Signals};
pub use violation_stream::{ViolationEvent, Violations};
