//! The facts that expressions read, out of those that the rule has asked for.

use std::{cell::RefCell, collections::BTreeMap};

use anteroom_cel::{Argument, EvalError, Fact, FactFunction, Host, Site};
use anteroom_model::FactError;
use serde_json::Value;

use super::target::{Targeted, target};
use crate::{
    evaluate::{
        error::RuleError,
        facts::{Facts, Known, Question, Reading},
        interrupt::Stop,
    },
    ir::cel::{Cel, CelFact},
};

/// Facts that one step asks for; the others are asked for in the next ones.
const DEMANDS_PER_STEP_MAX: usize = 64;

/// The source of facts for the expressions of one rule, in one step.
pub(super) struct CelHost<'v> {
    facts: &'v [CelFact],
    home: Option<&'v str>,
    known: &'v Facts,
    state: RefCell<State>,
}

/// What the expressions came upon.
#[derive(Default)]
struct State {
    /// Facts that are needed and were not asked for.
    demands: Vec<(String, Question)>,
    /// Reads that failed, by the number that the evaluator knows them by.
    failed: Vec<RuleError>,
}

/// What is left of a host when its step is over.
pub(super) struct Demands(State);

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
        let Targeted { target, name } = match target(fact, values, self.home) {
            Ok(found) => found,
            Err(message) => {
                let source = FactError::RequestInvalid { message };
                return self.refuse(site, "", source);
            }
        };
        let entry = target.to_string();
        let question = Question {
            is_large: true,
            reading: reading(site),
            ..Question::new(target, "", BTreeMap::new())
        };
        match self.known.known(&question) {
            Some(Known::Value(value)) => Fact::Value(value),
            Some(Known::Failed(error)) => self.refuse(site, &entry, error.clone()),
            Some(Known::LeftOut) => match self.known.given.get(&name) {
                Some(value) => Fact::Value(value),
                None => self.refuse(site, &entry, crate::evaluate::facts::left_out()),
            },
            Some(Known::Pending) => Fact::Unknown,
            None => {
                let mut state = self.state.borrow_mut();
                let may_be_asked = is_certain || !site.function().has_effect();
                let is_new = |known: &(String, Question)| !known.1.is_the_same_target(&question);
                if may_be_asked
                    && state.demands.len() < DEMANDS_PER_STEP_MAX
                    && state.demands.iter().all(is_new)
                {
                    state.demands.push((name, question));
                }
                Fact::Unknown
            }
        }
    }
}

/// How an answer is read as a value of the function.
fn reading(site: &Site) -> Reading {
    match site.function() {
        FactFunction::ResourceGet => Reading::ObjectOrNull,
        FactFunction::ResourceList => Reading::ListWithKinds,
        _ => Reading::AsItIs,
    }
}

impl Demands {
    /// Asks for what the expressions need, where they came to nothing without it.
    pub(super) fn ask(self, facts: &mut Facts) -> Stop {
        for (variable, question) in self.0.demands {
            if let crate::evaluate::facts::Lookup::TooMany = facts.look_up(&variable, question) {
                return Stop::Error(Box::new(RuleError::TooManyFacts));
            }
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
