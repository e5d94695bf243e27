//! Limits of an expression and of an evaluation.

/// Levels of subexpressions within subexpressions. Kubernetes' own policies stay below 30.
pub const EXPRESSION_DEPTH_MAX: usize = 100;

/// Levels of subexpressions within subexpressions, variables that refer to variables included.
pub const EVALUATION_DEPTH_MAX: usize = 250;

/// Steps of one evaluation, about a tenth of a second of work: each subexpression, each element visited,
/// and each 32 bytes of text read.
pub const STEPS_MAX: u64 = 2_000_000;

/// Bytes of all texts and lists that one evaluation builds, intermediate values included.
pub const BUILT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Memory of all JSON documents that one evaluation makes of values, by the figures of `json_memory` in the crate for
/// JMESPath: parameters of facts, patches, the result. A text that is parsed may take as much on the way.
pub const JSON_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The greatest nesting depth of lists and maps when a value is converted to or from JSON.
pub const JSON_DEPTH_MAX: usize = 128;
