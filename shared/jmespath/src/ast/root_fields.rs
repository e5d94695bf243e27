//! The names that an expression looks up in the document itself. Pure.

use std::collections::BTreeSet;

use super::{Argument, Ast, Expr, ExprId};

impl Ast {
    /// Returns the fields that are looked up in the document itself, rather than in something taken from it.
    pub fn root_fields(&self) -> BTreeSet<&str> {
        let mut fields = BTreeSet::new();
        self.add_root_fields(self.root(), &mut fields);
        fields
    }

    fn add_root_fields<'a>(&'a self, expr: ExprId, fields: &mut BTreeSet<&'a str>) {
        match self.expr(expr) {
            Expr::Field(name) => {
                fields.insert(name);
            }
            Expr::Path(exprs) | Expr::Pipe(exprs) => {
                if let Some(first) = exprs.first() {
                    self.add_root_fields(*first, fields);
                }
            }
            Expr::Or(exprs) | Expr::And(exprs) | Expr::List(exprs) => {
                for expr in exprs {
                    self.add_root_fields(*expr, fields);
                }
            }
            Expr::Not(expr) | Expr::Flatten(expr) => self.add_root_fields(*expr, fields),
            Expr::Compare { left, right, .. } => {
                self.add_root_fields(*left, fields);
                self.add_root_fields(*right, fields);
            }
            Expr::Project { left, .. }
            | Expr::ProjectValues { left, .. }
            | Expr::Filter { left, .. } => self.add_root_fields(*left, fields),
            Expr::Object(entries) => {
                for (_, expr) in entries {
                    self.add_root_fields(*expr, fields);
                }
            }
            Expr::Call { arguments, .. } => {
                for argument in arguments {
                    if let Argument::Value(expr) = argument {
                        self.add_root_fields(*expr, fields);
                    }
                }
            }
            Expr::Current
            | Expr::Index(_)
            | Expr::Slice(_)
            | Expr::Literal(_)
            | Expr::Parameter(_) => {}
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
