//! Functions: a table of them, their signatures, and what they are given.

mod call;
mod host;
mod signature;
mod standard;
mod table;

pub use call::{Call, Reference};
pub(crate) use host::Host;
pub use host::{Handle, Handles};
pub use signature::{Signature, Types};
pub use table::{Function, FunctionTable};
