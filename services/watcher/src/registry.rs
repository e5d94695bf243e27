//! Which views are wanted, and by whom. Pure: events in, effects out.
//!
//! A view lives as long as one dependent needs it. Dependents are UIDs, so an entry that was deleted
//! and made again under its name is another dependent, even where the deletion itself was missed.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_model::{Dependent, EntryKind, EntryRecord, EntryState, SourceInfo, ViewId};

use crate::resolve::{Resolution, Resolved};

/// An entry as the API server has it now, with what it resolved to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    /// The entry's name.
    pub name: String,
    /// The entry's UID.
    pub uid: String,
    /// The generation of the spec that was resolved.
    pub generation: i64,
    /// What the spec means.
    pub resolution: Resolution,
}

/// What changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// The entry is there, and means this.
    Entry(Box<Claim>),
    /// The entry of this name is gone.
    EntryGone(String),
}

/// What has to be done about it, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Start to watch.
    StartView(SourceInfo),
    /// Stop watching, and free the view everywhere.
    StopView(ViewId),
    /// Tell the readers.
    PublishEntry(EntryRecord),
    /// Tell the readers that the entry of this name is gone.
    RemoveEntry(String),
}

/// The entries that are there and the views that they need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    entries: BTreeMap<String, EntryRecord>,
    dependents: BTreeMap<ViewId, BTreeSet<Dependent>>,
}

impl Registry {
    /// Takes an event in. An event that changes nothing has no effects.
    pub(crate) fn apply(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Entry(claim) => self.claim(*claim),
            Event::EntryGone(name) => {
                let Some(gone) = self.entries.remove(&name) else {
                    return Vec::new();
                };
                let mut effects = vec![Effect::RemoveEntry(name)];
                self.release(&gone, &mut effects);
                effects
            }
        }
    }

    /// The entry of this name, as it was last published.
    pub(crate) fn entry(&self, name: &str) -> Option<&EntryRecord> {
        self.entries.get(name)
    }

    /// All entries, by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &EntryRecord> {
        self.entries.values()
    }

    fn claim(&mut self, claim: Claim) -> Vec<Effect> {
        let before = self.entries.get(&claim.name).cloned();
        let mut projections = Vec::new();
        let (state, info) = match claim.resolution {
            Resolution::Found(found) => {
                let Resolved {
                    info,
                    binding,
                    projections: parts,
                    ..
                } = *found;
                projections = parts;
                (EntryState::Bound(binding), Some(info))
            }
            Resolution::Nothing => return Vec::new(),
            Resolution::Invalid(failure) => (EntryState::Invalid { failure }, None),
            Resolution::Unknown(failure) => match &before {
                Some(old) if (&old.uid, old.generation) == (&claim.uid, claim.generation) => {
                    return Vec::new();
                }
                _ => (EntryState::Invalid { failure }, None),
            },
        };
        let record = EntryRecord {
            kind: EntryKind::Cached,
            projections,
            name: claim.name,
            uid: claim.uid,
            generation: claim.generation,
            state,
        };
        if before.as_ref() == Some(&record) {
            return Vec::new();
        }
        let mut effects = Vec::new();
        // The new view is needed before the old one is let go: it may be the same.
        if let Some(info) = info {
            self.need(&record, info, &mut effects);
        }
        effects.push(Effect::PublishEntry(record.clone()));
        self.entries.insert(record.name.clone(), record.clone());
        if let Some(before) = before
            && (bound_view(&before), &before.uid) != (bound_view(&record), &record.uid)
        {
            self.release(&before, &mut effects);
        }
        effects
    }

    fn need(&mut self, record: &EntryRecord, info: SourceInfo, effects: &mut Vec<Effect>) {
        let Some(view) = bound_view(record) else {
            return;
        };
        let dependents = self.dependents.entry(view.clone()).or_default();
        if dependents.is_empty() {
            effects.push(Effect::StartView(info));
        }
        dependents.insert(Dependent(record.uid.clone()));
    }

    fn release(&mut self, record: &EntryRecord, effects: &mut Vec<Effect>) {
        let Some(view) = bound_view(record) else {
            return;
        };
        let Some(dependents) = self.dependents.get_mut(view) else {
            return;
        };
        dependents.remove(&Dependent(record.uid.clone()));
        if dependents.is_empty() {
            self.dependents.remove(view);
            effects.push(Effect::StopView(view.clone()));
        }
    }
}

fn bound_view(record: &EntryRecord) -> Option<&ViewId> {
    match &record.state {
        EntryState::Bound(binding) => Some(&binding.view),
        EntryState::Invalid { .. } => None,
    }
}

#[cfg(test)]
mod tests;
