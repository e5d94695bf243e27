//! Calls that read facts.

use std::sync::Arc;

use cel::common::ast::{Expr as Parsed, IdedExpr};
use serde_json::Value;

use super::expr::{Compiler, Typed};
use crate::{
    Budget, CompileError,
    ast::{Expr, FactCall, Operator},
    fact::{Argument, FactFunction, FactScope, Site, plural_of_kind},
    kind::Kind,
    value::{Map, Val, to_json},
};

/// Arguments of one call that are not constant, parts of texts and maps included.
const DYNAMIC_MAX: usize = 64;

/// The fields of what `resource.toGVR` gives.
const GVR: [&str; 3] = ["group", "version", "resource"];

impl Compiler<'_> {
    /// A call in a namespace of functions that read facts; `None`: there is no such function here.
    pub(super) fn fact_call(
        &mut self,
        namespace: &str,
        name: &str,
        parsed: &[IdedExpr],
    ) -> Option<Result<Typed, CompileError>> {
        let scope = self.names.facts?;
        let function = match (namespace, name) {
            ("resource", "toGVR" | "ToGVR") => return Some(self.gvr(parsed)),
            ("resource", "get" | "Get") => FactFunction::ResourceGet,
            ("resource", "list" | "List") => FactFunction::ResourceList,
            ("resource", "post" | "Post") => FactFunction::ResourcePost,
            ("globalContext", "get" | "Get") => FactFunction::Entry,
            ("image", "getMetadata" | "GetMetadata") => FactFunction::ImageMetadata,
            ("http", "get" | "Get") => FactFunction::HttpGet,
            ("http", "post" | "Post") => FactFunction::HttpPost,
            ("http", "client" | "Client") => {
                let message = "a call of http.client() stands right before the request, as in \
                               http.client(ca).get(url)";
                return Some(Err(CompileError::Unsupported(message.to_owned())));
            }
            _ => return None,
        };
        Some(self.fact(function, scope, parsed, None))
    }

    /// `http.client(ca).get(url)`; `None`: it is no such call.
    pub(super) fn call_of_client(
        &mut self,
        client: &IdedExpr,
        name: &str,
        parsed: &[IdedExpr],
    ) -> Option<Result<Typed, CompileError>> {
        let scope = self.names.facts?;
        let Parsed::Call(client) = &client.expr else {
            return None;
        };
        let namespace = self.namespace(client.target.as_deref()?)?;
        let function = match (&*namespace, &*client.func_name, name) {
            ("http", "client" | "Client", "get" | "Get") => FactFunction::HttpGet,
            ("http", "client" | "Client", "post" | "Post") => FactFunction::HttpPost,
            _ => return None,
        };
        Some(match &*client.args {
            [ca] => self.fact(function, scope, parsed, Some(ca)),
            _ => Err(CompileError::invalid(
                "http.client() takes a CA bundle in PEM",
            )),
        })
    }

    /// `ca`: the bundle of certificates that an `http` call trusts.
    fn fact(
        &mut self,
        function: FactFunction,
        scope: FactScope,
        parsed: &[IdedExpr],
        ca: Option<&IdedExpr>,
    ) -> Result<Typed, CompileError> {
        let mut exprs = Vec::with_capacity(parsed.len());
        for one in parsed {
            exprs.push(match self.expr(one)?.0 {
                Expr::Variable(at) => self.written_out(at)?,
                expr => expr,
            });
        }
        let exprs = match function {
            FactFunction::ResourceGet | FactFunction::ResourceList | FactFunction::ResourcePost => {
                with_gvr(exprs)
            }
            _ => exprs,
        };
        let mut ordered = ordered(function, scope, exprs).map_err(|takes| {
            let name = function.as_str();
            CompileError::Invalid(format!("{name}() takes {takes}"))
        })?;
        if function.is_http() {
            ordered.push(match ca {
                Some(ca) => Ordered::Expr(self.expr(ca)?.0),
                None => Ordered::Null,
            });
        }
        let mut dynamic = Vec::new();
        let mut arguments = Vec::with_capacity(ordered.len());
        for one in ordered {
            arguments.push(match one {
                Ordered::Expr(expr) => argument(expr, &mut dynamic),
                Ordered::Null => Argument::Constant(Value::Null),
                Ordered::Empty => Argument::Constant("".into()),
                Ordered::Home => Argument::Home,
            });
        }
        if dynamic.len() > DYNAMIC_MAX {
            let message =
                format!("a call has more than {DYNAMIC_MAX} arguments that are not constant");
            return Err(CompileError::Invalid(message));
        }
        check_constants(function, &arguments)?;
        let call = FactCall {
            site: Arc::new(Site::new(function, arguments)),
            arguments: dynamic,
        };
        Ok((Expr::Fact(Box::new(call)), Kind::Any))
    }

    /// Replaces a variable argument by its map literal, so that constant fields are known.
    fn written_out(&self, at: usize) -> Result<Expr, CompileError> {
        let Some(text) = self.names.map_text(at) else {
            return Ok(Expr::Variable(at));
        };
        Ok(Compiler::new(self.names, text)
            .expr(&super::parse(text, self.names)?)?
            .0)
    }

    /// `resource.toGVR(apiVersion, kind)`: constant, since which views are kept depends on it.
    fn gvr(&mut self, parsed: &[IdedExpr]) -> Result<Typed, CompileError> {
        let [version, kind] = parsed else {
            return Err(CompileError::invalid("resource.toGVR() takes 2 arguments"));
        };
        let (version, kind) = (self.expr(version)?.0, self.expr(kind)?.0);
        let (Some(Value::String(version)), Some(Value::String(kind))) =
            (constant(&version), constant(&kind))
        else {
            return Err(not_constant("resource.toGVR", "its arguments"));
        };
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let values = [group, version, &plural_of_kind(&kind)].map(Val::text);
        let entries: Vec<_> = GVR.into_iter().map(Val::text).zip(values).collect();
        Ok((Expr::Literal(Val::Map(Map::Own(entries.into()))), Kind::Map))
    }
}

/// An argument in its place.
enum Ordered {
    Expr(Expr),
    Null,
    Empty,
    Home,
}

/// Puts the API version and the plural in the place of what `resource.toGVR` gave.
fn with_gvr(exprs: Vec<Expr>) -> Vec<Expr> {
    let Some(Some(Value::Object(gvr))) = exprs.first().map(constant) else {
        return exprs;
    };
    let text = |field: &str| gvr.get(field).and_then(Value::as_str).unwrap_or_default();
    let version = match text("group") {
        "" => text("version").to_owned(),
        group => format!("{group}/{}", text("version")),
    };
    let literal = |text: &str| Expr::Literal(Val::text(text));
    let rest = exprs.into_iter().skip(1);
    [literal(&version), literal(text("resource"))]
        .into_iter()
        .chain(rest)
        .collect()
}

/// Puts arguments in the order of the function; the error says which it takes.
fn ordered(
    function: FactFunction,
    scope: FactScope,
    exprs: Vec<Expr>,
) -> Result<Vec<Ordered>, &'static str> {
    let count = exprs.len();
    let mut exprs = exprs.into_iter().map(Ordered::Expr);
    let mut take = || exprs.next().unwrap_or(Ordered::Null);
    let is_own = scope == FactScope::Namespace;
    Ok(match (function, is_own, count) {
        (FactFunction::ResourceGet, false, 4) => vec![take(), take(), take(), take()],
        (FactFunction::ResourceGet, true, 3) => vec![take(), take(), Ordered::Home, take()],
        (FactFunction::ResourceGet, false, _) => {
            return Err("an API version, a plural, a namespace and a name");
        }
        (FactFunction::ResourceGet, true, _) => {
            return Err("an API version, a plural and a name in a policy of a namespace");
        }
        (FactFunction::ResourceList, false, 3 | 4) => vec![take(), take(), take(), take()],
        (FactFunction::ResourceList, true, 2 | 3) => vec![take(), take(), Ordered::Home, take()],
        (FactFunction::ResourceList, false, _) => {
            return Err("an API version, a plural, a namespace, and labels or not");
        }
        (FactFunction::ResourceList, true, _) => {
            return Err("an API version, a plural, and labels or not in a policy of a namespace");
        }
        (FactFunction::ResourcePost, false, 4) => vec![take(), take(), take(), take()],
        (FactFunction::ResourcePost, false, 3) => vec![take(), take(), Ordered::Empty, take()],
        (FactFunction::ResourcePost, true, 3) => vec![take(), take(), Ordered::Home, take()],
        (FactFunction::ResourcePost, ..) => {
            return Err("an API version, a plural, a namespace and a body");
        }
        (FactFunction::Entry, _, 1 | 2) => vec![take(), take()],
        (FactFunction::Entry, ..) => return Err("a name, and a projection or not"),
        (FactFunction::ImageMetadata, _, 1) => vec![take()],
        (FactFunction::ImageMetadata, ..) => return Err("the reference of an image"),
        (FactFunction::HttpGet, _, 1 | 2) => vec![take(), take()],
        (FactFunction::HttpGet, ..) => return Err("a URL, and headers or not"),
        (FactFunction::HttpPost, _, 2 | 3) => vec![take(), take(), take()],
        (FactFunction::HttpPost, ..) => return Err("a URL, a body, and headers or not"),
    })
}

/// Returns what is constant of a subexpression; the rest becomes dynamic.
fn argument(expr: Expr, dynamic: &mut Vec<Expr>) -> Argument {
    if let Some(value) = constant(&expr) {
        return Argument::Constant(value);
    }
    match expr {
        Expr::Binary(Operator::Add, pair) => {
            let (left, right) = *pair;
            let mut parts = Vec::new();
            for side in [left, right] {
                match argument(side, dynamic) {
                    Argument::Text(inner) => parts.extend(inner),
                    other => parts.push(other),
                }
            }
            Argument::Text(parts)
        }
        Expr::Map(entries)
            if entries.iter().all(|(key, element)| {
                !element.optional && matches!(key, Expr::Literal(Val::Text(_)))
            }) =>
        {
            let entries = entries.into_iter().map(|(key, element)| {
                let key = match key {
                    Expr::Literal(Val::Text(text)) => text.to_string(),
                    _ => String::new(),
                };
                (key, argument(element.value, dynamic))
            });
            Argument::Map(entries.collect())
        }
        expr => {
            dynamic.push(expr);
            Argument::Dynamic(dynamic.len() - 1)
        }
    }
}

/// Returns the value of a subexpression that is the same for every request.
pub(super) fn constant(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Literal(value) => to_json(value, None, &mut Budget::default()).ok(),
        Expr::List(elements) => {
            let each = elements.iter().map(|one| match one.optional {
                true => None,
                false => constant(&one.value),
            });
            each.collect::<Option<Vec<_>>>().map(Value::Array)
        }
        Expr::Map(entries) => {
            let each = entries.iter().map(|(key, element)| {
                let Some(Value::String(key)) = constant(key).filter(|_| !element.optional) else {
                    return None;
                };
                Some((key, constant(&element.value)?))
            });
            each.collect::<Option<serde_json::Map<_, _>>>()
                .map(Value::Object)
        }
        Expr::Binary(Operator::Add, pair) => match (constant(&pair.0)?, constant(&pair.1)?) {
            (Value::String(left), Value::String(right)) => Some(Value::String(left + &right)),
            _ => None,
        },
        _ => None,
    }
}

/// Type, entry and projection have to be constant: what is kept close at hand depends on them.
fn check_constants(function: FactFunction, arguments: &[Argument]) -> Result<(), CompileError> {
    let is_text = |at: usize| {
        matches!(
            arguments.get(at),
            Some(Argument::Constant(Value::String(_)))
        )
    };
    let is_text_or_null = |at: usize| {
        is_text(at) || matches!(arguments.get(at), Some(Argument::Constant(Value::Null)))
    };
    let name = function.as_str();
    let constant = match function {
        FactFunction::ResourceGet | FactFunction::ResourceList | FactFunction::ResourcePost => {
            match is_text(0) && is_text(1) {
                true => Ok(()),
                false => Err(not_constant(name, "API version and plural")),
            }
        }
        FactFunction::Entry => match is_text(0) && is_text_or_null(1) {
            true => Ok(()),
            false => Err(not_constant(name, "name and projection")),
        },
        FactFunction::HttpGet | FactFunction::HttpPost => {
            match is_text_or_null(arguments.len() - 1) {
                true => Ok(()),
                false => Err(CompileError::Unsupported(
                    "the CA bundle of http.client() must be constant, written as a literal or in a variable that is"
                        .to_owned(),
                )),
            }
        }
        FactFunction::ImageMetadata => Ok(()),
    };
    constant?;
    for argument in arguments {
        let number = match argument {
            Argument::Constant(Value::Number(_) | Value::Bool(_)) => true,
            Argument::Constant(Value::Array(_)) => function != FactFunction::HttpPost,
            _ => false,
        };
        if number && function != FactFunction::HttpPost {
            return Err(CompileError::Invalid(format!(
                "found no matching overload for `{name}`: {argument} is no argument of it"
            )));
        }
    }
    Ok(())
}

fn not_constant(function: &str, what: &str) -> CompileError {
    CompileError::Unsupported(format!(
        "{what} of {function}() must be constant, written as literals or in variables that are, since \
         what is kept close at hand depends on it"
    ))
}
