//! Questions to webhooks and replicas.

use std::time::Duration;

use anteroom_bus::Address;
use anteroom_load::{Answer, ask_one};
use anteroom_model::ViewId;
use anteroom_webhook::Webhook;
use anteroom_wire::query::Query;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::{
    cluster::Cluster,
    judge::{Answered, Judge, Owners},
    manifests::review_of,
};

/// The view of all Ingresses.
const VIEW: &str = "ingresses.v1.networking.k8s.io";

/// The time after which a request must have been answered, whatever has gone wrong.
const ANSWERED_AFTER: Duration = Duration::from_millis(10_500);

/// The time that a request has.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends a review, and waits for its answer.
pub(crate) async fn ask(
    judge: &Mutex<Judge>,
    webhook: String,
    to: &Webhook,
    object: &Value,
    told: Option<u64>,
) -> Option<Answered> {
    let sent = Instant::now();
    let uid = "00000000-0000-0000-0000-000000000000";
    let request = http::Request::post(format!("/validate?timeout={}s", DEADLINE.as_secs()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(axum::body::Body::from(review_of(uid, object)));
    let request = match request {
        Ok(request) => request,
        Err(error) => return unanswered(judge, &webhook, &error),
    };
    let Ok(response) = timeout(ANSWERED_AFTER, to.answer(request)).await else {
        let text = format!("{webhook} has not answered within {ANSWERED_AFTER:?}");
        judge.lock().violation(&text);
        return None;
    };
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return unanswered(judge, &webhook, &error),
    };
    let answer = match Answer::parse(uid, &body) {
        Ok(answer) => answer,
        Err(problem) => {
            judge.lock().violation(&format!("{webhook}: {problem}"));
            return None;
        }
    };
    let answered: Value = serde_json::from_slice(&body).unwrap_or_default();
    let record = answered["response"]["auditAnnotations"]["decision"].as_str();
    let record = record.and_then(|record| serde_json::from_str(record).ok());
    Some(Answered {
        webhook,
        sent,
        answer,
        record: record.unwrap_or_default(),
        told,
    })
}

fn unanswered(
    judge: &Mutex<Judge>,
    webhook: &str,
    error: &dyn std::fmt::Display,
) -> Option<Answered> {
    let text = format!("{webhook} has not answered: {error}");
    judge.lock().violation(&text);
    None
}

/// Asks a replica for the whole view.
pub(crate) async fn ask_replica(cluster: &Cluster, replica: &str) -> Result<Owners, String> {
    let query = Query {
        expression: "items[].[metadata.name, spec.rules[0].host]".to_owned(),
        ..Query::default()
    };
    let to = Address::Replica {
        replica: replica.to_owned(),
        view: ViewId::new(VIEW),
    };
    let said = ask_one(&cluster.bus, &to, query, DEADLINE).await;
    let result = said
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())?;
    serde_json::from_value::<Vec<(String, String)>>(result)
        .map(|pairs| pairs.into_iter().collect())
        .map_err(|e| e.to_string())
}
