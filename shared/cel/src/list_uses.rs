//! The uses that an expression makes of lists of objects, in words.

use std::fmt;

use crate::{
    Names, Program,
    ast::{Expr, Macro},
    key_path::KeyStep,
    narrow::{Access, Matching, Narrow, Operand, Probe},
    unparse::write,
};

/// A use of a list of objects that looks at objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListUse {
    /// The canonical text of the subexpression that uses the list.
    pub expr: String,
    /// The macro's access to its list.
    pub way: ListAccess,
}

/// The access of a subexpression to the objects that the subexpression reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAccess {
    /// Objects with certain values, in words that stand behind "objects".
    Index(String),
    /// All objects, since their condition says nothing that can be looked up.
    Condition,
    /// All objects, whatever they are.
    Whole,
}

/// An input, and the list of objects in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListInput<'n> {
    /// The field `items` of the name's value.
    List(&'n str),
    /// The value itself.
    Array(&'n str),
    /// The value is one object, and there is no list.
    Object(&'n str),
}

impl Program {
    /// Returns the uses that the expression makes of the lists in these documents, in the order in which they are
    /// written. `names` and `variables` are those that it was compiled with; what variables use is theirs.
    pub fn list_uses(
        &self,
        names: &Names,
        variables: &[Self],
        documents: &[ListInput<'_>],
    ) -> Vec<ListUse> {
        let mut finder = ListUseFinder {
            names,
            variables,
            documents,
            found: Vec::new(),
        };
        finder.walk(self.expr(), 0);
        finder.found
    }

    /// Returns whether the expression is no more than the list in one of these documents.
    pub(crate) fn is_list(
        &self,
        names: &Names,
        variables: &[Self],
        documents: &[ListInput<'_>],
    ) -> bool {
        let finder = ListUseFinder {
            names,
            variables,
            documents,
            found: Vec::new(),
        };
        finder.is_list(self.expr())
    }
}

struct ListUseFinder<'f> {
    names: &'f Names,
    variables: &'f [Program],
    documents: &'f [ListInput<'f>],
    found: Vec<ListUse>,
}

impl ListUseFinder<'_> {
    fn walk(&mut self, expr: &Expr, depth: usize) {
        match expr {
            Expr::Macro(made) => {
                if self.is_list(&made.range) {
                    self.macro_over_list(expr, made, depth);
                } else {
                    self.walk(&made.range, depth);
                }
                let inner = depth + 1 + usize::from(made.is_of_pairs);
                made.filter
                    .iter()
                    .for_each(|filter| self.walk(filter, inner));
                self.walk(&made.body, inner);
            }
            // One object, or the number of them.
            Expr::Index(pair) if self.is_list(&pair.0) => self.walk(&pair.1, depth),
            Expr::Call(call)
                if call.function.name == "size"
                    && call.arguments.iter().all(|one| self.is_list(one)) => {}
            _ if self.is_list(expr) => self.add(expr, ListAccess::Whole, depth),
            _ => {
                for child in expr.children() {
                    self.walk(child, depth);
                }
            }
        }
    }

    fn macro_over_list(&mut self, expr: &Expr, made: &Macro, depth: usize) {
        let decides = made.filter.is_some() || made.kind.asks_of_elements();
        let way = match Access::of(made, depth) {
            Some(access) => {
                let writer = NarrowWriter {
                    names: self.names,
                    body: made.deciding(),
                };
                ListAccess::Index(writer.narrow(&access.narrow))
            }
            None if decides => ListAccess::Condition,
            None => ListAccess::Whole,
        };
        self.add(expr, way, depth);
    }

    fn add(&mut self, expr: &Expr, way: ListAccess, depth: usize) {
        let expr = write(expr, depth, self.names, &mut |_| None);
        self.found.push(ListUse { expr, way });
    }

    fn is_list(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Input(at) => {
                let name = self.names.input_name(*at);
                self.documents.contains(&ListInput::Array(name))
            }
            Expr::Select(operand, field) if &**field == "items" => match &**operand {
                Expr::Input(at) => {
                    let name = self.names.input_name(*at);
                    self.documents.contains(&ListInput::List(name))
                }
                _ => false,
            },
            Expr::Variable(at) => {
                let variable = self.variables.get(*at);
                variable.is_some_and(|variable| self.is_list(variable.expr()))
            }
            Expr::Call(call) if call.function.name == "orValue" => call
                .arguments
                .first()
                .is_some_and(|list| self.is_list(list)),
            _ => false,
        }
    }
}

/// Writes what elements have to have.
struct NarrowWriter<'w> {
    names: &'w Names,
    body: &'w Expr,
}

impl NarrowWriter<'_> {
    fn narrow(&self, narrow: &Narrow) -> String {
        let joined = |parts: &[Narrow], between: &str| {
            let parts: Vec<_> = parts.iter().map(|part| self.narrow(part)).collect();
            parts.join(between)
        };
        match narrow {
            Narrow::Probe(probe) => self.probe(probe),
            Narrow::Any(parts) => joined(parts, " and objects "),
            Narrow::All(ways) => joined(ways, ", or if they are fewer, objects "),
            Narrow::Over {
                range,
                place,
                inner,
            } => {
                let range = self.operand(range);
                format!("{}, for each _{place} of {range}", self.narrow(inner))
            }
        }
    }

    fn probe(&self, probe: &Probe) -> String {
        let (key, operand) = (&probe.key, self.operand(&probe.operand));
        let is_list = key.steps().contains(&KeyStep::Each);
        match (probe.matching, is_list) {
            (Matching::Among, true) => format!("with one of {operand} among {key}"),
            (Matching::Among, false) => format!("whose {key} is one of {operand}"),
            (_, true) => format!("with {operand} among {key}"),
            (_, false) => format!("whose {key} is {operand}"),
        }
    }

    fn operand(&self, operand: &Operand) -> String {
        let expr = self.body.at(&operand.path);
        expr.map_or_else(String::new, |expr| {
            write(expr, operand.depth, self.names, &mut |_| None)
        })
    }
}

impl ListAccess {
    /// Returns why all objects are looked through, in words that stand behind the subexpression; empty: they are not.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Index(_) => "",
            Self::Condition => "has to be evaluated on every object",
            Self::Whole => "takes something of every object",
        }
    }

    /// Returns how to avoid that; empty: there is no need.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Index(_) => "",
            Self::Condition => {
                "An index answers `path == value`, `path in values`, `value in path` and an `exists()` of these on a \
                 list of the object, where the value is not of the object; join one of these with `&&`"
            }
            Self::Whole => {
                "Filter the objects by a value of the request with `exists()` or `filter()`, or count them with \
                 `size()`"
            }
        }
    }
}

impl fmt::Display for ListUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expr, way } = self;
        match way {
            ListAccess::Index(writer) => write!(f, "index: objects {writer}"),
            ListAccess::Condition | ListAccess::Whole => {
                write!(f, "scan: `{expr}` {}. {}", way.reason(), way.advice())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_of_lists_are_told_in_words() {
        let condition = |expr: &str| {
            format!(
                "scan: `{expr}` has to be evaluated on every object. An index answers `path == value`, `path in \
                 values`, `value in path` and an `exists()` of these on a list of the object, where the value is not \
                 of the object; join one of these with `&&`"
            )
        };
        let whole = |expr: &str| {
            format!(
                "scan: `{expr}` takes something of every object. Filter the objects by a value of the request with \
                 `exists()` or `filter()`, or count them with `size()`"
            )
        };
        let mut names = Names::default().without_request();
        ["view", "own", "p0"]
            .into_iter()
            .for_each(|name| names.add_input(name));
        let list = Program::compile("view.items", &names).unwrap();
        names.define("all", &list);
        for (source, expected) in [
            ("view.items.size() > 3 && view.kind == 'a' && own[0].a == p0", vec![]),
            (
                "!view.items.exists(x, x.spec.rules.exists(r, r.host == p0))",
                vec!["index: objects with p0 among spec.rules[].host".to_owned()],
            ),
            (
                "p0.exists(r, variables.all.exists(x, x.a == r.b && has(x.c) && x.c in r.l) || own.exists(y, y.a == 1))",
                vec![
                    "index: objects whose a is _0.b, or if they are fewer, objects whose c? is one of _0.l".to_owned(),
                    "index: objects whose a is 1".to_owned(),
                ],
            ),
            (
                "own.exists(x, p0.exists(r, r.a == x.a))",
                vec!["index: objects whose a is _1.a, for each _1 of p0".to_owned()],
            ),
            (
                "own.filter(x, x.a > p0).size() == 0",
                vec![condition("own.filter(_0, _0.a > p0)")],
            ),
            (
                "own.exists(x, x.a > p0)",
                vec![condition("own.exists(_0, _0.a > p0)")],
            ),
            (
                "p0.exists(k, r, own.exists(x, x.a == r.b))",
                vec!["index: objects whose a is _1.b".to_owned()],
            ),
            (
                "p0.exists(q, own.exists(x, q.l.exists(r, r.a == x.a)))",
                vec!["index: objects whose a is _2.a, for each _2 of _0.l".to_owned()],
            ),
            ("own.map(x, x.a)", vec![whole("own.map(_0, _0.a)")]),
            ("own.map(x, x.a)[0] == p0", vec![whole("own.map(_0, _0.a)")]),
            ("own.distinct().exists(x, x.a == p0)", vec![whole("own")]),
            ("p0 in own", vec![whole("own")]),
        ] {
            let program = Program::compile(source, &names).unwrap();
            let documents = [ListInput::List("view"), ListInput::Array("own")];
            let uses = program.list_uses(&names, std::slice::from_ref(&list), &documents);
            let writer: Vec<_> = uses.iter().map(ToString::to_string).collect();
            assert_eq!(writer, expected, "{source}");
        }
    }
}
