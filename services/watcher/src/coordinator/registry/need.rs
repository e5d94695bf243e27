//! Counts of the needs of entries: views with their options, calls, and single objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use anteroom_model::{DesiredView, ObjectKey, ObjectReference, SourceInfo, ViewId, ViewOptions};

use super::{EntryId, RegistryEffect};
use crate::{coordinator::resolve::Resolved, gateway::calls::CallSpec};

/// The needs of one entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EntryNeeds {
    view: ViewId,
    info: Arc<SourceInfo>,
    options: ViewOptions,
    object: Option<ObjectReference>,
    call: Option<Arc<CallSpec>>,
}

impl EntryNeeds {
    pub(super) fn view(&self) -> &ViewId {
        &self.view
    }

    /// Returns whether they are in the quota of a namespace.
    pub(super) fn is_in_quota(&self) -> bool {
        self.options.in_quota
    }

    /// Returns the same needs, in the quota of a namespace or not.
    pub(super) fn with_quota(mut self, in_quota: bool) -> Self {
        self.options.in_quota = in_quota;
        self
    }

    pub(super) fn new(found: &Resolved) -> Self {
        Self {
            view: found.info.source.view_id(),
            info: Arc::new(found.info.clone()),
            options: found.options.clone(),
            object: found.object.clone(),
            call: found.call.clone(),
        }
    }
}

/// A view, with everybody who needs it.
#[derive(Clone, Debug)]
struct NeededView {
    wanted: DesiredView,
    /// The call to make. Where entries differ in its interval, the last one counts.
    call: Option<Arc<CallSpec>>,
    entries: BTreeSet<EntryId>,
    counts: OptionCounts,
}

/// The options of a view's entries, counted, so that adding or removing an entry costs nothing.
#[derive(Clone, Debug, Default)]
struct OptionCounts {
    entries: usize,
    pinned: usize,
    sealed: usize,
    stops: usize,
    in_quota: usize,
    namespaces_limited: usize,
    limits: BTreeMap<u64, usize>,
}

impl OptionCounts {
    fn add(&mut self, options: &ViewOptions) {
        self.entries += 1;
        self.pinned += usize::from(options.pinned);
        self.sealed += usize::from(options.sealed);
        self.stops += usize::from(options.stops_when_forbidden);
        self.in_quota += usize::from(options.in_quota);
        self.namespaces_limited += usize::from(limits_namespaces(options));
        if let Some(bytes_max) = options.bytes_max {
            *self.limits.entry(bytes_max).or_default() += 1;
        }
    }

    fn remove(&mut self, options: &ViewOptions) {
        self.entries -= 1;
        self.pinned -= usize::from(options.pinned);
        self.sealed -= usize::from(options.sealed);
        self.stops -= usize::from(options.stops_when_forbidden);
        self.in_quota -= usize::from(options.in_quota);
        self.namespaces_limited -= usize::from(limits_namespaces(options));
        if let Some(bytes_max) = options.bytes_max
            && let Some(n) = self.limits.get_mut(&bytes_max)
        {
            *n -= 1;
            if *n == 0 {
                self.limits.remove(&bytes_max);
            }
        }
    }

    /// Combines the options of all dependents. The view is pinned or sealed if one asks for it. Its limit is the
    /// largest one, or none if one asks for none. It is given up, counts into a namespace's quota, or limits the objects
    /// of each namespace, only if all say so.
    fn combined(&self) -> ViewOptions {
        let limited: usize = self.limits.values().sum();
        let largest = self.limits.last_key_value().map(|(bytes, _)| *bytes);
        ViewOptions {
            pinned: self.pinned > 0,
            sealed: self.sealed > 0,
            bytes_max: largest.filter(|_| limited == self.entries),
            stops_when_forbidden: self.stops == self.entries,
            in_quota: self.in_quota == self.entries,
            namespaces_limited: self.namespaces_limited == self.entries,
        }
    }
}

/// Returns whether an entry with these options does not need the view whole.
fn limits_namespaces(options: &ViewOptions) -> bool {
    options.in_quota || options.namespaces_limited
}

/// The entries that refer to an object, each with whether it is in the quota of a namespace.
#[derive(Clone, Debug, Default)]
struct Referrers {
    entries: BTreeMap<EntryId, bool>,
    /// The number of entries that are in no quota.
    of_cluster: usize,
}

impl Referrers {
    fn insert(&mut self, id: EntryId, in_quota: bool) {
        self.of_cluster += usize::from(!in_quota);
        let before = self.entries.insert(id, in_quota);
        self.of_cluster -= usize::from(before == Some(false));
    }

    fn remove(&mut self, id: &EntryId) {
        let before = self.entries.remove(id);
        self.of_cluster -= usize::from(before == Some(false));
    }

    /// Returns whether all of them are in the quota of a namespace; `None`: there are none.
    fn in_quota(&self) -> Option<bool> {
        (!self.entries.is_empty()).then_some(self.of_cluster == 0)
    }
}

/// Everything that is needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    views: HashMap<ViewId, NeededView>,
    objects: HashMap<ObjectKey, Referrers>,
}

impl Needs {
    pub(super) fn on_view(&self, view: &ViewId) -> impl Iterator<Item = &EntryId> {
        let needed = self.views.get(view);
        needed.into_iter().flat_map(|needed| &needed.entries)
    }

    #[cfg(test)]
    pub(super) fn views(&self) -> impl Iterator<Item = &ViewId> {
        self.views.keys()
    }

    /// Replaces the needs `before` of an entry by `after`. `between` comes after the views that begin and before
    /// those that end: readers learn of the new view before the old one is freed.
    pub(super) fn exchange(
        &mut self,
        id: &EntryId,
        before: Option<&EntryNeeds>,
        after: Option<&EntryNeeds>,
        effects: &mut Vec<RegistryEffect>,
        between: impl FnOnce(&mut Vec<RegistryEffect>),
    ) {
        if before == after {
            return between(effects);
        }
        let same_view = match (before, after) {
            (Some(before), Some(after)) => before.view == after.view,
            _ => false,
        };
        if let (Some(before), true) = (before, same_view)
            && let Some(needed) = self.views.get_mut(&before.view)
        {
            needed.counts.remove(&before.options);
        }
        if let Some(after) = after {
            self.need(id, after, effects);
        }
        between(effects);
        if let Some(before) = before {
            let object = after.and_then(|after| after.object.as_ref());
            if before.object.as_ref() != object {
                self.unrefer(id, before, effects);
            }
            if !same_view {
                self.release(id, before, effects);
            }
        }
    }

    fn need(&mut self, id: &EntryId, held: &EntryNeeds, effects: &mut Vec<RegistryEffect>) {
        let mut begins = false;
        let needed = self.views.entry(held.view.clone()).or_insert_with(|| {
            begins = true;
            NeededView {
                wanted: DesiredView {
                    info: (*held.info).clone(),
                    options: ViewOptions::default(),
                },
                call: None,
                entries: BTreeSet::new(),
                counts: OptionCounts::default(),
            }
        });
        needed.entries.insert(id.clone());
        needed.counts.add(&held.options);
        needed.update_options(begins, effects);
        if let Some(call) = &held.call
            && needed.call.as_ref() != Some(call)
        {
            needed.call = Some(Arc::clone(call));
            effects.push(RegistryEffect::Call((*held.info).clone(), Arc::clone(call)));
        }
        if let Some(object) = &held.object {
            let referrers = self.objects.entry(object.key()).or_default();
            let before = referrers.in_quota();
            referrers.insert(id.clone(), held.options.in_quota);
            refer(object, before, referrers.in_quota(), effects);
        }
    }

    fn unrefer(&mut self, id: &EntryId, held: &EntryNeeds, effects: &mut Vec<RegistryEffect>) {
        let Some(object) = &held.object else {
            return;
        };
        let key = object.key();
        let Some(referrers) = self.objects.get_mut(&key) else {
            return;
        };
        let before = referrers.in_quota();
        referrers.remove(id);
        let after = referrers.in_quota();
        if after.is_none() {
            self.objects.remove(&key);
            effects.push(RegistryEffect::Unrefer(object.clone()));
        }
        refer(object, before, after, effects);
    }

    fn release(&mut self, id: &EntryId, held: &EntryNeeds, effects: &mut Vec<RegistryEffect>) {
        let Some(needed) = self.views.get_mut(&held.view) else {
            return;
        };
        needed.entries.remove(id);
        needed.counts.remove(&held.options);
        if !needed.entries.is_empty() {
            return needed.update_options(false, effects);
        }
        if needed.call.is_some() {
            effects.push(RegistryEffect::EndCall(held.view.clone()));
        }
        self.views.remove(&held.view);
        effects.push(RegistryEffect::CloseView(held.view.clone()));
    }
}

/// The object is referenced from now on, or counts in the quota of its namespace from now on, or ceases to.
fn refer(
    object: &ObjectReference,
    before: Option<bool>,
    after: Option<bool>,
    effects: &mut Vec<RegistryEffect>,
) {
    if let Some(in_quota) = after.filter(|_| after != before) {
        effects.push(RegistryEffect::Refer(ObjectReference {
            in_quota,
            ..object.clone()
        }));
    }
}

impl NeededView {
    fn update_options(&mut self, begins: bool, effects: &mut Vec<RegistryEffect>) {
        let options = self.counts.combined();
        if begins || options != self.wanted.options {
            self.wanted.options = options;
            effects.push(RegistryEffect::OpenView(Box::new(self.wanted.clone())));
        }
    }
}
