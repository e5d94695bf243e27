//! Lists whose objects, indexes and hosts change.

use anteroom_cel::{Dialect, Input, Names, Program};
use anteroom_plan::{Index, IndexKey, ListHost, ViewList};
use anteroom_view::{Lazy, Snapshot, testing::TestView};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{by_json, by_lists, compiled, evaluated, host::Host, select};

/// Objects `n000`, `n001` and so on.
fn view(objects: impl Iterator<Item = Value>) -> TestView {
    let mut view = TestView::new("example.com", "things", "Thing");
    for (at, object) in objects.enumerate() {
        view.put("a", &format!("n{at:03}"), &object);
    }
    view
}

/// Answers by indexes, which are those of the state; JSON says the same.
fn answer(source: &str, state: &Snapshot, host: &Host, p: &Value) -> Value {
    let program = compiled(source, Dialect::Kubernetes).unwrap();
    let parameters = [p.clone(), json!(null), json!([])];
    let answered = host.answered();
    let (found, _) = by_lists(&program, state, host, &parameters);
    assert!(host.answered() > answered, "{source}");
    assert_eq!(found, by_json(&program, state, &parameters), "{source}");
    found.unwrap()
}

/// Otherwise objects would be looked for by what they were.
#[test]
fn an_index_by_a_path_follows_what_the_path_reads() {
    let object = |name: &str| json!({"a": name, "m": {"u": name}, "l": [{"h": name, "g": 0}]});
    let mut view = view((0..40).map(|at| object(&format!("old{at}"))));
    let before = view.snapshot();
    view.put("a", "n003", &object("new"));
    let after = view.snapshot();
    let host = Host::new();
    for source in [
        "view.filter(x, x.a == p).size()",
        "view.filter(x, x.m.u == p).size()",
        "view.filter(x, x.l.exists(i, i.h == p)).size()",
    ] {
        for (state, objects) in [(&before, 0), (&after, 1), (&before, 0)] {
            let found = answer(source, state, &host, &json!("new"));
            assert_eq!(found, json!(objects), "{source}");
        }
    }
    // Each question is compiled anew, and its path is known again.
    assert_eq!(host.indexes(), 3);
}

#[test]
fn a_list_goes_on_behind_the_last_object_of_an_index_that_is_lost() {
    let values = ["u", "v"].iter().cycle().zip(0..200);
    let view = view(values.map(|(a, b)| json!({"a": a, "b": b})));
    let state = view.snapshot();
    for (source, expected) in [
        ("view.filter(x, x.a == p).size()", json!(100)),
        ("view.exists(x, x.a == p && x.b >= 198)", json!(true)),
    ] {
        // Of no batch, of the first one, of later ones, and of the irregular objects.
        for lost in 0..5 {
            let host = Host::new();
            host.lose_one_in(lost);
            let found = answer(source, &state, &host, &json!("u"));
            assert_eq!(found, expected, "{source}, {lost}");
        }
    }
}

/// An index keeps so many of an object: with more, the object is looked at in every query.
#[test]
fn an_object_is_found_by_any_of_its_values_however_many() {
    const VALUES_MAX: usize = 16 * 1024;
    let mut view = view((0..40).map(|at| json!({"l": [at]})));
    let host = Host::new();
    for values in [VALUES_MAX, VALUES_MAX + 1, VALUES_MAX + 2] {
        let list: Vec<_> = (1..=values).map(|value| format!("v{value}")).collect();
        view.put("a", "many", &json!({"l": list}));
        let source = "view.exists(x, x.l.exists(i, i == p))";
        let last = json!(format!("v{values}"));
        let found = answer(source, &view.snapshot(), &host, &last);
        assert_eq!(found, json!(true), "{values}");
    }
}

/// A host without indexes, which ends a scan after so many objects.
#[derive(Debug)]
struct EndingHost {
    ends_at: usize,
    asked: Mutex<Vec<usize>>,
}

impl ListHost for EndingHost {
    fn ask(&self, _: &IndexKey, _: &mut dyn FnMut(&Index)) -> bool {
        false
    }

    fn goes_on(&self, looked_through: usize) -> bool {
        self.asked.lock().push(looked_through);
        looked_through < self.ends_at
    }
}

/// An answer about a list that was cut would be wrong.
#[test]
fn a_scan_asks_whether_it_goes_on_and_says_if_it_was_cut() {
    let view = view((0..200).map(|b| json!({"a": "u", "b": b})));
    let state = view.snapshot();
    let select = select("", "");
    let mut names = Names::default().without_request();
    names.add_input("view");
    let program = |source: &str| Program::compile(source, &names).unwrap();
    let (all, third) = (program("view.all(x, x.a == 'u')"), program("view[2].b"));
    for (program, ends_at, expected, asked, examined) in [
        (&all, 200, json!(true), &[0, 64, 128, 192][..], 200),
        (&all, 100, json!(true), &[0, 64, 128], 128),
        (&all, 0, json!(true), &[0], 0),
        (&third, 0, json!(2), &[], 1),
    ] {
        let host = EndingHost {
            ends_at,
            asked: Mutex::default(),
        };
        let Lazy::List(objects) = select.lazy(state.read()).unwrap() else {
            panic!("a list");
        };
        let list = ViewList::new(objects, &host);
        let found = evaluated(program, &[Input::objects(&list)]).0;
        assert_eq!(found, Ok(expected), "{ends_at}");
        assert_eq!(*host.asked.lock(), asked, "{ends_at}");
        assert_eq!(list.examined(), examined, "{ends_at}");
        let is_cut = asked.last().is_some_and(|last| *last >= ends_at);
        assert_eq!(list.is_cut(), is_cut, "{ends_at}");
    }
}
