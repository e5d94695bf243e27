//! The compiled changes of existing objects: the changes of `mutate.targets`, and those of a `MutatingPolicy`.

use std::sync::Arc;

use anteroom_model::ExistingObjects;
use serde_json::Value;

use crate::ir::{
    KindPattern,
    cel::LocatedProgram,
    cel_mutation::CelMutation,
    conditions::Conditions,
    context::ContextEntry,
    matching::Constraints,
    mutation::Mutation,
    template::{Template, ValueTemplate},
};

/// The changes of objects that exist already, which a trigger leads to.
#[derive(Debug)]
pub(crate) struct MutateExisting {
    pub(crate) work: ExistingWork,
    /// Objects that exist are triggers too, once for each version of the policy.
    pub(crate) on_policy_update: bool,
    /// A write by such a rule triggers the rule again (`skipBackgroundRequests: false`).
    pub(crate) is_triggered_by_own: bool,
}

/// The selection of the objects, and the change of each.
#[derive(Debug)]
pub(crate) enum ExistingWork {
    /// `mutate.targets`; never empty.
    Targets(Vec<TargetSpec>),
    /// The targets of a `MutatingPolicy`.
    InCel(Box<CelTargets>),
}

/// The objects that a `MutatingPolicy` changes, and how.
#[derive(Debug)]
pub(crate) struct CelTargets {
    /// The types of objects, never empty. A target is known by its index here.
    pub(crate) types: Vec<TargetType>,
    /// In the API server's syntax; empty: all.
    pub(crate) label_selector: String,
    /// Constraints on each object, as `matchConstraints` are on a request.
    pub(crate) constraints: Constraints,
    /// Gives the objects for a trigger, of those types; `None`: all are meant.
    pub(crate) expression: Option<LocatedProgram>,
    /// The mutation. Its conditions about the trigger come first, then those about each object.
    pub(crate) mutation: CelMutation,
    /// The number of conditions of the trigger.
    pub(crate) of_trigger: usize,
    /// The conditions about the trigger apply to each object too, since the policy names its objects by its own
    /// match.
    pub(crate) are_like_triggers: bool,
}

/// A type of objects that may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetType {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// The plural.
    pub(crate) resource: String,
    /// Only the object of this name; empty: all.
    pub(crate) name: String,
}

/// A target: the selection of its objects, and the change of each.
#[derive(Debug)]
pub(crate) struct TargetSpec {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// The namespaces of the target, whose name may have wildcards; `None`: all namespaces.
    pub(crate) namespace: Option<Template>,
    /// Wildcards may stand in its value, as in the namespace's.
    pub(crate) name: Option<Template>,
    pub(crate) uid: Option<Template>,
    /// A label selector.
    pub(crate) selector: Option<ValueTemplate>,
    /// The rule's entries, the target, and its own entries.
    pub(crate) context: Vec<Arc<ContextEntry>>,
    /// The number of entries that are the rule's.
    pub(crate) outer: usize,
    pub(crate) preconditions: Conditions,
    pub(crate) work: Mutation,
}

impl MutateExisting {
    /// Returns the `mutate.targets`, if it has any.
    pub(crate) fn targets(&self) -> &[TargetSpec] {
        match &self.work {
            ExistingWork::Targets(targets) => targets,
            ExistingWork::InCel(_) => &[],
        }
    }

    /// Returns the targets of a `MutatingPolicy`.
    pub(crate) fn in_cel(&self) -> Option<&CelTargets> {
        match &self.work {
            ExistingWork::Targets(_) => None,
            ExistingWork::InCel(targets) => Some(targets),
        }
    }

    /// The context entries that are not the rule's own.
    pub(crate) fn entries(&self) -> Vec<&Arc<ContextEntry>> {
        let of_each = self.targets().iter().flat_map(|target| {
            let own = target.context[target.outer..].iter();
            own.chain(target.work.entries())
        });
        of_each.collect()
    }

    /// Returns the objects that it changes, as far as they are known before there is a trigger.
    pub(crate) fn fixed_objects(&self) -> Vec<ExistingObjects> {
        match &self.work {
            ExistingWork::Targets(targets) => {
                let targets = targets.iter().enumerate();
                targets.map(|(at, spec)| spec.fixed_objects(at)).collect()
            }
            ExistingWork::InCel(targets) => {
                let types = targets.types.iter().enumerate();
                types.map(|(at, one)| one.objects(at)).collect()
            }
        }
    }
}

impl CelTargets {
    /// Returns the conditions of the trigger.
    pub(crate) fn of_trigger(&self) -> &[LocatedProgram] {
        &self.mutation.shared_cel.preconditions[..self.of_trigger]
    }

    /// Returns the conditions of each object.
    pub(crate) fn of_object(&self) -> &[LocatedProgram] {
        let first = if self.are_like_triggers {
            0
        } else {
            self.of_trigger
        };
        &self.mutation.shared_cel.preconditions[first..]
    }
}

impl TargetType {
    /// Returns its objects, in all namespaces.
    pub(crate) fn objects(&self, at: usize) -> ExistingObjects {
        ExistingObjects {
            target: Some(at),
            group: self.group.clone(),
            version: self.version.clone(),
            resource: self.resource.clone(),
            name: self.name.clone(),
            ..ExistingObjects::default()
        }
    }

    /// Returns the kind of its objects.
    pub(crate) fn kind(&self) -> KindPattern {
        KindPattern::of_resource(&self.group, &self.version, &self.resource, false)
    }
}

impl TargetSpec {
    /// Returns the objects that it means, as far as they are known before there is a trigger.
    pub(crate) fn fixed_objects(&self, at: usize) -> ExistingObjects {
        let text = |text: &Option<Template>| {
            let fixed = text.as_ref().and_then(Template::fixed);
            fixed.unwrap_or_default().to_owned()
        };
        ExistingObjects {
            target: Some(at),
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            namespace: text(&self.namespace),
            name: text(&self.name),
            ..ExistingObjects::default()
        }
    }

    /// The texts that select the target, each with its field.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'static str, &Template)> {
        let fields = [
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("uid", &self.uid),
        ];
        let given = fields.into_iter();
        given.filter_map(|(field, text)| Some((field, text.as_ref()?)))
    }
}

/// An object that a rule on existing objects changes.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedObject {
    /// The index of its target.
    pub target: usize,
    /// The changed object. Its `resourceVersion` is the version read, so that no later write is lost.
    pub object: Value,
}
