//! Facts by a script: decisions without a bus.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::FactError;
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    catalog::Catalog,
    facts::{Arriving, Deadline, FactAnswer, FactHolder, FactResult, FactSource, RuleRequests},
};

/// Facts by the variables that read them. A part of a fact is declined, and so the whole fact is asked for.
#[derive(Debug, Default)]
pub struct Script {
    answers: BTreeMap<String, (Duration, Result<Value, FactError>)>,
    asked: Mutex<Vec<Vec<String>>>,
}

impl Script {
    /// Answers for a variable after this many milliseconds. For other variables no answer ever comes.
    #[must_use]
    pub fn with(mut self, variable: &str, after_ms: u64, answer: Result<Value, FactError>) -> Self {
        let after = Duration::from_millis(after_ms);
        self.answers.insert(variable.to_owned(), (after, answer));
        self
    }

    /// Returns the whole facts that were asked for, by `rule.variable`: each time those that were asked for at once.
    pub fn asked(&self) -> Vec<Vec<String>> {
        self.asked.lock().clone()
    }
}

impl FactSource for Script {
    fn ask<'a>(
        &'a self,
        _catalog: &Catalog,
        asked: Vec<RuleRequests<'a>>,
        _holder: &FactHolder,
        _deadline: Deadline,
    ) -> Vec<Arriving<'a>> {
        let (mut arriving, mut noted) = (Vec::new(), Vec::new());
        for RuleRequests {
            asker,
            reader,
            requests,
            ..
        } in asked
        {
            for request in requests {
                let (after, answer) = match self.answers.get(&request.variable) {
                    _ if request.is_pushed_down => (Duration::ZERO, FactResult::Declined),
                    Some((after, answer)) => (*after, FactResult::Got(answer.clone())),
                    None => continue,
                };
                if !request.is_pushed_down {
                    noted.push(format!("{}.{}", reader.rule, request.variable));
                }
                let fact = FactAnswer::of(asker, request.id, answer);
                let answered = async move {
                    if !after.is_zero() {
                        tokio::time::sleep(after).await;
                    }
                    vec![fact]
                };
                arriving.push(answered.boxed());
            }
        }
        if !noted.is_empty() {
            self.asked.lock().push(noted);
        }
        arriving
    }
}
