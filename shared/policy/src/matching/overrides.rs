//! Which override of a rule's failure action is about a request.

use super::{Matched, Surroundings, object_namespace};
use crate::{AdmissionRequest, FailureAction, Rule, policy::Override, wildcard};

impl Rule {
    /// What a violation by this request leads to; `None`: that depends on labels which are not known yet.
    pub(crate) fn action_for(
        &self,
        request: &AdmissionRequest,
        known: &Surroundings,
    ) -> Option<FailureAction> {
        for one in &self.overrides {
            match one.speaks_of(request, known) {
                Matched::Yes => return Some(one.action),
                Matched::No => {}
                Matched::Unknown => return None,
            }
        }
        Some(self.action)
    }

    /// Whether it is about the labels of namespaces, in what it matches or in what a violation leads to.
    pub(crate) fn asks_labels(&self) -> bool {
        let mut overrides = self.overrides.iter();
        self.matches.asks_labels() || overrides.any(|one| one.selector.is_some())
    }
}

impl Override {
    /// One that names neither namespaces nor labels is about nothing.
    fn speaks_of(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let namespace = object_namespace(request);
        let is_named = |names: &Vec<String>| {
            let mut names = names.iter();
            names.any(|name| wildcard::matches(name, namespace))
        };
        let named = self.namespaces.as_ref().map(is_named);
        let selected = |selector: &super::Selector| match known.labels(request) {
            Some(labels) => selector.matches(Some(labels)).into(),
            None => Matched::Unknown,
        };
        let selected = self.selector.as_ref().map(selected);
        match (named, selected) {
            (None, None) => Matched::No,
            (named, selected) => {
                Matched::from(named.unwrap_or(true)).and(selected.unwrap_or(Matched::Yes))
            }
        }
    }
}
