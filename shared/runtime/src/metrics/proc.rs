//! Resources of the process, from the proc filesystem.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::allocations::allocations;

/// Read anew at every scrape.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                resident_bytes(),
            ),
            (
                "anteroom_allocator_allocated_bytes",
                "Bytes in live allocations, as jemalloc counts them",
                jemalloc_bytes(tikv_jemalloc_ctl::stats::allocated::read),
            ),
            (
                "anteroom_allocator_resident_bytes",
                "Bytes in resident pages, as jemalloc counts them",
                jemalloc_bytes(tikv_jemalloc_ctl::stats::resident::read),
            ),
        ];
        for (name, help, bytes) in gauges {
            let Some(bytes) = bytes else { continue };
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let Some(allocations) = allocations() else {
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

/// The second field of `/proc/self/statm`, in pages; `None` off Linux.
/// (Pages are larger on some arm64 kernels.)
pub(super) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// `AT_PAGESZ` of `/proc/self/auxv`: pairs of native words. Without it, the common 4 KiB.
fn page_bytes() -> u64 {
    const AT_PAGESZ: usize = 6;
    const WORD: usize = size_of::<usize>();
    let auxv = std::fs::read("/proc/self/auxv").unwrap_or_default();
    auxv.chunks_exact(2 * WORD)
        .find_map(|pair| {
            let (key, value) = pair.split_at(WORD);
            let word = |bytes: &[u8]| bytes.try_into().ok().map(usize::from_ne_bytes);
            (word(key) == Some(AT_PAGESZ)).then(|| word(value))?
        })
        .map_or(4096, |bytes| bytes as u64)
}

/// `None` where jemalloc is not the allocator: it is linked in, but has allocated nothing.
fn jemalloc_bytes(read: fn() -> tikv_jemalloc_ctl::Result<usize>) -> Option<u64> {
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    match tikv_jemalloc_ctl::stats::allocated::read().ok()? {
        0 => None,
        _ => read().ok().map(|bytes| bytes as u64),
    }
}
