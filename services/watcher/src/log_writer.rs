//! The log: the groups of views that this watcher may write, their content in the log, and the writer.
//!
//! # Groups
//!
//! The views are divided into `1 + Group::SHARDS` groups by their type, so views that can share a watch have
//! one writer. Each group has a lease in the log (`ctl.lease.<incarnation>.<group>`), and a fence of one
//! group means nothing in another. The lease's subject carries the log's incarnation, so a fence of a deleted
//! log never holds in the next one. The order of the log stays total: batches of several writers stand whole,
//! one after the other. A new leader reads the index of its group alone: the few control records whole, then
//! the headers of the objects.
//!
//! A purge cannot be fenced. So it is refused unless the view's last control record says `Dropped`, and it
//! removes only messages before that record.
//!
//! | module | content |
//! |---|---|
//! | `lead`, `members` | election, division of the groups |
//! | `highest`, `readers` | the known end of the log, which proves that the log lost records |
//! | `contradictions` | views of which the log differs from what was written |
//! | `publish` | the write queue and its task |
//! | `index`, `log_snapshot` | the log at the start of a term |
//! | `desired_state` | the views and objects that the coordinator desires |
//! | `metrics` | batches, views written, groups led |

pub(crate) mod contradictions;
pub(crate) mod desired_state;
pub(crate) mod highest;
pub(crate) mod index;
pub(crate) mod lead;
pub(crate) mod log_snapshot;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod publish;
mod readers;
