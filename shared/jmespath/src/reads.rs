//! The parts of a document that an expression can read. Pure.
//!
//! A walk down the tree with, for every value, the paths that it may come from. A step to a field goes
//! on from path to path; whatever uses a value otherwise (a comparison, a function, a truth, the result
//! itself) reads all that stands there. Lists are passed through: what is read of one element is read of
//! all. What is not known here reads whatever it is given.
//!
//! The promise: an expression over values of which only this is kept gives what it gives over the whole
//! values, errors included.

use std::collections::BTreeSet;

use crate::ast::{Argument, Ast, Expr, ExprId};

/// The most paths that are followed. An expression with more reads everything.
const PATHS_MAX: usize = 256;

/// A path in a value: the fields that lead to it.
pub type FieldPath = Vec<Box<str>>;

/// The possible origins of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The value is what the expression is evaluated on.
    Root,
    /// A value at one of the paths; with `listed`, a list (if anything) whose elements are at the paths.
    Paths {
        /// The paths.
        paths: BTreeSet<FieldPath>,
        /// Set if the value is a list.
        listed: bool,
    },
    /// A value that is no part of the document.
    NotInDocument,
}

/// A read of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use<'u> {
    /// The existence and the type of a value at a path.
    Touched(&'u FieldPath),
    /// A whole value at a path.
    Whole(&'u FieldPath),
    /// The whole document.
    Everything,
}

/// Reports by `tell` the parts of the document that an expression reads when it is evaluated on `at`. Returns the
/// possible origins of the result; of the result, only its existence is read. `fields` returns the origin of each field
/// of the root.
pub fn reads(
    ast: &Ast,
    at: &Reached,
    fields: &dyn Fn(&str) -> Reached,
    tell: &mut dyn FnMut(Use<'_>),
) -> Reached {
    let mut walk = Walk {
        ast,
        fields,
        tell,
        paths: 0,
    };
    walk.expr(ast.root(), at)
}

impl Reached {
    /// A value, from its beginning.
    pub fn all(listed: bool) -> Self {
        Self::Paths {
            paths: BTreeSet::from([FieldPath::new()]),
            listed,
        }
    }

    /// The possible origins of its elements, if it is a list or may be one. The root has none.
    #[must_use]
    pub fn elements(&self) -> Self {
        match self {
            Self::Paths { .. } => self.clone().listed(false),
            Self::Root | Self::NotInDocument => Self::NotInDocument,
        }
    }

    /// Tells that all of it is read.
    pub fn whole(&self, tell: &mut dyn FnMut(Use<'_>)) {
        match self {
            Self::Root => tell(Use::Everything),
            Self::Paths { paths, .. } => {
                paths.iter().for_each(|path| tell(Use::Whole(path)));
            }
            Self::NotInDocument => {}
        }
    }

    fn listed(self, listed: bool) -> Self {
        match self {
            Self::Paths { paths, .. } => Self::Paths { paths, listed },
            other => other,
        }
    }

    /// Returns whether it is a list, if it is anything.
    pub fn is_listed(&self) -> bool {
        matches!(self, Self::Paths { listed: true, .. })
    }

    /// The origins of a value that comes from either of two operands.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Paths { mut paths, listed },
                Self::Paths {
                    paths: others,
                    listed: other,
                },
            ) => {
                paths.extend(others);
                Self::Paths {
                    paths,
                    listed: listed && other,
                }
            }
            (one @ Self::Paths { .. }, _) => one,
            (_, other) => other,
        }
    }
}

struct Walk<'w> {
    ast: &'w Ast,
    fields: &'w dyn Fn(&str) -> Reached,
    tell: &'w mut dyn FnMut(Use<'_>),
    paths: usize,
}

impl Walk<'_> {
    /// The value of a subexpression on `at`.
    fn expr(&mut self, id: ExprId, at: &Reached) -> Reached {
        if matches!(at, Reached::NotInDocument) {
            return Reached::NotInDocument;
        }
        match self.ast.expr(id) {
            Expr::Current => at.clone(),
            Expr::Field(name) => self.field(name, at),
            Expr::Literal(_) | Expr::Parameter(_) => Reached::NotInDocument,
            Expr::Index(_) => at.elements(),
            Expr::Slice(_) => at.elements().listed(true),
            Expr::Flatten(left) => self.expr(*left, at).elements().listed(true),
            Expr::Path(steps) | Expr::Pipe(steps) => steps
                .iter()
                .fold(at.clone(), |at, step| self.expr(*step, &at)),
            Expr::Project { left, right } => {
                let element = self.expr(*left, at).elements();
                self.expr(*right, &element).listed(true)
            }
            Expr::Filter {
                left,
                condition,
                right,
            } => {
                let element = self.expr(*left, at).elements();
                self.truth(*condition, &element);
                self.expr(*right, &element).listed(true)
            }
            Expr::ProjectValues { left, right } => {
                let left = self.expr(*left, at);
                left.whole(self.tell);
                self.used(*right, &left);
                Reached::NotInDocument
            }
            Expr::Or(exprs) | Expr::And(exprs) => self.one_of(exprs, at),
            Expr::List(exprs) => {
                exprs.iter().for_each(|expr| self.used(*expr, at));
                Reached::NotInDocument
            }
            Expr::Object(entries) => {
                entries.iter().for_each(|(_, expr)| self.used(*expr, at));
                Reached::NotInDocument
            }
            Expr::Not(expr) => {
                self.truth(*expr, at);
                Reached::NotInDocument
            }
            Expr::Compare { left, right, .. } => {
                self.used(*left, at);
                self.used(*right, at);
                Reached::NotInDocument
            }
            Expr::Call {
                function,
                arguments,
            } => {
                let counts = self.ast.function_name(*function) == "length";
                arguments
                    .iter()
                    .for_each(|argument| self.argument(*argument, at, counts));
                Reached::NotInDocument
            }
        }
    }

    /// Operands of which the value is one; those before the last also have to be true, or false.
    fn one_of(&mut self, operands: &[ExprId], at: &Reached) -> Reached {
        let mut value = Reached::NotInDocument;
        for (index, operand) in operands.iter().enumerate() {
            let one = self.expr(*operand, at);
            // Whether a list is empty is told by its elements, however little of each.
            let is_free = index + 1 == operands.len() || one.is_listed();
            match one {
                Reached::Paths { .. } if is_free => value = value.or(one),
                other => other.whole(self.tell),
            }
        }
        value
    }

    fn argument(&mut self, argument: Argument, at: &Reached, counts: bool) {
        match argument {
            Argument::Value(expr) => {
                let value = self.expr(expr, at);
                // Elements are kept, however little of each.
                if !(counts && value.is_listed()) {
                    value.whole(self.tell);
                }
            }
            // The expression is evaluated on parts of the remaining arguments, which are read whole.
            Argument::Reference(_) => {}
        }
    }

    fn truth(&mut self, expr: ExprId, at: &Reached) {
        let value = self.expr(expr, at);
        if !value.is_listed() {
            value.whole(self.tell);
        }
    }

    fn used(&mut self, expr: ExprId, at: &Reached) {
        self.expr(expr, at).whole(self.tell);
    }

    fn field(&mut self, name: &str, at: &Reached) -> Reached {
        match at {
            Reached::Root => (self.fields)(name),
            // A list has no fields.
            Reached::NotInDocument | Reached::Paths { listed: true, .. } => Reached::NotInDocument,
            Reached::Paths { paths, .. } => {
                let inner = paths.iter().map(|path| {
                    let mut inner = path.clone();
                    inner.push(name.into());
                    inner
                });
                let paths: BTreeSet<_> = inner.collect();
                self.paths += paths.len();
                if self.paths > PATHS_MAX {
                    (self.tell)(Use::Everything);
                    // Nothing is left to be told of it, and longer paths would take ever longer to copy.
                    return Reached::NotInDocument;
                }
                for path in &paths {
                    (self.tell)(Use::Touched(path));
                }
                Reached::Paths {
                    paths,
                    listed: false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expression;

    fn shown(path: &[Box<str>]) -> String {
        match path {
            [] => "@".to_owned(),
            fields => fields.join("."),
        }
    }

    /// Returns the reads of a root with the fields `list`, `one` and `root`: the paths of whole values, the paths of
    /// touched values with a `?`, and `*` for everything. Returns also the origins of the result.
    fn read(expression: &str) -> (BTreeSet<String>, String) {
        let expression = Expression::parse(expression).unwrap();
        let fields = |name: &str| match name {
            "list" => Reached::all(true),
            "one" => Reached::all(false),
            "root" => Reached::Root,
            _ => Reached::NotInDocument,
        };
        let mut told = BTreeSet::new();
        let mut tell = |used: Use<'_>| {
            told.insert(match used {
                Use::Touched(path) => format!("{}?", shown(path)),
                Use::Whole(path) => shown(path),
                Use::Everything => "*".to_owned(),
            });
        };
        let origins = match reads(expression.ast(), &Reached::Root, &fields, &mut tell) {
            Reached::Root => "root".to_owned(),
            Reached::Paths { paths, listed } => {
                let paths: Vec<_> = paths.iter().map(|path| shown(path)).collect();
                let elements = if listed { "[]" } else { "" };
                format!("{}{elements}", paths.join("|"))
            }
            Reached::NotInDocument => String::new(),
        };
        (told, origins)
    }

    #[test]
    fn what_is_read_is_told_and_the_result_has_its_origins() {
        for (expression, told, origins) in [
            ("@", &[][..], "root"),
            ("`1`", &[], ""),
            ("list[*].a.b", &["a.b?", "a?"], "a.b[]"),
            ("list[].a[]", &["a?"], "a[]"),
            ("list[0].a", &["a?"], "a"),
            ("list.a", &[], ""),
            ("list[?a].b", &["a", "a?", "b?"], "b[]"),
            ("one.*.a", &["@", "a", "a?"], ""),
            ("one.[a, {k: b}]", &["a", "a?", "b", "b?"], ""),
            ("one.a == one.b", &["a", "a?", "b", "b?"], ""),
            // The elements of a list tell whether it is empty, and how many they are.
            ("!(one.a)", &["a", "a?"], ""),
            ("!(list[*].a)", &["a?"], ""),
            ("length(one.a)", &["a", "a?"], ""),
            ("length(list[*].a)", &["a?"], ""),
            ("to_array(list[*].a)", &["a", "a?"], ""),
            ("one.a || one.b", &["a", "a?", "b?"], "b"),
            ("list[*].a || one.b", &["a?", "b?"], "a|b"),
            ("list[*].a && list[*].b", &["a?", "b?"], "a|b[]"),
            ("root || one.a", &["*", "a?"], "a"),
        ] {
            let (found, result) = read(expression);
            let found: Vec<_> = found.iter().map(String::as_str).collect();
            assert_eq!((&found[..], &*result), (told, origins), "{expression}");
        }
    }

    #[test]
    fn an_expression_of_too_many_paths_reads_everything() {
        let is_everything = |paths: usize| {
            let (told, _) = read(&format!("one.[{}]", vec!["a"; paths].join(", ")));
            told.contains("*")
        };
        assert!(!is_everything(PATHS_MAX));
        assert!(is_everything(PATHS_MAX + 1));
    }
}
