//! Traces cross process borders as text, and reach the collector as one trace. In a file of its
//! own, since telemetry is set up once in a process.

use anteroom_runtime::{
    telemetry::{self, OtlpArgs, TelemetryArgs},
    testing::{OtlpReceiver, ReceivedSpan},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_span_keeps_its_parent_across_a_border_of_text() {
    let receiver = OtlpReceiver::start().await.unwrap();
    let args = TelemetryArgs {
        log_level: "off".to_owned(),
        otlp: OtlpArgs {
            otlp_endpoint: Some(receiver.endpoint().to_owned()),
            ..OtlpArgs::default()
        },
        ..TelemetryArgs::default()
    };
    let guard = telemetry::init(&args, "test").unwrap();
    assert!(telemetry::init(&args, "test").is_err(), "once in a process");

    // One side of the border.
    let caller = tracing::info_span!("caller", otel.kind = "client");
    let (traceparent, tracestate) = caller.in_scope(|| telemetry::current_trace().unwrap());
    let trace_id = caller.in_scope(|| telemetry::trace_id().unwrap());

    // The other side: the caller causes one span, and is merely related to the next.
    let served = tracing::info_span!(parent: None, "served", otel.kind = "server", view = "a");
    telemetry::set_parent(&served, &traceparent, &tracestate);
    served.in_scope(|| tracing::info_span!("within").in_scope(|| tracing::info!("an event")));
    let related = tracing::info_span!(parent: None, "related");
    telemetry::add_link(&related, &traceparent, &tracestate);
    // What exporting itself does must not be traced.
    tracing::info_span!(target: "hyper::client", parent: None, "noise").in_scope(|| ());
    drop((caller, served, related));
    guard.shutdown().await;

    let spans = receiver.wait_until(|spans| spans.len() >= 4).await;
    let named =
        |name: &str| -> &ReceivedSpan { spans.iter().find(|span| span.name == name).unwrap() };
    let (caller, served) = (named("caller"), named("served"));
    assert_eq!(traceparent, format!("00-{trace_id}-{}-01", caller.span_id));
    assert_eq!(
        (caller.kind, served.kind),
        ("SPAN_KIND_CLIENT", "SPAN_KIND_SERVER")
    );
    assert_eq!(caller.parent_span_id, "");
    assert_eq!(served.parent_span_id, caller.span_id);
    assert_eq!(named("within").parent_span_id, served.span_id);
    for span in [caller, served, named("within")] {
        assert_eq!(span.trace_id, trace_id);
        assert_eq!(span.service, "anteroom-test");
    }
    let related = named("related");
    assert_ne!(related.trace_id, trace_id);
    assert_eq!(related.links, [(trace_id, caller.span_id.clone())]);
    assert_eq!(served.attributes.get("view").map(String::as_str), Some("a"));
    assert!(!spans.iter().any(|span| span.name == "noise"));
}
