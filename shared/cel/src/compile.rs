//! From text to a checked expression.

mod call;
mod kind;
mod names;
mod term;

use std::sync::Arc;

use cel::parser::PrattParser;

pub(crate) use kind::Kind;
pub use names::Names;

use crate::{CompileError, ast::Expr, reads::Reads, scan};

/// Levels of terms within terms. Kubernetes' own policies stay below 30.
pub const EXPRESSION_DEPTH_MAX: usize = 100;

/// A checked expression: immutable, and shared by all evaluations.
#[derive(Clone, Debug)]
pub struct Program(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: String,
    expr: Expr,
    kind: Kind,
    reads: Reads,
}

impl Program {
    /// Compiles an expression in which `names` can stand.
    ///
    /// # Errors
    /// What keeps it from being evaluated, whatever the object: it is no expression, is larger than the
    /// limits, names what there is not, or is of types that do not fit.
    pub fn compile(source: &str, names: &Names) -> Result<Self, CompileError> {
        scan::check(source)?;
        let parsed = parser().parse(source).map_err(|errors| {
            let all = errors.errors.iter().map(|error| {
                let (line, column) = error.pos;
                match line > 0 {
                    true => format!("{line}:{column}: {}", error.msg),
                    false => error.msg.clone(),
                }
            });
            CompileError::Invalid(all.take(3).collect::<Vec<_>>().join("; "))
        })?;
        let mut compiler = term::Compiler::new(names);
        let (expr, kind) = compiler.term(&parsed)?;
        let reads = Reads::of(&expr);
        Ok(Self(Arc::new(Inner {
            source: source.to_owned(),
            expr,
            kind,
            reads,
        })))
    }

    /// As written.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether it can come to true or false, as far as its types are known.
    pub fn can_be_bool(&self) -> bool {
        matches!(self.0.kind, Kind::Bool | Kind::Any)
    }

    /// Whether it can come to a string, as far as its types are known.
    pub fn can_be_text(&self) -> bool {
        matches!(self.0.kind, Kind::Text | Kind::Any)
    }

    /// Whether it can come to null, as far as its types are known.
    pub fn can_be_null(&self) -> bool {
        matches!(self.0.kind, Kind::Null | Kind::Any)
    }

    /// Whether it refers to the object's namespace, its own variables aside.
    pub fn reads_namespace(&self) -> bool {
        self.0.reads.namespace
    }

    /// Whether it refers to `params`, its own variables aside.
    pub fn reads_params(&self) -> bool {
        self.0.reads.params
    }

    /// The variables that it refers to, by their place among those that it was compiled with.
    pub fn variables(&self) -> &[usize] {
        &self.0.reads.variables
    }

    /// What it reads of a request, as paths from the request on: what is at the end of each, whole.
    /// `object` stands for the old object too.
    pub fn request_paths(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.0.reads.paths.iter().map(|path| &**path)
    }

    pub(crate) fn expr(&self) -> &Expr {
        &self.0.expr
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }
}

fn parser() -> PrattParser {
    PrattParser::new()
        .enable_optional_syntax(true)
        .max_recursion_depth(scan::NESTING_MAX as u16 + 1)
        .max_expression_node_count(8 * scan::TOKENS_MAX)
}

#[cfg(test)]
mod tests;
