//! The demo's options.

use std::io::IsTerminal as _;

use anteroom_command::output::Output;
use anteroom_runtime::telemetry::TelemetryArgs;
use clap::Parser;

/// The share of reviews that ask for a host that is taken.
pub(crate) const DUPLICATE_SHARE: f64 = 0.1;

/// Runs everything in one process under load, and shows decisions, latencies and memory.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "anteroom-demo",
    version,
    after_help = "Examples:\n  \
    anteroom-demo                      a page in the terminal; keys 1 to 5 play the tour, q ends it\n  \
    anteroom-demo --tour --once        the tour as text\n  \
    anteroom-demo --once -o json       a bounded run, one JSON object\n  \
    anteroom-demo --objects 40000      a larger cluster\n  \
    anteroom-demo --nats nats://127.0.0.1:4222 --kubeconfig kubeconfig   on real parts\n\n\
    Exit codes: 0 all decisions were right, 1 some were wrong or none was made, 2 wrong usage."
)]
pub(crate) struct DemoArgs {
    /// Stop after a bounded run, with a summary.
    #[arg(long)]
    pub(crate) once: bool,

    /// The format of the summary.
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,

    /// Play the guided tour first: five things that can be done to the system, and what comes of each. With --once, nothing
    /// comes after it.
    #[arg(long)]
    pub(crate) tour: bool,

    /// Objects in the cluster: four Services for every three Ingresses.
    #[arg(long, default_value_t = 7_000, value_parser = clap::value_parser!(u32).range(7..=1_000_000))]
    pub(crate) objects: u32,

    /// Reviews in flight in the second part; the first part sends one at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,

    /// The seconds that each of the two parts lasts, with --once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,

    /// Use this NATS (with JetStream) instead of the in-process bus.
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,

    /// Use the API server of this kubeconfig instead of the simulated one. The demo creates a
    /// namespace `anteroom-demo`, an entry and a policy there, and removes them at the end. It does
    /// not register its webhook, so it decides no requests of others.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<std::path::PathBuf>,

    /// Serve the console's pages on this loopback address, as in `127.0.0.1:8700`.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) console: Option<std::net::SocketAddr>,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

impl DemoArgs {
    /// True if somebody looks at the page.
    pub(crate) fn has_page(&self) -> bool {
        !self.once && self.output == Output::Text && std::io::stdout().is_terminal()
    }

    /// True if the tour can be played.
    pub(crate) fn has_tour(&self) -> bool {
        self.tour || self.has_page()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_is_documented() {
        DemoArgs::command().debug_assert();
        let page = include_str!("../../../docs/options.md");
        let missing = anteroom_runtime::testing::undocumented(&DemoArgs::command(), page);
        assert!(missing.is_empty(), "not in docs/options.md: {missing:#?}");
    }
}
