//! Limits on the size of an expression.

/// The longest expression, unless the caller's [`Limits`] say otherwise.
pub const EXPRESSION_BYTES_MAX: usize = 64 * 1024;

/// The deepest expression, unless the caller's [`Limits`] say otherwise. A stack of 2 MiB holds it in
/// a debug build, parsing and evaluating.
pub const EXPRESSION_DEPTH_MAX: u32 = 128;

/// Limits on the size of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of text.
    pub bytes: usize,
    /// Levels of nesting: brackets, operators within operators, projections within projections.
    /// Long chains (`a.b.c`, `a || b || c`, `a | b | c`) do not nest. Above
    /// [`EXPRESSION_DEPTH_MAX`] the caller answers for the size of the stack.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bytes: EXPRESSION_BYTES_MAX,
            depth: EXPRESSION_DEPTH_MAX,
        }
    }
}
