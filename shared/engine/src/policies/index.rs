//! The index of policies by kind, phase by phase.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use anteroom_policy::{Phase, RequestParts};

use super::Entry;

/// The policies with rules of one phase, by the kinds that these speak of.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The policies by kind, of the kinds that some policy names.
    by_kind: HashMap<String, Candidates>,
    /// The policies for all other kinds: those that name one with wildcards.
    of_others: Candidates,
}

/// The policies that may speak of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    everywhere: Found,
    /// Those of one namespace, by it. Their parts are united with those that are read everywhere.
    by_namespace: HashMap<String, Found>,
    /// The parts of a request that all of them read, of whatever namespace.
    parts: RequestParts,
}

/// Positions of policies, in order, and the parts of a request that these policies read.
#[derive(Clone, Debug, Default)]
struct Found {
    positions: Vec<usize>,
    parts: RequestParts,
}

impl Index {
    pub(super) fn of(entries: &[Arc<Entry>], phase: Phase) -> Self {
        let kinds = |entry: &Entry| -> BTreeSet<String> {
            let targets = entry.targets.get(phase).iter();
            let kinds = targets.flat_map(|target| &target.kinds);
            kinds.map(|kind| kind.kind.clone()).collect()
        };
        let is_wildcard = |kind: &String| kind.contains(['*', '?']);
        let named = entries.iter().flat_map(|entry| kinds(entry));
        let mut index = Self {
            by_kind: named
                .filter(|kind| !is_wildcard(kind))
                .map(|kind| (kind, Candidates::default()))
                .collect(),
            of_others: Candidates::default(),
        };
        for (at, entry) in entries.iter().enumerate() {
            let kinds = kinds(entry);
            if kinds.iter().any(is_wildcard) {
                index.of_others.add(at, entry, phase);
                let by_kind = index.by_kind.values_mut();
                by_kind.for_each(|kind| kind.add(at, entry, phase));
                continue;
            }
            for kind in kinds {
                if let Some(candidates) = index.by_kind.get_mut(&kind) {
                    candidates.add(at, entry, phase);
                }
            }
        }
        let by_kind = index.by_kind.values_mut();
        by_kind
            .chain([&mut index.of_others])
            .for_each(Candidates::unite_parts);
        index
    }

    pub(super) fn candidates(&self, kind: &str) -> &Candidates {
        self.by_kind.get(kind).unwrap_or(&self.of_others)
    }
}

impl Candidates {
    fn add(&mut self, at: usize, entry: &Entry, phase: Phase) {
        let found = match entry.namespace() {
            None => &mut self.everywhere,
            Some(namespace) => self.by_namespace.entry(namespace.to_owned()).or_default(),
        };
        let parts = entry.parts.get(phase);
        found.positions.push(at);
        found.parts.unite(parts);
        self.parts.unite(parts);
    }

    fn unite_parts(&mut self) {
        for found in self.by_namespace.values_mut() {
            found.parts.unite(&self.everywhere.parts);
        }
    }

    /// The positions of those that speak of a namespace, in order; `None`: of any.
    pub(super) fn of(&self, namespace: Option<&str>) -> Cow<'_, [usize]> {
        let everywhere = &self.everywhere.positions;
        let mut more: Vec<usize> = match namespace {
            None => {
                let found = self.by_namespace.values();
                found.flat_map(|found| &found.positions).copied().collect()
            }
            Some(namespace) => match self.by_namespace.get(namespace) {
                Some(found) => found.positions.clone(),
                None => Vec::new(),
            },
        };
        if more.is_empty() {
            return Cow::Borrowed(everywhere);
        }
        more.extend_from_slice(everywhere);
        more.sort_unstable();
        Cow::Owned(more)
    }

    /// The parts of a request that those read.
    pub(super) fn parts(&self, namespace: Option<&str>) -> &RequestParts {
        match namespace {
            None => &self.parts,
            Some(namespace) => match self.by_namespace.get(namespace) {
                Some(found) => &found.parts,
                None => &self.everywhere.parts,
            },
        }
    }
}
