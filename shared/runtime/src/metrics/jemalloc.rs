//! The allocator of binaries that are built with the feature `jemalloc`, and its metrics.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::counter::ConstCounter,
};
use tikv_jemalloc_ctl::{Access, AsName, Result, epoch, stats};
use tikv_jemallocator::Jemalloc;

use super::proc::encode_gauge;

/// Millions of small bodies come and go: jemalloc keeps the heap dense.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Reads the allocator's counts anew at every scrape. The difference of two scrapes is what the work between them
/// allocated.
#[derive(Debug)]
pub(super) struct JemallocCollector;

impl Collector for JemallocCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> std::result::Result<(), fmt::Error> {
        if epoch::advance().is_err() {
            return Ok(());
        }
        for (name, help, bytes) in [
            (
                "anteroom_allocator_allocated_bytes",
                "Bytes in live allocations, as jemalloc counts them",
                stats::allocated::read(),
            ),
            (
                "anteroom_allocator_resident_bytes",
                "Bytes in resident pages, as jemalloc counts them",
                stats::resident::read(),
            ),
        ] {
            if let Ok(bytes) = bytes {
                encode_gauge(&mut encoder, name, help, bytes as u64)?;
            }
        }
        let Ok(allocations) = allocations() else {
            return Ok(());
        };
        for (name, help, count) in [
            (
                "anteroom_allocator_allocations",
                "Allocations ever made, as jemalloc counts them",
                allocations.count,
            ),
            (
                "anteroom_allocator_bytes",
                "Bytes ever allocated, as jemalloc counts them",
                allocations.bytes,
            ),
        ] {
            let counter = ConstCounter::new(count);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

/// Number by which jemalloc names all arenas together.
const ALL_ARENAS: u32 = 4096;

/// Allocations since the process started, those that were given back included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allocations {
    count: u64,
    /// Bytes of the size classes that were given: up to a fifth more than was asked for.
    bytes: u64,
}

/// Sums up the allocations of all size classes. A thread keeps the last of its allocations of a size to itself, some
/// hundred at most, until it fetches more of them.
fn allocations() -> Result<Allocations> {
    let mut all = Allocations::default();
    for kind in [SizeClassKind::SMALL, SizeClassKind::LARGE] {
        for class in 0..kind.classes()? {
            let requests = kind.requests(class)?;
            all.count += requests;
            all.bytes += requests * kind.bytes(class)? as u64;
        }
    }
    Ok(all)
}

/// A kind of size classes, by the names that jemalloc has for it.
struct SizeClassKind {
    classes: &'static str,
    of_class: &'static str,
    counted: &'static str,
}

impl SizeClassKind {
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

    #[test]
    fn jemalloc_knows_every_name_that_is_read_and_counts() {
        assert!(allocations().unwrap().count > 0);
        assert_eq!(SizeClassKind::SMALL.bytes(0).unwrap(), 8);
        for kind in [SizeClassKind::SMALL, SizeClassKind::LARGE] {
            let last = kind.classes().unwrap() - 1;
            assert!(kind.bytes(last).unwrap() > 4_096);
            kind.requests(last).unwrap();
            assert!(kind.requests(last + 1).is_err());
        }
    }
}
