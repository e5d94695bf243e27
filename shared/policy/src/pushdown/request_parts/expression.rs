//! The parts of the request that an expression reads.

use anteroom_jmespath::ast::{Argument, Ast, Expr, ExprId};

use super::RequestParts;

/// The images of Pods are taken from their specs; where a subresource is asked for, the object says whether
/// it is a Pod.
const IMAGES_OF: &[&[&str]] = &[&["object", "spec"], &["object", "kind"]];

/// Steps of a path that are followed. The value there is read whole.
const STEPS_MAX: usize = 64;

/// Adds the parts that `ast` reads, if it is evaluated on a rule's context.
pub(super) fn add(ast: &Ast, parts: &mut RequestParts) {
    let mut reader = PartsReader { ast, parts };
    let result = reader.expr(ast.root(), &ExprValue::Context);
    reader.whole(&result);
}

/// The value that a subexpression is evaluated on, or gives.
#[derive(Clone)]
enum ExprValue<'a> {
    /// The context itself.
    Context,
    /// The value at this path of the request, if there is one.
    Request(Vec<&'a str>),
    /// Something else, or something of which all was read already.
    Elsewhere,
}

struct PartsReader<'a, 'p> {
    ast: &'a Ast,
    parts: &'p mut RequestParts,
}

impl<'a> PartsReader<'a, '_> {
    /// Notes that the expression takes the whole value.
    fn whole(&mut self, at: &ExprValue<'a>) {
        match at {
            ExprValue::Context => self.parts.unite(&RequestParts::ALL),
            ExprValue::Request(path) => self.parts.add(path),
            ExprValue::Elsewhere => {}
        }
    }

    /// Subexpressions whose values are taken as they are.
    fn all_whole(&mut self, exprs: &[ExprId], at: &ExprValue<'a>) {
        for expr in exprs {
            let value = self.expr(*expr, at);
            self.whole(&value);
        }
    }

    fn expr(&mut self, expr: ExprId, at: &ExprValue<'a>) -> ExprValue<'a> {
        let ast = self.ast;
        match ast.expr(expr) {
            Expr::Current => return at.clone(),
            Expr::Field(name) => return self.field(name, at),
            Expr::Path(steps) | Expr::Pipe(steps) => {
                return steps
                    .iter()
                    .fold(at.clone(), |at, step| self.expr(*step, &at));
            }
            Expr::Literal(_) | Expr::Parameter(_) => {}
            Expr::Index(_) | Expr::Slice(_) => self.whole(at),
            Expr::Or(exprs) | Expr::And(exprs) => self.all_whole(exprs, at),
            Expr::Not(expr) | Expr::Flatten(expr) => self.all_whole(&[*expr], at),
            Expr::Compare { left, right, .. } => self.all_whole(&[*left, *right], at),
            Expr::Project { left, right } | Expr::ProjectValues { left, right } => {
                self.all_whole(&[*left], at);
                self.all_whole(&[*right], &ExprValue::Elsewhere);
            }
            Expr::Filter {
                left,
                condition,
                right,
            } => {
                self.all_whole(&[*left], at);
                self.all_whole(&[*condition, *right], &ExprValue::Elsewhere);
            }
            // Null on null: whether there is something is known of each field on the way.
            Expr::List(exprs) => self.all_whole(exprs, at),
            Expr::Object(entries) => {
                let exprs: Vec<_> = entries.iter().map(|(_, expr)| *expr).collect();
                self.all_whole(&exprs, at);
            }
            Expr::Call { arguments, .. } => {
                for argument in arguments {
                    match argument {
                        Argument::Value(expr) => self.all_whole(&[*expr], at),
                        // The function applies the expression to values of its remaining arguments, which are read
                        // whole.
                        Argument::Reference(expr) => {
                            self.all_whole(&[*expr], &ExprValue::Elsewhere);
                        }
                    }
                }
            }
        }
        ExprValue::Elsewhere
    }

    fn field(&mut self, name: &'a str, at: &ExprValue<'a>) -> ExprValue<'a> {
        match at {
            ExprValue::Context if name == "request" => ExprValue::Request(Vec::new()),
            ExprValue::Context if name == "images" => {
                IMAGES_OF.iter().for_each(|path| self.parts.add(path));
                ExprValue::Elsewhere
            }
            ExprValue::Context | ExprValue::Elsewhere => ExprValue::Elsewhere,
            ExprValue::Request(path) if path.len() == STEPS_MAX => {
                self.parts.add(path);
                ExprValue::Elsewhere
            }
            ExprValue::Request(path) => {
                let mut path = path.clone();
                path.push(name);
                // A missing field may raise an error, even if the value is not used.
                self.parts.touch(&path);
                ExprValue::Request(path)
            }
        }
    }
}
