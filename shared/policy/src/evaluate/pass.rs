//! Evaluates a rule on a state of the object.

use std::borrow::Cow;

use super::{
    cel, check,
    conditions::{self, Verdict},
    exceptions::{self, AppliedExceptions},
    facts::Facts,
    foreach,
    interrupt::Stop,
    message, mutate, mutate_existing,
    report::RuleOutcome,
    run_state::RunState,
    scope::{Scope, States},
    surroundings,
};
use crate::ir::{
    AdmissionRequest, PolicyException, Rule,
    matching::Surroundings,
    rule::{Check, Validation, Work},
};

/// The evaluation of a rule on one state of the object.
pub(super) struct Pass<'a> {
    pub(super) request: Cow<'a, AdmissionRequest>,
    pub(super) states: States,
    pub(super) lists: foreach::Lists,
    /// The pass judges the old object, as if it were created now, without a user.
    pub(super) is_earlier: bool,
    /// The rule matches, and its preconditions are met. Later steps need not evaluate either again.
    pub(super) applies: bool,
    /// The request has its user's roles, if the rule names roles.
    pub(super) has_roles: bool,
    /// The exceptions that hold; `None`: it was not looked yet.
    pub(super) excepted: Option<AppliedExceptions<'a>>,
    /// Exceptions decide the rule's outcome.
    pub(super) is_exempted: bool,
    /// The progress through objects that exist already.
    pub(super) existing: mutate_existing::Progress,
}

impl<'a> Pass<'a> {
    pub(super) fn new(rule: &Rule, request: Cow<'a, AdmissionRequest>) -> Self {
        Self {
            request,
            states: States::new(&rule.context),
            lists: foreach::Lists::default(),
            is_earlier: false,
            applies: false,
            has_roles: false,
            excepted: None,
            is_exempted: false,
            existing: mutate_existing::Progress::default(),
        }
    }

    /// Returns the memory of the values that it has made.
    pub(super) fn bytes(&self) -> u64 {
        self.states.bytes().saturating_add(self.lists.bytes())
    }
}

/// The rule, with the parts of its policy on which the rule depends.
#[derive(Clone, Copy)]
pub(super) struct RuleContext<'r, 'a> {
    pub(super) rule: &'r Rule,
    /// Exceptions about the rule.
    pub(super) exceptions: &'r [&'a PolicyException],
    /// The namespace of a `Policy`.
    pub(super) namespace: Option<&'r str>,
}

/// The state that all passes of one evaluation share.
pub(super) struct SharedState {
    pub(super) facts: Facts,
    pub(super) run: RunState,
    pub(super) known: Surroundings,
}

/// Evaluates the rule on one state of the object; `None`: a fact is missing.
pub(super) fn judge<'a>(
    context: RuleContext<'_, 'a>,
    pass: &mut Pass<'a>,
    state: &mut SharedState,
) -> Option<RuleOutcome> {
    let RuleContext {
        rule,
        exceptions,
        namespace,
    } = context;
    // What a new version of a policy runs on is a target of it, and no trigger.
    if !pass.applies && !pass.existing.in_cel.is_update {
        match speaks_of(rule, pass, &mut state.facts, &mut state.known) {
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
        facts: &mut state.facts,
        run: &mut state.run,
        pushdown: &rule.pushdown,
        visible: rule.context.len(),
    };
    // Exceptions do not hold for the old state, but for those of single controls of a standard.
    if pass.is_earlier && !exceptions::is_standard(rule) {
        pass.excepted.get_or_insert_default();
    }
    // Each of the objects that exist is excepted by itself.
    if rule.targets_in_cel().is_some() {
        pass.excepted.get_or_insert_default();
    }
    if pass.excepted.is_none() {
        match exceptions::holding(exceptions, rule, &mut scope, &mut state.known) {
            Ok(found) => pass.excepted = Some(found),
            Err(stop) => return stop.outcome(),
        }
    }
    let excepted = pass.excepted.get_or_insert_default();
    (scope.run.allowed_images, scope.run.allowed_values) = excepted.allowed();
    if excepted.is_whole(rule) {
        pass.is_exempted = true;
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
            pass.is_exempted = outcome == excepted.outcome();
            Some(outcome)
        }
        Work::Validate(Validation::Whole(check)) => {
            check::judge(rule, check, None, &"validate", &mut scope)
        }
        Work::Validate(Validation::ForEach(each)) => {
            let lists = &mut pass.lists;
            foreach::ForEachWalk { rule, lists }.judge(each, &mut scope)
        }
        Work::Mutate(mutation) => mutate::run(mutation, &mut scope),
        Work::Patch(mutation) => cel::patches::run(mutation, &mut scope),
        Work::MutateExisting(existing) => {
            mutate_existing::run(rule, exceptions, existing, &mut pass.existing, &mut scope)
        }
    }
}

/// Returns whether the rule matches the request. A rule that names the user's roles has them in the request
/// from then on.
fn speaks_of(
    rule: &Rule,
    pass: &mut Pass<'_>,
    facts: &mut Facts,
    known: &mut Surroundings,
) -> Result<bool, Stop> {
    let speaks = match pass.is_earlier {
        // Whoever made the old state is not who asks now, and is known to nobody.
        true => {
            let (by_nobody, mut known) = (pass.request.by_nobody(), known.of_nobody());
            surroundings::matches(&rule.matches, &by_nobody, facts, &mut known)?
        }
        false => surroundings::matches(&rule.matches, &pass.request, facts, known)?,
    };
    if !speaks {
        return Ok(false);
    }
    if rule.names_roles && !pass.has_roles {
        if known.roles(&pass.request).is_none() {
            surroundings::roles(&pass.request, facts, known)?;
        }
        if let Some(roles) = known.roles(&pass.request) {
            pass.request = Cow::Owned(pass.request.with_roles(&roles));
        }
        pass.has_roles = true;
    }
    Ok(true)
}
