//! Events of violations: on the object and on the policy, in the words that users of Kyverno know.
//!
//! An Event's name is made of its content, so no Event is made twice while the API server keeps the first.
//!
//! Events wait in one queue, whose places namespaces share: a flood of violations in one namespace drops its own Events.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anteroom_model::ObjectKey;
use anteroom_policy::PolicyKind;
use anteroom_runtime::{
    fair_quota::{FairPermit, FairQuota},
    wall_clock,
};
use anteroom_wire::violation::{Violation as Admission, cut};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    metrics::ReporterMetrics,
    result::{ReportSubject, RuleResult, named},
    shared::{ReportedPolicy, SharedFindings},
    store::{Fault, within},
};

/// Events that wait to be written; more are counted and dropped. The reports say the same.
const WAITING_MAX: usize = 1_000;

/// Events about objects of one namespace that wait to be written; more are counted and dropped. Objects outside of namespaces
/// have so many together.
const WAITING_PER_NAMESPACE_MAX: usize = WAITING_MAX / 4;

/// The longest note that the API server takes.
const NOTE_BYTES_MAX: usize = 1_024;

/// The longest name of an Event, without the part that makes it unique.
const NAME_BYTES_MAX: usize = 200;

/// The reporting components of Events: for scans, and for admission.
const SCAN: &str = "kyverno-scan";
const ADMISSION: &str = "kyverno-admission";

/// The time within which repeated refusals of a request get a single Event.
const AGAIN_AFTER_S: i64 = 10 * 60;

/// The number of Events remembered for this purpose. For further Events, the API server answers that they exist.
const REMEMBERED_MAX: usize = 10_000;

/// The namespace of Events on objects that have none.
const NAMESPACE_OF_CLUSTER: &str = "default";

/// A queue for Events; adding one never waits. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    queue: mpsc::Sender<WaitingEvent>,
    /// The places in the queue, by the namespace of the object.
    places: Arc<FairQuota<String>>,
    pub(crate) metrics: ReporterMetrics,
    recent: Arc<Mutex<Recent>>,
}

/// An Event in the queue, and its place there.
#[derive(Debug)]
pub(crate) struct WaitingEvent {
    pub(crate) event: Event,
    place: FairPermit<String>,
}

/// The names of Events of admission that were sent in the current window.
#[derive(Debug, Default)]
struct Recent {
    window: i64,
    names: HashSet<String>,
}

impl Recent {
    /// Returns whether it is new, as far as is remembered.
    fn is_new(&mut self, window: i64, name: &str) -> bool {
        if self.window != window || self.names.len() >= REMEMBERED_MAX {
            self.names.clear();
            self.window = window;
        }
        self.names.insert(name.to_owned())
    }
}

/// A finding that gets an Event.
#[derive(Clone, Debug)]
pub(crate) struct Violation<'a> {
    pub(crate) policy: &'a ObjectKey,
    pub(crate) reported: Option<&'a ReportedPolicy>,
    pub(crate) subject: &'a ReportSubject,
    pub(crate) result: &'a RuleResult,
    /// The begin of the violation, in seconds since 1970. A later begin makes a new violation.
    pub(crate) since_s: i64,
}

impl Events {
    /// Returns the queue of Events, and the task that writes them at a limited rate.
    pub(crate) fn new(
        client: Client,
        instance: String,
        metrics: ReporterMetrics,
        per_second: u32,
    ) -> (Self, impl Future<Output = ()>) {
        let (events, waiting) = Self::queue(metrics.clone());
        let run = write(client, instance, waiting, metrics, per_second.max(1));
        (events, run)
    }

    /// Returns the queue of Events, and its receiving end.
    pub(crate) fn queue(metrics: ReporterMetrics) -> (Self, mpsc::Receiver<WaitingEvent>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let places = FairQuota::new(WAITING_MAX as u64, WAITING_PER_NAMESPACE_MAX as u64);
        let recent = Arc::default();
        let events = Self {
            queue,
            places,
            metrics,
            recent,
        };
        (events, waiting)
    }

    /// Tells of a violation.
    pub(crate) fn send(&self, violation: &Violation<'_>) {
        for event in violation.events() {
            self.put(event, &violation.subject.namespace);
        }
    }

    /// Sends Events about a violation that a webhook found at admission. A refused request has no object, so its
    /// Event is on the policy alone. The same Event is sent once within some minutes.
    pub(crate) fn tell_admission(&self, found: &Admission, shared: &SharedFindings, now_s: i64) {
        let (reported, window) = (shared.reported(), now_s / AGAIN_AFTER_S);
        for event in admission_events(found, &reported, window) {
            let name = event.metadata.name.clone().unwrap_or_default();
            if self.recent.lock().is_new(window, &name) {
                self.put(event, &found.namespace);
            }
        }
    }

    /// Puts an Event about an object of this namespace into the queue.
    fn put(&self, event: Event, namespace: &str) {
        let place = self.places.try_take(namespace.to_owned(), 1);
        let is_put = place.is_ok_and(|place| {
            let waiting = WaitingEvent { event, place };
            self.queue.try_send(waiting).is_ok()
        });
        if !is_put {
            self.metrics.event("dropped");
        }
    }
}

fn admission_events(
    found: &Admission,
    reported: &HashMap<ObjectKey, ReportedPolicy>,
    window: i64,
) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, rule) in found.rules.iter().enumerate() {
        let policy = ObjectKey::new(rule.policy_namespace.as_str(), rule.policy.as_str());
        let told = EventContent {
            policy: &policy,
            reported: reported.get(&policy),
            object: ObjectReference {
                api_version: Some(found.api_version.clone()),
                kind: Some(found.kind.clone()),
                namespace: Some(found.namespace.clone()).filter(|n| !n.is_empty()),
                name: Some(found.name.clone()),
                ..ObjectReference::default()
            },
            rule: &rule.rule,
            word: if rule.error { "error" } else { "fail" },
            message: &rule.message,
            blocked: found.blocked,
            // The number is reported only once, in the first Event.
            left_out: if number == 0 { found.left_out } else { 0 },
            controller: ADMISSION,
            seed: format!("{}\n{window}", found.operation),
        };
        if !found.blocked && !found.name.is_empty() {
            events.push(told.on_object());
        }
        events.push(told.on_policy());
    }
    events
}

impl Violation<'_> {
    /// On the object and on the policy.
    fn events(&self) -> [Event; 2] {
        let Self {
            subject, result, ..
        } = self;
        let told = EventContent {
            policy: self.policy,
            reported: self.reported,
            object: ObjectReference {
                api_version: Some(subject.api_version.to_string()),
                kind: Some(subject.kind.to_string()),
                namespace: Some(subject.namespace.to_string()).filter(|n| !n.is_empty()),
                name: Some(subject.name.to_string()),
                uid: Some(subject.uid.to_string()),
                ..ObjectReference::default()
            },
            rule: &result.rule,
            word: result.outcome.as_str(),
            message: &result.message,
            blocked: false,
            left_out: 0,
            controller: SCAN,
            seed: format!("{}\n{}", subject.uid, self.since_s),
        };
        [told.on_object(), told.on_policy()]
    }
}

/// The content of an Event on one rule and one object.
struct EventContent<'a> {
    policy: &'a ObjectKey,
    reported: Option<&'a ReportedPolicy>,
    object: ObjectReference,
    rule: &'a str,
    /// The result, as in reports.
    word: &'static str,
    message: &'a str,
    /// The request was refused.
    blocked: bool,
    /// The number of further violated rules that the Event leaves out.
    left_out: u32,
    controller: &'static str,
    /// The text that distinguishes this Event from an equal Event at a different time.
    seed: String,
}

impl EventContent<'_> {
    fn on_object(&self) -> Event {
        let (policy, rule) = named(self.policy, self.rule);
        let rule = match &*rule {
            "" => String::new(),
            rule => format!("/{rule}"),
        };
        let (word, more) = (self.word, self.more());
        let note = format!("policy {policy}{rule} {word}{more}: {}", self.message);
        self.event(self.object.clone(), None, &note)
    }

    /// Returns the text in front of the message; the message is cut, and this text is not.
    fn more(&self) -> String {
        match self.left_out {
            0 => String::new(),
            1 => " (and 1 rule more)".to_owned(),
            more => format!(" (and {more} rules more)"),
        }
    }

    fn on_policy(&self) -> Event {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (kind, name) = (text(&self.object.kind), text(&self.object.name));
        let place = match &self.object.namespace {
            None => format!("{kind} {name}"),
            Some(namespace) => format!("{kind} {namespace}/{name}"),
        };
        let blocked = if self.blocked { " (blocked)" } else { "" };
        let rule = match &*named(self.policy, self.rule).1 {
            "" => String::new(),
            rule => format!("[{rule}] "),
        };
        let (word, more) = (self.word, self.more());
        let note = format!("{place}: {rule}{word}{blocked}{more}; {}", self.message);
        let (of, policy) = PolicyKind::of_key(self.policy);
        let namespace = Some(self.policy.namespace.to_string()).filter(|n| !n.is_empty());
        let regarding = ObjectReference {
            api_version: Some(format!("{}/v1", of.group())),
            kind: Some(of.as_str().to_owned()),
            namespace,
            name: Some(policy.to_owned()),
            uid: self.reported.and_then(|reported| reported.uid.clone()),
            ..ObjectReference::default()
        };
        self.event(regarding, Some(self.object.clone()), &note)
    }

    fn event(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        note: &str,
    ) -> Event {
        let name = regarding.name.as_deref().unwrap_or_default();
        let seed = format!("{}\n{name}\n{note}", self.seed);
        let name = as_name(name);
        let namespace = regarding.namespace.as_deref();
        let reason = match self.word {
            "error" => "PolicyError",
            _ => "PolicyViolation",
        };
        let action = match self.blocked {
            true => "Resource Blocked",
            false => "Resource Passed",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:016x}", xxh3_64(seed.as_bytes()))),
                namespace: Some(namespace.unwrap_or(NAMESPACE_OF_CLUSTER).to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(action.to_owned()),
            reason: Some(reason.to_owned()),
            type_: Some("Warning".to_owned()),
            note: Some(cut(note, NOTE_BYTES_MAX)),
            regarding: Some(regarding),
            related,
            reporting_controller: Some(self.controller.to_owned()),
            ..Event::default()
        }
    }
}

/// Returns a part of an object's name that is valid in an Event's name, which is a DNS subdomain. An object's name
/// need not be one. A unique part is added to it.
fn as_name(name: &str) -> String {
    let plain = name.to_ascii_lowercase();
    let plain = plain.replace(
        |c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-',
        "-",
    );
    let labels = plain.split('.').map(|label| label.trim_matches('-'));
    let labels: Vec<_> = labels.filter(|label| !label.is_empty()).collect();
    let joined = labels.join(".");
    // All of it is ASCII by now.
    let cut = &joined[..joined.len().min(NAME_BYTES_MAX)];
    match cut.trim_end_matches(['-', '.']) {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

async fn write(
    client: Client,
    instance: String,
    mut waiting: mpsc::Receiver<WaitingEvent>,
    metrics: ReporterMetrics,
    per_second: u32,
) {
    let apart = Duration::from_secs(1) / per_second;
    while let Some(WaitingEvent { mut event, place }) = waiting.recv().await {
        drop(place);
        let begun = Instant::now();
        event.event_time = Some(MicroTime(wall_clock::now()));
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
                    tracing::warn!(
                        %namespace,
                        %fault,
                        "Event lost: the API server did not take it; check the reporter's rights if this repeats"
                    );
                }
            }
        }
        tokio::time::sleep_until(begun + apart).await;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_wire::violation::ViolatedRule;

    use super::*;
    use crate::{
        findings::tests::{result, subject},
        result::ReportOutcome,
    };

    fn events(namespace: &str, since_s: i64) -> [Event; 2] {
        let mut subject = subject("u");
        subject.namespace = namespace.into();
        let policy = ObjectKey::new("", "p");
        let reported = ReportedPolicy {
            uid: Some("pu".to_owned()),
            ..ReportedPolicy::default()
        };
        let violation = Violation {
            policy: &policy,
            reported: Some(&reported),
            subject: &subject,
            result: &result("r", ReportOutcome::Fail),
            since_s,
        };
        violation.events()
    }

    #[test]
    fn a_violation_is_an_event_on_the_object_and_on_the_policy() {
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
    fn the_same_violation_twice_is_one_event_name() {
        let name = |event: &Event| event.metadata.name.clone();
        assert_eq!(
            events("n", 7).each_ref().map(name),
            events("n", 7).each_ref().map(name)
        );
        assert_ne!(name(&events("n", 7)[0]), name(&events("n", 8)[0]));
        assert_eq!(events("", 7)[1].note.as_deref(), Some("Pod u: [r] fail; m"));
    }

    #[test]
    fn an_event_has_a_name_that_the_api_server_takes() {
        for (name, expected) in [
            ("web-1.example", "web-1.example"),
            ("system:node", "system-node"),
            ("A_b", "a-b"),
            ("a-.-b", "a.b"),
            (".-:", "unnamed"),
            ("", "unnamed"),
            ("ä", "unnamed"),
        ] {
            assert_eq!(as_name(name), expected);
        }
        let cut_at = |end: &str| as_name(&format!("{}{end}b", "a".repeat(NAME_BYTES_MAX - 1)));
        assert_eq!(cut_at("."), "a".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(cut_at("-"), "a".repeat(NAME_BYTES_MAX - 1));
        assert_eq!(cut_at("a"), "a".repeat(NAME_BYTES_MAX));
    }

    #[test]
    fn objects_whose_names_look_alike_have_events_of_their_own() {
        let named = |name: &str| {
            let mut subject = subject("u");
            subject.name = name.into();
            let violation = Violation {
                policy: &ObjectKey::new("", "p"),
                reported: None,
                subject: &subject,
                result: &result("r", ReportOutcome::Fail),
                since_s: 7,
            };
            violation.events()[0].metadata.name.clone().unwrap()
        };
        assert!(named("a:b").starts_with("a-b."));
        assert_ne!(named("a:b"), named("a-b"));
    }

    #[test]
    fn a_refusal_is_an_event_on_the_policy_alone() {
        let mut found = Admission {
            operation: "CREATE".into(),
            blocked: true,
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "n".into(),
            name: "a".into(),
            rules: vec![ViolatedRule {
                policy_namespace: "n".into(),
                policy: "p".into(),
                rule: "r".into(),
                message: "m".into(),
                ..ViolatedRule::default()
            }],
            left_out: 0,
        };
        let events = |found: &Admission| admission_events(found, &HashMap::new(), 1);
        let refused = events(&found);
        assert_eq!(refused.len(), 1);
        assert_eq!(
            refused[0].note.as_deref(),
            Some("Pod n/a: [r] fail (blocked); m")
        );
        assert_eq!(refused[0].action.as_deref(), Some("Resource Blocked"));
        assert_eq!(refused[0].metadata.namespace.as_deref(), Some("n"));
        found.blocked = false;
        found.rules[0].error = true;
        let passed = events(&found);
        assert_eq!(passed.len(), 2);
        assert_eq!(passed[0].note.as_deref(), Some("policy n/p/r error: m"));
        assert_eq!(passed[0].reason.as_deref(), Some("PolicyError"));
        found.left_out = 2;
        let note = "policy n/p/r error (and 2 rules more): m";
        assert_eq!(events(&found)[0].note.as_deref(), Some(note));
        found.name = String::new();
        assert_eq!(events(&found).len(), 1, "nobody knows yet on what");
    }

    #[test]
    fn a_flood_of_events_of_one_namespace_drops_none_of_another() {
        let metrics = anteroom_runtime::Service::new("reporter").metrics;
        let (events, mut waiting) = Events::queue(ReporterMetrics::register(&metrics));
        let shared = SharedFindings::new();
        let refuse = |namespace: &str, numbers: std::ops::Range<usize>| {
            for number in numbers {
                let found = Admission {
                    blocked: true,
                    namespace: namespace.to_owned(),
                    name: number.to_string(),
                    ..Admission::default()
                };
                let found = found.with_rules([ViolatedRule {
                    policy: "p".to_owned(),
                    ..ViolatedRule::default()
                }]);
                events.tell_admission(&found, &shared, 0);
            }
        };
        let assert_dropped = |count: usize| {
            let text = metrics.encode();
            let line = format!("anteroom_reporter_events_total{{outcome=\"dropped\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        };
        let most = WAITING_PER_NAMESPACE_MAX;
        refuse("busy", 0..most + 1);
        assert_dropped(1);
        refuse("other", 0..most);
        assert_dropped(1);
        // An Event that is written makes room for the next.
        drop(waiting.try_recv().unwrap());
        refuse("busy", most + 1..most + 2);
        assert_dropped(1);
        refuse("busy", most + 2..most + 3);
        assert_dropped(2);
    }

    #[test]
    fn a_repeated_refusal_is_one_event_in_each_window() {
        let mut recent = Recent::default();
        let found = [(1, "a"), (1, "a"), (1, "b"), (2, "a"), (2, "a")];
        let new = found.map(|(window, name)| recent.is_new(window, name));
        assert_eq!(new, [true, false, true, true, false]);
        for number in 0..REMEMBERED_MAX + 1 {
            recent.is_new(2, &number.to_string());
        }
        assert!(recent.names.len() <= REMEMBERED_MAX);
    }
}
