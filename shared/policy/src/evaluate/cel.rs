//! A rule in CEL.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_cel::{Budget, Machine, Program, Roots};
use anteroom_functions::meter;
use anteroom_model::FactError;
use serde_json::Value;

use super::{
    error::RuleError,
    facts::{Facts, Question},
    interrupt::Stop,
    report::RuleOutcome,
    scope::Scope,
};
use crate::ir::{
    FactTarget,
    cel::{Cel, Judged, NAMESPACE_OBJECT, PARAMS, PARAMS_QUERY, Params, Placed, Reads},
};

/// Bytes of a message that an expression makes; a longer one is not used, as in Kubernetes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The facts beside the request.
#[derive(Default)]
struct Beside {
    /// `None`: the rule takes none.
    params: Option<Vec<Arc<Value>>>,
    namespace: Option<Arc<Value>>,
}

/// The result of a rule in CEL.
enum Verdict {
    /// A precondition is not met.
    Apart,
    Complies,
    Violates(String),
}

/// Holds the object against the rule. `None` while a fact is waited for.
pub(super) fn judge(cel: &Cel, scope: &mut Scope<'_>) -> Option<RuleOutcome> {
    match verdict(cel, scope) {
        Ok(Verdict::Apart) => Some(skipped("preconditions not met")),
        Ok(Verdict::Complies) => Some(RuleOutcome::Pass),
        Ok(Verdict::Violates(message)) => Some(RuleOutcome::Fail { message }),
        Err(stop) => stop.outcome(),
    }
}

fn skipped(reason: &str) -> RuleOutcome {
    RuleOutcome::Skipped {
        reason: reason.to_owned(),
    }
}

fn verdict(cel: &Cel, scope: &mut Scope<'_>) -> Result<Verdict, Stop> {
    let before = cel.read_before();
    let mut applies_to_all = cel.preconditions.is_empty();
    // A rule that its preconditions stop asks nobody, unless they do.
    if !applies_to_all && !before.params {
        let beside = beside(cel, before, scope)?;
        let mut machine = machine(cel, scope, &beside, None, budget());
        if !spend(&mut machine, |machine| applies(cel, machine))? {
            return Ok(Verdict::Apart);
        }
        applies_to_all = true;
    }
    // The rule goes through its parameters, whether it reads of them or not.
    let reads = Reads {
        params: true,
        ..cel.reads()
    };
    let beside = beside(cel, reads, scope)?;
    let Some(params) = &beside.params else {
        let mut machine = machine(cel, scope, &beside, None, budget());
        return spend(&mut machine, |machine| one(cel, applies_to_all, machine));
    };
    let (mut budget, mut is_apart) = (budget(), !params.is_empty());
    for params in params {
        let mut machine = machine(cel, scope, &beside, Some(params), budget);
        match spend(&mut machine, |machine| one(cel, applies_to_all, machine))? {
            Verdict::Apart => {}
            Verdict::Complies => is_apart = false,
            violation => return Ok(violation),
        }
        budget = machine.budget().clone();
    }
    // Where there are none, nothing is said against it.
    Ok(match is_apart {
        true => Verdict::Apart,
        false => Verdict::Complies,
    })
}

/// The budget of the expressions that share one, out of what the meter of the review has left.
pub(super) fn budget() -> Budget {
    let budget = Budget::default();
    Budget {
        steps: budget.steps.min(meter::left()),
        ..budget
    }
}

/// Evaluates, and charges what that took to the meter of the review.
pub(super) fn spend<'v, T>(
    machine: &mut Machine<'v>,
    evaluate: impl FnOnce(&mut Machine<'v>) -> T,
) -> T {
    let before = machine.budget().steps;
    let result = evaluate(machine);
    meter::charge(1 + before - machine.budget().steps);
    result
}

fn machine<'v>(
    cel: &'v Cel,
    scope: &Scope<'v>,
    beside: &'v Beside,
    params: Option<&'v Arc<Value>>,
    budget: Budget,
) -> Machine<'v> {
    let request = scope.request;
    let roots = Roots {
        object: request.object(),
        old_object: request.old_object(),
        request: Some(request.value()),
        params: params.map(|params| &**params),
        namespace: beside.namespace.as_deref(),
        ..Roots::default()
    };
    Machine::new(roots, &cel.variables, budget)
}

/// Returns whether all preconditions are met. One that is not decides, whatever error another has.
fn applies<'v>(cel: &'v Cel, machine: &mut Machine<'v>) -> Result<bool, Stop> {
    let mut failed = None;
    for condition in &cel.preconditions {
        match truth(condition, machine) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(true), |error| Err(Stop::Error(error)))
}

/// For one object of parameters, or none. `applies_to_all`: the preconditions are met whichever it is.
fn one<'v>(cel: &'v Cel, applies_to_all: bool, machine: &mut Machine<'v>) -> Result<Verdict, Stop> {
    if !applies_to_all && !applies(cel, machine)? {
        return Ok(Verdict::Apart);
    }
    for judged in &cel.expressions {
        match truth(&judged.expression, machine) {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Violates(message(judged, machine))),
            Err(error) => return Err(Stop::Error(error)),
        }
    }
    Ok(Verdict::Complies)
}

fn truth<'v>(expression: &'v Placed, machine: &mut Machine<'v>) -> Result<bool, Box<RuleError>> {
    machine.truth(&expression.program).map_err(|source| {
        Box::new(RuleError::Cel {
            place: expression.place.clone(),
            source,
        })
    })
}

/// Returns the message: the value of its expression, or else the written one, or else the failed expression.
fn message<'v>(judged: &'v Judged, machine: &mut Machine<'v>) -> String {
    let made = |program: &'v Program| {
        let text = machine.text(program).ok().flatten()?;
        let text = text.trim();
        let is_fit = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
        is_fit.then(|| text.to_owned())
    };
    let made = judged.message_expression.as_ref().and_then(made);
    made.unwrap_or_else(|| match &*judged.message {
        "" => {
            let expression = judged.expression.program.source().trim();
            format!("failed expression: {expression}")
        }
        message => message.to_owned(),
    })
}

/// Asks for the facts beside the request, all at once.
fn beside(cel: &Cel, reads: Reads, scope: &mut Scope<'_>) -> Result<Beside, Stop> {
    let namespace = scope.request.object_namespace().to_owned();
    let params = cel.params.as_ref().filter(|_| reads.params);
    let params = params.map(|params| params_of(params, &namespace, scope.facts));
    let is_inside = reads.namespace && !namespace.is_empty();
    let namespace = is_inside.then(|| namespace_of(&namespace, scope.facts));
    Ok(Beside {
        params: params.transpose()?,
        namespace: namespace.transpose()?,
    })
}

fn namespace_of(namespace: &str, facts: &mut Facts) -> Result<Arc<Value>, Stop> {
    let target = FactTarget::NamespaceLabels {
        namespace: namespace.to_owned(),
    };
    facts.need(NAMESPACE_OBJECT, Question::new(target, "", BTreeMap::new()))
}

/// The objects of parameters, each of which the rule is about.
fn params_of(params: &Params, namespace: &str, facts: &mut Facts) -> Result<Vec<Arc<Value>>, Stop> {
    let namespace = match &*params.collection.namespace {
        "" => namespace,
        named => named,
    };
    let target = FactTarget::Collection(params.collection.clone());
    let bound = BTreeMap::from([("namespace".to_owned(), namespace.into())]);
    let entry = target.to_string();
    let found = facts.need(PARAMS, Question::new(target, PARAMS_QUERY, bound))?;
    let found: Vec<_> = match &*found {
        Value::Array(objects) => objects.iter().cloned().map(Arc::new).collect(),
        Value::Null => Vec::new(),
        // Whoever gives values by hand may give the one that is meant.
        _ => vec![found],
    };
    if !found.is_empty() || params.may_be_absent {
        return Ok(found);
    }
    Err(Stop::Error(Box::new(RuleError::Fact {
        variable: PARAMS.to_owned(),
        entry,
        source: FactError::ObjectNotFound {
            resource: params.collection.resource.clone(),
            namespace: namespace.to_owned(),
            name: match &params.name {
                Some(name) => name.clone(),
                None => params.collection.label_selector.clone(),
            },
        },
    })))
}
