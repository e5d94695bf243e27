//! The parts of objects that an expression reads.
//!
//! Lists are passed through: `spec.rules.exists(r, r.host == p)` reads `spec.rules.host`. An element of which a field
//! is taken is taken for an element of a list, since a key of a map has none.

use crate::{
    ListInput, Names, Program,
    ast::{Expr, Macro, MacroKind},
    value::Val,
};

/// The depth to which a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadDepth {
    /// Only the presence and the type of the value.
    Touched,
    /// All of it.
    Whole,
}

impl Program {
    /// Calls `tell` with each path below `documents` that the expression reads, directly or through its variables.
    /// `names` and `variables` must be those of the compilation.
    pub fn object_reads(
        &self,
        names: &Names,
        variables: &[Self],
        documents: &[ListInput<'_>],
        tell: &mut dyn FnMut(&[Box<str>], ReadDepth),
    ) {
        let mut reader = ReadCollector {
            names,
            variables,
            documents,
            known: vec![None; variables.len()],
            locals: Vec::new(),
            tell,
        };
        let reached = reader.reach(self.expr());
        reader.consume(&reached);
    }
}

/// The places that one value may come from.
const PLACES_MAX: usize = 64;

/// A value, or the elements of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    /// A list with its own fields, which has the objects in `items`.
    List,
    /// In an object, at this path.
    Within(Vec<Box<str>>),
}

struct ReadCollector<'r> {
    names: &'r Names,
    variables: &'r [Program],
    documents: &'r [ListInput<'r>],
    /// The places that the variables may come to. Their reads are told.
    known: Vec<Option<Vec<Reached>>>,
    /// The values that the variables of macros may have.
    locals: Vec<Vec<Reached>>,
    tell: &'r mut dyn FnMut(&[Box<str>], ReadDepth),
}

impl ReadCollector<'_> {
    /// All of these is read.
    fn consume(&mut self, reached: &[Reached]) {
        for one in reached {
            match one {
                Reached::List => (self.tell)(&[], ReadDepth::Whole),
                Reached::Within(path) => (self.tell)(path, ReadDepth::Whole),
            }
        }
    }

    fn consumed(&mut self, expr: &Expr) {
        let reached = self.reach(expr);
        self.consume(&reached);
    }

    /// Returns the places in objects that a subexpression may come to, and tells what it reads on the way.
    fn reach(&mut self, expr: &Expr) -> Vec<Reached> {
        match expr {
            Expr::Input(at) => self.input(*at),
            Expr::Local(at) => self.locals.get(*at).cloned().unwrap_or_default(),
            Expr::Variable(at) => self.variable(*at),
            Expr::Select(operand, field) => {
                let operand = self.reach(operand);
                self.field(operand, field)
            }
            Expr::Has(operand, field) => {
                let operand = self.reach(operand);
                self.field(operand, field);
                Vec::new()
            }
            Expr::Index(pair) | Expr::OptionalIndex(pair) => {
                let operand = self.reach(&pair.0);
                match &pair.1 {
                    Expr::Literal(Val::Text(field)) => self.field(operand, field),
                    Expr::Literal(Val::Int(_)) => operand,
                    index => {
                        self.consumed(index);
                        self.consume(&operand);
                        Vec::new()
                    }
                }
            }
            Expr::Conditional(parts) => {
                self.consumed(&parts.0);
                let reached = [self.reach(&parts.1), self.reach(&parts.2)];
                self.united(reached.concat())
            }
            Expr::Macro(made) => self.macro_of(made),
            Expr::Call(call) if call.function.passes_arguments => {
                let arguments: Vec<_> = call.arguments.iter().map(|one| self.reach(one)).collect();
                self.united(arguments.concat())
            }
            Expr::Call(call) if call.function.name == "size" => {
                let reached: Vec<_> = call.arguments.iter().map(|one| self.reach(one)).collect();
                // The number of objects is no part of any.
                let is_of_objects = |one: &Reached| *one == Reached::Within(Vec::new());
                let mut within = reached.concat();
                within.retain(|one| !is_of_objects(one));
                self.consume(&within);
                Vec::new()
            }
            _ => {
                for child in expr.children() {
                    self.consumed(child);
                }
                Vec::new()
            }
        }
    }

    /// The places that a variable may come to. Each variable is followed once, however often others name it.
    fn variable(&mut self, at: usize) -> Vec<Reached> {
        let Some(variable) = self.variables.get(at) else {
            return Vec::new();
        };
        if let Some(Some(known)) = self.known.get(at) {
            return known.clone();
        }
        let around = std::mem::take(&mut self.locals);
        let reached = self.reach(variable.expr());
        self.locals = around;
        self.known[at] = Some(reached.clone());
        reached
    }

    /// Places without repetitions. Of too many, everything is read, so that nothing taken of them has to be told.
    fn united(&mut self, mut reached: Vec<Reached>) -> Vec<Reached> {
        reached.sort_unstable();
        reached.dedup();
        if reached.len() > PLACES_MAX {
            self.consume(&reached);
            reached.clear();
        }
        reached
    }

    fn input(&self, at: usize) -> Vec<Reached> {
        let name = self.names.input_name(at);
        let documents = self.documents.iter();
        let reached = documents.filter_map(|document| match document {
            ListInput::List(own) => (*own == name).then_some(Reached::List),
            ListInput::Array(own) | ListInput::Object(own) => {
                (*own == name).then(|| Reached::Within(Vec::new()))
            }
        });
        reached.collect()
    }

    fn field(&mut self, operand: Vec<Reached>, field: &str) -> Vec<Reached> {
        let mut reached = Vec::with_capacity(operand.len());
        for one in operand {
            match one {
                Reached::List if field == "items" => reached.push(Reached::Within(Vec::new())),
                Reached::List => {}
                Reached::Within(mut path) => {
                    path.push(field.into());
                    (self.tell)(&path, ReadDepth::Touched);
                    reached.push(Reached::Within(path));
                }
            }
        }
        reached
    }

    fn macro_of(&mut self, made: &Macro) -> Vec<Reached> {
        let range = self.reach(&made.range);
        let place = self.locals.len();
        if made.is_of_pairs {
            // A map's iteration yields its keys and values.
            let within = range
                .iter()
                .filter(|one| **one != Reached::Within(Vec::new()));
            let within: Vec<_> = within.cloned().collect();
            self.consume(&within);
            self.locals.push(Vec::new());
        }
        self.locals.push(range.clone());
        if let Some(filter) = &made.filter {
            self.consumed(filter);
        }
        let body = self.reach(&made.body);
        self.locals.truncate(place);
        match made.kind {
            MacroKind::Map | MacroKind::OptionalMap | MacroKind::OptionalFlatMap => body,
            MacroKind::SortBy => {
                self.consume(&body);
                range
            }
            _ => {
                self.consume(&body);
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(source: &str) -> Vec<String> {
        let mut names = Names::default().without_request();
        ["view", "own", "one", "p"]
            .into_iter()
            .for_each(|name| names.add_input(name));
        let list = Program::compile("view.items", &names).unwrap();
        names.define("all", &list);
        let program = Program::compile(source, &names).unwrap();
        let documents = [
            ListInput::List("view"),
            ListInput::Array("own"),
            ListInput::Object("one"),
        ];
        let mut found = Vec::new();
        let mut tell = |path: &[Box<str>], depth: ReadDepth| {
            let mark = if depth == ReadDepth::Whole { "" } else { "?" };
            found.push(format!("{}{mark}", path.join(".")));
        };
        program.object_reads(&names, std::slice::from_ref(&list), &documents, &mut tell);
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn reads_of_objects_are_followed_through_macros_and_variables() {
        for (source, expected) in [
            ("view.kind + view.metadata.resourceVersion", &[][..]),
            ("view.items.size() + variables.all.size()", &[]),
            ("view.items", &[""]),
            ("view", &[""]),
            ("own.exists(x, x.a.b == p)", &["a.b", "a.b?", "a?"]),
            (
                "variables.all.exists(x, x.s.rules.exists(r, r.host == p))",
                &["s.rules.host", "s.rules.host?", "s.rules?", "s?"],
            ),
            ("own.exists(x, has(x.a))", &["a?"]),
            (
                "own.filter(x, x.a == p).map(x, x.b)",
                &["a", "a?", "b", "b?"],
            ),
            ("own.filter(x, x.a == p).size() > 0", &["a", "a?"]),
            ("own.filter(x, x.a == p)", &["", "a", "a?"]),
            ("own[0].?a.orValue(p) == 1", &["a", "a?"]),
            ("one.data[p] == 1", &["data", "data?"]),
            ("one.data['k'] == 1", &["data.k", "data.k?", "data?"]),
            ("one == null", &[""]),
            ("own.all(k, x, x.a == p)", &["a", "a?"]),
            ("one.data.all(k, v, v == p)", &["data", "data?"]),
            ("(p ? own : view.items).exists(x, x.a)", &["a", "a?"]),
            ("own.map(x, {'k': x.a}).exists(y, y.k == 1)", &["a", "a?"]),
            ("own[0].?a.orValue({}).b == 1", &["a.b", "a.b?", "a?"]),
            ("own.distinct().size() == 1", &[""]),
            ("own.sortBy(x, x.a)[0].b == 1", &["a", "a?", "b", "b?"]),
        ] {
            assert_eq!(reads(source), expected, "{source}");
        }
    }
}
