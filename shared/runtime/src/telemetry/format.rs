//! Formats of log lines.

use std::{fmt, io::IsTerminal as _};

use opentelemetry::{Context, trace::TraceContextExt as _};
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields,
        format::{Format, Full, JsonFields, Writer},
        time::{FormatTime as _, SystemTime},
    },
    registry::{LookupSpan, SpanRef},
};

use super::LogFormat;

/// Logs on standard error: standard output belongs to what a command prints.
pub(super) fn layer<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            // https://no-color.org: present and not empty.
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let ansi = !no_color && std::io::stderr().is_terminal();
            layer
                .with_ansi(ansi)
                .event_format(Text(Format::default().with_ansi(ansi)))
                .boxed()
        }
        LogFormat::Json => layer
            .with_ansi(false)
            .fmt_fields(JsonFields::new())
            .event_format(Json)
            .boxed(),
    }
}

/// The ids of the current trace and span, if they are sampled and so can be found in a trace viewer.
fn ids() -> Option<(String, String)> {
    let context = Context::current();
    let span = context.span().span_context().clone();
    (span.is_valid() && span.is_sampled())
        .then(|| (span.trace_id().to_string(), span.span_id().to_string()))
}

/// The usual line, with the trace at its end.
struct Text(Format<Full>);

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some((trace, span)) = ids() else {
            return self.0.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        writeln!(writer, "{line} trace_id={trace} span_id={span}")
    }
}

/// One object a line: `timestamp`, `level`, `target`, `message`, the event's own fields, `spans`
/// from the outermost in, `trace_id` and `span_id`.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut line = Fields(Map::new());
        event.record(&mut line);
        let mut line = line.0;
        line.insert("timestamp".into(), timestamp.into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("target".into(), event.metadata().target().into());
        if let Some(scope) = context.event_scope() {
            let spans = scope
                .from_root()
                .map(|span| span_value::<S, N>(&span))
                .collect();
            line.insert("spans".into(), Value::Array(spans));
        }
        if let Some((trace, span)) = ids() {
            line.insert("trace_id".into(), trace.into());
            line.insert("span_id".into(), span.into());
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn span_value<S, N>(span: &SpanRef<'_, S>) -> Value
where
    S: for<'a> LookupSpan<'a>,
    N: 'static,
{
    let extensions = span.extensions();
    let fields = extensions.get::<FormattedFields<N>>();
    // The fields were written by `JsonFields`, as an object.
    let fields = fields.and_then(|fields| serde_json::from_str(&fields.fields).ok());
    let mut fields: Map<String, Value> = fields.unwrap_or_default();
    fields.insert("name".into(), span.name().into());
    Value::Object(fields)
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
