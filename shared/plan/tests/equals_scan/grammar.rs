//! Random objects, and random questions about them.

use std::collections::BTreeMap;

use anteroom_model::Shape;
use anteroom_wire::query::Selection;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{question::Question, world::Step};

fn scalar() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(1),
        json!(1.0),
        json!(2.5),
        json!(""),
        json!("x"),
        json!("x"),
        json!("xy"),
        json!("x*"),
        json!("?y"),
        json!("1"),
        json!("1.0"),
        json!("true"),
        json!("1-3"),
        json!("<nil>"),
        json!("n1"),
        json!("a"),
    ])
}

/// A value that an object may have anywhere.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::from),
        1 => scalar().prop_map(|value| json!({"x": value})),
        1 => prop::collection::vec(scalar().prop_map(|value| json!({"x": value})), 0..3)
            .prop_map(Value::from),
    ]
}

fn labels() -> impl Strategy<Value = Value> {
    let pairs = prop::collection::btree_map(
        prop::sample::select(vec!["k".to_owned(), "l".to_owned(), "m".to_owned()]),
        prop_oneof![6 => prop::sample::select(vec![json!("x"), json!("xy")]), 1 => value()],
        0..3,
    );
    prop_oneof![12 => pairs.prop_map(|pairs| json!(pairs)), 1 => scalar()]
}

/// A list, mostly of such things, of nulls and of others else; or none.
fn list(of: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    let of = of.boxed();
    let element = prop_oneof![
        10 => of.clone(),
        1 => Just(json!(null)),
        1 => scalar(),
        1 => prop::collection::vec(of, 0..2).prop_map(Value::from),
    ];
    prop_oneof![10 => prop::collection::vec(element, 0..4).prop_map(Value::from), 1 => value()]
}

fn path() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => scalar().prop_map(|path| json!({"path": path})),
        1 => (scalar(), scalar()).prop_map(|(path, x)| json!({"path": path, "x": x})),
        1 => Just(json!({})),
    ]
}

fn rule() -> impl Strategy<Value = Value> {
    let fields = (prop::option::of(value()), prop::option::of(list(path())));
    fields.prop_map(|(host, paths)| {
        let mut rule = json!({});
        if let Some(host) = host {
            rule["host"] = host;
        }
        if let Some(paths) = paths {
            rule["paths"] = paths;
        }
        rule
    })
}

pub(crate) fn object() -> impl Strategy<Value = Value> {
    let field = |name: &'static str, value: BoxedStrategy<Value>| {
        prop::option::weighted(0.6, value).prop_map(move |value| (name, value))
    };
    let fields = (
        field("a", value().boxed()),
        field("b", value().boxed()),
        field("list", list(value()).boxed()),
        field("rules", list(rule()).boxed()),
        field("selector", labels().boxed()),
        prop::option::of(labels()),
    );
    fields.prop_map(|(a, b, list, rules, selector, labels)| {
        let mut object = json!({"metadata": {}});
        for (name, value) in [a, b, list, rules, selector] {
            if let Some(value) = value {
                object[name] = value;
            }
        }
        if let Some(labels) = labels {
            object["metadata"]["labels"] = labels;
        }
        object
    })
}

/// An object as they are meant to be: no part is missing, or another than it should be. Nothing hides
/// there what an index finds wrongly.
fn tidy_object() -> impl Strategy<Value = Value> {
    let texts = || {
        let pairs = prop::collection::btree_map(
            prop::sample::select(vec!["k".to_owned(), "l".to_owned()]),
            prop::sample::select(vec![json!("x"), json!("xy")]),
            0..3,
        );
        pairs.prop_map(|pairs| json!(pairs))
    };
    let path = (scalar(), scalar()).prop_map(|(path, x)| json!({"path": path, "x": x}));
    let paths = prop::collection::vec(path, 0..3);
    let rule = (scalar(), paths).prop_map(|(host, paths)| json!({"host": host, "paths": paths}));
    let fields = (
        scalar(),
        scalar(),
        prop::collection::vec(scalar(), 0..3),
        prop::collection::vec(rule, 0..3),
        texts(),
        texts(),
    );
    fields.prop_map(|(a, b, list, rules, selector, labels)| {
        json!({
            "a": a, "b": b, "list": list, "rules": rules, "selector": selector,
            "metadata": {"labels": labels},
        })
    })
}

pub(crate) fn tidy_step() -> impl Strategy<Value = Step> {
    let object = prop_oneof![4 => tidy_object().prop_map(Some), 1 => Just(None)];
    (any::<(u8, u8)>(), object).prop_map(|((namespace, name), object)| Step {
        key: (namespace, name % 8),
        object,
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let object = prop_oneof![
        40 => object().prop_map(Some),
        10 => Just(None),
        // No API server has such an object.
        1 => value().prop_map(Some),
    ];
    (any::<(u8, u8)>(), object).prop_map(|((namespace, name), object)| Step {
        key: (namespace, name % 8),
        object,
    })
}

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "metadata.name",
        "metadata.namespace",
        "metadata.labels.l",
        "a",
        "b",
        "b.x",
        "x",
        "host",
        "path",
        "@",
        "list",
        "list[].x",
        "list[0].x",
        "list[*].x | [0]",
        "rules[].host",
        "rules[].paths[].path",
        "selector",
        "metadata.labels",
        "kind",
        "missing.x",
        "missing.to_string(@)",
        "to_string(a)",
        "to_number(b)",
        "length(list)",
        "length(list)[]",
        "abs(b)[?@]",
        "a || b",
        "a && b",
        "[a, b]",
        "{x: a}",
    ])
}

fn operand() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("$p".to_owned()),
        2 => Just("$q".to_owned()),
        2 => scalar().prop_map(|value| format!("`{value}`")),
    ]
}

/// A condition, on objects or on anything in them.
fn condition() -> impl Strategy<Value = String> {
    let compare = |operator: &'static str| {
        (key(), operand(), any::<bool>()).prop_map(move |(key, operand, turned)| match turned {
            false => format!("({key}) {operator} {operand}"),
            true => format!("{operand} {operator} ({key})"),
        })
    };
    let leaf = prop_oneof![
        8 => compare("=="),
        2 => compare("!="),
        1 => compare(">"),
        2 => (key(), operand()).prop_map(|(key, operand)| format!("contains({key}, {operand})")),
        1 => key().prop_map(|key| format!("contains($keys, {key})")),
        1 => key().prop_map(|key| format!("any_in($keys, {key})")),
        1 => key().prop_map(|key| format!("all_in($keys, {key})")),
        1 => key().prop_map(|key| format!("!({key} != $p)")),
        1 => Just("label_match(selector, $labels)".to_owned()),
        1 => Just("label_match($labels, metadata.labels)".to_owned()),
        1 => Just("label_match(selector || `{}`, $labels)".to_owned()),
        1 => key().prop_map(str::to_owned),
    ];
    let nested = leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.join(" && ")),
            2 => prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|all| format!("({})", all.join(" || "))),
            1 => inner.clone().prop_map(|inner| format!("!({inner})")),
            2 => inner.clone().prop_map(|inner| format!("rules[?{inner}]")),
            1 => inner.clone().prop_map(|inner| format!("(rules[?{inner}] | [0])")),
            1 => inner.clone().prop_map(|inner| format!("rules[?{inner}].host")),
            1 => inner.clone().prop_map(|inner| format!("rules[*].paths[?{inner}][]")),
            1 => inner.clone().prop_map(|inner| format!("(rules | [?{inner}].paths[].path)")),
            1 => inner.clone().prop_map(|inner| format!("(a | to_array(@) | [?{inner}])")),
            1 => inner.prop_map(|inner| format!("(b.x | [@, `1`] | [?{inner}] | [0])")),
        ]
    });
    nested.boxed()
}

/// A step on a list `S`, with conditions for `C` and keys for `K`.
fn link() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "S | [?C]",
        "S | [?C]",
        "S | [?C].K",
        "S | [?C][]",
        "S | [?C].rules[]",
        "(S)[?C]",
        "S | []",
        "S | [*]",
        "S | [].K",
        "S | [*].K",
        "S | [].rules[]",
        "S | [].rules[].host",
        "S | [].rules[].paths[].path",
        "S | [].list[]",
        "S | [].rules[?C]",
        "S | [].rules[?C][]",
        "S | [].rules[?C].host",
        "S | [].rules[?C].paths[].path",
        "S | [].rules[?C] | [].host",
        "S | [*].rules[].paths[?C][].path",
        "S | [*].rules[?C].paths[?C][].path",
        "S | [].{h: rules[?C] | [0].host, a: a}",
        "S | [].[rules[?C].host, a][]",
        "S | [].rules[?C] | [0]",
        "S | [].rules[?C] | [*].type(@)",
        "S | [].rules[?C] | [*].{n: length(@)}",
        "S | [?K != $p].b",
        "S | [?all_in($keys, list)]",
        "S | [?any_in($keys, list)].a",
        "S | [?contains($p, b)]",
        "S | [?metadata.name != $n].K",
        "S | [].rules[:2] | []",
        "S | [].rules[1:].host",
        "S | [].rules[:2].paths[?C][]",
        "S | [*].[K, $p]",
        "S | [*].[K][]",
        "S | [*].to_string(a)",
        "S | [?K].to_number(b)",
        "S | [*].length(list)",
        "S | [*].length(list)[]",
        "S | [?C].length(list)[]",
        "S | [].rules[].host.length(@)[]",
        "S | [].rules[?C].length(host)[]",
        "S | [?K].abs(b)[]",
        "S | [*].[abs(b)][]",
        "S | [*].[length(list), $p][]",
        "S | [0:3]",
        "S | [*].{x: K}",
        "S | [][]",
        "S | [].metadata.labels.*[]",
        "S | [].not_null(a, $p)",
        "S || `[]`",
        "(S || `[]`)[].rules[]",
        "not_null(S, `[]`, 'x')",
        "to_array(S)",
    ])
}

/// A question about lists `S`.
fn last() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "S",
        "S",
        "S | length(@)",
        "S || `[]` | length(@)",
        "(S)[0]",
        "S | [-1]",
        "S | [0].b || 'none'",
        "S | [?@ == $p] | length(@)",
        "S | [?@ != $p] | length(@)",
        "S | [?contains($keys, @)]",
        "any_in($keys, S)",
        "any_in($keys, (S))",
        "all_in($keys, (S))",
        "any_not_in($keys, (S))",
        "all_not_in($keys, (S))",
        "any_in($p, (S))",
        "all_not_in($p, (S))",
        "S | any_in($keys, @)",
        "S | any_not_in($p, [])",
        "contains((S), $p)",
        "contains((S), $q)",
        "!contains((S), $p)",
        "contains((S), $p) && any_in($keys, (S))",
        "[S, S]",
        "{one: S | length(@), other: S, kind: kind}",
        "S && 'some'",
        "!(S)",
        "(S) == $p",
        "S | map(&to_string(@), @)",
        "S | sort_by(@, &to_string(@)) | [-1]",
        "S | 'nothing'",
        "S | kind",
        "S | [length(@), `1`]",
    ])
}

/// A step that makes a list of members.
fn member_link() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "S | [].a",
        "S | [*].b",
        "S | [].list[]",
        "S | [].rules[].host",
        "S | [].rules[].paths[].path",
        "S | [?C].b",
        "S | [?a != $p].b",
        "S | [?a].b",
        "S | [?a != $p].metadata.namespace",
        "S | [?a > $p || b].metadata.namespace",
        "S | [?contains($keys, b)].metadata.namespace",
        "S | [].metadata.namespace",
        "S | [?metadata.name != $n].metadata.namespace",
        "S | [?metadata.name == $n || a == $p].metadata.namespace",
        "S | [?metadata.name != $n].list[]",
        "S | [?metadata.name != $n].rules[].host",
        "S | [].rules[?C][].host",
        "S | [].rules[] | [?host != $p].paths[].path",
        "S | [].[a, b][]",
        "S | [].[a, $p][]",
        "S | [].length(list)[]",
        "S | [?C].abs(b)[]",
        "S | [?C].list.length(@)[]",
    ])
}

/// A question about members.
fn member_last() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "any_in($keys, S)",
        "all_in($keys, S)",
        "any_not_in($keys, S)",
        "all_not_in($keys, S)",
        "any_in($p, S)",
        "S | all_not_in($keys, @)",
        "contains(S, $p)",
        "contains(S, $q) && any_in($keys, S)",
        "any_not_in($keys, S || `[]`)",
        "is_in($keys, S)",
        "is_in($p, S)",
        "is_not_in($keys, S)",
        "is_not_in($q, S)",
        "equals(S, $p) || not_equals($keys, S)",
        "S | (!!@ && all_not_in($keys, @) || !@ && all_not_in($keys, 'x'))",
    ])
}

fn list_expression() -> impl Strategy<Value = String> {
    let links = prop_oneof![
        2 => prop::collection::vec(link(), 0..2),
        5 => prop::collection::vec(link(), 1..3),
        2 => prop::collection::vec(link(), 2..4),
    ];
    linked(links)
}

fn linked(links: impl Strategy<Value = Vec<&'static str>>) -> impl Strategy<Value = String> {
    let conditions = prop::collection::vec(condition(), 4);
    (links, conditions, prop::collection::vec(key(), 4)).prop_map(|(links, conditions, keys)| {
        let (mut conditions, mut keys) = (conditions.iter().cycle(), keys.iter().cycle());
        links.into_iter().fold("L".to_owned(), |list, link| {
            let mut text = String::new();
            for character in link.chars() {
                match character {
                    'S' => text += &list,
                    'C' => text += conditions.next().unwrap(),
                    'K' => text += &called(keys.next().unwrap()),
                    other => text.push(other),
                }
            }
            text
        })
    })
}

/// A subexpression that may follow a dot.
fn called(key: &str) -> String {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'.';
    match key.bytes().all(is_name) {
        true => key.to_owned(),
        false => format!("[{key}] | [0]"),
    }
}

fn keys() -> impl Strategy<Value = Value> {
    let text = prop::sample::select(vec![
        json!("x"),
        json!("xy"),
        json!("a"),
        json!("b*"),
        json!("x?"),
        json!("*y"),
        json!("*"),
        json!("1*"),
        json!("1"),
        json!("tr*"),
        json!("none"),
        json!("2"),
    ]);
    let element = prop_oneof![4 => text.clone(), 1 => value()];
    prop_oneof![
        5 => prop::collection::vec(element, 0..4).prop_map(Value::from),
        3 => text,
        1 => value(),
    ]
}

pub(crate) fn question() -> impl Strategy<Value = Question> {
    let members = linked(prop::collection::vec(member_link(), 1));
    prop_oneof![
        3 => question_of(last(), list_expression()),
        2 => question_of(member_last(), members),
    ]
}

fn question_of(
    last: impl Strategy<Value = &'static str>,
    list: impl Strategy<Value = String>,
) -> impl Strategy<Value = Question> {
    let names = prop::sample::select(vec!["n0", "n1", "n2", "n3"]);
    let root = prop::sample::select(vec!["items", "things.items", "(things | items)"]);
    let shape = prop::sample::select(vec![Shape::Document, Shape::List, Shape::Array]);
    let namespace = prop::sample::select(vec!["", "", "", "a", "b"]);
    let label_selector = prop::sample::select(vec![
        "",
        "",
        "",
        "",
        "l=x",
        "l!=x",
        "l in (x, xy)",
        "k=x,l=xy",
    ]);
    let field_selector = prop::sample::select(vec!["", "", "", "", "", "metadata.name=n1"]);
    (
        (last, prop::collection::vec(list, 2), root, shape),
        (value(), value(), keys(), labels(), names),
        (namespace, label_selector, field_selector),
        (any::<bool>(), 0..4_usize),
    )
        .prop_map(
            |(
                (last, lists, root, shape),
                (p, q, keys, labels, n),
                (namespace, label_selector, field_selector),
                (missing_key_is_error, way),
            )| {
                let root = match shape {
                    Shape::Array => "@",
                    _ => root,
                };
                let mut lists = lists.iter().cycle();
                let mut expression = String::new();
                for character in last.chars() {
                    match character {
                        'S' => {
                            let list = lists.next().unwrap().replace('L', root);
                            expression += &format!("({list})");
                        }
                        other => expression.push(other),
                    }
                }
                Question {
                    expression,
                    parameters: BTreeMap::from([
                        ("p".into(), p),
                        ("q".into(), q),
                        ("keys".into(), keys),
                        ("labels".into(), labels),
                        ("n".into(), n.into()),
                    ]),
                    missing_key_is_error,
                    selection: Selection {
                        shape,
                        namespace: namespace.into(),
                        label_selector: label_selector.into(),
                        field_selector: field_selector.into(),
                        ..Selection::default()
                    },
                    way,
                }
            },
        )
}
