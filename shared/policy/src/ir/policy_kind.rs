//! The kinds of policies, and the key of a policy among all of them. Pure.

use std::fmt;

use anteroom_model::ObjectKey;

/// The group of Kyverno's policies in patterns and JMESPath.
const CLASSIC_GROUP: &str = "kyverno.io";

/// The group of Kyverno's policies in CEL.
const CEL_GROUP: &str = "policies.kyverno.io";

/// A kind of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// `ClusterPolicy` of kyverno.io.
    Cluster,
    /// `Policy` of kyverno.io, which has a namespace.
    Namespaced,
    /// `ValidatingPolicy` of policies.kyverno.io.
    Validating,
    /// `NamespacedValidatingPolicy` of policies.kyverno.io.
    NamespacedValidating,
    /// `MutatingPolicy` of policies.kyverno.io.
    Mutating,
    /// `NamespacedMutatingPolicy` of policies.kyverno.io.
    NamespacedMutating,
}

impl PolicyKind {
    /// All kinds of policies.
    pub const ALL: [Self; 6] = [
        Self::Cluster,
        Self::Namespaced,
        Self::Validating,
        Self::NamespacedValidating,
        Self::Mutating,
        Self::NamespacedMutating,
    ];

    /// The kinds of policies.kyverno.io, whose rules are in CEL.
    pub const IN_CEL: [Self; 4] = [
        Self::Validating,
        Self::NamespacedValidating,
        Self::Mutating,
        Self::NamespacedMutating,
    ];

    /// From the `apiVersion` and `kind` of a manifest, whatever the version.
    pub fn of_manifest(api_version: &str, kind: &str) -> Option<Self> {
        let (group, _) = api_version.split_once('/')?;
        Self::ALL
            .into_iter()
            .find(|known| known.as_str() == kind && known.group() == group)
    }

    /// The `kind` of a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "ClusterPolicy",
            Self::Namespaced => "Policy",
            Self::Validating => "ValidatingPolicy",
            Self::NamespacedValidating => "NamespacedValidatingPolicy",
            Self::Mutating => "MutatingPolicy",
            Self::NamespacedMutating => "NamespacedMutatingPolicy",
        }
    }

    /// The plural, as in `clusterpolicies`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Cluster => "clusterpolicies",
            Self::Namespaced => "policies",
            Self::Validating => "validatingpolicies",
            Self::NamespacedValidating => "namespacedvalidatingpolicies",
            Self::Mutating => "mutatingpolicies",
            Self::NamespacedMutating => "namespacedmutatingpolicies",
        }
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        match self.is_cel() {
            true => CEL_GROUP,
            false => CLASSIC_GROUP,
        }
    }

    /// Returns the versions in which a manifest is accepted; the watcher reads the first one.
    pub fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Cluster | Self::Namespaced => &["v1", "v2beta1"],
            Self::Validating | Self::Mutating => &["v1", "v1beta1", "v1alpha1"],
            Self::NamespacedValidating | Self::NamespacedMutating => &["v1", "v1beta1"],
        }
    }

    /// Returns whether it is of policies.kyverno.io.
    pub fn is_cel(self) -> bool {
        !matches!(self, Self::Cluster | Self::Namespaced)
    }

    /// Returns whether policies of this kind live in a namespace, and match only requests there.
    pub fn is_namespaced(self) -> bool {
        matches!(
            self,
            Self::Namespaced | Self::NamespacedValidating | Self::NamespacedMutating
        )
    }

    /// Returns whether its policies change the object, rather than judge it. Policies of kyverno.io may do either.
    pub fn is_mutating(self) -> bool {
        matches!(self, Self::Mutating | Self::NamespacedMutating)
    }

    /// Returns the key of a policy, unique among all kinds, for views, logs and records: namespace and name. For
    /// kinds of policies.kyverno.io the kind stands before the name, as in `ValidatingPolicy/unique-host`. No
    /// object's name has a slash, so no two policies share a key.
    pub fn key(self, namespace: &str, name: &str) -> ObjectKey {
        let namespace = match self.is_namespaced() {
            true => namespace,
            false => "",
        };
        match self.is_cel() {
            true => ObjectKey::new(namespace, format!("{}/{name}", self.as_str())),
            false => ObjectKey::new(namespace, name),
        }
    }

    /// The kind and the name of the policy that has this key.
    pub fn of_key(key: &ObjectKey) -> (Self, &str) {
        let in_cel = key.name.split_once('/').and_then(|(kind, name)| {
            let mut kinds = Self::IN_CEL.into_iter();
            kinds
                .find(|known| known.as_str() == kind)
                .map(|kind| (kind, name))
        });
        let classic = match key.namespace.is_empty() {
            true => Self::Cluster,
            false => Self::Namespaced,
        };
        in_cel.unwrap_or((classic, &key.name))
    }

    /// Returns the namespace and the name that the API server has the policy under, whose key this is. They stand in
    /// reports too.
    pub fn object_key(key: &ObjectKey) -> ObjectKey {
        ObjectKey::new(&*key.namespace, Self::of_key(key).1)
    }

    /// Returns the policy's name for people: the kind, then the name, as in `Policy team-a/labels`.
    pub fn describe(key: &ObjectKey) -> String {
        let (kind, name) = Self::of_key(key);
        match &*key.namespace {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_policy_of_one_kind() {
        let mut keys = Vec::new();
        for kind in PolicyKind::ALL {
            let key = kind.key("shop", "web");
            assert_eq!(PolicyKind::of_key(&key), (kind, "web"));
            assert_eq!(&*PolicyKind::object_key(&key).name, "web");
            assert_eq!(key.namespace.is_empty(), !kind.is_namespaced(), "{kind}");
            // As Kubernetes makes the plural of a kind.
            let plural = kind.as_str().to_lowercase().replace("policy", "policies");
            assert_eq!(kind.plural(), plural);
            keys.push(key);
        }
        let described: Vec<_> = keys.iter().map(PolicyKind::describe).collect();
        assert_eq!(described[1..3], ["Policy shop/web", "ValidatingPolicy web"]);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), PolicyKind::ALL.len());
    }

    #[test]
    fn a_manifest_has_the_kind_of_its_group() {
        let of = PolicyKind::of_manifest;
        assert_eq!(
            of("kyverno.io/v1", "ClusterPolicy"),
            Some(PolicyKind::Cluster)
        );
        let validating = Some(PolicyKind::Validating);
        assert_eq!(
            of("policies.kyverno.io/v1beta1", "ValidatingPolicy"),
            validating
        );
        assert_eq!(of("kyverno.io/v1", "ValidatingPolicy"), None);
        assert_eq!(of("v1", "Policy"), None);
    }
}
