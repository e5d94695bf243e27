//! The answer to a review, as the API server and its users read it: JSON, written once. Pure.

use std::{collections::BTreeMap, fmt::Write as _, io::Write as _};

use anteroom_engine::{
    facts::Origin,
    verdict::{Blocked, Decision, FactRecord, RuleRecord},
};
use anteroom_model::ErrorCode;
use anteroom_policy::Arrival;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::Serialize;

use crate::{
    admission::Admission,
    review::{Review, ReviewError},
};

/// Warnings of one answer; the rest are summed up in one more.
const WARNINGS_MAX: usize = 16;

/// A warning's length; the API server cuts off longer ones.
const WARNING_CHARACTERS_MAX: usize = 250;

/// The most bytes of a denial's message; it says how much is left out.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// The record of a decision in the API server's audit log; rules beyond it are counted.
const RECORD_BYTES_MAX: usize = 8 * 1024;

/// Facts of one rule in the record; the rest are counted.
const FACTS_MAX: usize = 16;

/// Further results of a rule in the record.
const PROPERTIES_MAX: usize = 16;

/// Bytes of an entry in the record: paths may be long.
const ENTRY_BYTES_MAX: usize = 256;

/// Usual length of an answer.
const ANSWER_BYTES: usize = 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: &'a Response<'a>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// The format of the patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// Base64 of its JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_annotations: Option<Annotations>,
}

/// The status of a refusal.
#[derive(Serialize)]
struct Status<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
}

/// The API server prefixes the keys with the webhook's name.
#[derive(Serialize)]
struct Annotations {
    decision: String,
}

/// An answer that is no review.
#[derive(Serialize)]
struct Error<'a> {
    code: &'a str,
    error: &'a str,
}

/// The answer to a review that was decided on.
pub(crate) fn decided(review: &Review<'_>, decision: &Decision) -> Bytes {
    let refused = !decision.allowed();
    let message = refused.then(|| denial(review, &decision.blocked));
    let patch = decision.patch.as_ref();
    envelope(&Response {
        uid: &review.head.uid,
        allowed: !refused,
        status: message.as_ref().map(|m| status(&decision.blocked, m)),
        warnings: warnings(&decision.warnings),
        patch_type: patch.map(|_| "JSONPatch"),
        patch: patch.map(|patch| BASE64_STANDARD.encode(json(patch))),
        audit_annotations: (!decision.rules.is_empty()).then(|| Annotations {
            decision: record(decision, review.arrival()),
        }),
    })
}

/// The answer to a review whose decision has no effect: only the record has the decision.
pub(crate) fn recorded(review: &Review<'_>, decision: &Decision) -> Bytes {
    envelope(&Response {
        uid: &review.head.uid,
        allowed: true,
        audit_annotations: (!decision.rules.is_empty()).then(|| Annotations {
            decision: record(decision, review.arrival()),
        }),
        ..Response::default()
    })
}

/// The answer to a review of a policy itself.
pub(crate) fn admitted(review: &Review<'_>, admission: &Admission) -> Bytes {
    let refused = !admission.refused.is_empty();
    let message = admission.refused.join("; ");
    envelope(&Response {
        uid: &review.head.uid,
        allowed: !refused,
        status: refused.then(|| failure(403, "Forbidden", cut(&message, MESSAGE_BYTES_MAX))),
        warnings: warnings(&admission.warnings),
        ..Response::default()
    })
}

/// The answer to the review of a proof: a refusal, for which the webhook that sent the proof waits.
pub(crate) fn probed(review: &Review<'_>) -> Bytes {
    let message = "the API server calls this webhook";
    envelope(&Response {
        uid: &review.head.uid,
        status: Some(failure(403, "Forbidden", message)),
        ..Response::default()
    })
}

/// The answer to a review that no policy decides on.
pub(crate) fn passed(review: &Review<'_>) -> Bytes {
    envelope(&Response {
        uid: &review.head.uid,
        allowed: true,
        ..Response::default()
    })
}

/// The answer to a review that cannot be decided on, but has a uid.
pub(crate) fn malformed(uid: &str, error: &ReviewError, ignore: bool) -> Bytes {
    let message = format!("{} {error}", error.code());
    let (code, reason) = match error {
        ReviewError::OverPart { .. } => (429, "TooManyRequests"),
        ReviewError::TooLarge { .. } | ReviewError::TooMuchMemory { .. } => {
            (413, "RequestEntityTooLarge")
        }
        _ => (400, "BadRequest"),
    };
    let refusal = failure(code, reason, &message);
    envelope(&Response {
        uid,
        allowed: ignore,
        status: (!ignore).then_some(refusal),
        warnings: match ignore {
            true => warnings(std::slice::from_ref(&message)),
            false => Vec::new(),
        },
        ..Response::default()
    })
}

/// The answer to a body that is no review.
pub(crate) fn error(code: ErrorCode, message: &str) -> Bytes {
    json(&Error {
        code: code.as_str(),
        error: message,
    })
}

fn envelope(response: &Response<'_>) -> Bytes {
    json(&Envelope {
        api_version: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        response,
    })
}

fn json(value: &impl Serialize) -> Bytes {
    let mut json = Vec::with_capacity(ANSWER_BYTES);
    // Texts and numbers under fixed keys, into memory: there is nothing that could fail.
    let _ = serde_json::to_writer(&mut json, value);
    json.into()
}

/// A violation is the user's; an error is ours, and clients may try again.
fn status<'a>(blocked: &[Blocked], message: &'a str) -> Status<'a> {
    let (code, reason) = match blocked.iter().find_map(|blocked| blocked.error) {
        _ if blocked.iter().any(|blocked| blocked.error.is_none()) => (403, "Forbidden"),
        Some(ErrorCode::NOT_READY) => (503, "ServiceUnavailable"),
        _ => (500, "InternalError"),
    };
    failure(code, reason, message)
}

fn failure<'a>(code: u16, reason: &'static str, message: &'a str) -> Status<'a> {
    Status {
        status: "Failure",
        code,
        reason,
        message,
    }
}

/// Returns the message of a denial, in the shape that users of Kyverno know.
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule<'a> {
    policy: &'a str,
    rule: &'a str,
    result: &'static str,
    /// The exceptions by which it was skipped.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    exceptions: &'a [String],
    /// Further results, as audit annotations of a policy in CEL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    facts: Vec<AuditFact<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts_left_out: Option<usize>,
}

#[derive(Serialize)]
struct AuditFact<'a> {
    entry: &'a str,
    #[serde(flatten)]
    origin: Option<&'a Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> Rule<'a> {
    fn of(record: &'a RuleRecord) -> Self {
        let left_out = |all: usize, max| Some(all).filter(|all| *all > max).map(|all| all - max);
        let properties = record.public_properties().take(PROPERTIES_MAX);
        let short = |text| cut(text, ENTRY_BYTES_MAX);
        let properties = properties.map(|(name, value)| (short(name), short(value)));
        Self {
            policy: &record.name.policy,
            rule: record.name.rule(),
            result: record.result().as_str(),
            changed: record.changed.kept().iter().map(String::as_str).collect(),
            changed_left_out: Some(record.changed.left_out()).filter(|&count| count > 0),
            exceptions: &record.excepted_by,
            properties: properties.collect(),
            facts: record
                .facts
                .iter()
                .take(FACTS_MAX)
                .map(AuditFact::of)
                .collect(),
            facts_left_out: left_out(record.facts.len(), FACTS_MAX),
        }
    }
}

impl<'a> AuditFact<'a> {
    fn of(record: &'a FactRecord) -> Self {
        Self {
            entry: cut(&record.entry, ENTRY_BYTES_MAX),
            origin: record.origin.as_deref(),
            error: record.error.map(ErrorCode::as_str),
        }
    }
}

/// Returns the rules, the facts that they read, and the ages of the facts, as JSON text.
pub(crate) fn record(decision: &Decision, arrival: Arrival) -> String {
    let mut record = Vec::with_capacity(ANSWER_BYTES);
    let _ = write!(record, r#"{{"allowed":{},"rules":["#, decision.allowed());
    let rules_at = record.len();
    let mut listed = 0;
    for rule in &decision.rules {
        let before = record.len();
        if listed > 0 {
            record.push(b',');
        }
        // As in `json`.
        let _ = serde_json::to_writer(&mut record, &Rule::of(rule));
        if record.len() - rules_at > RECORD_BYTES_MAX {
            record.truncate(before);
            break;
        }
        listed += 1;
    }
    record.push(b']');
    let left_out = decision.rules.len() - listed;
    if left_out > 0 {
        let _ = write!(record, r#","rulesLeftOut":{left_out}"#);
    }
    let mut of_arrival = decision.rules.iter().filter(|rule| rule.depends_on_arrival);
    // A value that chance gave to a Secret follows from the seed.
    if let Some(first) = of_arrival.next()
        && !first.knows_secrets
        && !of_arrival.any(|rule| rule.knows_secrets)
    {
        let Arrival { now_ns, seed } = arrival;
        let _ = write!(
            record,
            r#","arrival":{{"now_ns":"{now_ns}","seed":"{seed}"}}"#
        );
    }
    record.push(b'}');
    // What serde_json writes is UTF-8.
    String::from_utf8(record).unwrap_or_default()
}

/// Returns at most `bytes_max` of `text`, and never half a character.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests;
