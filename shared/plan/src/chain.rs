//! Chains: projections, filters and flattenings of the list, each of which takes every element by itself.
//! Pure.
//!
//! The result of a chain over the list is the concatenation of its results over each object. So a chain can be
//! evaluated over parts of the list, and its elements can be counted object by object.

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, Expr, ExprId},
};

use crate::{
    Document,
    narrow::{VOLATILE, are_empty_lists, standing_in},
    text::{self, ExprWriter, Swaps},
};

/// The chain that is the objects themselves.
pub(crate) const ALL: &str = "@";

/// Says if a chain may depend on the parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainParameters {
    /// The chain may not: its value is kept from one request to the next.
    Refused,
    /// The chain may: it is evaluated for a single request.
    Allowed,
}

/// The part of the document that is a subexpression's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The document, with the list in it.
    Root,
    /// The list under the resource's plural, which is the same list as `items`.
    ItemsList,
    /// A chain over the array of objects, as text.
    List(String),
}

impl Value {
    /// The document that an expression is evaluated on.
    pub(crate) fn of(document: Document<'_>) -> Self {
        match document {
            Document::List { .. } => Self::Root,
            Document::Array => Self::objects(),
        }
    }

    /// The array of objects.
    fn objects() -> Self {
        Self::List(ALL.to_owned())
    }

    /// The chain, if it is one.
    pub(crate) fn into_list(self) -> Option<String> {
        match self {
            Self::List(chain) => Some(chain),
            Self::Root | Self::ItemsList => None,
        }
    }
}

/// Returns the expression as a chain over the array of objects, if the whole expression is a chain.
pub(crate) fn chain(expression: &Expression, document: Document<'_>) -> Option<Expression> {
    let chains = Chains::new(expression.ast(), document);
    if !text::is_writable(expression) {
        return None;
    }
    let value = chains.value(expression.ast().root(), &Value::of(document))?;
    Expression::parse(&value.into_list()?).ok()
}

/// Finds the chains in a syntax tree.
pub(crate) struct Chains<'e> {
    ast: &'e Ast,
    plural: Option<&'e str>,
    none: &'e Swaps,
}

impl<'e> Chains<'e> {
    pub(crate) fn new(ast: &'e Ast, document: Document<'e>) -> Self {
        static NONE: std::sync::LazyLock<Swaps> = std::sync::LazyLock::new(Swaps::default);
        Self {
            ast,
            plural: match document {
                Document::List { plural } => plural,
                Document::Array => None,
            },
            none: &NONE,
        }
    }

    /// Returns the value of a subexpression on `at`; `None`: it is neither the document nor a chain. A chain is always
    /// an array, and never fails because a key is missing.
    pub(crate) fn value(&self, id: ExprId, at: &Value) -> Option<Value> {
        match self.ast.expr(id) {
            Expr::Current => Some(at.clone()),
            Expr::Field(name) => match at {
                Value::Root | Value::ItemsList if &**name == "items" => Some(Value::objects()),
                Value::Root if self.plural == Some(name) => Some(Value::ItemsList),
                _ => None,
            },
            Expr::Path(steps) | Expr::Pipe(steps) => steps
                .iter()
                .try_fold(at.clone(), |at, step| self.value_behind(*step, &at)),
            Expr::Or(operands) => {
                let (first, rest) = operands.split_first()?;
                let list = self.list(*first, at)?;
                are_empty_lists(self.ast, rest).then_some(Value::List(list))
            }
            Expr::Call {
                function,
                arguments,
            } => {
                let values = arguments.iter().map(|argument| match argument {
                    Argument::Value(expr) => Some(*expr),
                    Argument::Reference(_) => None,
                });
                let values: Vec<_> = values.collect::<Option<_>>()?;
                let name = self.ast.function_name(*function);
                if let ("keep_only", [list, fields]) = (name, &*values) {
                    return self.kept_only(*list, *fields, at);
                }
                let list = self.list(standing_in(self.ast, name, &values)?, at)?;
                Some(Value::List(list))
            }
            Expr::Flatten(left) => {
                let left = self.list(*left, at)?;
                Some(Value::List(format!("({left})[]")))
            }
            Expr::Project { left, right } if self.is_of_the_element(*right) => {
                let behind = self.writer().behind(*right);
                let (left, brackets) = match self.ast.expr(*left) {
                    Expr::Flatten(inner) => (*inner, "[]"),
                    _ => (*left, "[*]"),
                };
                let left = self.list(left, at)?;
                Some(Value::List(format!("({left}){brackets}{behind}")))
            }
            Expr::Filter {
                left,
                condition,
                right,
            } if self.is_of_the_element(*condition) && self.is_of_the_element(*right) => {
                let left = self.list(*left, at)?;
                let (condition, behind) =
                    (self.writer().expr(*condition), self.writer().behind(*right));
                Some(Value::List(format!("({left})[?{condition}]{behind}")))
            }
            _ => None,
        }
    }

    /// Returns the value of a subexpression behind `at`, which may be a chain already: then the subexpression goes on
    /// behind it.
    pub(crate) fn value_behind(&self, id: ExprId, at: &Value) -> Option<Value> {
        let Value::List(before) = at else {
            return self.value(id, at);
        };
        match self.value(id, &Value::objects())? {
            Value::List(behind) => Some(Value::List(match (&**before, &*behind) {
                (before, ALL) => before.to_owned(),
                (ALL, _) => behind,
                (before, behind) => format!("({before}) | ({behind})"),
            })),
            Value::Root | Value::ItemsList => None,
        }
    }

    /// A projection of each element to some fields.
    fn kept_only(&self, list: ExprId, fields: ExprId, at: &Value) -> Option<Value> {
        let list = self.list(list, at)?;
        let is_literal = matches!(self.ast.expr(fields), Expr::Literal(_));
        let fields = self.writer().expr(fields);
        is_literal.then(|| Value::List(format!("keep_only({list}, {fields})")))
    }

    fn list(&self, id: ExprId, at: &Value) -> Option<String> {
        self.value(id, at)?.into_list()
    }

    fn is_of_the_element(&self, id: ExprId) -> bool {
        let expr = self.ast.expr(id);
        let own = match expr {
            Expr::Call { function, .. } => !VOLATILE.contains(&self.ast.function_name(*function)),
            _ => true,
        };
        own && expr
            .children()
            .iter()
            .all(|child| self.is_of_the_element(*child))
    }

    fn writer(&self) -> ExprWriter<'e> {
        ExprWriter::new(self.ast, self.none)
    }
}
