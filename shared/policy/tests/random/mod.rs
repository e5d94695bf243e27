//! Rules, facts and requests at random.

mod followed;

use anteroom_functions::query_functions;
use anteroom_jmespath::{Environment, EvalError, Expression, MissingKey};
use anteroom_model::FactError;
use anteroom_policy::{FactRequest, FactSubject, may_miss_key};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) policy: Value,
    pub(crate) request: Value,
    pub(crate) world: World,
}

/// The content of each source, or the error that it answers with.
#[derive(Clone, Debug)]
pub(crate) struct World {
    document: Value,
    /// The error of one source, and whether that is the source of `other`.
    broken: Option<(bool, FactError)>,
}

/// The projections of the global entries.
const PROJECTIONS: [(&str, &str); 3] = [
    ("rules", "items[].rules[]"),
    ("first", "items[0].labels"),
    ("hosts", "items[].rules[].host"),
];

impl World {
    /// Each source holds this.
    pub(crate) fn of(document: Value) -> Self {
        Self {
            document,
            broken: None,
        }
    }

    /// `None`: a part that is not to be had without the fact.
    pub(crate) fn answer(&self, need: &FactRequest) -> Option<Result<Value, FactError>> {
        if let Some((other, error)) = &self.broken
            && *other == need.subject.to_string().contains("other")
        {
            return Some(Err(error.clone()));
        }
        let expression = match need.expression.as_str() {
            "" => "@",
            expression => expression,
        };
        let projection = match &need.subject {
            FactSubject::Entry { projection, .. } => projection.as_str(),
            _ => "",
        };
        let text = match PROJECTIONS.iter().find(|(name, _)| *name == projection) {
            None => expression.to_owned(),
            Some((_, of)) if need.is_pushed_down && may_miss_key(of) => return None,
            Some((_, of)) if need.expression.is_empty() => (*of).to_owned(),
            Some((_, of)) => format!("({of}) | ({expression})"),
        };
        let missing_key = match need.missing_key_is_error {
            true => MissingKey::Error,
            false => MissingKey::Null,
        };
        let environment = Environment::standard()
            .with_functions(query_functions())
            .with_parameters(&need.parameters)
            .with_missing_key(missing_key);
        let expression = Expression::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        expression.check(query_functions()).unwrap();
        // The API server gives a list, whatever is in it.
        let empty = json!({"items": []});
        let is_call = !matches!(need.subject, FactSubject::Entry { .. });
        let document = match is_call && self.document.get("items").is_none() {
            true => &empty,
            false => &self.document,
        };
        let result = expression.evaluate_json(document, &environment);
        Some(result.map_err(|error| {
            let message = error.to_string();
            match error {
                EvalError::Budget { .. } => FactError::BudgetExceeded { message },
                _ => FactError::EvaluationFailed { message },
            }
        }))
    }
}

fn text() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "c", "a*", "?", "1-3", "[\"a\"]", "", "2"])
}

fn rule() -> impl Strategy<Value = Value> {
    let host =
        prop_oneof![4 => text().prop_map(Value::from), 1 => Just(json!(2)), 1 => Just(Value::Null)];
    let paths = prop::collection::vec(text(), 0..3);
    (host, paths, 0..4_u8, 0..5_u8).prop_map(|(host, paths, n, lacks)| {
        let mut rule = json!({"host": host, "paths": paths, "n": n});
        let lacks = ["host", "paths", "n"].get(usize::from(lacks));
        if let (Some(lacks), Some(rule)) = (lacks, rule.as_object_mut()) {
            rule.remove(*lacks);
        }
        rule
    })
}

fn object() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map(select(vec!["app", "tier"]), text(), 0..3);
    (prop::collection::vec(rule(), 0..3), labels, text()).prop_map(|(rules, labels, host)| {
        json!({"rules": rules, "labels": labels, "host": host, "hosts": [host, "b"]})
    })
}

fn document() -> impl Strategy<Value = Value> {
    prop_oneof![
        12 => prop::collection::vec(object(), 0..4).prop_map(|items| json!({"items": items})),
        1 => object(),
        1 => Just(json!({"items": null})),
        1 => Just(Value::Null),
    ]
}

/// Uses that can be asked for in place of a fact, most often.
const USES: [&str; 67] = [
    // A name that nobody knows is a key that is missing.
    "V || nobody",
    "V[0].host || nobody || 'x'",
    "V[0].host == nobody",
    "contains(V[].host, nobody)",
    "!nobody && V[].host",
    "V && nobody",
    "length(nobody || V)",
    "contains(V[].host, W[0].host)",
    "V[?host == 'H'].n && W[].rules[].host",
    "length(V) == length(W)",
    "V[0].host || W[0].host || 'x'",
    "[V][0] || W[].host",
    "V[]",
    "V[].host",
    "V[].rules[].host",
    "V[?host == 'H'].paths[]",
    "V[?host=='H'][].paths[]",
    "V[?host != 'H'].n",
    "V[0].host",
    "V[0].labels.app",
    "V[0]",
    "V.items[].host",
    "V[*].host",
    "V[1:].host",
    "V.items[?host=='H'].rules[]",
    "V.items",
    "V.app",
    "V.missing.deep",
    "V[].missing",
    "V[-1].host | [0]",
    "sort(V)",
    "V[].n | sort(@)",
    "length(V)",
    "max(V[].n)",
    "sum(V[].n)",
    "contains(V, 'H')",
    "V[].paths[]",
    "contains(V, request.object.host)",
    "contains(V[].host, request.object.host)",
    "(V)[0].host",
    "contains(V, request.object.missing)",
    "V[?contains(paths, 'H')].host",
    "map(&host, V)",
    "join(',', V)",
    "V == request.object.hosts",
    "V[0].n == request.object.n",
    "V[?n > `1`].host",
    "!V",
    "V[].n",
    "(V || request.object.hosts)[0]",
    "request.object.host && V[].host",
    "V[].host && request.object.host",
    "V && request.object.missing",
    "V[0].host && request.object.missing",
    "var || V[0].host",
    "V[?!host].n",
    "V[].paths[] | [?@ == 'H']",
    "V[?host == `\"H\"`].n",
    "V | [?@ == 'H'] | length(@)",
    "V[].hosts[]",
    "V[?host == 'W']",
    "request.object.rules[].host == V[].host",
    "V || `[]`",
    "V[].labels.app",
    "contains(request.object.hosts, V[0])",
    "V[0].host || V[1].host",
    "not_null(V[0].host, 'x')",
];

/// Uses that cannot, and expressions about something else.
const OTHERS: [&str; 25] = [
    "V",
    "V",
    "V.*",
    "V[0].*",
    "V[].*[]",
    "V.items[0].labels.*",
    "keys(V)",
    "keys(V[0])",
    "V[0].to_string(@)",
    "[V]",
    "{a: V}",
    "[V[0]]",
    "@",
    "to_string(V)",
    "V[].W",
    "contains(V, W)",
    "W",
    "V[0].labels.\"H\"",
    "V[{{ request.object.n }}]",
    "request.object.missing",
    "request.object.hosts",
    "W[0] || V",
    "V[].to_string(n)",
    "V || var",
    "sum(V)",
];

/// Text that is about a variable, `V`. `tidy`: that can be asked for.
fn about(depth: u32, tidy: bool) -> BoxedStrategy<String> {
    let others = if tidy { 0 } else { 2 };
    let simple = prop_oneof![3 => select(&USES[..]), others => select(&OTHERS[..])];
    let simple = simple.prop_map(str::to_owned).boxed();
    if depth == 0 {
        return simple;
    }
    let about = || about(depth - 1, tidy);
    let two = || (about(), about());
    prop_oneof![
        10 => simple,
        1 => two().prop_map(|(a, b)| format!("{a} || {b}")),
        1 => two().prop_map(|(a, b)| format!("({a}) && {b}")),
        1 => two().prop_map(|(a, b)| format!("({a}) == ({b})")),
        1 => about().prop_map(|a| format!("{a} | [0]")),
        1 => about().prop_map(|a| format!("{a} || `[]`")),
        1 => about().prop_map(|a| format!("length({a} || `[]`)")),
        1 => about().prop_map(|a| format!("({a})[?@ != 'b']")),
        1 => about().prop_map(|a| format!("{a} || 'none'")),
    ]
    .boxed()
}

/// An expression in a rule: its variables in the places of the letters.
fn expression(tidy: bool) -> impl Strategy<Value = String> {
    let value = select(vec![
        "{{ request.object.host }}",
        "{{ request.object.missing }}",
        "{{ request.object.n }}",
        "a",
        "{{ var }}",
        "{{ other[0].host }}",
        "{{ facts[0].host }}",
        "{{ element.host }}",
    ]);
    (
        about(2, tidy),
        value,
        select(vec!["facts", "facts", "facts", "other"]),
        any::<bool>(),
    )
        .prop_map(|(text, value, variable, other)| {
            let second = if other { "other" } else { "facts" };
            let text = text
                .replace('H', "\u{1}")
                .replace('V', variable)
                .replace('W', second);
            text.replace('\u{1}', value)
        })
}

fn operator() -> impl Strategy<Value = &'static str> {
    select(vec![
        "AnyIn",
        "AllIn",
        "AnyNotIn",
        "AllNotIn",
        "AnyIn",
        "AllIn",
        "AnyNotIn",
        "AllNotIn",
        "In",
        "NotIn",
        "Equals",
        "NotEquals",
        "GreaterThan",
        "LessThanOrEquals",
    ])
}

fn side(tidy: bool) -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => expression(tidy).prop_map(|text| format!("{{{{ {text} }}}}").into()),
        1 => expression(tidy).prop_map(|text| format!("x-{{{{ {text} }}}}").into()),
        1 => expression(tidy).prop_map(|text| json!([format!("{{{{ {text} }}}}"), "a"])),
        10 => plain(),
    ]
}

/// Something of the request.
fn plain() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!("{{ request.object.host }}")),
        3 => Just(json!("{{ request.object.hosts }}")),
        1 => Just(json!("{{ request.object.missing }}")),
        1 => Just(json!("{{ element.host }}")),
        1 => text().prop_map(Value::from),
        1 => prop::collection::vec(text(), 0..3).prop_map(Value::from),
        1 => select(vec![json!(1), json!(true), Value::Null, json!({"a": 1})]),
    ]
}

fn conditions(most: usize, tidy: bool) -> impl Strategy<Value = Value> {
    let whatever = (side(tidy), operator(), side(tidy));
    let of_facts = prop_oneof![
        1 => Just(json!("{{ facts }}")),
        2 => about(0, tidy).prop_map(|text| {
            let text = text.replace('H', "{{ request.object.host }}").replace(['V', 'W'], "facts");
            format!("{{{{ {text} }}}}").into()
        }),
    ];
    let members = select(vec![
        "AnyIn",
        "AllIn",
        "AnyNotIn",
        "AllNotIn",
        "In",
        "NotIn",
        "Equals",
        "NotEquals",
    ]);
    let asked =
        (plain(), members, of_facts, any::<bool>()).prop_map(|(plain, operator, facts, swap)| {
            if swap {
                (facts, operator, plain)
            } else {
                (plain, operator, facts)
            }
        });
    let one = prop_oneof![1 => whatever, 3 => asked].prop_map(
        |(key, operator, value)| json!({"key": key, "operator": operator, "value": value}),
    );
    let list = prop::collection::vec(one, 1..=most).boxed();
    (list.clone(), list, any::<bool>()).prop_map(|(any, all, both)| match both {
        true => json!({"any": any, "all": all}),
        false => json!({"all": all}),
    })
}

fn preconditions(tidy: bool) -> impl Strategy<Value = Value> {
    prop_oneof![4 => Just(json!([])), 1 => conditions(1, tidy)]
}

fn entry(name: &'static str, tidy: bool) -> impl Strategy<Value = Value> {
    let listed = select(vec![
        "items[]",
        "items[].rules[]",
        "items[].rules[].host",
        "items[].host || `[]`",
        "items[].rules[].host || 'a'",
        "items[?host == '{{ request.object.host }}'].rules[]",
        "items[].{paths: rules[].paths[], host: host}",
    ]);
    let own = select(vec![
        "",
        "items",
        "items[]",
        "items[].rules[]",
        "items[].rules[].host",
        "items[0].labels",
        "items[0]",
        "items[].host || `[]`",
        "items[].rules[].host || 'a'",
        "items[?host == '{{ request.object.host }}'].rules[].host || '1-3'",
        "items[?host == '{{ request.object.host }}'].rules[]",
        "items[].rules[] | [0]",
        "items[?labels.app == '{{ request.object.missing }}']",
        "{list: items}.list",
        "length(items)",
        "items[].missing",
        "missing",
        "items[0].labels.\"{{ request.object.host }}\"",
        "sort(items)",
        "items[].{paths: rules[].paths[], host: host}",
        "items[].hosts[]",
    ]);
    let own = prop_oneof![if tidy { 6 } else { 0 } => listed, 1 => own];
    let source = select(vec![
        json!({"cachedContextEntry": {"name": "entry"}}),
        json!({"globalReference": {"name": "entry"}}),
        json!({"globalReference": {"name": "entry.rules"}}),
        json!({"globalReference": {"name": "entry.first"}}),
        json!({"globalReference": {"name": "entry.hosts"}}),
        json!({"globalReference": {"name": "{{ request.object.entry }}"}}),
        json!({"apiCall": {"urlPath": "/api/v1/things"}}),
        json!({"apiCall": {"urlPath": "/api/v1/namespaces/{{ request.object.host }}/things", "default": ["a"]}}),
        json!({"apiCall": {"urlPath": "/api/v1/things", "default": "{{ request.object.hosts }}"}}),
        json!({"resourceCache": {"group": "", "version": "v1", "kind": "things"}}),
    ]);
    (own, source).prop_map(move |(own, source)| {
        let mut entry = source;
        if name == "other" {
            let text = entry.to_string();
            let text = text
                .replace("\"entry", "\"other")
                .replace("things", "others");
            entry = serde_json::from_str(&text).unwrap();
        }
        entry["name"] = name.into();
        for kind in [
            "cachedContextEntry",
            "globalReference",
            "apiCall",
            "resourceCache",
        ] {
            if let Some(loader) = entry.get_mut(kind)
                && !own.is_empty()
            {
                loader["jmesPath"] = own.into();
            }
        }
        entry
    })
}

fn variable(tidy: bool) -> impl Strategy<Value = Value> {
    (expression(tidy), 0..16_u8).prop_map(|(text, kind)| match kind {
        0 => json!({"name": "var", "variable": {"jmesPath": text}}),
        1 => json!({"name": "var", "variable": {"jmesPath": text, "default": "a"}}),
        2 => json!({"name": "var", "variable": {"value": format!("{{{{ {text} }}}}"), "jmesPath": "[0]", "default": "b"}}),
        _ => json!({"name": "var", "variable": {"value": "a"}}),
    })
}

fn message(tidy: bool) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("no".to_owned()),
        expression(tidy).prop_map(|text| format!("it is {{{{ {text} }}}}")),
    ]
}

fn validation(tidy: bool) -> impl Strategy<Value = Value> {
    let list = prop_oneof![
        3 => Just("request.object.rules".to_owned()),
        1 => expression(tidy),
    ];
    let pattern =
        expression(tidy).prop_map(|text| json!({"pattern": {"host": format!("{{{{ {text} }}}}")}}));
    let deny =
        || conditions(3, tidy).prop_map(|conditions| json!({"deny": {"conditions": conditions}}));
    prop_oneof![
        4 => deny(),
        1 => pattern,
        3 => (list, deny(), preconditions(tidy)).prop_map(|(list, mut each, preconditions)| {
            each["list"] = list.into();
            each["preconditions"] = preconditions;
            json!({"foreach": [each]})
        }),
    ]
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    prop_oneof![
        any::<bool>().prop_flat_map(case_of),
        any::<bool>().prop_flat_map(|tidy| (case_of(tidy), followed::rule()).prop_map(
            |(mut case, (variable, mut validate))| {
                let rule = &mut case.policy["spec"]["rules"][0];
                validate["allowExistingViolations"] = true.into();
                rule["context"][2] = variable;
                rule["preconditions"] = json!([]);
                rule["validate"] = validate;
                case
            }
        )),
    ]
}

fn case_of(tidy: bool) -> impl Strategy<Value = Case> {
    let rule = (
        entry("facts", tidy),
        entry("other", tidy),
        variable(tidy),
        preconditions(tidy),
        validation(tidy),
        message(tidy),
        any::<bool>(),
    );
    let rule = rule.prop_map(|(facts, other, variable, preconditions, mut validate, message, early)| {
        validate["message"] = message.into();
        validate["allowExistingViolations"] = early.into();
        json!({
            "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]}, "validate": validate,
            "context": [other, facts, variable], "preconditions": preconditions,
        })
    });
    let request = (
        object(),
        object(),
        select(vec!["CREATE", "UPDATE", "DELETE"]),
        0..3_u8,
    );
    let request = request.prop_map(|(mut object, old, operation, n)| {
        object["n"] = n.into();
        object["entry"] = ["entry", "entry.rules", "entry.first"][usize::from(n)].into();
        let (new, old) = match operation {
            "CREATE" => (object, Value::Null),
            "UPDATE" => (object, old),
            _ => (Value::Null, object),
        };
        json!({
            "uid": "u", "operation": operation, "name": "n", "namespace": "ns", "object": new, "oldObject": old,
            "kind": {"group": "", "version": "v1", "kind": "Thing"},
        })
    });
    let error = select(vec![
        FactError::NotSynced {
            view: "v".into(),
            state: "listing".into(),
        },
        FactError::ObjectNotFound {
            resource: "things".into(),
            namespace: String::new(),
            name: "x".into(),
        },
        FactError::EvaluationFailed {
            message: "no".into(),
        },
    ]);
    let broken = prop_oneof![
        6 => Just(None),
        1 => (any::<bool>(), error).prop_map(Some),
    ];
    (rule, request, document(), broken).prop_map(|(rule, request, document, broken)| Case {
        policy: json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"validationFailureAction": "Enforce", "rules": [rule]},
        }),
        request,
        world: World { document, broken },
    })
}
