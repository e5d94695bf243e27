//! Faults are put into what a healthy system says, one at a time.

use std::time::{Duration, Instant};

use anteroom_model::{Epoch, Failure, Group, Incarnation, Revision, ViewId};
use anteroom_wire::{
    beat::{Beat, ViewBeat},
    replica_beat::{ReplicaBeat, ReplicaView},
    status::{LogFaults, StatusReply},
    tap::{DecisionRecord, RuleDecision},
    webhook_beat::WebhookBeat,
};

use super::{super::nats::NatsMessages, *};
use crate::operator::{
    system::System,
    window::{Decisions, RuleRead, RuleRow},
};

const VIEW: &str = "pods.v1";

/// What the parts of a system beat, and what else is heard.
struct Parts {
    writers: Vec<Beat>,
    replicas: Vec<ReplicaBeat>,
    webhooks: Vec<WebhookBeat>,
    status: Result<StatusReply, String>,
    rule: RuleRow,
    records: Vec<DecisionRecord>,
}

impl Parts {
    fn healthy() -> Self {
        let writer = |group: Group| Beat {
            incarnation: Incarnation("i".into()),
            group,
            term: 1,
            holder: format!("w-{}", group.0 % 2),
            page: 0,
            sent_ms: None,
            views: Vec::new(),
        };
        let mut writers: Vec<_> = Group::all().map(writer).collect();
        writers[1].views.push(ViewBeat {
            view: ViewId::new(VIEW),
            epoch: Epoch(1),
            revision: Revision(9),
            news_age_ms: 100,
            objects: 3,
            bytes: 50,
            skipped: 0,
            trouble: None,
        });
        let view = ReplicaView {
            view: ViewId::new(VIEW),
            state: "synced".into(),
            bytes: 60,
        };
        Self {
            writers,
            replicas: vec![ReplicaBeat {
                replica: "r-1".into(),
                bytes: 60,
                bytes_max: Some(1_000),
                views: vec![view],
                ..ReplicaBeat::default()
            }],
            webhooks: vec![WebhookBeat {
                webhook: "h-1".into(),
                compiled: Revision(9),
                enforced: Revision(9),
                ..WebhookBeat::default()
            }],
            status: Ok(StatusReply {
                log_bytes: Some(100),
                log_bytes_max: Some(1_000),
                log_faults: Some(LogFaults::default()),
                ..StatusReply::default()
            }),
            rule: RuleRow {
                policy: "p".into(),
                rule: "r".into(),
                decided: 100,
                failed: 50,
                denied: 50,
                reads: vec![RuleRead {
                    entry: "pods".into(),
                    examined: 1,
                    ..RuleRead::default()
                }],
                ..RuleRow::default()
            },
            records: Vec::new(),
        }
    }

    fn heard(self) -> NatsMessages {
        let (mut system, at) = (System::default(), Instant::now());
        for beat in self.writers {
            system.writer(beat, at);
        }
        for beat in self.replicas {
            system.replica(beat, at);
        }
        for beat in self.webhooks {
            system.webhook(beat, at);
        }
        NatsMessages {
            system,
            at: at + Duration::from_millis(10),
            statuses: self.status,
            decisions: Decisions {
                rules: vec![self.rule],
                ..Decisions::default()
            },
            records: self.records,
        }
    }
}

/// What a healthy system says.
pub(in super::super) fn healthy() -> NatsMessages {
    Parts::healthy().heard()
}

fn found(nats: Option<Result<NatsMessages, String>>) -> Vec<(&'static str, Finding)> {
    let cluster = Cluster {
        nats,
        ..super::super::tests::healthy()
    };
    let findings = CHECKS
        .iter()
        .map(|check| (check.id, (check.find)(&cluster)));
    findings
        .filter(|(_, finding)| *finding != Finding::Good)
        .collect()
}

fn error(age_ms: u64) -> DecisionRecord {
    DecisionRecord {
        age_ms,
        rules: vec![RuleDecision {
            code: Some("AR104".into()),
            ..RuleDecision::default()
        }],
        ..DecisionRecord::default()
    }
}

type Fault = fn(&mut Parts);

fn log_faults(of: &mut Parts) -> &mut LogFaults {
    of.status.as_mut().unwrap().log_faults.as_mut().unwrap()
}

/// Faults of a system: the check that finds each, and whether it fails.
const FAULTS: &[(&str, bool, Fault)] = &[
    ("nats-room", true, |of| {
        of.status.as_mut().unwrap().log_bytes = Some(801);
    }),
    ("nats-stream", true, |of| {
        log_faults(of).settings = vec!["max_age is limited, and should not be".into()];
    }),
    ("nats-copies", true, |of| {
        log_faults(of).copies = vec!["2 of 3 servers have a copy".into()];
    }),
    ("watchers-groups", true, |of| drop(of.writers.remove(5))),
    ("watchers-standby", false, |of| {
        of.writers
            .iter_mut()
            .for_each(|beat| beat.holder = "w-0".into());
    }),
    ("views-heard", true, |of| {
        let trouble = Failure::new("Forbidden", "the watcher may not list pods");
        of.writers[1].views[0].trouble = Some(trouble);
    }),
    ("views-fresh", true, |of| {
        of.writers[1].views[0].news_age_ms = 60_001;
    }),
    ("views-fresh", true, |of| {
        of.writers[1].views[0].news_age_ms = u64::MAX;
    }),
    ("views-served", true, |of| {
        of.replicas[0].views[0].state = "evicted".into();
    }),
    ("views-served", true, |of| of.replicas[0].views.clear()),
    ("views-served", true, |of| of.replicas.clear()),
    ("views-equal", false, |of| {
        of.replicas[0].digest_mismatches = 1;
    }),
    ("replicas-memory", false, |of| of.replicas[0].bytes = 801),
    ("webhooks-called", true, |of| of.webhooks.clear()),
    ("webhooks-called", true, |of| {
        of.webhooks[0].enforced = Revision(0);
    }),
    ("webhooks-called", true, |of| {
        of.webhooks[0].trouble = Some(Failure::new("NotCalled", "x509: unknown authority"));
    }),
    ("decisions-errors", true, |of| {
        of.records = vec![error(59_000)];
    }),
    ("decisions-refused", true, |of| {
        (of.rule.denied, of.rule.errors) = (56, 6);
    }),
    ("decisions-scans", false, |of| {
        of.rule.reads[0].examined = 10_001;
    }),
];

/// Returns the checks that a fault is seeded for.
pub(in super::super) fn seeded() -> impl Iterator<Item = &'static str> {
    FAULTS.iter().map(|(id, ..)| *id)
}

/// Returns what is heard of a system with each fault.
pub(in super::super) fn faulty() -> impl Iterator<Item = NatsMessages> {
    FAULTS.iter().map(|(.., fault)| {
        let mut parts = Parts::healthy();
        fault(&mut parts);
        parts.heard()
    })
}

#[test]
fn each_fault_of_a_system_is_found_by_its_own_check_alone() {
    for (id, fails, fault) in FAULTS {
        let mut parts = Parts::healthy();
        fault(&mut parts);
        let found = found(Some(Ok(parts.heard())));
        let [(by, finding)] = &found[..] else {
            panic!("{id}: {found:?}");
        };
        assert_eq!(by, id);
        assert_eq!(matches!(finding, Finding::Failed(_)), *fails, "{found:?}");
    }
}

#[test]
fn errors_of_the_past_and_answers_of_calls_may_be_old() {
    let mut parts = Parts::healthy();
    parts.records = vec![error(61_000)];
    assert_eq!(found(Some(Ok(parts.heard()))), []);
}

#[test]
fn errors_that_refuse_little_or_of_few_requests_or_none_are_no_share() {
    for (decided, failed, denied, errors) in [(100, 50, 55, 5), (19, 0, 19, 19), (100, 50, 50, 90)]
    {
        let mut parts = Parts::healthy();
        let rule = &mut parts.rule;
        (rule.decided, rule.failed) = (decided, failed);
        (rule.denied, rule.errors) = (denied, errors);
        assert_eq!(found(Some(Ok(parts.heard()))), [], "{errors} of {decided}");
    }
}

#[test]
fn a_coordinator_that_says_nothing_of_the_logs_storage_fails_no_check() {
    let mut parts = Parts::healthy();
    parts.status.as_mut().unwrap().log_faults = None;
    let found = found(Some(Ok(parts.heard())));
    let not_asked = |(_, finding): &(_, Finding)| matches!(finding, Finding::NotAsked(_));
    assert!(found.len() == 2 && found.iter().all(not_asked), "{found:?}");
}

#[test]
fn without_a_coordinator_the_room_of_the_log_is_not_known() {
    let mut parts = Parts::healthy();
    parts.writers.remove(0);
    parts.status = Err("there is no coordinator".into());
    let found = found(Some(Ok(parts.heard())));
    let kinds: Vec<_> = found
        .iter()
        .map(|(id, finding)| (*id, matches!(finding, Finding::NotAsked(_))))
        .collect();
    let expected = [
        ("nats-room", true),
        ("nats-stream", true),
        ("nats-copies", true),
        ("watchers-coordinator", false),
        ("watchers-groups", false),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn without_nats_one_check_fails_and_the_others_are_not_asked() {
    let unreached = found(Some(Err("no route".into())));
    assert_eq!(unreached.len(), CHECKS.len());
    assert_eq!(
        unreached[0],
        ("nats-reachable", Finding::Failed("no route".into()))
    );
    let not_asked = |(_, finding): &(_, Finding)| matches!(finding, Finding::NotAsked(_));
    assert!(unreached[1..].iter().all(not_asked));
    assert!(found(None).iter().all(not_asked));
}
