//! The policies of all kinds, and who reads which entry. Pure.

use std::collections::{BTreeSet, HashMap};

use anteroom_model::{Dependent, Failure, ObjectKey};
use anteroom_policy::PolicyKind;
use tokio::time::Instant;

use super::{
    manifest_list::{ManifestList, is_not_served},
    manifests::{EntryQuery, PolicyManifest},
    permits::SecretsReaders,
    registry::EntryId,
    status::writer::StatusOwner,
};
use crate::gateway::rights::Need;

/// A policy's key among the policies of all kinds, as [`PolicyKind::key`] makes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PolicyId(pub(super) ObjectKey);

/// The policies of all kinds.
pub(super) struct PolicyStore {
    /// The lists of policies, one for each kind, in the kinds' order.
    lists: [ManifestList<PolicyManifest>; PolicyKind::ALL.len()],
    /// The policies that name an entry.
    readers: HashMap<EntryId, BTreeSet<PolicyId>>,
    by_uid: HashMap<Dependent, PolicyId>,
}

/// The consequences of a policy's change.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PolicyChange {
    /// The policy that had this name before, and is gone: who depended on views by it, and whose status was written.
    pub replaced: Option<(Dependent, StatusOwner)>,
    /// Queries of entries that are new, or are gone.
    pub queries: Vec<EntryQuery>,
    /// The policy changes existing objects, or did so before: other rights may be needed.
    pub rights: bool,
}

impl PolicyId {
    /// Returns the id of the policy that the API server has under this key.
    pub(super) fn new(kind: PolicyKind, object: &ObjectKey) -> Self {
        Self(kind.key(&object.namespace, &object.name))
    }

    /// Returns whether the policy may read Secrets.
    pub(super) fn may_read_secrets(&self, readers: &SecretsReaders) -> bool {
        readers.allows_policy(&self.0)
    }

    /// Returns whether the policy is namespaced.
    pub(super) fn is_namespaced(&self) -> bool {
        !self.0.namespace.is_empty()
    }

    /// Returns its kind.
    pub(super) fn kind(&self) -> PolicyKind {
        PolicyKind::of_key(&self.0).0
    }

    /// Returns the key that the API server has it under.
    pub(super) fn object(&self) -> ObjectKey {
        PolicyKind::object_key(&self.0)
    }
}

impl Default for PolicyStore {
    fn default() -> Self {
        Self {
            lists: PolicyKind::ALL.map(|kind| ManifestList::new(kind.plural())),
            readers: HashMap::new(),
            by_uid: HashMap::new(),
        }
    }
}

impl PolicyStore {
    fn list(&self, kind: PolicyKind) -> &ManifestList<PolicyManifest> {
        &self.lists[kind as usize]
    }

    /// Returns the policies of a kind, to be changed by lists. Single policies go through [`Self::put`].
    pub(super) fn list_mut(&mut self, kind: PolicyKind) -> &mut ManifestList<PolicyManifest> {
        &mut self.lists[kind as usize]
    }

    /// Inserts a policy, or replaces it. Whoever read the policy from the API server tells its list too: a policy is also put
    /// when it has its turn, and a list under way may have left it out.
    pub(super) fn put(&mut self, id: &PolicyId, manifest: PolicyManifest) -> PolicyChange {
        let uid = Dependent(manifest.identity.uid.clone());
        let mut change = PolicyChange {
            replaced: None,
            queries: manifest.queries.clone(),
            rights: !manifest.changes.is_empty(),
        };
        let entries = manifest.entries.clone();
        if let Some(old) = self.list_mut(id.kind()).replace(id.0.clone(), manifest) {
            self.remove_reader(id, &old);
            change.rights |= !old.changes.is_empty();
            match old.queries == change.queries {
                true => change.queries.clear(),
                false => change.queries.extend(old.queries.iter().cloned()),
            }
            if old.identity.uid != uid.0 {
                let dependent = Dependent(old.identity.uid.clone());
                self.by_uid.remove(&dependent);
                change.replaced = Some((dependent, Self::status_owner(id, &old)));
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
        let manifest = self.list_mut(id.kind()).remove(&id.0)?;
        self.forget(id, &manifest);
        Some(manifest)
    }

    /// Completes the list of a kind. Returns the policies that it did not bring.
    pub(super) fn complete(
        &mut self,
        kind: PolicyKind,
        now: Instant,
    ) -> Vec<(PolicyId, PolicyManifest)> {
        let gone = self.list_mut(kind).complete(now).into_iter();
        let gone: Vec<_> = gone.map(|(key, policy)| (PolicyId(key), policy)).collect();
        for (id, manifest) in &gone {
            self.forget(id, manifest);
        }
        gone
    }

    /// Notes that policies of a kind cannot be read. Returns whether that is an error for readers: the kinds of
    /// policies.kyverno.io need not be installed.
    pub(super) fn refuse(&mut self, kind: PolicyKind, failure: &Failure) -> bool {
        let list = self.list_mut(kind);
        list.set_absent(is_not_served(failure));
        if kind.is_cel() && list.is_absent() {
            return false;
        }
        list.refuse(format!(
            "the API server to serve {}: {failure}",
            kind.as_str()
        ));
        true
    }

    fn forget(&mut self, id: &PolicyId, manifest: &PolicyManifest) {
        self.remove_reader(id, manifest);
        self.by_uid
            .remove(&Dependent(manifest.identity.uid.clone()));
    }

    fn remove_reader(&mut self, id: &PolicyId, manifest: &PolicyManifest) {
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
        self.list(id.kind()).get(&id.0)
    }

    /// Returns the policy with this UID.
    pub(super) fn by_uid(&self, uid: &Dependent) -> Option<&PolicyId> {
        self.by_uid.get(uid)
    }

    /// Returns the policies that name an entry.
    pub(super) fn readers_of(&self, entry: &EntryId) -> impl Iterator<Item = &PolicyId> {
        self.readers.get(entry).into_iter().flatten()
    }

    /// Returns the policies of all kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &PolicyManifest)> {
        self.lists.iter().flat_map(ManifestList::iter)
    }

    /// Returns whether all policies are known.
    pub(super) fn are_known(&self) -> bool {
        self.lists.iter().all(ManifestList::is_known)
    }

    /// Returns the reason why not all policies are known or up to date.
    pub(super) fn waits_for(&self) -> Option<&str> {
        self.lists.iter().find_map(ManifestList::waits_for)
    }

    /// Returns the time of the oldest news over all kinds. Kinds that the API server does not serve have no news.
    pub(super) fn news_at(&self) -> Option<Instant> {
        let served = self.lists.iter().filter(|list| !list.is_absent());
        let heard: Option<Vec<_>> = served.map(ManifestList::news_at).collect();
        heard?.into_iter().min()
    }

    /// Returns the changes of existing objects by all policies, each once.
    pub(super) fn rights_needed(&self) -> Vec<Need> {
        let policies = self.iter().filter(|(_, policy)| !policy.writes_forbidden);
        let changes = policies.flat_map(|(_, policy)| &policy.changes);
        let mut needs: Vec<_> = changes.map(|(_, need)| need.clone()).collect();
        needs.sort();
        needs.dedup();
        needs
    }

    /// Returns the policies that change existing objects.
    pub(super) fn changing_existing(&self) -> Vec<PolicyId> {
        let changing = self.iter().filter(|(_, policy)| !policy.changes.is_empty());
        changing.map(|(key, _)| PolicyId(key.clone())).collect()
    }

    /// Returns the object that holds the policy's status.
    pub(super) fn status_owner(id: &PolicyId, policy: &PolicyManifest) -> StatusOwner {
        let kind = id.kind();
        StatusOwner::new(
            policy.api_version,
            kind.as_str(),
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
        let (manifest, _) = PolicyManifest::read(&object, PolicyKind::Cluster);
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
        let (dependent, owner) = change.replaced.unwrap();
        assert_eq!((dependent, &*owner.uid), (Dependent("u".into()), "u"));
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
        store.list_mut(PolicyKind::Cluster).begin();
        let gone = store.complete(PolicyKind::Cluster, Instant::now());
        assert_eq!(gone.len(), 1);
        assert!(!reads_names(&store));
        assert!(!store.are_known(), "the other kind was not listed");
    }
}
