//! The answer to a review, as the API server and its users read it. Pure.

use std::fmt::Write as _;

use anteroom_model::ErrorCode;
use serde_json::{Value, json};

use crate::{
    admission::Admission,
    review::{Review, ReviewError},
    verdict::{Blocked, Decision, FactRecord, RuleRecord},
};

/// Warnings of one answer; the rest are summed up in one more.
const WARNINGS_MAX: usize = 16;

/// A warning's length; the API server cuts off longer ones.
const WARNING_CHARACTERS_MAX: usize = 250;

/// The length of a denial's message; what is left out is said.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// The record of a decision in the API server's audit log; rules beyond it are counted.
const RECORD_BYTES_MAX: usize = 8 * 1024;

/// Facts of one rule in the record; the rest are counted.
const FACTS_MAX: usize = 16;

/// What a fact reads, as the record names it: paths may be long.
const ENTRY_BYTES_MAX: usize = 256;

/// The answer to a review that was decided on.
pub(crate) fn decided(review: &Review<'_>, decision: &Decision) -> Value {
    let mut response = json!({
        "uid": review.head.uid,
        "allowed": decision.allowed(),
    });
    if !decision.allowed() {
        response["status"] = status(&decision.blocked, &denial(review, &decision.blocked));
    }
    if !decision.warnings.is_empty() {
        response["warnings"] = warnings(&decision.warnings).into();
    }
    if !decision.rules.is_empty() {
        // The API server prefixes the key with the webhook's name.
        response["auditAnnotations"] = json!({ "decision": record(decision) });
    }
    envelope(&response)
}

/// The answer to a review of a policy itself.
pub(crate) fn admitted(review: &Review<'_>, admission: &Admission) -> Value {
    let refused = !admission.refused.is_empty();
    let mut response = json!({ "uid": review.head.uid, "allowed": !refused });
    if refused {
        let message = admission.refused.join("; ");
        response["status"] = failure(403, "Forbidden", cut(&message, MESSAGE_BYTES_MAX));
    }
    if !admission.warnings.is_empty() {
        response["warnings"] = warnings(&admission.warnings).into();
    }
    envelope(&response)
}

/// The answer to the review of a proof: a refusal, which whoever made it waits for.
pub(crate) fn probed(review: &Review<'_>) -> Value {
    let message = "the API server calls this webhook";
    envelope(&json!({
        "uid": review.head.uid,
        "allowed": false,
        "status": failure(403, "Forbidden", message),
    }))
}

/// The answer to a review that cannot be decided on, but has a uid.
pub(crate) fn malformed(uid: &str, error: &ReviewError, ignore: bool) -> Value {
    let message = format!("{} {error}", error.code());
    envelope(&if ignore {
        json!({ "uid": uid, "allowed": true, "warnings": warnings(&[message]) })
    } else {
        json!({
            "uid": uid,
            "allowed": false,
            "status": failure(400, "BadRequest", &message),
        })
    })
}

/// The answer to what is no review at all.
pub(crate) fn error(code: ErrorCode, message: &str) -> Value {
    json!({ "code": code.as_str(), "error": message })
}

fn envelope(response: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    })
}

/// A violation is the user's; an error is ours, and clients may try again.
fn status(blocked: &[Blocked], message: &str) -> Value {
    let (code, reason) = match blocked.iter().find_map(|blocked| blocked.error) {
        _ if blocked.iter().any(|blocked| blocked.error.is_none()) => (403, "Forbidden"),
        Some(ErrorCode::NOT_READY) => (503, "ServiceUnavailable"),
        _ => (500, "InternalError"),
    };
    failure(code, reason, message)
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({ "status": "Failure", "code": code, "reason": reason, "message": message })
}

/// In the shape that users of Kyverno know.
fn denial(review: &Review<'_>, blocked: &[Blocked]) -> String {
    let head = &review.head;
    let kind = &head.kind.kind;
    let name = if head.name.is_empty() {
        "*"
    } else {
        &*head.name
    };
    let mut message = String::from("\n\nresource ");
    let _ = match &*head.namespace {
        "" => write!(message, "{kind}/{name}"),
        namespace => write!(message, "{kind}/{namespace}/{name}"),
    };
    message.push_str(" was blocked due to the following policies\n\n");
    let mut policy = None;
    for reason in blocked {
        if message.len() > MESSAGE_BYTES_MAX {
            message.push_str("(further reasons are left out)\n");
            break;
        }
        if policy != Some(&reason.policy) {
            let _ = writeln!(message, "{}:", reason.policy);
            policy = Some(&reason.policy);
        }
        let text = reason.message.trim_end().replace('\n', "\n    ");
        let _ = writeln!(
            message,
            "  {}: {}",
            reason.rule,
            cut(&text, MESSAGE_BYTES_MAX)
        );
    }
    message
}

fn warnings(all: &[String]) -> Vec<String> {
    let mut warnings: Vec<String> = all
        .iter()
        .take(WARNINGS_MAX)
        // A header of the API server's answer: no line breaks.
        .map(|warning| warning.replace(['\n', '\r'], " "))
        .map(|warning| warning.chars().take(WARNING_CHARACTERS_MAX).collect())
        .collect();
    if all.len() > WARNINGS_MAX {
        warnings.push(format!("and {} more warnings", all.len() - WARNINGS_MAX));
    }
    warnings
}

/// Which rules, from which facts, of which age: as JSON text.
pub(crate) fn record(decision: &Decision) -> String {
    let mut bytes = 0;
    let mut rules = Vec::new();
    for rule in &decision.rules {
        let rule = rule_value(rule);
        bytes += rule.to_string().len();
        if bytes > RECORD_BYTES_MAX {
            break;
        }
        rules.push(rule);
    }
    let left_out = decision.rules.len() - rules.len();
    let mut record = json!({ "allowed": decision.allowed(), "rules": rules });
    if left_out > 0 {
        record["rulesLeftOut"] = left_out.into();
    }
    record.to_string()
}

fn rule_value(rule: &RuleRecord) -> Value {
    let facts: Vec<_> = rule.facts.iter().take(FACTS_MAX).map(fact_value).collect();
    let mut value = json!({
        "policy": rule.policy,
        "rule": rule.rule,
        "result": rule.result(),
    });
    if !facts.is_empty() {
        value["facts"] = facts.into();
    }
    if rule.facts.len() > FACTS_MAX {
        value["factsLeftOut"] = (rule.facts.len() - FACTS_MAX).into();
    }
    value
}

fn fact_value(fact: &FactRecord) -> Value {
    let mut value = json!({ "entry": cut(&fact.entry, ENTRY_BYTES_MAX) });
    if let Some(origin) = &fact.origin {
        origin.record(&mut value);
    }
    if let Some(code) = fact.error {
        value["error"] = code.as_str().into();
    }
    value
}

/// At most `bytes_max` of `text`, and never half a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests;
