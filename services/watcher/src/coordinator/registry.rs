//! The desired views and objects, and the entries and policies that need them. Pure: events
//! in, effects out. The cost of a change depends only on its own size.
//!
//! A view lives as long as one entry needs it. An entry with a manifest lives as long as its manifest. An implicit
//! entry, which policies declare by their reads, lives as long as one policy depends on it. Policies are dependents
//! by UID. So a policy that was deleted and created again under its name is another dependent, even if the watcher
//! missed the deletion.

mod dependents;
mod need;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anteroom_model::{
    Dependent, DesiredView, EntryKind, EntryRecord, EntryState, Failure, ObjectKey,
    ObjectReference, SourceInfo, ViewId, source_reason,
};
use anteroom_policy::Reference;

use crate::{
    coordinator::resolve::{Resolution, Resolved},
    gateway::calls::CallSpec,
};
use dependents::{Dependents, ImplicitReads};
use need::{EntryNeeds, Needs};

/// An entry's kind and name.
pub(crate) type EntryId = (EntryKind, String);

/// A reference of a policy, under the name of the implicit entry that it is published as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Referred {
    /// The reference.
    pub reference: Reference,
    /// The entry's name. A reference that may be of Secrets has a name for each policy.
    pub name: String,
}

impl Referred {
    /// Returns the reference as this policy makes it; the namespace is empty for a `ClusterPolicy`.
    pub(crate) fn by(policy: &ObjectKey, reference: &Reference) -> Self {
        Self {
            reference: reference.clone(),
            name: reference.name_for(policy),
        }
    }

    /// Returns whether readers find the reference by its record. Readers find a single object by its view, unless the
    /// object may be a Secret.
    fn is_published(&self) -> bool {
        !matches!(self.reference, Reference::Object(_)) || self.reference.may_be_secrets()
    }
}

/// The needs of a policy or exception.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Needed {
    /// The references whose data must be kept for the dependent.
    pub references: Vec<Referred>,
    /// The dependent is a policy of a namespace, whose views have a quota in the log.
    pub in_quota: bool,
}

/// An entry as the API server has it now, with the result of its resolution.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    /// The kind that declares it.
    pub kind: EntryKind,
    /// The entry's name.
    pub name: String,
    /// The entry's UID.
    pub uid: String,
    /// The generation of the spec that was resolved.
    pub generation: i64,
    /// The meaning of the spec.
    pub resolution: Resolution,
    /// The reason why this generation was given up before (`onForbidden: Stop`).
    pub given_up: Option<Failure>,
}

/// A change that the registry takes in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The entry exists, with this content.
    Entry(Box<Claim>),
    /// The entry is gone.
    EntryGone(EntryId),
    /// The policy or exception exists, with these needs.
    Policy(Dependent, Needed),
    /// The policy is gone.
    PolicyGone(Dependent),
    /// The meaning of a policy's reference: an answer to [`RegistryEffect::Resolve`], or a new one.
    Reference(String, Resolution),
    /// The API server forbids the view.
    Forbidden(ViewId, Failure),
}

/// A consequence of an event. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RegistryEffect {
    /// The view is desired with these options: it is new, or they changed.
    OpenView(Box<DesiredView>),
    /// The view is not desired any more: it is freed everywhere.
    CloseView(ViewId),
    /// Make the call at intervals. Its view is desired already.
    Call(SourceInfo, std::sync::Arc<CallSpec>),
    /// Make it no more.
    EndCall(ViewId),
    /// The object is referenced, or counts otherwise in the quota of its namespace. Its view is desired already.
    Refer(ObjectReference),
    /// The object is not referenced any more.
    Unrefer(ObjectReference),
    /// Tell the readers.
    Publish(EntryRecord),
    /// Tell the readers that the entry is gone.
    Remove(EntryId),
    /// Resolve this reference, and answer with [`Event::Reference`].
    Resolve(Referred),
    /// The entry changed: its status has to be made anew.
    Changed(EntryId),
}

#[derive(Clone, Debug)]
struct RegisteredEntry {
    record: EntryRecord,
    /// The entry's needs, while it is bound to a view.
    held: Option<EntryNeeds>,
    /// The entry lets go of a forbidden view.
    stops: bool,
    /// The reference of an implicit entry, and the policies that make it.
    reference: Option<(Referred, Dependents)>,
}

/// The existing entries, with the views that they need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    entries: BTreeMap<EntryId, RegisteredEntry>,
    needs: Needs,
    /// The implicit entries that each policy depends on.
    policies: HashMap<Dependent, ImplicitReads>,
}

impl Registry {
    /// Takes an event. An event that changes nothing has no effects.
    pub(crate) fn apply(&mut self, event: Event) -> Vec<RegistryEffect> {
        let mut effects = Vec::new();
        match event {
            Event::Entry(claim) => self.claim(*claim, &mut effects),
            Event::EntryGone(id) => self.remove(&id, &mut effects),
            Event::Policy(policy, needed) => self.policy(policy, needed, &mut effects),
            Event::PolicyGone(policy) => self.policy(policy, Needed::default(), &mut effects),
            Event::Reference(name, resolution) => self.reference(name, resolution, &mut effects),
            Event::Forbidden(view, failure) => self.forbidden(&view, &failure, &mut effects),
        }
        effects
    }

    /// The entry, as it was last published.
    pub(crate) fn entry(&self, id: &EntryId) -> Option<&EntryRecord> {
        self.entries.get(id).map(|entry| &entry.record)
    }

    /// Returns the number of entries, implicit ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries, by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &EntryRecord> {
        self.entries.values().map(|entry| &entry.record)
    }

    /// Returns all references of policies, each once.
    pub(crate) fn references(&self) -> impl Iterator<Item = &Referred> {
        let implicit = self.entries.values();
        implicit.filter_map(|entry| entry.reference.as_ref().map(|(reference, _)| reference))
    }

    /// The entries that need a view.
    pub(crate) fn on_view(&self, view: &ViewId) -> impl Iterator<Item = &EntryId> {
        self.needs.on_view(view)
    }

    /// Returns the policies that depend on an implicit entry.
    pub(crate) fn dependents(&self, id: &EntryId) -> impl Iterator<Item = &Dependent> {
        let entry = self.entries.get(id);
        let dependents = entry.and_then(|entry| entry.reference.as_ref());
        dependents
            .into_iter()
            .flat_map(|(_, dependents)| dependents.iter())
    }

    /// The shared view of an entry with `onForbidden: Stop`. An unshared view is begun anew for the entry, so its
    /// earlier errors do not count.
    pub(crate) fn joined_and_stops(&self, id: &EntryId) -> Option<&ViewId> {
        let entry = self.entries.get(id).filter(|entry| entry.stops)?;
        let view = entry.held.as_ref()?.view();
        let others = |other: &&EntryId| *other != id;
        self.needs.on_view(view).find(others).map(|_| view)
    }

    /// Every desired view.
    #[cfg(test)]
    pub(crate) fn views(&self) -> impl Iterator<Item = &ViewId> {
        self.needs.views()
    }

    fn claim(&mut self, claim: Claim, effects: &mut Vec<RegistryEffect>) {
        let id = (claim.kind, claim.name.clone());
        let same_spec = self.entries.get(&id).is_some_and(|entry| {
            let record = &entry.record;
            (record.uid.as_str(), record.generation) == (claim.uid.as_str(), claim.generation)
        });
        let record = |state, projections| EntryRecord {
            kind: claim.kind,
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            generation: claim.generation,
            state,
            projections,
        };
        let given_up = claim.given_up.filter(|_| !self.entries.contains_key(&id));
        let entry = match claim.resolution {
            // It was given up: until its spec changes, nobody asks again.
            Resolution::Found(_) if same_spec && self.is_given_up(&id) => return,
            Resolution::Unknown(_) if same_spec => return,
            Resolution::Found(found)
                if found.options.stops_when_forbidden && given_up.is_some() =>
            {
                let failure =
                    given_up.unwrap_or_else(|| Failure::new(source_reason::FORBIDDEN, ""));
                RegisteredEntry::unbound(record(EntryState::Invalid { failure }, Vec::new()), true)
            }
            Resolution::Found(found) => {
                let state = EntryState::Bound(found.binding.clone());
                RegisteredEntry::bound(record(state, found.projections.clone()), &found)
            }
            Resolution::Nothing => return,
            Resolution::Invalid(failure) | Resolution::Unknown(failure) => {
                RegisteredEntry::unbound(record(EntryState::Invalid { failure }, Vec::new()), false)
            }
        };
        self.put(id, entry, true, effects);
    }

    fn is_given_up(&self, id: &EntryId) -> bool {
        self.entries
            .get(id)
            .is_some_and(|entry| entry.stops && entry.held.is_none())
    }

    fn reference(
        &mut self,
        name: String,
        resolution: Resolution,
        effects: &mut Vec<RegistryEffect>,
    ) {
        let id = (EntryKind::Implicit, name);
        let Some(before) = self.entries.get(&id) else {
            return; // No policy makes it any more.
        };
        let Some((reference, dependents)) = before.reference.clone() else {
            return;
        };
        let is_published = reference.is_published();
        let record = |state| EntryRecord {
            state,
            ..before.record.clone()
        };
        let entry = match resolution {
            Resolution::Unknown(_) if before.held.is_some() => return,
            Resolution::Found(found) => {
                RegisteredEntry::bound(record(EntryState::Bound(found.binding.clone())), &found)
            }
            Resolution::Nothing => RegisteredEntry::unbound(unresolved(&id.1), false),
            Resolution::Invalid(failure) | Resolution::Unknown(failure) => {
                RegisteredEntry::unbound(record(EntryState::Invalid { failure }), false)
            }
        };
        let in_quota = dependents.are_in_quota();
        let entry = RegisteredEntry {
            reference: Some((reference, dependents)),
            held: entry.held.map(|held| held.with_quota(in_quota)),
            ..entry
        };
        self.put(id, entry, is_published, effects);
    }

    /// Inserts or replaces an entry. `is_published`: readers find the entry by its record.
    fn put(
        &mut self,
        id: EntryId,
        entry: RegisteredEntry,
        is_published: bool,
        effects: &mut Vec<RegistryEffect>,
    ) {
        let before = self.entries.get(&id);
        if before.is_some_and(|b| b.record == entry.record && b.held == entry.held) {
            if let Some(before) = self.entries.get_mut(&id) {
                before.stops = entry.stops;
            }
            return;
        }
        let before = before.cloned();
        let before_held = before.as_ref().and_then(|before| before.held.as_ref());
        // The new view is needed before the old view is released, since both may be the same.
        self.needs
            .exchange(&id, before_held, entry.held.as_ref(), effects, |effects| {
                let published = before.as_ref().map(|before| &before.record);
                if is_published && is_unresolved(&entry.record) {
                    if published.is_some_and(|record| !is_unresolved(record)) {
                        effects.push(RegistryEffect::Remove(id.clone()));
                    }
                } else if is_published && published != Some(&entry.record) {
                    effects.push(RegistryEffect::Publish(entry.record.clone()));
                }
                effects.push(RegistryEffect::Changed(id.clone()));
            });
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: &EntryId, effects: &mut Vec<RegistryEffect>) {
        let Some(gone) = self.entries.remove(id) else {
            return;
        };
        let is_published = gone
            .reference
            .as_ref()
            .is_none_or(|(r, _)| r.is_published());
        if is_published && !is_unresolved(&gone.record) {
            effects.push(RegistryEffect::Remove(id.clone()));
        }
        self.needs
            .exchange(id, gone.held.as_ref(), None, effects, |_| ());
        effects.push(RegistryEffect::Changed(id.clone()));
    }

    fn policy(&mut self, policy: Dependent, needed: Needed, effects: &mut Vec<RegistryEffect>) {
        let before = self.policies.remove(&policy).unwrap_or_default();
        let mut after = ImplicitReads {
            in_quota: needed.in_quota,
            names: BTreeSet::new(),
        };
        for reference in needed.references {
            let name = reference.name.clone();
            if !before.names.contains(&name) {
                self.depend(&policy, needed.in_quota, reference, effects);
            } else if let Some(entry) = self.entries.get_mut(&(EntryKind::Implicit, name.clone()))
                && let Some((known, _)) = &mut entry.reference
                && *known != reference
                && reference.reference.is_declared()
            {
                *known = reference.clone(); // Declared by now.
                effects.push(RegistryEffect::Resolve(reference));
            }
            after.names.insert(name);
        }
        for name in before.names.difference(&after.names) {
            self.undepend(&policy, before.in_quota, name, effects);
        }
        if !after.names.is_empty() {
            self.policies.insert(policy, after);
        }
    }

    fn depend(
        &mut self,
        policy: &Dependent,
        in_quota: bool,
        reference: Referred,
        effects: &mut Vec<RegistryEffect>,
    ) {
        let name = reference.name.clone();
        let id = (EntryKind::Implicit, name.clone());
        if let Some(entry) = self.entries.get_mut(&id)
            && let Some((known, dependents)) = &mut entry.reference
        {
            dependents.insert(policy.clone(), in_quota);
            if reference.reference.is_declared() && !known.reference.is_declared() {
                *known = reference.clone();
                effects.push(RegistryEffect::Resolve(reference));
            }
            return self.update_quota(&id, effects);
        }
        let mut dependents = Dependents::default();
        dependents.insert(policy.clone(), in_quota);
        let entry = RegisteredEntry {
            reference: Some((reference.clone(), dependents)),
            ..RegisteredEntry::unbound(unresolved(&name), false)
        };
        self.entries.insert(id, entry);
        effects.push(RegistryEffect::Resolve(reference));
    }

    fn undepend(
        &mut self,
        policy: &Dependent,
        in_quota: bool,
        name: &str,
        effects: &mut Vec<RegistryEffect>,
    ) {
        let id = (EntryKind::Implicit, name.to_owned());
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let Some((_, dependents)) = &mut entry.reference else {
            return;
        };
        dependents.remove(policy, in_quota);
        match dependents.is_empty() {
            true => self.remove(&id, effects),
            false => self.update_quota(&id, effects),
        }
    }

    /// Counts an implicit entry in the quota of its namespace or not, by the policies that make it now.
    fn update_quota(&mut self, id: &EntryId, effects: &mut Vec<RegistryEffect>) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let (Some((reference, dependents)), Some(held)) = (&entry.reference, &entry.held) else {
            return;
        };
        let in_quota = dependents.are_in_quota();
        // Of many policies, most change nothing: then nothing is copied.
        if held.is_in_quota() == in_quota {
            return;
        }
        let is_published = reference.is_published();
        let entry = RegisteredEntry {
            held: Some(held.clone().with_quota(in_quota)),
            ..entry.clone()
        };
        self.put(id.clone(), entry, is_published, effects);
    }

    /// Entries that are not to be asked for again let go of the view, and hold the error.
    fn forbidden(&mut self, view: &ViewId, failure: &Failure, effects: &mut Vec<RegistryEffect>) {
        let on_view = self.needs.on_view(view);
        let stops = on_view.filter(|id| self.entries.get(id).is_some_and(|entry| entry.stops));
        let stops: Vec<_> = stops.cloned().collect();
        for id in stops {
            if let Some(entry) = self.entries.get(&id) {
                let record = EntryRecord {
                    state: EntryState::Invalid {
                        failure: failure.clone(),
                    },
                    projections: Vec::new(),
                    ..entry.record.clone()
                };
                let entry = RegisteredEntry {
                    reference: entry.reference.clone(),
                    ..RegisteredEntry::unbound(record, true)
                };
                self.put(id, entry, true, effects);
            }
        }
    }
}

impl RegisteredEntry {
    fn bound(record: EntryRecord, found: &Resolved) -> Self {
        Self {
            record,
            stops: found.options.stops_when_forbidden,
            held: Some(EntryNeeds::new(found)),
            reference: None,
        }
    }

    fn unbound(record: EntryRecord, stops: bool) -> Self {
        Self {
            record,
            held: None,
            stops,
            reference: None,
        }
    }
}

/// The reason why an implicit entry is not published: its reference is not resolved yet, or needs no view.
const UNRESOLVED: &str = "Unresolved";

fn unresolved(name: &str) -> EntryRecord {
    EntryRecord {
        kind: EntryKind::Implicit,
        name: name.to_owned(),
        uid: String::new(),
        generation: 0,
        state: EntryState::Invalid {
            failure: Failure::new(UNRESOLVED, "it is not known yet what it means"),
        },
        projections: Vec::new(),
    }
}

/// Returns whether the record is of an implicit entry that is unresolved, which is not published to readers.
pub(crate) fn is_unresolved(record: &EntryRecord) -> bool {
    let unresolved = |failure: &Failure| failure.reason == UNRESOLVED;
    record.kind == EntryKind::Implicit
        && matches!(&record.state, EntryState::Invalid { failure } if unresolved(failure))
}

#[cfg(test)]
mod tests;
