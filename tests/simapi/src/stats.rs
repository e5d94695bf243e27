//! Counts of what was asked of the simulator.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::sync::watch;

use crate::resource::ResourceName;

/// The requests so far, and the watches that are open.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Watches that are open now, by resource.
    pub watches_open: BTreeMap<ResourceName, usize>,
    /// Answered requests. A watch is answered when it opens.
    pub requests: Vec<Requests>,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `discovery`.
    pub verb: String,
    /// The resource; empty for discovery.
    pub resource: String,
    /// The status that they were answered with.
    pub status: u16,
    /// The number of requests.
    pub count: u64,
}

impl Stats {
    /// All watches that are open now.
    pub fn watches(&self) -> usize {
        self.watches_open.values().sum()
    }

    /// The open watches on one resource.
    pub fn watches_on(&self, resource: &str) -> usize {
        self.watches_open.get(resource).copied().unwrap_or_default()
    }

    /// The number of requests with this verb for this resource, answered or refused.
    pub fn count(&self, verb: &str, resource: &str) -> u64 {
        let of = |requests: &&Requests| requests.verb == verb && requests.resource == resource;
        self.requests
            .iter()
            .filter(of)
            .map(|requests| requests.count)
            .sum()
    }

    /// The number of these requests that were answered with the HTTP status.
    pub fn count_status(&self, verb: &str, resource: &str, status: u16) -> u64 {
        let of = |requests: &&Requests| {
            requests.verb == verb && requests.resource == resource && requests.status == status
        };
        self.requests
            .iter()
            .filter(of)
            .map(|requests| requests.count)
            .sum()
    }

    fn add(&mut self, verb: &str, resource: &str, status: u16) {
        let same = |requests: &&mut Requests| {
            requests.verb == verb && requests.resource == resource && requests.status == status
        };
        match self.requests.iter_mut().find(same) {
            Some(requests) => requests.count += 1,
            None => self.requests.push(Requests {
                verb: verb.into(),
                resource: resource.into(),
                status,
                count: 1,
            }),
        }
    }
}

/// Keeps the [`Stats`]; whoever subscribes sees every change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(watch::Sender<Stats>);

impl Recorder {
    pub(crate) fn subscribe(&self) -> watch::Receiver<Stats> {
        self.0.subscribe()
    }

    pub(crate) fn answered(&self, verb: &str, resource: Option<&ResourceName>, status: u16) {
        let resource = resource.map_or("", ResourceName::as_str);
        self.0
            .send_modify(|stats| stats.add(verb, resource, status));
    }

    /// Counts a watch as open until the result is dropped.
    pub(crate) fn watch(&self, resource: &ResourceName) -> OpenWatch {
        self.0
            .send_modify(|stats| *stats.watches_open.entry(resource.clone()).or_default() += 1);
        OpenWatch {
            recorder: self.clone(),
            resource: resource.clone(),
        }
    }
}

/// A watch that is open.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    recorder: Recorder,
    resource: ResourceName,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.recorder.0.send_modify(|stats| {
            if let Some(open) = stats.watches_open.get_mut(&self.resource) {
                *open = open.saturating_sub(1);
            }
            stats.watches_open.retain(|_, open| *open > 0);
        });
    }
}
