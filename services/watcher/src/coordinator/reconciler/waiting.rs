//! Policies that wait for room in their namespace. They are not compiled, and only so much of them is kept as a namespace
//! may have in force: so whatever a tenant writes, the coordinator has room for it.
//!
//! Policies in force stay in force, also after a take-over: those of the log take their room before any others. The others
//! follow by the time of their creation, the oldest first, and then by name. So no policy ceases to be enforced because
//! others are added, and the order of a list does not decide which policies wait.
//!
//! Policies that may be put in force have turns, one policy at a time. So other events are taken between two compilations,
//! however many policies there are at the begin of a term. The view of policies is complete once the first turns are over:
//! before, readers would take policies without their turn for deleted ones.

use std::collections::{BTreeMap, VecDeque};

use anteroom_model::Failure;
use tokio::time::Instant;

use super::Reconciler;
use crate::{
    coordinator::{
        effect::{SystemView, Write},
        manifests::PolicyManifest,
        policies_in_log::PoliciesInLog,
        policy_size::PolicySize,
        policy_store::PolicyId,
        quotas::{
            NAMESPACE_MANIFESTS_BYTES_MAX, NAMESPACE_POLICIES_MAX, beyond_waiting, is_too_large,
        },
        webhooks::NOT_ENFORCED,
    },
    source::reflect::RawObject,
};

/// Policies that wait for room, or for their turn.
#[derive(Default)]
pub(super) struct WaitingPolicies {
    policies: BTreeMap<PolicyId, WaitingPolicy>,
    /// The policies that have turns, in their order. Some of them may wait no more.
    turns: VecDeque<PolicyId>,
    phase: NewPolicies,
}

/// The phase of a term, for policies of namespaces that are not in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NewPolicies {
    /// All of them wait: the policies that are in force are not all known yet.
    #[default]
    Wait,
    /// Those that waited have turns. Further ones wait until these are over: they come without end, perhaps.
    HaveTurns,
    /// They are put in force as they come, if there is room.
    AreTaken,
}

struct WaitingPolicy {
    /// The time at which the API server created the policy.
    created: String,
    size: PolicySize,
    /// There was room when it came, but other policies have to be read first.
    awaits_turn: bool,
    object: RawObject,
}

impl WaitingPolicies {
    /// Adds a policy, and returns those of its namespace that are not kept any more: the newest.
    fn add(&mut self, id: PolicyId, policy: WaitingPolicy) -> Vec<PolicyId> {
        let namespace = id.0.namespace.clone();
        self.policies.insert(id, policy);
        let mut total = PolicySize::default();
        let turns = self.oldest_first(|id| id.0.namespace == namespace);
        let beyond = turns.into_iter().filter(|id| {
            let size = self.policies.get(id).map(|policy| policy.size);
            total = total.zip(size.unwrap_or_default(), usize::saturating_add);
            total.policies > NAMESPACE_POLICIES_MAX || total.bytes > NAMESPACE_MANIFESTS_BYTES_MAX
        });
        let beyond: Vec<_> = beyond.collect();
        for id in &beyond {
            self.policies.remove(id);
        }
        beyond
    }

    /// Removes a policy that waits no more.
    pub(super) fn remove(&mut self, id: &PolicyId) {
        self.policies.remove(id);
    }

    /// Returns whether policies that are not in force are put in force as they come.
    pub(super) fn takes_new(&self) -> bool {
        self.phase == NewPolicies::AreTaken
    }

    /// Returns whether the policies that waited at the begin of the term have turns now.
    pub(super) fn has_first_turns(&self) -> bool {
        self.phase == NewPolicies::HaveTurns
    }

    /// Returns the policies that meet the condition, the oldest first.
    fn oldest_first(&self, condition: impl Fn(&PolicyId) -> bool) -> Vec<PolicyId> {
        let found = self.policies.iter().filter(|(id, _)| condition(id));
        let mut turns: Vec<_> = found.map(|(id, policy)| (&policy.created, id)).collect();
        turns.sort_unstable();
        turns.into_iter().map(|(_, id)| id.clone()).collect()
    }
}

impl Reconciler {
    /// Takes in the policies that the log has. They have their room before any policy that is not there. Call it before the
    /// first note.
    pub(in crate::coordinator) fn inherit(&mut self, policies: PoliciesInLog) {
        for (key, body) in &policies {
            if let Ok(manifest) = anteroom_wire::body::to_json(body) {
                let size = PolicySize::of(&manifest, body.len());
                self.quotas.put_size(&PolicyId(key.clone()), size);
            }
        }
        self.inherited = policies;
    }

    /// Returns whether a version of a policy has to wait: its namespace has no room for it, or the policy is not in force yet,
    /// and not to be taken yet (`takes_new`).
    pub(super) fn policy_waits(
        &mut self,
        id: &PolicyId,
        object: &RawObject,
        takes_new: bool,
    ) -> bool {
        self.waiting.remove(id);
        if !id.is_namespaced() {
            return false;
        }
        // A policy that cannot be published takes no room.
        let Some((manifest, object)) = PolicyManifest::read_size(object, id.kind()) else {
            return false;
        };
        let size = manifest.size;
        let created = manifest.created.clone();
        let awaits_turn = match self.quotas.check_size(id, size) {
            Ok(()) if takes_new || self.may_be_enforced(id) => return false,
            Ok(()) => {
                let namespace = &id.0.namespace;
                let message =
                    format!("the other policies of namespace `{namespace}` are read first");
                self.put_held_back(id, manifest, Failure::new(NOT_ENFORCED, message));
                true
            }
            Err(failure) => {
                self.put_inherited(id, &manifest.identity.uid);
                self.policy_held_back(id, manifest, failure);
                if is_too_large(size) {
                    return true;
                }
                false
            }
        };
        let policy = WaitingPolicy {
            created,
            size,
            awaits_turn,
            object,
        };
        for beyond in self.waiting.add(id.clone(), policy) {
            self.policy_beyond_waiting(&beyond);
        }
        true
    }

    /// Returns whether webhooks may go by a version of the policy.
    fn may_be_enforced(&self, id: &PolicyId) -> bool {
        let policy = self.policies.get(id);
        self.inherited.contains_key(&id.0) || policy.is_some_and(|policy| policy.in_force.is_some())
    }

    /// Tells the author of a policy that it waits, and that it is not kept meanwhile.
    fn policy_beyond_waiting(&mut self, id: &PolicyId) {
        let Some(mut manifest) = self.policies.get(id).cloned() else {
            return;
        };
        manifest.held_back = Some(beyond_waiting(&id.0.namespace));
        self.policies.put(id, manifest);
        self.reporter.policies_changed([id.clone()]);
    }

    /// Takes in that policies that are not in force may be put in force: all policies are listed, or a list does not come. All
    /// that wait have their turn.
    pub(super) fn take_new_policies(&mut self) {
        if self.waiting.phase == NewPolicies::Wait {
            self.give_turns();
            self.waiting.phase = match self.has_turns() {
                true => NewPolicies::HaveTurns,
                false => NewPolicies::AreTaken,
            };
        }
    }

    /// Gives turns to policies that wait for room, the oldest first: others may take less by now.
    pub(super) fn try_all_waiting(&mut self) {
        if self.waiting.takes_new() && !self.has_turns() {
            self.give_turns();
        }
    }

    fn give_turns(&mut self) {
        let turns = self.waiting.oldest_first(|id| self.may_have_turn(id));
        self.waiting.turns = turns.into();
    }

    /// Returns whether a policy waits and has not been tried yet, or has room now.
    fn may_have_turn(&self, id: &PolicyId) -> bool {
        let waiting = self.waiting.policies.get(id);
        waiting.is_some_and(|policy| {
            policy.awaits_turn || self.quotas.check_size(id, policy.size).is_ok()
        })
    }

    /// Returns whether policies wait for nothing but their turn.
    pub(in crate::coordinator) fn has_turns(&self) -> bool {
        !self.waiting.turns.is_empty()
    }

    /// Tries the policy that has the next turn. An earlier policy may have taken the room.
    pub(in crate::coordinator) fn take_turn(&mut self, now: Instant) {
        let next = self.waiting.turns.pop_front();
        if let Some(id) = next.filter(|id| self.may_have_turn(id)) {
            self.try_waiting(&id);
        }
        if self.waiting.has_first_turns() && !self.has_turns() {
            self.waiting.phase = NewPolicies::AreTaken;
            self.give_turns();
            self.policies_complete();
            self.settle(now);
        }
    }

    /// Completes the view of policies, if all policies are listed and have had their turn.
    pub(super) fn policies_complete(&mut self) {
        if self.policies.waits_for().is_none() && self.waiting.takes_new() {
            self.write(SystemView::Policies, Write::Listed);
        }
    }

    fn try_waiting(&mut self, id: &PolicyId) {
        if let Some(policy) = self.waiting.policies.remove(id) {
            self.policy_put(id.kind(), &policy.object, true);
        }
    }

    /// Forgets the policies of the log that no list has brought.
    pub(super) fn forget_inherited(&mut self) {
        for (key, _) in self.inherited.drain() {
            self.quotas.remove(&PolicyId(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{ObjectKey, ResourceVersion};

    use super::*;

    fn waiting(created: usize, bytes: usize) -> WaitingPolicy {
        WaitingPolicy {
            created: format!("2026-01-01T00:{created:02}:00Z"),
            size: PolicySize {
                policies: 1,
                rules: 1,
                kinds: 1,
                bytes,
            },
            awaits_turn: false,
            object: RawObject {
                key: ObjectKey::new("a", "p"),
                version: ResourceVersion::default(),
                json: "{}".into(),
            },
        }
    }

    fn id(namespace: &str, name: &str) -> PolicyId {
        PolicyId(ObjectKey::new(namespace, name))
    }

    #[test]
    fn so_many_of_the_oldest_policies_wait_as_a_namespace_may_have() {
        let mut policies = WaitingPolicies::default();
        for number in 0..NAMESPACE_POLICIES_MAX {
            let id = id("a", &format!("p{number}"));
            assert_eq!(policies.add(id, waiting(30, 1)), []);
        }
        let newest = id("a", "p00");
        assert_eq!(policies.add(newest.clone(), waiting(31, 1)), [newest]);
        assert_eq!(policies.add(id("b", "p"), waiting(31, 1)), []);
        let beyond = policies.add(id("a", "z"), waiting(29, 1));
        assert_eq!(beyond, [id("a", "p99")], "of one time the last by name");
        let half = NAMESPACE_MANIFESTS_BYTES_MAX / 2;
        assert_eq!(policies.add(id("b", "q"), waiting(30, half)), []);
        let beyond = policies.add(id("b", "r"), waiting(29, half));
        assert_eq!(beyond, [id("b", "p")]);
    }
}
