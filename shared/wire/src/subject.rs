//! The names of subjects, and of the stream that keeps the log.
//!
//! | subject | in the log | what |
//! |---|---|---|
//! | `ar.<cluster>.obj.<view>.<namespace>.<name>` | yes | one object |
//! | `ar.<cluster>.ctl.view.<view>` | yes | a view's control record |
//! | `ar.<cluster>.ctl.lease.<incarnation>.<group>` | yes | who writes the views of a group |
//! | `ar.<cluster>.beat` | no | the writers' heartbeats |
//! | `ar.<cluster>.rbeat` | no | the replicas' heartbeats |
//! | `ar.<cluster>.wbeat` | no | the webhooks' heartbeats |
//! | `ar.<cluster>.violation` | no | what webhooks found at admission |
//! | `ar.<cluster>.tap` | no | operators' taps of decisions |
//! | `ar.<cluster>.tapped` | no | what webhooks say to taps |
//! | `ar.<cluster>.status` | no | operators' questions to the coordinator |
//! | `ar.<cluster>.q.<view>` | no | queries to any replica that serves the view |
//! | `ar.<cluster>.qf.<view>` | no | queries to any replica that knows the view, whatever its state |
//! | `ar.<cluster>.qi.<replica>.<view>` | no | queries to one replica |
//! | `ar.<cluster>.live` | no | live reads, to any watcher |
//! | `ar.<cluster>.write` | no | writes of existing objects, to any watcher |
//! | `ar.<cluster>.js.<operation>` | no | JetStream's API for the log, in accounts that import it |
//!
//! Every variable part is one token: bytes outside `[A-Za-z0-9_-]` are written as `=XX`, an empty
//! part as `=`. So a name may hold anything, and no two objects share a subject.

use anteroom_model::{Group, Incarnation, ObjectKey, ViewId};

use crate::{WireError, body, escape};

/// The longest subject that is written. A NATS server cuts the connection of a client whose protocol line
/// (subject and reply subject together) exceeds 4,096 bytes. An object over this limit is an error of that
/// object instead.
pub const SUBJECT_BYTES_MAX: usize = 4_000;

/// The longest cluster name.
pub const CLUSTER_BYTES_MAX: usize = 63;

/// Checks that an object can be named in a subject, whatever the cluster's name is.
///
/// # Errors
/// [`WireError::Limit`] if its subject would be longer than [`SUBJECT_BYTES_MAX`].
pub fn check_object(view: &ViewId, key: &ObjectKey) -> Result<(), WireError> {
    let parts = [view.as_str(), &key.namespace, &key.name];
    let tokens = parts.map(|part| 1 + escape::token_bytes(part));
    let bytes = "ar..obj".len() + CLUSTER_BYTES_MAX + tokens.iter().sum::<usize>();
    body::within("bytes of a subject", bytes, SUBJECT_BYTES_MAX)
}

/// The meaning of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One object of a view.
    Object {
        /// The view.
        view: ViewId,
        /// The object.
        key: ObjectKey,
    },
    /// A view's control record.
    Control(ViewId),
    /// The lease of a group in the log of this incarnation.
    Lease(Incarnation, Group),
    /// The writers' heartbeats.
    Beat,
    /// The replicas' heartbeats.
    ReplicaBeat,
    /// The webhooks' heartbeats.
    WebhookBeat,
    /// Violations that webhooks found at admission.
    Violation,
    /// Operators' taps of decisions.
    Tap,
    /// The webhooks' answers to taps.
    Tapped,
    /// Operators' questions to the coordinator.
    Status,
    /// Live reads.
    Live,
    /// Writes of existing objects.
    Write,
    /// Queries to any replica that serves the view.
    Query(ViewId),
    /// Queries to any replica that knows the view, in every state of the view.
    Fallback(ViewId),
    /// Queries to one replica.
    Direct {
        /// The replica.
        replica: String,
        /// The view.
        view: ViewId,
    },
}

/// The subjects of one cluster's system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    cluster: String,
    /// `ar.<cluster>.`
    prefix: String,
}

impl Subjects {
    /// Returns the subjects of the cluster of this name: 1 to [`CLUSTER_BYTES_MAX`] of `[A-Za-z0-9_-]`.
    ///
    /// # Errors
    /// [`WireError::Cluster`] for any other name.
    pub fn new(cluster: &str) -> Result<Self, WireError> {
        let fits = (1..=CLUSTER_BYTES_MAX).contains(&cluster.len());
        if !fits || !cluster.bytes().all(escape::is_plain) {
            return Err(WireError::Cluster {
                cluster: cluster.into(),
            });
        }
        Ok(Self {
            cluster: cluster.into(),
            prefix: format!("ar.{cluster}."),
        })
    }

    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The name of the stream that keeps the log.
    pub fn stream(&self) -> String {
        format!("anteroom-{}", self.cluster)
    }

    /// Returns the beginning of the subjects of JetStream's API in an account that imports a part of it.
    pub fn imported_api(&self) -> String {
        self.subject("js", &[])
    }

    /// Returns the subjects that the stream captures.
    pub fn stream_subjects(&self) -> Vec<String> {
        vec![self.subject("obj.>", &[]), self.subject("ctl.>", &[])]
    }

    /// One object.
    pub fn object(&self, view: &ViewId, key: &ObjectKey) -> String {
        self.subject("obj", &[view.as_str(), &key.namespace, &key.name])
    }

    /// Every object of a view: a filter.
    pub fn objects(&self, view: &ViewId) -> String {
        self.subject("obj", &[view.as_str()]) + ".>"
    }

    /// Every object of every view: a filter.
    pub fn every_object(&self) -> String {
        self.subject("obj", &[]) + ".>"
    }

    /// A view's control record.
    pub fn control(&self, view: &ViewId) -> String {
        self.subject("ctl.view", &[view.as_str()])
    }

    /// Every view's control record: a filter.
    pub fn controls(&self) -> String {
        self.subject("ctl.view", &[]) + ".>"
    }

    /// Returns the subject of `group`'s lease in the log of this incarnation. The incarnation is in it so that a
    /// fence of a log that is gone can never hold in the one that took its place.
    pub fn lease(&self, incarnation: &Incarnation, group: Group) -> String {
        self.subject("ctl.lease", &[&incarnation.0, &group.to_string()])
    }

    /// Every lease: a filter.
    pub fn leases(&self) -> String {
        self.subject("ctl.lease", &[]) + ".>"
    }

    /// The writers' heartbeats.
    pub fn beat(&self) -> String {
        self.subject("beat", &[])
    }

    /// The replicas' heartbeats.
    pub fn replica_beat(&self) -> String {
        self.subject("rbeat", &[])
    }

    /// The webhooks' heartbeats.
    pub fn webhook_beat(&self) -> String {
        self.subject("wbeat", &[])
    }

    /// Returns the subject of violations that webhooks found at admission.
    pub fn violation(&self) -> String {
        self.subject("violation", &[])
    }

    /// Operators' taps of decisions.
    pub fn tap(&self) -> String {
        self.subject("tap", &[])
    }

    /// Returns the subject of the webhooks' answers to taps.
    pub fn tapped(&self) -> String {
        self.subject("tapped", &[])
    }

    /// Operators' questions to the coordinator.
    pub fn status(&self) -> String {
        self.subject("status", &[])
    }

    /// Live reads, to any watcher.
    pub fn live(&self) -> String {
        self.subject("live", &[])
    }

    /// Writes of existing objects, to any watcher.
    pub fn write(&self) -> String {
        self.subject("write", &[])
    }

    /// Queries to any replica that serves the view.
    pub fn query(&self, view: &ViewId) -> String {
        self.subject("q", &[view.as_str()])
    }

    /// Queries to any replica that knows the view, in every state of the view.
    pub fn fallback(&self, view: &ViewId) -> String {
        self.subject("qf", &[view.as_str()])
    }

    /// Queries to one replica.
    pub fn direct(&self, replica: &str, view: &ViewId) -> String {
        self.subject("qi", &[replica, view.as_str()])
    }

    /// Filters for everything that a reader of `views` needs from the log.
    pub fn filters<'a>(&self, views: impl IntoIterator<Item = &'a ViewId>) -> Vec<String> {
        views
            .into_iter()
            .flat_map(|view| [self.objects(view), self.control(view)])
            .collect()
    }

    /// Reads a subject.
    ///
    /// # Errors
    /// [`WireError::Subject`] if this system never writes it.
    pub fn parse(&self, subject: &str) -> Result<Subject, WireError> {
        self.parts(subject).ok_or_else(|| WireError::Subject {
            subject: subject.into(),
        })
    }

    fn parts(&self, subject: &str) -> Option<Subject> {
        let mut tokens = subject.strip_prefix(&self.prefix)?.split('.');
        let mut next = || tokens.next();
        let named = match next()? {
            "obj" => Subject::Object {
                view: view(next()?)?,
                key: ObjectKey::new(escape::unescape(next()?)?, escape::unescape(next()?)?),
            },
            "ctl" => match next()? {
                "view" => Subject::Control(view(next()?)?),
                "lease" => Subject::Lease(
                    Incarnation(escape::unescape(next()?)?),
                    Group(plain_number(next()?)?),
                ),
                _ => return None,
            },
            "beat" => Subject::Beat,
            "rbeat" => Subject::ReplicaBeat,
            "wbeat" => Subject::WebhookBeat,
            "violation" => Subject::Violation,
            "tap" => Subject::Tap,
            "tapped" => Subject::Tapped,
            "status" => Subject::Status,
            "live" => Subject::Live,
            "write" => Subject::Write,
            "qf" => Subject::Fallback(view(next()?)?),
            "q" => Subject::Query(view(next()?)?),
            "qi" => Subject::Direct {
                replica: escape::unescape(next()?)?,
                view: view(next()?)?,
            },
            _ => return None,
        };
        next().is_none().then_some(named)
    }

    fn subject(&self, kind: &str, parts: &[&str]) -> String {
        let length: usize = parts.iter().map(|part| part.len() + 8).sum();
        let mut subject = String::with_capacity(self.prefix.len() + kind.len() + length);
        subject.push_str(&self.prefix);
        subject.push_str(kind);
        for part in parts {
            subject.push('.');
            escape::push(part, &mut subject);
        }
        subject
    }
}

/// Reads a number as it is written here: no sign, no zero in front.
fn plain_number(token: &str) -> Option<u16> {
    let number: u16 = token.parse().ok()?;
    (number.to_string() == token).then_some(number)
}

fn view(token: &str) -> Option<ViewId> {
    escape::unescape(token).map(ViewId::new)
}

#[cfg(test)]
mod tests;
