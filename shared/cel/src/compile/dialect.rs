//! The names that only one dialect has.

use cel::common::ast::{Expr as Parsed, IdedExpr};

use super::expr::{Compiler, Typed};
use crate::{
    CompileError,
    ast::{Call, Expr, MacroKind, Operator, Root},
    functions,
    kind::Kind,
    value::Val,
};

/// A field of the template's metadata that is the object's own, since a template has none.
const OUTER: &str = "namespace";

/// The fields of metadata that are always the template's.
const OF_TEMPLATE: [&str; 2] = ["annotations", "labels"];

impl Compiler<'_> {
    pub(super) fn is_kyverno(&self) -> bool {
        self.names.is_kyverno()
    }

    /// `request.object` and `exceptions.allowedImages`, and their kin.
    pub(super) fn dialect_root(&self, operand: &IdedExpr, field: &str) -> Option<Root> {
        if !self.is_kyverno() {
            return None;
        }
        match field {
            "object" if self.is_root(operand, "request") => Some(Root::RequestObject),
            "oldObject" if self.is_root(operand, "request") => Some(Root::RequestOldObject),
            "allowedImages" if self.is_root(operand, "exceptions") => Some(Root::AllowedImages),
            "allowedValues" if self.is_root(operand, "exceptions") => Some(Root::AllowedValues),
            _ => None,
        }
    }

    /// A field of a root that only this dialect has.
    pub(super) fn dialect_field(
        &self,
        operand: &IdedExpr,
        field: &str,
        test: bool,
    ) -> Option<Result<Typed, CompileError>> {
        if let Some(root) = self.dialect_root(operand, field) {
            return Some(Ok(match (test, root.is_object()) {
                (false, true) => (Expr::Root(root), Kind::Any),
                (false, false) => (Expr::Root(root), Kind::List),
                (true, true) => (is_there(root), Kind::Bool),
                (true, false) => (Expr::Literal(Val::Bool(true)), Kind::Bool),
            }));
        }
        (self.is_kyverno() && self.is_root(operand, "exceptions")).then(|| {
            let message = format!(
                "`exceptions` has no field `{field}`; it has allowedImages and allowedValues"
            );
            Err(CompileError::Invalid(message))
        })
    }

    /// Compiles `request.?field`.
    pub(super) fn optional_request_field(
        &mut self,
        operand: &IdedExpr,
        field: &IdedExpr,
    ) -> Option<Result<Typed, CompileError>> {
        use cel::common::ast::LiteralValue;

        if !self.names.has_request() || !self.is_root(operand, "request") {
            return None;
        }
        let Parsed::Literal(LiteralValue::String(name)) = &field.expr else {
            return None;
        };
        let parts = self
            .select(operand, name.inner(), true)
            .and_then(|(test, _)| Ok((test, self.select(operand, name.inner(), false)?.0)));
        Some(parts.and_then(|(test, value)| {
            let there = self.optional("optional.of", vec![value])?;
            let none = self.optional("optional.none", Vec::new())?;
            Ok((
                Expr::Conditional(Box::new((test, there, none))),
                Kind::Optional,
            ))
        }))
    }

    /// A call of a function that makes an optional.
    fn optional(&self, name: &str, arguments: Vec<Expr>) -> Result<Expr, CompileError> {
        let Some(function) = functions::find(name, false, self.names.dialect) else {
            let message = format!("there is no function {name}()");
            return Err(CompileError::Invalid(message));
        };
        Ok(Expr::Call(Box::new(Call {
            function,
            arguments,
            pattern: None,
            site: 0,
        })))
    }

    /// `cel.bind(name, value, body)`; `None`: it is another call.
    pub(super) fn bind(
        &mut self,
        name: &str,
        target: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Option<Result<Typed, CompileError>> {
        if !self.is_kyverno() || name != "bind" || !self.is_root(target, "cel") {
            return None;
        }
        let [variable, value, body] = arguments else {
            return Some(Err(CompileError::invalid("cel.bind() takes 3 arguments")));
        };
        let Parsed::Ident(variable) = &variable.expr else {
            let message = "the variable of cel.bind() is a simple name";
            return Some(Err(CompileError::invalid(message)));
        };
        Some(self.macro_of(MacroKind::Bind, value, &[], &[variable], None, body))
    }

    /// The operand of `.namespace`, and of what else is the object's own: where it is the metadata of a template, the
    /// object's.
    pub(super) fn outer(&self, operand: Expr, field: &str) -> Expr {
        let is_own = field == OUTER || self.names.own_metadata && !OF_TEMPLATE.contains(&field);
        if !self.is_kyverno() || !is_own || self.names.template.is_empty() {
            return operand;
        }
        match self.is_template_metadata(&operand) {
            true => peeled(operand, self.names.template.len()),
            false => operand,
        }
    }

    fn is_template_metadata(&self, operand: &Expr) -> bool {
        let path = self.names.template.iter().map(String::as_str);
        let steps = path.chain(["metadata"]).rev();
        let mut found = operand;
        for step in steps {
            match access(found) {
                Some((inner, name)) if name == step => found = inner,
                _ => return false,
            }
        }
        is_object(found)
    }
}

/// Returns whether the subexpression is the request's object, or an optional of it.
pub(super) fn is_object(expr: &Expr) -> bool {
    match expr {
        Expr::Root(root) => root.is_object(),
        // As `optional_request_field` makes it.
        Expr::Conditional(parts) => match &parts.1 {
            Expr::Call(call) if call.function.name == "optional.of" => {
                matches!(&*call.arguments, [Expr::Root(root)] if root.is_object())
            }
            _ => false,
        },
        _ => false,
    }
}

fn is_there(root: Root) -> Expr {
    let sides = (Expr::Root(root), Expr::Literal(Val::Null));
    Expr::Binary(Operator::NotEqual, Box::new(sides))
}

/// The operand and the name, where a subexpression looks into another one by name.
fn access(expr: &Expr) -> Option<(&Expr, &str)> {
    match expr {
        Expr::Select(operand, name) => Some((operand, name)),
        Expr::Index(pair) | Expr::OptionalIndex(pair) => match &pair.1 {
            Expr::Literal(Val::Text(name)) => Some((&pair.0, name)),
            _ => None,
        },
        _ => None,
    }
}

/// Takes out `steps` accesses below the last one of a subexpression.
fn peeled(expr: Expr, steps: usize) -> Expr {
    match expr {
        Expr::Select(operand, name) => Expr::Select(Box::new(below(*operand, steps)), name),
        Expr::Index(pair) => Expr::Index(Box::new((below(pair.0, steps), pair.1))),
        Expr::OptionalIndex(pair) => Expr::OptionalIndex(Box::new((below(pair.0, steps), pair.1))),
        other => other,
    }
}

fn below(expr: Expr, steps: usize) -> Expr {
    if steps == 0 {
        return expr;
    }
    match expr {
        Expr::Select(operand, _) => below(*operand, steps - 1),
        Expr::Index(pair) | Expr::OptionalIndex(pair) => below(pair.0, steps - 1),
        other => other,
    }
}
