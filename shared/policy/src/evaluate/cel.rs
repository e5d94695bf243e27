//! A rule in CEL.

mod definitions;
pub(super) mod existing;
mod host;
pub(super) mod patches;
mod subject;

use std::{collections::BTreeMap, sync::Arc};

use anteroom_cel::{Budget, EvalError, Machine, Roots};
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
    FactSubject,
    cel::{
        Cel, CelDialect, CelReads, Judged, LocatedProgram, NAMESPACE_OBJECT, PARAMS, PARAMS_QUERY,
        Params,
    },
};
use host::CelHost;

/// Bytes of a message that an expression makes; a longer one is not used, as in Kubernetes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The property that says which validation decided.
const VALIDATION_INDEX: &str = "cel.validationIndex";

/// The values of an expression's roots beside the request.
#[derive(Clone, Default)]
pub(super) struct RootValues<'r> {
    /// The objects of parameters, each of which the rule is evaluated with; `None`: the rule takes no parameters.
    all_params: Option<Vec<Arc<Value>>>,
    /// The object of parameters that the rule is being evaluated with.
    params: Option<Arc<Value>>,
    namespace: Option<Arc<Value>>,
    /// The object as patches left it; `None`: the request's object.
    object: Option<&'r Value>,
    /// The object that each variable was first evaluated on; `None`: it was not yet.
    pinned: &'r [Option<Arc<Value>>],
    /// The object exists in the cluster, and is not the request's: it has no older state.
    is_of_existing: bool,
}

/// The result of a rule in CEL.
enum Verdict {
    /// A precondition is not met.
    NotApplicable,
    Complies,
    Violates {
        /// The place of the expression among those that must be true.
        index: usize,
        message: String,
    },
}

/// Evaluates the rule on the object. Returns `None` while a fact is missing.
pub(super) fn judge(cel: &Cel, scope: &mut Scope<'_>) -> Option<RuleOutcome> {
    match verdict(cel, scope) {
        Ok(Verdict::NotApplicable) => Some(skipped("preconditions not met")),
        Ok(Verdict::Complies) => Some(RuleOutcome::Pass),
        Ok(Verdict::Violates { message, .. }) => Some(RuleOutcome::Fail { message }),
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
    // If preconditions skip the rule, its facts are not asked for, unless a precondition reads them.
    if !applies_to_all && !before.params {
        let root_values = ask_roots(cel, before, scope)?;
        if !evaluate(
            &Conditions::of(cel),
            cel,
            scope,
            &root_values,
            &mut budget(),
        )? {
            return Ok(Verdict::NotApplicable);
        }
        applies_to_all = true;
    }
    // The rule is evaluated once for each object of parameters, even if it reads none of its fields.
    let reads = CelReads {
        params: true,
        ..cel.reads()
    };
    let root_values = ask_roots(cel, reads, scope)?;
    let Some(params) = &root_values.all_params else {
        let whole_rule = WholeRule {
            cel,
            applies_to_all,
        };
        let (verdict, properties) = evaluate(&whole_rule, cel, scope, &root_values, &mut budget())?;
        scope.run.properties = properties;
        return Ok(verdict);
    };
    let (mut budget, mut is_skipped) = (budget(), !params.is_empty());
    for params in params {
        let whole_rule = WholeRule {
            cel,
            applies_to_all,
        };
        let root_values = RootValues {
            params: Some(Arc::clone(params)),
            ..root_values.clone()
        };
        match evaluate(&whole_rule, cel, scope, &root_values, &mut budget)?.0 {
            Verdict::NotApplicable => {}
            Verdict::Complies => is_skipped = false,
            violation => return Ok(violation),
        }
    }
    // Without any object of parameters, the rule passes.
    Ok(match is_skipped {
        true => Verdict::NotApplicable,
        false => Verdict::Complies,
    })
}

/// Returns the budget for expressions that share one budget, at most the steps that the review's meter has left.
pub(super) fn budget() -> Budget {
    let budget = Budget::default();
    Budget {
        steps: budget.steps.min(meter::left()),
        ..budget
    }
}

/// Evaluates, and charges the steps to the review's meter.
pub(super) fn spend<'v, T>(
    machine: &mut Machine<'v>,
    evaluate: impl FnOnce(&mut Machine<'v>) -> T,
) -> T {
    let before = machine.budget().steps;
    let result = evaluate(machine);
    meter::charge(1 + before - machine.budget().steps);
    result
}

/// An expression that came to an error, with the path of its field.
pub(super) type Failed<'v> = (&'v str, EvalError);

/// Evaluates expressions of the rule with the facts that have arrived. If the result needs further facts, asks for
/// them.
pub(super) fn evaluate<W: Expressions>(
    work: &W,
    cel: &Cel,
    scope: &mut Scope<'_>,
    root_values: &RootValues<'_>,
    budget: &mut Budget,
) -> Result<W::Result, Stop> {
    let request = scope.request;
    let roots = Roots {
        object: root_values.object.or_else(|| request.object()),
        old_object: match root_values.is_of_existing {
            true => None,
            false => request.old_object(),
        },
        params: root_values.params.as_deref(),
        namespace: root_values.namespace.as_deref(),
        allowed_images: &scope.run.allowed_images,
        allowed_values: &scope.run.allowed_values,
        absent_is_empty: cel.dialect != CelDialect::Rule && !root_values.is_of_existing,
        ..request.cel_roots()
    };
    let pinned: Vec<_> = root_values.pinned.iter().map(Option::as_deref).collect();
    let host = CelHost::new(cel, scope.namespace, scope.facts);
    let (result, left) = {
        let machine = Machine::new(roots, &cel.variables, budget.clone());
        let machine = machine.with_host(&host).with_pinned(&pinned);
        let mut machine = match scope.run.arrival {
            Some(arrival) => machine.with_arrival(arrival),
            None => machine,
        };
        let result = spend(&mut machine, |machine| work.evaluate(machine));
        let result = result.map_err(|(place, error)| (place.to_owned(), error));
        scope.run.note_arrival(&machine);
        (result, machine.budget().clone())
    };
    *budget = left;
    let demands = host.into_demands();
    result.map_err(|(place, error)| match error {
        EvalError::Unknown => demands.ask(scope.facts),
        error => Stop::Error(demands.error(&place, error)),
    })
}

/// Expressions that are evaluated together.
pub(super) trait Expressions {
    /// The result of the expressions together.
    type Result;

    /// Evaluates them.
    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Self::Result, Failed<'v>>;
}

/// Conditions of a rule, all of which must be true.
struct Conditions<'c>(&'c [LocatedProgram], CelDialect);

impl<'c> Conditions<'c> {
    fn of(cel: &'c Cel) -> Self {
        Self(&cel.preconditions, cel.dialect)
    }
}

impl Expressions for Conditions<'_> {
    type Result = bool;

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<bool, Failed<'v>> {
        applies(self.0, self.1, machine)
    }
}

/// A rule with all its validations and annotations.
struct WholeRule<'c> {
    cel: &'c Cel,
    /// The preconditions are met for all parameters.
    applies_to_all: bool,
}

impl Expressions for WholeRule<'_> {
    type Result = (Verdict, Vec<(String, String)>);

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Self::Result, Failed<'v>> {
        let verdict = verdict_for_params(self.cel, self.applies_to_all, machine)?;
        let properties = annotations(self.cel, &verdict, machine)?;
        Ok((verdict, properties))
    }
}

/// Returns whether all preconditions are met. An unmet precondition wins over an error of a different precondition.
fn applies<'v>(
    conditions: &'v [LocatedProgram],
    dialect: CelDialect,
    machine: &mut Machine<'v>,
) -> Result<bool, Failed<'v>> {
    let (mut failed, mut lacks) = (None, None);
    for condition in conditions {
        match truth(condition, machine) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(unknown @ (_, EvalError::Unknown)) => lacks = Some(unknown),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let Some(failed) = lacks.or(failed) else {
        return Ok(true);
    };
    let skips = matches!(
        dialect,
        CelDialect::Policy {
            skips_failed_conditions: true,
        }
    );
    // A condition over its budget skips nothing: otherwise large objects would get past the policy.
    let is_of_condition = failed.1 != EvalError::Unknown && !failed.1.is_budget();
    match skips && is_of_condition {
        true => Ok(false),
        false => Err(failed),
    }
}

/// Returns the rule's result for one object of parameters, or without parameters. `applies_to_all`: the preconditions
/// are met for all parameters.
fn verdict_for_params<'v>(
    cel: &'v Cel,
    applies_to_all: bool,
    machine: &mut Machine<'v>,
) -> Result<Verdict, Failed<'v>> {
    if !applies_to_all && !applies(&cel.preconditions, cel.dialect, machine)? {
        return Ok(Verdict::NotApplicable);
    }
    for (index, judged) in cel.expressions.iter().enumerate() {
        let message = match truth(&judged.expression, machine) {
            Ok(true) => continue,
            Ok(false) => message(cel, index, judged, machine)?,
            // As in Kyverno, which hands such a rule to Kubernetes' own validator.
            Err((_, error)) if cel.dialect == CelDialect::Rule && is_of_expression(&error) => {
                let expression = judged.expression.program.source().trim();
                format!("expression '{expression}' resulted in error: {error}")
            }
            Err(error) => return Err(error),
        };
        return Ok(Verdict::Violates { index, message });
    }
    Ok(Verdict::Complies)
}

/// Returns whether the expression itself failed, rather than a limit or a fact that could not be read.
fn is_of_expression(error: &EvalError) -> bool {
    !error.is_budget() && !matches!(error, EvalError::Unknown | EvalError::Fact { .. })
}

fn truth<'v>(
    expression: &'v LocatedProgram,
    machine: &mut Machine<'v>,
) -> Result<bool, Failed<'v>> {
    let truth = machine.truth(&expression.program);
    truth.map_err(|source| (&*expression.path, source))
}

/// Returns the message: the value of its expression, or else the written one, or else one that names the expression.
fn message<'v>(
    cel: &Cel,
    index: usize,
    judged: &'v Judged,
    machine: &mut Machine<'v>,
) -> Result<String, Failed<'v>> {
    if let Some(program) = &judged.message_expression {
        match machine.text(program) {
            Err(error @ EvalError::Unknown) => return Err((&judged.expression.path, error)),
            Ok(Some(text)) if is_message(text.trim(), cel.dialect) => {
                return Ok(text.trim().to_owned());
            }
            _ => {}
        }
    }
    Ok(match (&*judged.message, cel.dialect) {
        ("", CelDialect::Rule) => {
            let expression = judged.expression.program.source().trim();
            format!("failed expression: {expression}")
        }
        ("", CelDialect::Policy { .. }) => {
            format!("CEL expression validation failed at index {index}")
        }
        (message, _) => message.to_owned(),
    })
}

/// Returns whether a text is a message. Kubernetes takes one line alone, Kyverno's kinds also several.
fn is_message(text: &str, dialect: CelDialect) -> bool {
    let is_of_lines = dialect == CelDialect::Rule && text.contains('\n');
    !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !is_of_lines
}

/// Returns the audit annotations. A null is none.
fn annotations_of<'v>(
    cel: &'v Cel,
    machine: &mut Machine<'v>,
) -> Result<Vec<(String, String)>, Failed<'v>> {
    let mut found = Vec::new();
    for annotation in &cel.annotations {
        let text = machine.text(&annotation.value);
        let text = text.map_err(|error| ("spec.auditAnnotations", error))?;
        found.extend(text.map(|text| (annotation.key.clone(), text)));
    }
    Ok(found)
}

/// Returns the audit annotations of a policy that applies, and which validation decided.
fn annotations<'v>(
    cel: &'v Cel,
    verdict: &Verdict,
    machine: &mut Machine<'v>,
) -> Result<Vec<(String, String)>, Failed<'v>> {
    if cel.dialect == CelDialect::Rule || matches!(verdict, Verdict::NotApplicable) {
        return Ok(Vec::new());
    }
    let mut found = annotations_of(cel, machine)?;
    if let Verdict::Violates { index, .. } = verdict {
        found.push((VALIDATION_INDEX.to_owned(), index.to_string()));
    }
    Ok(found)
}

/// Asks for the facts beside the request, all at once.
fn ask_roots(
    cel: &Cel,
    reads: CelReads,
    scope: &mut Scope<'_>,
) -> Result<RootValues<'static>, Stop> {
    let params = cel.params.as_ref().filter(|_| reads.params);
    if params.is_none() && !reads.namespace {
        return Ok(RootValues::default());
    }
    let namespace = scope.request.object_namespace();
    let params = params.map(|params| params_of(params, namespace, scope.facts));
    let is_inside = reads.namespace && !namespace.is_empty();
    let namespace = is_inside.then(|| namespace_of(namespace, scope.facts));
    Ok(RootValues {
        all_params: params.transpose()?,
        namespace: namespace.transpose()?,
        ..RootValues::default()
    })
}

/// Asks for the namespace of an object.
pub(super) fn namespace_of(namespace: &str, facts: &mut Facts) -> Result<Arc<Value>, Stop> {
    let subject = FactSubject::NamespaceLabels {
        namespace: namespace.to_owned(),
    };
    facts.need(
        NAMESPACE_OBJECT,
        Question::new(subject, "", BTreeMap::new()),
    )
}

/// Asks for the objects of parameters.
fn params_of(params: &Params, namespace: &str, facts: &mut Facts) -> Result<Vec<Arc<Value>>, Stop> {
    let namespace = match &*params.collection.namespace {
        "" => namespace,
        named => named,
    };
    let subject = FactSubject::Collection(params.collection.clone());
    let bound = BTreeMap::from([("namespace".to_owned(), namespace.into())]);
    let entry = subject.to_string();
    let found = facts.need(PARAMS, Question::new(subject, PARAMS_QUERY, bound))?;
    let found: Vec<_> = match &*found {
        Value::Array(objects) => objects.iter().cloned().map(Arc::new).collect(),
        Value::Null => Vec::new(),
        // A value given by hand may be the parameter object itself.
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
