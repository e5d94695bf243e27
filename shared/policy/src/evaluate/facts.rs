//! The facts that one evaluation asked for.

use std::sync::Arc;

use anteroom_model::FactError;
use serde_json::Value;

use super::{FACTS_PER_RULE_MAX, FactRead, FactRequest};
use crate::{FactTarget, template::Bound};

/// What was asked, and what was answered. One question is asked once, whoever asks it again.
#[derive(Default)]
pub(super) struct Facts {
    facts: Vec<Fact>,
    /// How many of them the driver was told of.
    asked: usize,
}

struct Fact {
    request: FactRequest,
    answer: Option<Result<Arc<Value>, FactError>>,
}

/// Where a question stands.
pub(super) enum Lookup {
    Answer(Result<Arc<Value>, FactError>),
    Pending,
    TooMany,
}

impl Facts {
    /// The answer to a question about an entry, asking it if it is new.
    pub(super) fn look_up(
        &mut self,
        variable: &str,
        target: FactTarget,
        query: Option<Bound>,
    ) -> Lookup {
        let (expression, parameters) = match query {
            Some(bound) => (bound.expression.as_str().to_owned(), bound.parameters),
            None => Default::default(),
        };
        let known = self.facts.iter().find(|Fact { request, .. }| {
            request.target == target
                && request.expression == expression
                && request.parameters == parameters
        });
        if let Some(fact) = known {
            return match &fact.answer {
                Some(answer) => Lookup::Answer(answer.clone()),
                None => Lookup::Pending,
            };
        }
        if self.facts.len() == FACTS_PER_RULE_MAX {
            return Lookup::TooMany;
        }
        self.facts.push(Fact {
            request: FactRequest {
                id: self.facts.len() as u32,
                variable: variable.to_owned(),
                target,
                expression,
                parameters,
                missing_key_is_error: true,
                age_max_ms: None,
            },
            answer: None,
        });
        Lookup::Pending
    }

    /// What the driver has not been told of, and else what it has not answered.
    pub(super) fn questions(&mut self) -> Vec<FactRequest> {
        let new = std::mem::replace(&mut self.asked, self.facts.len());
        let unanswered = |fact: &&Fact| fact.answer.is_none();
        let requests = |facts: &[Fact]| -> Vec<FactRequest> {
            facts
                .iter()
                .filter(unanswered)
                .map(|fact| fact.request.clone())
                .collect()
        };
        match requests(&self.facts[new..]) {
            fresh if !fresh.is_empty() => fresh,
            _ => requests(&self.facts),
        }
    }

    /// The first answer to a question counts.
    pub(super) fn supply(&mut self, id: u32, answer: Result<Value, FactError>) {
        if let Some(fact) = self.facts.get_mut(id as usize) {
            fact.answer.get_or_insert_with(|| answer.map(Arc::new));
        }
    }

    pub(super) fn record(&self) -> Vec<FactRead> {
        self.facts
            .iter()
            .map(|Fact { request, answer }| FactRead {
                id: request.id,
                variable: request.variable.clone(),
                entry: request.target.to_string(),
                error: match answer {
                    Some(Err(error)) => Some(error.clone()),
                    _ => None,
                },
            })
            .collect()
    }
}
