//! The exceptions that are in force, found by the policy that they are about.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use anteroom_model::ObjectKey;
use anteroom_policy::{Driver, Policy, PolicyException, RequestParts};
use bytes::Bytes;

use crate::compile_turns::{ChangedManifests, CompileTurns};

/// All exceptions. Immutable.
#[derive(Debug, Default)]
pub struct Exceptions {
    entries: Vec<Arc<CompiledException>>,
    /// Positions, by the policy's name, or `namespace/name` of a `Policy`; of policies of policies.kyverno.io, by kind
    /// and name, as in `ValidatingPolicy/unique-host`.
    by_policy: HashMap<String, Vec<usize>>,
    /// The parts of a request that all of them read.
    parts: RequestParts,
}

/// An exception's manifest, and the exception that it compiles to.
#[derive(Debug)]
struct CompiledException {
    key: ObjectKey,
    /// `None`: it does not compile, and excepts nothing.
    exception: Option<PolicyException>,
    /// The manifest that it was compiled from.
    body: Bytes,
}

impl CompiledException {
    fn compile(key: ObjectKey, body: Bytes) -> Self {
        let manifest = anteroom_wire::body::to_json(&body);
        let manifest = manifest.inspect_err(|error| {
            tracing::error!(
                exception = %key,
                %error,
                "PolicyException not decoded: it exempts nothing; check that all services have the same version"
            );
        });
        let exception = manifest.ok().and_then(|manifest| {
            PolicyException::compile(&manifest, Driver::IN_CLUSTER)
                .inspect_err(|problems| {
                    for problem in problems {
                        tracing::warn!(
                            exception = %key,
                            %problem,
                            "PolicyException invalid: it exempts nothing; correct it"
                        );
                    }
                })
                .ok()
        });
        Self {
            key,
            exception,
            body,
        }
    }
}

impl Exceptions {
    /// Builds the set from manifests, compiling only those that `before` does not have.
    pub fn build(before: &Self, manifests: impl IntoIterator<Item = (ObjectKey, Bytes)>) -> Self {
        let mut turns = CompileTurns::default();
        Self::build_while(before, manifests, &mut turns, || true)
    }

    /// Builds the set as [`Exceptions::build`] does, and compiles exceptions only while `goes_on` is true, but one in any
    /// case. The others wait: their version of `before`, if there is one, stays in force.
    pub(crate) fn build_while(
        before: &Self,
        manifests: impl IntoIterator<Item = (ObjectKey, Bytes)>,
        turns: &mut CompileTurns,
        goes_on: impl FnMut() -> bool,
    ) -> Self {
        let known: HashMap<&ObjectKey, &Arc<CompiledException>> = before
            .entries
            .iter()
            .map(|entry| (&entry.key, entry))
            .collect();
        turns.begin();
        let (mut entries, mut changed) = (Vec::new(), ChangedManifests::default());
        for (key, body) in manifests {
            match known.get(&key).copied() {
                Some(entry) if entry.body == body => entries.push(Arc::clone(entry)),
                _ => turns.add(&mut changed, key, body),
            }
        }
        let compile = |key: ObjectKey, body: Bytes| {
            entries.push(Arc::new(CompiledException::compile(key, body)));
        };
        turns.compile_while(changed, compile, goes_on);
        let in_force = turns.waiting().filter_map(|key| known.get(key).copied());
        entries.extend(in_force.cloned());
        let mut exceptions = Self {
            entries,
            ..Self::default()
        };
        exceptions.entries.sort_by(|a, b| a.key.cmp(&b.key));
        exceptions.index();
        exceptions
    }

    fn index(&mut self) {
        for (at, entry) in self.entries.iter().enumerate() {
            for exception in entry.exception.iter() {
                self.parts.unite(&exception.parts());
                for policy in exception.policies() {
                    let of = self.by_policy.entry(policy.to_owned()).or_default();
                    if of.last() != Some(&at) {
                        of.push(at);
                    }
                }
            }
        }
    }

    /// Returns the exceptions about some rule of the policy, in order of key.
    pub fn about(&self, policy: &Policy) -> impl Iterator<Item = &PolicyException> {
        let found = match self.by_policy.is_empty() {
            true => None,
            false => self.by_policy.get(&policy.full_name()),
        };
        let positions = found.into_iter().flatten();
        positions.filter_map(|at| self.entries[*at].exception.as_ref())
    }

    /// Returns the parts of a request that policies and exceptions together read.
    pub fn parts<'a>(&self, of_policies: &'a RequestParts) -> Cow<'a, RequestParts> {
        if self.by_policy.is_empty() {
            return Cow::Borrowed(of_policies);
        }
        let mut parts = of_policies.clone();
        parts.unite(&self.parts);
        Cow::Owned(parts)
    }

    /// The number of those in force.
    pub(crate) fn count(&self) -> usize {
        let in_force = |entry: &&Arc<CompiledException>| entry.exception.is_some();
        self.entries.iter().filter(in_force).count()
    }
}

#[cfg(test)]
mod tests {
    use anteroom_policy::compile;
    use serde_json::{Value, json};

    use super::*;

    fn manifest(name: &str, policies: &[&str]) -> (ObjectKey, Bytes) {
        let exceptions: Vec<_> = policies
            .iter()
            .map(|policy| json!({"policyName": policy, "ruleNames": ["*"]}))
            .collect();
        let manifest = json!({
            "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {
                "match": {"any": [{"resources": {"kinds": ["Pod"]}, "subjects": [{"kind": "User", "name": "a"}]}]},
                "exceptions": exceptions,
            },
        });
        let body = anteroom_wire::body::encode_json(&manifest).unwrap();
        (ObjectKey::new("ns", name), body)
    }

    fn policy(namespace: Option<&str>) -> Policy {
        let mut manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"deny": {}},
            }]},
        });
        if let Some(namespace) = namespace {
            manifest["kind"] = "Policy".into();
            manifest["metadata"]["namespace"] = namespace.into();
        }
        compile(&manifest).unwrap()
    }

    #[test]
    fn exceptions_are_found_by_the_policy_that_they_are_about() {
        let all = Exceptions::build(
            &Exceptions::default(),
            [
                manifest("b", &["p", "p", "team/p"]),
                manifest("a", &["p", "q"]),
                manifest("none", &[]),
            ],
        );
        let of = |namespace| {
            let policy = policy(namespace);
            let names = all.about(&policy).map(|e| e.name().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(of(None), ["ns/a", "ns/b"]);
        assert_eq!(of(Some("team")), ["ns/b"]);
        assert_eq!(of(Some("other")), [""; 0]);
        // One does not compile.
        assert_eq!(all.count(), 2);
    }

    #[test]
    fn request_fields_of_exceptions_are_read_only_if_exceptions_exist() {
        let parts = RequestParts::default();
        let groups = r#"{"username": "a", "groups": ["b"]}"#;
        let read = |exceptions: &Exceptions| -> Value {
            let parts = exceptions.parts(&parts);
            parts.field("userInfo", groups).unwrap().unwrap()
        };
        let none = Exceptions::default();
        assert_eq!(read(&none), json!({"username": "a"}));
        let some = Exceptions::build(&none, [manifest("a", &["p"])]);
        assert_eq!(read(&some), json!({"username": "a", "groups": ["b"]}));
    }

    #[test]
    fn changed_exceptions_are_compiled_in_turns_of_namespaces_and_stay_as_they_were_until_then() {
        let all = |policy: &str| {
            ["a/1", "a/2", "b/1"].map(|of| {
                let (namespace, name) = of.split_once('/').unwrap();
                let (_, body) = manifest(name, &[policy]);
                (ObjectKey::new(namespace, name), body)
            })
        };
        let none = Exceptions::default();
        let mut turns = CompileTurns::default();
        let first = Exceptions::build_while(&none, all("p"), &mut turns, || true);
        assert_eq!(turns.waiting().count(), 0);
        // The last turn was that of `a`.
        let second = Exceptions::build_while(&first, all("q"), &mut turns, || false);
        let same = |at: usize| Arc::ptr_eq(&first.entries[at], &second.entries[at]);
        assert_eq!([0, 1, 2].map(same), [true, true, false]);
        assert_eq!((turns.waiting().count(), second.count()), (2, 3));
        // What is gone is gone at once.
        let [one, two, _] = all("q");
        let third = Exceptions::build_while(&second, [one], &mut turns, || false);
        assert_eq!((turns.waiting().count(), third.count()), (0, 1));
        let fourth = Exceptions::build(&third, [two]);
        assert_eq!(fourth.count(), 1);
    }

    #[test]
    fn only_changed_exceptions_are_compiled_again() {
        let manifests = || [manifest("a", &["p"]), manifest("b", &["p"])];
        let before = Exceptions::build(&Exceptions::default(), manifests());
        let [one, _] = manifests();
        let after = Exceptions::build(&before, [one, manifest("b", &["q"])]);
        let same = |at: usize| Arc::ptr_eq(&before.entries[at], &after.entries[at]);
        assert_eq!([0, 1].map(same), [true, false]);
    }
}
