//! What a webhook found at admission that somebody should hear of.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

/// Sent by a webhook on a core subject, when a request violates rules or they could not be evaluated on
/// it; never stored, and lost where nobody listens. Not of dry runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// As in `CREATE`.
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
    /// In order.
    pub rules: Vec<ViolatedRule>,
}

/// A rule that a request violates, or that could not be evaluated on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViolatedRule {
    /// Empty for a `ClusterPolicy`.
    pub policy_namespace: String,
    /// The policy's name.
    pub policy: String,
    /// The rule's name.
    pub rule: String,
    /// It could not be evaluated.
    pub error: bool,
    /// Nobody scans what exists by this policy: what is not told of now never is.
    pub unscanned: bool,
    /// What the rule says, cut to a bounded length.
    pub message: String,
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
    fn a_violation_comes_back() {
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
        };
        assert_eq!(decode(&encode(&violation).unwrap()), Ok(violation));
    }
}
