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
    /// Positions of those that speak of it wherever it lives, in order.
    everywhere: Vec<usize>,
    /// Positions of those of one namespace, by it.
    by_namespace: HashMap<String, Vec<usize>>,
    /// The parts of a request that all of them read.
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
        index
    }

    pub(super) fn candidates(&self, kind: &str) -> &Candidates {
        self.by_kind.get(kind).unwrap_or(&self.of_others)
    }
}

impl Candidates {
    fn add(&mut self, at: usize, entry: &Entry, phase: Phase) {
        let positions = match entry.namespace() {
            None => &mut self.everywhere,
            Some(namespace) => self.by_namespace.entry(namespace.to_owned()).or_default(),
        };
        positions.push(at);
        self.parts.unite(entry.parts.get(phase));
    }

    /// Positions, in order.
    pub(super) fn of(&self, namespace: &str) -> Cow<'_, [usize]> {
        let mut more: Vec<usize> = match namespace {
            "" => self.by_namespace.values().flatten().copied().collect(),
            namespace => match self.by_namespace.get(namespace) {
                Some(positions) => positions.clone(),
                None => Vec::new(),
            },
        };
        if more.is_empty() {
            return Cow::Borrowed(&self.everywhere);
        }
        more.extend_from_slice(&self.everywhere);
        more.sort_unstable();
        Cow::Owned(more)
    }

    pub(super) fn parts(&self) -> &RequestParts {
        &self.parts
    }
}
