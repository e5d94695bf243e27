//! The facts that expressions read, out of those that the rule has asked for.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use anteroom_cel::{
    Argument, EvalError, Fact, FactFunction, Host, Site, SubqueryAnswer, SubqueryRequest,
};
use anteroom_model::FactError;
use serde_json::Value;

use super::subject::{NamedSubject, subject};
use crate::{
    evaluate::{
        error::RuleError,
        facts::{AnswerShape, FactState, Facts, Lookup, Question},
        interrupt::Stop,
        report::CelRequest,
    },
    ir::cel::{Cel, CelFact},
};

/// The most facts that a step asks for; later steps ask for the rest.
const DEMANDS_PER_STEP_MAX: usize = 64;

/// The source of facts for the expressions of one rule, in one step.
pub(super) struct CelHost<'v> {
    facts: &'v [CelFact],
    home: Option<&'v str>,
    known: &'v Facts,
    state: RefCell<HostState>,
}

/// The needs and failures that the expressions came upon.
#[derive(Default)]
struct HostState {
    /// Facts that are needed and were not asked for.
    demands: Vec<(String, Question)>,
    /// Reads that failed, by the number that the evaluator knows them by.
    failed: Vec<RuleError>,
}

/// The needs and failures of a host whose step is over.
pub(super) struct Demands(HostState);

impl<'v> CelHost<'v> {
    pub(super) fn new(cel: &'v Cel, home: Option<&'v str>, known: &'v Facts) -> Self {
        Self {
            facts: &cel.facts,
            home,
            known,
            state: RefCell::default(),
        }
    }

    /// Ends the step.
    pub(super) fn into_demands(self) -> Demands {
        Demands(self.state.into_inner())
    }

    fn demand(&self, name: String, question: Question) {
        let mut state = self.state.borrow_mut();
        let is_new = |known: &(String, Question)| !known.1.is_same_subject(&question);
        if state.demands.len() < DEMANDS_PER_STEP_MAX && state.demands.iter().all(is_new) {
            state.demands.push((name, question));
        }
    }

    /// The question that a subquery asks, and the name of the entry that it is of.
    fn subquery_question(&self, request: SubqueryRequest<'v>) -> Option<(String, Question)> {
        let SubqueryRequest {
            subquery,
            arguments,
            parameters,
        } = request;
        let mut first = None;
        let mut documents = BTreeMap::new();
        for ((document, site), values) in subquery.documents().iter().zip(arguments) {
            let fact = self
                .facts
                .iter()
                .find(|fact| fact.site.name() == site.name())?;
            let NamedSubject { subject, name } = subject(fact, values, self.home).ok()?;
            match first {
                None => first = Some((name, subject)),
                Some(_) => {
                    documents.insert(document.clone(), subject);
                }
            }
        }
        let (name, subject) = first?;
        let (mut values, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for (at, parameter) in parameters.into_iter().enumerate() {
            let name = format!("p{at}");
            match parameter {
                Ok(value) => {
                    values.insert(name, value);
                }
                Err(message) => {
                    failed.insert(name, message);
                }
            }
        }
        let question = Question {
            is_pushed_down: true,
            cel: Some(Arc::new(CelRequest {
                expression: subquery.text().to_owned(),
                variables: subquery.variables().to_vec(),
                failed,
                documents,
            })),
            ..Question::new(subject, "", values)
        };
        Some((name, question))
    }

    fn fail(&self, error: RuleError) -> Fact<'v> {
        let mut state = self.state.borrow_mut();
        state.failed.push(error);
        Fact::Failed(state.failed.len() as u32 - 1, "a fact cannot be read")
    }

    fn refuse(&self, site: &Site, entry: &str, source: FactError) -> Fact<'v> {
        self.fail(RuleError::Fact {
            variable: site.name().to_owned(),
            entry: entry.to_owned(),
            source,
        })
    }
}

impl<'v> Host<'v> for CelHost<'v> {
    fn read(&self, site: &'v Site, values: Vec<Value>, is_certain: bool) -> Fact<'v> {
        let Some(fact) = self
            .facts
            .iter()
            .find(|fact| fact.site.name() == site.name())
        else {
            let source = FactError::RequestInvalid {
                message: "the rule has no such fact".to_owned(),
            };
            return self.refuse(site, "", source);
        };
        let NamedSubject { subject, name } = match subject(fact, values, self.home) {
            Ok(found) => found,
            Err(message) => {
                let source = FactError::RequestInvalid { message };
                return self.refuse(site, "", source);
            }
        };
        let entry = subject.to_string();
        let question = Question {
            is_large: true,
            reading: reading(site),
            ..Question::new(subject, "", BTreeMap::new())
        };
        match self.known.answer_to(&question) {
            Some(FactState::Value(value)) => Fact::Value(value),
            Some(FactState::Failed(error)) => self.refuse(site, &entry, error.clone()),
            Some(FactState::LeftOut) => match self.known.given.get(&name) {
                Some(value) => Fact::Value(value),
                None => self.refuse(site, &entry, crate::evaluate::facts::left_out()),
            },
            Some(FactState::Pending | FactState::Declined) => Fact::Unknown,
            None => {
                if is_certain || !site.function().has_effect() {
                    self.demand(name, question);
                }
                Fact::Unknown
            }
        }
    }

    fn takes_subqueries(&self) -> bool {
        self.known.takes_subqueries()
    }

    fn subquery(&self, request: SubqueryRequest<'v>) -> SubqueryAnswer<'v> {
        let Some((name, question)) = self.subquery_question(request) else {
            return SubqueryAnswer::Declined;
        };
        let entry = question.subject.to_string();
        match self.known.answer_to(&question) {
            Some(FactState::Value(outcome)) => subquery_answer(outcome),
            // The same would be said of the list, or it has to be read to know.
            Some(FactState::Failed(error)) if error.class().subject.is_of_query() => {
                SubqueryAnswer::Declined
            }
            Some(FactState::Failed(error)) => {
                let source = error.clone();
                match self.fail(RuleError::Fact {
                    variable: name,
                    entry,
                    source,
                }) {
                    Fact::Failed(id, message) => SubqueryAnswer::Unread(id, message),
                    _ => SubqueryAnswer::Declined,
                }
            }
            Some(FactState::Declined | FactState::LeftOut) => SubqueryAnswer::Declined,
            Some(FactState::Pending) => SubqueryAnswer::Unknown,
            // The list is read, and no values travel.
            None if !self.known.takes(&question) => SubqueryAnswer::Declined,
            None => {
                self.demand(name, question);
                SubqueryAnswer::Unknown
            }
        }
    }
}

/// The outcome that a replica tells: see [`FactRequest::cel`](crate::FactRequest::cel).
fn subquery_answer(outcome: &Value) -> SubqueryAnswer<'_> {
    let text = |of: &str, field: &str| outcome.get(of)?.get(field)?.as_str();
    if let Some(value) = outcome.get("value") {
        return SubqueryAnswer::Value(value);
    }
    if let Some(message) = text("failed", "message") {
        return SubqueryAnswer::Failed(message);
    }
    let parameter = text("parameter", "name").and_then(|name| name.strip_prefix('p')?.parse().ok());
    parameter.map_or(SubqueryAnswer::Declined, SubqueryAnswer::Parameter)
}

/// Returns the shape in which the function reads an answer.
fn reading(site: &Site) -> AnswerShape {
    match site.function() {
        FactFunction::ResourceGet => AnswerShape::ObjectOrNull,
        FactFunction::ResourceList => AnswerShape::ListWithKinds,
        _ => AnswerShape::AsItIs,
    }
}

impl Demands {
    /// Asks for the facts that expressions needed and did not have.
    pub(super) fn ask(self, facts: &mut Facts) -> Stop {
        for (variable, question) in self.0.demands {
            let error = match facts.look_up(&variable, question) {
                Lookup::TooMany => RuleError::TooManyFacts,
                Lookup::TooLarge => RuleError::LargeQuestions,
                _ => continue,
            };
            return Stop::Error(Box::new(error));
        }
        Stop::Pending
    }

    /// The error of the rule that an error of an expression is. `place` is the path of its field.
    pub(super) fn error(self, place: &str, error: EvalError) -> Box<RuleError> {
        if let EvalError::Fact { id, .. } = &error {
            let mut failed = self.0.failed;
            if (*id as usize) < failed.len() {
                return Box::new(failed.swap_remove(*id as usize));
            }
        }
        Box::new(RuleError::Cel {
            place: place.to_owned(),
            source: error,
        })
    }
}

/// Returns whether an argument that names something is a text.
pub(super) fn is_text(argument: &Argument, values: &[Value]) -> bool {
    match argument {
        Argument::Dynamic(at) => values.get(*at).is_some_and(Value::is_string),
        Argument::Constant(value) => value.is_string(),
        Argument::Text(_) | Argument::Home => true,
        Argument::Map(_) => false,
    }
}
