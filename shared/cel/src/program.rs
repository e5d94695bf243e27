//! Checked expressions.

use std::sync::Arc;

use crate::{ast::Expr, fact::Site, kind::Kind, request_reads::InputReads, value::Val};

/// A checked expression: immutable, and shared by all evaluations.
#[derive(Clone, Debug)]
pub struct Program(Arc<ProgramData>);

/// The content of a program, which its clones share.
#[derive(Debug)]
struct ProgramData {
    source: String,
    expr: Expr,
    kind: Kind,
    reads: InputReads,
}

impl Program {
    /// An expression that was checked.
    pub(crate) fn new(source: &str, expr: Expr, kind: Kind) -> Self {
        let reads = InputReads::of(&expr);
        Self(Arc::new(ProgramData {
            source: source.to_owned(),
            expr,
            kind,
            reads,
        }))
    }

    /// Returns the program with a different expression for the same value.
    pub(crate) fn map_expr(self, change: impl FnOnce(Expr) -> Expr) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Self(Arc::new(ProgramData {
                expr: change(inner.expr),
                ..inner
            })),
            // A shared program stays unchanged.
            Err(shared) => Self(shared),
        }
    }

    /// The text of the expression.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns whether it can come to true or false, as far as its types are known.
    pub fn can_be_bool(&self) -> bool {
        matches!(self.0.kind, Kind::Bool | Kind::Any)
    }

    /// Returns whether it can come to a string, as far as its types are known.
    pub fn can_be_text(&self) -> bool {
        matches!(self.0.kind, Kind::Text | Kind::Any)
    }

    /// Returns whether it can come to null, as far as its types are known.
    pub fn can_be_null(&self) -> bool {
        matches!(self.0.kind, Kind::Null | Kind::Any)
    }

    /// Returns whether it can come to JSON ([`Machine::json`](crate::Machine::json)), as far as its types are known.
    pub fn can_be_json(&self) -> bool {
        use Kind::{Any, Bool, Bytes, Double, Int, List, Map, Null, Object, Patch, Text, Uint};
        let kinds = [
            Null, Bool, Int, Uint, Double, Text, Bytes, List, Map, Object, Patch,
        ];
        self.0.kind == Any || kinds.contains(&self.0.kind)
    }

    /// Returns whether it can come to an object ([`Machine::object`](crate::Machine::object)), as far as its types
    /// are known.
    pub fn can_be_object(&self) -> bool {
        matches!(
            self.0.kind,
            Kind::Object | Kind::Map | Kind::Null | Kind::Any
        )
    }

    /// Returns whether it can come to a list of patches ([`Machine::patches`](crate::Machine::patches)), as far as its
    /// types are known.
    pub fn can_be_patches(&self) -> bool {
        matches!(self.0.kind, Kind::List | Kind::Any)
    }

    /// Returns whether it refers to the object's namespace, its own variables aside.
    pub fn reads_namespace(&self) -> bool {
        self.0.reads.namespace
    }

    /// Returns whether it refers to `params`, its own variables aside.
    pub fn reads_params(&self) -> bool {
        self.0.reads.params
    }

    /// Returns whether it refers to `exceptions`, its own variables aside.
    pub fn reads_exceptions(&self) -> bool {
        self.0.reads.exceptions
    }

    /// Returns whether equal values of all that it reads give an equal value, its own variables aside.
    pub fn is_deterministic(&self) -> bool {
        let draws =
            |expr: &Expr| matches!(expr, Expr::Call(call) if call.function.is_nondeterministic);
        !self.0.expr.any(&draws)
    }

    /// The variables that the program refers to, by their index among the variables of the compilation.
    pub fn variables(&self) -> &[usize] {
        &self.0.reads.variables
    }

    /// The paths that it reads of a request, from the request on; the value at the end of each is read whole.
    /// `object` stands for the old object too.
    pub fn request_paths(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.0.reads.paths.iter().map(|path| &**path)
    }

    /// The calls that read facts, in the order in which they are written. Those of variables are the variables' own.
    pub fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.0.reads.sites.iter()
    }

    /// Returns the value, if the expression is no more than that.
    pub(crate) fn literal(&self) -> Option<&Val<'static>> {
        match &self.0.expr {
            Expr::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// Returns whether it is a map whose fields are written out.
    pub(crate) fn is_map(&self) -> bool {
        matches!(&self.0.expr, Expr::Map(_))
    }

    pub(crate) fn expr(&self) -> &Expr {
        &self.0.expr
    }

    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }
}
