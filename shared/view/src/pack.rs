//! Several objects in one allocation.
//!
//! An allocator rounds up: a body of 3.7 KB takes 4 KB, and bodies of all sizes together a tenth more than they
//! hold. So objects that came one by one are packed, so many into one allocation that they fill its size class.
//! What changes later gets an allocation of its own again and leaves a *hole* behind. Where holes take a good
//! part of an allocation, what is left in it moves out ([`Holes`]). An object therefore moves twice at most,
//! once in and once out: whoever keeps up with changes sees each move as one.

use std::{collections::HashMap, ops::Range};

use crate::{
    object::{Object, joined},
    size,
};

/// A larger object keeps its own allocation: of that size, the allocator rounds up by pages that are
/// never touched.
const PACKED_BYTES_MAX: usize = 14 * 1024;

/// The most bytes of one allocation. More would round up less, and hold longer what is left in it.
const PACK_BYTES_MAX: usize = 128 * 1024;

/// The hidden cost of a small allocation: about half of the pages that the allocator takes for several
/// of its size.
const STREWN_BYTES: usize = 16 * 1024;

/// Bytes of one chunk's objects that are not packed, above which some are packed while a view is read. The rest is
/// packed when the view is whole, and is there twice for a moment: the allocator gives memory back only a while later.
/// Half as many are packed less well: 40,000 Pods of 3.8 KB took 1.10 times their bytes so, and take 1.05.
pub(crate) const LOOSE_BYTES_MAX: usize = 96 * 1024;

/// The least that is packed of them.
const BEST_BYTES_MIN: usize = 48 * 1024;

/// The greatest share of holes in an allocation, as a divisor.
const HOLES_SHARE: usize = 3;

/// Packs the objects that have an allocation of their own and no further holder. Returns the bytes saved.
pub(crate) fn pack(objects: &mut [Object]) -> isize {
    let mut loose = loose(objects);
    let ranges = ranges(&sizes(&loose));
    ranges
        .into_iter()
        .map(|range| together(&mut loose[range]))
        .sum()
}

/// Packs those of them that fill an allocation best, and leaves the others for the next time. Returns the
/// bytes that this saves.
pub(crate) fn pack_best(objects: &mut [Object]) -> isize {
    let mut loose = loose(objects);
    let range = best(&sizes(&loose), BEST_BYTES_MIN);
    together(&mut loose[range])
}

fn loose(objects: &mut [Object]) -> Vec<&mut Object> {
    let loose = objects.iter_mut();
    loose
        .filter(|object| is_loose(object) && object.is_unshared())
        .collect()
}

fn sizes(objects: &[&mut Object]) -> Vec<usize> {
    objects.iter().map(|object| object.len()).collect()
}

/// Moves them into one allocation.
fn together(packed: &mut [&mut Object]) -> isize {
    if packed.len() < 2 {
        return 0;
    }
    let spare = |packed: &[&mut Object]| packed.iter().map(|object| object.spare_bytes()).sum();
    let before: usize = spare(packed);
    let data = joined(packed.iter().map(|object| object.data()));
    let mut start = 0;
    for object in packed.iter_mut() {
        let bytes = object.len();
        object.move_into(&data, start);
        start += bytes;
    }
    let after: usize = spare(packed);
    before.cast_signed() - after.cast_signed()
}

/// Finds neighbours among objects of these sizes that take at least so many bytes together, so that the
/// least is added. Empty where all take less.
fn best(sizes: &[usize], least: usize) -> Range<usize> {
    let (mut best, mut best_bytes, mut best_spare) = (0..0, 1, usize::MAX);
    for begin in 0..sizes.len() {
        let mut bytes = 0;
        for end in begin + 1..=sizes.len() {
            bytes += sizes[end - 1];
            if bytes > PACK_BYTES_MAX {
                break;
            }
            let spare = size::shared(bytes);
            // By what is added to each byte.
            if bytes >= least && spare.saturating_mul(best_bytes) < best_spare.saturating_mul(bytes)
            {
                (best, best_bytes, best_spare) = (begin..end, bytes, spare);
            }
        }
    }
    best
}

/// Returns true if it may be packed, if nobody else holds it: it has an allocation of its own, and is
/// small.
pub(crate) fn is_loose(object: &Object) -> bool {
    object.is_alone() && object.len() <= PACKED_BYTES_MAX
}

/// Divides objects of these sizes, in order, into groups so that the least is added to them.
fn ranges(sizes: &[usize]) -> Vec<Range<usize>> {
    // For each number of objects: what is added to the first so many, and where their last range begins.
    let mut best = vec![(0, 0)];
    for end in 1..=sizes.len() {
        let (mut bytes, mut found) = (0, (usize::MAX, end - 1));
        for begin in (0..end).rev() {
            bytes += sizes[begin];
            if bytes > PACK_BYTES_MAX && begin + 1 < end {
                break;
            }
            let spare = best[begin].0 + cost(bytes);
            if spare < found.0 {
                found = (spare, begin);
            }
        }
        best.push(found);
    }
    let (mut ranges, mut end) = (Vec::new(), sizes.len());
    while end > 0 {
        let begin = best[end].1;
        ranges.push(begin..end);
        end = begin;
    }
    ranges.reverse();
    ranges
}

/// The cost of one allocation for so many bytes: the bytes that are added, and for a small one the
/// pages that it keeps from being freed where its neighbours are gone.
fn cost(bytes: usize) -> usize {
    let strewn = match bytes < PACKED_BYTES_MAX {
        true => STREWN_BYTES,
        false => 0,
    };
    size::shared(bytes) + strewn
}

/// The bytes of allocations that hold no object of a state any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    /// The unused bytes of each allocation.
    by_allocation: HashMap<usize, usize>,
    bytes: usize,
}

impl Holes {
    /// Bytes of all holes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// An object is gone. Returns whether those that are left in its allocation should move out.
    pub(crate) fn left(&mut self, gone: &Object) -> bool {
        if gone.is_alone() {
            return false;
        }
        let unused = self.by_allocation.entry(gone.allocation()).or_default();
        *unused += gone.len();
        self.bytes += gone.len();
        let (unused, all) = (*unused, gone.allocation_bytes());
        if unused >= all {
            self.by_allocation.remove(&gone.allocation());
            self.bytes -= unused;
            return false;
        }
        unused * HOLES_SHARE > all
    }

    /// Notes that the objects left in the allocation of `gone` have moved out: so many bytes of them.
    pub(crate) fn moved_out(&mut self, gone: &Object, bytes: usize) {
        if let Some(unused) = self.by_allocation.get_mut(&gone.allocation()) {
            *unused += bytes;
            self.bytes += bytes;
            if *unused >= gone.allocation_bytes() {
                self.bytes -= *unused;
                self.by_allocation.remove(&gone.allocation());
            }
        }
    }

    /// Counts anew, where objects were taken over from another state.
    pub(crate) fn of<'a>(objects: impl Iterator<Item = &'a Object>) -> Self {
        let mut by_allocation = HashMap::new();
        for object in objects.filter(|object| !object.is_alone()) {
            let unused = by_allocation.entry(object.allocation());
            *unused.or_insert(object.allocation_bytes()) -= object.len();
        }
        by_allocation.retain(|_, unused| *unused > 0);
        let bytes = by_allocation.values().sum();
        Self {
            by_allocation,
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_object_is_in_one_range_and_no_range_is_too_large(
            sizes in prop::collection::vec(1_usize..20_000, 0..150),
        ) {
            let ranges = ranges(&sizes);
            let mut next = 0;
            for range in &ranges {
                prop_assert_eq!(range.start, next);
                prop_assert!(range.end > range.start);
                let bytes: usize = sizes[range.clone()].iter().sum();
                prop_assert!(range.len() == 1 || bytes <= PACK_BYTES_MAX);
                next = range.end;
            }
            prop_assert_eq!(next, sizes.len());
        }
    }

    #[test]
    fn the_best_range_of_a_few_objects_is_hardly_rounded_up() {
        for of in [333, 600, 1_100, 2_049, 3_111, 3_700, 5_200, 9_000] {
            let count = LOOSE_BYTES_MAX / of + 1;
            let sizes: Vec<_> = (0..count).map(|n| of + (n * 37) % 50).collect();
            let range = best(&sizes, BEST_BYTES_MIN);
            let bytes: usize = sizes[range].iter().sum();
            assert!((BEST_BYTES_MIN..=PACK_BYTES_MAX).contains(&bytes));
            assert!(size::shared(bytes) * 15 < bytes, "{of}: {bytes}");
        }
        assert!(best(&[5_000; 4], BEST_BYTES_MIN).is_empty(), "too few");
        assert!(best(&[], BEST_BYTES_MIN).is_empty());
    }

    #[test]
    fn packed_objects_are_rounded_up_by_little() {
        for (of, share_max) in [
            (333, 12),
            (600, 20),
            (1_100, 20),
            (2_049, 20),
            (3_111, 20),
            (3_700, 20),
            (4_097, 20),
            (5_200, 20),
        ] {
            let sizes: Vec<_> = (0..64).map(|n| of + (n * 37) % 50).collect();
            let (mut bytes, mut spare) = (0, 0);
            for range in ranges(&sizes) {
                let together: usize = sizes[range].iter().sum();
                bytes += together;
                spare += size::shared(together);
            }
            assert!(spare * share_max < bytes, "{of}: {spare} of {bytes}");
        }
    }
}
