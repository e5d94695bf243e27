//! The engine: takes requests and existing objects through the policies, wherever the facts come from.
//!
//! ```text
//! log ──▶ catalog (entries, kinds, policies, exceptions)
//!            │
//!            ▼
//! request ─▶ decide ──▶ verdict ──▶ Decision          existing object ─▶ judge
//!            ▲                │
//!            facts            └──▶ mutate_existing (after the answer)
//! ```
//!
//! | module | content |
//! |---|---|
//! | `decide` | takes a request through the rules |
//! | `verdict` | the decision that follows from records of rules |
//! | `drive`, `rule_run` | the one loop over rules; the state of one rule in it |
//! | `rule`, `phase` | names and results of a rule; phases of admission |
//! | `catalog` | the data that the watcher published: entries, kinds, policies, exceptions |
//! | `compile_turns` | the turns in which changed policies and exceptions of namespaces are compiled |
//! | `policies`, `exceptions`, `kinds` | policies, exceptions and kinds in force, indexed |
//! | `facts` | the interface to facts, and the facts of a cluster |
//! | `incoming` | a request as it arrives |
//! | `off_thread` | long work beside the other tasks of a runtime |
//! | `review_work` | the work that one review may cause, and the threads for it |
//! | `mutate_existing` | changes existing objects after a trigger |
//! | `judge` | takes existing objects through the same policies |
//! | `recorder`, `violations` | the seam to metrics; violations for the reporter |
//! | `exemptions` | requests and objects that no policy is asked about, and the file that names them |
//! | `testing` | catalogs and facts for tests |
//!
//! # A decision
//!
//! All rules that judge a request run side by side. Their needs of one view at one moment are one query, and each
//! rule goes on as soon as its own facts have arrived. A rule that a precondition stops asks for nothing. If a rule
//! failed and the policies changed meanwhile, the new policies decide once more, because the views for a policy's
//! facts go with the policy.
//!
//! Labels of the namespace and roles of the user are facts too, from views that the policy declares. Matching
//! has three values, so they are read only if the rest does not decide. The time and the random seed arrive
//! with the request, and stay the same in every step of an evaluation. Functions that use them are never
//! evaluated in a replica.
//!
//! # Existing objects
//!
//! A rule with targets runs after the answer, from a bounded queue. Its targets are facts, read live. Each
//! changed object goes to a watcher, which checks it against the policy (`Policy::permits_writing`) and
//! writes it over the `resourceVersion` that was read. So this crate touches nothing of the cluster. A list
//! comes in parts, and each part is written before the next one is read.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod catalog;
mod compile_turns;
pub mod decide;
pub mod drive;
pub mod exceptions;
pub mod exemptions;
pub mod facts;
pub mod incoming;
pub mod judge;
pub mod kinds;
pub mod mutate_existing;
pub mod off_thread;
pub mod phase;
pub mod policies;
pub mod recorder;
pub mod review_work;
pub mod rule;
pub mod rule_run;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verdict;
pub mod violations;
