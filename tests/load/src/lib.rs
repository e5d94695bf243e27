//! A load generator for admission webhooks that counts wrong decisions, not just slow ones.
//!
//! [`Oracle`] knows which host belongs to which Ingress; [`run`] posts AdmissionReviews for new
//! Ingresses over HTTP/1.1 and TLS (what the API server speaks to a webhook behind a Service) and
//! holds every answer against it. The demo and the end-to-end tests share it. [`Paced`] is for
//! benchmarks: requests that are due at fixed times, by a client that costs little.

mod client;
mod oracle;
mod paced;
mod replicas;
mod report;
mod review;
mod worker;

pub use client::{Client, Target};
pub use oracle::{Expected, Oracle, Standing};
pub use paced::{
    Case, Hosts, Pace, Paced, PacedReport, Protocol, Questions, Slot, Spread, Stall, Template,
};
pub use replicas::{QueryResult, ask, ask_one};
pub use report::{Live, Report};
pub use review::{Answer, hostile_ingress, ingress, review};
pub use worker::{Plan, Stop, run};
