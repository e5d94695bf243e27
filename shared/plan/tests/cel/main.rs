//! CEL over the objects of a view: by indexes, by looking through all objects, and over the same objects as
//! JSON. All three come to the same, the first error included, whatever the expression, the objects and their
//! changes.
#![allow(clippy::unwrap_used)]

mod grammar;
mod host;
mod lists;

use anteroom_cel::{Budget, Dialect, Input, JsonError, Machine, Names, Program, Roots};
use anteroom_model::Shape;
use anteroom_plan::ViewList;
use anteroom_view::{Lazy, Select, Snapshot, testing::TestView};
use anteroom_wire::{body, query::Selection};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use serde_json::{Value, json};

use grammar::{Step, parameters, question, step};
use host::Host;

type Outcome = Result<Value, JsonError>;

/// The dialects in which an expression is compiled: `orValue` takes plain values in one of them.
const DIALECTS: [Dialect; 2] = [Dialect::Kubernetes, Dialect::Kyverno];

fn compiled(source: &str, dialect: Dialect) -> Option<Program> {
    let mut names = Names::default().in_dialect(dialect).without_request();
    ["view", "some", "p", "q", "list"]
        .into_iter()
        .for_each(|name| names.add_input(name));
    Program::compile(source, &names).ok()
}

fn evaluated(program: &Program, given: &[Input<'_>]) -> (Outcome, u64) {
    let mut machine = Machine::new(Roots::default(), &[], Budget::default()).with_inputs(given);
    let outcome = machine.exact_json(program);
    let steps = Budget::default().steps - machine.budget().steps;
    (outcome, steps)
}

fn select(namespace: &str, label_selector: &str) -> Select {
    Select::new(&Selection {
        shape: Shape::Array,
        namespace: namespace.into(),
        label_selector: label_selector.into(),
        ..Selection::default()
    })
    .unwrap()
}

/// By the lists of a view, and what it took.
fn by_lists(
    program: &Program,
    state: &Snapshot,
    host: &Host,
    parameters: &[Value; 3],
) -> (Outcome, u64) {
    let selects = [select("", ""), select("a", "k=v")];
    host.is_of(state);
    let lists: Vec<_> = selects
        .iter()
        .map(|select| match select.lazy(state.read()).unwrap() {
            Lazy::List(objects) => ViewList::new(objects, host),
            Lazy::One(_) => panic!("a list"),
        })
        .collect();
    let mut given: Vec<_> = lists.iter().map(|list| Input::objects(list)).collect();
    given.extend(parameters.iter().map(Input::json));
    evaluated(program, &given)
}

fn by_json(program: &Program, state: &Snapshot, parameters: &[Value; 3]) -> Outcome {
    let json = |select: &Select| {
        let Lazy::List(objects) = select.lazy(state.read()).unwrap() else {
            panic!("a list");
        };
        let objects = objects
            .iter()
            .map(|object| body::to_json(object.body()).unwrap());
        Value::Array(objects.collect())
    };
    let lists = [json(&select("", "")), json(&select("a", "k=v"))];
    let given: Vec<_> = lists.iter().chain(parameters).map(Input::json).collect();
    evaluated(program, &given).0
}

fn states(steps: Vec<Step>) -> Vec<Snapshot> {
    let mut view = TestView::new("example.com", "things", "Thing");
    let mut states = vec![view.snapshot()];
    for step in steps {
        let namespace = ["a", "a-b", "b"][usize::from(step.key.0 % 3)];
        let name = format!("n{}", step.key.1);
        match step.object {
            None => view.delete(namespace, &name),
            Some(mut object) => {
                object["metadata"]["name"] = name.clone().into();
                object["metadata"]["namespace"] = namespace.into();
                view.put(namespace, &name, &object);
            }
        }
        states.push(view.snapshot());
    }
    states
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn indexes_scans_and_json_come_to_the_same(
        steps in prop::collection::vec(step(), 40..120),
        questions in prop::collection::vec(
            (question(), prop::sample::select(&DIALECTS), parameters(), any::<prop::sample::Index>(), 0_u8..4),
            1..12,
        ),
    ) {
        let states = states(steps);
        let (indexed, scanning) = (Host::new(), Host::scanning());
        for (source, dialect, parameters, at, lost) in &questions {
            let Some(program) = compiled(source, *dialect) else {
                continue; // Types that do not fit.
            };
            // Any state, so that indexes are brought up and back; and an index may be gone at any time.
            let state = at.get(&states);
            indexed.lose_one_in(*lost);
            let (found, _) = by_lists(&program, state, &indexed, parameters);
            let (scanned, _) = by_lists(&program, state, &scanning, parameters);
            prop_assert_eq!(&found, &scanned, "{} {:?}", source, parameters);
            let whole = by_json(&program, state, parameters);
            prop_assert_eq!(&found, &whole, "{} {:?}", source, parameters);
        }
    }
}

/// The property would hold of lists that never ask: many questions are answered by an index, with values and errors.
#[test]
fn many_questions_are_answered_by_indexes() {
    let mut runner = TestRunner::deterministic();
    let mut draw = |strategy: &dyn Fn(&mut TestRunner) -> Step| strategy(&mut runner);
    let steps = (0..100).map(|_| draw(&|runner| step().new_tree(runner).unwrap().current()));
    let states = states(steps.collect());
    let state = states.last().unwrap();
    let host = Host::new();
    let (mut asked, mut cheaper, mut values, mut failed) = (0, 0, 0, 0);
    for _ in 0..2_000 {
        let source = question().new_tree(&mut runner).unwrap().current();
        let Some(program) = compiled(&source, Dialect::Kyverno) else {
            continue;
        };
        let parameters = parameters().new_tree(&mut runner).unwrap().current();
        let before = host.answered();
        let (found, steps) = by_lists(&program, state, &host, &parameters);
        if host.answered() == before {
            continue;
        }
        asked += 1;
        let (_, scanned) = by_lists(&program, state, &Host::scanning(), &parameters);
        cheaper += usize::from(steps < scanned);
        failed += usize::from(found.is_err());
        values += usize::from(found.is_ok_and(|value| value != json!(false) && value != json!([])));
    }
    println!(
        "{asked} by an index, {cheaper} of them cheaper, {values} with a value, {failed} failed"
    );
    assert!(asked > 250, "{asked} of 2,000");
    assert!(cheaper > asked / 2, "{cheaper} of {asked}");
    assert!(values > asked / 10, "{values} of {asked}");
    assert!(failed > asked / 20, "{failed} of {asked}");
}

/// A host is unique among hosts, half of the objects lack it, and the cost is that of a few objects.
#[test]
fn irregular_objects_do_not_make_a_lookup_linear() {
    let mut costs = Vec::new();
    for count in [200, 2_000] {
        let mut view = TestView::new("networking.k8s.io", "ingresses", "Ingress");
        for at in 0..count {
            let object = match at % 2 {
                0 => json!({"spec": {"rules": [{"host": format!("h{at}.example")}]}}),
                _ => json!({"spec": {"rules": [{"http": {}}]}}),
            };
            view.put("a", &format!("n{at}"), &object);
        }
        let (state, host) = (view.snapshot(), Host::new());
        for (source, dialect) in [
            (
                "view.exists(x, x.spec.rules.exists(r, r.host == p))",
                Dialect::Kubernetes,
            ),
            (
                "view.orValue([]).exists(x, x.spec.rules.orValue([]).exists(r, r.host == p))",
                Dialect::Kyverno,
            ),
        ] {
            let program = compiled(source, dialect).unwrap();
            for (host_name, expected) in [
                ("h10.example", Ok(json!(true))),
                ("none.example", Err("no such key: host".to_owned())),
            ] {
                let parameters = [json!(host_name), json!(null), json!([])];
                let (outcome, steps) = by_lists(&program, &state, &host, &parameters);
                assert_eq!(outcome.map_err(|error| error.to_string()), expected);
                costs.push(steps);
            }
        }
        let guarded = "view.exists(x, x.spec.rules.exists(r, has(r.host) && r.host == p))";
        let parameters = [json!("none.example"), json!(null), json!([])];
        let (outcome, steps) = by_lists(
            &compiled(guarded, Dialect::Kubernetes).unwrap(),
            &state,
            &host,
            &parameters,
        );
        assert_eq!(outcome, Ok(json!(false)));
        costs.push(steps);
    }
    assert_eq!(
        costs[..5],
        costs[5..],
        "as many steps, whatever the number of objects"
    );
    assert!(costs.iter().all(|steps| *steps < 40), "{costs:?}");
}

/// All objects have one path and most are in another namespace: an answer looks at the first of them, or at those of its
/// own namespace.
#[test]
fn a_value_that_all_objects_have_does_not_make_a_lookup_linear() {
    let mut examined = Vec::new();
    for count in [400, 4_000] {
        let mut view = TestView::new("networking.k8s.io", "ingresses", "Ingress");
        for at in 0..count {
            let namespace = if at % (count / 40) == 0 { "b" } else { "a" };
            view.put(namespace, &format!("n{at:04}"), &json!({"a": "u", "b": at}));
        }
        let (state, host) = (view.snapshot(), Host::new());
        let selects = [select("", ""), select("b", "")];
        host.is_of(&state);
        for (source, expected) in [
            ("view.exists(x, x.a == 'u')", json!(true)),
            ("view.exists(x, x.a == 'u' && x.b >= 5)", json!(true)),
            ("view.all(x, x.a != 'u')", json!(false)),
            ("some.exists(x, x.a == 'u' && x.b < 0)", json!(false)),
            ("some.filter(x, x.a == 'u').size()", json!(40)),
        ] {
            let lists: Vec<_> = selects
                .iter()
                .map(|select| match select.lazy(state.read()).unwrap() {
                    Lazy::List(objects) => ViewList::new(objects, &host),
                    Lazy::One(_) => panic!("a list"),
                })
                .collect();
            let given: Vec<_> = lists.iter().map(|list| Input::objects(list)).collect();
            let mut names = Names::default().without_request();
            ["view", "some"]
                .into_iter()
                .for_each(|name| names.add_input(name));
            let program = Program::compile(source, &names).unwrap();
            assert_eq!(evaluated(&program, &given).0, Ok(expected), "{source}");
            examined.push(lists[0].examined() + lists[1].examined());
        }
    }
    assert_eq!(
        examined[..5],
        examined[5..],
        "whatever the number of objects"
    );
    assert!(
        examined.iter().all(|looked_at| *looked_at <= 80),
        "{examined:?}"
    );
}

/// All fields of an optional lead to its `orValue`: one that is missing before the last is no error, and may decide.
#[test]
fn a_field_that_is_missing_within_an_optional_has_the_value_of_its_end() {
    let mut view = TestView::new("example.com", "things", "Thing");
    for at in 0..40 {
        view.put("a", &format!("n{at:02}"), &json!({"m": {"u": "u"}}));
    }
    view.put("a", "z", &json!({"a": []}));
    let (state, host) = (view.snapshot(), Host::new());
    let parameters = [json!("u"), json!(null), json!([])];
    for (source, expected) in [
        (
            "view.exists(x, x.a.size() == 0 && x.?m.u.orValue('u') == p)",
            true,
        ),
        (
            "view.all(x, x.a.size() > 0 || x.?m.u.orValue('u') != p)",
            false,
        ),
    ] {
        let program = compiled(source, Dialect::Kubernetes).unwrap();
        let (found, _) = by_lists(&program, &state, &host, &parameters);
        let whole = by_json(&program, &state, &parameters);
        assert_eq!(found, Ok(json!(expected)), "{source}");
        assert_eq!(found, whole, "{source}");
    }
}

/// A scalar has no fields. Whether that is an error, or decides, depends on how they are asked for.
#[test]
fn a_scalar_in_the_place_of_a_map_counts_as_where_all_objects_are_looked_at() {
    let mut view = TestView::new("example.com", "things", "Thing");
    for at in 0..40 {
        let object = json!({"l": [{"h": "x"}], "m": {"u": "v"}, "n": {}});
        view.put("a", &format!("n{at:02}"), &object);
    }
    // An error for whoever reads a field of the list, before the scalars.
    view.put("b", "list", &json!({"l": [[]], "m": [], "n": {}}));
    for (at, scalar) in [json!("u"), json!(1), json!(null), json!(true)]
        .iter()
        .enumerate()
    {
        let object = json!({"l": [scalar], "m": scalar, "n": {"d": 1}});
        view.put("c", &format!("z{at}"), &object);
    }
    view.put("d", "none", &json!({"l": [], "n": {}}));
    let (state, host) = (view.snapshot(), Host::new());
    let parameters = [json!("d"), json!(null), json!([])];
    let error = |outcome: &Outcome| matches!(outcome, Err(JsonError::Failed(_)));
    for (source, dialect, expected) in [
        (
            "view.exists(x, x.l.exists(i, i.?h.orValue('d') == p))",
            Dialect::Kubernetes,
            Some(true),
        ),
        (
            "view.all(x, x.l.all(i, i.?h.orValue('d') != p))",
            Dialect::Kubernetes,
            Some(false),
        ),
        (
            "view.exists(x, x.?m.?u.orValue('d') == p)",
            Dialect::Kyverno,
            Some(true),
        ),
        (
            "view.exists(x, x.?m.orValue(null).?u.orValue('d') == p)",
            Dialect::Kubernetes,
            Some(true),
        ),
        (
            "view.exists(x, x.n.exists(k, k.?u.orValue('d') == p))",
            Dialect::Kubernetes,
            Some(true),
        ),
        (
            "view.exists(x, x.n.exists(k, k == p))",
            Dialect::Kubernetes,
            Some(true),
        ),
        (
            "view.exists(x, x.l.exists(i, i.h == p))",
            Dialect::Kubernetes,
            None,
        ),
        (
            "view.exists(x, 'u' in x.m && x.m.u == p)",
            Dialect::Kubernetes,
            None,
        ),
        (
            "view.exists(x, x.l.exists(i, 'h' in i && i.h == p))",
            Dialect::Kubernetes,
            None,
        ),
        (
            "view.filter(x, has(x.m)).exists(x, x.m.u == p)",
            Dialect::Kubernetes,
            None,
        ),
    ] {
        let program = compiled(source, dialect).unwrap();
        let (found, _) = by_lists(&program, &state, &host, &parameters);
        match expected {
            Some(expected) => assert_eq!(found, Ok(json!(expected)), "{source}"),
            None => assert!(error(&found), "{source}: {found:?}"),
        }
        assert_eq!(found, by_json(&program, &state, &parameters), "{source}");
    }
    // Without the list, `has()` of a scalar is false, and no error.
    view.delete("b", "list");
    let state = view.snapshot();
    for (source, expected) in [
        (
            "view.exists(x, x.l.exists(i, has(i.h) && i.h == p))",
            Some(false),
        ),
        (
            "view.exists(x, has(x.m) && has(x.m.u) && x.m.u == p)",
            Some(false),
        ),
        ("view.exists(x, has(x.m) && 'u' in x.m && x.m.u == p)", None),
        ("view.exists(x, x.l.exists(i, 'h' in i && i.h == p))", None),
    ] {
        let program = compiled(source, Dialect::Kubernetes).unwrap();
        let (found, _) = by_lists(&program, &state, &host, &parameters);
        match expected {
            Some(expected) => assert_eq!(found, Ok(json!(expected)), "{source}"),
            None => assert!(error(&found), "{source}: {found:?}"),
        }
        assert_eq!(found, by_json(&program, &state, &parameters), "{source}");
    }
}
