//! What everything rests on: over the objects that indexes find, an expression's value is what it is
//! over all objects, errors included, whatever the expression, the objects and their changes.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};

use anteroom_jmespath::{Environment, Expression, MissingKey};
use anteroom_model::{
    Collection, Delta, Digest, Epoch, FactError, GroupVersionResource, ObjectKey, Op,
    ResourceVersion, Revision, Shape, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_plan::{Document, Index, IndexKey, Lookup, Operand, Scalar, narrow};
use anteroom_view::{Object, Select, Snapshot, View};
use anteroom_wire::{body, query::Selection};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A view that changes, and every state that it had.
struct World {
    view: View,
    revision: u64,
    states: Vec<Snapshot>,
}

#[derive(Clone, Debug)]
struct Step {
    key: (u8, u8),
    /// `None`: it is deleted.
    object: Option<Value>,
}

impl World {
    fn new(group: &str) -> Self {
        let gvr = GroupVersionResource::new(group, "v1", "things");
        let info = SourceInfo {
            source: Source::Collection(Collection::all(gvr)),
            kind: "Thing".into(),
            namespaced: true,
        };
        let mut view = View::live(info.source.view_id());
        let record = ViewRecord {
            view: view.id().clone(),
            info,
            epoch: Epoch::new(1, 0),
            state: ViewState::Synced,
            version: ResourceVersion::new("1"),
            objects: 0,
            digest: Digest::EMPTY,
            origin: Epoch::default(),
            age_max_ms: None,
        };
        view.control(Revision(1), record);
        let states = vec![view.snapshot(0, 0).unwrap()];
        Self {
            view,
            revision: 1,
            states,
        }
    }

    fn step(&mut self, step: Step) {
        self.revision += 1;
        let (namespace, name) = (["a", "a-b", "b"][usize::from(step.key.0 % 3)], step.key.1);
        let name = format!("n{name}");
        let op = match step.object {
            None => Op::Delete,
            Some(mut object) => {
                object["metadata"]["name"] = name.clone().into();
                object["metadata"]["namespace"] = namespace.into();
                object["kind"] = "Thing".into();
                Op::Put(body::encode(&object).unwrap())
            }
        };
        let delta: Delta<Bytes> = Delta {
            key: ObjectKey::new(namespace, name),
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new(self.revision.to_string()),
            op,
        };
        self.view.apply(Revision(self.revision), &delta);
        self.states.push(self.view.snapshot(0, 0).unwrap());
    }
}

/// One question, and where it is asked.
#[derive(Clone, Debug)]
struct Question {
    expression: String,
    parameters: BTreeMap<String, Value>,
    missing_key_is_error: bool,
    selection: Selection,
}

impl Question {
    fn environment(&self) -> Environment<'_> {
        Environment {
            functions: anteroom_policy::query_functions(),
            parameters: &self.parameters,
            missing_key: match self.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            ..Environment::standard()
        }
    }

    fn scanned(&self, expression: &Expression, state: &Snapshot) -> Result<Bytes, FactError> {
        let select = Select::new(&self.selection)?;
        let selected = select.of(state.read())?;
        selected.evaluate(expression, &self.environment())
    }

    /// By indexes, which are kept from one state to the next; `None` where it takes a scan.
    fn looked_up(
        &self,
        expression: &Expression,
        state: &Snapshot,
        indexes: &mut HashMap<IndexKey, Index>,
    ) -> Option<Result<Bytes, FactError>> {
        let select = Select::new(&self.selection).unwrap();
        let read = state.read();
        let document = match select.shape() {
            Shape::Array => Document::Array,
            _ => Document::List {
                plural: select.plural(read),
            },
        };
        let lookups = narrow(expression, document)?;
        let mut found: Vec<Object> = Vec::new();
        for lookup in &lookups {
            let key = IndexKey::of(lookup, self.missing_key_is_error, select.is_bare(read));
            let index = indexes.entry(key.clone()).or_insert_with(|| {
                Index::new(key, anteroom_policy::query_functions(), state).unwrap()
            });
            index.advance(state);
            let value = self.operand(lookup)?;
            found.extend(index.find(Scalar::of_json(&value).as_ref()).cloned());
        }
        found.sort();
        found.dedup();
        let selected = select.among(read, found.iter())?;
        Some(selected.evaluate(expression, &self.environment()))
    }

    fn operand(&self, lookup: &Lookup) -> Option<Value> {
        match &lookup.operand {
            Operand::Literal(value) => Some(value.clone()),
            Operand::Parameter(name) => self.parameters.get(name).cloned(),
        }
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(1)),
        Just(json!(1.0)),
        Just(json!(2.5)),
        Just(json!("")),
        Just(json!("x")),
        Just(json!("xy")),
        Just(json!("n1")),
        Just(json!("a")),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::from),
        1 => scalar().prop_map(|value| json!({"x": value})),
        1 => prop::collection::vec(scalar().prop_map(|value| json!({"x": value})), 0..3)
            .prop_map(Value::from),
    ]
}

fn object() -> impl Strategy<Value = Value> {
    let fields = prop::collection::btree_map(
        prop_oneof![
            Just("a".to_owned()),
            Just("b".to_owned()),
            Just("list".to_owned())
        ],
        value(),
        0..4,
    );
    (fields, prop::option::of(scalar())).prop_map(|(fields, label)| {
        let mut object = json!(fields);
        object["metadata"] = json!({});
        if let Some(Value::String(label)) = label {
            object["metadata"]["labels"] = json!({"l": label});
        }
        object
    })
}

fn step() -> impl Strategy<Value = Step> {
    let object = prop_oneof![4 => object().prop_map(Some), 1 => Just(None)];
    (any::<(u8, u8)>(), object).prop_map(|((namespace, name), object)| Step {
        key: (namespace, name % 8),
        object,
    })
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "metadata.name",
        "metadata.namespace",
        "metadata.labels.l",
        "a",
        "b.x",
        "list",
        "list[].x",
        "list[0].x",
        "list[*].x | [0]",
        "kind",
        "missing.x",
        "missing.to_string(@)",
        "to_string(a)",
        "to_number(b)",
        "length(list)",
        "a || b",
        "a && b",
        "[a, b]",
        "{x: a}",
        "@",
    ])
    .prop_map(str::to_owned)
}

fn operand() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("$p".to_owned()),
        1 => Just("$q".to_owned()),
        2 => scalar().prop_map(|value| format!("`{value}`")),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let compare = |operator: &'static str| {
        (key(), operand(), any::<bool>()).prop_map(move |(key, operand, turned)| match turned {
            false => format!("({key}) {operator} {operand}"),
            true => format!("{operand} {operator} ({key})"),
        })
    };
    let leaf = prop_oneof![
        6 => compare("=="),
        1 => compare("!="),
        1 => compare(">"),
        3 => (key(), operand()).prop_map(|(key, operand)| format!("contains({key}, {operand})")),
        1 => key(),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|all| all.join(" && ")),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|all| format!("({})", all.join(" || "))),
            inner.prop_map(|inner| format!("!({inner})")),
        ]
    })
}

/// Something over the list, which is called `L` in it, with conditions for `C`.
fn form() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "L[?C]",
        "L[?C].a",
        "L[?C].metadata.name",
        "L[?C] | length(@)",
        "L[?C] || `[]` | [0]",
        "L[?C] | [0].b || 'none'",
        "L[?C].list[] | [?@ == $q]",
        "L[?C] | sort_by(@, &metadata.name) | [-1]",
        "L[?C].{n: metadata.name, a: a}",
        "L[] | [?C]",
        "L[*] | [?C].b",
        "L[?C] | [?C]",
        "[L[?C], L[?C]]",
        "{one: L[?C] | length(@), other: L[?C].a, kind: kind}",
        "length(L[?C])",
        "L[?C] && 'some'",
        "!(L[?C])",
        "L[?C][]",
        "L[?C].to_string(@)",
        "L[?C].sum([a, b])",
        "L[0]",
        "length(L)",
        "L[].a",
    ])
}

fn question() -> impl Strategy<Value = Question> {
    let list = prop::sample::select(vec!["items", "things.items", "things | items"]);
    let shape = prop::sample::select(vec![Shape::Document, Shape::List, Shape::Array]);
    let namespace = prop::sample::select(vec!["", "", "a", "b"]);
    let labels = prop::sample::select(vec!["", "", "", "l=x", "l!=x"]);
    let parameters = (value(), value());
    (
        (form(), list, shape),
        prop::collection::vec(condition(), 2),
        parameters,
        (namespace, labels, any::<bool>()),
    )
        .prop_map(
            |((form, list, shape), conditions, (p, q), (namespace, labels, missing))| {
                let list = match shape {
                    Shape::Array => "@",
                    _ => list,
                };
                let mut conditions = conditions.iter().cycle();
                let mut expression = String::new();
                for part in form.split_inclusive('C') {
                    match part.strip_suffix('C') {
                        Some(part) => {
                            expression += &part.replace('L', list);
                            expression += conditions.next().unwrap();
                        }
                        None => expression += &part.replace('L', list),
                    }
                }
                Question {
                    expression,
                    parameters: BTreeMap::from([("p".into(), p), ("q".into(), q)]),
                    missing_key_is_error: missing,
                    selection: Selection {
                        shape,
                        namespace: namespace.into(),
                        label_selector: labels.into(),
                        ..Selection::default()
                    },
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn what_indexes_find_is_all_that_matters(
        steps in prop::collection::vec(step(), 0..40),
        questions in prop::collection::vec((question(), any::<prop::sample::Index>()), 1..12),
        built_in in any::<bool>(),
    ) {
        let mut world = World::new(if built_in { "apps" } else { "example.com" });
        steps.into_iter().for_each(|step| world.step(step));
        let mut indexes = HashMap::new();
        for (question, at) in &questions {
            // Any state, so that indexes are brought up and back.
            let state = at.get(&world.states);
            let Ok(expression) = Expression::parse(&question.expression) else {
                panic!("{}", question.expression);
            };
            if let Some(found) = question.looked_up(&expression, state, &mut indexes) {
                prop_assert_eq!(found, question.scanned(&expression, state), "{:?}", question);
            }
        }
    }
}

/// The property would hold of an empty crate: most of the questions are really looked up.
#[test]
fn most_questions_are_looked_up() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut world = World::new("apps");
    for _ in 0..30 {
        world.step(step().new_tree(&mut runner).unwrap().current());
    }
    let state = world.states.last().unwrap();
    let (mut looked_up, mut left_out) = (0, 0);
    let mut indexes = HashMap::new();
    for _ in 0..1_000 {
        let question = question().new_tree(&mut runner).unwrap().current();
        let expression = Expression::parse(&question.expression).unwrap();
        if question
            .looked_up(&expression, state, &mut indexes)
            .is_some()
        {
            looked_up += 1;
        }
    }
    for index in indexes.values() {
        let found = index.find(Some(&Scalar::Text("n1".into()))).count();
        left_out += usize::from(found < state.read().len());
    }
    assert!(looked_up > 300, "{looked_up} of 1,000");
    assert!(
        left_out > indexes.len() / 2,
        "{left_out} of {}",
        indexes.len()
    );
}
