//! From the form of a setting in Kyverno to its form in the chart's values. Pure.

use anteroom_policy::{ResourceFilters, is_namespace};
use serde_json::Value;

use super::chart_keys::SettingContext;

/// The result of converting a setting.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Converted {
    /// The value of the chart's key.
    pub(super) value: Option<Value>,
    /// The parts that have no like in the chart, in a sentence.
    pub(super) lacks: Option<String>,
}

/// A conversion.
pub(super) type Convert = fn(&Value, &SettingContext) -> Converted;

fn to(value: impl Into<Value>) -> Converted {
    let value = Some(value.into());
    Converted { value, lacks: None }
}

fn no(why: impl Into<String>) -> Converted {
    let lacks = Some(why.into());
    Converted { value: None, lacks }
}

/// The text of a ConfigMap or of a flag.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default().trim()
}

/// JSON in a text.
fn inner(value: &Value) -> Value {
    serde_json::from_str(text(value)).unwrap_or_default()
}

/// Takes the value as it is.
pub(super) fn same(value: &Value, _: &SettingContext) -> Converted {
    to(value.clone())
}

/// Takes a truth value, as Go spells it.
pub(super) fn boolean(value: &Value, _: &SettingContext) -> Converted {
    match text(value) {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => to(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => to(false),
        _ => no("It is neither true nor false."),
    }
}

/// A list with commas.
pub(super) fn words(value: &Value, _: &SettingContext) -> Converted {
    let words = text(value).split(',').map(str::trim);
    to(words.filter(|word| !word.is_empty()).collect::<Vec<_>>())
}

/// Converts each filter to one element. Filters that a service could not parse are left out, since the service would
/// not take the file that has them.
pub(super) fn filters(value: &Value, _: &SettingContext) -> Converted {
    let is_between = |c: char| c.is_whitespace() || c == ',';
    let filters = text(value).split_inclusive(']');
    let filters = filters.map(|filter| filter.trim_matches(is_between));
    let (found, broken): (Vec<_>, Vec<_>) = filters
        .filter(|filter| !filter.is_empty())
        .partition(|one| ResourceFilters::parse(one).is_ok());
    Converted {
        lacks: (!broken.is_empty()).then(|| format!("No filters are: {}.", broken.join(" "))),
        ..to(found)
    }
}

/// The namespaces that selectors exclude by name, and Kyverno's own.
pub(super) fn namespaces(value: &Value, around: &SettingContext) -> Converted {
    let selectors = match inner(value) {
        Value::Array(all) => all,
        one => vec![one],
    };
    let mut found = around.namespaces.clone();
    let mut is_all = matches!(&*selectors, [Value::Object(_)]);
    for (field, selector) in selectors.iter().filter_map(Value::as_object).flatten() {
        for (part, content) in selector.as_object().into_iter().flatten() {
            for one in content.as_array().into_iter().flatten() {
                let is_name =
                    one["key"] == "kubernetes.io/metadata.name" && one["operator"] == "NotIn";
                match (field.as_str(), part.as_str(), one["values"].as_array()) {
                    ("namespaceSelector", "matchExpressions", Some(values)) if is_name => {
                        let names = values.iter().filter_map(Value::as_str);
                        // What is no name of a namespace excludes nothing.
                        found.extend(names.filter(|name| is_namespace(name)).map(str::to_owned));
                    }
                    _ => is_all = false,
                }
            }
            is_all &= content.as_object().is_none_or(serde_json::Map::is_empty);
        }
    }
    const REST: &str =
        "Only namespaces that are excluded by name have a like: config.exemptNamespaces.";
    Converted {
        lacks: (!is_all).then(|| REST.to_owned()),
        ..to(Vec::from_iter(found))
    }
}

/// Names and values. The services take them in a list with commas.
pub(super) fn pairs(value: &Value, _: &SettingContext) -> Converted {
    let pairs = inner(value);
    let fits = |(key, value): (&String, &Value)| {
        !key.contains(['=', ',']) && value.as_str().is_some_and(|value| !value.contains(','))
    };
    match pairs
        .as_object()
        .is_some_and(|pairs| pairs.iter().all(fits))
    {
        true => to(pairs),
        false => no("Names and values are texts without commas here."),
    }
}

/// A number of bytes; 0 is no limit in Kyverno.
pub(super) fn bytes(value: &Value, _: &SettingContext) -> Converted {
    match text(value).parse::<u64>() {
        Ok(bytes) if bytes > 0 => to(bytes.to_string()),
        _ => no("There is always a limit here."),
    }
}

/// From Go's form of durations, as in `1h30m0s`.
pub(super) fn duration(value: &Value, _: &SettingContext) -> Converted {
    match seconds(text(value)).filter(|seconds| *seconds > 0) {
        Some(seconds) if seconds % 3_600 == 0 => to(format!("{}h", seconds / 3_600)),
        Some(seconds) if seconds % 60 == 0 => to(format!("{}m", seconds / 60)),
        Some(seconds) => to(format!("{seconds}s")),
        None => no("It is no duration of whole seconds."),
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

/// Exceptions are on only with a namespace to read them from.
pub(super) fn exceptions(value: &Value, around: &SettingContext) -> Converted {
    match text(value) == "true" && !around.flags.contains_key("exceptionNamespace") {
        true => no("Without --exceptionNamespace, Kyverno reads no exceptions either."),
        false => boolean(value, around),
    }
}

/// More replicas than the chart's are taken over, fewer are not.
pub(super) fn replicas(value: &Value, _: &SettingContext) -> Converted {
    match value.as_u64() {
        Some(more @ 3..=100) => to(more),
        _ => Converted::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_converted_and_what_has_no_like_is_said() {
        let by_name = |values: &str| {
            format!(
                "{{\"namespaceSelector\":{{\"matchExpressions\":[{{\"key\":\"kubernetes.io/metadata.name\",\
                 \"operator\":\"NotIn\",\"values\":{values}}}],\"matchLabels\":null}}}}"
            )
        };
        let around = SettingContext {
            namespaces: ["kyverno".to_owned()].into(),
            ..SettingContext::default()
        };
        let cases: [(Convert, Value, Value, bool); 21] = [
            (words, json!("a, b,"), json!(["a", "b"]), false),
            (
                filters,
                json!("[Event,*,*], [*/*,a,*]\n[Pod,b,c]"),
                json!(["[Event,*,*]", "[*/*,a,*]", "[Pod,b,c]"]),
                false,
            ),
            (
                filters,
                json!("[Pod,a b] [Event,*,*]"),
                json!(["[Event,*,*]"]),
                true,
            ),
            (pairs, json!("{\"a\": \"b\"}"), json!({"a": "b"}), false),
            (pairs, json!("{\"a\": \"b,c\"}"), Value::Null, true),
            (pairs, json!("no JSON"), Value::Null, true),
            (bytes, json!("2000000"), json!("2000000"), false),
            (bytes, json!("0"), Value::Null, true),
            (duration, json!("1h0m0s"), json!("1h"), false),
            (duration, json!("90m"), json!("90m"), false),
            (duration, json!("1m1s"), json!("61s"), false),
            (duration, json!("1h30"), Value::Null, true),
            (duration, json!("99999999999999999999h"), Value::Null, true),
            (boolean, json!("true"), json!(true), false),
            (replicas, json!(3), json!(3), false),
            (replicas, json!(1), Value::Null, false),
            (exceptions, json!("false"), json!(false), false),
            (exceptions, json!("true"), Value::Null, true),
            (
                namespaces,
                json!(by_name("[\"b\",\"C.d\"]")),
                json!(["b", "kyverno"]),
                false,
            ),
            (
                namespaces,
                json!(format!("[{},{{}}]", by_name("[\"b\"]"))),
                json!(["b", "kyverno"]),
                true,
            ),
            (
                namespaces,
                json!("[{\"objectSelector\":{\"matchLabels\":{\"a\":\"b\"}}}]"),
                json!(["kyverno"]),
                true,
            ),
        ];
        for (convert, from, value, lacks) in cases {
            let converted = convert(&from, &around);
            assert_eq!(converted.value.unwrap_or_default(), value, "{from}");
            assert_eq!(converted.lacks.is_some(), lacks, "{from}");
        }
    }
}
