//! The interface between the engine and the sources of its facts.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_policy::{Evaluation, FactRequest};
use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    memory::{FactHolder, FactPermit},
    origin::Origin,
};
use crate::{catalog::Catalog, rule::RuleRef};

/// The time until which a rule waits for its facts.
pub type Deadline = tokio::time::Instant;

/// Facts on their way: the answers to one or several requests.
pub type Arriving<'a> = BoxFuture<'a, Vec<FactAnswer>>;

/// A place that facts come from: the bus, files, a script in a test.
pub trait FactSource {
    /// Starts the requests for all facts that the rules need, in parallel. Each future is one request, so that no
    /// rule waits for facts of a different rule. `catalog` is the catalog by which the rules are evaluated, and `holder` is
    /// the review that holds the facts.
    fn ask<'a>(
        &'a self,
        catalog: &Catalog,
        asked: Vec<RuleRequests<'a>>,
        holder: &FactHolder,
        deadline: Deadline,
    ) -> Vec<Arriving<'a>>;

    /// Prepares an evaluation before its first step, with values that were given for its facts. A cluster gives none.
    fn prepare<'a>(&self, evaluation: Evaluation<'a>) -> Evaluation<'a> {
        evaluation
    }
}

/// The facts that a rule needs for its next step.
#[derive(Debug)]
pub struct RuleRequests<'a> {
    /// The number of the rule, which marks the facts of the rule.
    pub asker: usize,
    /// The rule that asks.
    pub reader: &'a RuleRef,
    /// The namespace of the request or object that it judges; empty: the cluster.
    pub review_namespace: &'a str,
    /// The facts that it asks for.
    pub requests: Vec<FactRequest>,
}

/// The answer to one [`FactRequest`].
#[derive(Debug)]
pub struct FactAnswer {
    /// The number of the rule in [`RuleRequests`].
    pub asker: usize,
    /// The id of the [`FactRequest`].
    pub id: u32,
    /// The answer itself.
    pub answer: FactResult,
    /// The memory of the answer, and of all that came with it; `None`: they are small.
    pub memory: Option<FactPermit>,
    /// The origin of the answer; `None`: there was no answer.
    pub origin: Option<Arc<Origin>>,
    /// The fact travelled sealed, and everything derived from the fact must be withheld too.
    pub secret: bool,
}

/// An answer to a request for a fact.
#[derive(Clone, Debug, PartialEq)]
pub enum FactResult {
    /// The value, or why it is not known.
    Got(Result<Value, FactError>),
    /// A part of a fact is not to be had without reading the fact, which is asked for then.
    Declined,
    /// The rule goes on without the fact: see [`Evaluation::leave_out`]. Never the answer of a cluster.
    LeftOut,
}

impl FactAnswer {
    /// An answer that comes from nowhere in a cluster.
    pub fn of(asker: usize, id: u32, answer: FactResult) -> Self {
        Self {
            asker,
            id,
            answer,
            memory: None,
            origin: None,
            secret: false,
        }
    }

    /// A fact that is not known, and why.
    pub fn unanswered(asker: usize, id: u32, error: FactError) -> Self {
        Self::of(asker, id, FactResult::Got(Err(error)))
    }
}
