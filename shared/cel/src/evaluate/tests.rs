//! Lists that an index answers for, parts that a replica evaluates, and values as JSON.

use std::cell::RefCell;

use anteroom_jmespath::Scalar;
use anteroom_wire::body::{BodyNode, encode_json};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{
    Candidates, Dialect, Fact, FactFunction, FactScope, JsonError, Names, ObjectList, Probes, Site,
    SubqueryAnswer, SubqueryRequest, tests::kyverno,
};

/// A list with indexes of all keys, which notes what it is asked.
#[derive(Debug)]
struct Indexed {
    bodies: Vec<Vec<u8>>,
    asked: Mutex<Vec<String>>,
}

impl ObjectList for Indexed {
    fn len(&self) -> usize {
        self.bodies.len()
    }

    fn get(&self, at: usize) -> Option<BodyNode<'_>> {
        self.bodies.get(at).map(|body| BodyNode::new(body))
    }

    fn iter(&self) -> Box<dyn Iterator<Item = BodyNode<'_>> + '_> {
        Box::new(self.bodies.iter().map(|body| BodyNode::new(body)))
    }

    fn find(&self, probes: &Probes<'_>) -> Option<Box<dyn Candidates<'_> + '_>> {
        self.asked.lock().push(words(probes));
        let all = self.iter().map(|object| (object, hit(probes, object)));
        Some(Box::new(Hits(all.collect())))
    }
}

/// Returns in words what an index is asked.
fn words(probes: &Probes<'_>) -> String {
    let joined = |parts: &[Probes<'_>], between: &str| {
        let parts: Vec<_> = parts.iter().map(words).collect();
        format!("({})", parts.join(between))
    };
    match probes {
        Probes::One { key, values } => {
            let values: Vec<_> = values
                .iter()
                .map(|value| match value {
                    Scalar::Whole(number) => number.to_string(),
                    other => format!("{other:?}"),
                })
                .collect();
            format!("{key} [{}]", values.join(", "))
        }
        Probes::Any(parts) => joined(parts, " or "),
        Probes::All(ways) => joined(ways, " and "),
    }
}

/// Returns whether an object has what is looked for, and whether a path fails on it.
fn hit(probes: &Probes<'_>, object: BodyNode<'_>) -> (bool, bool) {
    match probes {
        Probes::One { key, values } => {
            let mut is_found = false;
            let is_irregular = key.values(object, &mut |value| is_found |= values.contains(&value));
            (is_found, is_irregular)
        }
        Probes::Any(parts) => {
            let parts = parts.iter().map(|part| hit(part, object));
            parts.fold((false, false), |all, one| (all.0 || one.0, all.1 || one.1))
        }
        // Any of them may be asked.
        Probes::All(ways) => ways.first().map_or((false, false), |way| hit(way, object)),
    }
}

struct Hits<'v>(Vec<(BodyNode<'v>, (bool, bool))>);

impl<'v> Candidates<'v> for Hits<'v> {
    fn matching(&self, at: usize) -> Option<BodyNode<'v>> {
        let mut all = self.0.iter().filter(|(_, hit)| hit.0);
        all.nth(at).map(|(object, _)| *object)
    }

    fn irregular(&self, before: Option<usize>) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_> {
        let end = before.and_then(|before| {
            let places = self.0.iter().enumerate();
            let mut places = places.filter(|(_, (_, hit))| hit.0);
            places.nth(before).map(|(at, _)| at)
        });
        let all = self.0.iter().take(end.unwrap_or(self.0.len()));
        let irregular = all.filter(|(_, hit)| !hit.0 && hit.1);
        Box::new(irregular.map(|(object, _)| *object))
    }

    fn all(&self) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_> {
        let all = self.0.iter().filter(|(_, hit)| hit.0 || hit.1);
        Box::new(all.map(|(object, _)| *object))
    }
}

/// Evaluates an expression over a list of objects.
fn over(source: &str, view: Input<'_>, budget: Budget) -> Result<bool, EvalError> {
    let mut names = Names::default().without_request();
    ["view", "p"]
        .into_iter()
        .for_each(|name| names.add_input(name));
    let program =
        Program::compile(source, &names).unwrap_or_else(|error| panic!("{source}: {error}"));
    let parameter = json!({"n": 1, "l": [1, 2], "m": {"k": 1}});
    let inputs = [view, Input::json(&parameter)];
    let machine = Machine::new(Roots::default(), &[], budget);
    machine.with_inputs(&inputs).truth(&program)
}

/// Evaluates an expression over the list with its indexes, and returns what they were asked.
fn indexed(source: &str, budget: Budget) -> (Result<bool, EvalError>, Vec<String>) {
    let bodies = objects()
        .into_iter()
        .map(|object| encode_json(&object).unwrap().to_vec());
    let list = Indexed {
        bodies: bodies.collect(),
        asked: Mutex::default(),
    };
    let found = over(source, Input::objects(&list), budget);
    (found, list.asked.into_inner())
}

fn objects() -> [Value; 4] {
    [
        json!({"a": 1, "b": 1, "t": "k"}),
        json!({"b": 2}),
        json!({"a": 2, "b": 3}),
        json!({"a": 1, "b": 4, "d": 1}),
    ]
}

#[test]
fn an_index_answers_as_all_objects_do() {
    let all = Value::Array(objects().into());
    for (source, expected, asked) in [
        (
            "view.exists(x, x.a == p.n && x.b == 4)",
            Ok(true),
            vec!["(a [1] and b [4])"],
        ),
        (
            "view.exists(x, x.a == p.n && x.b == 9)",
            Ok(false),
            vec!["(a [1] and b [9])"],
        ),
        (
            "view.all(x, x.a != p.n || x.b > 0)",
            Ok(true),
            vec!["a [1]"],
        ),
        (
            "view.all(x, x.a != p.n || x.b > 1)",
            Ok(false),
            vec!["a [1]"],
        ),
        (
            "view.filter(x, has(x.a) && x.a == p.n).size() == 2",
            Ok(true),
            vec!["a? [1]"],
        ),
        // An element that decides wins over errors of others, and else the first error counts.
        (
            "view.exists(x, x.a == p.n && x.d == 1)",
            Ok(true),
            vec!["(a [1] and d [1])"],
        ),
        (
            "view.exists(x, x.a == p.n && x.c == 1)",
            Err("c"),
            vec!["(a [1] and c [1])"],
        ),
        (
            "view.exists(x, x.a == 2 && x.c == 1)",
            Err("a"),
            vec!["(a [2] and c [1])"],
        ),
        ("view.exists(x, x.a == 99)", Err("a"), vec!["a [99]"]),
        // Numbers are equal whatever their type, and NaN to nothing.
        ("view.exists(x, x.b == 2.0)", Ok(true), vec!["b [2]"]),
        (
            "view.exists(x, x.b == double('NaN'))",
            Ok(false),
            vec!["b []"],
        ),
        (
            "view.exists(x, x.?a == optional.of(p.n))",
            Ok(true),
            vec!["a? [1]"],
        ),
        (
            "view.exists(x, x.b in p.l && x.b > 1)",
            Ok(true),
            vec!["b [1, 2]"],
        ),
        (
            "view.exists(x, x.t in p.m)",
            Ok(true),
            vec!["t [Text(\"k\")]"],
        ),
        // A question for each element of the outer list.
        (
            "p.l.exists(r, view.exists(x, x.b == r + 2))",
            Ok(true),
            vec!["b [3]"],
        ),
        (
            "view.exists(x, p.l.exists(r, x.b == r + 2))",
            Ok(true),
            vec!["(b [3] or b [4])"],
        ),
        (
            "view.exists(x, p.m.exists(k, x.t == k))",
            Ok(true),
            vec!["(t [Text(\"k\")])"],
        ),
        (
            "view.exists(x, x.b == 9 || x.b == 4)",
            Ok(true),
            vec!["(b [9] or b [4])"],
        ),
        // What cannot be looked up is left to the other side, or to a look at all objects.
        (
            "view.exists(x, x.a == p.none && x.b == 9)",
            Ok(false),
            vec!["(b [9])"],
        ),
        (
            "view.exists(x, x.b == p.none || x.b == 4)",
            Ok(true),
            vec![],
        ),
        (
            "view.exists(x, x.a == p.none && x.b == p.none)",
            Err("none"),
            vec![],
        ),
    ] {
        let expected = expected.map_err(|key: &str| EvalError::NoSuchKey(key.to_owned()));
        let scanned = over(source, Input::json(&all), Budget::default());
        assert_eq!(scanned, expected, "{source}");
        let (found, questions) = indexed(source, Budget::default());
        assert_eq!(found, expected, "{source}");
        assert_eq!(questions, asked, "{source}");
    }
}

#[test]
fn a_limit_at_one_object_is_not_hidden_by_the_next() {
    let source = "view.exists(x, x.a == p.n && (x.b == 1 ? 'a' + 'b' == '' : true))";
    let budget = Budget {
        built_bytes: 1,
        ..Budget::default()
    };
    let asked = vec!["a [1]".to_owned()];
    assert_eq!(
        indexed(source, budget),
        (Err(EvalError::Bytes), asked.clone())
    );
    assert_eq!(indexed(source, Budget::default()), (Ok(true), asked));
}

#[test]
fn a_value_comes_back_as_json_if_json_has_the_same_one() {
    fn nested(depth: usize, around: fn(Value) -> Value) -> Value {
        (1..depth).fold(around(Value::Null), |inner, _| around(inner))
    }
    let exact = |source: &str, object: &Value| {
        let program = kyverno_program(source, &[]).0;
        let roots = Roots {
            object: Some(object),
            ..Roots::default()
        };
        Machine::new(roots, &[], Budget::default()).exact_json(&program)
    };
    let object = json!({"l": [1, -2, 2.5, "a", null, true], "m": {"k": {}}});
    assert_eq!(exact("object", &object), Ok(object.clone()));
    assert_eq!(
        exact("[1, {'k': 2.5}]", &object),
        Ok(json!([1, {"k": 2.5}]))
    );
    for (source, error) in [
        ("1u", JsonError::NoJson("uint")),
        ("[double('NaN')]", JsonError::NoJson("double")),
        ("{1: 'a'}", JsonError::NoJson("map")),
        (
            "{'a': duration('1s')}",
            JsonError::NoJson("google.protobuf.Duration"),
        ),
        ("1 / 0", JsonError::Failed(EvalError::DivisionByZero)),
    ] {
        assert_eq!(exact(source, &object), Err(error), "{source}");
    }
    let within: [fn(Value) -> Value; 2] = [|inner| json!([inner]), |inner| json!({ "a": inner })];
    for around in within {
        let most = nested(256, around);
        assert_eq!(exact("object", &most).as_ref(), Ok(&most));
        let error = JsonError::Failed(EvalError::TooDeep);
        assert_eq!(exact("object", &nested(257, around)), Err(error));
    }
}

#[test]
fn an_evaluation_knows_whether_it_depends_on_the_arrival() {
    let arrival = Arrival { now_ns: 0, seed: 0 };
    for (source, depends) in [("1 == 1", false), ("time.now() == timestamp(0)", true)] {
        let program = kyverno_program(source, &[]).0;
        let machine = Machine::new(Roots::default(), &[], Budget::default());
        let mut machine = machine.with_arrival(arrival);
        assert_eq!(machine.truth(&program), Ok(true), "{source}");
        assert_eq!(machine.depends_on_arrival(), depends, "{source}");
    }
}

/// Compiles an expression that may read facts, after variables. `OF(namespace)` stands for a list of Pods.
fn kyverno_program(source: &str, variables: &[(&str, &str)]) -> (Program, Vec<Program>) {
    let mut names = kyverno::names().with_facts(FactScope::Cluster);
    let mut programs: Vec<Program> = Vec::new();
    let compiled = |text: &str, programs: &[Program], names: &Names| {
        let text = text.replace("OF(", "resource.list('v1', 'pods', ");
        let program =
            Program::compile(&text, names).unwrap_or_else(|error| panic!("{text}: {error}"));
        program.with_subqueries(programs, names)
    };
    for (name, text) in variables {
        let program = compiled(text, &programs, &names);
        names.define(name, &program);
        programs.push(program);
    }
    (compiled(source, &programs, &names), programs)
}

/// Has a list, and answers of other services, but no object. Evaluates parts as a replica does, if it takes them.
struct Facts<'v> {
    list: &'v Value,
    answer: &'v Value,
    takes_parts: bool,
    /// The calls, and whether they are certain.
    reads: RefCell<Vec<(String, bool)>>,
    /// The parts, with arguments of lists and with parameters.
    parts: RefCell<Vec<String>>,
}

impl<'v> Host<'v> for Facts<'v> {
    fn read(&self, site: &'v Site, _: Vec<Value>, is_certain: bool) -> Fact<'v> {
        let call = (site.name().to_owned(), is_certain);
        self.reads.borrow_mut().push(call);
        match site.function() {
            FactFunction::ResourceList => Fact::Value(self.list),
            FactFunction::HttpGet => Fact::Value(self.answer),
            _ => Fact::Unknown,
        }
    }

    fn takes_subqueries(&self) -> bool {
        self.takes_parts
    }

    fn subquery(&self, request: SubqueryRequest<'v>) -> SubqueryAnswer<'v> {
        let SubqueryRequest {
            subquery,
            arguments,
            parameters,
        } = request;
        let mut names = Names::default()
            .in_dialect(Dialect::Kyverno)
            .without_request();
        let mut inputs = Vec::new();
        for (name, _) in subquery.documents() {
            names.add_input(name);
            inputs.push(Input::json(self.list));
        }
        let mut told = Vec::new();
        for (name, value) in subquery.parameter_names().zip(&parameters) {
            names.add_input(&name);
            told.push(
                value
                    .clone()
                    .unwrap_or_else(|message| json!({ "failed": message })),
            );
            inputs.push(match value {
                Ok(value) => Input::json(value),
                Err(message) => Input::failed(EvalError::Input {
                    name,
                    message: message.clone(),
                }),
            });
        }
        let part = format!("{} {} {}", subquery.text(), json!(arguments), json!(told));
        self.parts.borrow_mut().push(part);
        let mut variables = Vec::new();
        for (name, text) in subquery.variables() {
            let program = Program::compile(text, &names).unwrap();
            names.define(name, &program);
            variables.push(program);
        }
        let program = Program::compile(subquery.text(), &names).unwrap();
        let machine = Machine::new(Roots::default(), &variables, Budget::default());
        match machine.with_inputs(&inputs).exact_json(&program) {
            Ok(value) => SubqueryAnswer::Value(Box::leak(Box::new(value))),
            Err(JsonError::Failed(EvalError::Input { name, .. })) => {
                SubqueryAnswer::Parameter(name[1..].parse().unwrap())
            }
            Err(JsonError::Failed(error)) => SubqueryAnswer::Failed(error.to_string().leak()),
            Err(JsonError::NoJson(_)) => SubqueryAnswer::Declined,
        }
    }
}

/// The result of an expression, its calls, and the parts that the evaluation asked for.
type Outcome = (Result<bool, String>, Vec<(String, bool)>, Vec<String>);

fn with_facts(
    source: &str,
    variables: &[(&str, &str)],
    takes_parts: bool,
    budget: Budget,
) -> Outcome {
    let (program, variables) = kyverno_program(source, variables);
    let (list, answer) = (json!({"items": [{"a": 1}, {"a": 2}]}), json!({"ok": true}));
    let object = json!({"a": 1, "n": "x", "m": "y"});
    let host = Facts {
        list: &list,
        answer: &answer,
        takes_parts,
        reads: RefCell::default(),
        parts: RefCell::default(),
    };
    let found = {
        let roots = Roots {
            object: Some(&object),
            ..Roots::default()
        };
        let mut machine = Machine::new(roots, &variables, budget).with_host(&host);
        machine.truth(&program)
    };
    let found = found.map_err(|error| error.to_string());
    (found, host.reads.into_inner(), host.parts.into_inner())
}

#[test]
fn a_part_comes_to_what_the_whole_list_comes_to() {
    let few = [("few", "OF('').items.filter(y, y.a < object.a + 1)")];
    for (source, expected, asked) in [
        (
            "OF('').items.exists(x, x.a == object.a + 1)",
            Ok(true),
            vec!["view.items.exists(_0, _0.a == p0) [[]] [2]"],
        ),
        (
            "OF(object.n).items.size() > OF(object.m).items.size()",
            Ok(false),
            vec![r#"view.items.size() > view1.items.size() [["x"],["y"]] []"#],
        ),
        (
            "variables.few.size() == object.a",
            Ok(true),
            vec!["variables.few.size() == p1 [[]] [2,1]"],
        ),
        // An error of a parameter counts only where the part reaches it, and then as the parameter's own.
        (
            "OF('').items.exists(x, x.a == object.no || x.a == 1)",
            Ok(true),
            vec![
                r#"view.items.exists(_0, _0.a == p0 || _0.a == 1) [[]] [{"failed":"no such key: no"}]"#,
            ],
        ),
        (
            "OF('').items.exists(x, x.a == object.no || x.a == object.nothing)",
            Err("no such key: no"),
            vec![
                "view.items.exists(_0, _0.a == p0 || _0.a == p1) [[]] \
                 [{\"failed\":\"no such key: no\"},{\"failed\":\"no such key: nothing\"}]",
            ],
        ),
        // As long as a parameter is not known, nothing is asked.
        (
            "OF('').items.exists(x, x.a == resource.get('v1', 'configmaps', 'a', 'b').n)",
            Err("a fact that it reads is not known yet"),
            vec![],
        ),
        (
            "object.a == 2 && OF('').items.size() > 0",
            Ok(false),
            vec![],
        ),
    ] {
        let expected = expected.map_err(str::to_owned);
        let (found, reads, parts) = with_facts(source, &few, true, Budget::default());
        assert_eq!((&found, &parts), (&expected, &owned(&asked)), "{source}");
        let is_list = |(call, _): &(String, bool)| call.starts_with("resource.list");
        assert!(!reads.iter().any(is_list), "{source} {reads:?}");
        let (whole, _, parts) = with_facts(source, &few, false, Budget::default());
        assert_eq!((whole, parts), (expected, vec![]), "{source}");
    }
    // The name of the one list is an error, which counts only if the other list does not decide.
    let source = "OF(object.no).items.size() > 1 || OF(object.n).items.size() == 2";
    let (found, reads, parts) = with_facts(source, &[], true, Budget::default());
    assert_eq!((found, parts), (Ok(true), vec![]));
    assert_eq!(
        reads,
        [("resource.list(\"v1\", \"pods\", _)".to_owned(), true)]
    );
    // A limit is no error that something else forgives.
    let budget = Budget {
        built_bytes: 1,
        ..Budget::default()
    };
    let source = "OF('').items.exists(x, x.a == object.n + 'b' || x.a == 1)";
    let (found, _, parts) = with_facts(source, &[], true, budget);
    assert_eq!((found, parts), (Err(EvalError::Bytes.to_string()), vec![]));
}

#[test]
fn a_call_behind_something_unknown_is_not_certain() {
    let source = "resource.get('v1', 'configmaps', 'a', 'b').n == 1 && http.get('u').ok";
    let (found, reads, _) = with_facts(source, &[], true, Budget::default());
    assert_eq!(found, Err(EvalError::Unknown.to_string()));
    let expected = [
        (
            "resource.get(\"v1\", \"configmaps\", \"a\", \"b\")".to_owned(),
            true,
        ),
        ("http.get(\"u\")".to_owned(), false),
    ];
    assert_eq!(reads, expected);
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
