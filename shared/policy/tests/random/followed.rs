//! Rules that go through a fact element by element, or by way of a variable.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::plain;

/// Uses of a fact that is followed through the rule: of elements, and of a variable.
const FOLLOWED: [&str; 36] = [
    "element.host",
    "element.host",
    "element.n",
    "element.labels.app",
    "element.rules[].host",
    "element.rules[?n > `1`].paths[]",
    "element.rules[0].host || 'x'",
    "length(element.rules)",
    "length(element.rules[])",
    "!element.rules",
    "element.labels.* | [0]",
    "element.labels",
    "element.missing",
    "element.missing.deep || 'x'",
    "element[0]",
    "element.rules[].[host, n][]",
    "element.{a: host, b: labels.app}",
    "type(element)",
    "to_string(element.labels)",
    "element",
    "var.host",
    "var[].host",
    "var[0].host || 'a'",
    "var.labels.app",
    "length(var)",
    "(var || facts)[].host",
    "(facts && var).host",
    "var.rules[].n | sum(@)",
    "var",
    "keys(var)",
    "facts[].host",
    "facts[?host == '{{ element.host }}'].n",
    "length(facts)",
    "facts[].labels.app",
    "facts.items[].rules[].n",
    "(facts[].rules[] || other)[0].host",
];

/// A rule that goes through a fact element by element.
pub(super) fn rule() -> impl Strategy<Value = (Value, Value)> {
    let list = select(vec![
        "facts",
        "facts",
        "facts[]",
        "facts[?host != 'b']",
        "facts[].rules[]",
        "facts.items",
        "facts[0].rules",
        "var",
        "var.rules[]",
        "(var || facts)",
        "facts || `[]`",
    ]);
    let variable = select(vec![
        "facts[0]",
        "facts[1:]",
        "facts[?n == `1`]",
        "facts[0].labels || `{}`",
        "facts | [0].rules",
        "facts",
        "facts[0].missing",
        "element.rules",
        "length(facts)",
    ]);
    let about = || select(&FOLLOWED[..]);
    let side = (about(), plain(), 0..4_u8).prop_map(|(about, plain, kind)| match kind {
        0 => plain,
        _ => format!("{{{{ {about} }}}}").into(),
    });
    let operator = select(vec![
        "AnyIn",
        "AnyNotIn",
        "AllNotIn",
        "Equals",
        "NotEquals",
        "NotEquals",
        "GreaterThan",
    ]);
    let condition = (about(), operator, side).prop_map(
        |(key, operator, value)| json!({"key": format!("{{{{ {key} }}}}"), "operator": operator, "value": value}),
    );
    let conditions = prop::collection::vec(condition, 1..3);
    let message = prop_oneof![
        2 => Just("no".to_owned()),
        1 => about().prop_map(|about| format!("it is {{{{ {about} }}}}")),
    ];
    let parts = (
        list,
        variable,
        conditions,
        about(),
        message,
        0..8_u8,
        0..3_u8,
    );
    parts.prop_map(|(list, variable, conditions, about, message, kind, default)| {
        let mut variable = json!({"name": "var", "variable": {"jmesPath": variable}});
        if default == 0 {
            variable["variable"]["default"] = "a".into();
        }
        let each = match kind {
            0 => json!({"list": list, "pattern": {"host": "?*"}}),
            1 => json!({"list": list, "pattern": {"n": format!("{{{{ {about} }}}}")}}),
            2 => json!({"list": list, "elementScope": false, "pattern": {"host": format!("{{{{ {about} }}}}")}}),
            3 => json!({"list": list, "context": [variable.clone()], "deny": {"conditions": {"any": conditions}}}),
            _ => json!({"list": list, "deny": {"conditions": {"any": conditions}}}),
        };
        (variable, json!({"message": message, "foreach": [each]}))
    })
}
