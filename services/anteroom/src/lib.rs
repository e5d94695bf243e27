//! The command `anteroom`: every service, all of them in one process, and a client of a running system.
//!
//! | command | what it does |
//! |---|---|
//! | `serve` | all services in one process, for a small cluster (the reporter with `--background-scans`) |
//! | `watcher`, `replica`, `webhook`, `reporter` | one service, as a process of its own |
//! | `explain` | what each rule of a policy asks, and how the answer is found |
//! | `test` | suites of expected results, offline |
//! | `apply` | what policies say of resources, offline |
//! | `equal` | requests on which two sets of policies differ, offline |
//! | `query` | asks the replicas of a running system |
//! | `jp` | the query language, offline |
//! | `migrate` | what a move from Kyverno needs |
//! | `keys` | makes what NATS and the services know each other by |
//! | `check` | facts about an installation, and what to do about them |
//! | `top`, `tap`, `console` | what is decided now, in a terminal or a browser |
//! | `support-bundle` | one archive for somebody who helps, without secrets |
//! | `init` | makes the Secrets of an installation that are missing |
//! | `uninstall` | takes the webhook out of the API server's way |
//! | `completion` | shell completions |
//!
//! | module | content |
//! |---|---|
//! | `cli` | the command line, and who runs each command |
//! | `serve` | all services in one process |
//! | `installation`, `keys` | `init` and `uninstall`; keys of an installation |
//! | `check`, `bundle` | facts about an installation; an archive of them |
//! | `operator`, `console` | a running system, in a terminal or browser |
//! | `explain`, `query` | the plan of a policy; questions to replicas |
//! | `migrate` | the needs of a move from Kyverno |
//! | `offline`, `jp` | `test`, `apply` and `equal`; the query language |
//! | `asker`, `input`, `output`, `parameter` | API server reads, inputs and outputs of commands |

mod asker;
mod bundle;
mod check;
mod cli;
pub mod console;
mod explain;
mod input;
mod installation;
mod jp;
mod keys;
mod migrate;
mod offline;
pub mod operator;
pub mod output;
mod parameter;
mod query;
pub mod serve;

pub use cli::run;
