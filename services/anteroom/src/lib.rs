//! The command `anteroom`: everything in one process, and a client of a running system.
//!
//! | command | what it does |
//! |---|---|
//! | `demo` | a whole system under load, measured |
//! | `serve` | watcher, replica and webhook in one process, for a small cluster |
//! | `explain` | what each rule of a policy asks, and how the answer is found |
//! | `test` | suites of expected results, offline |
//! | `apply` | what policies say of resources, offline |
//! | `query` | asks the replicas of a running system |
//! | `jp` | the query language, offline |
//! | `completion` | shell completions |

mod cli;
mod demo;
mod explain;
mod input;
mod jp;
mod offline;
mod query;
mod serve;

pub use cli::run;
