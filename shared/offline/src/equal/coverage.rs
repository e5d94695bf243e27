//! The number of requests by result of each rule, and what that says of a search.

use std::collections::BTreeMap;

use serde::Serialize;

use super::outcome::Outcome;
use crate::loaded_policy::LoadedPolicy;

/// The results of one rule over all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Covered {
    /// The policy, with its namespace.
    pub policy: String,
    /// The rule; empty for policies of policies.kyverno.io.
    pub rule: String,
    /// Requests that complied with the rule, or that the rule changed.
    pub pass: usize,
    /// Requests that violated the rule.
    pub fail: usize,
    /// Requests for which the rule could not be evaluated.
    pub error: usize,
    /// Requests that the rule skipped.
    pub skip: usize,
    /// Violations by the validation that found them, of policies of policies.kyverno.io.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_validation: BTreeMap<String, usize>,
    /// The rule changes objects, and judges none.
    pub is_mutation: bool,
}

impl Covered {
    /// Returns why the search says little of this rule, if it does.
    pub fn gap(&self) -> Option<&'static str> {
        match (self.pass, self.fail, self.is_mutation) {
            (0, 0, _) if self.error > 0 => Some("it could be evaluated on no request"),
            (0, 0, _) if self.skip > 0 => Some("it was skipped for every request"),
            (0, 0, _) => Some("it spoke of no request"),
            (0, ..) => Some("no request passed it"),
            (_, 0, false) => Some("no request violated it"),
            _ => None,
        }
    }
}

/// The coverage of one side.
#[derive(Debug, Default)]
pub(super) struct Coverage(Vec<Covered>);

impl Coverage {
    pub(super) fn new(policies: &[LoadedPolicy]) -> Self {
        let mut rules: Vec<Covered> = Vec::new();
        for policy in policies {
            let compiled = policy.outcome.iter().flat_map(|compiled| compiled.rules());
            for rule in compiled {
                let name = match policy.kind.is_cel() {
                    true => "",
                    false => rule.name(),
                };
                if !rules
                    .iter()
                    .any(|own| own.policy == policy.name && own.rule == name)
                {
                    rules.push(Covered {
                        policy: policy.name.clone(),
                        rule: name.to_owned(),
                        is_mutation: rule.is_mutation(),
                        ..Covered::default()
                    });
                }
            }
        }
        Self(rules)
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        for told in &outcome.rules {
            let mut rules = self.0.iter_mut();
            let Some(own) = rules.find(|own| own.policy == told.policy && own.rule == told.rule)
            else {
                continue;
            };
            match told.status {
                "pass" => own.pass += 1,
                "error" => own.error += 1,
                "skip" => own.skip += 1,
                _ => {
                    own.fail += 1;
                    if let Some(validation) = &told.validation {
                        *own.by_validation.entry(validation.clone()).or_default() += 1;
                    }
                }
            }
        }
    }

    pub(super) fn into_rules(self) -> Vec<Covered> {
        self.0
    }
}
