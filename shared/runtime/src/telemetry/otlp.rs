//! Sending traces over OTLP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use opentelemetry_otlp::{Protocol, SpanExporter as OtlpExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tokio::runtime::Handle;

/// Path of traces in OTLP over HTTP, below the general endpoint.
const HTTP_TRACES_PATH: &str = "/v1/traces";

/// Options for exporting traces. The variables are OpenTelemetry's own.
#[derive(Args, Clone, Debug, Default)]
pub struct OtlpArgs {
    /// The OTLP endpoint that receives traces, as in http://collector:4318. Without it, no traces
    /// are sent.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", global = true)]
    pub otlp_endpoint: Option<String>,

    /// The OTLP endpoint for traces only. The URL is used unchanged: /v1/traces is not appended.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", global = true)]
    pub otlp_traces_endpoint: Option<String>,

    /// The protocol that sends traces [default: http/protobuf].
    #[arg(long, env = "OTEL_EXPORTER_OTLP_PROTOCOL", global = true)]
    pub otlp_protocol: Option<OtlpProtocol>,

    /// The OTLP protocol for traces only.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        global = true,
        hide = true
    )]
    pub otlp_traces_protocol: Option<OtlpProtocol>,
}

/// The protocol of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OtlpProtocol {
    /// Protobuf over HTTP/1.1, port 4318 by custom.
    #[default]
    #[value(name = "http/protobuf")]
    HttpProtobuf,
    /// gRPC, port 4317 by custom.
    #[value(name = "grpc")]
    Grpc,
}

/// The endpoint and protocol that follow from the options by OpenTelemetry's rules.
#[derive(Debug, PartialEq, Eq)]
struct OtlpEndpoint {
    protocol: OtlpProtocol,
    endpoint: String,
}

impl OtlpArgs {
    /// `None`: traces are off. An empty variable counts as unset.
    fn target(&self) -> anyhow::Result<Option<OtlpEndpoint>> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let protocol = self.otlp_traces_protocol.or(self.otlp_protocol);
        let protocol = protocol.unwrap_or_default();
        let endpoint = match (
            given(&self.otlp_traces_endpoint),
            given(&self.otlp_endpoint),
        ) {
            (Some(exact), _) => exact,
            (None, Some(base)) if protocol == OtlpProtocol::HttpProtobuf => {
                format!("{}{HTTP_TRACES_PATH}", base.trim_end_matches('/'))
            }
            (None, Some(base)) => base,
            (None, None) => return Ok(None),
        };
        if !endpoint.starts_with("http://") {
            bail!(
                "the OTLP endpoint {endpoint:?} has to start with http://: traces are sent in \
                 plain text, to a collector in the same network"
            );
        }
        Ok(Some(OtlpEndpoint { protocol, endpoint }))
    }
}

/// The provider of traces; `None` where they are off.
pub(super) fn provider(
    args: &OtlpArgs,
    service_name: &'static str,
) -> anyhow::Result<Option<SdkTracerProvider>> {
    let is = |name: &str, value: &str| {
        std::env::var(name).is_ok_and(|found| found.eq_ignore_ascii_case(value))
    };
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let Some(target) = args.target()? else {
        return Ok(None);
    };
    let exporter = match target.protocol {
        OtlpProtocol::HttpProtobuf => OtlpExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&target.endpoint)
            .build(),
        OtlpProtocol::Grpc => OtlpExporter::builder()
            .with_tonic()
            .with_endpoint(&target.endpoint)
            .build(),
    }
    .with_context(|| format!("traces cannot be sent to {}", target.endpoint))?;
    let exporter = OnRuntime {
        exporter: Arc::new(exporter),
        runtime: Handle::try_current().context("traces are sent from a tokio runtime")?,
        failures: AtomicU64::new(0),
    };
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource(service_name))
        .build();
    Ok(Some(provider))
}

/// The sender, from the environment, with our own service name where that has none.
fn resource(service_name: &'static str) -> Resource {
    let from_environment = Resource::builder().build();
    let name = from_environment.get(&"service.name".into());
    let named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder();
    if named {
        builder.build()
    } else {
        builder
            .with_service_name(format!("anteroom-{service_name}"))
            .build()
    }
}

/// The SDK's batches leave from a thread of its own, where there is no tokio; the exporters need
/// it. So the exporting itself is done by the runtime, and the thread waits for it.
#[derive(Debug)]
struct OnRuntime {
    exporter: Arc<OtlpExporter>,
    runtime: Handle,
    /// Batches lost in a row.
    failures: AtomicU64,
}

impl SpanExporter for OnRuntime {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exporter = Arc::clone(&self.exporter);
        let export = self
            .runtime
            .spawn(async move { exporter.export(batch).await });
        let result = export
            .await
            .unwrap_or_else(|error| Err(OTelSdkError::InternalFailure(error.to_string())));
        match &result {
            Ok(()) => self.failures.store(0, Ordering::Relaxed),
            // A collector that is away is away for many batches: said once.
            Err(error) => {
                if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        %error,
                        spans,
                        "traces lost: the collector does not take them; check its address and state"
                    );
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(general: &str, traces: &str, protocol: Option<OtlpProtocol>) -> OtlpArgs {
        OtlpArgs {
            otlp_endpoint: Some(general.to_owned()),
            otlp_traces_endpoint: Some(traces.to_owned()),
            otlp_protocol: protocol,
            otlp_traces_protocol: None,
        }
    }

    #[test]
    fn otlp_endpoints_and_protocols_follow_opentelemetry() {
        use OtlpProtocol::{Grpc, HttpProtobuf};
        let base = "http://c:4318";
        for (args, expected) in [
            (args("", "", None), None),
            (OtlpArgs::default(), None),
            (
                args("http://c:4318/", "", None),
                Some((HttpProtobuf, "http://c:4318/v1/traces")),
            ),
            (args(base, "", Some(Grpc)), Some((Grpc, base))),
            (
                args(base, "http://t/x", None),
                Some((HttpProtobuf, "http://t/x")),
            ),
        ] {
            let target = args.target().unwrap();
            let target = target.as_ref().map(|t| (t.protocol, t.endpoint.as_str()));
            assert_eq!(target, expected, "{args:?}");
        }
        let error = args("https://c:4318", "", None).target().unwrap_err();
        assert!(error.to_string().contains("http://"));
    }
}
