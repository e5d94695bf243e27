//! The subexpressions within a subexpression.

use super::Expr;

/// A subexpression within another: at each level its place among the [children](Expr::children).
pub(crate) type ExprPath = Box<[u16]>;

impl Expr {
    /// The subexpressions that it is made of, in the order in which they are written.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        match self {
            Self::Literal(_)
            | Self::Root(_)
            | Self::Request(_)
            | Self::HasRequest(_)
            | Self::Variable(_)
            | Self::Input(_)
            | Self::Local(_) => Vec::new(),
            Self::Select(operand, _)
            | Self::Has(operand, _)
            | Self::Not(operand)
            | Self::Negate(operand) => vec![operand],
            Self::Index(pair)
            | Self::OptionalIndex(pair)
            | Self::And(pair)
            | Self::Or(pair)
            | Self::Binary(_, pair) => vec![&pair.0, &pair.1],
            Self::Conditional(parts) => vec![&parts.0, &parts.1, &parts.2],
            Self::List(elements) => elements.iter().map(|one| &one.value).collect(),
            Self::Map(entries) => entries
                .iter()
                .flat_map(|(key, element)| [key, &element.value])
                .collect(),
            Self::Macro(made) => {
                let range = std::iter::once(&made.range);
                range.chain(&made.filter).chain([&made.body]).collect()
            }
            Self::Call(call) => call.arguments.iter().collect(),
            Self::Fact(call) => call.arguments.iter().collect(),
            Self::Subquery(call) => vec![&call.whole],
            Self::Struct(made) => made.fields.iter().map(|(_, field)| &field.value).collect(),
        }
    }

    /// Visits the subexpressions that it is made of, each with the number of variables of macros around it.
    pub(crate) fn each_child_mut(
        &mut self,
        locals: usize,
        visit: &mut dyn FnMut(&mut Expr, usize),
    ) {
        match self {
            Self::Literal(_)
            | Self::Root(_)
            | Self::Request(_)
            | Self::HasRequest(_)
            | Self::Variable(_)
            | Self::Input(_)
            | Self::Local(_) => {}
            Self::Select(operand, _)
            | Self::Has(operand, _)
            | Self::Not(operand)
            | Self::Negate(operand) => visit(operand, locals),
            Self::Index(pair)
            | Self::OptionalIndex(pair)
            | Self::And(pair)
            | Self::Or(pair)
            | Self::Binary(_, pair) => {
                visit(&mut pair.0, locals);
                visit(&mut pair.1, locals);
            }
            Self::Conditional(parts) => {
                visit(&mut parts.0, locals);
                visit(&mut parts.1, locals);
                visit(&mut parts.2, locals);
            }
            Self::List(elements) => {
                for element in elements {
                    visit(&mut element.value, locals);
                }
            }
            Self::Map(entries) => {
                for (key, element) in entries {
                    visit(key, locals);
                    visit(&mut element.value, locals);
                }
            }
            Self::Macro(made) => {
                visit(&mut made.range, locals);
                let within = locals + 1 + usize::from(made.is_of_pairs);
                if let Some(filter) = &mut made.filter {
                    visit(filter, within);
                }
                visit(&mut made.body, within);
            }
            Self::Call(call) => call.arguments.iter_mut().for_each(|one| visit(one, locals)),
            Self::Fact(call) => call.arguments.iter_mut().for_each(|one| visit(one, locals)),
            Self::Subquery(call) => visit(&mut call.whole, locals),
            Self::Struct(made) => {
                for (_, field) in &mut made.fields {
                    visit(&mut field.value, locals);
                }
            }
        }
    }

    /// The subexpression at a path.
    pub(crate) fn at(&self, path: &[u16]) -> Option<&Expr> {
        path.iter()
            .try_fold(self, |expr, place| match (expr, place) {
                // The most frequent ones without a list of all.
                (Self::And(pair) | Self::Or(pair) | Self::Binary(_, pair), 0) => Some(&pair.0),
                (Self::And(pair) | Self::Or(pair) | Self::Binary(_, pair), 1) => Some(&pair.1),
                _ => expr.children().get(usize::from(*place)).copied(),
            })
    }

    /// Returns whether `is` holds for the subexpression or for any subexpression inside.
    pub(crate) fn any(&self, is: &dyn Fn(&Expr) -> bool) -> bool {
        is(self) || self.children().into_iter().any(|child| child.any(is))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Names, Program};

    fn shown(expr: &Expr) -> String {
        format!("{expr:?}")
    }

    #[test]
    fn children_are_visited_in_order_with_the_variables_of_macros_around_them() {
        let names = Names::default().in_dialect(Dialect::Kyverno);
        for (source, around) in [
            ("object.a", &[3][..]),
            ("!object.a", &[3][..]),
            ("object.a[object.b]", &[3, 3][..]),
            ("object.a && object.b", &[3, 3][..]),
            ("object.a ? object.b : object.c", &[3, 3, 3][..]),
            ("[object.a, object.b]", &[3, 3][..]),
            ("{'a': object.a}", &[3, 3][..]),
            ("Object{a: object.a}", &[3][..]),
            ("object.a.startsWith(object.b)", &[3, 3][..]),
            ("object.a.map(x, x.b, x.c)", &[3, 4, 4][..]),
            ("object.a.exists(k, v, v == k)", &[3, 5][..]),
        ] {
            let program = Program::compile(source, &names).unwrap();
            let children = program.expr().children().into_iter();
            let children: Vec<String> = children.map(shown).collect();
            let (mut visited, mut locals) = (Vec::new(), Vec::new());
            program.map_expr(|mut expr| {
                expr.each_child_mut(3, &mut |child, count| {
                    visited.push(shown(child));
                    locals.push(count);
                });
                expr
            });
            assert_eq!(visited, children, "{source}");
            assert_eq!(locals, around, "{source}");
        }
    }
}
