use anteroom_policy::{KindPattern, PolicyKind};
use anteroom_wire::replica_beat::{ReplicaBeat, ReplicaView};
use serde_json::json;

use super::*;
use crate::{coordinator::webhooks::LISTEN, source::reflect::RawObject};

fn log() -> Incarnation {
    Incarnation("log".into())
}

fn id() -> PolicyId {
    PolicyId(ObjectKey::new("", "p"))
}

fn policy(generation: i64, conditions: &serde_json::Value) -> PolicyManifest {
    let object = json!({
        "metadata": {"name": "p", "uid": "u", "generation": generation},
        "spec": {"rules": []},
        "status": {"conditions": conditions},
    });
    let object = RawObject {
        key: id().0,
        version: ResourceVersion::new("1"),
        json: object.to_string().into_bytes().into(),
    };
    PolicyManifest::read(&object, PolicyKind::Cluster).0
}

fn ready() -> Ready {
    Ready::new("True", Failure::new("Ready", "it is"), 1)
}

/// A tracker, one webhook that enforces the log up to 5, and a policy whose position is 5.
struct World {
    tracker: EnforcementTracker,
    views: ViewStatusTable,
    policy: PolicyManifest,
    reads: RequiredReads,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let begun = Instant::now();
        let mut tracker = EnforcementTracker::new(log());
        tracker.listen(begun);
        let now = begun + LISTEN;
        let beat = WebhookBeat {
            webhook: "w".into(),
            incarnation: log(),
            compiled: Revision(5),
            enforced: Revision(5),
            ..WebhookBeat::default()
        };
        tracker.webhook_beat(beat, now);
        Self {
            tracker,
            views: ViewStatusTable::default(),
            policy: policy(1, &json!([])),
            reads: RequiredReads::default(),
            now,
        }
    }

    /// The reason that is reported; `None`: nothing yet.
    fn judge(&mut self, position: Option<u64>) -> (Option<String>, usize) {
        let position = |_: &ObjectKey, _: &[ObjectKey]| position.map(Revision);
        let around = Surroundings {
            views: &self.views,
            served: Some(&ServedResources::default()),
            position: &position,
            now: self.now,
        };
        let (id, mut effects) = (id(), Vec::new());
        let policy = &self.policy;
        let judged = self
            .tracker
            .judge(&id, policy, &self.reads, ready(), &around, &mut effects);
        (judged.map(|ready| ready.reason), effects.len())
    }

    fn later(&mut self) {
        self.now += REPORT_AFTER;
    }
}

#[test]
fn a_new_policy_is_reported_only_after_it_had_time_to_be_enforced() {
    let mut world = World::new();
    assert_eq!(world.judge(None).0, None);
    assert!(world.tracker.is_awaited());
    assert_eq!(world.tracker.waiting_for_log(), [id()]);
    world.later();
    assert_eq!(world.judge(None).0.as_deref(), Some(NOT_ENFORCED));
    assert_eq!(world.judge(Some(6)).0.as_deref(), Some(NOT_ENFORCED));
    assert_eq!(world.tracker.waiting_for_log(), []);
}

#[test]
fn a_policy_is_enforced_when_webhooks_have_its_position_and_stays_so() {
    let mut world = World::new();
    assert_eq!(world.judge(Some(5)).0.as_deref(), Some("Ready"));
    assert!(!world.tracker.is_awaited());
    // Another version of the content, with no position yet.
    world.policy.version = ResourceVersion::new("2");
    assert_eq!(world.judge(None).0.as_deref(), Some("Ready"));
}

#[test]
fn a_new_generation_is_not_ready_before_it_is_enforced() {
    let mut world = World::new();
    assert_eq!(world.judge(Some(5)).0.as_deref(), Some("Ready"));
    world.policy = policy(2, &json!([]));
    assert_eq!(world.judge(Some(6)).0, None);
    assert!(world.tracker.is_awaited());
}

#[test]
fn a_policy_that_an_earlier_term_reported_as_ready_stays_so() {
    let mut world = World::new();
    let ready = json!([{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    world.policy = policy(1, &ready);
    assert_eq!(world.judge(None).0.as_deref(), Some("Ready"));
}

#[test]
fn a_policy_waits_until_a_replica_serves_what_it_reads() {
    let mut world = World::new();
    let view = ViewId::new("pods.v1");
    world.reads.views.push((view.clone(), "a".into()));
    world.judge(Some(5));
    assert_eq!(world.tracker.waiting_for_views(), [id()]);
    let beat = ReplicaBeat {
        replica: "r".into(),
        views: vec![ReplicaView {
            view,
            state: "synced".into(),
            bytes: 0,
        }],
        ..ReplicaBeat::default()
    };
    world.views.replica(beat, world.now);
    assert_eq!(world.judge(Some(5)).0.as_deref(), Some("Ready"));
}

#[test]
fn a_kind_counts_as_not_served_after_the_kinds_were_read_twice() {
    let mut world = World::new();
    world.policy.kinds = vec![KindPattern {
        kind: "Widget".into(),
        ..KindPattern::any()
    }];
    for _ in 0..DISCOVERIES_MIN {
        assert_eq!(world.judge(Some(5)), (None, 1), "the kinds are asked for");
        assert!(world.tracker.discovered().contains(&id()));
    }
    assert_eq!(world.judge(Some(5)), (Some("Ready".into()), 0));
}

#[test]
fn no_policy_is_enforced_once_there_was_no_webhook_for_long() {
    let mut world = World::new();
    world.judge(Some(5));
    world.now += Duration::from_secs(3_600);
    assert!(world.tracker.tick(world.now).contains(&id()));
    assert_eq!(world.judge(Some(5)).0.as_deref(), Some("NoWebhook"));
}
