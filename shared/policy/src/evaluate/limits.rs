//! Limits of an evaluation. The error at a limit names the limit.

/// The most facts that one rule may read for one request. A rule that reads more fails.
pub const FACTS_PER_RULE_MAX: usize = 64;

/// The most subqueries that one rule may make for one request. Beyond that the rule asks for whole facts.
pub const PUSHED_DOWN_PER_RULE_MAX: usize = 256;

/// The most elements of one `foreach`. A `foreach` with more fails.
pub const FOREACH_ELEMENTS_MAX: usize = 1_000;

/// The most elements of all `foreach` loops of a rule together; inner loops count for each outer element. More is an
/// error.
pub const FOREACH_ELEMENTS_IN_ALL_MAX: usize = 20_000;

/// The most bytes that the patches of one rule may go through, about: each patch counts the bytes of the object. A
/// rule with more fails.
pub const MUTATED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The most batches of existing objects that one rule handles for one request. Further batches are an error, and are
/// not handled.
pub const EXISTING_BATCHES_MAX: usize = 1_000;

/// The most memory of the values that a rule makes and holds at once: those of its variables, the elements that it goes
/// through, and what its expression gives. Values are counted by the figures of `json_memory` in the crate for JMESPath.
/// A larger one is an error. It is 16 times the largest result of a query. Facts do not count: they are shared.
pub const VALUES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most memory of a value that becomes a part of another one, of all values that one expression is bound to, and of a
/// text that is parsed into a value. A larger one is an error.
pub const COPIED_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The memory of values beyond which a rule that waits for facts drops them. They are made again in its next step.
pub const WAITING_BYTES_MAX: u64 = 1024 * 1024;

/// The most memory of the values in all questions of a rule, such as parameters and bodies of calls: some 80,000 names.
/// More is an error. They cannot be dropped while the rule waits.
pub const PARAMETERS_BYTES_MAX: u64 = 8 * 1024 * 1024;
