//! Objects, and questions about them: shapes that are recognised, and shapes that must not be.

use proptest::prelude::*;
use serde_json::{Value, json};

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: (u8, u8),
    /// `None`: it is deleted.
    pub(crate) object: Option<Value>,
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop::sample::select(vec![json!("u"), json!("v"), json!("w"), json!("")]),
        2 => prop::sample::select(vec![json!(0), json!(1), json!(1.0), json!(-1), json!(0.5)]),
        1 => prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992.0),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(u64::MAX - 1),
            json!(18_446_744_073_709_551_615.0),
        ]),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::Array),
        1 => scalar().prop_map(|value| json!({"u": value})),
    ]
}

/// An object with some of these fields.
fn fields(
    names: &'static [&'static str],
    value: impl Strategy<Value = Value> + Clone + 'static,
) -> impl Strategy<Value = Value> {
    let one = prop::option::weighted(0.8, value);
    prop::collection::vec(one, names.len()).prop_map(|values| {
        let fields = names.iter().zip(values);
        let fields = fields.filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        Value::Object(fields.collect())
    })
}

fn element() -> impl Strategy<Value = Value> {
    let list = prop::collection::vec(value(), 0..3).prop_map(Value::Array);
    (
        fields(&["h", "g"], value().boxed()),
        prop::option::weighted(0.8, list),
    )
        .prop_map(|(mut element, list)| {
            if let Some(list) = list {
                element["p"] = list;
            }
            element
        })
}

fn object() -> impl Strategy<Value = Value> {
    let elements = prop_oneof![
        8 => prop::collection::vec(element(), 0..3).prop_map(Value::Array),
        1 => prop::collection::vec(value(), 0..3).prop_map(Value::Array),
        1 => value(),
    ];
    (
        fields(&["a", "b", "c"], value().boxed()),
        prop::option::weighted(0.8, elements),
        prop::option::weighted(0.8, fields(&["u", "v", "w"], value().boxed())),
        any::<bool>(),
    )
        .prop_map(|(mut object, list, map, is_labelled)| {
            if let Some(list) = list {
                object["l"] = list;
            }
            if let Some(map) = map {
                object["m"] = map;
            }
            object["metadata"] = match is_labelled {
                true => json!({"labels": {"k": "v"}}),
                false => json!({}),
            };
            object
        })
}

/// An object as policies expect it: nothing is missing, and all is of its type.
fn tidy() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["u", "v", "w", "x", "y", "z"]);
    let element = (text(), text()).prop_map(|(h, g)| json!({"h": h, "g": g, "p": [h, g]}));
    (text(), text(), prop::collection::vec(element, 0..3)).prop_map(|(a, b, l)| {
        json!({"a": a, "b": b, "c": a, "l": l, "m": {"u": a, "v": b, "w": a}, "metadata": {"labels": {"k": "v"}}})
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let object = prop_oneof![1 => object().boxed(), 2 => tidy().boxed()];
    (any::<u8>(), 0_u8..24, prop::option::weighted(0.9, object)).prop_map(
        |(namespace, name, object)| Step {
            key: (namespace, name),
            object,
        },
    )
}

/// `p`, `q` and `list`.
pub(crate) fn parameters() -> impl Strategy<Value = [Value; 3]> {
    let list = prop::collection::vec(
        prop_oneof![3 => scalar().boxed(), 1 => element().boxed()],
        0..4,
    );
    (scalar(), value(), list).prop_map(|(p, q, list)| [p, q, Value::Array(list)])
}

fn text(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(texts).prop_map(str::to_owned)
}

/// A subexpression without the element.
fn operand() -> impl Strategy<Value = String> {
    text(&[
        "p",
        "p",
        "p",
        "q",
        "'u'",
        "'v'",
        "1",
        "1u",
        "1.0",
        "null",
        "list[0]",
        "list[0].h",
        "q.u",
        "list.size()",
        "view.size()",
        "18446744073709551615u",
        "some.size() > 1",
        "optional.of(p)",
        "p + p",
    ])
}

fn operands() -> impl Strategy<Value = String> {
    text(&[
        "list",
        "[p, q]",
        "[]",
        "['u', 1]",
        "list.map(r, r)",
        "list.map(r, r.h)",
        "q",
        "{'u': 1, 'v': 2}",
        "['u', list]",
    ])
}

/// A subexpression about the element `$`.
fn path() -> impl Strategy<Value = String> {
    text(&[
        "$.a",
        "$.a",
        "$.b",
        "$['a']",
        "$.m.u",
        "$.m['v']",
        "$.a.u",
        "$.?a.orValue('')",
        "$.?m.?u.orValue('v')",
        "$.?m.orValue({}).u",
        "$.?m.orValue({}).?u.orValue(1)",
        "$.?m.u.orValue('u')",
        "$.a.orValue('u')",
        "$.m.orValue({}).u",
        "$.?m.orValue(null).?u.orValue('v')",
        "$.a.?u.orValue('v')",
        "$.a.orValue(q.u)",
        "$.?a",
        "$.m.?u",
        "$.metadata.name",
        "$.metadata.labels.k",
    ])
}

fn lists() -> impl Strategy<Value = String> {
    text(&[
        "$.l",
        "$.l",
        "$.m",
        "$.?l.orValue([])",
        "$.l.orValue([])",
        "$.m.orValue({})",
        "$.?m.orValue({})",
        "$.a",
        "$.l.map(i, i.h)",
        "$.l.map(i, i)",
        "$.metadata.labels",
        "$.?l",
    ])
}

fn guard() -> impl Strategy<Value = String> {
    text(&[
        "has($.a)",
        "has($.m.u)",
        "has($.m)",
        "'u' in $.m",
        "'a' in $",
        "'u' in $.a",
        "has($.l)",
        "has($.c)",
    ])
}

/// A subexpression about an element of a list in the element.
fn inner() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        (
            text(&[
                "i.h",
                "i.g",
                "i",
                "i.?h.orValue('')",
                "i.?h.orValue('u')",
                "i.h.orValue('')",
                "i['h']"
            ]),
            operand()
        )
            .prop_map(|(path, operand)| format!("{path} == {operand}")),
        operands().prop_map(|operands| format!("i.h in {operands}")),
        operand().prop_map(|operand| format!("i.p.exists(j, j == {operand})")),
        operand().prop_map(|operand| format!("i.p.orValue([]).exists(j, j == {operand})")),
        operand().prop_map(|operand| format!("{operand} in i.p")),
        Just("i.h == $.a".to_owned()),
        Just("i == 'u'".to_owned()),
        operand().prop_map(|operand| format!("i.h != {operand}")),
    ]
    .boxed();
    prop_oneof![
        3 => atom.clone(),
        1 => atom.clone().prop_map(|atom| format!("has(i.h) && {atom}")),
        1 => atom.clone().prop_map(|atom| format!("'h' in i && {atom}")),
        1 => (atom.clone(), atom.clone()).prop_map(|(one, other)| format!("({one} && {other})")),
        1 => (atom.clone(), atom).prop_map(|(one, other)| format!("({one} || {other})")),
    ]
}

/// A condition about the element `$`.
fn condition() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        6 => (path(), operand(), any::<bool>()).prop_map(|(path, operand, turned)| match turned {
            true => format!("{operand} == {path}"),
            false => format!("{path} == {operand}"),
        }),
        1 => (path(), operand()).prop_map(|(path, operand)| format!("{path} != {operand}")),
        1 => (path(), operand()).prop_map(|(path, operand)| format!("{path} < {operand}")),
        2 => (path(), operands()).prop_map(|(path, operands)| format!("{path} in {operands}")),
        2 => (operand(), lists()).prop_map(|(operand, list)| format!("{operand} in {list}")),
        4 => (lists(), inner()).prop_map(|(list, inner)| format!("{list}.exists(i, {inner})")),
        2 => (lists(), inner()).prop_map(|(list, inner)| format!("{list}.all(i, {inner})")),
        1 => (operands(), path()).prop_map(|(list, path)| format!("{list}.exists(r, {path} == r)")),
        1 => (operands(), path()).prop_map(|(list, path)| format!("{list}.exists(r, r.h == {path})")),
        1 => (operands(), path()).prop_map(|(list, path)| format!("{list}.all(r, {path} != r)")),
        1 => (lists(), operands()).prop_map(|(of, list)| format!("{list}.exists(r, {of}.exists(i, i.h == r))")),
        1 => path().prop_map(|path| format!("view.exists(z, z.a == {path})")),
        1 => guard(),
    ];
    atom.prop_recursive(3, 12, 2, |part| {
        prop_oneof![
            (part.clone(), part.clone()).prop_map(|(one, other)| format!("({one} && {other})")),
            (part.clone(), part.clone()).prop_map(|(one, other)| format!("({one} || {other})")),
            (guard(), part.clone()).prop_map(|(guard, part)| format!("({guard} && {part})")),
            (guard(), part.clone()).prop_map(|(guard, part)| format!("({part} && {guard})")),
            (guard(), part.clone()).prop_map(|(guard, part)| format!("(!{guard} || {part})")),
            (guard(), part.clone()).prop_map(|(guard, part)| format!("({guard} ? {part} : false)")),
            part.prop_map(|part| format!("!({part})")),
        ]
    })
}

/// An expression over `view` and `some`, a part of it.
pub(crate) fn question() -> impl Strategy<Value = String> {
    let list = prop_oneof![4 => Just("view"), 1 => Just("some")];
    let one = (list, condition().prop_map(|text| text.replace('$', "x"))).boxed();
    prop_oneof![
        4 => one.clone().prop_map(|(list, body)| format!("{list}.exists(x, {body})")),
        2 => one.clone().prop_map(|(list, body)| format!("!{list}.exists(x, {body})")),
        3 => one.clone().prop_map(|(list, body)| format!("{list}.all(x, {body})")),
        2 => one.clone().prop_map(|(list, body)| format!("{list}.all(x, !({body}))")),
        1 => one.clone().prop_map(|(list, body)| format!("{list}.exists_one(x, {body})")),
        2 => one.clone().prop_map(|(list, body)| format!("{list}.filter(x, {body})")),
        1 => one.clone().prop_map(|(list, body)| format!("{list}.filter(x, {body}).size() > 0")),
        1 => one.clone().prop_map(|(list, body)| format!("{list}.map(x, {body}, x.a)")),
        1 => one.clone().prop_map(|(list, body)| format!("{list}.filter(x, {body}).exists(y, y.b == p)")),
        1 => one.clone().prop_map(|(list, body)| format!("{list}.exists(k, x, {body})")),
        2 => one.clone().prop_map(|(list, body)| {
            let body = body.replace("q", "r");
            format!("list.exists(r, {list}.exists(x, {body}))")
        }),
        1 => one.clone().prop_map(|(list, body)| {
            let body = body.replace("list[0]", "r");
            format!("!list.all(r, r != p && !{list}.exists(x, {body}))")
        }),
        1 => one.prop_map(|(list, body)| format!("{list}.map(x, x.metadata.name).size() > 1 || {list}.exists(x, {body})")),
    ]
}
