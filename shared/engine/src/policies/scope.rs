//! The rules that a call of the API server is about.

use std::{collections::HashMap, sync::Arc};

use anteroom_model::ObjectKey;
use anteroom_policy::Phase;

use super::CompiledPolicy;

/// The policies that a call is about, and the effect of an error outside of any policy.
///
/// A call by a webhook configuration that this process does not know is about all policies. So no policy in force is
/// skipped while configurations and policies change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallScope {
    /// The phase of the rules.
    pub phase: Phase,
    /// An error outside of any policy admits.
    pub ignores_errors: bool,
    /// The registered webhook that was called; `None`: all policies decide.
    pub called: Option<CalledWebhook>,
}

/// A webhook of a known configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalledWebhook {
    /// The configuration's policies.
    pub assignment: Arc<Assignment>,
    /// The webhook's position in the assignment.
    pub webhook: usize,
}

/// The policies of a webhook configuration, each with the webhooks through which it is called: most with one, and those
/// whose kinds are too many to be listed with two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    webhooks: Vec<String>,
    by_policy: HashMap<ObjectKey, Vec<usize>>,
}

impl Assignment {
    /// Adds a webhook by its name, with its policies.
    pub fn add(&mut self, webhook: String, policies: impl IntoIterator<Item = ObjectKey>) {
        let at = self.webhooks.len();
        self.webhooks.push(webhook);
        for policy in policies {
            let webhooks = self.by_policy.entry(policy).or_default();
            if webhooks.last() != Some(&at) {
                webhooks.push(at);
            }
        }
    }

    /// Returns the position of the webhook with this name.
    pub fn position(&self, webhook: &str) -> Option<usize> {
        self.webhooks.iter().position(|name| name == webhook)
    }

    /// Returns each policy with the name of each of its webhooks, in order of key and name.
    pub fn policies(&self) -> Vec<(&ObjectKey, &str)> {
        let named = self.by_policy.iter().flat_map(|(policy, webhooks)| {
            let names = webhooks.iter().map(|at| &*self.webhooks[*at]);
            names.map(move |name| (policy, name))
        });
        let mut policies: Vec<_> = named.collect();
        policies.sort_unstable();
        policies
    }
}

impl CallScope {
    /// All rules of a phase. An error refuses.
    pub fn all(phase: Phase) -> Self {
        Self {
            phase,
            ignores_errors: false,
            called: None,
        }
    }

    /// Returns whether the call is about this policy. A policy that the called configuration does not have yet
    /// is asked at each webhook of its failure policy.
    pub(super) fn contains(&self, entry: &CompiledPolicy) -> bool {
        let Some(CalledWebhook {
            assignment,
            webhook,
        }) = &self.called
        else {
            return true;
        };
        match assignment.by_policy.get(&entry.key) {
            Some(webhooks) => webhooks.contains(webhook),
            None => entry.class.ignore == self.ignores_errors,
        }
    }
}
