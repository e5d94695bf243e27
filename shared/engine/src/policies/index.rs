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

/// Policies by one sort of name. A tenant may name any number of kinds, so names that the same policies have share what
/// is kept of these.
#[derive(Debug)]
struct NameIndex {
    /// The position in `sets` of the policies of a name, of the names that some policy has.
    named: HashMap<String, usize>,
    /// Sets of policies, each once. The first is of names without a set of their own.
    sets: Vec<Candidates>,
    /// The policies of namespaces whose names have wildcards: they may speak of every name.
    wild: HashMap<String, Positions>,
}

/// The policies that may match a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidatePolicies<'a> {
    by_kind: NamedPolicies<'a>,
    by_plural: NamedPolicies<'a>,
}

/// The policies that may speak of a kind, or of a plural.
#[derive(Clone, Copy, Debug)]
struct NamedPolicies<'a> {
    named: &'a Candidates,
    wild: &'a HashMap<String, Positions>,
}

/// The policies that have a name, and those for everywhere whose names have wildcards.
#[derive(Clone, Debug, Default)]
struct Candidates {
    everywhere: Arc<Positions>,
    /// The policies by namespace. Their parts are united with those of the policies for everywhere.
    by_namespace: HashMap<String, Positions>,
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
            let registered = entry.registered_kinds.get(phase).iter();
            let kinds = registered.flat_map(|one| &one.kinds);
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

impl Default for NameIndex {
    fn default() -> Self {
        Self::of(&[], Phase::Validation, |_| BTreeSet::new())
    }
}

impl NameIndex {
    fn of(
        entries: &[Arc<CompiledPolicy>],
        phase: Phase,
        names: impl Fn(&CompiledPolicy) -> BTreeSet<String>,
    ) -> Self {
        let is_wildcard = |name: &String| name.contains(['*', '?']);
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        let mut with_wildcards = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let names = names(entry);
            if names.iter().any(is_wildcard) {
                with_wildcards.push(at);
                continue;
            }
            for name in names {
                by_name.entry(name).or_default().push(at);
            }
        }
        let is_everywhere = |at: &usize| entries[*at].namespace().is_none();
        let (everywhere, of_namespaces): (Vec<_>, Vec<_>) =
            with_wildcards.into_iter().partition(is_everywhere);
        let mut sets = CandidateSets {
            entries,
            phase,
            with_wildcards: everywhere,
            everywhere: HashMap::new(),
            known: HashMap::new(),
            sets: Vec::new(),
        };
        sets.set_of(Vec::new());
        let named = by_name.into_iter();
        Self {
            named: named
                .map(|(name, positions)| (name, sets.set_of(positions)))
                .collect(),
            sets: sets.sets,
            wild: by_namespace(entries, phase, of_namespaces),
        }
    }

    fn candidates(&self, name: &str) -> NamedPolicies<'_> {
        let set = self.named.get(name).copied().unwrap_or_default();
        NamedPolicies {
            named: &self.sets[set],
            wild: &self.wild,
        }
    }
}

/// Makes the sets of an index: one for equal policies, which share equal policies for everywhere.
struct CandidateSets<'a> {
    entries: &'a [Arc<CompiledPolicy>],
    phase: Phase,
    /// The policies for everywhere whose names have wildcards.
    with_wildcards: Vec<usize>,
    everywhere: HashMap<Vec<usize>, Arc<Positions>>,
    /// The position of the set of these policies.
    known: HashMap<Vec<usize>, usize>,
    sets: Vec<Candidates>,
}

impl CandidateSets<'_> {
    /// Returns the position of the set of these policies, and makes it if it is the first.
    fn set_of(&mut self, positions: Vec<usize>) -> usize {
        if let Some(known) = self.known.get(&positions) {
            return *known;
        }
        let is_everywhere = |at: &usize| self.entries[*at].namespace().is_none();
        let (mut everywhere, of_namespaces): (Vec<_>, Vec<_>) =
            positions.iter().copied().partition(is_everywhere);
        everywhere.extend(&self.with_wildcards);
        everywhere.sort_unstable();
        let everywhere = match self.everywhere.get(&everywhere) {
            Some(known) => Arc::clone(known),
            None => {
                let mut made = Positions::default();
                let entries = everywhere.iter().map(|at| (*at, &*self.entries[*at]));
                entries.for_each(|(at, entry)| made.add(at, entry, self.phase));
                let made = Arc::new(made);
                self.everywhere.insert(everywhere, Arc::clone(&made));
                made
            }
        };
        let mut by_namespace = by_namespace(self.entries, self.phase, of_namespaces);
        for found in by_namespace.values_mut() {
            found.parts.unite(&everywhere.parts);
        }
        let set = self.sets.len();
        self.sets.push(Candidates {
            everywhere,
            by_namespace,
        });
        self.known.insert(positions, set);
        set
    }
}

/// The policies of these positions by their namespace.
fn by_namespace(
    entries: &[Arc<CompiledPolicy>],
    phase: Phase,
    positions: Vec<usize>,
) -> HashMap<String, Positions> {
    let mut by_namespace: HashMap<String, Positions> = HashMap::new();
    for at in positions {
        let entry = &*entries[at];
        let namespace = entry.namespace().unwrap_or_default().to_owned();
        by_namespace
            .entry(namespace)
            .or_default()
            .add(at, entry, phase);
    }
    by_namespace
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
        // Without policies by plural, the parts are those of the policies by kind.
        if self.by_plural.is_of_none(namespace) {
            return by_kind;
        }
        let by_plural = self.by_plural.parts(namespace);
        if self.by_kind.is_of_none(namespace) {
            return by_plural;
        }
        let mut both = by_kind.into_owned();
        both.unite(&by_plural);
        Cow::Owned(both)
    }
}

impl<'a> NamedPolicies<'a> {
    /// The policies of a namespace; `None`: of all namespaces.
    fn of_namespaces(self, namespace: Option<&str>) -> Vec<&'a Positions> {
        let maps = [&self.named.by_namespace, self.wild].into_iter();
        match namespace {
            None => maps.flat_map(HashMap::values).collect(),
            Some(namespace) => maps.filter_map(|map| map.get(namespace)).collect(),
        }
    }

    /// The positions of those that speak of a namespace, in order; `None`: of any.
    fn positions(self, namespace: Option<&str>) -> Cow<'a, [usize]> {
        let everywhere = &self.named.everywhere.positions;
        let of_namespaces = self.of_namespaces(namespace).into_iter();
        let mut more: Vec<usize> = of_namespaces
            .flat_map(|found| &found.positions)
            .copied()
            .collect();
        if more.is_empty() {
            return Cow::Borrowed(everywhere);
        }
        more.extend_from_slice(everywhere);
        more.sort_unstable();
        Cow::Owned(more)
    }

    /// Returns whether none speaks of the namespace.
    fn is_of_none(self, namespace: Option<&str>) -> bool {
        self.named.everywhere.positions.is_empty() && self.of_namespaces(namespace).is_empty()
    }

    /// The parts of a request that the policies read.
    fn parts(self, namespace: Option<&str>) -> Cow<'a, RequestParts> {
        let everywhere = &self.named.everywhere.parts;
        let found = self.of_namespaces(namespace);
        let is_named = namespace.is_some_and(|of| self.named.by_namespace.contains_key(of));
        match *found {
            [] => Cow::Borrowed(everywhere),
            // Its parts are united with those for everywhere.
            [named] if is_named => Cow::Borrowed(&named.parts),
            _ => {
                let mut parts = everywhere.clone();
                found.iter().for_each(|found| parts.unite(&found.parts));
                Cow::Owned(parts)
            }
        }
    }
}

impl Positions {
    fn add(&mut self, at: usize, entry: &CompiledPolicy, phase: Phase) {
        self.positions.push(at);
        self.parts.unite(entry.parts.get(phase));
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::ObjectKey;
    use serde_json::json;

    use super::*;
    use crate::{policies::PolicySet, testing::manifest};

    /// The sets of an index of 50 policies of two namespaces and the cluster, with 2,000 kinds each.
    #[test]
    fn names_of_the_same_policies_share_one_set_of_candidates() {
        let policies = (0..50).map(|policy| {
            let kinds: Vec<_> = (0..2_000).map(|n| format!("K{policy}x{n}")).collect();
            let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
            let namespace = ["", "a", "b"][policy % 3];
            let body = manifest(&kinds, |manifest| {
                if !namespace.is_empty() {
                    manifest["kind"] = json!("Policy");
                    manifest["metadata"]["namespace"] = json!(namespace);
                }
            });
            (ObjectKey::new(namespace, format!("p{policy}")), body)
        });
        let wild = ["c", "d"].map(|namespace| {
            let body = manifest(&["*"], |manifest| {
                manifest["kind"] = json!("Policy");
                manifest["metadata"]["namespace"] = json!(namespace);
            });
            (ObjectKey::new(namespace, "wild"), body)
        });
        let set = PolicySet::build(&PolicySet::default(), policies.chain(wild));
        assert_eq!(set.counts(), (52, 0));
        let index = &set.indexes.get(Phase::Validation).by_kind;
        assert_eq!(index.named.len(), 100_000);
        assert_eq!(
            index.sets.len(),
            51,
            "one for each policy, and one for other names"
        );
        let of_namespaces = index.sets.iter().map(|set| set.by_namespace.len());
        assert_eq!(
            of_namespaces.sum::<usize>(),
            33,
            "none has those with wildcards"
        );
        assert_eq!(index.wild.len(), 2);
        assert_eq!(index.candidates("K7x3").positions(Some("c")).len(), 1);
        assert_eq!(index.candidates("K7x3").positions(None).len(), 3);
    }
}
