//! Changes of JSON at random.

use serde_json::{Map, Value, json};

/// Choices, one after the other; where they are used up, each is the first.
pub(crate) struct Tape<'a>(std::slice::Iter<'a, u32>);

impl<'a> Tape<'a> {
    pub(crate) fn new(choices: &'a [u32]) -> Self {
        Self(choices.iter())
    }

    /// One of `0..end`; 0 of nothing.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let next = self.0.next().copied().unwrap_or_default();
        usize::try_from(next).unwrap_or_default() % end.max(1)
    }

    pub(crate) fn pick<'b, T>(&mut self, of: &'b [T]) -> &'b T {
        &of[self.below(of.len())]
    }
}

/// Texts that break out of quotes, expressions, patterns, paths, numbers and quantities.
const HOSTILE: [&str; 48] = [
    "",
    "'",
    "\"",
    "`",
    "{{",
    "}}",
    "{{ }}",
    "{{ request.object }}",
    "{{ request.object.metadata.name || '{{' }}",
    "{{ {{ element }} }}",
    "{{ @ }}",
    "\\{{ x }}",
    "{{ element.x }}",
    "{{ 'a' || `1` }}",
    "{{ request.object.spec.containers[].image }}",
    "{{request.object.metadata.labels.*|[0]}}",
    "{{ to_string(@) }}",
    "$(./../x)",
    "$(/spec/x)",
    "a' || 'b",
    "*",
    "?*",
    "!*",
    "!?*|a*&!b",
    "****************************a",
    ">=1Gi",
    "1-3",
    "1Gi-3",
    "!1-!3",
    "10!-5",
    ">",
    "<5 | >7",
    "-9223372036854775808",
    "1e400",
    "0.1E-9999999999",
    "1h30m",
    "999999999999h",
    "P1Y",
    "1.2.3",
    ">=1.0.0 <2.0.0 || 3",
    "\u{0}",
    "\u{202e}\u{1f980}",
    "../../..",
    "/spec/containers/-",
    "/a~1b~0/00",
    "[\"a\",",
    "- op: add\n  path: /x\n  value: &a [*a]",
    "(((((((((((((((((((((",
];

/// Returns a value that no field expects.
pub(crate) fn hostile(tape: &mut Tape<'_>) -> Value {
    match tape.below(14) {
        0 => Value::Null,
        1 => Value::Bool(tape.below(2) == 0),
        2 => json!([0, -1, 1, i64::MIN, i64::MAX][tape.below(5)]),
        3 => json!([0.5, -0.0, 1e308, 1e-308, 3.0][tape.below(5)]),
        4 => json!([]),
        5 => json!({}),
        6 => nested(tape.below(300)),
        7 => Value::Array((0..tape.below(2_000)).map(|n| json!(n % 7)).collect()),
        8 => "x".repeat(tape.below(20_000)).into(),
        9 => json!({"(name)": "a*", "=(x)": {"^(y)": [{"<(z)": ">1"}]}, "+(q)": "v", "X(r)": null}),
        _ => (*tape.pick(&HOSTILE)).into(),
    }
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("deep"), |inner, level| match level % 2 {
        0 => json!([inner]),
        _ => json!({"a": inner}),
    })
}

/// One place of a document, and how many there are.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(elements) => elements.iter().map(places).sum(),
        Value::Object(fields) => fields.values().map(places).sum(),
        _ => 0,
    }
}

fn at(value: &mut Value, place: &mut usize, act: &mut dyn FnMut(&mut Value)) -> bool {
    if *place == 0 {
        act(value);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(elements) => elements.iter_mut().any(|inner| at(inner, place, act)),
        Value::Object(fields) => fields.values_mut().any(|inner| at(inner, place, act)),
        _ => false,
    }
}

/// A part of any of these.
fn part(of: &[Value], tape: &mut Tape<'_>) -> Value {
    let mut document = tape.pick(of).clone();
    let mut place = tape.below(places(&document));
    let mut found = Value::Null;
    at(&mut document, &mut place, &mut |value| found = value.take());
    found
}

/// Changes one place of `document`; `others` are where parts are taken from.
pub(crate) fn once(document: &mut Value, others: &[Value], tape: &mut Tape<'_>) {
    let mut place = tape.below(places(document));
    at(document, &mut place, &mut |value| {
        change(value, others, tape);
    });
}

const ANCHORS: [&str; 8] = ["(", "=(", "^(", "X(", "+(", "<(", "!(", "(("];

fn change(value: &mut Value, others: &[Value], tape: &mut Tape<'_>) {
    match (tape.below(8), &mut *value) {
        (0 | 1, Value::String(text)) => {
            let piece = *tape.pick(&HOSTILE);
            let mut place = tape.below(text.len() + 1);
            while !text.is_char_boundary(place) {
                place -= 1;
            }
            text.insert_str(place, piece);
        }
        (0, Value::Array(elements)) => {
            let copies = tape.below(40);
            let first = elements.first().cloned().unwrap_or(Value::Null);
            elements.extend(std::iter::repeat_n(first, copies));
        }
        (1 | 2, Value::Object(fields)) => rename(fields, tape),
        (3, Value::Array(elements)) => elements.push(part(others, tape)),
        (3, Value::Object(fields)) => {
            let key = *tape.pick(&HOSTILE);
            fields.insert(key.to_owned(), part(others, tape));
        }
        (4, value) => *value = nested_around(value.take(), tape.below(12)),
        (5, value) => *value = part(others, tape),
        (_, value) => *value = hostile(tape),
    }
}

fn rename(fields: &mut Map<String, Value>, tape: &mut Tape<'_>) {
    let keys: Vec<_> = fields.keys().cloned().collect();
    if keys.is_empty() {
        return;
    }
    let key = tape.pick(&keys);
    let Some(value) = fields.remove(key) else {
        return;
    };
    let key = match tape.below(3) {
        0 => (*tape.pick(&HOSTILE)).to_owned(),
        _ => format!("{}{key})", tape.pick(&ANCHORS)),
    };
    fields.insert(key, value);
}

fn nested_around(value: Value, levels: usize) -> Value {
    (0..levels).fold(value, |inner, _| json!([inner]))
}

/// Returns a request as an API server sends it, with the object in it.
pub(crate) fn request(object: Value, tape: &mut Tape<'_>) -> Value {
    let operation = *tape.pick(&["CREATE", "CREATE", "UPDATE", "DELETE", "CONNECT"]);
    let kind = object["kind"].as_str().unwrap_or("Pod").to_owned();
    let name = *tape.pick(&HOSTILE);
    let before = match operation {
        "UPDATE" | "DELETE" => object.clone(),
        _ => Value::Null,
    };
    json!({
        "uid": "u", "operation": operation, "name": name, "namespace": "default",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": name, "groups": ["system:authenticated", name]},
        "object": match operation { "DELETE" => Value::Null, _ => object },
        "oldObject": before,
    })
}
