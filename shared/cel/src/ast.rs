//! A checked expression.

mod children;

use std::sync::{Arc, OnceLock};

use anteroom_functions::bounded_regex::BoundedRegex;

use crate::{fact::Site, functions::Function, narrow::Access, subquery::Subquery, value::Val};

pub(crate) use children::ExprPath;

/// A subexpression.
#[derive(Debug)]
pub(crate) enum Expr {
    Literal(Val<'static>),
    Root(Root),
    /// A field of `request` itself.
    Request(&'static str),
    /// One of the policy's variables, by its place among them.
    Variable(usize),
    /// An input, by its place among them.
    Input(usize),
    /// The variable of a macro, by its index among the enclosing macros' variables.
    Local(usize),
    /// `operand.field`
    Select(Box<Expr>, Box<str>),
    /// `has(operand.field)`
    Has(Box<Expr>, Box<str>),
    /// `has(request.field)`
    HasRequest(&'static str),
    /// `operand[index]`
    Index(Box<(Expr, Expr)>),
    /// `operand.?field`, `operand[?index]`
    OptionalIndex(Box<(Expr, Expr)>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    /// `condition ? then : otherwise`
    Conditional(Box<(Expr, Expr, Expr)>),
    /// `left operator right`
    Binary(Operator, Box<(Expr, Expr)>),
    List(Vec<Element>),
    Map(Vec<(Expr, Element)>),
    /// `Object{…}`, `Object.spec{…}`, `JSONPatch{…}`
    Struct(Box<StructLiteral>),
    Macro(Box<Macro>),
    Call(Box<Call>),
    /// A call that reads a fact.
    Fact(Box<FactCall>),
    /// A subexpression that can be evaluated where its lists are kept.
    Subquery(Box<SubqueryCall>),
}

/// An element of a list, or a value of a map.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    /// `?value`: left out where it is an empty optional.
    pub(crate) optional: bool,
}

/// A value of a type that has a name.
#[derive(Debug)]
pub(crate) struct StructLiteral {
    /// The name of the type, as in `Object.spec`.
    pub(crate) type_name: Box<str>,
    pub(crate) fields: Vec<(Box<str>, Element)>,
}

/// The roots of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Object,
    OldObject,
    Params,
    Namespace,
    /// `request.object`
    RequestObject,
    /// `request.oldObject`
    RequestOldObject,
    /// `exceptions.allowedImages`
    AllowedImages,
    /// `exceptions.allowedValues`
    AllowedValues,
}

impl Root {
    /// Returns whether it is the object of the request, or what that was before.
    pub(crate) fn is_object(self) -> bool {
        matches!(
            self,
            Self::Object | Self::OldObject | Self::RequestObject | Self::RequestOldObject
        )
    }
}

/// An operator that wants both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessOrEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterOrEqual => "_>=_",
            Self::In => "@in",
        }
    }
}

/// `range.all(x, body)` and its kin.
#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) kind: MacroKind,
    /// Set for `range.all(key, value, body)`. The key of a list's element is its index.
    pub(crate) is_of_pairs: bool,
    pub(crate) range: Expr,
    /// The filter of `map(x, filter, body)`, `transformList(key, value, filter, body)` and their kin.
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Expr,
    /// The macro's access to its list, known after the first list that can be queried.
    pub(crate) access: OnceLock<Option<Access>>,
}

impl Macro {
    /// The subexpression that decides which elements matter.
    pub(crate) fn deciding(&self) -> &Expr {
        self.filter.as_ref().unwrap_or(&self.body)
    }

    /// Returns the macro's access to its list. `place` is the number of macro variables around the macro.
    pub(crate) fn access(&self, place: usize) -> Option<&Access> {
        let access = self.access.get_or_init(|| Access::of(self, place));
        access.as_ref()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MacroKind {
    All,
    Exists,
    ExistsOne,
    /// `filter(x, condition)` is `map(x, condition, x)`; `transformList(key, value, body)`
    Map,
    /// `transformMap(key, value, body)`: the keys stay.
    TransformMap,
    /// `transformMapEntry(key, value, {other: body})`
    TransformMapEntry,
    /// `sortBy(x, key)`
    SortBy,
    /// `optional.optMap(x, body)`
    OptionalMap,
    /// `optional.optFlatMap(x, body)`
    OptionalFlatMap,
    /// `cel.bind(x, range, body)`: the variable is the range itself.
    Bind,
}

impl MacroKind {
    /// Returns whether it asks something of its elements, and takes nothing of them.
    pub(crate) fn asks_of_elements(self) -> bool {
        matches!(self, Self::All | Self::Exists | Self::ExistsOne)
    }
}

/// A call of a function; of a method the first argument is what it is called on.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    pub(crate) arguments: Vec<Expr>,
    /// The compiled pattern, if it is a literal.
    pub(crate) pattern: Option<Arc<BoundedRegex>>,
    /// A number that tells the call from others, and is the same wherever the expression is compiled.
    pub(crate) site: u64,
}

/// A call that reads a fact.
#[derive(Debug)]
pub(crate) struct FactCall {
    pub(crate) site: Arc<Site>,
    /// The arguments that are not constant, in the order in which the site counts them.
    pub(crate) arguments: Vec<Expr>,
}

/// A subquery in its expression.
#[derive(Debug)]
pub(crate) struct SubqueryCall {
    pub(crate) subquery: Arc<Subquery>,
    /// The subexpression itself.
    pub(crate) whole: Expr,
    /// The places of the dynamic arguments of each document.
    pub(crate) arguments: Vec<Vec<ExprLocation>>,
    pub(crate) parameters: Vec<ExprLocation>,
}

/// The place of a subexpression: in a variable of the policy, or in the subexpression of the subquery.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExprLocation {
    pub(crate) variable: Option<usize>,
    pub(crate) path: ExprPath,
}
