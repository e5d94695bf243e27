//! The size of a policy, by which the policies of a namespace are limited.

use anteroom_policy::ManifestCounts;
use serde_json::Value;

/// The size of a policy, or of several together. All who enforce policies keep them in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicySize {
    /// The number of policies.
    pub policies: usize,
    /// The number of rules, without derived ones.
    pub rules: usize,
    /// The number of kinds that rules name, each counted as often as a rule names it.
    pub kinds: usize,
    /// The length of the manifests as they are published.
    pub bytes: usize,
}

impl PolicySize {
    /// Returns the size of one policy from its manifest, of which so many bytes are published.
    pub(crate) fn of(manifest: &Value, bytes: usize) -> Self {
        let counts = ManifestCounts::of(manifest);
        Self {
            policies: 1,
            rules: counts.rules,
            kinds: counts.kinds,
            bytes,
        }
    }

    /// Returns the size that each number of both makes with `combine`.
    pub(crate) fn zip(self, other: Self, combine: impl Fn(usize, usize) -> usize) -> Self {
        Self {
            policies: combine(self.policies, other.policies),
            rules: combine(self.rules, other.rules),
            kinds: combine(self.kinds, other.kinds),
            bytes: combine(self.bytes, other.bytes),
        }
    }

    /// Returns the first number that is larger than that of `max`: what it counts, the number, and that of `max`.
    pub(crate) fn beyond(self, max: Self) -> Option<(&'static str, usize, usize)> {
        let numbers = [
            ("policies", self.policies, max.policies),
            ("rules", self.rules, max.rules),
            ("kinds named by rules", self.kinds, max.kinds),
            ("bytes of policies", self.bytes, max.bytes),
        ];
        numbers.into_iter().find(|(_, own, max)| own > max)
    }
}
