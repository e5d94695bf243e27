//! The reads of a policy, as known before any request comes.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_jmespath::Expression;
use anteroom_model::EntryKind;

use crate::ir::{
    CollectionReference, NamedObject, Policy, PolicyException, Reference, Rule,
    cel::Cel,
    context::{ContextFact, FactOrigin, Loader},
    exception::CelException,
    template::Prepared,
};

impl Policy {
    /// Returns the entries that the rules read, each once. Entries with a variable in their name are left out: the
    /// name is unknown before a request comes.
    pub fn entries(&self) -> impl Iterator<Item = (EntryKind, &str)> {
        let names: BTreeSet<_> = self
            .sources()
            .filter_map(|source| match source {
                FactOrigin::Entry { kind, name } => Some((*kind, entry_name(*kind, name.fixed()?))),
                _ => None,
            })
            .collect();
        names.into_iter()
    }

    /// Returns the queries over entries: kind, name, and the expression over the entry's data. No name: it
    /// has a variable in it, so it may be any. No expression: all of the data, or an expression that is known
    /// only with a request.
    pub fn entry_queries(
        &self,
    ) -> impl Iterator<Item = (EntryKind, Option<&str>, Option<&Expression>)> {
        self.facts().filter_map(|fact| match &fact.source {
            FactOrigin::Entry { kind, name } => {
                let query = fact.pushed_down_query().and_then(Prepared::fixed);
                let name = name.fixed().map(|name| entry_name(*kind, name));
                Some((*kind, name, query))
            }
            _ => None,
        })
    }

    /// Returns the references for which views have to be kept, or may be. Each reference comes once; it is declared
    /// if any of the rules declares it.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        let mut by_name: BTreeMap<String, Reference> = BTreeMap::new();
        let all = self.sources().flat_map(|source| self.references_of(source));
        let surroundings = self
            .rules
            .iter()
            .flat_map(|rule| surroundings(rule.asks_labels(), rule.reads_roles()));
        let beside = self.rules.iter().filter_map(Rule::cel);
        let beside = beside.flat_map(Cel::references);
        for reference in all.chain(surroundings).chain(beside) {
            let name = reference.name();
            let rank = |reference: &Reference| (reference.is_inline(), reference.is_declared());
            let known = by_name.get(&name).map(rank);
            if known.is_none_or(|known| known < rank(&reference)) {
                by_name.insert(name, reference);
            }
        }
        by_name.into_values()
    }

    /// Returns whether a rule may have to wait for a fact: it reads one in its context, or is about something
    /// that a request does not carry.
    pub fn may_wait(&self) -> bool {
        self.facts().next().is_some() || self.references().next().is_some()
    }

    fn sources(&self) -> impl Iterator<Item = &FactOrigin> {
        self.facts().map(|fact| &fact.source)
    }

    fn facts(&self) -> impl Iterator<Item = &ContextFact> {
        self.rules
            .iter()
            .flat_map(Rule::entries)
            .filter_map(|entry| match &entry.loader {
                Loader::Fact(fact) => Some(&**fact),
                Loader::Given | Loader::Variable { .. } => None,
            })
    }

    fn references_of(&self, source: &FactOrigin) -> Vec<Reference> {
        match source {
            FactOrigin::Collection(collection) => vec![Reference::Collection(collection.clone())],
            FactOrigin::Api(call) => {
                let reference = call.by_view.as_ref().map(|plan| plan.reference.clone());
                reference.into_iter().collect()
            }
            FactOrigin::ConfigMap(call) => {
                let literal = call.literal(self.namespace()).map(|(namespace, name)| {
                    Reference::Object(NamedObject {
                        group: String::new(),
                        version: "v1".to_owned(),
                        resource: "configmaps".to_owned(),
                        namespace,
                        name,
                        declared: false,
                        inline: false,
                    })
                });
                let labelled = Reference::LabelledConfigMaps;
                literal.into_iter().chain([labelled]).collect()
            }
            FactOrigin::Entry { .. } | FactOrigin::Service(_) | FactOrigin::Image(_) => Vec::new(),
        }
    }
}

/// Returns the references for facts about a request that it does not carry.
fn surroundings(asks_labels: bool, asks_roles: bool) -> impl Iterator<Item = Reference> {
    let labels = asks_labels.then(CollectionReference::namespaces);
    let bindings = [false, true].map(CollectionReference::role_bindings);
    let bindings = bindings.into_iter().filter(move |_| asks_roles);
    labels
        .into_iter()
        .chain(bindings)
        .map(Reference::Collection)
}

impl PolicyException {
    /// The references that must be kept to decide whether the exception applies.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        let in_cel = self.in_cel.as_ref();
        let reads_namespace = in_cel.is_some_and(CelException::reads_namespace);
        let asks_labels = self.matches.asks_labels() || reads_namespace;
        surroundings(asks_labels, self.matches.asks_roles())
    }
}

/// The entry in `entry` or `entry.projection`.
fn entry_name(kind: EntryKind, name: &str) -> &str {
    match (kind, name.split_once('.')) {
        (EntryKind::Global, Some((entry, _))) => entry,
        _ => name,
    }
}
