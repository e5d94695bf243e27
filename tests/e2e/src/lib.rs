//! A whole Anteroom on real parts: etcd, kube-apiserver and nats-server as processes on loopback,
//! and the services as processes of their own. What the end-to-end tests and the benchmarks stand on.
//!
//! Every port is free when it is picked, every file lies in a folder that goes with the test, and no
//! process outlives its handle.

pub mod aggregated;
pub mod audit;
pub mod certificates;
pub mod check;
pub mod clock;
pub mod cluster;
pub mod disk;
pub mod endpoint;
pub mod folder;
pub mod guard;
pub mod manifests;
pub mod nats;
pub mod network;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod services;
pub mod simulated;
pub mod skip;
pub mod slow_disk;
pub mod steady;
pub mod stock;
pub mod system;
pub mod turn;
pub mod views;
pub mod wait;
pub mod webhook_client;
pub mod webhook_service;
pub mod world;
