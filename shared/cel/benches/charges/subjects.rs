//! All that a policy can call with values of a request.

use anteroom_cel::{Arrival, Dialect, Machine, Names, Program, Roots};
use anteroom_functions::{meter, operator::Operator, pattern, query_functions};
use anteroom_jmespath::{Budget, BudgetKind, Environment, EvalError, EvalSeed, Expression};
use serde_json::Value;

use crate::values::Named;

/// The steps of one call. A rule's expression has more, but the time of a step does not depend on how many there are.
const STEPS_MAX: u64 = 100_000;

/// The bytes that an expression of a rule may build, about.
const BUILT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Ways to write the first argument of a function of CEL, so that each type is among them.
const CEL_TYPES: [&str; 13] = [
    "object.a",
    "bytes(object.a)",
    "quantity(object.a)",
    "semver(object.a)",
    "ip(object.a)",
    "cidr(object.a)",
    "url(object.a)",
    "duration(object.a)",
    "timestamp(object.a)",
    "optional.of(object.a)",
    "image(object.a)",
    "format.dns1123Label()",
    "[object.a, object.a]",
];

const CEL_OPERATORS: [&str; 11] = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "in"];

/// A function, an operator or a pattern.
pub(crate) struct Subject {
    pub(crate) name: String,
    arguments: usize,
    call: Callee,
}

enum Callee {
    JmesPath(Box<Expression>),
    Operator(Operator),
    Pattern,
    Cel(Program),
}

/// Returns everything that can be called.
pub(crate) fn all() -> Vec<Subject> {
    let mut all = Vec::new();
    jmespath(&mut all);
    for name in Operator::names() {
        all.extend(Operator::parse(name).map(|operator| Subject {
            name: format!("operator:{name}"),
            arguments: 2,
            call: Callee::Operator(operator),
        }));
    }
    all.push(Subject {
        name: "pattern".to_owned(),
        arguments: 2,
        call: Callee::Pattern,
    });
    cel(&mut all);
    all
}

/// Each function with one to three arguments. One of another number is refused at once, which costs nothing.
fn jmespath(all: &mut Vec<Subject>) {
    let mut names: Vec<&str> = query_functions().names().collect();
    names.sort_unstable();
    let spellings = [
        ("a", 1),
        ("&a, b", 2),
        ("a, &@", 2),
        ("a, b", 2),
        ("a, b, c", 3),
    ];
    for name in names {
        for (written, arguments) in spellings {
            let Ok(expression) = Expression::parse(&format!("{name}({written})")) else {
                continue;
            };
            if expression.check(query_functions()).is_err() {
                continue;
            }
            all.push(Subject {
                name: format!("jmespath:{name}({written})"),
                arguments,
                call: Callee::JmesPath(Box::new(expression)),
            });
        }
    }
}

/// Macros and operators that go through what they are given.
const CEL_EXPRESSIONS: [&str; 16] = [
    "object.a[object.b]",
    "object.a[?object.b]",
    "object.a.all(x, x == object.b)",
    "object.a.exists(x, x == object.b)",
    "object.a.exists_one(x, x == object.b)",
    "object.a.map(x, object.b)",
    "object.a.map(x, x == object.b, x)",
    "object.a.filter(x, x != object.b)",
    "object.a.all(k, v, v == object.b)",
    "object.a.exists(k, v, v == object.b)",
    "object.a.existsOne(k, v, v == object.b)",
    "object.a.transformList(k, v, object.b)",
    "object.a.transformMap(k, v, object.b)",
    "object.a.transformMapEntry(k, v, {string(k): v})",
    "[object.a, object.b] == [object.a, object.b]",
    "{'a': object.a} == {'a': object.b}",
];

fn cel(all: &mut Vec<Subject>) {
    for source in CEL_EXPRESSIONS {
        add_cel(all, source, 2);
    }
    for operator in CEL_OPERATORS {
        add_cel(all, &format!("object.a {operator} object.b"), 2);
    }
    for name in anteroom_cel::function_names(Dialect::Kyverno) {
        for first in CEL_TYPES {
            for (more, arguments) in [("", 1), ("object.b", 2), ("object.b, object.c", 3)] {
                let source = match name.strip_prefix("x.") {
                    Some(method) => format!("{first}.{method}({more})"),
                    None if more.is_empty() => format!("{name}({first})"),
                    None => format!("{name}({first}, {more})"),
                };
                add_cel(all, &source, arguments);
            }
        }
    }
}

fn add_cel(all: &mut Vec<Subject>, source: &str, arguments: usize) {
    let names = Names::default().in_dialect(Dialect::Kyverno);
    if let Ok(program) = Program::compile(source, &names) {
        all.push(Subject {
            name: format!("cel:{source}"),
            arguments,
            call: Callee::Cel(program),
        });
    }
}

impl Subject {
    /// Returns the values to call it with, each as their places.
    pub(crate) fn arguments(&self, values: &[Named]) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for _ in 0..self.arguments {
            let is_of_all = self.arguments < 3;
            let chosen = (0..values.len()).filter(|at| is_of_all || values[*at].is_of_few);
            let chosen: Vec<usize> = chosen.collect();
            let longer = all.iter().flat_map(|before| {
                chosen.iter().map(move |at| {
                    let mut with: Vec<usize> = before.clone();
                    with.push(*at);
                    with
                })
            });
            all = longer.collect();
        }
        all
    }

    /// Returns the call with these arguments.
    pub(crate) fn prepare(&self, arguments: &[&Value]) -> Call<'_> {
        let names = ["a", "b", "c"];
        let document = match &self.call {
            Callee::JmesPath(_) | Callee::Cel(_) => names
                .iter()
                .zip(arguments)
                .map(|(name, value)| ((*name).to_owned(), (*value).clone()))
                .collect(),
            Callee::Operator(_) | Callee::Pattern => {
                arguments.iter().map(|value| (*value).clone()).collect()
            }
        };
        Call {
            subject: self,
            document,
        }
    }
}

/// A function, and its arguments.
pub(crate) struct Call<'s> {
    subject: &'s Subject,
    document: Value,
}

/// The end of a call.
pub(crate) struct Ran {
    /// The steps that it charged.
    pub(crate) steps: u64,
    /// It does not take arguments of these types.
    pub(crate) is_refused: bool,
}

impl Call<'_> {
    pub(crate) fn run(&self) -> Ran {
        let (ran, left) = meter::within(STEPS_MAX, || match &self.subject.call {
            Callee::JmesPath(expression) => jmespath_call(expression, &self.document),
            Callee::Operator(operator) => {
                operator.holds(&self.document[0], &self.document[1]);
                Ran::taken(0)
            }
            Callee::Pattern => {
                let _ = pattern::matches(&self.document[0], &self.document[1]);
                Ran::taken(0)
            }
            Callee::Cel(program) => cel_call(program, &self.document),
        });
        Ran {
            steps: ran.steps + STEPS_MAX - left,
            ..ran
        }
    }
}

impl Ran {
    fn taken(steps: u64) -> Self {
        Self {
            steps,
            is_refused: false,
        }
    }
}

fn jmespath_call(expression: &Expression, document: &Value) -> Ran {
    let seed = EvalSeed::new(0, 1);
    let environment = Environment::standard()
        .with_functions(query_functions())
        .with_seed(Some(&seed));
    let budget = Budget {
        steps: STEPS_MAX,
        built_bytes: BUILT_BYTES_MAX,
        ..Budget::default()
    };
    let mut left = budget;
    let result = expression
        .evaluate_out_of(document, &environment, &mut left)
        .and_then(|value| value.to_json_out_of(&mut left));
    // As a rule is charged: an expression that is over its limits costs all that it may.
    let charged_after = match &result {
        Err(EvalError::Budget {
            which: BudgetKind::BuiltBytes,
            ..
        }) => anteroom_cel::STEPS_MAX,
        _ => 0,
    };
    Ran {
        steps: budget.steps - left.steps + charged_after,
        is_refused: matches!(result, Err(EvalError::InvalidType { .. })),
    }
}

fn cel_call(program: &Program, object: &Value) -> Ran {
    let roots = Roots {
        object: Some(object),
        ..Roots::default()
    };
    let budget = anteroom_cel::Budget {
        steps: STEPS_MAX,
        ..anteroom_cel::Budget::default()
    };
    let arrival = Arrival { now_ns: 0, seed: 1 };
    let mut machine = Machine::new(roots, &[], budget.clone()).with_arrival(arrival);
    // Most come to no truth value, and are evaluated all the same.
    let result = machine.truth(program);
    Ran {
        steps: budget.steps - machine.budget().steps,
        is_refused: matches!(result, Err(anteroom_cel::EvalError::NoSuchOverload { .. })),
    }
}
