//! Values that many share, each held once.

use std::{collections::HashMap, hash::Hash, mem::size_of_val, sync::Arc};

use crate::result::RuleResult;

/// The memory of a property beside its texts.
const ENTRY_BYTES: usize = 2 * size_of::<String>();

/// A value that can be shared.
pub(super) trait Internable: Eq + Hash {
    /// The approximate bytes of the value in memory.
    fn bytes(&self) -> usize;
}

impl Internable for str {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Internable for RuleResult {
    fn bytes(&self) -> usize {
        let properties = self.properties.iter().flat_map(|all| all.iter());
        let properties = properties.map(|(name, value)| name.len() + value.len() + ENTRY_BYTES);
        size_of_val(self) + self.rule.len() + self.message.len() + properties.sum::<usize>()
    }
}

/// Each value with how many hold it.
#[derive(Debug)]
pub(super) struct Interned<T: ?Sized> {
    held: HashMap<Arc<T>, (Arc<T>, usize)>,
    bytes: usize,
}

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self {
            held: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<T: ?Sized + Internable> Interned<T> {
    /// Returns the shared value, with a further holder until [`Self::release`].
    pub(super) fn take(&mut self, value: &Arc<T>) -> Arc<T> {
        if let Some((shared, count)) = self.held.get_mut(value) {
            *count += 1;
            return Arc::clone(shared);
        }
        self.bytes += value.bytes();
        self.held.insert(Arc::clone(value), (Arc::clone(value), 1));
        Arc::clone(value)
    }

    /// Removes a holder of the value. The last holder removes the value.
    pub(super) fn release(&mut self, value: &T) {
        let Some((_, count)) = self.held.get_mut(value) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.held.remove(value);
            self.bytes = self.bytes.saturating_sub(value.bytes());
        }
    }

    /// The bytes that all values take, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}
