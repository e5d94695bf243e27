//! From text to a checked expression.

mod call;
mod dialect;
mod expr;
mod fact;
mod names;
mod operators;
mod structs;

use cel::{common::ast::IdedExpr, parser::PrattParser};

use anteroom_functions::meter;
pub use names::Names;

use crate::{CompileError, program::Program, scan};

/// Steps for each byte of a text that is compiled.
const STEPS_PER_BYTE: u64 = 4;

impl Program {
    /// Compiles an expression in which `names` can stand.
    ///
    /// # Errors
    /// The text cannot be evaluated, whatever the object: it is no expression, is larger than the limits, names what
    /// there is not, or is of types that do not fit.
    pub fn compile(source: &str, names: &Names) -> Result<Self, CompileError> {
        let parsed = parse(source, names)?;
        let mut compiler = expr::Compiler::new(names, source);
        let (expr, kind) = compiler.expr(&parsed)?;
        Ok(Self::new(source, expr, kind))
    }
}

fn parse(source: &str, names: &Names) -> Result<IdedExpr, CompileError> {
    scan::check(source)?;
    if !meter::charge(STEPS_PER_BYTE * source.len() as u64) {
        return Err(CompileError::invalid("compiling takes too many steps"));
    }
    parser(names).parse(source).map_err(|errors| {
        let all = errors.errors.iter().map(|error| {
            let (line, column) = error.pos;
            match line > 0 {
                true => format!("{line}:{column}: {}", error.msg),
                false => error.msg.clone(),
            }
        });
        CompileError::Invalid(all.take(3).collect::<Vec<_>>().join("; "))
    })
}

/// Only Kyverno's CEL reads fields in backticks: that of API servers is older.
fn parser(names: &Names) -> PrattParser {
    PrattParser::new()
        .enable_optional_syntax(true)
        .enable_ident_escape_syntax(names.is_kyverno())
        .max_recursion_depth(scan::NESTING_MAX as u16 + 1)
        .max_expression_node_count(8 * scan::TOKENS_MAX)
}

#[cfg(test)]
mod tests;
