//! The policies of both kinds, and who reads which entry. Pure.

use std::collections::{BTreeSet, HashMap};

use anteroom_model::{Dependent, Failure, ObjectKey};
use tokio::time::Instant;

use super::{
    manifest_list::{ManifestList, is_not_served},
    manifests::{EntryQuery, POLICY_API_VERSION, PolicyManifest},
    permits::SecretsReaders,
    registry::EntryId,
    status_writer::StatusTarget,
};
use crate::gateway::rights::Need;

/// A policy's namespace and name. A `ClusterPolicy` has no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PolicyId(pub(super) ObjectKey);

/// The two kinds of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    /// A `ClusterPolicy`.
    Cluster,
    /// A `Policy`, which has a namespace.
    Namespaced,
}

/// The policies of both kinds.
pub(super) struct PolicyStore {
    cluster: ManifestList<PolicyManifest>,
    namespaced: ManifestList<PolicyManifest>,
    /// The policies that name an entry.
    readers: HashMap<EntryId, BTreeSet<PolicyId>>,
    by_uid: HashMap<Dependent, PolicyId>,
}

/// The consequences of a policy's change.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PolicyChange {
    /// The policy that had this name before, and is gone.
    pub replaced: Option<Dependent>,
    /// Queries of entries that are new, or are gone.
    pub queries: Vec<EntryQuery>,
    /// It changes what exists, or did so before: other rights may be needed.
    pub rights: bool,
}

impl PolicyId {
    /// Returns whether the policy may read Secrets.
    pub(super) fn may_read_secrets(&self, readers: &SecretsReaders) -> bool {
        readers.allows_policy(&self.0.namespace, &self.0.name)
    }

    pub(super) fn kind(&self) -> PolicyKind {
        match self.0.namespace.is_empty() {
            true => PolicyKind::Cluster,
            false => PolicyKind::Namespaced,
        }
    }
}

impl PolicyKind {
    /// Returns the `kind` of a manifest.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "ClusterPolicy",
            Self::Namespaced => "Policy",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Cluster => "clusterpolicies",
            Self::Namespaced => "policies",
        }
    }
}

impl Default for PolicyStore {
    fn default() -> Self {
        Self {
            cluster: ManifestList::new(PolicyKind::Cluster.plural()),
            namespaced: ManifestList::new(PolicyKind::Namespaced.plural()),
            readers: HashMap::new(),
            by_uid: HashMap::new(),
        }
    }
}

impl PolicyStore {
    fn of(&self, kind: PolicyKind) -> &ManifestList<PolicyManifest> {
        match kind {
            PolicyKind::Cluster => &self.cluster,
            PolicyKind::Namespaced => &self.namespaced,
        }
    }

    /// Returns the policies of a kind, to be changed by lists. Single policies go through [`Self::put`].
    pub(super) fn of_mut(&mut self, kind: PolicyKind) -> &mut ManifestList<PolicyManifest> {
        match kind {
            PolicyKind::Cluster => &mut self.cluster,
            PolicyKind::Namespaced => &mut self.namespaced,
        }
    }

    /// Inserts a policy, or replaces it.
    pub(super) fn put(&mut self, id: &PolicyId, manifest: PolicyManifest) -> PolicyChange {
        let uid = Dependent(manifest.identity.uid.clone());
        let mut change = PolicyChange {
            replaced: None,
            queries: manifest.queries.clone(),
            rights: !manifest.changes.is_empty(),
        };
        let entries = manifest.entries.clone();
        if let Some(old) = self.of_mut(id.kind()).put(id.0.clone(), manifest) {
            self.unread(id, &old);
            change.rights |= !old.changes.is_empty();
            match old.queries == change.queries {
                true => change.queries.clear(),
                false => change.queries.extend(old.queries),
            }
            let old = Dependent(old.identity.uid);
            if old != uid {
                self.by_uid.remove(&old);
                change.replaced = Some(old);
            }
        }
        for entry in entries {
            self.readers.entry(entry).or_default().insert(id.clone());
        }
        self.by_uid.insert(uid, id.clone());
        change
    }

    /// Removes a policy that is gone.
    pub(super) fn remove(&mut self, id: &PolicyId) -> Option<PolicyManifest> {
        let manifest = self.of_mut(id.kind()).remove(&id.0)?;
        self.forget(id, &manifest);
        Some(manifest)
    }

    /// Completes the list of a kind. Returns the policies that it did not bring.
    pub(super) fn complete(
        &mut self,
        kind: PolicyKind,
        now: Instant,
    ) -> Vec<(PolicyId, PolicyManifest)> {
        let gone = self.of_mut(kind).complete(now).into_iter();
        let gone: Vec<_> = gone.map(|(key, policy)| (PolicyId(key), policy)).collect();
        for (id, manifest) in &gone {
            self.forget(id, manifest);
        }
        gone
    }

    /// Notes that policies of a kind cannot be read.
    pub(super) fn refuse(&mut self, kind: PolicyKind, failure: &Failure) {
        let list = self.of_mut(kind);
        list.set_absent(is_not_served(failure));
        list.refuse(format!(
            "the API server to serve {}: {failure}",
            kind.name()
        ));
    }

    fn forget(&mut self, id: &PolicyId, manifest: &PolicyManifest) {
        self.unread(id, manifest);
        self.by_uid
            .remove(&Dependent(manifest.identity.uid.clone()));
    }

    fn unread(&mut self, id: &PolicyId, manifest: &PolicyManifest) {
        for entry in &manifest.entries {
            if let Some(readers) = self.readers.get_mut(entry) {
                readers.remove(id);
                if readers.is_empty() {
                    self.readers.remove(entry);
                }
            }
        }
    }

    /// Returns a policy.
    pub(super) fn get(&self, id: &PolicyId) -> Option<&PolicyManifest> {
        self.of(id.kind()).get(&id.0)
    }

    /// Returns the policy with this UID.
    pub(super) fn by_uid(&self, uid: &Dependent) -> Option<&PolicyId> {
        self.by_uid.get(uid)
    }

    /// Returns the policies that name an entry.
    pub(super) fn readers_of(&self, entry: &EntryId) -> impl Iterator<Item = &PolicyId> {
        self.readers.get(entry).into_iter().flatten()
    }

    /// Returns the policies of both kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &PolicyManifest)> {
        self.cluster.iter().chain(self.namespaced.iter())
    }

    /// Returns whether all policies are known.
    pub(super) fn are_known(&self) -> bool {
        self.cluster.is_known() && self.namespaced.is_known()
    }

    /// Returns the reason why not all policies are known or up to date.
    pub(super) fn waits_for(&self) -> Option<&str> {
        self.cluster.waits_for().or(self.namespaced.waits_for())
    }

    /// Returns since when the news of both kinds is: the older of the two.
    pub(super) fn heard(&self) -> Option<Instant> {
        let both = self.cluster.heard().zip(self.namespaced.heard());
        both.map(|(one, other)| one.min(other))
    }

    /// Returns what all policies change of what exists, each once.
    pub(super) fn rights_needed(&self) -> Vec<Need> {
        let policies = self.iter().filter(|(_, policy)| !policy.writes_forbidden);
        let changes = policies.flat_map(|(_, policy)| &policy.changes);
        let mut needs: Vec<_> = changes.map(|(_, need)| need.clone()).collect();
        needs.sort();
        needs.dedup();
        needs
    }

    /// Returns the policies that change what exists.
    pub(super) fn changing_existing(&self) -> Vec<PolicyId> {
        let changing = self.iter().filter(|(_, policy)| !policy.changes.is_empty());
        changing.map(|(key, _)| PolicyId(key.clone())).collect()
    }

    /// Returns the object whose status speaks of the policy.
    pub(super) fn status_target(id: &PolicyId, policy: &PolicyManifest) -> StatusTarget {
        let kind = id.kind();
        StatusTarget::new(
            POLICY_API_VERSION,
            kind.name(),
            kind.plural(),
            &policy.identity,
        )
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{EntryKind, ResourceVersion};
    use serde_json::json;

    use super::*;
    use crate::source::reflect::RawObject;

    /// A policy that reads the entry `names` with this expression.
    fn policy(uid: &str, path: &str) -> PolicyManifest {
        let rule = json!({
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Service"]}}]},
            "context": [{"name": "x", "cachedContextEntry": {"name": "names", "jmespath": path}}],
            "validate": {"message": "no", "deny": {"conditions": {"any": [
                {"key": "{{ x }}", "operator": "Equals", "value": "y"}]}}},
        });
        let object = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
            "metadata": {"name": "p", "uid": uid, "generation": 1},
            "spec": {"rules": [rule]},
        });
        let object = RawObject {
            key: ObjectKey::new("", "p"),
            version: ResourceVersion::new("1"),
            json: object.to_string().into_bytes().into(),
        };
        let (manifest, _) = PolicyManifest::read(&object, "ClusterPolicy");
        assert_eq!(manifest.problems, []);
        manifest
    }

    fn id() -> PolicyId {
        PolicyId(ObjectKey::new("", "p"))
    }

    fn reads_names(store: &PolicyStore) -> bool {
        let names = (EntryKind::Cached, "names".to_owned());
        store.readers_of(&names).count() == 1
    }

    #[test]
    fn a_policy_is_found_by_its_uid_and_by_the_entry_that_it_reads() {
        let mut store = PolicyStore::default();
        store.put(&id(), policy("u", "a"));
        assert_eq!(store.by_uid(&Dependent("u".into())), Some(&id()));
        assert!(reads_names(&store));
        assert!(store.remove(&id()).is_some());
        assert_eq!(store.by_uid(&Dependent("u".into())), None);
        assert!(!reads_names(&store));
    }

    #[test]
    fn a_policy_made_again_under_its_name_replaces_the_old_uid() {
        let mut store = PolicyStore::default();
        assert_eq!(store.put(&id(), policy("u", "a")).replaced, None);
        let change = store.put(&id(), policy("v", "a"));
        assert_eq!(change.replaced, Some(Dependent("u".into())));
        assert_eq!(store.by_uid(&Dependent("u".into())), None);
        assert_eq!(store.by_uid(&Dependent("v".into())), Some(&id()));
        assert!(reads_names(&store));
    }

    #[test]
    fn only_queries_that_changed_are_reported() {
        let mut store = PolicyStore::default();
        assert_eq!(store.put(&id(), policy("u", "a")).queries.len(), 1);
        assert_eq!(store.put(&id(), policy("u", "a")).queries, []);
        assert_eq!(store.put(&id(), policy("u", "b")).queries.len(), 2);
    }

    #[test]
    fn policies_that_a_list_does_not_bring_are_forgotten() {
        let mut store = PolicyStore::default();
        store.put(&id(), policy("u", "a"));
        store.of_mut(PolicyKind::Cluster).begin();
        let gone = store.complete(PolicyKind::Cluster, Instant::now());
        assert_eq!(gone.len(), 1);
        assert!(!reads_names(&store));
        assert!(!store.are_known(), "the other kind was not listed");
    }
}
