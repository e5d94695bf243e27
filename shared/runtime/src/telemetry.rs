//! Logs on standard error, traces over OTLP, and trace context as text.
//!
//! Traces are off until an endpoint is given. What OpenTelemetry specifies as environment variables
//! means here what it means there:
//!
//! | variable | meaning |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | where traces go; unset or empty: nowhere |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL` | `http/protobuf` (the default) or `grpc` |
//! | `OTEL_EXPORTER_OTLP_HEADERS`, `…_TIMEOUT` | as specified |
//! | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | who sends; without a name, `anteroom-<service>` |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | what is sampled; by default what the parent says, else everything |
//! | `OTEL_BSP_*`, `OTEL_SPAN_*` | batching and limits |
//! | `OTEL_SDK_DISABLED=true`, `OTEL_TRACES_EXPORTER=none` | off |
//!
//! Log lines name the spans that they stand in where some level below `info` is logged. Otherwise, and
//! without traces, there are no spans.

mod context;
mod format;
mod otlp;

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt as _, LevelFilter, filter_fn},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

pub use context::{add_link, current_trace, set_parent, trace_id};
pub use otlp::{OtlpArgs, OtlpProtocol};

/// Limit for sending buffered spans at the end of the process.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);

/// The default levels. The clients of NATS and of the API server log every failed attempt, so they are quiet here:
/// their callers log the attempts that matter.
const LOG_LEVEL: &str = "info,async_nats=warn,kube_client::client::builder=off";

/// Directives for libraries that must never be traced: exporting a trace would make a trace, without end.
const UNTRACED: &str = "h2=off,hyper=off,hyper_util=off,tonic=off,tower=off,tower_http=off,\
                        reqwest=off,rustls=off,opentelemetry=off,opentelemetry_sdk=off,\
                        opentelemetry_otlp=off";

/// Options for logs and traces.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// The logs that are written: a level, or directives as in `info,anteroom_webhook=debug`.
    #[arg(
        long,
        env = "ANTEROOM_LOG_LEVEL",
        default_value = LOG_LEVEL,
        global = true
    )]
    pub log_level: String,

    /// The format of logs.
    #[arg(
        long,
        env = "ANTEROOM_LOG_FORMAT",
        default_value = "text",
        global = true
    )]
    pub log_format: LogFormat,

    /// Export of traces.
    #[command(flatten)]
    pub otlp: OtlpArgs,
}

impl Default for TelemetryArgs {
    fn default() -> Self {
        Self {
            log_level: LOG_LEVEL.to_owned(),
            log_format: LogFormat::Text,
            otlp: OtlpArgs::default(),
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people; in colour on a terminal unless `NO_COLOR` is set.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Sets logs and traces up for the whole process: once, however many services run in it, and from
/// within the tokio runtime that sends the traces. `service_name` is as in `webhook`.
///
/// Drop the guard last, or better [`Guard::shutdown`] it: what is buffered is sent then.
pub fn init(args: &TelemetryArgs, service_name: &'static str) -> anyhow::Result<Guard> {
    let levels = EnvFilter::try_new(&args.log_level)
        .with_context(|| format!("--log-level {:?} is not understood", args.log_level))?;
    let provider = otlp::provider(&args.otlp, service_name)?;
    if provider.is_some() {
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    }
    dispatch(levels, args.log_format, provider.as_ref())?
        .try_init()
        .context("telemetry is set up once in a process, and it already is")?;
    Ok(Guard { provider })
}

/// Builds the subscriber for events and spans.
///
/// Each layer filters for itself, and there is none that does nothing: beside one without a filter the
/// registry takes every span and event of every library, down to those of each frame of HTTP/2, whether
/// or not anybody listens.
fn dispatch(
    levels: EnvFilter,
    format: LogFormat,
    provider: Option<&SdkTracerProvider>,
) -> anyhow::Result<Dispatch> {
    let Some(provider) = provider else {
        return Ok(Registry::default().with(lines(format, levels)).into());
    };
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("anteroom"))
        .with_location(false)
        .with_threads(false);
    let untraced =
        EnvFilter::try_new(format!("info,{UNTRACED}")).context("the filter of traces is wrong")?;
    let traced = Registry::default().with(layer.with_filter(untraced));
    Ok(traced.with(lines(format, levels)).into())
}

/// Log lines. A span costs a request more than most of what is done in it, and log lines carry what matters
/// of it themselves. At more verbose levels the lines show the spans too.
fn lines<S>(format: LogFormat, levels: EnvFilter) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let shows_spans = levels
        .max_level_hint()
        .is_none_or(|most| most > LevelFilter::INFO);
    let shown = filter_fn(move |metadata| shows_spans || metadata.is_event());
    // The layer needs its own hint. Otherwise it would cancel the hint of the levels, and events below the levels
    // would cost time.
    let shown = shown.with_max_level_hint(LevelFilter::TRACE);
    format::layer(format).with_filter(levels.and(shown))
}

/// Keeps traces flowing.
#[derive(Debug)]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    /// Sends what is buffered, for at most three seconds.
    pub async fn shutdown(mut self) {
        let Some(provider) = self.provider.take() else {
            return;
        };
        // The provider blocks its thread, so a thread of the exporter would cause a deadlock.
        let flushed = tokio::task::spawn_blocking(move || flush(&provider));
        if flushed.await.is_err() {
            tracing::warn!("last traces not sent: the flush panicked");
        }
    }

    /// Sends what is buffered now, and goes on. Blocks the thread.
    pub fn flush(&self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.force_flush()
        {
            tracing::warn!(%error, "buffered traces not sent to the collector");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            flush(&provider);
        }
    }
}

fn flush(provider: &SdkTracerProvider) {
    if let Err(error) = provider.shutdown_with_timeout(FLUSH_DEADLINE) {
        tracing::warn!(%error, "last traces not sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells if a span of each frame of a library is made, one of a request, and a log line.
    fn made(levels: &str, provider: Option<&SdkTracerProvider>) -> [bool; 3] {
        let levels = EnvFilter::new(levels);
        let dispatch = dispatch(levels, LogFormat::Text, provider).unwrap();
        tracing::dispatcher::with_default(&dispatch, || {
            [
                !tracing::trace_span!("frame").is_disabled(),
                !tracing::info_span!("request").is_disabled(),
                tracing::event_enabled!(tracing::Level::INFO),
            ]
        })
    }

    #[test]
    fn spans_without_a_listener_are_not_created() {
        assert_eq!(made(LOG_LEVEL, None), [false, false, true]);
        assert_eq!(made("warn", None), [false; 3]);
        assert_eq!(made("trace", None), [true; 3]);
        let provider = SdkTracerProvider::builder().build();
        assert_eq!(made(LOG_LEVEL, Some(&provider)), [false, true, true]);
    }
}
