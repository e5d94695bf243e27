//! Values that are long, deep, or made to be compared often.

use serde_json::{Map, Value, json};

/// A value with a name for the reader.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Functions of three arguments are called with these alone.
    pub(crate) is_of_few: bool,
}

/// Returns all values, of about so many bytes each. A place in it has the same kind of value for all sizes.
pub(crate) fn of(bytes: usize) -> Vec<Named> {
    let few = |(name, value)| Named {
        name,
        value,
        is_of_few: true,
    };
    let many = |(name, value)| Named {
        name,
        value,
        is_of_few: false,
    };
    let mut all: Vec<Named> = scalars().into_iter().map(few).collect();
    all.extend(repeated(bytes, &OFTEN).map(few));
    all.extend(repeated(bytes, &TEXTS).map(many));
    all.extend(surrounded(bytes).map(many));
    let lists = lists(bytes).into_iter().zip(0..);
    all.extend(lists.map(|(list, at)| if at < 2 { few(list) } else { many(list) }));
    all.extend(maps(bytes).into_iter().map(many));
    all
}

fn scalars() -> Vec<(&'static str, Value)> {
    vec![
        ("null", Value::Null),
        ("true", json!(true)),
        ("0", json!(0)),
        ("1", json!(1)),
        ("1000000", json!(1_000_000)),
        ("-1.5e300", json!(-1.5e300)),
        ("empty text", json!("")),
        ("a", json!("a")),
        (",", json!(",")),
        ("*a", json!("*a")),
        ("^(a|b)+$", json!("^(a|b)+$")),
        ("empty list", json!([])),
    ]
}

/// Texts for functions of three arguments too: name, begin, part that is repeated, end.
const OFTEN: [[&str; 4]; 5] = [
    ["aaa", "", "a", ""],
    ["a,a,", "", "a,", ""],
    ["111", "1", "1", ""],
    ["***", "*", "*", ""],
    ["(a|b)?(a|b)?", "", "(a|b)?", ""],
];

const TEXTS: [[&str; 4]; 55] = [
    ["aaab", "", "a", "b"],
    ["*a*a", "", "*a", "b"],
    ["?*?*", "", "?*", ""],
    ["spaces", "", " ", "a"],
    ["lines", "", "\n", ""],
    ["<<<", "", "<", ""],
    ["İİİ", "", "İ", ""],
    ["ééé", "", "é", ""],
    ["combining marks", "a", "\u{301}\u{323}", ""],
    ["---", "", "-", ""],
    ["a-a-", "a", "-a", ""],
    ["...", "", ".", ""],
    ["a.a.", "a", ".a", ""],
    ["1.1.", "1", ".1", ""],
    ["1.1.1-1.1", "1.1.1-1", ".1", ""],
    ["v1.0.0+a.a", "v1.0.0+a", ".a", ""],
    [">=1.0.0 ||", ">=1.0.0", " || >=1.0.0", ""],
    [">=1.0.0 <", ">=1.0.0", " <9.9.9", ""],
    ["1000", "1", "0", ""],
    ["0001", "", "0", "1"],
    ["0.0001", "0.", "0", "1"],
    ["1.111Ki", "1.", "1", "Ki"],
    ["1e111", "1e", "1", ""],
    ["1h1h", "", "1h", ""],
    ["1.1h", "1.", "1", "h"],
    ["P1DT", "P", "1D", ""],
    ["1-1-1", "1", "-1", ""],
    [":::", "", ":", ""],
    ["1:1:", "1", ":1", ""],
    ["1.2.3.4/0", "1.2.3.4/", "0", "8"],
    ["///", "", "/", ""],
    ["a/a/", "a", "/a", ":1"],
    ["http://a/", "http://a", "/a", ""],
    ["http://a?", "http://a/?a=1", "&a=1", ""],
    ["http://user", "http://", "a", "@a/"],
    ["http://%41", "http://a/", "%41", ""],
    ["@@@", "", "@", ""],
    ["%41", "", "%41", ""],
    ["%s", "", "%s", ""],
    ["%.9f", "", "%.9f", ""],
    ["$1$1", "", "$1", ""],
    ["\\", "", "\\", ""],
    ["\"", "", "\"", ""],
    ["{{{", "", "{", ""],
    ["[[[", "", "[", ""],
    ["JSON list", "[1", ",1", "]"],
    ["JSON map", "{\"a\":1", ",\"a\":1", "}"],
    ["YAML list", "", "- a\n", ""],
    ["YAML map", "", "a: {b: [c]}\n", ""],
    ["YAML aliases", "- &a [b]\n", "- *a\n", ""],
    ["cron", "1", ",1", " * * * *"],
    ["RFC 3339", "2024-01-02T03:04:05.", "0", "Z"],
    ["layout", "2006-01-02", "2006", ""],
    [
        "PEM",
        "-----BEGIN CERTIFICATE-----\n",
        "MIIC\n",
        "-----END CERTIFICATE-----\n",
    ],
    ["[a-z]|", "(?i)", "[a-zÀ-ž]|", "a"],
];

fn repeated<'t>(
    bytes: usize,
    texts: &'t [[&'static str; 4]],
) -> impl Iterator<Item = (&'static str, Value)> + 't {
    texts.iter().map(move |[name, begin, part, end]| {
        let times = bytes.saturating_sub(begin.len() + end.len()) / part.len();
        let text = format!("{begin}{}{end}", part.repeat(times.max(1)));
        (*name, Value::from(text))
    })
}

/// Texts that are no plain repetition.
fn surrounded(bytes: usize) -> impl Iterator<Item = (&'static str, Value)> {
    let half = bytes / 2;
    let states = 1_000.min(bytes / 4);
    [
        (
            "JSON deep",
            format!("{}{}", "[".repeat(half), "]".repeat(half)),
        ),
        ("a?a?aaa", "a?".repeat(states) + &"a".repeat(states)),
        ("(a*)*b", "(a*)*b".to_owned()),
        (
            "distinct words",
            (0..bytes / 8).map(|n| format!("{n:07x},")).collect(),
        ),
    ]
    .into_iter()
    .map(|(name, text)| (name, Value::from(text)))
}

fn lists(bytes: usize) -> Vec<(&'static str, Value)> {
    let text = "a".repeat(bytes);
    let list = |count: usize, value: &dyn Fn(usize) -> Value| (0..count).map(value).collect();
    vec![
        ("numbers", list(bytes / 8, &|n| json!(n))),
        (
            "distinct texts",
            list(bytes / 8, &|n| json!(format!("{n:x}"))),
        ),
        ("floats", list(bytes / 8, &|n| json!(n as f64 + 0.5))),
        ("equal texts", list(bytes / 8, &|_| json!("aaaa"))),
        ("wildcards", list(bytes / 8, &|n| json!(format!("*{n:x}*")))),
        ("quantities", list(bytes / 8, &|n| json!(format!("{n}Ki")))),
        ("long texts", list(16, &|_| json!(text[..bytes / 16]))),
        (
            "texts of 1,000 bytes",
            list(bytes.div_ceil(1_000), &|n| {
                json!(format!("{}{n}", &text[..1_000.min(bytes)]))
            }),
        ),
        ("lists", list(bytes / 8, &|n| json!([n]))),
        (
            "maps",
            list(bytes / 32, &|n| json!({"name": format!("{n}"), "value": n})),
        ),
    ]
}

fn maps(bytes: usize) -> Vec<(&'static str, Value)> {
    let keys = |value: &dyn Fn(usize) -> Value| {
        let entries = (0..bytes / 16).map(|n| (format!("{n:08x}"), value(n)));
        Value::Object(entries.collect::<Map<_, _>>())
    };
    let deep = (0..100).fold(json!(1), |inner, _| json!({"a": [inner]}));
    vec![
        ("keys", keys(&|n| json!(n))),
        ("keys of texts", keys(&|n| json!(format!("{n}")))),
        ("a long key", json!({ "a".repeat(bytes): 1 })),
        ("a long value", json!({ "a": "a".repeat(bytes) })),
        ("deep", deep),
    ]
}
