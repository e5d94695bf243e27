//! Limits of an evaluation. The error at a limit names the limit.

/// Facts that one rule may read while one request is evaluated; more is an error.
pub const FACTS_PER_RULE_MAX: usize = 64;

/// Queries about uses of facts that one rule may make while one request is evaluated. Beyond that the
/// facts themselves are asked for.
pub const PUSHED_DOWN_PER_RULE_MAX: usize = 256;

/// Elements that one `foreach` goes through; more is an error.
pub const FOREACH_ELEMENTS_MAX: usize = 1_000;

/// The most elements of all `foreach` loops of a rule together; inner loops count for each outer element. More is an
/// error.
pub const FOREACH_ELEMENTS_IN_ALL_MAX: usize = 20_000;

/// Bytes, about, that the patches of one rule may go through: the object's, once for each patch. More
/// is an error.
pub const MUTATED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Batches of existing objects that one rule handles for one request; more is an error, and the rest is not handled.
pub const EXISTING_BATCHES_MAX: usize = 1_000;
