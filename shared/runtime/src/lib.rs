//! The frame of every service: shutdown, readiness, metrics, the admin server,
//! supervised tasks, certificates, telemetry, and a common `main`.
//!
//! A service is a library with `run(args, …, service: Service)`. Its binary is a thin `main` that
//! calls [`process::run`]; `anteroom serve` runs several services in one process, each with a
//! [`Service::scope`] of its own.
//!
//! | module | content |
//! |---|---|
//! | [`process`] | the common `main`: signals, exit codes, admin server |
//! | [`admin`] | `/livez`, `/readyz`, `/metrics` |
//! | `readiness`, `liveness` | checks before traffic; a runtime that runs tasks |
//! | `shutdown`, [`supervise`] | asks a process to stop; tasks that may not end |
//! | [`telemetry`], `metrics` | logs, OTLP traces, trace context; OpenMetrics |
//! | `kubernetes` | the API server; only with the feature of that name |
//! | [`certs`] | self-signed certificates, and reloading them |
//! | [`backoff`] | waits between attempts |
//! | [`fair_quota`] | permits or bytes, shared fairly by keys |
//! | [`under_way`] | whether the requests under way of a key belong to many jobs |
//! | [`instance`] | the default name of a process |
//! | [`off_thread`] | long work beside the other tasks of a runtime |
//! | [`units`] | sizes and durations as people write them |
//! | [`wall_clock`] | the time of day, read in one place |
//! | [`age_clock`] | moments that ages are counted from: suspends of the machine count |
//! | [`watched_file`] | a file that is read again while the process runs |

pub mod admin;
pub mod age_clock;
pub mod backoff;
pub mod certs;
pub mod fair_quota;
pub mod instance;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod liveness;
mod metrics;
pub mod off_thread;
pub mod process;
mod readiness;
mod shutdown;
pub mod supervise;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod under_way;
pub mod units;
pub mod wall_clock;
pub mod watched_file;

pub use metrics::Metrics;
pub use readiness::{Check, CheckReport, Readiness, ReadinessReport};
pub use shutdown::Shutdown;

/// The handles that a service gets from its process. Cheap to clone; all clones are one service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name, as in `cache-replica`.
    pub name: &'static str,
    /// The registry of its metrics.
    pub metrics: Metrics,
    /// The checks that must pass before the process takes traffic.
    pub readiness: Readiness,
    /// Reports when the service has to stop, and lets the service ask for its own stop.
    pub shutdown: Shutdown,
}

impl Service {
    /// A service that is a process of its own.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            metrics: Metrics::new(name),
            readiness: Readiness::new(),
            shutdown: Shutdown::new(),
        }
    }

    /// Returns a service among several of this process. All are shut down together; its readiness checks are named
    /// `name/…`, and its metrics carry the label `service="name"`.
    #[must_use]
    pub fn scope(&self, name: &'static str) -> Self {
        Self {
            name,
            metrics: self.metrics.scope(name),
            readiness: self.readiness.scope(name),
            shutdown: self.shutdown.clone(),
        }
    }
}
