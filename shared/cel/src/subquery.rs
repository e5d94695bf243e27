//! Parts of an expression that can be evaluated where the list that they read is kept.
//!
//! A subexpression is a subquery if it reads the lists of one kind of object, and everything else in it can be computed
//! without them: that becomes parameters. The subexpression travels as text and is evaluated by the same evaluator over
//! the same list, so it comes to the same, errors included. Of subexpressions within subexpressions the outermost one
//! is a subquery, so that most often no more than a boolean travels back.

use std::sync::Arc;

use crate::fact::Site;

/// A subquery: what is asked of whoever keeps the list.
#[derive(Debug, PartialEq)]
pub struct Subquery {
    /// The subexpression's text, with the names of its [documents](Self::documents) and of its parameters `p0`, `p1`, …
    pub(crate) text: String,
    /// The variables before it, by name.
    pub(crate) variables: Vec<(String, String)>,
    /// The lists that it reads, by name: the first is `view`.
    pub(crate) documents: Vec<(String, Arc<Site>)>,
    /// The number of parameters.
    pub(crate) parameters: usize,
}

impl Subquery {
    /// The subexpression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The variables before it, by name, each with its text.
    pub fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// The names of its parameters.
    pub fn parameter_names(&self) -> impl Iterator<Item = String> {
        (0..self.parameters).map(|at| format!("p{at}"))
    }

    /// The lists that the subexpression reads, by their names in the subexpression; the first is `view`.
    pub fn documents(&self) -> &[(String, Arc<Site>)] {
        &self.documents
    }
}

/// The answer of a [`Host`](crate::Host) about a subquery.
#[derive(Clone, Copy, Debug)]
pub enum SubqueryAnswer<'v> {
    /// The value of the subquery.
    Value(&'v serde_json::Value),
    /// The error that it comes to.
    Failed(&'v str),
    /// The subquery comes to the error of the parameter at this place.
    Parameter(usize),
    /// The answer is not there yet.
    Unknown,
    /// The value is not to be had without reading the lists.
    Declined,
    /// The lists cannot be read; as in [`Fact::Failed`](crate::Fact::Failed).
    Unread(u32, &'v str),
}

/// The content of a subquery.
#[derive(Debug)]
pub struct SubqueryRequest<'v> {
    /// The subquery.
    pub subquery: &'v Subquery,
    /// The dynamic arguments of each document.
    pub arguments: Vec<Vec<serde_json::Value>>,
    /// The value of each parameter, or the error that counts where the evaluation reaches it.
    pub parameters: Vec<Result<serde_json::Value, String>>,
}
