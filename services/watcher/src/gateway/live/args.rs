//! The command line of live reads.

use crate::gateway::images::RegistryArgs;

/// Limits of live reads, each for one watcher.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Live reads")]
#[group(id = "LiveArgs")]
pub struct LiveArgs {
    /// Live reads that may start in a second, on average. After a quiet second, as many may start
    /// at once. Further reads wait within their deadline
    #[arg(long, env = "ANTEROOM_LIVE_READS_PER_SECOND", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub live_reads_per_second: u32,

    /// Live reads that may run at once. Further reads wait within their deadline. The policies of
    /// one namespace have a quarter of it, and reads for the requests of one namespace two thirds
    #[arg(long, env = "ANTEROOM_LIVE_READ_CONCURRENCY", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub live_read_concurrency: u32,

    /// The largest response of a live read, in bytes. A larger one is an error, and so is one that may take more than
    /// 144 MiB once it is parsed
    #[arg(long, env = "ANTEROOM_LIVE_READ_BYTES_MAX", default_value_t = 8 * 1024 * 1024,
          value_name = "BYTES")]
    pub live_read_bytes_max: usize,

    /// Options on registries of images.
    #[command(flatten)]
    pub registries: RegistryArgs,
}

impl Default for LiveArgs {
    fn default() -> Self {
        Self {
            live_reads_per_second: 100,
            live_read_concurrency: 16,
            live_read_bytes_max: 8 * 1024 * 1024,
            registries: RegistryArgs::default(),
        }
    }
}
