//! Resources of the process, from the proc filesystem.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};

/// Read anew at every scrape.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if let Some(bytes) = resident_bytes() {
            let help = "Resident memory of the process";
            encode_gauge(&mut encoder, "process_resident_memory_bytes", help, bytes)?;
        }
        Ok(())
    }
}

/// Encodes one gauge without labels.
pub(super) fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(metric)
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
