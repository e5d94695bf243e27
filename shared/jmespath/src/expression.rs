//! An expression, parsed.

use std::fmt;
use std::sync::Arc;

use crate::ast::Ast;
use crate::budget::Budget;
use crate::environment::Environment;
use crate::error::{EvalError, ParseError};
use crate::evaluator::Evaluator;
use crate::function::FunctionTable;
use crate::node::Node;
use crate::parser::{self, Limits};
use crate::value::Value;

/// An expression, parsed once and evaluated any number of times, from any thread. A clone shares it.
#[derive(Clone)]
pub struct Expression(Arc<Parsed>);

struct Parsed {
    text: Box<str>,
    ast: Ast,
}

impl Expression {
    /// Parses an expression within the default limits.
    ///
    /// # Errors
    /// The text is no expression: the error says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Expression::parse_within(text, Limits::default())
    }

    /// Parses an expression within the caller's limits.
    ///
    /// # Errors
    /// The text is no expression: the error says what is wrong, and where.
    pub fn parse_within(text: &str, limits: Limits) -> Result<Self, ParseError> {
        let ast = parser::parse(text, limits)?;
        Ok(Expression(Arc::new(Parsed {
            text: text.into(),
            ast,
        })))
    }

    /// Returns the expression of a tree built by code, with the text of the tree.
    pub(crate) fn of_ast(ast: Ast) -> Self {
        let text = ast.text(ast.root()).to_string().into();
        Expression(Arc::new(Parsed { text, ast }))
    }

    /// The text as it was parsed.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The syntax tree.
    pub fn ast(&self) -> &Ast {
        &self.0.ast
    }

    /// The names of the parameters (without the dollar sign) that an evaluation must bind, each once.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.ast.parameters().iter().map(AsRef::as_ref)
    }

    /// Checks that every function that the expression calls exists and takes as many arguments.
    /// Evaluation finds out only when it gets there.
    ///
    /// # Errors
    /// [`EvalError::UnknownFunction`] or [`EvalError::InvalidArity`] of the first call that can not be.
    pub fn check(&self, functions: &FunctionTable) -> Result<(), EvalError> {
        functions.check(&self.0.ast)
    }

    /// Evaluates the expression on `root`. What the value did not compute it borrows, from the
    /// document, the expression and the parameters.
    ///
    /// # Errors
    /// Why there is no value.
    pub fn evaluate<'a, N: Node<'a>>(
        &'a self,
        root: N,
        environment: &Environment<'a>,
    ) -> Result<Value<'a, N>, EvalError> {
        Evaluator::new(&self.0.ast, environment)?.run(root)
    }

    /// Like [`Expression::evaluate`], with `left` in place of the environment's budget. The evaluation reduces `left`, so
    /// several evaluations can share one budget.
    ///
    /// # Errors
    /// Why there is no value.
    pub fn evaluate_out_of<'a, N: Node<'a>>(
        &'a self,
        root: N,
        environment: &Environment<'a>,
        left: &mut Budget,
    ) -> Result<Value<'a, N>, EvalError> {
        let environment = environment.with_budget(*left);
        Evaluator::new(&self.0.ast, &environment)?.run_out_of(root, left)
    }

    /// Evaluates the expression on a JSON document, into a JSON document.
    ///
    /// # Errors
    /// Why there is no value, or that it takes more than the budget's `json_bytes`.
    pub fn evaluate_json(
        &self,
        root: &serde_json::Value,
        environment: &Environment<'_>,
    ) -> Result<serde_json::Value, EvalError> {
        self.evaluate(root, environment)?
            .to_json_within(environment.budget.json_bytes)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Expression")
            .field(&self.as_str())
            .finish()
    }
}

/// Compares syntax trees: white space does not matter.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.0.ast == other.0.ast
    }
}

impl std::str::FromStr for Expression {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Expression::parse(text)
    }
}
