//! The plan of the watches to run for the views and references of one type. Pure.
//!
//! The rules, in order:
//!
//! 1. A view of the whole type, or of a whole namespace, has to be watched as such; whatever lies
//!    within is *derived* from that watch and never watched again.
//! 2. Views that select by labels, names and namespaces can be derived from a wider watch. A view with any other
//!    field selector needs a watch of its own, and no other view is derived from that watch.
//! 3. The rest are *narrow* watches: one for each view (and each of its namespaces), one for each referenced object.
//!    Narrow watches of one namespace become one watch of the namespace, and those of a type one watch of the type,
//!    if that costs the API server less: a saved watch is worth [`OBJECTS_PER_WATCH`] more objects. If the size of
//!    the type is not known, they do so above [`NARROW_UNSIZED_MAX`].
//! 4. A wide watch that only saves narrow ones ends once it saves less than half of its cost. So one entry that comes
//!    and goes changes nothing.
//! 5. A wide watch that is forbidden is not planned with, but for a view that is of exactly it.
//! 6. Above [`WATCHES_PER_TYPE_MAX`] watches, a wide watch replaces narrow ones, whatever its cost. A view that does
//!    not fit even so is not watched, and fails with a reason that says so.
//! 7. Derivable views get watches first, so that no number of field selectors keeps one from its watch. Among views
//!    with field selectors, those of all namespaces come first, and then one namespace after the other.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anteroom_model::{
    Collection, GroupVersionResource, LabelSelector, NameSelector, ObjectKey, ViewId,
};

/// The number of objects in a wide watch that cost as much as a saved watch: their list, and their events.
pub(super) const OBJECTS_PER_WATCH: u64 = 500;

/// Narrow watches of a type, or of a namespace, whose size is not known.
pub(super) const NARROW_UNSIZED_MAX: usize = 16;

/// Watches of one type. An API server takes 100 to 250 streams on a connection, and each watch costs
/// it a buffer and a goroutine.
pub(super) const WATCHES_PER_TYPE_MAX: usize = 64;

/// The collection of one watch: a type, in one namespace or in all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WatchScope {
    /// Empty: all.
    pub namespace: String,
    pub labels: String,
    pub fields: String,
}

impl WatchScope {
    pub(super) fn all() -> Self {
        Self::default()
    }

    pub(super) fn of_namespace(namespace: &str) -> Self {
        Self {
            namespace: namespace.into(),
            ..Self::default()
        }
    }

    pub(super) fn of_object(object: &ObjectKey) -> Self {
        Self {
            namespace: object.namespace.to_string(),
            fields: format!("metadata.name={}", object.name),
            ..Self::default()
        }
    }

    /// Returns whether the watch brings a namespace or the type, whole.
    pub(super) fn is_wide(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn holds_namespace(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }

    pub(super) fn collection(&self, gvr: &GroupVersionResource) -> Collection {
        Collection {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..Collection::in_namespace(gvr.clone(), self.namespace.clone())
        }
    }
}

/// The selection of a view, in a form that objects can be held against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ViewFilter {
    /// Empty: all.
    pub namespaces: Vec<String>,
    pub labels: LabelSelector,
    pub fields: NameSelector,
    /// The selectors as the API server has them.
    label_text: String,
    field_text: String,
    /// The selectors can be evaluated here.
    derivable: bool,
}

impl ViewFilter {
    pub(super) fn new(collection: &Collection) -> Self {
        let labels = LabelSelector::parse(&collection.label_selector);
        let fields = NameSelector::parse(&collection.field_selector);
        // What cannot be read here is left to the API server.
        let derivable = labels.is_ok() && fields.is_ok();
        let fields = fields.unwrap_or_default();
        let mut namespaces = collection.namespaces.clone();
        if let (true, Some(namespace)) = (namespaces.is_empty(), fields.namespace()) {
            namespaces = vec![namespace.to_owned()];
        }
        Self {
            namespaces,
            labels: labels.unwrap_or_default(),
            fields,
            label_text: collection.label_selector.clone(),
            field_text: collection.field_selector.clone(),
            derivable,
        }
    }

    /// The watches that bring exactly this.
    pub(super) fn own(&self) -> BTreeSet<WatchScope> {
        let scope = |namespace: &str| WatchScope {
            namespace: namespace.into(),
            labels: self.label_text.clone(),
            fields: self.field_text.clone(),
        };
        match self.namespaces.as_slice() {
            [] => BTreeSet::from([scope("")]),
            some => some.iter().map(|namespace| scope(namespace)).collect(),
        }
    }

    /// Returns whether the view selects every object of its namespaces.
    fn is_whole(&self) -> bool {
        self.label_text.is_empty() && self.field_text.is_empty()
    }

    pub(super) fn derivable(&self) -> bool {
        self.derivable
    }
}

/// The views and references of one type, and its size and rights as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct PlanInput {
    pub views: BTreeMap<ViewId, ViewFilter>,
    /// Referenced objects that have to be watched.
    pub references: BTreeSet<ObjectKey>,
    /// Objects of the type; `None`: not known.
    pub objects: Option<u64>,
    /// Wide watches that the API server forbids.
    pub forbidden: BTreeSet<WatchScope>,
    /// The watches that run now.
    pub current: BTreeSet<WatchScope>,
}

/// The watches to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub scopes: BTreeSet<WatchScope>,
    /// The watches that each view is made of; none where the view does not fit.
    pub views: HashMap<ViewId, BTreeSet<WatchScope>>,
    /// References that do not fit.
    pub unfit: BTreeSet<ObjectKey>,
}

/// Returns whether the size of the type makes a difference to the plan.
pub(super) fn asks_for_size(input: &PlanInput) -> bool {
    let whole = |filter: &ViewFilter| filter.is_whole() && filter.namespaces.is_empty();
    let wide_anyway = input.views.values().any(whole);
    !wide_anyway && input.objects.is_none() && narrow(input).len() > 1
}

/// Returns for each wide watch of a plan the number of narrow ones saved by it that may go before another
/// plan would do without it; `None`: any number, since a view is of exactly it.
pub(super) fn watches_to_spare(
    input: &PlanInput,
    plan: &Plan,
) -> BTreeMap<WatchScope, Option<usize>> {
    let narrow = narrow(input);
    let wide = plan.scopes.iter().filter(|scope| scope.is_wide());
    let spare = wide.map(|scope| {
        let exactly = |filter: &ViewFilter| filter.is_whole() && filter.own().contains(scope);
        if input.views.values().any(exactly) {
            return (scope.clone(), None);
        }
        let within = narrow
            .iter()
            .filter(|own| scope.holds_namespace(&own.namespace));
        let size = size_of(scope, input);
        let least = (0..=WATCHES_PER_TYPE_MAX + 1).find(|count| pays(true, *count, size));
        let spare = within.count().saturating_sub(least.unwrap_or(usize::MAX));
        (scope.clone(), Some(spare))
    });
    spare.collect()
}

/// Returns the number of objects of a wide watch, if it is known well enough: a namespace is not larger than its
/// type.
fn size_of(scope: &WatchScope, input: &PlanInput) -> Option<u64> {
    let small = |objects: &u64| scope.namespace.is_empty() || *objects <= OBJECTS_PER_WATCH;
    input.objects.filter(small)
}

/// The watches of a type.
pub(super) fn plan(input: &PlanInput) -> Plan {
    let mut wide: BTreeSet<WatchScope> = BTreeSet::new();
    for filter in input.views.values().filter(|filter| filter.is_whole()) {
        wide.extend(filter.own());
    }
    let all = WatchScope::all();
    let allowed = |scope: &WatchScope| !input.forbidden.contains(scope);
    let narrow = narrow(input);
    let runs = |scope: &WatchScope| input.current.contains(scope);
    let crowded = narrow.len() + foreign(input).len() > WATCHES_PER_TYPE_MAX;
    let worth = |scope: &WatchScope, count: usize, size: Option<u64>| {
        (crowded && count > 1) || pays(runs(scope), count, size)
    };
    let all_pays = worth(&all, narrow.len(), input.objects);
    if !wide.contains(&all) && allowed(&all) && all_pays {
        wide.insert(all.clone());
    }
    if !(wide.contains(&all) && allowed(&all)) {
        let mut by_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        for scope in narrow.iter().filter(|scope| !scope.namespace.is_empty()) {
            *by_namespace.entry(&scope.namespace).or_default() += 1;
        }
        for (namespace, count) in by_namespace {
            let scope = WatchScope::of_namespace(namespace);
            if allowed(&scope) && worth(&scope, count, size_of(&scope, input)) {
                wide.insert(scope);
            }
        }
    }
    assign(input, &wide)
}

/// Returns the watches that derivable views and references need on their own. A view of a whole namespace makes the
/// narrow watches of the namespace needless.
fn narrow(input: &PlanInput) -> BTreeSet<WatchScope> {
    let filters = input.views.values().filter(|filter| filter.derivable());
    let mut scopes: BTreeSet<WatchScope> = filters.flat_map(ViewFilter::own).collect();
    scopes.extend(input.references.iter().map(WatchScope::of_object));
    let wide: BTreeSet<WatchScope> = scopes
        .iter()
        .filter(|scope| scope.is_wide())
        .cloned()
        .collect();
    scopes.retain(|scope| {
        let namespace = WatchScope::of_namespace(&scope.namespace);
        scope.is_wide() || !wide.contains(&namespace)
    });
    scopes
}

/// Returns the watches for field selectors that only the API server can evaluate.
fn foreign(input: &PlanInput) -> BTreeSet<WatchScope> {
    let filters = input.views.values().filter(|filter| !filter.derivable());
    filters.flat_map(ViewFilter::own).collect()
}

/// Returns the views with field selectors of the API server in the order in which they get watches. Views of all
/// namespaces come first, since only an administrator creates them; then the first view of each namespace, then the
/// second, and so on.
fn in_turns<'a>(
    views: impl Iterator<Item = (&'a ViewId, &'a ViewFilter)>,
) -> Vec<(&'a ViewId, &'a ViewFilter)> {
    let mut of_namespaces: BTreeMap<&[String], usize> = BTreeMap::new();
    let ranked = views.map(|view| {
        let namespaces = view.1.namespaces.as_slice();
        let count = of_namespaces.entry(namespaces).or_default();
        *count += usize::from(!namespaces.is_empty());
        (*count, view)
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank); // Stable: by name within a rank.
    ranked.into_iter().map(|(_, view)| view).collect()
}

/// Returns whether a wide watch instead of `count` narrow ones costs the API server less. `runs`: the wide watch runs
/// already.
fn pays(runs: bool, count: usize, size: Option<u64>) -> bool {
    if count > WATCHES_PER_TYPE_MAX {
        return true;
    }
    let saved = count.saturating_sub(1) as u64 * OBJECTS_PER_WATCH;
    match size {
        _ if saved == 0 => false,
        Some(size) if runs => saved >= size / 2,
        Some(size) => saved >= size,
        None if runs => count > NARROW_UNSIZED_MAX / 2,
        None => count > NARROW_UNSIZED_MAX,
    }
}

fn assign(input: &PlanInput, wide: &BTreeSet<WatchScope>) -> Plan {
    let mut plan = Plan::default();
    let usable: BTreeSet<&WatchScope> = wide
        .iter()
        .filter(|scope| !input.forbidden.contains(scope))
        .collect();
    let cover = |scope: &WatchScope| {
        let all = usable.iter().find(|wide| wide.namespace.is_empty());
        let namespace = usable.iter().find(|wide| wide.namespace == scope.namespace);
        all.or(namespace).map(|wide| (*wide).clone())
    };
    // Whole views get their places first, since their watches bring the objects of narrower views.
    let (whole, rest): (Vec<_>, Vec<_>) = input
        .views
        .iter()
        .partition(|(_, filter)| filter.is_whole());
    let (derivable, foreign): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|(_, filter)| filter.derivable());
    for (view, filter) in whole.into_iter().chain(derivable) {
        let own = filter.own().into_iter();
        let scopes = own.map(|scope| cover(&scope).unwrap_or(scope));
        plan.place(view, scopes.collect());
    }
    for object in &input.references {
        let own = WatchScope::of_object(object);
        let scope = cover(&own).unwrap_or(own);
        if plan.fits(&BTreeSet::from([scope.clone()])) {
            plan.scopes.insert(scope);
        } else {
            plan.unfit.insert(object.clone());
        }
    }
    for (view, filter) in in_turns(foreign.into_iter()) {
        plan.place(view, filter.own());
    }
    plan
}

impl Plan {
    /// Assigns these watches to the view, if they fit.
    fn place(&mut self, view: &ViewId, scopes: BTreeSet<WatchScope>) {
        let placed = match self.fits(&scopes) {
            true => scopes,
            false => BTreeSet::new(),
        };
        self.scopes.extend(placed.iter().cloned());
        self.views.insert(view.clone(), placed);
    }

    fn fits(&self, scopes: &BTreeSet<WatchScope>) -> bool {
        let new = scopes.difference(&self.scopes).count();
        new == 0 || self.scopes.len() + new <= WATCHES_PER_TYPE_MAX
    }
}

#[cfg(test)]
mod tests;
