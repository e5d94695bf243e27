//! Subexpressions that are paths into the element of a macro.

use crate::{
    ast::{Expr, Macro, MacroKind},
    key_path::{KeyPath, KeyStep, Missing},
    value::{Val, scalar_of},
};

/// A path that a subexpression takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    pub(super) steps: Vec<KeyStep>,
    /// The path comes to an optional value.
    pub(super) is_optional: bool,
    /// The step from which on the path is optional.
    optional_from: usize,
}

/// The variables of macros from the element on.
#[derive(Clone, Debug)]
pub(super) struct MacroScope {
    /// The variables of macros around the macro.
    pub(super) place: usize,
    /// One for each variable from the element on.
    variables: Vec<Variable>,
    /// Paths whose last field is there, or the body is decided without it, as the guard says of what lacks it.
    guards: Vec<(Vec<KeyStep>, Missing)>,
}

#[derive(Clone, Debug)]
enum Variable {
    /// The variable is at this path in the element.
    Within(Vec<KeyStep>),
    /// The variable has nothing to do with the element.
    Unrelated,
}

impl MacroScope {
    /// The scope of the body of a macro.
    pub(super) fn new(place: usize) -> Self {
        Self {
            place,
            variables: vec![Variable::Within(Vec::new())],
            guards: Vec::new(),
        }
    }

    /// The variables of macros around a subexpression of this scope.
    pub(super) fn depth(&self) -> usize {
        self.place + self.variables.len()
    }

    /// The scope of an inner macro's body, whose variable is at a path in the element.
    pub(super) fn within(&self, path: Path) -> Self {
        self.with(Variable::Within(path.steps))
    }

    /// The scope of an inner macro's body, whose variable has nothing to do with the element.
    pub(super) fn with_unrelated(&self) -> Self {
        self.with(Variable::Unrelated)
    }

    fn with(&self, variable: Variable) -> Self {
        let mut scope = self.clone();
        scope.variables.push(variable);
        scope
    }

    /// With what a guard says.
    pub(super) fn guard(&mut self, path: &[KeyStep], field: &str, missing: Missing) {
        let mut path = path.to_vec();
        path.push(error(field));
        self.guards.push((path, missing));
    }

    /// Returns whether a subexpression mentions neither the element nor anything in it.
    pub(super) fn is_unrelated(&self, expr: &Expr) -> bool {
        !expr.any(&|expr| match expr {
            Expr::Local(at) => {
                let at = at.checked_sub(self.place);
                let variable = at.and_then(|at| self.variables.get(at));
                matches!(variable, Some(Variable::Within(_)))
            }
            _ => false,
        })
    }

    /// The path that a subexpression takes; `None`: it is none.
    pub(super) fn path(&self, expr: &Expr) -> Option<Path> {
        match expr {
            Expr::Local(at) => {
                let at = at.checked_sub(self.place)?;
                match self.variables.get(at)? {
                    Variable::Within(steps) => Some(Path {
                        steps: steps.clone(),
                        ..Path::default()
                    }),
                    Variable::Unrelated => None,
                }
            }
            Expr::Select(operand, field) => Some(self.path(operand)?.field(field)),
            Expr::Index(pair) => match &pair.1 {
                Expr::Literal(Val::Text(field)) => Some(self.path(&pair.0)?.field(field)),
                _ => None,
            },
            Expr::OptionalIndex(pair) => match &pair.1 {
                Expr::Literal(Val::Text(field)) => Some(self.path(&pair.0)?.optional(field)),
                _ => None,
            },
            Expr::Call(call) if call.function.name == "orValue" => {
                let [operand, other] = &*call.arguments else {
                    return None;
                };
                let missing = constant(other)?;
                let path = self.path(operand)?;
                match path.is_optional {
                    true => Some(path.or(&missing)),
                    // The kinds of Kyverno take a plain value too, and it is the result.
                    false => call.function.of.is_empty().then_some(path),
                }
            }
            _ => None,
        }
    }

    /// The path to the elements of a subexpression that is a list, or to the keys of one that is a map.
    pub(super) fn elements(&self, expr: &Expr) -> Option<Path> {
        if let Expr::Macro(made) = expr
            && is_plain_map(made)
        {
            let range = self.elements(&made.range)?;
            let path = self.within(range).path(&made.body)?;
            return (!path.is_optional).then_some(path);
        }
        let mut path = self.path(expr)?;
        path.steps.push(KeyStep::Each);
        (!path.is_optional).then_some(path)
    }

    /// The key of a path, by what guards say of its fields.
    pub(super) fn key(&self, path: &Path) -> KeyPath {
        let steps = path.steps.iter().enumerate().map(|(at, step)| {
            // The guard must take exactly this path: on a different path the guard may fail where this path goes on.
            let guards = self.guards.iter();
            let mut guards = guards
                .filter(|(guard, _)| path.steps.get(..=at) == Some(&**guard))
                .map(|(_, missing)| missing);
            let KeyStep::Field { name, .. } = step else {
                return step.clone();
            };
            let Some(first) = guards.next() else {
                return step.clone();
            };
            // One guard that skips objects without the field is enough.
            let missing = match guards.any(|other| *other == Missing::Skip) {
                true => Missing::Skip,
                false => first.clone(),
            };
            KeyStep::Field {
                name: name.clone(),
                missing,
            }
        });
        KeyPath::new(steps.collect())
    }
}

/// Returns the constant that a subexpression puts in the place of a missing field; `None` of any other subexpression.
fn constant(expr: &Expr) -> Option<Missing> {
    match expr {
        Expr::Literal(value) => scalar_of(value).map(Missing::Default),
        Expr::List(none) if none.is_empty() => Some(Missing::EmptyList),
        Expr::Map(none) if none.is_empty() => Some(Missing::EmptyMap),
        _ => None,
    }
}

/// `range.map(x, body)`
fn is_plain_map(made: &Macro) -> bool {
    made.kind == MacroKind::Map && made.filter.is_none() && !made.is_of_pairs
}

fn error(name: &str) -> KeyStep {
    KeyStep::Field {
        name: name.into(),
        missing: Missing::Error,
    }
}

impl Path {
    fn field(mut self, name: &str) -> Self {
        let missing = match self.is_optional {
            true => Missing::Skip,
            false => Missing::Error,
        };
        self.steps.push(KeyStep::Field {
            name: name.into(),
            missing,
        });
        self
    }

    fn optional(mut self, name: &str) -> Self {
        if !self.is_optional {
            self.optional_from = self.steps.len();
            self.is_optional = true;
        }
        self.field(name)
    }

    /// The value of an optional, or another in its place.
    fn or(mut self, other: &Missing) -> Self {
        // The fields of an optional lead to the same end, whichever of them is missing.
        let mut last = true;
        for step in self.steps.iter_mut().skip(self.optional_from).rev() {
            if let KeyStep::Field { missing, .. } = step {
                *missing = match last {
                    true => other.clone(),
                    false => Missing::AsNext,
                };
                last = false;
            }
        }
        self.is_optional = false;
        self
    }
}
