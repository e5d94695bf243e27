//! Limits of an expression and of an evaluation.

/// Levels of terms within terms. Kubernetes' own policies stay below 30.
pub const EXPRESSION_DEPTH_MAX: usize = 100;

/// Levels of terms within terms, variables that refer to variables included.
pub const EVALUATION_DEPTH_MAX: usize = 250;

/// Steps of one evaluation, about a tenth of a second of work: each term, each element that is looked at,
/// and each 32 bytes of text that are.
pub const STEPS_MAX: u64 = 2_000_000;

/// Bytes of the texts and lists that one evaluation makes, whatever becomes of them.
pub const BUILT_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Lists and maps within each other that a value has which becomes JSON, or that JSON has which becomes a value.
pub const JSON_DEPTH_MAX: usize = 128;
