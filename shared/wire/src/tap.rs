//! A tap: an operator's look at what webhooks decide now, and what they answer it.
//!
//! An operator publishes a [`Tap`] to all webhooks, and again before the tap ends. Each webhook then says every second
//! what it has decided ([`Summary`]), and hands on decisions one by one ([`DecisionRecord`]), within limits. Records hold
//! names, rules, views, ages and messages; they never hold bodies of objects or values of facts.

mod latency;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use latency::Latencies;

use crate::{WireError, frame};

/// The longest time that a tap lasts without a renewal.
pub const DURATION_MS_MAX: u64 = 30_000;

/// Decisions that a webhook hands on to one tap each second; the rest are counted.
pub const RECORDS_PER_SECOND_MAX: u32 = 100;

/// Rows of a summary; what has no row is counted.
pub const ROWS_MAX: usize = 1_000;

/// Rules of a record; the rest are counted.
pub const RULES_MAX: usize = 16;

/// Facts of a rule in a record, and views of a row; the rest are left out.
pub const FACTS_MAX: usize = 8;

/// The length of a name in a record or a row.
pub const NAME_BYTES_MAX: usize = 253;

/// The length of a rule's message in a record.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// An operator's request to hear of decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tap {
    /// The operator's own name for it, at most [`NAME_BYTES_MAX`] long. A renewal has the same.
    pub id: String,
    /// The time until the tap ends, at most [`DURATION_MS_MAX`]; 0 ends the tap now.
    #[serde(rename = "lease_ms")]
    pub duration_ms: u64,
    /// The decisions that are meant.
    #[serde(default)]
    pub filter: TapFilter,
    /// The number of decisions to be handed on each second, at most [`RECORDS_PER_SECOND_MAX`]; 0: summaries alone.
    #[serde(default)]
    pub records_per_second: u32,
    /// Hand on the denials and errors first that the webhook has kept. Without effect in a renewal.
    #[serde(default)]
    pub past: bool,
}

/// A tap's filter: decisions that match all set fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TapFilter {
    /// A rule of this policy decides: `name`, or `namespace/name`.
    pub policy: Option<String>,
    /// The object's kind.
    pub kind: Option<String>,
    /// The object's namespace.
    pub namespace: Option<String>,
    /// The user who asks.
    pub user: Option<String>,
    /// Denied, or with a rule that could not be evaluated.
    pub denied: bool,
    /// The least duration of the decision, in microseconds.
    pub slower_than_us: u64,
}

/// A webhook's message to a tap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tapped {
    /// The tap's own name.
    pub id: String,
    /// The webhook's name.
    pub webhook: String,
    /// The number of messages that this webhook sent to this tap before. A gap means lost messages.
    pub sequence: u64,
    /// The webhook decides without effect.
    #[serde(default)]
    pub shadow: bool,
    /// The reason why it does not take the tap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The decisions since the last summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Decisions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<DecisionRecord>,
    /// Decisions that matched and were not handed on since the last message: they were too many.
    #[serde(default)]
    pub left_out: u64,
}

/// The decisions of a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The length of the period.
    pub period_ms: u64,
    /// Decisions on requests that match.
    pub decisions: u64,
    /// Decisions that denied the request, or would have in shadow mode.
    pub denied: u64,
    /// Decisions with a rule that could not be evaluated.
    pub errors: u64,
    /// The time that each decision took.
    pub latencies: Latencies,
    /// The results by rule, kind and namespace, at most [`ROWS_MAX`] rows.
    pub rows: Vec<Row>,
    /// Results of rules that have no row.
    #[serde(default)]
    pub left_out: u64,
}

/// The decisions of a rule, for a kind of objects in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `name`, or `namespace/name` of a namespaced policy.
    pub policy: String,
    /// The rule's name.
    pub rule: String,
    /// The objects' kind.
    pub kind: String,
    /// Their namespace; empty for what is cluster-scoped.
    pub namespace: String,
    /// Requests that it decided on.
    pub decided: u64,
    /// Requests that violate the rule; an enforcing rule refuses them.
    pub failed: u64,
    /// Requests that were refused because of the rule, or would have been.
    pub denied: u64,
    /// Requests for which the rule could not be evaluated.
    pub errors: u64,
    /// The code of the last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The times of the rule's evaluations, including the wait for facts.
    pub latencies: Latencies,
    /// The longest of these times, in microseconds.
    pub worst_us: u64,
    /// The data that the rule read, at most [`FACTS_MAX`] entries.
    pub reads: Vec<TapRead>,
}

/// The reads of a rule from one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapRead {
    /// The entry's name, or a path.
    pub entry: String,
    /// Its place: `view`, `fallback` (last-good data) or `live`. Empty where nobody answered.
    pub from: String,
    /// The greatest age of the data, in milliseconds.
    pub age_ms: u64,
    /// Objects in the view; 0 for a live read.
    pub objects: u64,
    /// The greatest number of objects that one request's queries were evaluated over: few where an index finds them.
    pub examined: u64,
}

impl TapRead {
    /// Joins what was read before: one for each place, with the greatest numbers, and at most [`FACTS_MAX`].
    pub fn join(self, reads: &mut Vec<Self>) {
        let same = |known: &Self| known.from == self.from && known.entry == self.entry;
        match reads.iter().position(same) {
            Some(at) => {
                let known = &mut reads[at];
                known.age_ms = known.age_ms.max(self.age_ms);
                known.objects = known.objects.max(self.objects);
                known.examined = known.examined.max(self.examined);
            }
            None if reads.len() < FACTS_MAX => reads.push(self),
            None => {}
        }
    }
}

/// A decision on one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// The time since it was made, on the webhook's monotonic clock.
    pub age_ms: u64,
    /// The request's UID.
    pub uid: String,
    /// The operation, as in `CREATE`.
    pub operation: String,
    /// The object's group and version, as in `apps/v1`.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// The object's namespace; empty for what is cluster-scoped.
    pub namespace: String,
    /// The object's name; empty where the API server is to make one.
    pub name: String,
    /// The user's name.
    pub user: String,
    /// The request changes nothing.
    pub dry_run: bool,
    /// The rules of this phase were asked: `validate` or `mutate`.
    pub phase: String,
    /// The request may go on, or might in shadow mode.
    pub allowed: bool,
    /// Some rule could not be evaluated.
    pub error: bool,
    /// The time that the decision took, in microseconds.
    pub took_us: u64,
    /// In order, at most [`RULES_MAX`].
    pub rules: Vec<RuleDecision>,
    /// Rules beyond these.
    #[serde(default)]
    pub rules_left_out: u64,
}

/// The decision of one rule on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDecision {
    /// `name`, or `namespace/name` of a namespaced policy.
    pub policy: String,
    /// The rule's name.
    pub rule: String,
    /// The result, as in metrics: `pass`, `fail`, `error`, `skip`…
    pub result: String,
    /// The rule enforces: a failure refuses the request.
    pub enforced: bool,
    /// The message of a failure, a skip or an error; at most [`MESSAGE_BYTES_MAX`]. Withheld where the rule has read
    /// Secrets.
    pub message: String,
    /// The code of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The time that it took, in microseconds.
    pub took_us: u64,
    /// The facts that the rule read, at most [`FACTS_MAX`].
    pub facts: Vec<FactRead>,
    /// Facts beyond these.
    #[serde(default)]
    pub facts_left_out: u64,
}

/// One fact that a rule read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactRead {
    /// The source of the fact, and its age.
    #[serde(flatten)]
    pub read: TapRead,
    /// The view; empty for a live read.
    pub view: String,
    /// The replica or watcher that answered.
    pub by: String,
    /// The position of the log that the view had reached.
    pub revision: u64,
    /// The source's resource version at that position.
    pub version: String,
    /// The code of the error, where there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A tap as a message.
///
/// # Errors
/// [`WireError::Limit`] if its texts are larger than a message.
pub fn encode(tap: &Tap) -> Result<Bytes, WireError> {
    frame::encode(tap)
}

/// A message as a tap.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode(message: &[u8]) -> Result<Tap, WireError> {
    frame::decode(message)
}

/// Encodes a message to the taps.
///
/// # Errors
/// [`WireError::Limit`] if it is larger than a message.
pub fn encode_tapped(tapped: &Tapped) -> Result<Bytes, WireError> {
    frame::encode(tapped)
}

/// A message as what was tapped.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode_tapped(message: &[u8]) -> Result<Tapped, WireError> {
    frame::decode(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_one_place_are_joined_by_their_greatest_numbers() {
        let read = |entry: &str, from: &str, age_ms, objects, examined| TapRead {
            entry: entry.into(),
            from: from.into(),
            age_ms,
            objects,
            examined,
        };
        let mut reads = Vec::new();
        for one in [
            read("hosts", "view", 5, 10, 7),
            read("hosts", "fallback", 1, 1, 1),
            read("teams", "view", 2, 2, 2),
            read("hosts", "view", 6, 9, 8),
        ] {
            one.join(&mut reads);
        }
        let joined = [
            read("hosts", "view", 6, 10, 8),
            read("hosts", "fallback", 1, 1, 1),
            read("teams", "view", 2, 2, 2),
        ];
        assert_eq!(reads, joined);
        for at in 0..FACTS_MAX {
            read(&format!("more-{at}"), "view", 1, 1, 1).join(&mut reads);
        }
        assert_eq!(reads.len(), FACTS_MAX);
        assert_eq!(reads[..3], joined);
    }

    #[test]
    fn a_tap_and_its_answer_survive_encoding() {
        let tap = Tap {
            id: "laptop".into(),
            duration_ms: DURATION_MS_MAX,
            filter: TapFilter {
                policy: Some("p".into()),
                denied: true,
                ..TapFilter::default()
            },
            records_per_second: 5,
            past: true,
        };
        assert_eq!(decode(&encode(&tap).unwrap()), Ok(tap));
        let mut latencies = Latencies::default();
        latencies.add(300);
        let fact = FactRead {
            read: TapRead {
                entry: "hosts".into(),
                from: "view".into(),
                age_ms: 7,
                objects: 3_000,
                examined: 1,
            },
            view: "ingresses".into(),
            revision: 9,
            ..FactRead::default()
        };
        let tapped = Tapped {
            id: "laptop".into(),
            webhook: "w".into(),
            sequence: 4,
            summary: Some(Summary {
                rows: vec![Row {
                    latencies: latencies.clone(),
                    reads: vec![fact.read.clone()],
                    ..Row::default()
                }],
                latencies,
                ..Summary::default()
            }),
            records: vec![DecisionRecord {
                rules: vec![RuleDecision {
                    facts: vec![fact],
                    ..RuleDecision::default()
                }],
                ..DecisionRecord::default()
            }],
            ..Tapped::default()
        };
        let message = encode_tapped(&tapped).unwrap();
        assert_eq!(decode_tapped(&message), Ok(tapped));
    }
}
