//! With its counts replaced by what counters and indexes say, an expression's value is that of a scan,
//! errors included, whatever the expression, the objects and their changes. So is its value by slices.

use std::collections::{BTreeMap, HashMap};

use anteroom_jmespath::{Budget, Environment, Expression, MissingKey, Parameters as _};
use anteroom_model::{FactError, Shape};
use anteroom_plan::{
    ChainParameters, CountedExpression, Counter, CounterKey, Document, Index, IndexKey, NoPart,
    Operand, Scalar, Sliced, Whole, extract_counts, narrow,
};
use anteroom_view::{Select, Snapshot, testing::TestView};
use anteroom_wire::query::Selection;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    question::language,
    world::{Step, World},
};

/// One question, and where it is asked.
#[derive(Clone, Debug)]
struct Question {
    expression: String,
    missing_key_is_error: bool,
    selection: Selection,
}

type Bound = BTreeMap<String, Value>;

impl Question {
    fn environment<'e>(&self, parameters: &'e Bound) -> Environment<'e> {
        Environment {
            functions: anteroom_functions::query_functions(),
            parameters,
            missing_key: match self.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            ..Environment::standard()
        }
    }

    fn plain(
        &self,
        expression: &Expression,
        state: &Snapshot,
        bound: &Bound,
    ) -> Result<Bytes, FactError> {
        let select = Select::new(&self.selection)?;
        let selected = select.apply(state.read())?;
        selected.evaluate(expression, &self.environment(bound))
    }

    /// The expression with its counts bound to what counters and indexes say; `None` where one of them
    /// does not say.
    fn counted(
        &self,
        expression: &Expression,
        first: &Snapshot,
        state: &Snapshot,
        counters: &mut HashMap<CounterKey, Counter>,
    ) -> Option<(CountedExpression, Bound)> {
        let select = Select::new(&self.selection).unwrap();
        let read = state.read();
        let document = self.document(&select, state);
        let found = extract_counts(expression, document, ChainParameters::Refused)?;
        let namespace = select.whole_namespace(read)?;
        let (strict, bare) = (self.missing_key_is_error, select.is_bare(read));
        let mut bound = bound();
        for count in &found.counts {
            let number = if let Some(by_index) = &count.by_index {
                let key = IndexKey::of(&by_index.probe, strict, bare);
                let mut index = Index::new(key, language(), first);
                index.advance(state);
                let wanted = match &by_index.probe.operand {
                    Operand::Literal(value) => Scalar::of_json(value)?,
                    Operand::Parameter(name) => Scalar::of_json(&bound[name])?,
                };
                let agree = index.exact(&wanted).filter(|_| namespace.is_empty())? as u64;
                match by_index.negated {
                    true => read.len() as u64 - agree,
                    false => agree,
                }
            } else {
                let key = CounterKey::of(count, !namespace.is_empty(), strict, bare);
                let counter = counters.entry(key.clone()).or_insert_with(|| {
                    Counter::new(key, anteroom_functions::query_functions(), state).unwrap()
                });
                counter.advance(state);
                counter.count(namespace)?
            };
            let value = count.measure.value(number);
            assert!(bound.insert(count.parameter.clone(), value).is_none());
        }
        Some((found, bound))
    }

    /// Evaluates by slices of the list, cut where the numbers say; `None` where it takes the whole
    /// list.
    fn sliced(
        &self,
        expression: &Expression,
        state: &Snapshot,
        cuts: &[usize],
    ) -> Option<Result<Bytes, FactError>> {
        let select = Select::new(&self.selection).unwrap();
        let read = state.read();
        let sliced = Sliced::of(expression, self.document(&select, state))?;
        let bound = bound();
        let environment = self.environment(&bound);
        let objects: Vec<_> = read.objects().collect();
        let mut left = Environment::standard().budget;
        let mut parts = Vec::new();
        let mut rest = &objects[..];
        for cut in cuts.iter().chain([&usize::MAX]) {
            let (slice, behind) = rest.split_at((*cut).min(rest.len()));
            rest = behind;
            let selected = select.among(read, slice.iter().copied())?;
            match sliced.part(selected.array(), &environment, &mut left) {
                Ok(part) => parts.push(part),
                Err(NoPart::Failed) => return None,
                Err(NoPart::Budget(error)) => panic!("{error}"),
            }
        }
        let values = match sliced.whole(parts.iter())? {
            Whole::Result(bytes) => return Some(Ok(bytes)),
            Whole::Values(values) => values,
        };
        let names = sliced.counts().iter().map(|count| count.parameter.clone());
        let bound: Bound = bound.clone().into_iter().chain(names.zip(values)).collect();
        let none = select.among(read, [].iter())?;
        Some(none.evaluate(sliced.rest().unwrap(), &self.environment(&bound)))
    }

    fn document<'s>(&self, select: &Select, state: &'s Snapshot) -> Document<'s> {
        match select.shape() {
            Shape::Array => Document::Array,
            _ => Document::List {
                plural: select.plural(state.read()),
            },
        }
    }
}

fn bound() -> Bound {
    BTreeMap::from([("p".into(), json!("x")), ("q".into(), json!(1.0))])
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(json!(null)),
        1 => Just(json!(true)),
        4 => (-3_i64..4).prop_map(Value::from),
        2 => prop::sample::select(vec![1.0, 2.5, -0.0, 0.0, 0.1, 1e17]).prop_map(Value::from),
        4 => prop::sample::select(vec!["", "x", "xy", "n1", "1"]).prop_map(Value::from),
    ]
}

/// Generates objects whose fields mostly have a fixed type each, so that conditions and functions accept them.
fn object() -> impl Strategy<Value = Value> {
    let whole = prop_oneof![20 => (-3_i64..4).prop_map(Value::from), 1 => scalar()];
    let half = (-8_i32..8).prop_map(|n| json!(f64::from(n) / 2.0));
    let float = prop_oneof![20 => half, 1 => Just(json!(0.1)), 1 => scalar()];
    let text = prop_oneof![20 => prop::sample::select(vec!["x", "y", "", "xy"]).prop_map(Value::from), 1 => scalar()];
    let list = prop::collection::vec(
        (whole.clone(), text.clone()).prop_map(|(x, y)| json!({"x": x, "y": y})),
        0..3,
    );
    let optional = prop::option::weighted(0.8, whole);
    (
        optional,
        prop::option::of(float),
        prop::option::of(text),
        prop::option::of(list),
        prop::option::weighted(0.1, scalar()),
    )
        .prop_map(|(whole, float, text, list, other)| {
            let mut object = json!({"metadata": {}});
            let fields = [("w", whole), ("f", float), ("t", text), ("o", other)];
            for (name, value) in fields {
                if let Some(value) = value {
                    object[name] = value;
                }
            }
            if let Some(list) = list {
                object["list"] = list.into();
            }
            object
        })
}

fn step() -> impl Strategy<Value = Step> {
    let object = prop_oneof![3 => object().prop_map(Some), 1 => Just(None)];
    (any::<(u8, u8)>(), object).prop_map(|((namespace, name), object)| Step {
        key: (namespace, name % 6),
        object,
    })
}

fn condition() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "w",
        "t == 'x'",
        "w > `0`",
        "!(t)",
        "o.z == o.z && f",
        "list[?x == `1`]",
        "length(to_string(t)) > `1` || w",
        "to_number(t)",
        "abs(o)",
        "list[0].missing.x",
    ])
}

/// A chain over the list `L`, or something that is nearly one.
fn chain() -> impl Strategy<Value = String> {
    let link = prop_oneof![
        4 => prop::sample::select(vec!["[*].w", "[].w", "[].f", "[*].t", "[].list[].x", "[].list[].y"])
            .prop_map(str::to_owned),
        3 => (condition(), prop::sample::select(vec!["", ".w", ".t", ".list[]", ".{a: w, b: t}"]))
            .prop_map(|(condition, right)| format!("[?{condition}]{right}")),
        2 => prop::sample::select(vec!["[]", "[*]", "[].metadata.name", "[].[w, t]", "[].o", "[*].list", "[].f.to_string(@)", "[].[w, f][]", "[].[w, f][]", "[?t.to_string(@) == 'null']"])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["[:2].w", "[*].abs(w)[]", "[*].abs(w)", "[].metadata.*", "[0]", "[*].length(list)"])
            .prop_map(str::to_owned),
    ];
    let more = prop::sample::select(vec![
        "",
        "",
        "",
        "",
        "[]",
        " | [].x",
        " | [?@ != `1`]",
        " | []",
        "[0]",
        " | [?x].y",
        " || `[]`",
        " | not_null(@, `[]`, 'x')",
        " | to_array(@)",
        " | keep_only(@, `{\"x\": true, \"list\": {\"y\": {}}}`)",
    ]);
    (link, more).prop_map(|(link, more)| format!("(L{link}{more})"))
}

/// Something over chains, `C`.
fn form() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "length(C)",
        "C | length(@)",
        "C | length(@) > `3`",
        "sum(C)",
        "C | sum(@)",
        "avg(C)",
        "max(C)",
        "min(C)",
        "C | [min(@), max(@)]",
        "sort(C)",
        "sort(C)[-1]",
        "sort(C)[:2]",
        "C | {n: length(@), m: max(@)}",
        "C | {n: length(@), all: @}",
        "C | [length(@), @[0]]",
        "!C",
        "!(C) || 'some'",
        "C && 'some'",
        "C || 'none'",
        "C && C",
        "C == `[]`",
        "`[]` != C",
        "length(C) > length(C) && max(C)",
        "[length(C), sum(C), C]",
        "[length(L), (C | 'x')]",
        "{a: length(C), b: kind, c: max(C) || $p}",
        "length(L) > `3`",
        "C",
        "C",
        "L[?t == $p].{a: w, b: t}",
        "L[?w > $q].list[]",
        "L | length(@)",
        "!L",
        "L[?t == $p] | length(@)",
        "L[?t == $p] | length(@)",
        "L[?$p != t] | length(@) > `2`",
        "L[?w != $q] && 'some'",
        "!(L[?list[0].x == $q])",
        "length(L[?t == $p]) == length(C)",
        "max(C).y",
        "C | sort(@) | [0]",
        "kind && length(C)",
        "C | to_string(length(@))",
        "C | 'x'",
        "C | (length(@) | @ > `1`)",
        "things.length(C)",
        "things | length(C)",
        "things | [length(items), max(items[].w)]",
    ])
}

fn question() -> impl Strategy<Value = Question> {
    let list = prop::sample::select(vec!["items", "things.items", "(things | items)"]);
    let shape = prop::sample::select(vec![Shape::Document, Shape::List, Shape::Array]);
    let namespace = prop::sample::select(vec!["", "", "a", "b", "none"]);
    let labels = prop::sample::select(vec!["", "", "", "", "l=x"]);
    (
        (form(), list, shape),
        prop::collection::vec(chain(), 2),
        (namespace, labels, any::<bool>()),
    )
        .prop_map(
            |((form, list, shape), chains, (namespace, labels, missing))| {
                let mut chains = chains.iter().cycle();
                let mut expression = String::new();
                for part in form.split_inclusive('C') {
                    expression += part.strip_suffix('C').unwrap_or(part);
                    if part.ends_with('C') {
                        expression += chains.next().unwrap();
                    }
                }
                let list = match shape {
                    Shape::Array => "@",
                    _ => list,
                };
                Question {
                    expression: expression.replace('L', list),
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
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn counts_equal_those_of_a_scan(
        steps in prop::collection::vec(step(), 0..30),
        questions in prop::collection::vec((question(), any::<prop::sample::Index>()), 1..12),
        cuts in prop::collection::vec(0_usize..6, 0..5),
        built_in in any::<bool>(),
    ) {
        let mut world = World::new(if built_in { "apps" } else { "example.com" });
        steps.into_iter().for_each(|step| world.step(step));
        let mut counters = HashMap::new();
        let ends = [&world.states[0], world.states.last().unwrap()];
        let asked = questions.iter().flat_map(|(question, at)| {
            // Several states, so that counters are brought up and back.
            [ends[0], at.get(&world.states), ends[1], ends[0]].map(|state| (question, state))
        });
        for (question, state) in asked {
            let Ok(expression) = Expression::parse(&question.expression) else {
                panic!("{}", question.expression);
            };
            let first = &world.states[0];
            let answered = question.counted(&expression, first, state, &mut counters);
            let Some((found, bound)) = answered else {
                continue;
            };
            let plain = question.plain(&expression, state, &self::bound());
            let counted = question.plain(&found.rest, state, &bound);
            prop_assert_eq!(&counted, &plain, "{:?} as {}", question, found.rest);
            let select = Select::new(&question.selection).unwrap();
            let document = question.document(&select, state);
            if narrow(&found.rest, document).is_ok_and(|narrow| narrow.probes().is_empty()) {
                let none = select.among(state.read(), [].iter()).unwrap();
                let of_none = none.evaluate(&found.rest, &question.environment(&bound));
                prop_assert_eq!(&of_none, &plain, "{:?} of none as {}", question, found.rest);
            }
        }
        for (question, at) in &questions {
            let state = at.get(&world.states);
            let expression = Expression::parse(&question.expression).unwrap();
            if let Some(by_slices) = question.sliced(&expression, state, &cuts) {
                let plain = question.plain(&expression, state, &bound());
                prop_assert_eq!(&by_slices, &plain, "{:?} by slices", question);
            }
        }
        for (key, mut counter) in counters {
            let first = world.states.first().unwrap();
            counter.advance(first);
            let made = Counter::new(key, anteroom_functions::query_functions(), first).unwrap();
            prop_assert!(counter.bytes() <= made.bytes() + 4_096, "it gives back what it took");
        }
    }
}

/// The property would hold of an empty crate: many questions are really answered by counts, and most of
/// those without looking at any object.
#[test]
fn many_generated_questions_are_really_answered_by_counts() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut world = World::new("apps");
    for _ in 0..12 {
        world.step(step().new_tree(&mut runner).unwrap().current());
    }
    let state = world.states.last().unwrap();
    let (mut counted, mut of_none, mut fine, mut sliced) = (0, 0, 0, 0);
    let mut counters = HashMap::new();
    for _ in 0..1_000 {
        let question = question().new_tree(&mut runner).unwrap().current();
        let expression = Expression::parse(&question.expression).unwrap();
        sliced += usize::from(question.sliced(&expression, state, &[3, 0, 4]).is_some());
        let first = &world.states[0];
        let answered = question.counted(&expression, first, state, &mut counters);
        let Some((found, bound)) = answered else {
            continue;
        };
        counted += 1;
        assert!(
            found
                .rest
                .parameters()
                .all(|name| bound.parameter(name).is_some())
        );
        let select = Select::new(&question.selection).unwrap();
        let lookups = narrow(&found.rest, question.document(&select, state));
        of_none += usize::from(lookups.is_ok_and(|narrow| narrow.probes().is_empty()));
        fine += usize::from(question.plain(&expression, state, &bound).is_ok());
    }
    println!("{counted} counted, {sliced} sliced, {of_none} of none, {fine} fine");
    assert!(
        counted > 200 && sliced > 250,
        "{counted} and {sliced} of 1,000"
    );
    assert!(
        of_none > 150 && fine > 150,
        "{of_none} and {fine} of {counted}"
    );
}

/// A part of a slice is kept for the next request if it depends on nothing else.
#[test]
fn chains_and_counts_are_evaluated_slice_by_slice() {
    let mut world = World::new("example.com");
    for n in 0..5 {
        let object = json!({"w": n, "t": "x", "list": [{"x": n}]});
        world.step(Step {
            key: (0, n),
            object: Some(object),
        });
    }
    let state = world.states.last().unwrap();
    for (text, is_of_objects_alone) in [
        ("items[].w", true),
        ("items || `[]`", true),
        ("to_array(items)[].list[]", true),
        ("keep_only(items, `{\"w\": true}`)", true),
        ("items[?t == $p].w", false),
        ("length(items[].w) > `3`", false),
        ("items[?w > $q] | length(@)", false),
    ] {
        let question = Question {
            expression: text.to_owned(),
            missing_key_is_error: false,
            selection: Selection {
                shape: Shape::List,
                ..Selection::default()
            },
        };
        let expression = Expression::parse(text).unwrap();
        let plain = question.plain(&expression, state, &bound());
        let sliced = question.sliced(&expression, state, &[2, 0, 1]);
        assert_eq!(sliced, Some(plain), "{text}");
        let sliced = Sliced::of(&expression, Document::List { plural: None }).unwrap();
        assert_eq!(sliced.is_of_objects_alone(), is_of_objects_alone, "{text}");
    }
}

/// Otherwise the whole list would be evaluated once more, which costs no less.
#[test]
fn a_slice_beyond_its_budget_is_no_failure_of_the_expression() {
    let mut world = World::new("example.com");
    for n in 0..5 {
        let object = json!({"t": "x".repeat(1_000)});
        world.step(Step {
            key: (0, n),
            object: Some(object),
        });
    }
    let read = world.states.last().unwrap().read();
    let select = Select::new(&Selection {
        shape: Shape::Array,
        ..Selection::default()
    });
    let select = select.unwrap();
    let selected = select.among(read, read.objects()).unwrap();
    let expression = Expression::parse("[].t").unwrap();
    let sliced = Sliced::of(&expression, Document::Array).unwrap();
    let environment = Environment::standard();
    let parts = (0..1_000).map(|steps| {
        let mut left = Budget {
            steps,
            ..Budget::default()
        };
        let part = sliced.part(selected.array(), &environment, &mut left);
        part.map(|part| part.bytes())
    });
    let parts: Vec<Result<usize, NoPart>> = parts.collect();
    assert!(!parts.contains(&Err(NoPart::Failed)));
    assert!(matches!(parts[0], Err(NoPart::Budget(_))));
    assert!(parts[999].as_ref().is_ok_and(|bytes| *bytes > 5_000));
}

#[test]
fn a_counter_by_namespace_gives_back_the_memory_of_namespaces_that_are_gone() {
    let mut view = TestView::new("example.com", "things", "Thing");
    let namespace = "n".repeat(1_000);
    let without = view.snapshot();
    view.put(&namespace, "one", &json!({"w": 1}));
    let with = view.snapshot();
    let key = CounterKey {
        chain: "@".into(),
        by_namespace: true,
        missing_key_is_error: false,
        bare: false,
    };
    let functions = anteroom_functions::query_functions();
    let mut counter = Counter::new(key, functions, &without).unwrap();
    for _ in 0..3 {
        counter.advance(&with);
        assert!((1_000..2_000).contains(&counter.bytes()));
        counter.advance(&without);
        assert!(counter.bytes() < 1_000);
    }
}
