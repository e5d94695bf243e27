//! The plan: which objects have to be judged by which policies, so that only changes are judged. Pure.
//!
//! A [`PolicyScan`] is a policy with a view that it is scanned on. For each scan the plan knows the state of the view
//! up to which the policy has judged. A [`Walk`] leads from there to the view's present state: over the objects that
//! differ, or over all objects if the policy has a new version. Policies at the same state walk together, so that an
//! object is read once for all of them.
//!
//! A walk takes in changes that come while it is under way, before its remaining steps ([`Walk::extend`]). A policy
//! that may have to wait for facts walks alone.
//!
//! A walk goes to its end, whatever becomes of the policies meanwhile: so it is always known of which
//! objects something may be in the findings. A policy that changed on the way begins anew afterwards.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anteroom_model::{ObjectKey, ViewId};

use crate::findings::PolicyScan;

/// The most unreadable objects of one view that are remembered one by one. Where there are more at once, no
/// finding on any object of the view is known, until all were judged anew.
const UNREAD_MAX: usize = 1_000;

/// A state of a view. Cheap to clone.
pub(crate) trait ViewSnapshot: Clone {
    /// An object in it.
    type Object;

    /// Returns whether `other` is the very same state.
    fn is(&self, other: &Self) -> bool;

    /// Returns the steps from `before` (`None`: from nothing) to this one, in order.
    fn since(&self, before: Option<&Self>) -> Vec<WalkStep<Self::Object>>;

    /// Every object.
    fn all(&self) -> Vec<Self::Object>;

    /// Returns the object's UID; `None`: it has none, and is not judged.
    fn uid(object: &Self::Object) -> Option<String>;

    /// The namespace and name of an object.
    fn key(object: &Self::Object) -> ObjectKey;

    /// The object of this key.
    fn get(&self, key: &ObjectKey) -> Option<Self::Object>;
}

/// One step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkStep<O> {
    /// The object exists, and has to be judged.
    Judge(O),
    /// The object of this UID is gone.
    Forget(String),
}

/// A policy on a walk.
#[derive(Clone, Debug)]
struct Walker {
    policy: ObjectKey,
    /// The number of the policy's arrival, as in [`ScanProgress`].
    born: u64,
    version: u64,
}

/// A walk from one state of a view to a later state, for policies that are at the same state.
#[derive(Debug)]
pub(crate) struct Walk<S: ViewSnapshot> {
    pub(crate) view: ViewId,
    policies: Vec<Walker>,
    steps: std::vec::IntoIter<WalkStep<S::Object>>,
    /// `None`: it leads nowhere, and looks at some objects again.
    to: Option<S>,
    /// The number of next steps that are about recent changes.
    urgent: usize,
    /// Judging on this walk may have to wait for facts.
    waits: bool,
    /// The walk visits every object.
    is_whole: bool,
    /// The unreadable objects of the walk so far.
    unread: Unread,
}

/// Objects that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unread {
    keys: BTreeSet<ObjectKey>,
    /// There are more unreadable objects than are remembered.
    more: bool,
}

impl Unread {
    /// Notes an unreadable object. Objects that are gone in `state` make room first.
    fn put<S: ViewSnapshot>(&mut self, key: &ObjectKey, state: Option<&S>) {
        if self.more || self.keys.contains(key) {
            return;
        }
        if self.keys.len() >= UNREAD_MAX {
            let is_there = |key: &ObjectKey| state.is_none_or(|state| state.get(key).is_some());
            self.keys.retain(is_there);
            self.more = self.keys.len() >= UNREAD_MAX && is_there(key);
        }
        if self.keys.len() < UNREAD_MAX {
            self.keys.insert(key.clone());
        }
    }

    /// Notes the unreadable objects of `other` too.
    fn add<S: ViewSnapshot>(&mut self, other: &Self, state: Option<&S>) {
        self.more |= other.more;
        other.keys.iter().for_each(|key| self.put(key, state));
    }
}

impl<S: ViewSnapshot> Walk<S> {
    /// Returns at most `steps_max` next steps; an empty result: the walk has ended.
    pub(crate) fn take(&mut self, steps_max: usize) -> Vec<WalkStep<S::Object>> {
        self.urgent = self.urgent.saturating_sub(steps_max);
        self.steps.by_ref().take(steps_max).collect()
    }

    /// Returns whether the walk is at unchanged objects, so that no recent change waits for the walk.
    pub(crate) fn is_of_all(&self) -> bool {
        self.urgent == 0
    }

    /// Returns whether judging on it may have to wait for facts.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Returns whether the walk leads to no new state, and only judges unjudged objects again.
    pub(crate) fn is_again(&self) -> bool {
        self.to.is_none()
    }

    /// Ends the walk before its remaining steps.
    pub(crate) fn end(&mut self) {
        self.steps = Vec::new().into_iter();
        self.urgent = 0;
    }

    /// Leads the walk to this state of the view. The steps for new changes come first, so that they do not wait for
    /// the rest.
    pub(crate) fn extend(&mut self, now: &S) {
        let Some(to) = self.to.as_ref().filter(|to| !to.is(now)) else {
            return;
        };
        let changes = now.since(Some(to));
        let changed: HashSet<String> = changes.iter().filter_map(uid::<S>).collect();
        let others: HashSet<ObjectKey> = changes.iter().filter_map(key::<S>).collect();
        // What was to be said of them is of an earlier time. One without a UID is known by its key alone.
        let is_as_it_was = |step: &WalkStep<S::Object>| match uid::<S>(step) {
            Some(uid) => !changed.contains(&uid),
            None => key::<S>(step).is_none_or(|key| !others.contains(&key)),
        };
        self.urgent += changes.len();
        let rest = std::mem::take(&mut self.steps).filter(is_as_it_was);
        self.steps = changes
            .into_iter()
            .chain(rest)
            .collect::<Vec<_>>()
            .into_iter();
        // The urgent steps may be different steps now.
        self.urgent = self.urgent.min(self.steps.len());
        self.to = Some(now.clone());
    }

    /// The number of steps that are left.
    pub(crate) fn left(&self) -> usize {
        self.steps.len()
    }
}

/// The state of a policy on a view.
#[derive(Debug)]
struct ScanProgress<S> {
    /// The state of the view whose objects the policy has judged, and no others; `None`: it has judged none.
    seen: Option<S>,
    /// The policy has judged them in its present version.
    is_current: bool,
    /// The number of its arrival: a policy that goes and comes again is another.
    born: u64,
    /// Counts the policy's versions.
    version: u64,
    walks: bool,
    /// The objects that could not be read at the last visit.
    unread: Unread,
}

impl<S> Default for ScanProgress<S> {
    fn default() -> Self {
        Self {
            seen: None,
            is_current: false,
            born: 0,
            version: 0,
            walks: false,
            unread: Unread::default(),
        }
    }
}

impl<S> ScanProgress<S> {
    fn walker(&self, policy: &ObjectKey) -> Walker {
        Walker {
            policy: policy.clone(),
            born: self.born,
            version: self.version,
        }
    }
}

/// All policies that are scanned, and where they stand.
#[derive(Debug)]
pub(crate) struct ScanPlan<S> {
    scans: BTreeMap<PolicyScan, ScanProgress<S>>,
    versions: u64,
    /// The unreadable objects may be others than when that was last asked.
    unread_changed: bool,
}

impl<S> Default for ScanPlan<S> {
    fn default() -> Self {
        Self {
            scans: BTreeMap::new(),
            versions: 0,
            unread_changed: true,
        }
    }
}

impl<S: ViewSnapshot> ScanPlan<S> {
    /// Sets the scans. Scans that are no longer among them are removed, and the caller has to remove their findings.
    /// Returns whether any was removed.
    pub(crate) fn set(&mut self, scans: &BTreeSet<PolicyScan>) -> bool {
        self.unread_changed = true;
        let before = self.scans.len();
        self.scans.retain(|scan, _| scans.contains(scan));
        let forgotten = self.scans.len() != before;
        for scan in scans {
            if !self.scans.contains_key(scan) {
                self.versions += 1;
                let at = ScanProgress {
                    born: self.versions,
                    version: self.versions,
                    ..ScanProgress::default()
                };
                self.scans.insert(scan.clone(), at);
            }
        }
        forgotten
    }

    /// Returns whether this scan is among the scanned policies.
    pub(crate) fn has(&self, scan: &PolicyScan) -> bool {
        self.scans.contains_key(scan)
    }

    /// Marks the concerned policies to judge all objects again, because the policies changed or time has passed.
    pub(crate) fn rescan_all(&mut self, is_concerned: impl Fn(&ObjectKey) -> bool) {
        for (scan, at) in &mut self.scans {
            if is_concerned(&scan.policy) {
                self.versions += 1;
                at.version = self.versions;
                at.is_current = false;
            }
        }
    }

    /// Returns the walks that can begin, by the present states of the views (`None`: the state is unknown). A policy
    /// that may have to wait for facts walks alone, so that it delays no other.
    pub(crate) fn walks(
        &mut self,
        now: impl Fn(&ViewId) -> Option<S>,
        waits: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<Walk<S>> {
        let views: BTreeSet<_> = self.scans.keys().map(|f| f.view.clone()).collect();
        let mut walks = Vec::new();
        for view in views {
            if let Some(state) = now(&view) {
                self.walks_on(&view, &state, &waits, &mut walks);
            }
        }
        walks
    }

    fn walks_on(
        &mut self,
        view: &ViewId,
        to: &S,
        waits: &impl Fn(&ObjectKey) -> bool,
        walks: &mut Vec<Walk<S>>,
    ) {
        // Policies by where they stand; there are few such states.
        let mut groups: Vec<(Option<S>, bool, Walk<S>)> = Vec::new();
        for (scan, at) in &mut self.scans {
            let there = at.is_current && at.seen.as_ref().is_some_and(|seen| seen.is(to));
            if scan.view != *view || at.walks || there {
                continue;
            }
            at.walks = true;
            let policy = at.walker(&scan.policy);
            let waits = waits(&scan.policy);
            let stands = |(seen, is_current, walk): &&mut (Option<S>, bool, Walk<S>)| {
                !waits
                    && !walk.waits
                    && *is_current == at.is_current
                    && match (seen, &at.seen) {
                        (Some(one), Some(other)) => one.is(other),
                        (None, None) => true,
                        _ => false,
                    }
            };
            match groups.iter_mut().find(stands) {
                Some((_, _, walk)) => walk.policies.push(policy),
                None => {
                    let steps = steps(at.seen.as_ref(), at.is_current, to);
                    let walk = Walk {
                        view: view.clone(),
                        policies: vec![policy],
                        urgent: if at.is_current { steps.len() } else { 0 },
                        steps: steps.into_iter(),
                        to: Some(to.clone()),
                        waits,
                        is_whole: !at.is_current,
                        unread: Unread::default(),
                    };
                    groups.push((at.seen.clone(), at.is_current, walk));
                }
            }
        }
        walks.extend(groups.into_iter().map(|(_, _, walk)| walk));
    }

    /// Returns whether the policy has to judge everything anew somewhere, or does so.
    pub(crate) fn is_behind(&self, policy: &ObjectKey) -> bool {
        let mut scans = self.scans.iter();
        scans.any(|(scan, at)| scan.policy == *policy && !at.is_current)
    }

    /// Returns whether every policy has judged everything in its present version.
    pub(crate) fn is_current(&self) -> bool {
        self.scans.values().all(|at| at.is_current)
    }

    /// Returns a walk that judges these objects again, in the state that the policy has reached. `None`: the policy is
    /// on a walk, has reached no state, or none of the objects exists there.
    pub(crate) fn rescan_objects(
        &mut self,
        scan: &PolicyScan,
        objects: &[ObjectKey],
    ) -> Option<Walk<S>> {
        let at = self.scans.get_mut(scan).filter(|at| !at.walks)?;
        let seen = at.seen.as_ref()?;
        let objects = objects.iter().filter_map(|key| seen.get(key));
        let steps: Vec<_> = objects.map(WalkStep::Judge).collect();
        if steps.is_empty() {
            return None;
        }
        at.walks = true;
        Some(Walk {
            view: scan.view.clone(),
            policies: vec![at.walker(&scan.policy)],
            steps: steps.into_iter(),
            to: None,
            urgent: 0,
            waits: true,
            is_whole: false,
            unread: Unread::default(),
        })
    }

    /// Returns the scans on this walk whose policies are unchanged.
    pub(crate) fn on(&self, walk: &Walk<S>) -> Vec<PolicyScan> {
        let scans = walk.policies.iter().map(|walker| {
            let scan = PolicyScan {
                policy: walker.policy.clone(),
                view: walk.view.clone(),
            };
            (scan, walker.born)
        });
        scans
            .filter(|(scan, born)| self.scans.get(scan).is_some_and(|at| at.born == *born))
            .map(|(scan, _)| scan)
            .collect()
    }

    /// Notes that the walk visited these objects, and which of them could not be read. The results on unreadable
    /// objects are unknown.
    pub(crate) fn note_visited<'o>(
        &mut self,
        walk: &mut Walk<S>,
        objects: impl Iterator<Item = (&'o ObjectKey, bool)>,
    ) {
        let scans = self.on(walk);
        for (object, is_readable) in objects {
            if !is_readable {
                walk.unread.put(object, walk.to.as_ref());
                continue;
            }
            walk.unread.keys.remove(object);
            for scan in &scans {
                if let Some(at) = self.scans.get_mut(scan) {
                    self.unread_changed |= at.unread.keys.remove(object);
                }
            }
        }
    }

    /// Takes the results of a walk that is at its end.
    pub(crate) fn finish_walk(&mut self, walk: Walk<S>) {
        for walker in walk.policies {
            let scan = PolicyScan {
                policy: walker.policy,
                view: walk.view.clone(),
            };
            let at = self.scans.get_mut(&scan);
            let Some(at) = at.filter(|at| at.born == walker.born) else {
                continue;
            };
            self.unread_changed = true;
            at.walks = false;
            if walk.is_whole {
                at.unread = Unread::default();
            }
            at.unread
                .add(&walk.unread, walk.to.as_ref().or(at.seen.as_ref()));
            if let Some(to) = &walk.to {
                at.seen = Some(to.clone());
                at.is_current = at.version == walker.version;
            }
        }
    }

    /// Returns the objects on which the scan's results are unknown; `None`: all.
    pub(crate) fn unread_objects(&self, scan: &PolicyScan) -> Option<Vec<&ObjectKey>> {
        let at = self.scans.get(scan).filter(|at| !at.unread.more)?;
        let seen = at.seen.as_ref()?;
        // What is gone has nothing to be read.
        let keys = at.unread.keys.iter();
        Some(keys.filter(|key| seen.get(key).is_some()).collect())
    }

    /// Returns whether [`ScanPlan::unread_objects`] may say something else than when this was last asked.
    pub(crate) fn take_unread_changed(&mut self) -> bool {
        std::mem::take(&mut self.unread_changed)
    }

    /// The number of scans.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.scans.len()
    }
}

/// Returns the object that a step is about.
fn uid<S: ViewSnapshot>(step: &WalkStep<S::Object>) -> Option<String> {
    match step {
        WalkStep::Judge(object) => S::uid(object),
        WalkStep::Forget(uid) => Some(uid.clone()),
    }
}

/// The key of the object that has to be judged.
fn key<S: ViewSnapshot>(step: &WalkStep<S::Object>) -> Option<ObjectKey> {
    match step {
        WalkStep::Judge(object) => Some(S::key(object)),
        WalkStep::Forget(_) => None,
    }
}

fn steps<S: ViewSnapshot>(seen: Option<&S>, is_current: bool, to: &S) -> Vec<WalkStep<S::Object>> {
    let steps = to.since(seen);
    if is_current || seen.is_none() {
        return steps;
    }
    // All of them, and what is gone.
    let gone = steps
        .into_iter()
        .filter(|step| matches!(step, WalkStep::Forget(_)));
    let all = to.all().into_iter().map(WalkStep::Judge);
    gone.chain(all).collect()
}

#[cfg(test)]
mod tests;
