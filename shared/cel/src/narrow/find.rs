//! Finds what elements have to have for a body to be undecided.

use super::{
    Matching, Narrow, Operand, Probe,
    path::{MacroScope, Path},
};
use crate::{
    ast::{Expr, Macro, MacroKind, Operator},
    key_path::Missing,
    value::Val,
};

/// Returns what elements have for which the body is not definitely `decided`; `None`: that cannot be told.
pub(super) fn find(body: &Expr, place: usize, decided: bool) -> Option<Narrow> {
    let mut finder = NarrowFinder { at: Vec::new() };
    finder.find(body, decided, &MacroScope::new(place))
}

struct NarrowFinder {
    /// The path from the body to the subexpression.
    at: Vec<u16>,
}

impl NarrowFinder {
    fn child<R>(&mut self, place: u16, find: impl FnOnce(&mut Self) -> R) -> R {
        self.at.push(place);
        let found = find(self);
        self.at.pop();
        found
    }

    fn find(&mut self, expr: &Expr, decided: bool, scope: &MacroScope) -> Option<Narrow> {
        match (expr, decided) {
            // One side that decides is enough.
            (Expr::And(pair), false) | (Expr::Or(pair), true) => {
                let mut scope = scope.clone();
                add_guards(expr, decided, &mut scope);
                let left = self.child(0, |finder| finder.find(&pair.0, decided, &scope));
                let right = self.child(1, |finder| finder.find(&pair.1, decided, &scope));
                match (left, right) {
                    (Some(left), Some(right)) => Some(all(left, right)),
                    (one, other) => one.or(other),
                }
            }
            (Expr::And(pair), true) | (Expr::Or(pair), false) => {
                let left = self.child(0, |finder| finder.find(&pair.0, decided, scope))?;
                let right = self.child(1, |finder| finder.find(&pair.1, decided, scope))?;
                Some(any(left, right))
            }
            (Expr::Not(operand), _) => {
                self.child(0, |finder| finder.find(operand, !decided, scope))
            }
            (Expr::Binary(Operator::Equal, pair), false)
            | (Expr::Binary(Operator::NotEqual, pair), true) => {
                let (left, right) = (&pair.0, &pair.1);
                self.equal(left, right, 1, scope)
                    .or_else(|| self.equal(right, left, 0, scope))
            }
            (Expr::Binary(Operator::In, pair), false) => self.within(&pair.0, &pair.1, scope),
            (Expr::Macro(made), _) => self.inner(made, decided, scope),
            _ => None,
        }
    }

    /// `key == value`, or the other way round: `place` is that of the value.
    fn equal(&self, key: &Expr, value: &Expr, place: u16, scope: &MacroScope) -> Option<Narrow> {
        let path = scope.path(key)?;
        let matching = match path.is_optional {
            true => Matching::OptionalEqual,
            false => Matching::Equal,
        };
        self.probe(&path, matching, value, place, scope)
    }

    /// `key in value`, `value in key`
    fn within(&self, left: &Expr, right: &Expr, scope: &MacroScope) -> Option<Narrow> {
        if let Some(path) = scope.path(left) {
            return match path.is_optional {
                true => None,
                false => self.probe(&path, Matching::Among, right, 1, scope),
            };
        }
        let path = scope.elements(right)?;
        self.probe(&path, Matching::Equal, left, 0, scope)
    }

    fn probe(
        &self,
        path: &Path,
        matching: Matching,
        expr: &Expr,
        place: u16,
        scope: &MacroScope,
    ) -> Option<Narrow> {
        // The same element on both sides is for a scan.
        scope.is_unrelated(expr).then(|| {
            Narrow::Probe(Probe {
                key: scope.key(path),
                matching,
                operand: self.operand(place, scope),
            })
        })
    }

    fn operand(&self, place: u16, scope: &MacroScope) -> Operand {
        let path = self.at.iter().copied().chain([place]);
        Operand {
            path: path.collect(),
            depth: scope.depth(),
        }
    }

    /// `exists` and `all` within the body.
    fn inner(&mut self, made: &Macro, decided: bool, scope: &MacroScope) -> Option<Narrow> {
        let decides = match made.kind {
            MacroKind::Exists => false,
            MacroKind::All => true,
            _ => return None,
        };
        if decides != decided || made.is_of_pairs {
            return None;
        }
        if let Some(path) = scope.elements(&made.range) {
            let inner = scope.within(path);
            return self.child(BODY, |finder| finder.find(&made.body, decided, &inner));
        }
        if !scope.is_unrelated(&made.range) {
            return None;
        }
        let inner = scope.with_unrelated();
        let found = self.child(BODY, |finder| finder.find(&made.body, decided, &inner))?;
        Some(Narrow::Over {
            range: self.operand(RANGE, scope),
            place: scope.depth(),
            inner: Box::new(found),
        })
    }
}

/// The place of a macro's range among its children.
const RANGE: u16 = 0;

/// The place of the body of a macro without a filter.
const BODY: u16 = 1;

/// Adds the guards that stand side by side in `expr`.
fn add_guards(expr: &Expr, decided: bool, scope: &mut MacroScope) {
    match (expr, decided) {
        (Expr::And(pair), false) | (Expr::Or(pair), true) => {
            add_guards(&pair.0, decided, scope);
            add_guards(&pair.1, decided, scope);
        }
        (Expr::Not(operand), true) => add_guard(operand, scope),
        (guard, false) => add_guard(guard, scope),
        _ => {}
    }
}

/// `has(path.field)`, `'field' in path`
fn add_guard(expr: &Expr, scope: &mut MacroScope) {
    let (of, field, missing): (&Expr, &str, Missing) = match expr {
        Expr::Has(operand, field) => (operand, field, Missing::Skip),
        Expr::Binary(Operator::In, pair) => match &**pair {
            (Expr::Literal(Val::Text(field)), of) => (of, field, Missing::SkipInMap),
            _ => return,
        },
        _ => return,
    };
    if let Some(path) = scope.path(of).filter(|path| !path.is_optional) {
        scope.guard(&path.steps, field, missing);
    }
}

fn all(left: Narrow, right: Narrow) -> Narrow {
    let mut ways = Vec::new();
    for side in [left, right] {
        match side {
            Narrow::All(more) => ways.extend(more),
            one => ways.push(one),
        }
    }
    Narrow::All(ways)
}

fn any(left: Narrow, right: Narrow) -> Narrow {
    let mut parts = Vec::new();
    for side in [left, right] {
        match side {
            Narrow::Any(more) => parts.extend(more),
            one => parts.push(one),
        }
    }
    Narrow::Any(parts)
}
