//! `anteroom test` and `anteroom apply`: policies against files, with the webhook's own evaluation.

pub(crate) mod apply;
pub(crate) mod test;

use anteroom_policy::Arrival;
use clap::ValueEnum;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON document.
    Json,
    /// For CI systems: JUnit's XML.
    Junit,
}

/// A request that comes now.
pub(crate) fn arrival() -> Arrival {
    Arrival {
        now_ns: jiff::Timestamp::now().as_nanosecond(),
        seed: rand::random(),
    }
}
