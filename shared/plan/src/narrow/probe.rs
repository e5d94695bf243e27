//! Probes, made.

use super::{Matching, Narrow, Operand, Probe};
use crate::Key;

/// All objects whose key agrees with the operand.
pub(super) fn find(key: Key, matching: Matching, operand: Operand) -> Narrow {
    Narrow::Probe(Probe {
        key,
        matching,
        operand,
        once: false,
        check: None,
    })
}
