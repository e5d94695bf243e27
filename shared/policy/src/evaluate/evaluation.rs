//! Evaluates a rule for a request, step by step.

use std::{borrow::Cow, sync::Arc};

use anteroom_model::FactError;
use serde_json::Value;

use super::{
    changes,
    facts::Facts,
    interrupt::Stop,
    limits::WAITING_BYTES_MAX,
    match_conditions,
    pass::{Pass, RuleContext, SharedState, judge},
    report::{RuleOutcome, RuleReport, RuleStep},
    run_state::RunState,
    surroundings,
};
use crate::ir::{
    AdmissionRequest, ChangedObject, FailureAction, Operation, Policy, PolicyException, Rule,
    matching::Surroundings,
};

/// The evaluation of one rule for one request.
///
/// Every step evaluates the rule from its beginning with the facts that are known by then. Loaded values stay loaded,
/// each fact is asked for once, and random values repeat. So a rule takes at most one step more than it reads facts.
pub struct Evaluation<'a> {
    policy: &'a Policy,
    rule: &'a Rule,
    /// The request as it came.
    request: &'a AdmissionRequest,
    /// Exceptions about this rule.
    exceptions: Vec<&'a PolicyException>,
    namespace: Option<&'a str>,
    applies: bool,
    /// The policy's conditions are known to be met.
    meets_conditions: bool,
    now: Pass<'a>,
    /// Begun when the new state violates the rule: whether the old one did too.
    earlier: Option<(String, Pass<'a>)>,
    action: FailureAction,
    state: SharedState,
}

/// The memory that an evaluation holds while it waits for facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingBytes {
    /// The values that the rule has made, which [can be dropped](Evaluation::drop_values).
    pub values: u64,
    /// The values in the questions of the rule.
    pub questions: u64,
}

/// The state of an evaluation before a step, which [`Evaluation::begin_anew`] goes back to.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepStart {
    /// The number of facts that were asked for.
    facts: usize,
    meets_conditions: bool,
}

impl<'a> Evaluation<'a> {
    /// Begins; nothing is evaluated before the first [`step`](Self::step). `rule` is one of
    /// `policy`'s.
    pub fn start(policy: &'a Policy, rule: &'a Rule, request: &'a AdmissionRequest) -> Self {
        let within = |namespace| request.object_namespace() == namespace;
        let applies = policy.settings.admission && policy.namespace().is_none_or(within);
        Self::start_if(applies, policy, rule, request)
    }

    /// Begins like [`Evaluation::start`]; a rule that does not apply does not match.
    pub(crate) fn start_if(
        applies: bool,
        policy: &'a Policy,
        rule: &'a Rule,
        request: &'a AdmissionRequest,
    ) -> Self {
        Self {
            policy,
            rule,
            request,
            exceptions: Vec::new(),
            namespace: policy.namespace(),
            applies,
            meets_conditions: false,
            now: Pass::new(rule, Cow::Borrowed(request)),
            earlier: None,
            action: rule.action,
            state: SharedState {
                facts: Facts::default(),
                run: RunState::seeded(
                    request.eval_seed_of(&rule.name),
                    request.cel_arrival_of(&policy.name),
                ),
                known: Surroundings::default(),
            },
        }
    }

    /// Adds the exceptions; those that are not about the rule change nothing. An exempted rule is skipped before its
    /// preconditions, and then reads nothing.
    #[must_use]
    pub fn with_exceptions(
        mut self,
        exceptions: impl IntoIterator<Item = &'a PolicyException>,
    ) -> Self {
        let about = |exception: &&PolicyException| exception.is_about(self.policy, self.rule);
        self.exceptions = exceptions.into_iter().filter(about).collect();
        // Of a fact that conditions read, the rule by itself may need less.
        let reads = |exception: &&PolicyException| exception.conditions.is_some();
        self.state.facts.only_whole |= self.exceptions.iter().any(reads);
        self
    }

    /// Notes that the policy's conditions are [met](super::Conditions::Met), so that they are not evaluated again.
    /// Otherwise the first step evaluates them.
    #[must_use]
    pub fn with_conditions_met(mut self) -> Self {
        self.meets_conditions = true;
        self
    }

    /// Goes on as far as the facts at hand allow.
    pub fn step(&mut self) -> RuleStep {
        self.state.run.begin();
        let step = match self.outcome() {
            Some(outcome) => RuleStep::Done(RuleReport {
                outcome,
                action: self.action,
                facts: self.state.facts.record(),
                is_of_large_request: self.now.request.is_large(),
                excepted_by: match &self.now.excepted {
                    Some(excepted) if self.now.is_exempted => excepted.names(),
                    _ => Vec::new(),
                },
                changed: self.take_changed(),
                depends_on_arrival: self.state.run.depends_on_arrival(),
                properties: self.state.run.properties.drain(..).collect(),
            }),
            None => RuleStep::Need(self.state.facts.questions()),
        };
        self.drop_large_values();
        step
    }

    /// Drops the values that the rule has made, if they take much memory: a rule may wait long for its facts, and many wait
    /// at once. The next step makes them anew, as after [`begin_anew`](Self::begin_anew).
    fn drop_large_values(&mut self) {
        // A rule on existing objects lets go of the answers that it has gone through.
        if self.value_bytes() > WAITING_BYTES_MAX && !self.rule.changes_existing() {
            self.drop_values();
        }
    }

    /// Drops the values that the rule has made, and keeps its questions. Not for a rule on existing objects, as
    /// [`begin_anew`](Self::begin_anew).
    pub fn drop_values(&mut self) {
        self.begin_anew(self.step_start());
    }

    /// Returns the memory that it holds between two steps. The answers to its questions do not count.
    pub fn waiting_bytes(&self) -> WaitingBytes {
        WaitingBytes {
            values: self.value_bytes(),
            questions: self.state.facts.question_bytes(),
        }
    }

    /// Returns the memory of the values that the rule has made and holds.
    pub(super) fn value_bytes(&self) -> u64 {
        let earlier = self.earlier.as_ref().map_or(0, |(_, pass)| pass.bytes());
        self.now.bytes().saturating_add(earlier)
    }

    /// Returns the state before the next step.
    pub fn step_start(&self) -> StepStart {
        StepStart {
            facts: self.state.facts.count(),
            meets_conditions: self.meets_conditions,
        }
    }

    /// Drops all that the steps since `start` came to, because their meter ran out. The next step evaluates the rule from
    /// its beginning, with the answers that were supplied before `start`.
    ///
    /// A step keeps much for later steps: whether the rule applies, exceptions, lists, values of variables. After a meter
    /// ran out any of that may be wrong, so all of it is made anew. Earlier steps came to the same, since an evaluation
    /// depends on the request and on the answers alone, and random values repeat. Of the questions, those since `start`
    /// go: the driver has put them to nobody.
    ///
    /// Not for a rule on existing objects: the answers that it has gone through are released.
    pub fn begin_anew(&mut self, start: StepStart) {
        self.meets_conditions = start.meets_conditions;
        self.now = Pass::new(self.rule, Cow::Borrowed(self.request));
        self.earlier = None;
        self.action = self.rule.action;
        self.state.facts.keep(start.facts);
        self.state.run.begin_anew();
        self.state.known = Surroundings::default();
    }

    /// Takes the existing objects that were changed since the last call. A driver that takes them early need not hold
    /// them until the end; they are not in the report.
    pub fn take_changed(&mut self) -> Vec<ChangedObject> {
        self.now.existing.take_changed()
    }

    /// Treats the object as an UPDATE of itself, if the rule changes existing objects (`MutatingPolicy`).
    pub(crate) fn of_new_policy(mut self) -> Self {
        if self.rule.targets_in_cel().is_none() {
            return self;
        }
        let request = &self.now.request;
        let object = request.matched_object();
        let update = AdmissionRequest::on_existing(object, request.resource(), Operation::Update);
        if let Some(update) = update {
            self.now.request = Cow::Owned(update);
        }
        self.now.existing.in_cel.is_update = true;
        self
    }

    /// Answers a request of the last step. An id that was not asked for is ignored, and so is a second
    /// answer.
    pub fn supply(&mut self, id: u32, answer: Result<Value, FactError>) {
        self.state.facts.supply(id, answer);
    }

    /// Goes on without a fact of the context. Its entry gets its [given](Self::with_given) value; without a given
    /// value the entry is a missing key, whatever its default. Only for drivers without a cluster, which look for
    /// facts in files: in a cluster an unknown fact is never absent.
    pub fn leave_out(&mut self, id: u32) {
        self.state.facts.leave_out(id);
    }

    /// Gives entries of the context values by their names, as if the entry's own expression had this result. A value
    /// counts if the entry's fact is [left out](Self::leave_out), or if the fact cannot be asked for because a
    /// variable in its name has no value. For drivers without a cluster.
    #[must_use]
    pub fn with_given(mut self, given: impl IntoIterator<Item = (String, Value)>) -> Self {
        let given = given.into_iter();
        let given = given.map(|(name, value)| (name, Arc::new(value)));
        self.state.facts.given = given.collect();
        self
    }

    /// Gives an entry no value if the variable that names its source is missing, as if the entry were [left
    /// out](Self::leave_out). For the same drivers.
    #[must_use]
    pub fn goes_without(mut self) -> Self {
        self.state.facts.goes_without = true;
        self
    }

    /// Says of a request that [is part](super::FactRequest::is_pushed_down) of a fact that it is not to be had without
    /// reading the fact. Of any other this says nothing.
    pub fn decline(&mut self, id: u32) {
        self.state.facts.decline(id);
    }

    /// Asks for every fact whole, for comparison. The rule's outcome stays the same.
    #[must_use]
    pub fn with_whole_facts(mut self) -> Self {
        self.state.facts.only_whole = true;
        self
    }

    /// `None` while a fact is waited for.
    fn outcome(&mut self) -> Option<RuleOutcome> {
        if !self.applies {
            return Some(RuleOutcome::NotMatched);
        }
        if !self.meets_conditions {
            if let Some(outcome) =
                match_conditions::outcome(self.policy, self.rule, &self.now.request)
            {
                return Some(outcome);
            }
            self.meets_conditions = true;
        }
        if self.earlier.is_none() {
            let context = RuleContext {
                rule: self.rule,
                exceptions: &self.exceptions,
                namespace: self.namespace,
            };
            let outcome = judge(context, &mut self.now, &mut self.state)?;
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
        let context = RuleContext {
            rule: self.rule,
            exceptions: &self.exceptions,
            namespace: self.namespace,
        };
        Some(match judge(context, pass, &mut self.state)? {
            RuleOutcome::Fail { .. } => RuleOutcome::Skipped {
                reason: "the object violated the rule before this change too".to_owned(),
            },
            // An old state that complied, or of which nothing is known, excuses nothing.
            _ => RuleOutcome::Fail {
                message: message.clone(),
            },
        })
    }

    /// Finds out whether a violation denies the request, where that matters. If it cannot be known, the violation
    /// counts as one that denies, and the failure policy decides about the request.
    fn settled(&mut self, outcome: RuleOutcome) -> Option<RuleOutcome> {
        let leads = matches!(outcome, RuleOutcome::Fail { .. } | RuleOutcome::Error(_));
        // Which of a policy's rules is applied alone depends on what they may lead to.
        let matters = leads || (self.policy.settings.applies_one && outcome.is_applied());
        if !matters || self.rule.has_one_action() {
            return Some(outcome);
        }
        let request = &self.now.request;
        match surroundings::action(
            self.rule,
            request,
            &mut self.state.facts,
            &mut self.state.known,
        ) {
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

    /// Returns the pass over the old object, for Kyverno's `allowExistingViolations`: an update is not denied for a
    /// violation that the old object had already. Only rules whose own action is `Enforce` make this pass, whatever
    /// an override says.
    ///
    /// Of a rule that reads facts, the violation is the same only if what the rule reads of the object is: an Ingress
    /// whose host another one has would otherwise be free to take any host.
    fn earlier_pass(&self) -> Option<Pass<'a>> {
        if !self.rule.allow_existing_violations || self.rule.action != FailureAction::Enforce {
            return None;
        }
        if let Some(paths) = &self.rule.paths_beside_facts
            && !changes::are_equal_at(paths, &self.now.request)
        {
            return None;
        }
        let request = self.now.request.of_old_object()?;
        let mut pass = Pass::new(self.rule, Cow::Owned(request));
        pass.is_earlier = true;
        Some(pass)
    }
}
