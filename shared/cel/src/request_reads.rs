//! The parts of a request that an expression reads.

use std::sync::Arc;

use crate::{
    ast::{Expr, Root},
    fact::Site,
};

/// The inputs that an expression reads.
#[derive(Debug, Default)]
pub(crate) struct InputReads {
    pub(crate) namespace: bool,
    pub(crate) params: bool,
    pub(crate) exceptions: bool,
    pub(crate) variables: Vec<usize>,
    /// From the request on.
    pub(crate) paths: Vec<Box<[Box<str>]>>,
    pub(crate) sites: Vec<Arc<Site>>,
}

impl InputReads {
    pub(crate) fn of(expr: &Expr) -> Self {
        let mut reads = Self::default();
        reads.add(expr, &mut Vec::new());
        reads.variables.sort_unstable();
        reads.variables.dedup();
        reads.paths.sort();
        reads.paths.dedup();
        reads
    }

    /// `below` are the fields that are taken of the subexpression's value, the innermost last.
    fn add<'e>(&mut self, expr: &'e Expr, below: &mut Vec<&'e str>) {
        match expr {
            Expr::Root(root) if root.is_object() => self.path("object", below),
            Expr::Root(Root::Namespace) => self.namespace = true,
            Expr::Root(Root::AllowedImages | Root::AllowedValues) => self.exceptions = true,
            Expr::Root(_) => self.params = true,
            Expr::Literal(_) | Expr::Local(_) | Expr::Input(_) => {}
            Expr::Request(field) | Expr::HasRequest(field) => self.path(field, below),
            Expr::Variable(at) => self.variables.push(*at),
            Expr::Select(operand, field) | Expr::Has(operand, field) => {
                below.push(field);
                self.add(operand, below);
                below.pop();
            }
            Expr::Not(operand) | Expr::Negate(operand) => self.apart(operand),
            Expr::Index(pair) | Expr::OptionalIndex(pair) => match &pair.1 {
                Expr::Literal(crate::value::Val::Text(field)) => {
                    below.push(field);
                    self.add(&pair.0, below);
                    below.pop();
                }
                index => {
                    self.apart(&pair.0);
                    self.apart(index);
                }
            },
            Expr::And(pair) | Expr::Or(pair) | Expr::Binary(_, pair) => {
                self.apart(&pair.0);
                self.apart(&pair.1);
            }
            Expr::Conditional(parts) => {
                self.apart(&parts.0);
                self.apart(&parts.1);
                self.apart(&parts.2);
            }
            Expr::List(elements) => elements.iter().for_each(|one| self.apart(&one.value)),
            Expr::Map(entries) => entries.iter().for_each(|(key, element)| {
                self.apart(key);
                self.apart(&element.value);
            }),
            Expr::Struct(made) => made
                .fields
                .iter()
                .for_each(|(_, element)| self.apart(&element.value)),
            Expr::Macro(made) => {
                self.apart(&made.range);
                made.filter.iter().for_each(|filter| self.apart(filter));
                self.apart(&made.body);
            }
            Expr::Call(call) => call.arguments.iter().for_each(|one| self.apart(one)),
            Expr::Subquery(call) => self.add(&call.whole, below),
            Expr::Fact(call) => {
                self.sites.push(Arc::clone(&call.site));
                call.arguments.iter().for_each(|one| self.apart(one));
            }
        }
    }

    /// Adds a subexpression whose value is read whole.
    fn apart(&mut self, expr: &Expr) {
        self.add(expr, &mut Vec::new());
    }

    fn path(&mut self, first: &str, below: &[&str]) {
        let path = std::iter::once(first).chain(below.iter().rev().copied());
        self.paths.push(path.map(Box::from).collect());
    }
}
