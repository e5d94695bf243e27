//! The facts that one evaluation has asked for.

mod question;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use anteroom_model::FactError;
use serde_json::Value;

use super::{
    error::RuleError,
    interrupt::Stop,
    limits::{FACTS_PER_RULE_MAX, PARAMETERS_BYTES_MAX, PUSHED_DOWN_PER_RULE_MAX},
    report::{FactRead, FactRequest},
};
use crate::ir::FactSubject;

pub(super) use question::{AnswerShape, Question};

/// The number of facts that are searched one by one; more are found by their hash.
const LOOKED_THROUGH_MAX: usize = 8;

/// The questions of an evaluation, with their answers. Repeated questions are the same question.
#[derive(Default)]
pub(super) struct Facts {
    facts: Vec<PendingFact>,
    /// The indexes of the facts whose expression and parameters have this hash.
    by_hash: HashMap<u64, Vec<usize>>,
    /// The number of facts that are in `by_hash`.
    hashed: usize,
    /// The number of facts that the driver was asked for.
    asked: usize,
    /// The number of facts that are asked for in place of another.
    subqueries: usize,
    /// The number of facts that were released.
    released: usize,
    /// The memory of the values in all questions.
    question_bytes: u64,
    /// Facts that cannot be read, each with its error: a subquery of the fact failed with an error of the whole fact.
    refused: Vec<(Question, FactError)>,
    /// Facts are always asked for whole.
    pub(super) only_whole: bool,
    /// Values of entries of the context, by their names: nothing is asked for those.
    pub(super) given: BTreeMap<String, Arc<Value>>,
    /// An entry whose name or path cannot be computed is missing, and is no error.
    pub(super) goes_without: bool,
    /// A condition that may not be needed is evaluated: only little is asked for.
    pub(super) looks_ahead: bool,
}

struct PendingFact {
    request: FactRequest,
    reading: AnswerShape,
    answer: Option<Result<Arc<Value>, FactError>>,
    is_declined: bool,
    is_left_out: bool,
}

/// The state of a question that was asked.
pub(super) enum FactState<'f> {
    Value(&'f Value),
    Failed(&'f FactError),
    Pending,
    LeftOut,
    /// A part that is not to be had without the fact.
    Declined,
}

/// The state of a question.
pub(super) enum Lookup {
    Answer(Result<Arc<Value>, FactError>),
    Pending,
    TooMany,
    /// All questions have too large values in them.
    TooLarge,
    /// A part that is not to be had without the fact.
    Declined,
    /// The driver goes on without it.
    LeftOut,
}

impl Facts {
    /// The answer to a question without which the rule cannot go on.
    pub(super) fn need(&mut self, variable: &str, question: Question) -> Result<Arc<Value>, Stop> {
        let entry = question.subject.to_string();
        let source = match self.look_up(variable, question) {
            Lookup::Answer(Ok(value)) => return Ok(value),
            Lookup::Pending | Lookup::Declined => return Err(Stop::Pending),
            Lookup::TooMany => return Err(Stop::Error(Box::new(RuleError::TooManyFacts))),
            Lookup::TooLarge => return Err(Stop::Error(Box::new(RuleError::LargeQuestions))),
            Lookup::LeftOut => left_out(),
            Lookup::Answer(Err(source)) => source,
        };
        Err(Stop::Error(Box::new(RuleError::Fact {
            variable: variable.to_owned(),
            entry,
            source,
        })))
    }

    /// The answer to a question, asking it if it is new.
    pub(super) fn look_up(&mut self, variable: &str, question: Question) -> Lookup {
        if !question.is_pushed_down
            && let Some(error) = self.refusal(&question)
        {
            return Lookup::Answer(Err(error.clone()));
        }
        if let Some(fact) = self.find(&question) {
            return match &fact.answer {
                _ if fact.is_declined && question.is_pushed_down => Lookup::Declined,
                _ if fact.is_left_out => Lookup::LeftOut,
                Some(answer) => Lookup::Answer(answer.clone()),
                None => Lookup::Pending,
            };
        }
        if self.looks_ahead && question.is_large {
            return Lookup::Pending;
        }
        let (count, most) = match question.is_pushed_down {
            true => (self.subqueries, PUSHED_DOWN_PER_RULE_MAX),
            false => (
                self.facts.len() - self.subqueries - self.released,
                FACTS_PER_RULE_MAX,
            ),
        };
        let question_bytes = self.question_bytes.saturating_add(question.value_bytes());
        if count == most {
            return Lookup::TooMany;
        }
        if question_bytes > PARAMETERS_BYTES_MAX {
            return Lookup::TooLarge;
        }
        self.question_bytes = question_bytes;
        self.subqueries += usize::from(question.is_pushed_down);
        self.facts.push(PendingFact {
            request: FactRequest {
                id: self.facts.len() as u32,
                variable: variable.to_owned(),
                subject: question.subject,
                expression: question.expression,
                parameters: question.parameters,
                missing_key_is_error: question.missing_key_is_error,
                age_max_ms: question.age_max_ms,
                is_pushed_down: question.is_pushed_down,
                cel: question.cel,
            },
            reading: question.reading,
            answer: None,
            is_declined: false,
            is_left_out: false,
        });
        Lookup::Pending
    }

    /// The answer to a question, if it was asked.
    pub(super) fn answer_to(&self, question: &Question) -> Option<FactState<'_>> {
        let mut facts = self.facts.iter();
        let fact =
            facts.find(|fact| question.is(&fact.request) && fact.reading == question.reading)?;
        Some(match &fact.answer {
            _ if fact.is_left_out => FactState::LeftOut,
            _ if fact.is_declined => FactState::Declined,
            Some(Ok(value)) => FactState::Value(value),
            Some(Err(error)) => FactState::Failed(error),
            None => FactState::Pending,
        })
    }

    fn find(&mut self, question: &Question) -> Option<&PendingFact> {
        let is =
            |fact: &&PendingFact| question.is(&fact.request) && fact.reading == question.reading;
        if self.facts.len() <= LOOKED_THROUGH_MAX {
            return self.facts.iter().find(is);
        }
        for (at, fact) in self.facts.iter().enumerate().skip(self.hashed) {
            let hash = hash(&fact.request.expression, &fact.request.parameters);
            self.by_hash.entry(hash).or_default().push(at);
        }
        self.hashed = self.facts.len();
        let hash = hash(&question.expression, &question.parameters);
        let places = self.by_hash.get(&hash)?;
        let mut facts = places.iter().map(|at| &self.facts[*at]);
        facts.find(is)
    }

    /// Returns whether subqueries may be asked in place of a fact.
    pub(super) fn takes_subqueries(&self) -> bool {
        !self.only_whole
    }

    /// Returns the error of the whole fact, if a part of the fact failed with an error that concerns the whole.
    pub(super) fn refusal(&self, whole: &Question) -> Option<&FactError> {
        let mut refused = self.refused.iter();
        refused
            .find(|(refused, _)| refused.is_the_same(whole))
            .map(|(_, error)| error)
    }

    /// Notes that a fact cannot be read, because a subquery failed with an error of the whole fact. The driver is not
    /// asked for the fact. Where the question is too large to be noted, its own look-up says so.
    pub(super) fn refuse(&mut self, whole: Question, error: FactError) {
        let mut refused = self.refused.iter();
        if refused.any(|(known, _)| known.is_the_same(&whole)) {
            return;
        }
        let question_bytes = self.question_bytes.saturating_add(whole.value_bytes());
        if question_bytes <= PARAMETERS_BYTES_MAX {
            self.question_bytes = question_bytes;
            self.refused.push((whole, error));
        }
    }

    /// Returns whether the values of one more question fit beside those of the others.
    pub(super) fn takes(&self, question: &Question) -> bool {
        let question_bytes = self.question_bytes.saturating_add(question.value_bytes());
        question_bytes <= PARAMETERS_BYTES_MAX
    }

    /// Returns the memory of the values in all questions.
    pub(super) fn question_bytes(&self) -> u64 {
        self.question_bytes
    }

    /// Returns the questions that the driver has not seen yet; if there are none, the unanswered questions.
    pub(super) fn questions(&mut self) -> Vec<FactRequest> {
        let new = std::mem::replace(&mut self.asked, self.facts.len());
        let unanswered = |fact: &&PendingFact| fact.answer.is_none() && !fact.is_declined;
        let requests = |facts: &[PendingFact]| -> Vec<FactRequest> {
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

    /// Returns the number of questions.
    pub(super) fn count(&self) -> usize {
        self.facts.len()
    }

    /// Keeps the first `count` questions, which the driver was asked, and forgets the others.
    pub(super) fn keep(&mut self, count: usize) {
        self.facts.truncate(count);
        self.asked = self.facts.len();
        let facts = self.facts.iter();
        self.subqueries = facts.filter(|fact| fact.request.is_pushed_down).count();
        let facts = self.facts.iter();
        let bytes = facts.map(|fact| question::value_bytes(&fact.request));
        self.question_bytes = bytes.fold(0, u64::saturating_add);
        self.by_hash.clear();
        self.hashed = 0;
        // The answers to subqueries say again which facts cannot be read.
        self.refused.clear();
    }

    /// The first answer to a question counts.
    pub(super) fn supply(&mut self, id: u32, answer: Result<Value, FactError>) {
        if let Some(fact) = self.facts.get_mut(id as usize) {
            let reading = fact.reading;
            let read = || reading.read(answer).map(Arc::new);
            fact.answer.get_or_insert_with(read);
        }
    }

    /// Drops the answers about a target that nobody will read again: they take no memory any more, and do not count.
    pub(super) fn release(&mut self, subject: &FactSubject) {
        let is_it =
            |fact: &&mut PendingFact| fact.request.subject == *subject && fact.answer.is_some();
        if let Some(fact) = self.facts.iter_mut().rev().find(is_it) {
            fact.answer = Some(Ok(Arc::default()));
            self.released += 1;
        }
    }

    /// A part is not to be had without the fact. Of anything else this says nothing.
    pub(super) fn decline(&mut self, id: u32) {
        let fact = self.facts.get_mut(id as usize);
        if let Some(fact) = fact.filter(|fact| fact.request.is_pushed_down && fact.answer.is_none())
        {
            fact.is_declined = true;
        }
    }

    /// The evaluation goes on as if this fact had no value. An earlier answer stays.
    pub(super) fn leave_out(&mut self, id: u32) {
        let fact = self.facts.get_mut(id as usize);
        if let Some(fact) = fact.filter(|fact| fact.answer.is_none()) {
            fact.answer = Some(Err(left_out()));
            fact.is_left_out = true;
        }
    }

    /// Returns the facts that were asked for, without subqueries that were of no use.
    pub(super) fn record(&self) -> Vec<FactRead> {
        self.facts
            .iter()
            .filter(|fact| !fact.is_of_no_use())
            .map(
                |PendingFact {
                     request, answer, ..
                 }| FactRead {
                    id: request.id,
                    variable: request.variable.clone(),
                    entry: request.subject.to_string(),
                    error: match answer {
                        Some(Err(error)) => Some(error.clone()),
                        _ => None,
                    },
                },
            )
            .collect()
    }
}

pub(super) fn left_out() -> FactError {
    FactError::RequestInvalid {
        message: "nobody gives it a value".to_owned(),
    }
}

fn hash(expression: &str, parameters: &BTreeMap<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (expression, parameters).hash(&mut hasher);
    hasher.finish()
}

impl PendingFact {
    fn is_of_no_use(&self) -> bool {
        let answer = self.answer.as_ref().map(Result::as_ref);
        self.request.is_pushed_down
            && (self.is_declined
                || matches!(answer, Some(Err(error)) if error.class().subject.is_of_query()))
    }
}
