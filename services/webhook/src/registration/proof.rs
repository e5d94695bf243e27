//! The proof that the API server uses a configuration, not only that it has stored it.
//!
//! Between storing and using lies the API server's own watch of its configurations. With a kube-apiserver 1.36 on two
//! busy cores it took 3 ms (p50), 7 ms (p95) and 23 ms at most. That is over 150 changes, the proof included, and a
//! new kind takes as long as a changed rule. In principle the time is unbounded, so a long enough wait could only be
//! guessed. So each configuration has one more webhook, for a review that no other client makes: a SelfSubjectReview
//! with a label that names this very configuration. Any authenticated client may create one, and it is stored
//! nowhere. The webhook refuses it. Once the API server returns that refusal, it uses the whole configuration, since
//! a configuration takes effect as a whole.
//!
//! Each of the two configurations has one such webhook, and each proof makes its own review. The API server asks the
//! configuration that changes objects first. So a review with the label passes all other webhooks of ours, whatever
//! policies match reviews.
//!
//! The proof also shows that the API server reaches a webhook at all, through its Service and by its certificate. If
//! it does not, the API server's answer says why.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, RuleWithOperations, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Client, core::Status};
use serde_json::{Value, json};

use crate::review::Review;

/// The webhook of the proof.
pub(crate) const NAME: &str = "probe.anteroom.svc";

/// The path of its reviews.
pub(crate) const PATH: &str = "/probe";

/// The label of a review that probes a configuration; its value names the configuration.
const LABEL: &str = "anteroom.dev/probe";

/// Seconds that the API server waits for the probe's answer.
const TIMEOUT_SECONDS: i32 = 5;

/// The path at the API server at which the review is created.
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The meaning of the answer to a review, for the configuration that it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProofAnswer {
    /// The API server uses the configuration.
    Proven,
    /// The API server does not call by the configuration yet.
    NotYet,
    /// The API server calls by the configuration, and cannot reach the webhook: its words.
    Unreachable(String),
    /// Nothing, now or later: the API server does not let us ask. Its words.
    Unknowable(String),
}

/// The webhook of the proof, for the configuration with this id.
pub(super) fn webhook(id: &str, client_config: WebhookClientConfig) -> MutatingWebhook {
    let one = |text: &str| Some(vec![text.to_owned()]);
    MutatingWebhook {
        name: NAME.to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config,
        // Nobody but us makes such a review. A failure is told, rather than passed over.
        failure_policy: Some("Fail".to_owned()),
        match_policy: Some("Equivalent".to_owned()),
        object_selector: Some(LabelSelector {
            match_labels: Some([(LABEL.to_owned(), id.to_owned())].into()),
            match_expressions: None,
        }),
        rules: Some(vec![RuleWithOperations {
            api_groups: one("authentication.k8s.io"),
            api_versions: one("v1"),
            operations: one("CREATE"),
            resources: one("selfsubjectreviews"),
            scope: Some("*".to_owned()),
        }]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        ..MutatingWebhook::default()
    }
}

/// Returns true if the review is the proof of a webhook configuration.
pub(crate) fn is_asked_by(review: &Review<'_>) -> bool {
    let kind = &review.head.kind;
    let has_label = |object: Value| object["metadata"]["labels"][LABEL].is_string();
    (&*kind.group, &*kind.kind) == ("authentication.k8s.io", "SelfSubjectReview")
        && serde_json::from_str(review.head.object()).is_ok_and(has_label)
}

/// Makes the review for the configuration with this id.
pub(super) async fn ask(client: &Client, id: &str) -> ProofAnswer {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
        "metadata": { "labels": { LABEL: id } },
    });
    let request = http::Request::post(REVIEWS)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes());
    let Ok(request) = request else {
        return ProofAnswer::NotYet; // Unreachable: all of it is fixed.
    };
    match client.request::<Value>(request).await {
        Ok(_) => ProofAnswer::NotYet,
        Err(kube::Error::Api(status)) => read(&status),
        // The API server is away, and says nothing of itself.
        Err(_) => ProofAnswer::NotYet,
    }
}

/// Reads a refusal.
fn read(status: &Status) -> ProofAnswer {
    let message = &*status.message;
    let of_probe = message.contains(NAME);
    match status.code {
        _ if of_probe && message.contains("denied the request") => ProofAnswer::Proven,
        _ if of_probe => ProofAnswer::Unreachable(message.to_owned()),
        // Of another webhook: the API server tells one refusal of several.
        _ if message.contains("admission webhook") || message.contains("calling webhook") => {
            ProofAnswer::NotYet
        }
        // No such review here, or not for us.
        400 | 401 | 403 | 404 | 405 | 422 => ProofAnswer::Unknowable(message.to_owned()),
        _ => ProofAnswer::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_is_of_a_proof_by_its_kind_and_its_label() {
        let asked = |kind: &str, labels: Value| {
            let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": { "uid": "u", "operation": "CREATE",
                    "kind": { "group": "authentication.k8s.io", "version": "v1", "kind": kind },
                    "object": { "metadata": { "labels": labels } } } });
            is_asked_by(&Review::parse(review.to_string().as_bytes()).unwrap())
        };
        assert!(asked("SelfSubjectReview", json!({ LABEL: "x" })));
        assert!(!asked("SelfSubjectReview", json!({ "a": "x" })));
        assert!(!asked("SelfSubjectReview", json!({ "a": LABEL })));
        assert!(!asked("TokenReview", json!({ LABEL: "x" })));
    }

    /// The words are those of kube-apiserver 1.36.
    #[test]
    fn only_the_probes_own_refusal_is_a_proof() {
        let said = |code, message: &str| {
            read(&Status {
                code,
                message: message.to_owned(),
                ..Status::default()
            })
        };
        let denied = |by: &str| format!("admission webhook \"{by}\" denied the request: no");
        let failed = "Internal error occurred: failed calling webhook \
                      \"probe.anteroom.svc\": failed to call webhook: Post \
                      \"https://x/probe?timeout=5s\": dial tcp: connection refused";
        let other = "Internal error occurred: failed calling webhook \"x.example\": no";
        let forbidden = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"a\" cannot \
                         create resource";
        for (code, message, answer) in [
            (403, denied(NAME), ProofAnswer::Proven),
            (400, denied(NAME), ProofAnswer::Proven),
            (403, denied("x.example"), ProofAnswer::NotYet),
            (500, other.to_owned(), ProofAnswer::NotYet),
            (
                500,
                failed.to_owned(),
                ProofAnswer::Unreachable(failed.to_owned()),
            ),
            (
                403,
                forbidden.to_owned(),
                ProofAnswer::Unknowable(forbidden.to_owned()),
            ),
            (
                404,
                "not found".to_owned(),
                ProofAnswer::Unknowable("not found".to_owned()),
            ),
            (429, "too many requests".to_owned(), ProofAnswer::NotYet),
            (503, "shutting down".to_owned(), ProofAnswer::NotYet),
        ] {
            assert_eq!(said(code, &message), answer, "{code} {message}");
        }
    }
}
