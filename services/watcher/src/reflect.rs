//! x
mod machine;
mod parse;
