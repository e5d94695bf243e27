//! One trace for a decision, across the bus. Telemetry is set up once in a process, so this is the
//! one test that does.

use anteroom_runtime::{
    telemetry::{self, OtlpArgs, TelemetryArgs},
    testing::OtlpReceiver,
};

use crate::{
    client::ingress,
    cluster::{Cluster, taken, unique_host},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_the_child_of_the_admission_that_asks() {
    let receiver = OtlpReceiver::start().await.unwrap();
    let args = TelemetryArgs {
        log_level: "off".to_owned(),
        otlp: OtlpArgs {
            otlp_endpoint: Some(receiver.endpoint().to_owned()),
            ..OtlpArgs::default()
        },
        ..TelemetryArgs::default()
    };
    let guard = telemetry::init(&args, "webhook").unwrap();
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let (webhook, client) = cluster.webhook().await;
    client
        .review("/validate", &ingress("CREATE", "traced", "a.example"))
        .await;
    let sent = replica.traces()[0].clone().unwrap().traceparent;
    cluster.service.shutdown.trigger("the test is over");
    webhook.join().await.unwrap();
    guard.shutdown().await;

    let trace_id = sent.split('-').nth(1).unwrap().to_owned();
    let of_trace = |spans: &[anteroom_runtime::testing::ReceivedSpan]| -> Vec<_> {
        spans
            .iter()
            .filter(|span| span.trace_id == trace_id)
            .cloned()
            .collect()
    };
    let spans = receiver
        .wait_until(|spans| of_trace(spans).len() >= 2)
        .await;
    let spans = of_trace(&spans);
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let (admission, query) = (named("admission"), named("query"));
    assert_eq!(
        (admission.kind, query.kind),
        ("SPAN_KIND_SERVER", "SPAN_KIND_CLIENT")
    );
    assert_eq!(query.parent_span_id, admission.span_id);
    assert_eq!(sent, format!("00-{trace_id}-{}-01", query.span_id));
    for (attribute, expected) in [
        ("allowed", "false"),
        ("kind", "Ingress"),
        ("namespace", "shop"),
        ("name", "traced"),
        ("anteroom.phase", "validate"),
        ("anteroom.decision", "denied"),
        ("anteroom.policy", "hosts"),
        ("anteroom.rule", "unique-host"),
        ("anteroom.policies", "hosts"),
        ("anteroom.facts", "view"),
    ] {
        assert_eq!(admission.attributes[attribute], expected, "{attribute}");
    }
    assert!(admission.attributes.contains_key("anteroom.facts_age_ms"));
    // The user's name, and the message, which quotes the object.
    let told = format!("{spans:?}");
    assert!(
        !told.contains("alice") && !told.contains("a.example"),
        "{told}"
    );
    assert_eq!(query.attributes["revision"], "42");
    assert_eq!(query.attributes["replica"], "replica-0");
}
