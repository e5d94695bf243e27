//! The reporter's options.

use std::time::Duration;

use anteroom_engine::exemptions::Exemptions;
use anteroom_runtime::{instance, units::duration};
use anteroom_seal::Keys;

/// The time after which everything is judged anew, unless an option changes it.
const SCAN_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The reporter's options.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Reporter")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "ReporterArgs")]
pub struct Args {
    /// This reporter's name in the lease [default: $POD_NAME, else $HOSTNAME and the process id]
    #[arg(long, env = "ANTEROOM_REPORTER_ID")]
    pub reporter_id: Option<String>,

    /// The namespace of the Lease by which one of several reporters is chosen to report
    #[arg(long, env = "ANTEROOM_REPORTER_NAMESPACE", default_value = "anteroom")]
    pub reporter_namespace: String,

    /// The interval, as in `1h`, at which every object is scanned again. Changes of an object or a
    /// policy are scanned at once, but a result may depend on other data
    #[arg(
        id = "background_scan_interval",
        long = "background-scan-interval",
        env = "ANTEROOM_BACKGROUND_SCAN_INTERVAL",
        default_value = "1h",
        value_parser = duration,
        value_name = "DURATION"
    )]
    pub background_scan_interval: Duration,

    /// The most reports that are written in a second
    #[arg(
        long,
        env = "ANTEROOM_REPORT_WRITES_PER_SECOND",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub report_writes_per_second: u32,

    /// The most Events about violations that are written in a second; 0 writes none
    #[arg(
        long,
        env = "ANTEROOM_EVENTS_PER_SECOND",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(0..=1_000)
    )]
    pub events_per_second: u32,

    /// Objects that no policy is asked about: the webhook's, in a process with both.
    #[arg(skip)]
    pub exemptions: Exemptions,

    /// The keys that Secrets are asked for with.
    #[arg(skip = Keys::none())]
    pub asker_keys: Keys,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            reporter_id: None,
            reporter_namespace: "anteroom".to_owned(),
            background_scan_interval: SCAN_INTERVAL,
            report_writes_per_second: 50,
            events_per_second: 10,
            exemptions: Exemptions::default(),
            asker_keys: Keys::none(),
        }
    }
}

impl Args {
    /// The name to go by.
    pub(crate) fn holder(&self) -> String {
        let given = self.reporter_id.clone().or_else(instance::pod);
        given.unwrap_or_else(|| format!("{}-{}", instance::place("reporter"), std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_the_command_line_says() {
        #[derive(clap::Parser)]
        struct ParsedArgs {
            #[command(flatten)]
            args: Args,
        }
        let parsed = <ParsedArgs as clap::Parser>::parse_from(["reporter"]).args;
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Args::default()));
    }
}
