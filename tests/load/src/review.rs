//! AdmissionReviews and their answers.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::Expected;

/// An Ingress as a user writes it.
pub fn ingress(namespace: &str, name: &str, host: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": { "app.kubernetes.io/name": name },
        },
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{
                "host": host,
                "http": { "paths": [{
                    "path": "/",
                    "pathType": "Prefix",
                    "backend": { "service": { "name": name, "port": { "number": 80 } } },
                }] },
            }],
        },
    })
}

/// An Ingress with so many wildcard hosts of some 130 bytes: none is equal to another's, so each is compared with every host
/// that is taken.
pub fn hostile_ingress(hosts: usize) -> Value {
    let padding = "x".repeat(100);
    let rules: Vec<_> = (0..hosts)
        .map(|at| json!({ "host": format!("*.h{at}.{padding}.example") }))
        .collect();
    let mut object = ingress("default", "hostile", "hostile.example");
    object["spec"]["rules"] = json!(rules);
    object
}

/// The AdmissionReview that the API server sends when `object`, an Ingress, is created.
pub fn review(uid: &str, object: &Value) -> Bytes {
    let metadata = &object["metadata"];
    let kind = json!({ "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" });
    let resource =
        json!({ "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "operation": "CREATE",
            "userInfo": { "username": "alice", "groups": ["system:authenticated"] },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    });
    Bytes::from(review.to_string())
}

/// The answer of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object is admitted.
    Allowed,
    /// Denied by a policy.
    Denied {
        /// The message that the user sees.
        message: String,
    },
    /// Denied because something could not be known: the message carries an error code.
    Failed {
        /// The message that the user sees.
        message: String,
    },
}

impl Answer {
    /// Reads the response for the request `uid`; an error says why it is not one.
    pub fn parse(uid: &str, body: &[u8]) -> Result<Self, String> {
        let review: Value = serde_json::from_slice(body).map_err(|e| format!("not JSON: {e}"))?;
        let response = &review["response"];
        if response["uid"] != uid {
            return Err(format!("answers {}, not {uid}", response["uid"]));
        }
        let message = response["status"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        match response["allowed"].as_bool() {
            Some(true) => Ok(Self::Allowed),
            Some(false) if carries_error_code(&message) => Ok(Self::Failed { message }),
            Some(false) => Ok(Self::Denied { message }),
            None => Err("has no `allowed`".into()),
        }
    }

    /// Returns true if this is a decision at all, and a wrong one.
    pub fn is_wrong(&self, expected: Expected) -> bool {
        match self {
            Self::Allowed => expected == Expected::Denied,
            Self::Denied { .. } => expected == Expected::Allowed,
            Self::Failed { .. } => false,
        }
    }
}

/// Returns true if a message carries a stable error code, as in `AR106`.
fn carries_error_code(message: &str) -> bool {
    message.match_indices("AR").any(|(at, _)| {
        let digits = message[at + 2..]
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        let starts_word = message[..at]
            .chars()
            .next_back()
            .is_none_or(|c| !c.is_ascii_alphanumeric());
        digits == 3 && starts_word
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_denied_and_failed_answers_are_distinguished() {
        let body = |allowed: bool, message: &str| {
            json!({ "response": { "uid": "u", "allowed": allowed, "status": { "message": message } } })
                .to_string()
        };
        let parse =
            |allowed, message| Answer::parse("u", body(allowed, message).as_bytes()).unwrap();
        assert_eq!(parse(true, ""), Answer::Allowed);
        assert!(matches!(
            parse(false, "host is taken"),
            Answer::Denied { .. }
        ));
        assert!(matches!(
            parse(false, "rule: AR106: no replica"),
            Answer::Failed { .. }
        ));
        assert!(matches!(
            parse(false, "STAR1060 is taken"),
            Answer::Denied { .. }
        ));
        assert!(Answer::parse("other", body(true, "").as_bytes()).is_err());
        assert!(Answer::parse("u", b"{").is_err());
    }

    #[test]
    fn failing_closed_is_not_a_wrong_decision() {
        let failed = Answer::Failed {
            message: "AR106".into(),
        };
        assert!(!failed.is_wrong(Expected::Allowed) && !failed.is_wrong(Expected::Denied));
        assert!(Answer::Allowed.is_wrong(Expected::Denied));
        assert!(
            Answer::Denied {
                message: String::new()
            }
            .is_wrong(Expected::Allowed)
        );
    }
}
