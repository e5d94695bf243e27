//! From the form of a setting in Kyverno to its form in the chart's values. Pure.

use std::collections::BTreeSet;

use anteroom_policy::ResourceFilters;
use serde_json::{Map, Value};

use super::likes::Around;

/// What becomes of a setting.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Converted {
    /// The value of the chart's key.
    pub(super) value: Option<Value>,
    /// What has no like, in a sentence.
    pub(super) lacks: Option<String>,
}

impl Converted {
    /// There is a value, and nothing more to say.
    fn to(value: impl Into<Value>) -> Self {
        Self {
            value: Some(value.into()),
            lacks: None,
        }
    }

    /// There is no like.
    fn none(why: impl Into<String>) -> Self {
        Self {
            value: None,
            lacks: Some(why.into()),
        }
    }

    /// What is left out of a list is said.
    fn list(found: impl IntoIterator<Item = String>, lacks: &[String]) -> Self {
        Self {
            value: Some(found.into_iter().map(Value::from).collect()),
            lacks: (!lacks.is_empty()).then(|| lacks.join(" ")),
        }
    }
}

/// The text of a ConfigMap or of a flag.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default().trim()
}

/// JSON in a text.
fn inner(value: &Value) -> Option<Value> {
    serde_json::from_str(text(value)).ok()
}

/// Takes the value as it is.
pub(super) fn same(value: &Value, _: &Around) -> Converted {
    Converted::to(value.clone())
}

pub(super) fn boolean(value: &Value, _: &Around) -> Converted {
    match text(value) {
        "true" | "" => Converted::to(true),
        "false" => Converted::to(false),
        other => Converted::none(format!("`{other}` is no boolean.")),
    }
}

/// A list with commas.
pub(super) fn words(value: &Value, _: &Around) -> Converted {
    let words = text(value).split(',').map(str::trim);
    let words = words.filter(|word| !word.is_empty()).map(str::to_owned);
    Converted::list(words, &[])
}

/// One filter is one element. A service with one that it cannot read would not start.
pub(super) fn filters(value: &Value, _: &Around) -> Converted {
    let (mut found, mut lacks) = (Vec::new(), Vec::new());
    for filter in text(value).split_inclusive(']').map(str::trim) {
        match ResourceFilters::parse(filter) {
            Ok(_) if filter.is_empty() => {}
            Ok(_) => found.push(filter.to_owned()),
            Err(error) => lacks.push(format!("The filter `{filter}` cannot be read: {error}.")),
        }
    }
    Converted::list(found, &lacks)
}

/// The namespaces that selectors exclude by name, and Kyverno's own.
pub(super) fn namespaces(value: &Value, around: &Around) -> Converted {
    const NAME: &str = "kubernetes.io/metadata.name";
    const REST: &str =
        "Only namespaces that a selector excludes by name have a like (config.exemptNamespaces).";
    let selectors = match inner(value) {
        Some(Value::Array(all)) => all,
        Some(one @ Value::Object(_)) => vec![one],
        _ => return Converted::none(REST),
    };
    let (mut found, mut has_rest) = (around.namespaces.clone(), selectors.len() > 1);
    for (field, selector) in selectors.iter().filter_map(Value::as_object).flatten() {
        let expressions = selector["matchExpressions"].as_array();
        let others = selector
            .as_object()
            .map_or(usize::from(has_content(selector)), |fields| {
                fields
                    .iter()
                    .filter(|(key, value)| *key != "matchExpressions" && has_content(value))
                    .count()
            });
        has_rest |= field != "namespaceSelector" && has_content(selector) || others > 0;
        for expression in expressions.into_iter().flatten() {
            let is_name = field == "namespaceSelector" && expression["key"] == NAME;
            match expression["values"].as_array() {
                Some(values) if is_name && expression["operator"] == "NotIn" => {
                    found.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                _ => has_rest = true,
            }
        }
    }
    let lacks = has_rest.then(|| REST.to_owned());
    Converted::list(found, &lacks.into_iter().collect::<Vec<_>>())
}

fn has_content(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(fields) => fields.values().any(has_content),
        _ => true,
    }
}

/// Names and values, as JSON in a text. The services take them in a list with commas.
pub(super) fn pairs(value: &Value, _: &Around) -> Converted {
    let Some(Value::Object(pairs)) = inner(value) else {
        return Converted::none("It is no JSON object.");
    };
    let fits = |(key, value): &(String, Value)| {
        let value = value.as_str();
        !key.contains(['=', ',']) && value.is_some_and(|value| !value.contains(','))
    };
    let (fitting, others): (Vec<_>, Vec<_>) = pairs.into_iter().partition(fits);
    let others: Vec<_> = others.into_iter().map(|(key, _)| key).collect();
    Converted {
        value: Some(Value::Object(fitting.into_iter().collect::<Map<_, _>>())),
        lacks: (!others.is_empty()).then(|| {
            format!(
                "With a comma, and so without a like: {}.",
                others.join(", ")
            )
        }),
    }
}

/// A number of bytes; 0 is no limit in Kyverno.
pub(super) fn bytes(value: &Value, _: &Around) -> Converted {
    match text(value).parse::<u64>() {
        Ok(0) => Converted::none("There is always a limit here."),
        Ok(bytes) => Converted::to(bytes.to_string()),
        Err(_) => Converted::none("It is no number of bytes."),
    }
}

/// From Go's form of durations, as in `1h30m0s`.
pub(super) fn duration(value: &Value, _: &Around) -> Converted {
    let seconds = seconds(text(value)).filter(|seconds| *seconds > 0);
    match seconds {
        Some(seconds) if seconds % 3_600 == 0 => Converted::to(format!("{}h", seconds / 3_600)),
        Some(seconds) if seconds % 60 == 0 => Converted::to(format!("{}m", seconds / 60)),
        Some(seconds) => Converted::to(format!("{seconds}s")),
        None => Converted::none("It is no duration of whole seconds."),
    }
}

fn seconds(text: &str) -> Option<u64> {
    let (mut total, mut digits) = (0_u64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        let count: u64 = std::mem::take(&mut digits).parse().ok()?;
        total = total.checked_add(count.checked_mul(unit)?)?;
    }
    digits.is_empty().then_some(total)
}

pub(super) fn log_format(value: &Value, _: &Around) -> Converted {
    match text(value) {
        format @ ("json" | "text") => Converted::to(format),
        other => Converted::none(format!("There is no format `{other}`.")),
    }
}

/// Exceptions are on only with a namespace to read them from.
pub(super) fn exceptions(value: &Value, around: &Around) -> Converted {
    let is_on = boolean(value, around);
    match around.flags.contains_key("exceptionNamespace") {
        false if is_on.value == Some(Value::Bool(true)) => {
            Converted::none("Without --exceptionNamespace, Kyverno reads no exceptions either.")
        }
        _ => is_on,
    }
}

/// The collector's URL, whose address and port are two flags.
pub(super) fn collector(value: &Value, around: &Around) -> Converted {
    let address = text(value);
    match around.flags.get("tracingPort").map(String::as_str) {
        _ if address.is_empty() => Converted::default(),
        None | Some("") => Converted::to(format!("http://{address}")),
        Some(port) => Converted::to(format!("http://{address}:{port}")),
    }
}

/// Kyverno speaks OTLP by gRPC.
pub(super) fn grpc(value: &Value, _: &Around) -> Converted {
    match text(value) {
        "" => Converted::default(),
        _ => Converted::to("grpc"),
    }
}

/// More replicas than the chart's are taken over, fewer are not.
pub(super) fn replicas(value: &Value, _: &Around) -> Converted {
    match value.as_u64() {
        Some(more @ 3..=100) => Converted::to(more),
        _ => Converted::default(),
    }
}

/// Returns the sentence, unless the value is the usual one.
pub(super) fn unless(value: &Value, usual: &[&str], sentence: &str) -> Option<String> {
    let said = match value {
        Value::String(text) => text.trim(),
        _ => "",
    };
    (!said.is_empty() && !usual.contains(&said)).then(|| sentence.to_owned())
}

/// Namespaces of Kyverno's own objects.
pub(super) fn homes<'v>(objects: impl IntoIterator<Item = &'v Value>) -> BTreeSet<String> {
    let homes = objects
        .into_iter()
        .filter_map(|object| object["metadata"]["namespace"].as_str());
    homes
        .filter(|home| !home.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn around() -> Around {
        Around {
            namespaces: ["kyverno".to_owned()].into(),
            flags: [("tracingPort".to_owned(), "4317".to_owned())].into(),
        }
    }

    #[test]
    fn settings_are_converted() {
        type Convert = fn(&Value, &Around) -> Converted;
        let cases: [(Convert, Value, Value); 16] = [
            (words, json!("a, b,"), json!(["a", "b"])),
            (
                filters,
                json!("[Event,*,*] [*/*,a,*]\n[Pod,b,c]"),
                json!(["[Event,*,*]", "[*/*,a,*]", "[Pod,b,c]"]),
            ),
            (pairs, json!("{\"a\": \"b\"}"), json!({"a": "b"})),
            (bytes, json!("2000000"), json!("2000000")),
            (duration, json!("1h0m0s"), json!("1h")),
            (duration, json!("90m"), json!("90m")),
            (duration, json!("1m1s"), json!("61s")),
            (boolean, json!("true"), json!(true)),
            (log_format, json!("text"), json!("text")),
            (
                collector,
                json!("otel.a.svc"),
                json!("http://otel.a.svc:4317"),
            ),
            (grpc, json!("otel.a.svc"), json!("grpc")),
            (replicas, json!(3), json!(3)),
            (exceptions, json!("false"), json!(false)),
            (same, json!([{ "key": "a" }]), json!([{ "key": "a" }])),
            (
                namespaces,
                json!(
                    "{\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\"]}]}}"
                ),
                json!(["kube-system", "kyverno"]),
            ),
            (
                namespaces,
                json!(
                    "[{\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"b\",\"a\"]}],\"matchLabels\":null}}]"
                ),
                json!(["a", "b", "kyverno"]),
            ),
        ];
        for (convert, from, to) in cases {
            assert_eq!(convert(&from, &around()), Converted::to(to), "{from}");
        }
    }

    #[test]
    fn what_has_no_like_is_said() {
        let said = |converted: Converted| converted.lacks.unwrap();
        let broken = filters(&json!("[Pod,a b] [Event,*,*]"), &around());
        assert_eq!(broken.value, Some(json!(["[Event,*,*]"])));
        assert!(said(broken).contains("[Pod,a b]"));
        let selected = json!("[{\"objectSelector\":{\"matchLabels\":{\"a\":\"b\"}}}]");
        assert!(said(namespaces(&selected, &around())).contains("by name"));
        for (convert, value) in [
            (
                pairs as fn(&Value, &Around) -> Converted,
                "{\"a\": \"b,c\"}",
            ),
            (pairs, "no JSON"),
            (namespaces, "no JSON"),
            (bytes, "0"),
            (bytes, "many"),
            (duration, "1h30"),
            (duration, "99999999999999999999h"),
            (log_format, "xml"),
            (exceptions, "true"),
        ] {
            assert!(convert(&json!(value), &around()).lacks.is_some(), "{value}");
        }
    }
}
