//! Subexpressions, one by one.

use std::sync::OnceLock;

use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr as Parsed, IdedExpr, LiteralValue, operators,
};

use super::{dialect::is_object, names::Names, operators::of_operator};
use crate::{
    CompileError,
    ast::{Element, Expr, Macro, MacroKind, Operator, Root},
    kind::Kind,
    limits::EXPRESSION_DEPTH_MAX,
    value::Val,
};

/// The fields of `request`, as Kubernetes has them.
const REQUEST: &[(&str, Kind)] = &[
    ("dryRun", Kind::Bool),
    ("kind", Kind::Map),
    ("name", Kind::Text),
    ("namespace", Kind::Text),
    ("operation", Kind::Text),
    ("options", Kind::Any),
    ("requestKind", Kind::Map),
    ("requestResource", Kind::Map),
    ("requestSubResource", Kind::Text),
    ("resource", Kind::Map),
    ("subResource", Kind::Text),
    ("uid", Kind::Text),
    ("userInfo", Kind::Map),
];

/// Types that have a name.
const TYPES: &[(&str, &str)] = &[
    ("bool", "bool"),
    ("bytes", "bytes"),
    ("double", "double"),
    ("google.protobuf.Duration", "google.protobuf.Duration"),
    ("google.protobuf.Timestamp", "google.protobuf.Timestamp"),
    ("int", "int"),
    ("list", "list"),
    ("map", "map"),
    ("null_type", "null_type"),
    ("string", "string"),
    ("type", "type"),
    ("uint", "uint"),
];

const OPERATORS: &[(&str, Operator)] = &[
    (operators::ADD, Operator::Add),
    (operators::SUBSTRACT, Operator::Subtract),
    (operators::MULTIPLY, Operator::Multiply),
    (operators::DIVIDE, Operator::Divide),
    (operators::MODULO, Operator::Modulo),
    (operators::EQUALS, Operator::Equal),
    (operators::NOT_EQUALS, Operator::NotEqual),
    (operators::LESS, Operator::Less),
    (operators::LESS_EQUALS, Operator::LessOrEqual),
    (operators::GREATER, Operator::Greater),
    (operators::GREATER_EQUALS, Operator::GreaterOrEqual),
    (operators::IN, Operator::In),
];

pub(super) type Typed = (Expr, Kind);

pub(super) struct Compiler<'n> {
    pub(super) names: &'n Names,
    /// The variables of macros around the subexpression, with what is known of them.
    locals: Vec<String>,
    depth: usize,
    /// The number of the next call.
    pub(super) site: u64,
}

impl<'n> Compiler<'n> {
    pub(super) fn new(names: &'n Names, source: &str) -> Self {
        Self {
            names,
            locals: Vec::new(),
            depth: 0,
            site: crate::chance::sites_of(source),
        }
    }

    pub(super) fn expr(&mut self, parsed: &IdedExpr) -> Result<Typed, CompileError> {
        if self.depth == EXPRESSION_DEPTH_MAX {
            let message = format!("the expression is more than {EXPRESSION_DEPTH_MAX} levels deep");
            return Err(CompileError::Invalid(message));
        }
        self.depth += 1;
        let expr = self.kind_of_expr(&parsed.expr);
        self.depth -= 1;
        expr
    }

    fn kind_of_expr(&mut self, parsed: &Parsed) -> Result<Typed, CompileError> {
        match parsed {
            Parsed::Literal(literal) => literal_of(literal),
            Parsed::Ident(name) => self.ident(name),
            Parsed::Select(select) => self.select(&select.operand, &select.field, select.test),
            Parsed::Call(call) => self.call(&call.func_name, call.target.as_deref(), &call.args),
            Parsed::List(list) => self.list(&list.elements, &list.optional_indices),
            Parsed::Map(map) => self.map(&map.entries),
            Parsed::Comprehension(macro_) => self.comprehension(macro_),
            Parsed::Struct(made) => self.struct_literal(&made.type_name, &made.entries),
            Parsed::Unspecified => {
                Err(CompileError::invalid("a part of the expression is missing"))
            }
        }
    }

    fn ident(&mut self, name: &str) -> Result<Typed, CompileError> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(at) = self.locals.iter().rposition(|local| local == name) {
            return Ok((Expr::Local(at), Kind::Any));
        }
        if let Some(at) = self.names.input(name) {
            return Ok((Expr::Input(at), Kind::Any));
        }
        if let Some(root) = self.root(name)? {
            return Ok((Expr::Root(root), Kind::Any));
        }
        if let Some((_, type_name)) = TYPES.iter().find(|(known, _)| *known == name) {
            return Ok((Expr::Literal(Val::Type(type_name)), Kind::Type));
        }
        Err(match name {
            "request" | "variables" => CompileError::Invalid(format!(
                "`{name}` stands only before one of its fields, as in `{name}.name`"
            )),
            "exceptions" if self.is_kyverno() => CompileError::invalid(
                "`exceptions` stands only before allowedImages or allowedValues",
            ),
            _ if !self.names.has_request() => {
                CompileError::Invalid(format!("there is no `{name}` here"))
            }
            _ => CompileError::Invalid(format!(
                "there is no `{name}`; there are object, oldObject, request, namespaceObject{}{}",
                if self.is_kyverno() {
                    ", exceptions"
                } else {
                    ""
                },
                match (self.has_params(), self.names.variables.is_empty()) {
                    (true, true) => ", params",
                    (true, false) => ", params, variables",
                    (false, true) => "",
                    (false, false) => ", variables",
                }
            )),
        })
    }

    fn root(&self, name: &str) -> Result<Option<Root>, CompileError> {
        if !self.names.has_request() {
            return Ok(None);
        }
        Ok(Some(match name {
            "object" => Root::Object,
            "oldObject" => Root::OldObject,
            "namespaceObject" => Root::Namespace,
            "params" | "authorizer" if self.is_kyverno() => return Ok(None),
            "params" if self.names.params => Root::Params,
            "params" => {
                let message = "there is no `params` without a paramKind";
                return Err(CompileError::invalid(message));
            }
            "authorizer" => {
                let message = "`authorizer` is not known here: who may do what is not asked of the \
                               API server. Use match with subjects, roles or clusterRoles";
                return Err(CompileError::Unsupported(message.to_owned()));
            }
            _ => return Ok(None),
        }))
    }

    fn has_params(&self) -> bool {
        self.names.params && !self.is_kyverno()
    }

    /// Returns whether the name is that of a root here, not of a macro's variable.
    pub(super) fn is_root(&self, parsed: &IdedExpr, name: &str) -> bool {
        let Parsed::Ident(found) = &parsed.expr else {
            return false;
        };
        let absolute = found.strip_prefix('.');
        absolute.unwrap_or(found) == name
            && (absolute.is_some() || !self.locals.iter().any(|local| local == name))
    }

    pub(super) fn select(
        &mut self,
        operand: &IdedExpr,
        field: &str,
        test: bool,
    ) -> Result<Typed, CompileError> {
        if let Some(typed) = self.dialect_field(operand, field, test) {
            return typed;
        }
        if self.names.has_request() && self.is_root(operand, "request") {
            let known = REQUEST.iter().find(|(known, _)| *known == field);
            let Some((field, kind)) = known else {
                let message = format!("`request` has no field `{field}` here");
                return Err(CompileError::Invalid(message));
            };
            return Ok(match test {
                true => (Expr::HasRequest(field), Kind::Bool),
                false => (Expr::Request(field), *kind),
            });
        }
        if self.is_root(operand, "variables") {
            let Some((variable, kind)) = self.names.variable(field) else {
                let message = format!("there is no variable `{field}` before this expression");
                return Err(CompileError::Invalid(message));
            };
            return Ok(match test {
                true => (Expr::Literal(Val::Bool(true)), Kind::Bool),
                false => (variable, kind),
            });
        }
        if let Some(typed) = self.qualified_type(operand, field) {
            return Ok(typed);
        }
        let (operand, kind) = self.expr(operand)?;
        if !kind.can_be(&[Kind::Map, Kind::Optional, Kind::Object, Kind::Patch]) {
            let message = format!("a {} has no fields, so not `{field}`", kind.name());
            return Err(CompileError::Invalid(message));
        }
        let operand = self.shifted(operand, field, &mut |operand, field| {
            Expr::Select(Box::new(operand), field.into())
        });
        let operand = Box::new(self.outer(operand, field));
        let kind = match kind {
            Kind::Optional => Kind::Optional,
            _ => Kind::Any,
        };
        Ok(match test {
            true => (Expr::Has(operand, field.into()), Kind::Bool),
            false => (Expr::Select(operand, field.into()), kind),
        })
    }

    /// Redirects subexpressions about the object's spec to its Pod template, if it has one.
    fn shifted(
        &self,
        operand: Expr,
        field: &str,
        select: &mut dyn FnMut(Expr, &str) -> Expr,
    ) -> Expr {
        if !is_object(&operand) || !matches!(field, "spec" | "metadata") {
            return operand;
        }
        let path = self.names.template.iter();
        path.fold(operand, |operand, step| select(operand, step))
    }

    /// A type whose name has dots in it.
    fn qualified_type(&self, operand: &IdedExpr, field: &str) -> Option<Typed> {
        let Parsed::Select(inner) = &operand.expr else {
            return None;
        };
        let Parsed::Ident(first) = &inner.operand.expr else {
            return None;
        };
        let name = format!("{first}.{}.{field}", inner.field);
        let (_, type_name) = TYPES.iter().find(|(known, _)| *known == name)?;
        Some((Expr::Literal(Val::Type(type_name)), Kind::Type))
    }

    fn call(
        &mut self,
        name: &str,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Result<Typed, CompileError> {
        let operator = OPERATORS.iter().find(|(known, _)| *known == name);
        match (operator, target, arguments) {
            (Some((_, operator)), None, [left, right]) => self.binary(*operator, left, right),
            (None, None, [operand]) if name == operators::LOGICAL_NOT => {
                let operand = self.bool(operand, "!_")?;
                Ok((Expr::Not(Box::new(operand)), Kind::Bool))
            }
            (None, None, [operand]) if name == operators::NEGATE => {
                let (operand, kind) = self.expr(operand)?;
                if !kind.can_be(&[Kind::Int, Kind::Double]) {
                    return Err(mismatch("-_", &[kind]));
                }
                Ok((Expr::Negate(Box::new(operand)), kind))
            }
            (None, None, [left, right]) if name == operators::LOGICAL_AND => {
                let sides = (self.bool(left, name)?, self.bool(right, name)?);
                Ok((Expr::And(Box::new(sides)), Kind::Bool))
            }
            (None, None, [left, right]) if name == operators::LOGICAL_OR => {
                let sides = (self.bool(left, name)?, self.bool(right, name)?);
                Ok((Expr::Or(Box::new(sides)), Kind::Bool))
            }
            (None, None, [condition, then, otherwise]) if name == operators::CONDITIONAL => {
                let condition = self.bool(condition, name)?;
                let (then, one) = self.expr(then)?;
                let (otherwise, other) = self.expr(otherwise)?;
                let parts = Box::new((condition, then, otherwise));
                Ok((Expr::Conditional(parts), one.or(other)))
            }
            (None, None, [operand, index]) if name == operators::INDEX => {
                self.index(operand, index)
            }
            (None, None, [operand, index])
                if matches!(name, operators::OPT_INDEX | operators::OPT_SELECT) =>
            {
                self.optional_index(operand, index)
            }
            _ => self.named_call(name, target, arguments),
        }
    }

    fn bool(&mut self, parsed: &IdedExpr, operator: &str) -> Result<Expr, CompileError> {
        let (expr, kind) = self.expr(parsed)?;
        match kind.can_be(&[Kind::Bool]) {
            true => Ok(expr),
            false => Err(mismatch(operator, &[kind])),
        }
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Result<Typed, CompileError> {
        let ((left, one), (right, other)) = (self.expr(left)?, self.expr(right)?);
        let Some(kind) = of_operator(operator, one, other) else {
            return Err(mismatch(operator.name(), &[one, other]));
        };
        Ok((Expr::Binary(operator, Box::new((left, right))), kind))
    }

    fn index(&mut self, operand: &IdedExpr, index: &IdedExpr) -> Result<Typed, CompileError> {
        let ((operand, one), (index, other)) = (self.expr(operand)?, self.expr(index)?);
        if !one.can_be(&[Kind::List, Kind::Map, Kind::Optional]) {
            return Err(mismatch("_[_]", &[one, other]));
        }
        let operand = self.shifted_index(operand, &index, |pair| Expr::Index(Box::new(pair)));
        let kind = match one {
            Kind::Optional => Kind::Optional,
            _ => Kind::Any,
        };
        Ok((Expr::Index(Box::new((operand, index))), kind))
    }

    fn optional_index(
        &mut self,
        operand: &IdedExpr,
        index: &IdedExpr,
    ) -> Result<Typed, CompileError> {
        if let Some(typed) = self.optional_request_field(operand, index) {
            return typed;
        }
        if self.is_root(operand, "request") || self.is_root(operand, "variables") {
            let message = "`request` and `variables` are not looked into with `?`: use has()";
            return Err(CompileError::invalid(message));
        }
        let ((operand, one), (index, other)) = (self.expr(operand)?, self.expr(index)?);
        if !one.can_be(&[Kind::List, Kind::Map, Kind::Optional]) {
            return Err(mismatch("_[?_]", &[one, other]));
        }
        let operand =
            self.shifted_index(operand, &index, |pair| Expr::OptionalIndex(Box::new(pair)));
        Ok((
            Expr::OptionalIndex(Box::new((operand, index))),
            Kind::Optional,
        ))
    }

    fn shifted_index(
        &self,
        operand: Expr,
        index: &Expr,
        make: impl Fn((Expr, Expr)) -> Expr,
    ) -> Expr {
        let Expr::Literal(Val::Text(field)) = index else {
            return operand;
        };
        let operand = self.shifted(operand, field, &mut |operand, step| {
            make((operand, Expr::Literal(Val::text(step))))
        });
        self.outer(operand, field)
    }

    fn list(&mut self, elements: &[IdedExpr], optional: &[usize]) -> Result<Typed, CompileError> {
        let elements = elements
            .iter()
            .enumerate()
            .map(|(at, element)| self.element(element, optional.contains(&at)));
        let elements = elements.collect::<Result<Vec<_>, _>>()?;
        Ok((folded(elements), Kind::List))
    }

    fn element(&mut self, parsed: &IdedExpr, optional: bool) -> Result<Element, CompileError> {
        let (value, kind) = self.expr(parsed)?;
        match optional && !kind.can_be(&[Kind::Optional]) {
            true => Err(mismatch("?_", &[kind])),
            false => Ok(Element { value, optional }),
        }
    }

    fn map(&mut self, entries: &[cel::common::ast::IdedEntryExpr]) -> Result<Typed, CompileError> {
        let mut map = Vec::new();
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(CompileError::invalid("a map has keys and values"));
            };
            let (key, kind) = self.expr(&entry.key)?;
            if !kind.can_be(&[Kind::Bool, Kind::Int, Kind::Uint, Kind::Text]) {
                let message = format!("a {} is no key of a map", kind.name());
                return Err(CompileError::Invalid(message));
            }
            map.push((key, self.element(&entry.value, entry.optional)?));
        }
        Ok((Expr::Map(map), Kind::Map))
    }

    /// Compiles a comprehension, which the parser makes of `all`, `exists`, `exists_one`, `map` and `filter`.
    fn comprehension(&mut self, parsed: &ComprehensionExpr) -> Result<Typed, CompileError> {
        let unknown = || CompileError::invalid("this macro is not known here");
        let Parsed::Call(step) = &parsed.loop_step.expr else {
            return Err(unknown());
        };
        let added = |call: &cel::common::ast::CallExpr| match (&*call.func_name, &*call.args) {
            (
                operators::ADD,
                [
                    _,
                    IdedExpr {
                        expr: Parsed::List(list),
                        ..
                    },
                ],
            ) => list.elements.first().cloned(),
            _ => None,
        };
        let first = |at: usize| step.args.get(at).cloned().ok_or_else(unknown);
        let (kind, filter, body) = match &parsed.accu_init.expr {
            Parsed::Literal(LiteralValue::Boolean(init)) => match init.inner() {
                true => (MacroKind::All, None, first(1)?),
                false => (MacroKind::Exists, None, first(1)?),
            },
            Parsed::Literal(LiteralValue::Int(_)) => (MacroKind::ExistsOne, None, first(0)?),
            Parsed::List(_) => match (added(step), step.args.get(1).map(|arg| &arg.expr)) {
                (Some(body), _) => (MacroKind::Map, None, body),
                (None, Some(Parsed::Call(then))) => {
                    let body = added(then).ok_or_else(unknown)?;
                    (MacroKind::Map, Some(first(0)?), body)
                }
                _ => return Err(unknown()),
            },
            _ => return Err(unknown()),
        };
        self.macro_of(
            kind,
            &parsed.iter_range,
            &[Kind::List, Kind::Map],
            &[&parsed.iter_var],
            filter.as_ref(),
            &body,
        )
    }

    pub(super) fn macro_of(
        &mut self,
        kind: MacroKind,
        range: &IdedExpr,
        kinds: &[Kind],
        variables: &[&str],
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
    ) -> Result<Typed, CompileError> {
        let (range, of) = self.expr(range)?;
        if kind != MacroKind::Bind && !of.can_be(kinds) {
            let message = format!("a {} has no elements to go through", of.name());
            return Err(CompileError::Invalid(message));
        }
        let place = self.locals.len();
        let names = variables.iter().map(|name| (*name).to_owned());
        self.locals.extend(names);
        let filter = filter.map(|filter| self.bool(filter, "filter")).transpose();
        let body = self.expr(body);
        self.locals.truncate(place);
        let (filter, (body, made)) = (filter?, body?);
        let result = match kind {
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => Kind::Bool,
            MacroKind::Map | MacroKind::SortBy => Kind::List,
            MacroKind::TransformMap | MacroKind::TransformMapEntry => Kind::Map,
            MacroKind::OptionalMap => Kind::Optional,
            MacroKind::OptionalFlatMap => Kind::Optional.or(made),
            MacroKind::Bind => made,
        };
        if result == Kind::Bool && !made.can_be(&[Kind::Bool]) {
            return Err(mismatch("all, exists, exists_one", &[made]));
        }
        if kind == MacroKind::TransformMapEntry && !made.can_be(&[Kind::Map]) {
            return Err(mismatch("transformMapEntry", &[made]));
        }
        if kind == MacroKind::OptionalFlatMap && !made.can_be(&[Kind::Optional]) {
            return Err(mismatch("optFlatMap", &[made]));
        }
        let made = Macro {
            kind,
            is_of_pairs: variables.len() == 2,
            range,
            filter,
            body,
            access: OnceLock::new(),
        };
        Ok((Expr::Macro(Box::new(made)), result))
    }

    /// Returns the dotted name that the subexpression spells, if a function may have this name.
    pub(super) fn namespace(&self, parsed: &IdedExpr) -> Option<String> {
        match &parsed.expr {
            Parsed::Ident(name) if !self.locals.contains(name) => Some(name.clone()),
            Parsed::Select(select) if !select.test => Some(format!(
                "{}.{}",
                self.namespace(&select.operand)?,
                select.field
            )),
            _ => None,
        }
    }
}

pub(super) fn mismatch(function: &str, kinds: &[Kind]) -> CompileError {
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    CompileError::Invalid(format!(
        "found no matching overload for `{function}` applied to ({})",
        kinds.join(", ")
    ))
}

/// A list of literals is one: it is made once, rather than at each evaluation.
fn folded(elements: Vec<Element>) -> Expr {
    let is_literal =
        |element: &Element| !element.optional && matches!(element.value, Expr::Literal(_));
    if elements.is_empty() || !elements.iter().all(is_literal) {
        return Expr::List(elements);
    }
    let values = elements
        .into_iter()
        .filter_map(|element| match element.value {
            Expr::Literal(value) => Some(value),
            _ => None,
        });
    Expr::Literal(Val::list(values.collect()))
}

fn literal_of(literal: &LiteralValue) -> Result<Typed, CompileError> {
    let (value, kind) = match literal {
        LiteralValue::Boolean(value) => (Val::Bool(*value.inner()), Kind::Bool),
        LiteralValue::Bytes(value) => (Val::Bytes(value.inner().into()), Kind::Bytes),
        LiteralValue::Double(value) => (Val::Double(*value.inner()), Kind::Double),
        LiteralValue::Int(value) => (Val::Int(*value.inner()), Kind::Int),
        LiteralValue::Null => (Val::Null, Kind::Null),
        LiteralValue::String(value) => (Val::text(value.inner()), Kind::Text),
        LiteralValue::UInt(value) => (Val::Uint(*value.inner()), Kind::Uint),
    };
    Ok((Expr::Literal(value), kind))
}
