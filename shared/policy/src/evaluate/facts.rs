//! The facts that one evaluation asked for.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::FactError;
use serde_json::Value;

use super::{FACTS_PER_RULE_MAX, FactRead, FactRequest};
use crate::FactTarget;

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

/// What is asked.
pub(super) struct Question {
    pub(super) target: FactTarget,
    pub(super) expression: String,
    pub(super) parameters: BTreeMap<String, Value>,
    pub(super) missing_key_is_error: bool,
    pub(super) age_max_ms: Option<u64>,
}

impl Question {
    fn is(&self, asked: &FactRequest) -> bool {
        asked.target == self.target
            && asked.expression == self.expression
            && asked.parameters == self.parameters
            && asked.missing_key_is_error == self.missing_key_is_error
            && asked.age_max_ms == self.age_max_ms
    }
}

/// Where a question stands.
pub(super) enum Lookup {
    Answer(Result<Arc<Value>, FactError>),
    Pending,
    TooMany,
}

impl Facts {
    /// The answer to a question, asking it if it is new.
    pub(super) fn look_up(&mut self, variable: &str, question: Question) -> Lookup {
        let known = self.facts.iter().find(|fact| question.is(&fact.request));
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
                target: question.target,
                expression: question.expression,
                parameters: question.parameters,
                missing_key_is_error: question.missing_key_is_error,
                age_max_ms: question.age_max_ms,
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
