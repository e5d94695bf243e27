//! Events of violations: on the object and on the policy, in the words that users of Kyverno know.
//!
//! An Event's name is made of what it says, so the same is never told twice while the API server keeps it.

use anteroom_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::{sync::mpsc, time::Instant};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    desk::About,
    metrics::ReporterMetrics,
    report::policy_name,
    result::{Outcome, RuleResult, Subject, cut},
    store::{Fault, within},
};

/// Events that wait to be written; more are counted and dropped. The reports say the same.
const WAITING_MAX: usize = 1_000;

/// The longest note that the API server takes.
const NOTE_BYTES_MAX: usize = 1_024;

/// The longest name of an Event, without what makes it unique.
const NAME_BYTES_MAX: usize = 200;

/// Who tells.
const CONTROLLER: &str = "kyverno-scan";

/// Where Events of what has no namespace are written.
const NAMESPACE_OF_CLUSTER: &str = "default";

/// Takes Events in, without waiting. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    metrics: ReporterMetrics,
}

/// Something that was found, to be told of.
#[derive(Clone, Debug)]
pub(crate) struct Violation<'a> {
    pub(crate) policy: &'a ObjectKey,
    pub(crate) about: Option<&'a About>,
    pub(crate) subject: &'a Subject,
    pub(crate) result: &'a RuleResult,
    /// Since when, in seconds since 1970: the same violation at another time is another.
    pub(crate) since_s: i64,
}

impl Events {
    /// And what writes them, at most so many a second.
    pub(crate) fn new(
        client: Client,
        instance: String,
        metrics: ReporterMetrics,
        per_second: u32,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let events = Self {
            queue,
            metrics: metrics.clone(),
        };
        let run = write(client, instance, waiting, metrics, per_second.max(1));
        (events, run)
    }

    /// Tells of a violation.
    pub(crate) fn tell(&self, violation: &Violation<'_>) {
        for event in violation.events() {
            if self.queue.try_send(event).is_err() {
                self.metrics.event("dropped");
            }
        }
    }
}

impl Violation<'_> {
    /// On the object and on the policy.
    fn events(&self) -> [Event; 2] {
        let Self {
            policy,
            subject,
            result,
            ..
        } = self;
        let object = ObjectReference {
            api_version: Some(subject.api_version.to_string()),
            kind: Some(subject.kind.to_string()),
            namespace: Some(subject.namespace.to_string()).filter(|n| !n.is_empty()),
            name: Some(subject.name.to_string()),
            uid: Some(subject.uid.to_string()),
            ..ObjectReference::default()
        };
        let of_policy = ObjectReference {
            api_version: Some("kyverno.io/v1".to_owned()),
            kind: Some(match policy.namespace.is_empty() {
                true => "ClusterPolicy".to_owned(),
                false => "Policy".to_owned(),
            }),
            namespace: Some(policy.namespace.to_string()).filter(|n| !n.is_empty()),
            name: Some(policy.name.to_string()),
            uid: self.about.and_then(|about| about.uid.clone()),
            ..ObjectReference::default()
        };
        let (rule, message) = (&result.rule, &result.message);
        let word = result.outcome.as_str();
        let on_object = format!("policy {}/{rule} {word}: {message}", policy_name(policy));
        let place = match &*subject.namespace {
            "" => format!("{} {}", subject.kind, subject.name),
            namespace => format!("{} {namespace}/{}", subject.kind, subject.name),
        };
        let on_policy = format!("{place}: [{rule}] {word}; {message}");
        [
            self.event(object.clone(), None, &on_object),
            self.event(of_policy, Some(object), &on_policy),
        ]
    }

    fn event(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        note: &str,
    ) -> Event {
        let seed = format!("{}\n{}\n{note}", self.subject.uid, self.since_s);
        let name = cut(
            regarding.name.as_deref().unwrap_or_default(),
            NAME_BYTES_MAX,
        );
        let name = name.trim_end_matches('…');
        let namespace = regarding.namespace.as_deref();
        let reason = match self.result.outcome {
            Outcome::Error => "PolicyError",
            _ => "PolicyViolation",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:016x}", xxh3_64(seed.as_bytes()))),
                namespace: Some(namespace.unwrap_or(NAMESPACE_OF_CLUSTER).to_owned()),
                ..ObjectMeta::default()
            },
            action: Some("Resource Passed".to_owned()),
            reason: Some(reason.to_owned()),
            type_: Some("Warning".to_owned()),
            note: Some(cut(note, NOTE_BYTES_MAX)),
            regarding: Some(regarding),
            related,
            reporting_controller: Some(CONTROLLER.to_owned()),
            ..Event::default()
        }
    }
}

async fn write(
    client: Client,
    instance: String,
    mut waiting: mpsc::Receiver<Event>,
    metrics: ReporterMetrics,
    per_second: u32,
) {
    let apart = std::time::Duration::from_secs(1) / per_second;
    while let Some(mut event) = waiting.recv().await {
        let begun = Instant::now();
        event.event_time = Some(MicroTime(Timestamp::now()));
        event.reporting_instance = Some(instance.clone());
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let parameters = PostParams::default();
        let written = within(async {
            match api.create(&parameters, &event).await {
                // It was told before.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                other => other.map(drop),
            }
        });
        match written.await {
            Ok(()) => metrics.event("written"),
            Err(fault) => {
                metrics.event("failed");
                // Of what is gone, or is going, nobody has to be told.
                if fault != Fault::NotFound {
                    tracing::warn!(%fault, "an Event was not written");
                }
            }
        }
        tokio::time::sleep_until(begun + apart).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::{result, subject};

    fn events(namespace: &str, since_s: i64) -> [Event; 2] {
        let mut subject = subject("u");
        subject.namespace = namespace.into();
        let policy = ObjectKey::new("", "p");
        let about = About {
            uid: Some("pu".to_owned()),
            ..About::default()
        };
        let violation = Violation {
            policy: &policy,
            about: Some(&about),
            subject: &subject,
            result: &result("r", Outcome::Fail),
            since_s,
        };
        violation.events()
    }

    #[test]
    fn a_violation_is_told_of_on_the_object_and_on_the_policy() {
        let [object, policy] = events("n", 7);
        assert_eq!(object.note.as_deref(), Some("policy p/r fail: m"));
        assert_eq!(object.metadata.namespace.as_deref(), Some("n"));
        assert_eq!(policy.note.as_deref(), Some("Pod n/u: [r] fail; m"));
        assert_eq!(policy.metadata.namespace.as_deref(), Some("default"));
        let regarding = policy.regarding.unwrap();
        assert_eq!(regarding.kind.as_deref(), Some("ClusterPolicy"));
        assert_eq!(regarding.uid.as_deref(), Some("pu"));
        assert_eq!(policy.related.unwrap().name.as_deref(), Some("u"));
        assert_eq!(policy.reason.as_deref(), Some("PolicyViolation"));
    }

    #[test]
    fn what_is_told_twice_has_one_name() {
        let name = |event: &Event| event.metadata.name.clone();
        assert_eq!(
            events("n", 7).each_ref().map(name),
            events("n", 7).each_ref().map(name)
        );
        assert_ne!(name(&events("n", 7)[0]), name(&events("n", 8)[0]));
        assert_eq!(events("", 7)[1].note.as_deref(), Some("Pod u: [r] fail; m"));
    }
}
