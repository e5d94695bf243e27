//! The names of a rule, made once when its policy is compiled, and the possible results of a rule.

use std::{
    any::Any,
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use anteroom_model::ObjectKey;
use anteroom_policy::{FailureAction, Phase, Policy, Rule, RuleOutcome};

/// The names of a rule, as every record about the rule has them.
#[derive(Debug)]
pub struct RuleName {
    /// `name`, or `namespace/name` of a namespaced policy; its kind stands before the name if it is of
    /// policies.kyverno.io.
    pub policy: String,
    /// The reader of the rule's facts, with the rule's own name.
    pub reader: RuleRef,
    /// Existing objects are not scanned by the policy.
    pub unscanned: bool,
    /// The policy is meant for scans of existing objects.
    pub for_background: bool,
    /// The action of the rule itself: namespaces may have others.
    pub action: FailureAction,
    /// The phase of admission in which the rule is asked.
    pub phase: Phase,
    /// The work that its evaluations took.
    pub(crate) work: RuleWork,
    recorder: RecorderSlot,
}

/// The work of a rule's evaluations, by which the next one is placed.
#[derive(Debug, Default)]
pub(crate) struct RuleWork(AtomicU64);

impl RuleWork {
    /// Returns the steps that an evaluation took lately.
    pub(crate) fn last_steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes the steps of an evaluation. Steps of earlier ones are forgotten bit by bit.
    pub(crate) fn took(&self, steps: u64) {
        let before = self.last_steps();
        let now = steps.max(before - before / 8);
        if now != before {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}

impl RuleName {
    /// The names of a rule of `policy`.
    pub fn of(policy: &Policy, rule: &Rule) -> Self {
        Self {
            unscanned: policy.not_scanned().is_some(),
            for_background: policy.is_for_background(),
            action: rule.action(),
            phase: rule.phase(),
            ..Self::new(policy.key(), rule.name())
        }
    }

    /// The names of a rule that enforces, and of which nothing else is known.
    pub fn new(policy: ObjectKey, rule: &str) -> Self {
        Self {
            policy: match &*policy.namespace {
                "" => policy.name.clone().into_string(),
                namespace => format!("{namespace}/{}", policy.name),
            },
            reader: RuleRef {
                policy,
                rule: rule.to_owned(),
            },
            unscanned: false,
            for_background: false,
            action: FailureAction::Enforce,
            phase: Phase::Validation,
            work: RuleWork::default(),
            recorder: RecorderSlot::default(),
        }
    }

    /// The rule's own name.
    pub fn rule(&self) -> &str {
        &self.reader.rule
    }

    /// The scope of the rule's policy.
    pub(crate) fn scope(&self) -> PolicyScope {
        PolicyScope::of(self.reader.namespace())
    }

    /// Returns a recorder's own data about the rule, which it makes at the first call. `None` where another recorder
    /// has made its own before.
    pub fn recorded<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.recorder.get_or_init(make)
    }
}

/// The scope of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyScope {
    /// One namespace.
    Namespace,
    /// The cluster. Its rules go before those of namespaces.
    Cluster,
}

impl PolicyScope {
    /// The scope of a policy that has this namespace, or none.
    pub(crate) fn of(namespace: Option<&str>) -> Self {
        match namespace {
            Some(_) => Self::Namespace,
            None => Self::Cluster,
        }
    }
}

/// The policy and rule in whose name facts are read.
#[derive(Clone, Debug)]
pub struct RuleRef {
    /// The key of the policy, unique among all kinds.
    pub policy: ObjectKey,
    /// The rule's own name.
    pub rule: String,
}

impl RuleRef {
    /// The namespace that the policy is confined to, if it is a namespaced one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(&*self.policy.namespace).filter(|namespace| !namespace.is_empty())
    }
}

/// A recorder's own data about one rule, made at the first use.
#[derive(Default)]
struct RecorderSlot(OnceLock<Box<dyn Any + Send + Sync>>);

impl RecorderSlot {
    /// Returns the stored data, which the first call makes. `None`: data of another type are stored, since a rule has
    /// one recorder.
    fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        let stored = self.0.get_or_init(|| Box::new(make()));
        stored.downcast_ref()
    }
}

impl fmt::Debug for RecorderSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecorderSlot")
    }
}

impl RuleResult {
    /// The result of an outcome.
    pub fn of(outcome: &RuleOutcome) -> Self {
        match outcome {
            RuleOutcome::NotMatched => Self::NotMatched,
            RuleOutcome::Skipped { .. } => Self::Skip,
            RuleOutcome::Pass | RuleOutcome::Mutated { .. } => Self::Pass,
            RuleOutcome::Fail { .. } => Self::Fail,
            RuleOutcome::Error(_) => Self::Error,
        }
    }
}

/// The result of a rule, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// The rule does not match the request.
    NotMatched,
    /// The rule matched, and did not apply.
    Skip,
    /// The request complies, or was changed.
    Pass,
    /// The request violates the rule.
    Fail,
    /// The rule could not be evaluated.
    Error,
}

impl RuleResult {
    /// All results, in order.
    pub const ALL: [Self; 5] = [
        Self::NotMatched,
        Self::Skip,
        Self::Pass,
        Self::Fail,
        Self::Error,
    ];

    /// Returns the label of the result.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotMatched => "not_matched",
            Self::Skip => "skip",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_keeps_the_first_value_of_one_type() {
        let slot = RecorderSlot::default();
        assert_eq!(slot.get_or_init(|| 1_u8), Some(&1));
        assert_eq!(slot.get_or_init(|| 2_u8), Some(&1));
        assert_eq!(slot.get_or_init(|| "other"), None);
    }
}
