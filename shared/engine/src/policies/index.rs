//! The index of policies by the kinds and by the plurals that they name, phase by phase.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use anteroom_policy::{KindPattern, Phase, RequestParts, ServedKind};

use super::CompiledPolicy;

/// An index over the policies with rules of one phase, by the kinds or the plurals that they match.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_kind: NameIndex,
    by_plural: NameIndex,
}

/// Policies by one sort of name.
#[derive(Debug, Default)]
struct NameIndex {
    /// The policies by name, of the names that some policy has.
    named: HashMap<String, Candidates>,
    /// The policies for names without an own list: those policies whose name pattern has wildcards.
    of_others: Candidates,
}

/// The policies that may match a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidatePolicies<'a> {
    by_kind: &'a Candidates,
    by_plural: &'a Candidates,
}

/// The policies that may match a kind, or a plural.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    everywhere: Positions,
    /// The policies by namespace. The parts that they read are united with those of the cluster-wide policies.
    by_namespace: HashMap<String, Positions>,
    /// The parts of a request that the cluster-wide policies and those of every namespace read.
    parts: RequestParts,
}

/// Positions of policies, in order, and the parts of a request that these policies read.
#[derive(Clone, Debug, Default)]
struct Positions {
    positions: Vec<usize>,
    parts: RequestParts,
}

impl Index {
    pub(super) fn of(entries: &[Arc<CompiledPolicy>], phase: Phase) -> Self {
        let names = |entry: &CompiledPolicy, name: fn(&KindPattern) -> Option<&String>| {
            let targets = entry.targets.get(phase).iter();
            let kinds = targets.flat_map(|target| &target.kinds);
            kinds.filter_map(name).cloned().collect()
        };
        Self {
            by_kind: NameIndex::of(entries, phase, |entry| names(entry, kind)),
            by_plural: NameIndex::of(entries, phase, |entry| names(entry, plural)),
        }
    }

    pub(super) fn candidates(&self, served: ServedKind<'_>) -> CandidatePolicies<'_> {
        CandidatePolicies {
            by_kind: self.by_kind.candidates(served.kind),
            by_plural: self.by_plural.candidates(served.resource),
        }
    }
}

fn kind(pattern: &KindPattern) -> Option<&String> {
    pattern.resource.is_none().then_some(&pattern.kind)
}

fn plural(pattern: &KindPattern) -> Option<&String> {
    let resource = pattern.resource.as_ref()?;
    Some(&resource.plural)
}

impl NameIndex {
    fn of(
        entries: &[Arc<CompiledPolicy>],
        phase: Phase,
        names: impl Fn(&CompiledPolicy) -> BTreeSet<String>,
    ) -> Self {
        let is_wildcard = |name: &String| name.contains(['*', '?']);
        let named = entries.iter().flat_map(|entry| names(entry));
        let mut index = Self {
            named: named
                .filter(|name| !is_wildcard(name))
                .map(|name| (name, Candidates::default()))
                .collect(),
            of_others: Candidates::default(),
        };
        for (at, entry) in entries.iter().enumerate() {
            let names = names(entry);
            if names.iter().any(is_wildcard) {
                index.of_others.add(at, entry, phase);
                let named = index.named.values_mut();
                named.for_each(|name| name.add(at, entry, phase));
                continue;
            }
            for name in names {
                if let Some(candidates) = index.named.get_mut(&name) {
                    candidates.add(at, entry, phase);
                }
            }
        }
        let named = index.named.values_mut();
        named
            .chain([&mut index.of_others])
            .for_each(Candidates::unite_parts);
        index
    }

    fn candidates(&self, name: &str) -> &Candidates {
        self.named.get(name).unwrap_or(&self.of_others)
    }
}

impl<'a> CandidatePolicies<'a> {
    /// Returns the positions of the policies that match requests of a namespace, in order; `None`: of any namespace.
    pub(super) fn positions(&self, namespace: Option<&str>) -> Cow<'a, [usize]> {
        let by_kind = self.by_kind.positions(namespace);
        let by_plural = self.by_plural.positions(namespace);
        match (by_kind.is_empty(), by_plural.is_empty()) {
            (_, true) => by_kind,
            (true, false) => by_plural,
            (false, false) => {
                let mut both = [&*by_kind, &*by_plural].concat();
                both.sort_unstable();
                both.dedup();
                Cow::Owned(both)
            }
        }
    }

    /// The parts of a request that the policies read.
    pub(super) fn parts(&self, namespace: Option<&str>) -> Cow<'a, RequestParts> {
        let by_kind = self.by_kind.parts(namespace);
        let by_plural = self.by_plural.parts(namespace);
        // Without policies by plural, the parts are those of the policies by kind.
        if self.by_plural.is_of_none(namespace) {
            return Cow::Borrowed(by_kind);
        }
        if self.by_kind.is_of_none(namespace) {
            return Cow::Borrowed(by_plural);
        }
        let mut both = by_kind.clone();
        both.unite(by_plural);
        Cow::Owned(both)
    }
}

impl Candidates {
    fn add(&mut self, at: usize, entry: &CompiledPolicy, phase: Phase) {
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

    /// Returns the positions of the policies that match requests of a namespace, in order; `None`: of any namespace.
    fn positions(&self, namespace: Option<&str>) -> Cow<'_, [usize]> {
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

    /// Returns whether no policy matches requests of the namespace.
    fn is_of_none(&self, namespace: Option<&str>) -> bool {
        let of_namespaces = match namespace {
            None => !self.by_namespace.is_empty(),
            Some(namespace) => self.by_namespace.contains_key(namespace),
        };
        self.everywhere.positions.is_empty() && !of_namespaces
    }

    /// The parts of a request that the policies read.
    fn parts(&self, namespace: Option<&str>) -> &RequestParts {
        match namespace {
            None => &self.parts,
            Some(namespace) => match self.by_namespace.get(namespace) {
                Some(found) => &found.parts,
                None => &self.everywhere.parts,
            },
        }
    }
}
