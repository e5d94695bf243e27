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
                for expr in exprs {
                    self.add_root_fields(*expr, fields);
                    // The next step takes its fields from the document as long as the document is what it gets.
                    if !self.may_be_document(*expr) {
                        break;
                    }
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

    /// Returns true if the expression may come to the document itself, as `@` does and `not_null(@)`.
    fn may_be_document(&self, expr: ExprId) -> bool {
        let one = |expr: &ExprId| self.may_be_document(*expr);
        match self.expr(expr) {
            Expr::Current => true,
            Expr::Path(exprs) | Expr::Pipe(exprs) => exprs.iter().all(one),
            Expr::Or(exprs) | Expr::And(exprs) => exprs.iter().any(one),
            Expr::Call { arguments, .. } => arguments
                .iter()
                .any(|argument| matches!(argument, Argument::Value(value) if one(value))),
            _ => false,
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
            ("@ | a", &["a"]),
            ("(@ | @) | a.b", &["a"]),
            ("not_null(b, @).a || (c && @) | d", &["a", "b", "c", "d"]),
            ("`1`", &[]),
        ] {
            let parsed = Expression::parse(expression).unwrap();
            let found: Vec<_> = parsed.ast().root_fields().into_iter().collect();
            assert_eq!(found, expected, "{expression}");
        }
    }
}
