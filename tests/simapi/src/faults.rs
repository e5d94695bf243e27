//! Faults, as a test or a demonstration asks for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{resource::ResourceName, status::Failure};

/// One thing that goes wrong, until [`Fault::Clear`] or its opposite. As JSON, `fault` names it:
/// `{"fault": "forbid", "resource": "services"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "fault",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Fault {
    /// Every request for the resource is answered with 403.
    Forbid {
        /// The resource.
        resource: ResourceName,
    },
    /// Requests for the resource in all namespaces are answered with 403; those in one namespace are
    /// not, as where a Role grants what no ClusterRole does.
    ForbidEverywhere {
        /// The resource.
        resource: ResourceName,
    },
    /// Requests for the resource in this namespace are answered with 403, those in all namespaces
    /// too.
    ForbidIn {
        /// The resource.
        resource: ResourceName,
        /// The namespace.
        namespace: String,
    },
    /// Ends [`Fault::Forbid`], [`Fault::ForbidEverywhere`] and [`Fault::ForbidIn`], everywhere.
    Allow {
        /// The resource.
        resource: ResourceName,
    },
    /// The server behind an aggregated API is away: the group is known, its resources are not, and
    /// every request for one of them is answered with 503. Its watches break off.
    GroupDown {
        /// The group, as in `metrics.k8s.io`.
        group: String,
    },
    /// Ends [`Fault::GroupDown`].
    GroupUp {
        /// The group.
        group: String,
    },
    /// The resource is not served: 404, and absent from discovery. Its watches end.
    Hide {
        /// The resource.
        resource: ResourceName,
    },
    /// Ends [`Fault::Hide`].
    Show {
        /// The resource.
        resource: ResourceName,
    },
    /// Matching requests fail with an HTTP status: 429, 500, 503, 410, ...
    Fail {
        /// The requests that it meets.
        #[serde(flatten)]
        matching: Matching,
        /// The HTTP status.
        status: u16,
        /// The `Retry-After` header, and `details.retryAfterSeconds`.
        #[serde(default)]
        retry_after_seconds: Option<u32>,
        /// The number of requests; absent: until cleared.
        #[serde(default)]
        count: Option<u32>,
    },
    /// Matching requests wait before they are looked at.
    Delay {
        /// The requests that it meets.
        #[serde(flatten)]
        matching: Matching,
        /// For how long.
        delay_ms: u64,
    },
    /// Open watches break off, as when the connection is lost.
    CutWatches {
        /// The resource; absent: all.
        #[serde(default)]
        resource: Option<ResourceName>,
        /// End them properly, as at their timeout, and not in the middle of the body.
        #[serde(default)]
        clean: bool,
    },
    /// Watches, open and new ones, stay open and silent: no event, no bookmark, and their timeout
    /// does not come.
    StallWatches {
        /// The resource; absent: all.
        #[serde(default)]
        resource: Option<ResourceName>,
    },
    /// Ends [`Fault::StallWatches`]: what was missed is sent.
    ResumeWatches {
        /// The resource; absent: all.
        #[serde(default)]
        resource: Option<ResourceName>,
    },
    /// The history is forgotten: older resource versions get 410, and so do old continue tokens.
    Compact {
        /// The resource; absent: all.
        #[serde(default)]
        resource: Option<ResourceName>,
    },
    /// The object is replaced, as read, by any bytes at all.
    Malform {
        /// The resource.
        resource: ResourceName,
        /// Empty if cluster-scoped.
        #[serde(default)]
        namespace: String,
        /// Its name.
        name: String,
        /// The text that is served in the object's place, as it is.
        body: String,
    },
    /// Everything is as it was at this resource version, the counter included, as after restoring a
    /// backup of etcd. The history of every resource must reach back that far; that of one defined
    /// since does not. Watches are cut.
    Restore {
        /// The version that it goes back to.
        resource_version: u64,
        /// The counter goes on so much higher, and older histories have expired: `etcdutl snapshot restore
        /// --bump-revision … --mark-compacted`.
        #[serde(default)]
        raised_by: u64,
    },
    /// Ends everything that lasts.
    Clear {},
}

/// The requests that a fault meets. Empty parts mean all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Matching {
    /// The resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceName>,
    /// The verbs: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, and
    /// `discovery` for what names no resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verbs: Vec<String>,
}

impl Matching {
    /// One verb of one resource.
    pub fn new(verb: &str, resource: &str) -> Self {
        Self {
            resource: Some(resource.into()),
            verbs: vec![verb.into()],
        }
    }

    fn matches(&self, verb: &str, resource: Option<&ResourceName>) -> bool {
        (self.resource.is_none() || self.resource.as_ref() == resource)
            && (self.verbs.is_empty() || self.verbs.iter().any(|wanted| wanted == verb))
    }
}

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    standing: Mutex<Standing>,
    watches: watch::Sender<WatchFaults>,
}

#[derive(Debug, Default)]
struct Standing {
    forbidden: BTreeSet<ResourceName>,
    /// In all namespaces at once.
    forbidden_everywhere: BTreeSet<ResourceName>,
    forbidden_in: BTreeSet<(ResourceName, String)>,
    groups_down: BTreeSet<String>,
    hidden: BTreeSet<ResourceName>,
    failures: Vec<Failing>,
    delays: Vec<(Matching, Duration)>,
}

#[derive(Debug)]
struct Failing {
    matching: Matching,
    status: u16,
    retry_after_seconds: Option<u32>,
    left: Option<u32>,
}

/// The faults that open watches look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchFaults {
    cuts: BTreeMap<Option<ResourceName>, Cuts>,
    /// The number of times that the server behind a group went away.
    group_cuts: BTreeMap<String, u64>,
    stalled: BTreeSet<Option<ResourceName>>,
}

/// The number of times that watches were cut so far; a watch ends when a count is not the one that it began with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cuts {
    pub(crate) clean: u64,
    pub(crate) broken: u64,
}

impl WatchFaults {
    pub(crate) fn cuts(&self, resource: &ResourceName) -> Cuts {
        let of =
            |resource: &Option<ResourceName>| self.cuts.get(resource).copied().unwrap_or_default();
        let (all, own) = (of(&None), of(&Some(resource.clone())));
        let group = self.group_cuts.get(group_of(resource)).copied();
        Cuts {
            clean: all.clean + own.clean,
            broken: all.broken + own.broken + group.unwrap_or_default(),
        }
    }

    pub(crate) fn is_stalled(&self, resource: &ResourceName) -> bool {
        self.stalled.contains(&None) || self.stalled.contains(&Some(resource.clone()))
    }
}

impl Faults {
    pub(crate) fn watches(&self) -> watch::Receiver<WatchFaults> {
        self.watches.subscribe()
    }

    pub(crate) fn is_hidden(&self, resource: &ResourceName) -> bool {
        self.standing.lock().hidden.contains(resource)
    }

    /// Returns true while the server behind the group is away.
    pub(crate) fn is_down(&self, group: &str) -> bool {
        self.standing.lock().groups_down.contains(group)
    }

    /// Lets a request wait or fail, as the faults in force have it. `resource` is absent for
    /// discovery, `namespace` for a request in all of them.
    pub(crate) async fn meet(
        &self,
        verb: &str,
        resource: Option<&ResourceName>,
        namespace: Option<&str>,
    ) -> Result<(), Failure> {
        let delay: Duration = {
            let standing = self.standing.lock();
            let delays = standing
                .delays
                .iter()
                .filter(|(matching, _)| matching.matches(verb, resource));
            delays.map(|(_, delay)| *delay).sum()
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut standing = self.standing.lock();
        if let Some(failure) = standing.next_failure(verb, resource) {
            return Err(failure);
        }
        let Some(resource) = resource else {
            return Ok(());
        };
        if standing.groups_down.contains(group_of(resource)) {
            return Err(unavailable());
        }
        if standing.forbids(resource, namespace) {
            return Err(forbidden(verb, resource, namespace));
        }
        Ok(())
    }

    /// Puts in force (or ends) what is no matter of the store.
    pub(crate) fn set(&self, fault: Fault) {
        let mut standing = self.standing.lock();
        match fault {
            Fault::Forbid { resource } => {
                standing.forbidden.insert(resource);
            }
            Fault::ForbidEverywhere { resource } => {
                standing.forbidden_everywhere.insert(resource);
            }
            Fault::ForbidIn {
                resource,
                namespace,
            } => {
                standing.forbidden_in.insert((resource, namespace));
            }
            Fault::Allow { resource } => {
                standing.forbidden.remove(&resource);
                standing.forbidden_everywhere.remove(&resource);
                standing.forbidden_in.retain(|(of, _)| *of != resource);
            }
            Fault::GroupDown { group } => {
                self.cut_group(&group);
                standing.groups_down.insert(group);
            }
            Fault::GroupUp { group } => {
                standing.groups_down.remove(&group);
            }
            Fault::Hide { resource } => {
                standing.hidden.insert(resource.clone());
                self.cut(Some(resource), true);
            }
            Fault::Show { resource } => {
                standing.hidden.remove(&resource);
            }
            Fault::Fail {
                matching,
                status,
                retry_after_seconds,
                count,
            } => {
                standing.failures.push(Failing {
                    matching,
                    status,
                    retry_after_seconds,
                    left: count,
                });
            }
            Fault::Delay { matching, delay_ms } => {
                standing
                    .delays
                    .push((matching, Duration::from_millis(delay_ms)));
            }
            Fault::CutWatches { resource, clean } => self.cut(resource, clean),
            Fault::StallWatches { resource } => {
                self.watches.send_modify(|watches| {
                    watches.stalled.insert(resource);
                });
            }
            Fault::ResumeWatches { resource } => {
                self.watches
                    .send_modify(|watches| watches.resume(resource.as_ref()));
            }
            Fault::Clear {} => {
                *standing = Standing::default();
                self.watches.send_modify(|watches| watches.resume(None));
            }
            // The store's own.
            Fault::Compact { .. } | Fault::Malform { .. } => {}
            Fault::Restore { .. } => self.cut(None, false),
        }
    }

    fn cut_group(&self, group: &str) {
        self.watches.send_modify(|watches| {
            *watches.group_cuts.entry(group.to_owned()).or_default() += 1;
        });
    }

    fn cut(&self, resource: Option<ResourceName>, clean: bool) {
        self.watches.send_modify(|watches| {
            let cuts = watches.cuts.entry(resource).or_default();
            if clean {
                cuts.clean += 1;
            } else {
                cuts.broken += 1;
            }
        });
    }
}

impl WatchFaults {
    fn resume(&mut self, resource: Option<&ResourceName>) {
        self.stalled
            .retain(|stalled| resource.is_some() && stalled.as_ref() != resource);
    }
}

impl Standing {
    fn forbids(&self, resource: &ResourceName, namespace: Option<&str>) -> bool {
        self.forbidden.contains(resource)
            || match namespace {
                None => {
                    self.forbidden_everywhere.contains(resource)
                        || self.forbidden_in.iter().any(|(of, _)| of == resource)
                }
                Some(namespace) => self
                    .forbidden_in
                    .contains(&(resource.clone(), namespace.to_owned())),
            }
    }

    /// Counts down and returns the failure for this request.
    fn next_failure(&mut self, verb: &str, resource: Option<&ResourceName>) -> Option<Failure> {
        let at = self
            .failures
            .iter()
            .position(|failing| failing.matching.matches(verb, resource))?;
        let failing = &mut self.failures[at];
        let message = format!(
            "the simulator was told to fail this request with {}",
            failing.status
        );
        let mut failure = Failure::new(failing.status, reason(failing.status), message);
        if let Some(seconds) = failing.retry_after_seconds {
            failure = failure.retry_after(seconds);
        }
        if let Some(left) = &mut failing.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.failures.remove(at);
            }
        }
        Some(failure)
    }
}

/// Empty for the core group.
fn group_of(resource: &ResourceName) -> &str {
    resource
        .as_str()
        .split_once('.')
        .map_or("", |(_, group)| group)
}

/// Answers as an API server does for an aggregated one that it does not reach.
fn unavailable() -> Failure {
    Failure::new(
        503,
        "ServiceUnavailable",
        "the server is currently unable to handle the request",
    )
}

fn forbidden(verb: &str, resource: &ResourceName, namespace: Option<&str>) -> Failure {
    let (plural, group) = resource
        .as_str()
        .split_once('.')
        .unwrap_or((resource.as_str(), ""));
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let message = format!(
        "{resource} is forbidden: User \"system:anonymous\" cannot {verb} resource \"{plural}\" in API group \"{group}\" {place}"
    );
    let mut failure = Failure::new(403, "Forbidden", message);
    failure.details.insert("kind".into(), plural.into());
    if !group.is_empty() {
        failure.details.insert("group".into(), group.into());
    }
    failure
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests;
