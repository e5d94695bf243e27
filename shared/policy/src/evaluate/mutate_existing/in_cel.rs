//! The objects that exist and that a `MutatingPolicy` changes: all that its constraints name, those that an expression
//! gives for the trigger, or, for a new version of the policy, the request's own object.
//!
//! An expression only chooses the objects. The watcher reads the objects anew, since the expression may know only
//! parts of them, or an old state.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_cel::EvalError;
use anteroom_functions::meter;
use anteroom_model::ExistingObjects;
use serde_json::Value;

use super::{ListProgress, TargetObjects, TargetWalk, resting_on};
use crate::{
    evaluate::{
        cel::existing,
        error::RuleError,
        exceptions::{self, Existing},
        facts::{Facts, Question},
        interrupt::Stop,
        report::RuleOutcome,
        scope::Scope,
    },
    ir::{
        AdmissionRequest, ChangedObject, FactSubject, Operation, PolicyException, Rule,
        cel::{LocatedProgram, NAMESPACE_OBJECT},
        exception::CelException,
        matching::{LABELS, Matched, NAMESPACE_SELECTOR, Surroundings},
        mutate_existing::{CelTargets, TargetType},
    },
};

/// The most namespaces that a step asks for; later steps ask for the rest.
const NAMESPACES_PER_STEP_MAX: usize = 32;

/// The field that errors about objects name.
const PLACE: &str = "spec.targetMatchConstraints";

/// The progress of a policy through the objects.
#[derive(Default)]
pub(in crate::evaluate) struct Progress {
    /// The policy is new, and runs on the request's object, which exists.
    pub(in crate::evaluate) is_update: bool,
    /// The objects to read, in order; `None`: they are not known yet.
    wanted: Option<Vec<ExistingObjects>>,
    /// The namespaces that objects are in: whole where expressions read them, or else their labels.
    namespaces: BTreeMap<String, Arc<Value>>,
}

/// Patches the objects. `None` while a fact is waited for.
pub(super) fn run(
    rule: &Rule,
    exceptions: &[&PolicyException],
    targets: &CelTargets,
    progress: &mut super::Progress,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    let super::Progress { walk, in_cel } = progress;
    let mut step = PolicyStep {
        rule,
        exceptions,
        targets,
        operation: scope.request.operation(),
        namespaces: &mut in_cel.namespaces,
        asked: 0,
    };
    if in_cel.wanted.is_none() {
        let wanted = match in_cel.is_update {
            true => step.itself(scope).map(Some),
            false => step.wanted(walk, scope),
        };
        match wanted {
            Ok(Some(wanted)) => in_cel.wanted = Some(wanted),
            Ok(None) => {
                return Some(RuleOutcome::Skipped {
                    reason: "preconditions not met".to_owned(),
                });
            }
            Err(stop) => return stop.outcome(),
        }
    }
    let wanted = in_cel.wanted.as_deref().unwrap_or_default();
    while let Some(wanted) = wanted.get(walk.at) {
        let mut target = CelTarget {
            wanted,
            step: &mut step,
        };
        if !walk.go_through(&mut target, scope) {
            return None;
        }
    }
    Some(walk.outcome())
}

/// A step of a policy that changes existing objects.
struct PolicyStep<'s> {
    rule: &'s Rule,
    exceptions: &'s [&'s PolicyException],
    targets: &'s CelTargets,
    /// The trigger's operation: constraints on objects name operations too, as in Kyverno.
    operation: Operation,
    namespaces: &'s mut BTreeMap<String, Arc<Value>>,
    /// Namespaces that this step has asked for.
    asked: usize,
}

impl PolicyStep<'_> {
    /// Returns the objects that a trigger makes the rule change; `None`: the trigger does not meet the conditions.
    fn wanted(
        &mut self,
        walk: &mut TargetWalk,
        scope: &mut Scope<'_>,
    ) -> Result<Option<Vec<ExistingObjects>>, Stop> {
        let targets = self.targets;
        if !existing::is_trigger(targets, scope)? {
            return Ok(None);
        }
        if let Some(expression) = &targets.expression {
            let given = existing::given(targets, expression, scope)?;
            return Ok(Some(named(
                targets,
                expression,
                &given,
                scope.namespace,
                walk,
            )));
        }
        let types = targets.types.iter().enumerate();
        let wanted = types.map(|(at, one)| ExistingObjects {
            namespace: scope.namespace.unwrap_or_default().to_owned(),
            label_selector: targets.label_selector.clone(),
            ..one.objects(at)
        });
        Ok(Some(wanted.collect()))
    }

    /// Returns the request's object, if the policy changes objects of its type and name.
    fn itself(&mut self, scope: &mut Scope<'_>) -> Result<Vec<ExistingObjects>, Stop> {
        let request = scope.request;
        let served = request.served_kind();
        let is_of = |one: &TargetType| {
            (&*one.group, &*one.version, &*one.resource)
                == (served.group, served.version, served.resource)
                && (one.name.is_empty() || one.name == request.name())
        };
        let types = &self.targets.types;
        let Some(at) = types.iter().position(is_of) else {
            return Ok(Vec::new());
        };
        let before = request.matched_object();
        let after = self.patched(served.resource, before, &mut 0, scope)?;
        if after.is_none_or(|after| after == *before) {
            return Ok(Vec::new());
        }
        // The object may have changed since the list.
        Ok(vec![ExistingObjects {
            namespace: request.namespace().to_owned(),
            name: request.name().to_owned(),
            kind: request.kind().to_owned(),
            ..types[at].objects(at)
        }])
    }

    /// Patches an object; `None`: the object is no target.
    fn patched(
        &mut self,
        resource: &str,
        before: &Value,
        gone_through: &mut usize,
        scope: &mut Scope<'_>,
    ) -> Result<Option<Value>, Stop> {
        meter::charge(1);
        let targets = self.targets;
        let request = AdmissionRequest::on_existing(before, resource, self.operation);
        let request = request.ok_or_else(|| refused(PLACE, "it is no object".to_owned()))?;
        if scope
            .namespace
            .is_some_and(|home| home != request.namespace())
        {
            return Ok(None);
        }
        let mut known = Surroundings::default();
        let mut matched = targets.constraints.matches(&request, &known);
        if matched == Matched::Unknown {
            known.namespace_labels = Some(self.labels(&request, scope.facts)?);
            matched = targets.constraints.matches(&request, &known);
        }
        if matched != Matched::Yes {
            return Ok(None);
        }
        let is_inside = self.reads_namespace() && !request.object_namespace().is_empty();
        let namespace = is_inside.then(|| self.namespace(&request, scope.facts));
        let namespace = namespace.transpose()?;
        let existing = Existing {
            object: before,
            namespace: namespace.as_deref(),
        };
        let excepted = exceptions::holding_for(self.exceptions, self.rule, existing, scope)?;
        if excepted.is_whole(self.rule) {
            return Ok(None);
        }
        (scope.run.allowed_images, scope.run.allowed_values) = excepted.allowed();
        existing::patched(targets, before, namespace, gone_through, scope)
    }

    /// Returns whether an expression reads the namespace of an object, of an exception too.
    fn reads_namespace(&self) -> bool {
        let mut exceptions = self.exceptions.iter();
        self.targets.mutation.shared_cel.reads().namespace
            || exceptions.any(|one| {
                one.in_cel
                    .as_ref()
                    .is_some_and(CelException::reads_namespace)
            })
    }

    fn labels(
        &mut self,
        request: &AdmissionRequest,
        facts: &mut Facts,
    ) -> Result<Arc<Value>, Stop> {
        let namespace = self.namespace(request, facts)?;
        Ok(match self.reads_namespace() {
            true => Arc::new(namespace["metadata"]["labels"].clone()),
            false => namespace,
        })
    }

    /// Returns the namespace of an object, or only its labels if nothing else is read.
    fn namespace(
        &mut self,
        request: &AdmissionRequest,
        facts: &mut Facts,
    ) -> Result<Arc<Value>, Stop> {
        let name = request.object_namespace();
        if let Some(known) = self.namespaces.get(name) {
            return Ok(Arc::clone(known));
        }
        if self.asked == NAMESPACES_PER_STEP_MAX {
            return Err(Stop::Pending);
        }
        let subject = FactSubject::NamespaceLabels {
            namespace: name.to_owned(),
        };
        let (variable, expression) = match self.reads_namespace() {
            true => (NAMESPACE_OBJECT, ""),
            false => (NAMESPACE_SELECTOR, LABELS),
        };
        let question = Question::new(subject.clone(), expression, BTreeMap::new());
        let found = facts.need(variable, question);
        self.asked += usize::from(matches!(found, Err(Stop::Pending)));
        let found = found?;
        // Kept here, so that objects of many namespaces share the room for facts.
        facts.release(&subject);
        self.namespaces.insert(name.to_owned(), Arc::clone(&found));
        Ok(found)
    }
}

/// Objects that are read together.
struct CelTarget<'t, 's> {
    wanted: &'t ExistingObjects,
    step: &'t mut PolicyStep<'s>,
}

impl TargetObjects for CelTarget<'_, '_> {
    fn first(&self, _: &mut Scope<'_>) -> Result<ListProgress, Stop> {
        Ok(ListProgress {
            wanted: self.wanted.clone(),
            uid: String::new(),
        })
    }

    fn place(&self) -> String {
        PLACE.to_owned()
    }

    fn object(
        &mut self,
        before: &Value,
        gone_through: &mut usize,
        scope: &mut Scope<'_>,
    ) -> Result<Option<ChangedObject>, Stop> {
        let resource = &self.wanted.resource;
        let after = self.step.patched(resource, before, gone_through, scope)?;
        let after = after.filter(|after| after != before);
        Ok(after.map(|object| ChangedObject {
            target: self.wanted.target.unwrap_or_default(),
            object: resting_on(object, before),
        }))
    }
}

/// Returns the objects that an expression gave: a single object, or the objects of a list. An object of a foreign
/// type stops no other from being changed.
fn named(
    targets: &CelTargets,
    expression: &LocatedProgram,
    given: &Value,
    home: Option<&str>,
    walk: &mut TargetWalk,
) -> Vec<ExistingObjects> {
    let objects = match given {
        Value::Null => &[],
        Value::Array(objects) => &**objects,
        one => match &one["items"] {
            Value::Array(objects) => &**objects,
            _ => std::slice::from_ref(one),
        },
    };
    let mut wanted = Vec::new();
    for object in objects {
        match one_named(targets, object, home) {
            Ok(one) if wanted.contains(&one) => {}
            Ok(one) => wanted.push(one),
            Err(message) => {
                let error = RuleError::Cel {
                    place: expression.path.clone(),
                    source: EvalError::Refused(message),
                };
                walk.error.get_or_insert(error);
            }
        }
    }
    wanted
}

fn one_named(
    targets: &CelTargets,
    object: &Value,
    home: Option<&str>,
) -> Result<ExistingObjects, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    if kind.is_empty() || name.is_empty() {
        return Err(
            "the expression gives no object with an apiVersion, a kind and a name".to_owned(),
        );
    }
    if home.is_some_and(|home| home != namespace) {
        return Err(format!(
            "the expression gives {kind} {namespace}/{name}: a policy of a namespace changes nothing outside it"
        ));
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let types = targets.types.iter().enumerate();
    let mut types = types.filter(|(_, one)| {
        (&*one.group, &*one.version) == (group, version)
            && (one.name.is_empty() || one.name == name)
            && is_plural(&one.resource, &kind)
    });
    let (at, one) = types.next().ok_or_else(|| {
        format!(
            "the expression gives {kind} {namespace}/{name} of {api_version}, which is of no type that \
             targetMatchConstraints names"
        )
    })?;
    Ok(ExistingObjects {
        namespace,
        name,
        kind,
        ..one.objects(at)
    })
}

/// Returns whether a kind may have this plural. The watcher finds out whether it has.
fn is_plural(plural: &str, kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let endings = ["s", "es", ""];
    let is_regular = endings
        .iter()
        .any(|ending| plural.strip_prefix(&*kind) == Some(ending));
    let stem = kind.strip_suffix('y');
    is_regular || stem.is_some_and(|stem| plural.strip_prefix(stem) == Some("ies"))
}

fn refused(place: &str, message: String) -> Stop {
    Stop::Error(Box::new(RuleError::Cel {
        place: place.to_owned(),
        source: EvalError::Refused(message),
    }))
}

#[cfg(test)]
mod tests {
    use super::is_plural;

    #[test]
    fn a_plural_is_recognised_by_its_kind() {
        for (plural, kind, expected) in [
            ("pods", "Pod", true),
            ("ingresses", "Ingress", true),
            ("networkpolicies", "NetworkPolicy", true),
            ("endpoints", "Endpoints", true),
            ("gateways", "Gateway", true),
            ("configmaps", "Pod", false),
            ("podtemplates", "Pod", false),
        ] {
            assert_eq!(is_plural(plural, kind), expected, "{plural} {kind}");
        }
    }
}
