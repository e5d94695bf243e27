//! For tests: an OTLP receiver in the process, and whether options are documented.

mod options;

use std::{collections::BTreeMap, io, sync::Arc};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::task::AbortOnDropHandle;

pub use options::undocumented;

/// Takes OTLP over HTTP on a free port of the loopback, and keeps every span.
#[derive(Debug)]
pub struct OtlpReceiver {
    endpoint: String,
    spans: Arc<watch::Sender<Vec<ReceivedSpan>>>,
    _server: AbortOnDropHandle<()>,
}

/// A span, as it arrived. Ids are in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// The resource's `service.name`.
    pub service: String,
    /// Its name.
    pub name: String,
    /// OTLP name of its kind, as in `SPAN_KIND_SERVER`.
    pub kind: &'static str,
    /// Its trace.
    pub trace_id: String,
    /// Its own id, in hexadecimal.
    pub span_id: String,
    /// Its parent; empty: a root.
    pub parent_span_id: String,
    /// Trace and span id of every link.
    pub links: Vec<(String, String)>,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
}

impl OtlpReceiver {
    /// Starts a collector on a free port.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let spans = Arc::new(watch::Sender::new(Vec::new()));
        let router = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(Arc::clone(&spans));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the OTLP receiver failed");
            }
        });
        Ok(Self {
            endpoint,
            spans,
            _server: AbortOnDropHandle::new(server),
        })
    }

    /// For `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// All spans so far, in the order in which they arrived.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.spans.borrow().clone()
    }

    /// Waits until the spans are as `enough` says, and returns them all.
    pub async fn wait_until(&self, enough: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let mut spans = self.spans.subscribe();
        match spans.wait_for(|spans| enough(spans)).await {
            Ok(spans) => spans.clone(),
            Err(_) => self.spans(), // Unreachable: `self` holds the sender.
        }
    }
}

async fn receive(
    State(spans): State<Arc<watch::Sender<Vec<ReceivedSpan>>>>,
    body: Bytes,
) -> Result<Vec<u8>, StatusCode> {
    let request = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut received = Vec::new();
    for resource in request.resource_spans {
        let attributes = attributes(&resource.resource.unwrap_or_default().attributes);
        let service = attributes.get("service.name").cloned().unwrap_or_default();
        for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
            received.push(span_of(&service, span));
        }
    }
    spans.send_modify(|spans| spans.extend(received));
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

fn span_of(service: &str, span: &Span) -> ReceivedSpan {
    ReceivedSpan {
        service: service.to_owned(),
        name: span.name.clone(),
        kind: span.kind().as_str_name(),
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_span_id: hex(&span.parent_span_id),
        links: span
            .links
            .iter()
            .map(|link| (hex(&link.trace_id), hex(&link.span_id)))
            .collect(),
        attributes: attributes(&span.attributes),
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes
        .iter()
        .map(|attribute| (attribute.key.clone(), text(attribute.value.as_ref())))
        .collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::DoubleValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
