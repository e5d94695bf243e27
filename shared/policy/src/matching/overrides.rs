//! Which override of a rule's failure action is about a request.

use serde_json::Value;

use super::{Matched, Surroundings, metadata, object_namespace};
use crate::{
    AdmissionRequest, FailureAction, Operation, Rule,
    policy::{Override, Overrides},
    wildcard,
};

impl Rule {
    /// What a violation by this request leads to; `None`: that depends on labels which are not known yet.
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

    /// What the first says that speaks of the request; else the rule itself does.
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

    /// Whether it is about the labels of namespaces, in what it matches or in what a violation leads to.
    pub(crate) fn asks_labels(&self) -> bool {
        let Overrides { before, after } = &self.overrides;
        let mut overrides = before.iter().chain(after);
        self.matches.asks_labels() || overrides.any(|one| one.selector.is_some())
    }

    /// Whether a violation leads to the same whatever it is about.
    pub(crate) fn has_one_action(&self) -> bool {
        self.overrides.before.is_empty() && self.overrides.after.is_empty()
    }
}

impl Override {
    /// Whether it decides what a violation by the object leads to: by its namespace and that one's labels, both
    /// of which an object in none lacks.
    fn speaks_of(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let named = Matched::from(self.names(object_namespace(request)).unwrap_or(true));
        let selected = self
            .selector
            .as_ref()
            .map(|selector| match known.labels(request) {
                Some(labels) => selector.matches(Some(labels)).into(),
                None => Matched::Unknown,
            });
        named.and(selected.unwrap_or(Matched::Yes))
    }

    /// Whether it decides if the rule may deny at all: by the namespace of the request, which of a Namespace that
    /// exists is that itself; its name or its labels are enough. What is in none only one for everything is about.
    fn admits(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        if self.namespaces.is_none() && self.selector.is_none() {
            return Matched::Yes;
        }
        let (namespace, labels) = match (request.kind(), request.operation()) {
            ("Namespace", Operation::Create) => return Matched::No,
            ("Namespace", _) => (request.namespace(), Some(own_labels(request))),
            _ => (object_namespace(request), known.labels(request)),
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

    /// Whether it names the namespace; `None`: it names none.
    fn names(&self, namespace: &str) -> Option<bool> {
        let names = self.namespaces.as_ref()?;
        let mut names = names.iter();
        Some(names.any(|name| wildcard::matches(name, namespace)))
    }
}

/// Those that a Namespace has before the request.
fn own_labels(request: &AdmissionRequest) -> &Value {
    let labels = request.old_object().and_then(|old| metadata(old, "labels"));
    labels.unwrap_or(&Value::Null)
}
