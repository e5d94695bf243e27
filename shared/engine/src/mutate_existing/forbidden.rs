//! The targets that the watcher may not write, as one attempt finds them out: their other objects are not tried.
//! Pure.
//!
//! A right is given for a kind, everywhere or in a namespace. If all writes of a page for one target and one
//! namespace were forbidden, the other objects there are skipped, and a list of that namespace is not continued. A
//! list of all namespaces ends after a few such namespaces, if nothing was written anywhere.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_model::{ExistingObjects, FactError};
use anteroom_policy::ChangedObject;

/// Namespaces in which all is forbidden before others are taken to be the same.
const NAMESPACES_MAX: usize = 3;

/// A target of the rule, and the namespace of one of its objects; empty: a cluster-scoped object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TargetNamespace {
    target: usize,
    namespace: String,
}

impl TargetNamespace {
    pub(super) fn of(changed: &ChangedObject) -> Self {
        let namespace = changed.object["metadata"]["namespace"].as_str();
        Self {
            target: changed.target,
            namespace: namespace.unwrap_or_default().to_owned(),
        }
    }
}

/// The targets to which the API server forbids all writes.
#[derive(Debug, Default)]
pub(super) struct ForbiddenTargets {
    places: BTreeSet<TargetNamespace>,
    /// Target namespaces where something was written, or may be.
    open: BTreeSet<TargetNamespace>,
    /// The first error of each target.
    why: BTreeMap<usize, FactError>,
}

impl ForbiddenTargets {
    /// Returns whether a write is not to be tried.
    pub(super) fn has(&self, changed: &ChangedObject) -> bool {
        self.places.contains(&TargetNamespace::of(changed))
    }

    /// Notes the results of the writes of a part.
    pub(super) fn note(&mut self, written: &[(TargetNamespace, Result<(), FactError>)]) {
        for (place, written) in written {
            match written {
                Err(error @ FactError::WriteFailed { code: 403, .. }) => {
                    self.why
                        .entry(place.target)
                        .or_insert_with(|| error.clone());
                }
                _ => {
                    self.open.insert(place.clone());
                }
            }
        }
        let places = written.iter().map(|(place, _)| place);
        let refused = places.filter(|place| !self.open.contains(place));
        self.places.extend(refused.cloned());
    }

    /// Returns the reason why a list is not to be read on; `None`: it is.
    pub(super) fn rest_of(&self, objects: &ExistingObjects) -> Option<&FactError> {
        let target = objects.target?;
        let count = |places: &BTreeSet<TargetNamespace>| {
            let of_target = places.iter().filter(|place| place.target == target);
            of_target.count()
        };
        let namespace = objects.namespace.clone();
        let is_refused = self.places.contains(&TargetNamespace { target, namespace });
        let are_all = count(&self.open) == 0 && count(&self.places) >= NAMESPACES_MAX;
        self.why.get(&target).filter(|_| is_refused || are_all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(target: usize, namespace: &str) -> ChangedObject {
        let object = json!({"metadata": {"namespace": namespace}});
        ChangedObject { target, object }
    }

    /// A part, by namespace and the code that each was answered with.
    fn part(
        target: usize,
        written: &[(&str, u16)],
    ) -> Vec<(TargetNamespace, Result<(), FactError>)> {
        let of = |(namespace, code): &(&str, u16)| {
            let error = FactError::WriteFailed {
                code: *code,
                message: "no".into(),
            };
            let written = if *code == 200 { Ok(()) } else { Err(error) };
            (TargetNamespace::of(&changed(target, namespace)), written)
        };
        written.iter().map(of).collect()
    }

    fn list(target: usize, namespace: &str) -> ExistingObjects {
        ExistingObjects {
            target: Some(target),
            namespace: namespace.into(),
            ..ExistingObjects::default()
        }
    }

    #[test]
    fn only_forbidden_writes_stop_further_attempts_in_their_place() {
        for (parts, tried, read_on) in [
            // (parts of target 0, whether another object in `a` is tried, whether `a` and all are read on)
            (vec![vec![("a", 403), ("a", 403)]], false, [false, true]),
            (vec![vec![("a", 403), ("a", 200)]], true, [true, true]),
            (vec![vec![("a", 200)], vec![("a", 403)]], true, [true, true]),
            (vec![vec![("a", 422)]], true, [true, true]),
            (vec![vec![("a", 409), ("a", 403)]], true, [true, true]),
            (
                vec![vec![("a", 403), ("b", 403)], vec![("c", 403)]],
                false,
                [false, false],
            ),
            (
                vec![vec![("a", 403), ("b", 403)], vec![("c", 403), ("d", 200)]],
                false,
                [false, true],
            ),
        ] {
            let mut refused = ForbiddenTargets::default();
            for written in &parts {
                refused.note(&part(0, written));
            }
            assert_eq!(!refused.has(&changed(0, "a")), tried, "{parts:?}");
            let found = ["a", ""].map(|namespace| refused.rest_of(&list(0, namespace)).is_none());
            assert_eq!(found, read_on, "{parts:?}");
            // Another target is of another kind, perhaps.
            assert!(!refused.has(&changed(1, "a")) && refused.rest_of(&list(1, "a")).is_none());
        }
    }

    #[test]
    fn cluster_scoped_targets_count_as_one_place() {
        let mut refused = ForbiddenTargets::default();
        refused.note(&part(0, &[("", 403)]));
        assert!(refused.rest_of(&list(0, "")).is_some());
    }
}
