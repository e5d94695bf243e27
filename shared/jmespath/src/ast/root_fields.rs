//! The names that an expression looks up in the document itself. Pure.

use std::collections::BTreeSet;

use super::{Argument, Ast, Term, TermId};

impl Ast {
    /// Returns the fields that are looked up in the document itself, rather than in something taken from it.
    pub fn root_fields(&self) -> BTreeSet<&str> {
        let mut fields = BTreeSet::new();
        self.add_root_fields(self.root(), &mut fields);
        fields
    }

    fn add_root_fields<'a>(&'a self, term: TermId, fields: &mut BTreeSet<&'a str>) {
        match self.term(term) {
            Term::Field(name) => {
                fields.insert(name);
            }
            Term::Path(terms) | Term::Pipe(terms) => {
                if let Some(first) = terms.first() {
                    self.add_root_fields(*first, fields);
                }
            }
            Term::Or(terms) | Term::And(terms) | Term::List(terms) => {
                for term in terms {
                    self.add_root_fields(*term, fields);
                }
            }
            Term::Not(term) | Term::Flatten(term) => self.add_root_fields(*term, fields),
            Term::Compare { left, right, .. } => {
                self.add_root_fields(*left, fields);
                self.add_root_fields(*right, fields);
            }
            Term::Project { left, .. }
            | Term::ProjectValues { left, .. }
            | Term::Filter { left, .. } => self.add_root_fields(*left, fields),
            Term::Object(entries) => {
                for (_, term) in entries {
                    self.add_root_fields(*term, fields);
                }
            }
            Term::Call { arguments, .. } => {
                for argument in arguments {
                    if let Argument::Value(term) = argument {
                        self.add_root_fields(*term, fields);
                    }
                }
            }
            Term::Current
            | Term::Index(_)
            | Term::Slice(_)
            | Term::Literal(_)
            | Term::Parameter(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Expression;

    #[test]
    fn only_names_that_are_looked_up_in_the_document_are_root_fields() {
        for (expression, expected) in [
            ("a.b | c", &["a"][..]),
            ("a[?b == c].d || e", &["a", "e"]),
            ("{x: a, y: b.c[*].d}", &["a", "b"]),
            ("sort_by(a, &b) && !c", &["a", "c"]),
            ("@.a", &["a"]),
            ("`1`", &[]),
        ] {
            let parsed = Expression::parse(expression).unwrap();
            let found: Vec<_> = parsed.ast().root_fields().into_iter().collect();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
