//! Calls of functions, by their names.

use cel::common::ast::{Expr as Parsed, IdedExpr};

use super::{
    Kind,
    term::{Compiler, Typed},
};
use crate::{
    CompileError,
    ast::{Call, Expr, MacroKind},
    functions::{self, Function, pattern},
    value::Val,
};

/// Functions of Kubernetes' CEL that are not here, by name.
const LATER: &[&str] = &[
    "allowed",
    "check",
    "errored",
    "fieldSelector",
    "group",
    "labelSelector",
    "path",
    "reason",
    "resource",
    "serviceAccount",
    "sortBy",
    "subresource",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "validate",
];

/// Names before a dot whose functions are not here.
const LATER_NAMESPACES: &[&str] = &["base64", "cel", "format", "jsonpatch", "math"];

impl Compiler<'_> {
    pub(super) fn named_call(
        &mut self,
        name: &str,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Result<Typed, CompileError> {
        let namespace = target.and_then(|target| self.namespace(target));
        if let Some(namespace) = &namespace {
            let qualified = format!("{namespace}.{name}");
            if let Some(function) = functions::find(&qualified, false) {
                return self.function(function, None, arguments);
            }
            if LATER_NAMESPACES.contains(&&**namespace) {
                return Err(later(&qualified));
            }
        }
        if let (Some(target), [variable, body]) = (target, arguments)
            && let Some(kind) = optional_macro(name)
        {
            let Parsed::Ident(variable) = &variable.expr else {
                let message = format!("the first argument of {name}() is a simple name");
                return Err(CompileError::Invalid(message));
            };
            let range = (target, &[Kind::Optional][..]);
            return self.macro_of(kind, range, variable, None, body);
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        match functions::find(name, target.is_some()) {
            Some(function) => self.function(function, target, arguments),
            None => {
                // What it is called on may say more of why there is no such function.
                target.map(|target| self.term(target)).transpose()?;
                Err(unknown(name, target.is_some(), arguments.len()))
            }
        }
    }

    fn function(
        &mut self,
        function: &'static Function,
        target: Option<&IdedExpr>,
        parsed: &[IdedExpr],
    ) -> Result<Typed, CompileError> {
        let all: Vec<_> = target.into_iter().chain(parsed).collect();
        let (least, most) = function.arguments;
        if !(least..=most).contains(&all.len()) {
            let receiver = usize::from(target.is_some());
            let count = |count: usize| count.saturating_sub(receiver);
            let takes = match least == most {
                true => count(least).to_string(),
                false => format!("{} to {}", count(least), count(most)),
            };
            let message = format!("{}() takes {takes} arguments", function.name);
            return Err(CompileError::Invalid(message));
        }
        let mut arguments = Vec::with_capacity(all.len());
        let mut kinds = Vec::with_capacity(all.len());
        for one in all {
            let (argument, kind) = self.term(one)?;
            arguments.push(argument);
            kinds.push(kind);
        }
        if let (Some(first), false) = (kinds.first(), function.of.is_empty())
            && !first.can_be(function.of)
        {
            return Err(super::term::mismatch(function.name, &kinds));
        }
        let pattern = match arguments.get(1) {
            Some(Expr::Literal(Val::Text(text))) if function.takes_pattern => {
                Some(pattern(text).map_err(CompileError::Invalid)?)
            }
            _ => None,
        };
        let result = function.result;
        let call = Call {
            function,
            arguments,
            pattern,
        };
        Ok((Expr::Call(Box::new(call)), result))
    }
}

fn optional_macro(name: &str) -> Option<MacroKind> {
    match name {
        "optMap" => Some(MacroKind::OptionalMap),
        "optFlatMap" => Some(MacroKind::OptionalFlatMap),
        _ => None,
    }
}

fn later(name: &str) -> CompileError {
    CompileError::Unsupported(format!("this version has no function {name}()"))
}

fn unknown(name: &str, is_method: bool, arguments: usize) -> CompileError {
    let two_variables = matches!(name, "all" | "exists" | "exists_one" | "existsOne");
    if LATER.contains(&name) || (two_variables && arguments == 3) {
        return later(name);
    }
    let other = functions::find(name, !is_method).is_some();
    CompileError::Invalid(match (other, is_method) {
        (true, true) => format!("{name}() is called as {name}(x), not as x.{name}()"),
        (true, false) => format!("{name}() is called as x.{name}(), not as {name}(x)"),
        (false, _) if two_variables || matches!(name, "has" | "map" | "filter") => {
            format!("the macro {name}() does not take {arguments} arguments so")
        }
        (false, _) => format!("there is no function {name}()"),
    })
}
