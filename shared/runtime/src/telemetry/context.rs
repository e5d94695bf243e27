//! Trace context as text, so that nobody else needs OpenTelemetry's types.

use std::collections::HashMap;

use opentelemetry::{
    Context,
    propagation::TextMapPropagator as _,
    trace::{SpanContext, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// The current span as W3C `traceparent` and `tracestate`, to be sent along; `None` where nothing
/// is traced.
pub fn current_trace() -> Option<(String, String)> {
    let span = Span::current();
    if span.is_disabled() {
        return None;
    }
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
    let traceparent = carrier.remove(TRACEPARENT)?;
    Some((traceparent, carrier.remove(TRACESTATE).unwrap_or_default()))
}

/// Makes `span` a child of the span that somebody else sent along. Call it before the span is first
/// entered. A `traceparent` that is empty or malformed is as good as none.
pub fn set_parent(span: &Span, traceparent: &str, tracestate: &str) {
    if let Some(parent) = remote(traceparent, tracestate)
        && let Err(error) = span.set_parent(Context::new().with_remote_span_context(parent))
    {
        tracing::debug!(?error, "parent of the span not replaced");
    }
}

/// Links `span` to the span that somebody else sent along: related, but not its cause.
pub fn add_link(span: &Span, traceparent: &str, tracestate: &str) {
    if let Some(linked) = remote(traceparent, tracestate) {
        span.add_link(linked);
    }
}

/// The id of the current trace, in lower-case hexadecimal, if it is sampled.
pub fn trace_id() -> Option<String> {
    let context = Span::current().context();
    let span = context.span().span_context().clone();
    (span.is_valid() && span.is_sampled()).then(|| span.trace_id().to_string())
}

fn remote(traceparent: &str, tracestate: &str) -> Option<SpanContext> {
    let mut carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    if !tracestate.is_empty() {
        carrier.insert(TRACESTATE.to_owned(), tracestate.to_owned());
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let span = context.span().span_context().clone();
    span.is_valid().then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_traceparent_gives_no_context() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert!(remote(&format!("00-{id}-b7ad6b7169203331-01"), "a=b").is_some());
        for bad in [
            "",
            "00",
            "no",
            &format!("00-{id}-0000000000000000-01"),
            &format!("ff-{id}-b7ad6b7169203331-01"),
        ] {
            assert!(remote(bad, "").is_none(), "{bad:?}");
        }
    }

    #[test]
    fn without_telemetry_nothing_is_traced_and_nothing_fails() {
        let span = tracing::info_span!("a");
        set_parent(
            &span,
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "",
        );
        span.in_scope(|| {
            assert_eq!(current_trace(), None);
            assert_eq!(trace_id(), None);
        });
    }
}
