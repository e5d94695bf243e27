//! Facts of files, as the engine asks for them: every one is at hand.

use std::cell::RefCell;

use anteroom_engine::{
    catalog::Catalog,
    facts::{Arriving, Deadline, FactAnswer, FactHolder, FactResult, FactSource, RuleRequests},
};
use anteroom_model::FactError;
use anteroom_policy::{Evaluation, FactRequest};
use serde_json::Value;

use crate::{
    cel_facts::may_be_null,
    facts::{Facts, Unanswered},
};

/// The source of facts for one rule and one resource.
pub(crate) struct FileFacts<'a> {
    facts: Facts<'a>,
    /// An entry that nothing was given for is left out, and else an error.
    leaves_out: bool,
    /// The policy is one of policies.kyverno.io.
    is_cel: bool,
    /// The variables of those entries.
    left_out: RefCell<Vec<String>>,
}

impl<'a> FileFacts<'a> {
    pub(crate) fn new(facts: Facts<'a>, leaves_out: bool, is_cel: bool) -> Self {
        Self {
            facts,
            leaves_out,
            is_cel,
            left_out: RefCell::default(),
        }
    }

    /// Prepares an evaluation: facts are at hand whole, and the values of entries are given.
    pub(crate) fn prepare<'e>(&self, evaluation: Evaluation<'e>) -> Evaluation<'e> {
        let evaluation = evaluation.with_whole_facts().with_given(self.facts.given());
        match self.leaves_out {
            true => evaluation.goes_without(),
            false => evaluation,
        }
    }

    /// The variables of entries that were left out since nothing was given for them.
    pub(crate) fn into_left_out(self) -> Vec<String> {
        self.left_out.into_inner()
    }

    /// In CEL nothing is a missing key: an object or an entry that nothing was given for is null, as in Kyverno's
    /// command line, and anything else that is not known is an error.
    fn answer_in_cel(&self, request: &FactRequest) -> FactResult {
        let is_nothing = |why: &Unanswered| {
            matches!(
                why,
                Unanswered::Nothing(_) | Unanswered::Failed(FactError::EntryNotFound { .. })
            )
        };
        match self.facts.answer_in_cel(request) {
            Ok(value) => FactResult::Got(Ok(value)),
            Err(Unanswered::Given) => FactResult::LeftOut,
            Err(why) if self.leaves_out && is_nothing(&why) && may_be_null(&request.subject) => {
                self.left_out.borrow_mut().push(request.variable.clone());
                FactResult::Got(Ok(Value::Null))
            }
            Err(Unanswered::Nothing(error) | Unanswered::Failed(error)) => {
                FactResult::Got(Err(error))
            }
        }
    }

    fn answer(&self, request: &FactRequest) -> FactResult {
        if self.is_cel {
            return self.answer_in_cel(request);
        }
        match self.facts.answer(request) {
            Ok(value) => FactResult::Got(Ok(value)),
            Err(Unanswered::Given) => FactResult::LeftOut,
            Err(Unanswered::Nothing(_))
                if self.leaves_out && !self.facts.is_before_values(&request.subject) =>
            {
                self.left_out.borrow_mut().push(request.variable.clone());
                FactResult::LeftOut
            }
            Err(Unanswered::Nothing(error) | Unanswered::Failed(error)) => {
                FactResult::Got(Err(error))
            }
        }
    }
}

impl FactSource for FileFacts<'_> {
    fn ask<'a>(
        &'a self,
        _catalog: &Catalog,
        asked: Vec<RuleRequests<'a>>,
        _holder: &FactHolder,
        _deadline: Deadline,
    ) -> Vec<Arriving<'a>> {
        let of_rule = |asked: RuleRequests<'_>| {
            let facts = asked.requests.into_iter();
            let facts =
                facts.map(|request| FactAnswer::of(asked.asker, request.id, self.answer(&request)));
            let arriving: Arriving<'a> = Box::pin(std::future::ready(facts.collect::<Vec<_>>()));
            arriving
        };
        asked.into_iter().map(of_rule).collect()
    }
}
