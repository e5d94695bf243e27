//! The compiled changes of existing objects: `mutate.targets`.

use std::sync::Arc;

use anteroom_model::ExistingObjects;
use serde_json::Value;

use crate::ir::{
    conditions::Conditions,
    context::ContextEntry,
    mutation::Mutation,
    template::{Template, ValueTemplate},
};

/// The changes of objects that exist already, which a trigger leads to.
#[derive(Debug)]
pub(crate) struct MutateExisting {
    /// Never empty.
    pub(crate) targets: Vec<TargetSpec>,
    /// Objects that exist are triggers too, once for each version of the policy.
    pub(crate) on_policy_update: bool,
    /// A write that such a rule made triggers it again (`skipBackgroundRequests: false`).
    pub(crate) is_triggered_by_own: bool,
}

/// One of the targets: which objects, and what becomes of each.
#[derive(Debug)]
pub(crate) struct TargetSpec {
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// Wildcards may stand in what it comes to. `None`: all.
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
    /// The context entries that are not the rule's own.
    pub(crate) fn entries(&self) -> Vec<&Arc<ContextEntry>> {
        let of_each = self.targets.iter().flat_map(|target| {
            let own = target.context[target.outer..].iter();
            own.chain(target.work.entries())
        });
        of_each.collect()
    }
}

impl TargetSpec {
    /// Returns the objects that it means, as far as they are known before there is a trigger.
    pub(crate) fn known(&self, at: usize) -> ExistingObjects {
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

    /// The texts by which it is found: the field, and what is there.
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

/// An object that a rule with `mutate.targets` changes.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedObject {
    /// The index of its target.
    pub target: usize,
    /// The object as it should be. It has the `resourceVersion` that was read, so that no later write is
    /// lost.
    pub object: Value,
}
