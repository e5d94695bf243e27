//! A violation that a webhook found at admission and publishes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

/// Rules of one violation; the rest are counted.
pub const RULES_MAX: usize = 32;

/// The length of a rule's message.
pub const MESSAGE_BYTES_MAX: usize = 1_024;

/// Sent by a webhook on a core subject, when a request violates rules or they could not be evaluated on
/// it; never stored, and lost where nobody listens. Not of dry runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The operation, as in `CREATE`.
    pub operation: String,
    /// The request was refused.
    pub blocked: bool,
    /// The object's group and version, as in `apps/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Empty for what is cluster-scoped.
    pub namespace: String,
    /// Empty where the API server is to make one.
    pub name: String,
    /// In order, at most [`RULES_MAX`].
    pub rules: Vec<ViolatedRule>,
    /// The number of rules beyond these.
    #[serde(default)]
    pub left_out: u32,
}

/// A rule that a request violates, or that could not be evaluated on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolatedRule {
    /// Empty for a cluster-wide policy.
    pub policy_namespace: String,
    /// The policy's name in its key: of policies.kyverno.io, the kind stands before it.
    pub policy: String,
    /// The rule's name.
    pub rule: String,
    /// The rule could not be evaluated.
    pub error: bool,
    /// No background scan applies this policy: a violation that is not reported now never is.
    pub unscanned: bool,
    /// The rule's message; at most [`MESSAGE_BYTES_MAX`], with `…` at its end where something is cut off.
    pub message: String,
}

impl Violation {
    /// Takes in the rules, as many as one violation has room for, and counts the rest.
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = ViolatedRule>) -> Self {
        let mut rules = rules.into_iter();
        self.rules = rules.by_ref().take(RULES_MAX).collect();
        self.left_out = u32::try_from(rules.count()).unwrap_or(u32::MAX);
        self
    }
}

/// At most `bytes_max` of `text`, and never half a character; `…` at its end where something is left out.
pub fn cut(text: &str, bytes_max: usize) -> String {
    const MARK: char = '…';
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max.saturating_sub(MARK.len_utf8()));
    let mut cut = text[..end].to_owned();
    cut.push(MARK);
    cut
}

/// A violation as a message.
///
/// # Errors
/// [`WireError::Limit`] if its texts are larger than a message.
pub fn encode(violation: &Violation) -> Result<Bytes, WireError> {
    frame::encode(violation)
}

/// A message as a violation.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode(bytes: &[u8]) -> Result<Violation, WireError> {
    frame::decode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_survives_encoding() {
        let violation = Violation {
            operation: "DELETE".into(),
            blocked: true,
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "n".into(),
            name: "a".into(),
            rules: vec![ViolatedRule {
                policy: "p".into(),
                rule: "r".into(),
                message: "m".into(),
                ..ViolatedRule::default()
            }],
            left_out: 1,
        };
        assert_eq!(decode(&encode(&violation).unwrap()), Ok(violation));
    }

    #[test]
    fn a_violation_of_an_older_version_decodes_with_nothing_left_out() {
        let before = serde_json::json!({"operation": "", "blocked": false, "api_version": "", "kind": "",
            "namespace": "", "name": "a", "rules": []});
        let found = decode(&frame::encode(&before).unwrap()).unwrap();
        assert_eq!((&*found.name, found.left_out), ("a", 0));
    }

    #[test]
    fn rules_beyond_the_limit_are_counted() {
        for (rules, left_out) in [(0, 0), (RULES_MAX, 0), (RULES_MAX + 1, 1)] {
            let rules = vec![ViolatedRule::default(); rules];
            let violation = Violation::default().with_rules(rules.clone());
            assert_eq!(violation.rules.len(), rules.len() - left_out);
            assert_eq!(violation.left_out as usize, left_out);
        }
    }

    #[test]
    fn a_message_is_cut_at_its_limit() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "a…");
        assert_eq!(cut("äöü", 5), "ä…");
        assert_eq!(cut("abc", 1), "…");
    }
}
