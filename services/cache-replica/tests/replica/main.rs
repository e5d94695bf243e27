//! A replica on the in-process bus, with a writer of the log beside it.

mod failures;
mod harness;
mod lifecycle;
mod queries;
