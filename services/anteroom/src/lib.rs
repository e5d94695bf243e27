//! The command `anteroom`: everything in one process, and a client of a running system.
//!
//! | command | what it does |
//! |---|---|
//! | `demo` | a whole system under load, measured |
//! | `serve` | watcher, replica and webhook in one process, for a small cluster |
//! | `query` | asks the replicas of a running system |
//! | `jp` | the query language, offline |
//! | `completion` | shell completions |

mod cli;
mod demo;
mod input;
mod jp;
mod query;
mod serve;

pub use cli::run;
