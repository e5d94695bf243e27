//! Telling of requests that violate rules, to whoever writes Events of it.
//!
//! A decision never waits for that: what finds no place in the queue is dropped, and counted. What stands
//! in an object that is there is found again by the next scan.

use std::sync::Arc;

use anteroom_bus::Bus;
use anteroom_policy::{Operation, RuleOutcome};
use anteroom_runtime::Shutdown;
use anteroom_wire::violation::{MESSAGE_BYTES_MAX, ViolatedRule, Violation, cut};
use tokio::sync::mpsc;

use crate::{
    metrics::WebhookMetrics,
    review::Review,
    verdict::{Decision, RuleRecord},
};

/// Violations that wait to be sent.
const WAITING_MAX: usize = 256;

/// Takes in what is to be told. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Violations {
    queue: mpsc::Sender<Violation>,
    metrics: WebhookMetrics,
}

impl Violations {
    /// And what sends them, until shutdown.
    pub(crate) fn new(
        bus: Arc<dyn Bus>,
        metrics: WebhookMetrics,
        shutdown: Shutdown,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + use<>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let sending = send(bus, waiting, metrics.clone(), shutdown);
        (Self { queue, metrics }, sending)
    }

    /// Tells of a decision, if there is something to tell.
    pub(crate) fn tell(&self, review: &Review<'_>, decision: &Decision) {
        if let Some(violation) = violation(review, decision) {
            self.send(violation);
        }
    }

    /// Tells of this.
    pub(crate) fn send(&self, violation: Violation) {
        if self.queue.try_send(violation).is_err() {
            self.metrics.violation("dropped");
        }
    }
}

async fn send(
    bus: Arc<dyn Bus>,
    mut waiting: mpsc::Receiver<Violation>,
    metrics: WebhookMetrics,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    loop {
        let violation = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            violation = waiting.recv() => violation,
        };
        let Some(violation) = violation else {
            stop.cancelled().await; // Nobody tells any more: the server has ended.
            return Ok(());
        };
        let sent = bus.send_violation(&violation).await;
        metrics.violation(if sent.is_ok() { "sent" } else { "failed" });
        if let Err(error) = sent {
            tracing::debug!(%error, "a violation was not told of");
        }
    }
}

/// What is to be told of a decision: of a request that was admitted, only what no scan will find.
fn violation(review: &Review<'_>, decision: &Decision) -> Option<Violation> {
    let is_bad = |record: &&RuleRecord| {
        matches!(
            record.outcome,
            RuleOutcome::Fail { .. } | RuleOutcome::Error(_)
        )
    };
    let head = &review.head;
    let blocked = !decision.allowed();
    let leaves_an_object = matches!(review.operation(), Operation::Create | Operation::Update)
        && head.sub_resource.is_empty();
    let is_told = |record: &&RuleRecord| blocked || !leaves_an_object || record.name.unscanned;
    let mut records = decision.rules.iter().filter(is_bad).filter(is_told);
    let first = records.next()?;
    if review.is_dry_run() {
        return None;
    }
    let (group, version) = (&*head.kind.group, &*head.kind.version);
    let violation = Violation {
        operation: review.operation().as_str().to_owned(),
        blocked,
        api_version: match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        },
        kind: head.kind.kind.clone().into_owned(),
        namespace: match &*head.kind.kind {
            "Namespace" => String::new(), // It lives in none.
            _ => head.namespace.clone().into_owned(),
        },
        name: head.name.clone().into_owned(),
        ..Violation::default()
    };
    let records = std::iter::once(first).chain(records);
    Some(violation.of(records.map(violated)))
}

fn violated(record: &RuleRecord) -> ViolatedRule {
    let policy = &record.name.reader.policy;
    let message = match &record.outcome {
        RuleOutcome::Fail { message } => message.clone(),
        RuleOutcome::Error(error) => format!("{} {error}", error.code()),
        _ => String::new(),
    };
    ViolatedRule {
        policy_namespace: policy.namespace.to_string(),
        policy: policy.name.to_string(),
        rule: record.name.rule().to_owned(),
        error: matches!(record.outcome, RuleOutcome::Error(_)),
        unscanned: record.name.unscanned,
        message: cut(&message, MESSAGE_BYTES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::ObjectKey;
    use anteroom_policy::FailureAction;
    use anteroom_wire::violation::RULES_MAX;
    use serde_json::json;

    use super::*;
    use crate::{rule::RuleName, verdict};

    fn told(
        operation: &str,
        dry_run: bool,
        action: FailureAction,
        unscanned: bool,
    ) -> Option<Violation> {
        told_of(operation, dry_run, action, unscanned, &["taken"])
    }

    /// Of a rule for each message.
    fn told_of(
        operation: &str,
        dry_run: bool,
        action: FailureAction,
        unscanned: bool,
        messages: &[&str],
    ) -> Option<Violation> {
        let body =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "dryRun": dry_run, "namespace": "n", "name": "a", "operation": operation,
            "object": {"metadata": {}}, "oldObject": {"metadata": {}}}})
            .to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        let mut name = RuleName::new(ObjectKey::new("", "p"), "r");
        name.unscanned = unscanned;
        let record = |outcome| RuleRecord {
            name: Arc::new(RuleName::new(ObjectKey::new("", "p"), "passes")),
            action,
            ignore_errors: false,
            warn_on_audit: false,
            facts: Vec::new(),
            changed: Vec::new(),
            excepted_by: Vec::new(),
            took: std::time::Duration::ZERO,
            outcome,
        };
        let name = Arc::new(name);
        let fails = |message: &&str| RuleRecord {
            name: Arc::clone(&name),
            ..record(RuleOutcome::Fail {
                message: (*message).into(),
            })
        };
        let passes = std::iter::once(record(RuleOutcome::Pass));
        let records = passes.chain(messages.iter().map(fails)).collect();
        let decision = verdict::decide(records, Vec::new());
        violation(&review, &decision)
    }

    #[test]
    fn what_has_no_room_is_said_to_be_left_out() {
        let long = "m".repeat(MESSAGE_BYTES_MAX + 1);
        let of = |messages: &[&str]| {
            told_of("CREATE", false, FailureAction::Enforce, false, messages).unwrap()
        };
        let full = of(&["m"; RULES_MAX]);
        assert_eq!((full.rules.len(), full.left_out), (RULES_MAX, 0));
        let over = of(&[long.as_str(); RULES_MAX + 2]);
        assert_eq!((over.rules.len(), over.left_out), (RULES_MAX, 2));
        let message = &over.rules[0].message;
        assert!(message.len() <= MESSAGE_BYTES_MAX && message.ends_with('…'));
    }

    #[test]
    fn what_no_scan_will_find_is_told() {
        use FailureAction::{Audit, Enforce};
        for (operation, dry_run, action, unscanned, expected) in [
            ("CREATE", false, Enforce, false, Some(true)),
            ("CREATE", true, Enforce, false, None),
            ("CREATE", false, Audit, false, None),
            ("UPDATE", false, Audit, true, Some(false)),
            ("DELETE", false, Audit, false, Some(false)),
        ] {
            let found = told(operation, dry_run, action, unscanned);
            let blocked = found.as_ref().map(|violation| violation.blocked);
            assert_eq!(blocked, expected, "{operation} {action:?} {unscanned}");
            if let Some(found) = found {
                assert_eq!((&*found.api_version, &*found.name), ("apps/v1", "a"));
                assert_eq!(found.rules.len(), 1);
                assert_eq!(found.rules[0].message, "taken");
            }
        }
    }
}
