//! Builds a set of policies from manifests. Only those that changed are compiled, and not all at once where many are.

use std::{collections::HashMap, sync::Arc};

use anteroom_model::ObjectKey;
use bytes::Bytes;

use super::{CompiledPolicy, Index, PolicySet};
use crate::{
    compile_turns::{ChangedManifests, CompileTurns},
    phase::ByPhase,
};

impl PolicySet {
    /// Builds the set from manifests, compiling only those that `before` does not have. A manifest that does not
    /// compile leaves the policy's valid version of `before` in force: a newer watcher may know fields that this
    /// build does not.
    #[must_use]
    pub fn build(before: &Self, manifests: impl IntoIterator<Item = (ObjectKey, Bytes)>) -> Self {
        let mut turns = CompileTurns::default();
        Self::build_while(before, manifests, &mut turns, || true)
    }

    /// Builds the set as [`PolicySet::build`] does, and compiles policies of namespaces only while `goes_on` is true, but
    /// one in any case. The others wait: their version of `before`, if there is one, stays in force.
    /// [`CompileTurns::waiting`] names them.
    #[must_use]
    pub(crate) fn build_while(
        before: &Self,
        manifests: impl IntoIterator<Item = (ObjectKey, Bytes)>,
        turns: &mut CompileTurns,
        goes_on: impl FnMut() -> bool,
    ) -> Self {
        let known: HashMap<&ObjectKey, &Arc<CompiledPolicy>> = before
            .entries
            .iter()
            .map(|entry| (&entry.key, entry))
            .collect();
        turns.begin();
        let (mut entries, mut passed_over) = (Vec::new(), HashMap::new());
        let mut changed = ChangedManifests::default();
        for (key, body) in manifests {
            match known.get(&key).copied() {
                Some(known) if known.body == body => entries.push(Arc::clone(known)),
                Some(known) if before.passed_over.get(&key) == Some(&body) => {
                    entries.push(Arc::clone(known));
                    passed_over.insert(key, body);
                }
                _ => turns.add(&mut changed, key, body),
            }
        }
        let compile = |key: ObjectKey, body: Bytes| {
            let read = CompiledPolicy::compile(key.clone(), body.clone());
            match known.get(&key).copied().filter(|known| read.leaves(known)) {
                Some(known) => {
                    passed_over.insert(key, body);
                    entries.push(Arc::clone(known));
                }
                None => entries.push(Arc::new(read)),
            }
        };
        turns.compile_while(changed, compile, goes_on);
        let in_force = turns.waiting().filter_map(|key| known.get(key).copied());
        entries.extend(in_force.cloned());
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            indexes: ByPhase::of(|phase| Index::of(&entries, phase)),
            entries,
            passed_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::manifest;

    /// The policy `NAMESPACE/NAME`, or `NAME` of the cluster, in its n-th version.
    fn version(policy: &str, number: u64) -> (ObjectKey, Bytes) {
        let (namespace, name) = policy.split_once('/').unwrap_or(("", policy));
        let body = manifest(&["Pod"], |manifest| {
            if !namespace.is_empty() {
                manifest["kind"] = "Policy".into();
                manifest["metadata"]["namespace"] = namespace.into();
            }
            manifest["metadata"]["name"] = name.into();
            manifest["spec"]["rules"][0]["validate"]["message"] = format!("v{number}").into();
        });
        (ObjectKey::new(namespace, name), body)
    }

    /// Builds a set, and compiles so many policies of namespaces in it.
    fn build(
        before: &PolicySet,
        turns: &mut CompileTurns,
        compiled_max: usize,
        manifests: &[(ObjectKey, Bytes)],
    ) -> PolicySet {
        let mut compiled = 1;
        let goes_on = || {
            compiled += 1;
            compiled <= compiled_max
        };
        PolicySet::build_while(before, manifests.to_vec(), turns, goes_on)
    }

    fn in_force(set: &PolicySet) -> Vec<String> {
        let keys = set.all().iter().map(|policy| policy.key.to_string());
        keys.collect()
    }

    fn waiting(turns: &CompileTurns) -> Vec<String> {
        let mut waiting: Vec<_> = turns.waiting().map(ToString::to_string).collect();
        waiting.sort();
        waiting
    }

    #[test]
    fn policies_of_the_cluster_are_compiled_at_once_and_those_of_namespaces_in_turns() {
        let all = ["p", "q", "a/1", "a/2", "a/3", "b/1", "c/1"].map(|policy| version(policy, 1));
        let mut turns = CompileTurns::default();
        let first = build(&PolicySet::default(), &mut turns, 2, &all);
        assert_eq!(in_force(&first), ["p", "q", "a/1", "b/1"]);
        assert_eq!(waiting(&turns), ["a/2", "a/3", "c/1"]);
        let second = build(&first, &mut turns, 1, &all);
        assert_eq!(waiting(&turns), ["a/2", "a/3"]);
        let third = build(&second, &mut turns, 9, &all);
        assert_eq!(waiting(&turns), [""; 0]);
        assert_eq!(third.counts(), (7, 0));
    }

    #[test]
    fn a_policy_that_waits_stays_in_force_as_it_was() {
        let versions = |number| ["p", "a/1", "b/1"].map(|policy| version(policy, number));
        let mut turns = CompileTurns::default();
        let first = build(&PolicySet::default(), &mut turns, 9, &versions(1));
        let second = build(&first, &mut turns, 1, &versions(2));
        // The last turn was that of `b`.
        assert_eq!(waiting(&turns), ["b/1"]);
        assert_eq!(in_force(&second), ["p", "a/1", "b/1"]);
        let same = |at: usize| Arc::ptr_eq(&first.entries[at], &second.entries[at]);
        assert_eq!([0, 1, 2].map(same), [false, false, true]);
        // What is gone is gone at once.
        let third = build(&second, &mut turns, 1, &versions(3)[..2]);
        assert_eq!(in_force(&third), ["p", "a/1"]);
        assert_eq!(waiting(&turns), [""; 0]);
    }

    #[test]
    fn one_that_changes_in_a_loop_lets_others_wait_for_one_turn() {
        let mut turns = CompileTurns::default();
        let mut set = PolicySet::default();
        let mut compiled = Vec::new();
        for number in 1..=4 {
            let all = [
                version("a/0-loop", number),
                version("a/z", 1),
                version("b/1", 1),
            ];
            let before = set;
            set = build(&before, &mut turns, 1, &all);
            let is_new = |policy: &&Arc<CompiledPolicy>| {
                let mut known = before.all().iter();
                !known.any(|known| Arc::ptr_eq(known, policy))
            };
            let new = set.all().iter().filter(is_new);
            compiled.extend(new.map(|policy| policy.key.to_string()));
        }
        assert_eq!(compiled, ["a/0-loop", "b/1", "a/z", "a/0-loop"]);
    }

    #[test]
    fn a_version_that_does_not_compile_is_compiled_once_also_where_others_wait() {
        let broken = |policy: &str| {
            let (key, _) = version(policy, 1);
            let body = manifest(&["Pod"], |manifest| {
                manifest["kind"] = "Policy".into();
                manifest["metadata"]["namespace"] = "a".into();
                manifest["metadata"]["uid"] = "u".into();
                manifest["spec"]["rules"] = "none".into();
            });
            (key, body)
        };
        let good = {
            let (key, _) = version("a/1", 1);
            let body = manifest(&["Pod"], |manifest| {
                manifest["kind"] = "Policy".into();
                manifest["metadata"]["namespace"] = "a".into();
                manifest["metadata"]["uid"] = "u".into();
            });
            (key, body)
        };
        let mut turns = CompileTurns::default();
        let first = build(&PolicySet::default(), &mut turns, 9, &[good]);
        let second = build(&first, &mut turns, 9, &[broken("a/1")]);
        assert_eq!(waiting(&turns), [""; 0]);
        let more = [broken("a/1"), version("a/2", 1)];
        // One is compiled in any case, and that is not the broken one.
        let third = build(&second, &mut turns, 1, &more);
        assert_eq!(waiting(&turns), [""; 0]);
        assert_eq!(third.counts(), (2, 0));
    }
}
