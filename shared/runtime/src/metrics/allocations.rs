//! Bytes and objects ever allocated, as jemalloc counts them: the difference of two scrapes is what the work between
//! them took.

use tikv_jemalloc_ctl::{Access, AsName, Result, epoch};

/// Number by which jemalloc names all arenas together.
const ALL_ARENAS: u32 = 4096;

/// Since the process started, what was given back included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allocations {
    pub(super) count: u64,
    /// Bytes of the size classes that were given: up to a fifth more than was asked for.
    pub(super) bytes: u64,
}

/// `None` where jemalloc is not the allocator, or does not count. A thread keeps the last of its
/// allocations of a size to itself, some hundred at most, until it fetches more of them.
pub(super) fn allocations() -> Option<Allocations> {
    epoch::advance().ok()?;
    let mut all = Allocations::default();
    for kind in [Kind::SMALL, Kind::LARGE] {
        for class in 0..kind.classes().ok()? {
            let requests = kind.requests(class).ok()?;
            all.count += requests;
            all.bytes += requests * kind.bytes(class).ok()? as u64;
        }
    }
    (all.count > 0).then_some(all)
}

/// A kind of size classes, by the names that jemalloc has for it.
struct Kind {
    classes: &'static str,
    of_class: &'static str,
    counted: &'static str,
}

impl Kind {
    const SMALL: Self = Self {
        classes: "arenas.nbins\0",
        of_class: "arenas.bin",
        counted: "bins",
    };
    const LARGE: Self = Self {
        classes: "arenas.nlextents\0",
        of_class: "arenas.lextent",
        counted: "lextents",
    };

    fn classes(&self) -> Result<u32> {
        self.classes.name().read()
    }

    fn bytes(&self, class: u32) -> Result<usize> {
        format!("{}.{class}.size\0", self.of_class).name().read()
    }

    fn requests(&self, class: u32) -> Result<u64> {
        let counted = self.counted;
        let name = format!("stats.arenas.{ALL_ARENAS}.{counted}.{class}.nrequests\0");
        name.name().read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own allocator is not jemalloc, which has counted nothing then, but knows its names.
    #[test]
    fn jemalloc_knows_what_is_asked() {
        assert_eq!(Kind::SMALL.bytes(0).unwrap(), 8);
        for kind in [Kind::SMALL, Kind::LARGE] {
            let last = kind.classes().unwrap() - 1;
            assert!(kind.bytes(last).unwrap() > 4_096);
            kind.requests(last).unwrap();
            assert!(kind.requests(last + 1).is_err());
        }
    }
}
