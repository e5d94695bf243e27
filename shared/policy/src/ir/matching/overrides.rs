//! The override of a rule's failure action that applies to a request.

use anteroom_functions::wildcard;
use serde_json::Value;

use super::{Matched, Surroundings};
use crate::ir::{
    AdmissionRequest, FailureAction, Operation, Rule,
    rule::{Override, Overrides},
};

impl Rule {
    /// Returns the failure action for this request; `None`: it depends on labels which are not known yet.
    pub(crate) fn action_for(
        &self,
        request: &AdmissionRequest,
        known: &Surroundings,
    ) -> Option<FailureAction> {
        let Overrides { before, after } = &self.overrides;
        let before = before
            .iter()
            .map(|one| (one.action, one.admits(request, known)));
        let after = after
            .iter()
            .map(|one| (one.action, one.speaks_of(request, known)));
        let both = [self.first(before), self.first(after)];
        match both {
            [Some(FailureAction::Audit), _] | [_, Some(FailureAction::Audit)] => {
                Some(FailureAction::Audit)
            }
            [Some(action), Some(_)] => Some(action),
            _ => None,
        }
    }

    /// Returns the action of the first that matches the request, or else the rule's own.
    fn first(&self, each: impl Iterator<Item = (FailureAction, Matched)>) -> Option<FailureAction> {
        for (action, matched) in each {
            match matched {
                Matched::Yes => return Some(action),
                Matched::No => {}
                Matched::Unknown => return None,
            }
        }
        Some(self.action)
    }

    /// Returns whether it selects by the labels of namespaces, in its match or in an override.
    pub(crate) fn asks_labels(&self) -> bool {
        let Overrides { before, after } = &self.overrides;
        let mut overrides = before.iter().chain(after);
        self.matches.asks_labels() || overrides.any(|one| one.selector.is_some())
    }

    /// Returns whether the failure action is the same for all objects.
    pub(crate) fn has_one_action(&self) -> bool {
        self.overrides.before.is_empty() && self.overrides.after.is_empty()
    }
}

impl Override {
    /// Returns whether it decides the action for the object: by its namespace and the labels of that, both of
    /// which an object in none lacks.
    fn speaks_of(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let named = Matched::from(self.names(request.object_namespace()).unwrap_or(true));
        let selected = self
            .selector
            .as_ref()
            .map(|selector| match known.labels(request) {
                Some(labels) => selector.matches(Some(labels)).into(),
                None => Matched::Unknown,
            });
        named.and(selected.unwrap_or(Matched::Yes))
    }

    /// Returns whether the override decides about the request's namespace. For a request about an existing Namespace
    /// the name or labels of that Namespace are enough. Only an override without any selection applies to
    /// cluster-scoped objects.
    fn admits(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        if self.namespaces.is_none() && self.selector.is_none() {
            return Matched::Yes;
        }
        let (namespace, labels) = match (request.is_about_namespace(), request.operation()) {
            (true, Operation::Create) => return Matched::No,
            (true, _) => (request.namespace(), Some(own_labels(request))),
            _ => (request.object_namespace(), known.labels(request)),
        };
        if namespace.is_empty() {
            return Matched::No;
        }
        if self.names(namespace) == Some(true) {
            return Matched::Yes;
        }
        match (&self.selector, labels) {
            (None, _) => Matched::No,
            (Some(selector), Some(labels)) => selector.matches(Some(labels)).into(),
            (Some(_), None) => Matched::Unknown,
        }
    }

    /// Returns whether it names the namespace; `None`: it names none.
    fn names(&self, namespace: &str) -> Option<bool> {
        let names = self.namespaces.as_ref()?;
        let mut names = names.iter();
        Some(names.any(|name| wildcard::matches(name, namespace)))
    }
}

/// The labels that a Namespace has before the request.
fn own_labels(request: &AdmissionRequest) -> &Value {
    let labels = request
        .old_object()
        .and_then(|old| old.get("metadata")?.get("labels"));
    labels.unwrap_or(&Value::Null)
}
