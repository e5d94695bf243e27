//! Calls of functions, by their names.

use std::sync::Arc;

use cel::common::ast::{Expr as Parsed, IdedExpr};

use super::expr::{Compiler, Typed};
use crate::{
    CompileError,
    ast::{Call, Expr, MacroKind},
    functions::{self, Function, pattern},
    kind::Kind,
    value::Val,
};

/// Functions of Kubernetes' `authorizer`, which is not here, by name.
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
    "subresource",
];

/// Macros that the parser leaves as calls: their names, how many variables they have, what they go through.
const MACROS: &[(&str, usize, MacroKind, &[Kind])] = &[
    ("all", 2, MacroKind::All, ELEMENTS),
    ("exists", 2, MacroKind::Exists, ELEMENTS),
    ("existsOne", 2, MacroKind::ExistsOne, ELEMENTS),
    ("exists_one", 2, MacroKind::ExistsOne, ELEMENTS),
    (
        "optFlatMap",
        1,
        MacroKind::OptionalFlatMap,
        &[Kind::Optional],
    ),
    ("optMap", 1, MacroKind::OptionalMap, &[Kind::Optional]),
    ("sortBy", 1, MacroKind::SortBy, &[Kind::List]),
    ("transformList", 2, MacroKind::Map, ELEMENTS),
    ("transformMap", 2, MacroKind::TransformMap, ELEMENTS),
    (
        "transformMapEntry",
        2,
        MacroKind::TransformMapEntry,
        ELEMENTS,
    ),
];

const ELEMENTS: &[Kind] = &[Kind::List, Kind::Map];

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
            if let Some(function) = self.find(&qualified, false) {
                return self.function(function, None, arguments);
            }
            if let Some(made) = self.fact_call(namespace, name, arguments) {
                return made;
            }
        }
        if let Some(target) = target
            && let Some(made) = self
                .call_of_client(target, name, arguments)
                .or_else(|| self.bind(name, target, arguments))
                .or_else(|| self.written_macro(name, target, arguments))
        {
            return made;
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        match self.find(name, target.is_some()) {
            Some(function) => self.function(function, target, arguments),
            None => {
                // What it is called on may say more of why there is no such function.
                target.map(|target| self.expr(target)).transpose()?;
                Err(self.unknown(name, target.is_some(), arguments.len()))
            }
        }
    }

    /// The function of this name in the dialect of the expression.
    fn find(&self, name: &str, method: bool) -> Option<&'static Function> {
        functions::find(name, method, self.names.dialect)
    }

    /// `None`: it is no macro, or not called as one.
    fn written_macro(
        &mut self,
        name: &str,
        target: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Option<Result<Typed, CompileError>> {
        let known = MACROS.iter().find(|(known, ..)| *known == name);
        let (_, variables, kind, of) = known?;
        let takes_filter = name.starts_with("transform");
        let (named, bodies) = arguments.split_at_checked(*variables)?;
        let (filter, body) = match bodies {
            [body] => (None, body),
            [filter, body] if takes_filter => (Some(filter), body),
            _ => return None,
        };
        let invalid = |message: String| Some(Err(CompileError::Invalid(message)));
        let mut names: Vec<&str> = Vec::with_capacity(named.len());
        for variable in named {
            match &variable.expr {
                Parsed::Ident(name) if !names.contains(&&**name) => names.push(name),
                Parsed::Ident(twice) => {
                    return invalid(format!("the variables of {name}() are both `{twice}`"));
                }
                _ => {
                    return invalid(format!("the variables of {name}() are simple names"));
                }
            }
        }
        Some(self.macro_of(*kind, target, of, &names, filter, body))
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
            let (argument, kind) = self.expr(one)?;
            arguments.push(argument);
            kinds.push(kind);
        }
        if let (Some(first), false) = (kinds.first(), function.of.is_empty())
            && !first.can_be(function.of)
        {
            return Err(super::expr::mismatch(function.name, &kinds));
        }
        let pattern = match arguments.get(1) {
            Some(Expr::Literal(Val::Text(text))) if function.takes_pattern => {
                Some(Arc::new(pattern(text).map_err(CompileError::Invalid)?))
            }
            _ => None,
        };
        let result = function.result;
        let call = Call {
            function,
            arguments,
            pattern,
            // Of others it says nothing, and their texts may change.
            site: match function.is_nondeterministic {
                true => self.site,
                false => 0,
            },
        };
        self.site = self.site.wrapping_add(1);
        Ok((Expr::Call(Box::new(call)), result))
    }

    fn unknown(&self, name: &str, is_method: bool, arguments: usize) -> CompileError {
        let is_macro = MACROS.iter().any(|(known, ..)| *known == name);
        if LATER.contains(&name) && !self.is_kyverno() {
            return later(name);
        }
        let other = self.find(name, !is_method).is_some();
        CompileError::Invalid(match (other, is_method) {
            (true, true) => format!("{name}() is called as {name}(x), not as x.{name}()"),
            (true, false) => format!("{name}() is called as x.{name}(), not as {name}(x)"),
            (false, _) if is_macro || matches!(name, "has" | "map" | "filter") => {
                format!("the macro {name}() does not take {arguments} arguments so")
            }
            (false, _) => format!("there is no function {name}()"),
        })
    }
}

fn later(name: &str) -> CompileError {
    CompileError::Unsupported(format!("this version has no function {name}()"))
}
