//! One rule taken through one request, without IO.

mod asked;
mod cel;
mod check;
mod conditions;
mod excepted;
mod existing;
mod facts;
mod foreach;
mod message;
mod mutate;
mod scope;
mod surroundings;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use anteroom_cel::EvalError;
use anteroom_model::{ErrorCode, FactError};
use anteroom_patch::PatchError;
use serde_json::Value;
use thiserror::Error;

use crate::{
    AdmissionRequest, ChangedObject, FactTarget, FailureAction, Policy, PolicyException, Rule,
    VariableError, VariableErrorKind, matching,
    matching::Surroundings,
    policy::{Check, Validation, Work},
};
use conditions::{Stop, Verdict};
use excepted::Excepted;
pub use existing::EXISTING_PARTS_MAX;
use facts::Facts;
use scope::{Scope, States};
pub(crate) use surroundings::{LABELS, NAMESPACE_SELECTOR, ROLES};

/// Facts that one rule may read while one request is evaluated; more is an error.
pub const FACTS_PER_RULE_MAX: usize = 64;

/// Queries about uses of facts that one rule may make while one request is evaluated. Beyond that the
/// facts themselves are asked for.
pub const PARTS_PER_RULE_MAX: usize = 256;

/// Elements that one `foreach` goes through; more is an error.
pub const FOREACH_ELEMENTS_MAX: usize = 1_000;

/// Elements that all `foreach` of one rule go through together, those that stand in others for each element
/// of these; more is an error.
pub const FOREACH_ELEMENTS_IN_ALL_MAX: usize = 20_000;

/// Bytes, about, that the patches of one rule may go through: the object's, once for each patch. More
/// is an error.
pub const MUTATED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What the driver is asked for: one query.
#[derive(Clone, Debug, PartialEq)]
pub struct FactRequest {
    /// To answer it with [`Evaluation::supply`]: unique within the evaluation.
    pub id: u32,
    /// The context entry that reads it.
    pub variable: String,
    /// Where it comes from.
    pub target: FactTarget,
    /// JMESPath over the entry's data; empty: the data whole. The same text for every request,
    /// except where a policy puts a variable where only an identifier or a number can stand.
    pub expression: String,
    /// What each `$name` of the expression is bound to.
    pub parameters: BTreeMap<String, Value>,
    /// Whether a key that an object lacks is an error rather than null.
    pub missing_key_is_error: bool,
    /// The oldest news that the rule accepts (`maxStaleness`); `None`: what the replicas do.
    pub age_max_ms: Option<u64>,
    /// It asks about one use of the fact, so that the fact does not have to travel. Where that is not
    /// to be had without reading the fact, [`Evaluation::decline`] it: the fact is asked for then.
    pub is_part: bool,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleOutcome {
    /// The rule does not speak of this request.
    NotMatched,
    /// It matched, and then did not apply.
    Skipped {
        /// Why: its preconditions, or a violation that was there before.
        reason: String,
    },
    /// The request complies.
    Pass,
    /// The request violates the rule.
    Fail {
        /// The rule's message, with its variables resolved.
        message: String,
    },
    /// The rule changes the object.
    Mutated {
        /// What it is now.
        object: Value,
    },
    /// Whether it complies is not known.
    Error(RuleError),
}

/// Why a rule could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A fact could not be read: the error that its entry or its view holds.
    #[error("context entry `{variable}`: {}", message::fact(entry, source))]
    Fact {
        /// The context entry.
        variable: String,
        /// What it reads, for people: an entry's name, a path.
        entry: String,
        /// Why there is no answer.
        source: FactError,
    },
    /// A variable could not be resolved.
    #[error("{place}: {source}")]
    Variable {
        /// Where it stands, as in `preconditions.all[0].key`.
        place: String,
        /// Why.
        source: VariableError,
    },
    /// A CEL expression came to an error, or to what it must not.
    #[error("{place} resulted in error: {source}")]
    Cel {
        /// Where it stands, as in `validate.cel.expressions[0].expression`.
        place: String,
        /// Why.
        source: EvalError,
    },
    /// A patch does not apply.
    #[error("{place}: {source}")]
    Patch {
        /// Where it stands, as in `mutate.foreach[0].patchesJson6902`.
        place: String,
        /// Why.
        source: PatchError,
    },
    /// The rule patches a large object often.
    #[error("the patches of the rule go through more than {MUTATED_BYTES_MAX} bytes")]
    TooMuchPatched,
    /// It was not begun: those before it took all the time that there was.
    #[error("there was no time left to evaluate the rule")]
    OutOfTime,
    /// The rule asked for more than it may.
    #[error("the rule reads more than {FACTS_PER_RULE_MAX} facts for one request")]
    TooManyFacts,
    /// There are more objects that exist than a rule goes through.
    #[error(
        "{target}: the rule goes through {EXISTING_PARTS_MAX} parts of lists, which had {seen} objects in all; \
         nothing was done about those behind them"
    )]
    TooManyObjects {
        /// In those parts.
        seen: usize,
        /// What there are more of.
        target: String,
    },
    /// A `foreach` has more to go through than it may.
    #[error("a foreach of the rule has {found} elements; {FOREACH_ELEMENTS_MAX} are gone through")]
    TooManyElements {
        /// How many there are.
        found: usize,
    },
    /// All of them together have more.
    #[error(
        "the foreach of the rule go through more than {FOREACH_ELEMENTS_IN_ALL_MAX} elements in all"
    )]
    TooManyElementsInAll,
}

impl RuleOutcome {
    /// Whether the rule was applied: not left alone, and no error.
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Pass | Self::Fail { .. } | Self::Mutated { .. })
    }
}

impl RuleError {
    /// Its stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Fact { source, .. } => source.code(),
            Self::Variable { source, .. } if source.kind == VariableErrorKind::OverBudget => {
                ErrorCode::BUDGET_EXCEEDED
            }
            Self::Variable { .. } => ErrorCode::VARIABLE_UNRESOLVED,
            Self::Cel { source, .. } if source.is_budget() => ErrorCode::BUDGET_EXCEEDED,
            Self::Cel { .. } => ErrorCode::CEL_FAILED,
            Self::Patch { source, .. } => match source {
                PatchError::TooLarge | PatchError::TooManyOperations { .. } => {
                    ErrorCode::BUDGET_EXCEEDED
                }
                _ => ErrorCode::PATCH_FAILED,
            },
            Self::OutOfTime => ErrorCode::DEADLINE_EXCEEDED,
            Self::TooManyFacts
            | Self::TooMuchPatched
            | Self::TooManyObjects { .. }
            | Self::TooManyElements { .. }
            | Self::TooManyElementsInAll => ErrorCode::BUDGET_EXCEEDED,
        }
    }
}

/// A fact that the rule asked for, for the record of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactRead {
    /// The id of the [`FactRequest`].
    pub id: u32,
    /// The context entry.
    pub variable: String,
    /// What it reads, for people: an entry's name, a path.
    pub entry: String,
    /// Why there was no answer, if there was none.
    pub error: Option<FactError>,
}

/// What became of a rule, and what it was decided from.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleReport {
    /// What became of it.
    pub outcome: RuleOutcome,
    /// What a violation leads to, for this object.
    pub action: FailureAction,
    /// In the order in which they were asked for.
    pub facts: Vec<FactRead>,
    /// The exceptions by which it was skipped, if it was, as [`PolicyException::name`] has them.
    pub excepted_by: Vec<String>,
    /// The objects that exist already and are to be written, of a rule with `mutate.targets`, but for those that
    /// were [taken](Evaluation::take_changed) before: also where it came to an error with others.
    pub changed: Vec<ChangedObject>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask for these, [`Evaluation::supply`] each answer, and step again.
    Need(Vec<FactRequest>),
    /// There is nothing left to do.
    Done(RuleReport),
}

/// One rule on its way through one request.
///
/// Every step begins anew and goes on with what is known by then: what was loaded stays loaded, a fact is
/// asked for once, and chance gives the same again. So a rule takes at most one step more than it reads facts.
pub struct Evaluation<'a> {
    policy: &'a Policy,
    rule: &'a Rule,
    /// Those that are about the rule.
    exceptions: Vec<&'a PolicyException>,
    namespace: Option<&'a str>,
    applies: bool,
    /// Whether the policy's conditions are still to be asked.
    pub(crate) asks: bool,
    now: Pass<'a>,
    /// Begun when the new state violates the rule: whether the old one did too.
    earlier: Option<(String, Pass<'a>)>,
    action: FailureAction,
    facts: Facts,
    known: Surroundings,
}

/// One state of the object against the rule.
struct Pass<'a> {
    request: Cow<'a, AdmissionRequest>,
    states: States,
    lists: foreach::Lists,
    /// It is of the old state, as if it were made now, by nobody.
    is_earlier: bool,
    /// It matches, and its preconditions are met: each step would come to the same.
    applies: bool,
    /// The request has the roles of whoever made it, where the rule names them.
    has_roles: bool,
    /// The exceptions that hold; `None`: it was not looked yet.
    excepted: Option<Excepted<'a>>,
    /// It is they that decide.
    is_spared: bool,
    /// How far it has come with the objects that exist already and are changed.
    existing: existing::Progress,
}

impl<'a> Pass<'a> {
    fn new(rule: &Rule, request: Cow<'a, AdmissionRequest>) -> Self {
        Self {
            request,
            states: States::new(&rule.context),
            lists: foreach::Lists::default(),
            is_earlier: false,
            applies: false,
            has_roles: false,
            excepted: None,
            is_spared: false,
            existing: existing::Progress::default(),
        }
    }
}

impl<'a> Evaluation<'a> {
    /// Begins; nothing is evaluated before the first [`step`](Self::step). `rule` is one of
    /// `policy`'s.
    pub fn start(policy: &'a Policy, rule: &'a Rule, request: &'a AdmissionRequest) -> Self {
        let within = |namespace| matching::object_namespace(request) == namespace;
        let applies = policy.admission && policy.namespace().is_none_or(within);
        Self::start_if(applies, policy, rule, request)
    }

    /// As [`Evaluation::start`]; a rule that does not apply does not match.
    pub(crate) fn start_if(
        applies: bool,
        policy: &'a Policy,
        rule: &'a Rule,
        request: &'a AdmissionRequest,
    ) -> Self {
        Self {
            policy,
            rule,
            exceptions: Vec::new(),
            namespace: policy.namespace(),
            applies,
            asks: policy.asks_conditions,
            now: Pass::new(rule, Cow::Borrowed(request)),
            earlier: None,
            action: rule.action,
            facts: Facts::on(request.occasion_of(&rule.name)),
            known: Surroundings::default(),
        }
    }

    /// With the exceptions that there are; those that are not about the rule change nothing. An excepted rule
    /// is skipped before its preconditions: it reads nothing then.
    #[must_use]
    pub fn with_exceptions(
        mut self,
        exceptions: impl IntoIterator<Item = &'a PolicyException>,
    ) -> Self {
        let about = |exception: &&PolicyException| exception.is_about(self.policy, self.rule);
        self.exceptions = exceptions.into_iter().filter(about).collect();
        // Of a fact that conditions read, the rule by itself may need less.
        let reads = |exception: &&PolicyException| exception.conditions.is_some();
        self.facts.only_whole |= self.exceptions.iter().any(reads);
        self
    }

    /// Goes on as far as the facts at hand allow.
    pub fn step(&mut self) -> Step {
        self.facts.begin();
        match self.outcome() {
            Some(outcome) => Step::Done(RuleReport {
                outcome,
                action: self.action,
                facts: self.facts.record(),
                excepted_by: match &self.now.excepted {
                    Some(excepted) if self.now.is_spared => excepted.names(),
                    _ => Vec::new(),
                },
                changed: self.take_changed(),
            }),
            None => Step::Need(self.facts.questions()),
        }
    }

    /// The objects that exist already and were changed since this was asked last: what a driver takes before the
    /// end is not held until then, and not in the report.
    pub fn take_changed(&mut self) -> Vec<ChangedObject> {
        std::mem::take(&mut self.now.existing.changed)
    }

    /// Answers a request of the last step. An id that was not asked for is ignored, and so is a second
    /// answer.
    pub fn supply(&mut self, id: u32, answer: Result<Value, FactError>) {
        self.facts.supply(id, answer);
    }

    /// Goes on without a fact of the context: its entry has its [given](Self::with_given) value. Where there is
    /// none it is a missing key to whatever reads it, whatever default it has of its own. Only for drivers without a cluster, where a fact is looked
    /// for in files: of a cluster, what is not known is never absent.
    pub fn leave_out(&mut self, id: u32) {
        self.facts.leave_out(id);
    }

    /// With values of entries of the context that read facts, by their names: as if the entry's own expression had
    /// come to that. One counts where its fact is [left out](Self::leave_out), or cannot be asked for since a
    /// variable in what the entry names has no value. For drivers without a cluster.
    #[must_use]
    pub fn with_given(mut self, given: impl IntoIterator<Item = (String, Value)>) -> Self {
        let given = given.into_iter();
        let given = given.map(|(name, value)| (name, Arc::new(value)));
        self.facts.given = given.collect();
        self
    }

    /// An entry that names what it reads by a variable which is missing has no value then, as one that is
    /// [left out](Self::leave_out). For the same drivers.
    #[must_use]
    pub fn goes_without(mut self) -> Self {
        self.facts.goes_without = true;
        self
    }

    /// Says of a request that [is part](FactRequest::is_part) of a fact that it is not to be had without
    /// reading the fact. Of any other this says nothing.
    pub fn decline(&mut self, id: u32) {
        self.facts.decline(id);
    }

    /// The same, where every fact is asked for whole: what the rule comes to is the same. For
    /// comparison.
    #[must_use]
    pub fn with_whole_facts(mut self) -> Self {
        self.facts.only_whole = true;
        self
    }

    /// `None` while a fact is waited for.
    fn outcome(&mut self) -> Option<RuleOutcome> {
        if !self.applies {
            return Some(RuleOutcome::NotMatched);
        }
        if self.asks {
            if let Some(outcome) = asked::outcome(self.policy, &self.now.request) {
                return Some(outcome);
            }
            self.asks = false;
        }
        if self.earlier.is_none() {
            let rule = (self.rule, &*self.exceptions);
            let facts = (&mut self.facts, &mut self.known);
            let outcome = judge(rule, self.namespace, &mut self.now, facts)?;
            let message = match self.settled(outcome)? {
                RuleOutcome::Fail { message } => message,
                outcome => return Some(outcome),
            };
            match self.earlier_pass() {
                Some(pass) => self.earlier = Some((message, pass)),
                None => return Some(RuleOutcome::Fail { message }),
            }
        }
        let (message, pass) = self.earlier.as_mut()?;
        let rule = (self.rule, &*self.exceptions);
        let facts = (&mut self.facts, &mut self.known);
        Some(match judge(rule, self.namespace, pass, facts)? {
            RuleOutcome::Fail { .. } => RuleOutcome::Skipped {
                reason: "the object violated the rule before this change too".to_owned(),
            },
            // An old state that complied, or of which nothing is known, excuses nothing.
            _ => RuleOutcome::Fail {
                message: message.clone(),
            },
        })
    }

    /// Finds out what a violation leads to, where that matters. Where it cannot be known, it is as if it led
    /// to a denial, and the failure policy says what becomes of the request.
    fn settled(&mut self, outcome: RuleOutcome) -> Option<RuleOutcome> {
        let leads = matches!(outcome, RuleOutcome::Fail { .. } | RuleOutcome::Error(_));
        // Which of a policy's rules is applied alone depends on what they may lead to.
        let matters = leads || (self.policy.applies_one && outcome.is_applied());
        if !matters || self.rule.has_one_action() {
            return Some(outcome);
        }
        let request = &self.now.request;
        match surroundings::action(self.rule, request, &mut self.facts, &mut self.known) {
            Ok(action) => {
                self.action = action;
                Some(outcome)
            }
            Err(Stop::Pending) => None,
            Err(Stop::Error(error)) => {
                self.action = FailureAction::Enforce;
                Some(match outcome {
                    RuleOutcome::Error(error) => RuleOutcome::Error(error),
                    _ => RuleOutcome::Error(*error),
                })
            }
        }
    }

    /// Kyverno's `allowExistingViolations`: an update is not denied for what was wrong before. It is asked of
    /// rules that deny by themselves; what an override says for a namespace does not come into it.
    fn earlier_pass(&self) -> Option<Pass<'a>> {
        if !self.rule.allow_existing_violations || self.rule.action != FailureAction::Enforce {
            return None;
        }
        let request = self.now.request.of_old_object()?;
        let mut pass = Pass::new(self.rule, Cow::Owned(request));
        pass.is_earlier = true;
        Some(pass)
    }
}

/// Takes the rule through one state of the object; `None` while a fact is waited for.
fn judge<'a>(
    (rule, exceptions): (&Rule, &[&'a PolicyException]),
    namespace: Option<&str>,
    pass: &mut Pass<'a>,
    (facts, known): (&mut Facts, &mut Surroundings),
) -> Option<RuleOutcome> {
    if !pass.applies {
        match surroundings::speaks_of(rule, pass, facts, known) {
            Ok(true) => {}
            Ok(false) => return Some(RuleOutcome::NotMatched),
            Err(stop) => return stop.outcome(),
        }
    }
    let mut scope = Scope {
        request: &pass.request,
        namespace,
        entries: &rule.context,
        states: &mut pass.states,
        facts,
        visible: rule.context.len(),
    };
    // What is excepted now says nothing of the old state, but for a standard, of which only some controls may be.
    if pass.is_earlier && !excepted::is_standard(rule) {
        pass.excepted.get_or_insert_default();
    }
    if pass.excepted.is_none() {
        match excepted::holding(exceptions, rule, &mut scope, known) {
            Ok(found) => pass.excepted = Some(found),
            Err(stop) => return stop.outcome(),
        }
    }
    let excepted = pass.excepted.get_or_insert_default();
    if excepted.is_whole(rule) {
        pass.is_spared = true;
        return Some(excepted.outcome());
    }
    if !pass.applies {
        match conditions::evaluate(&rule.preconditions, &"preconditions", &mut scope) {
            Ok(Verdict { met: true, .. }) => pass.applies = true,
            Ok(Verdict { messages, .. }) => {
                let reason = message::skip(&messages);
                return Some(RuleOutcome::Skipped { reason });
            }
            Err(stop) => return stop.outcome(),
        }
    }
    match &rule.work {
        Work::Validate(Validation::Whole(Check::PodSecurity(security))) => {
            let outcome = check::judge_security(rule, security, excepted, &scope);
            pass.is_spared = outcome == excepted.outcome();
            Some(outcome)
        }
        Work::Validate(Validation::Whole(check)) => {
            check::judge(rule, check, None, &"validate", &mut scope)
        }
        Work::Validate(Validation::ForEach(each)) => {
            let lists = &mut pass.lists;
            foreach::Walk { rule, lists }.judge(each, &mut scope)
        }
        Work::Mutate(mutation) => mutate::run(mutation, &mut scope),
        Work::Existing(existing) => existing::run(existing, &mut pass.existing, &mut scope),
    }
}

#[cfg(test)]
mod tests;
