//! Stories on real parts: etcd, kube-apiserver and nats-server as processes, and every service as a process
//! of its own.
//!
//! One program holds them all, so that it is linked once. Each story starts what it needs and ends it; only so
//! many run at once as `World` and `Simulated` let in. One alone: `cargo xtask test -p anteroom-e2e -- NAME`.

mod api_servers;
mod attacks;
mod callers;
mod calls;
mod cel_policies;
mod certificates;
mod chaos;
mod clocks;
mod conditions;
mod cuts;
mod definitions;
mod enforced;
mod exempted;
mod full_disk;
mod full_log;
mod hundreds;
mod installed;
mod kinds;
mod least_rights;
mod legs;
mod load;
mod local_views;
mod memory;
mod mixed;
mod mutate_existing;
mod mutated;
mod nats_servers;
mod older_disks;
mod one_way;
mod operators;
mod outages;
mod own_rights;
mod policies;
mod pressure;
mod published;
mod real_cluster;
mod references;
mod relist;
mod reports;
mod restarts;
mod restored;
mod rights;
mod secrets;
mod shadow;
mod shares;
mod simulator;
mod slow_disk;
mod sources;
mod stopped;
mod stops;
mod structured_merge;
mod surroundings;
mod tenants;
mod traces;
mod unreadable;
mod watched;
mod webhooks;
