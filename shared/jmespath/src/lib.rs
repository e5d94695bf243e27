//! JMESPath, parsed once and evaluated by reference over a borrowed [`Node`].
mod node;
pub use node::{Node, Number, Shape};
