//! What a policy reads, before any request comes.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_jmespath::Expression;
use anteroom_model::EntryKind;

use crate::{
    CollectionReference, NamedObject, Policy, Reference, Rule,
    call::ConfigMapCall,
    cel::Cel,
    policy::{Check, ContextEntry, Fact, FactSource, ForEach, Loader, Validation, Work},
    template::Prepared,
};

impl Policy {
    /// The entries that the rules read, each once. Those whose name has a variable in it are left
    /// out: nobody knows them before a request comes.
    pub fn entries(&self) -> impl Iterator<Item = (EntryKind, &str)> {
        let names: BTreeSet<_> = self
            .sources()
            .filter_map(|source| match source {
                FactSource::Entry { kind, name } => Some((*kind, entry_name(*kind, name.fixed()?))),
                _ => None,
            })
            .collect();
        names.into_iter()
    }

    /// What the rules ask of entries: kind and name, and the expression over the entry's data. No name:
    /// it has a variable in it, so it may be any. No expression: all of the data, or what nobody knows
    /// before a request comes.
    pub fn entry_queries(
        &self,
    ) -> impl Iterator<Item = (EntryKind, Option<&str>, Option<&Expression>)> {
        self.facts().filter_map(|fact| match &fact.source {
            FactSource::Entry { kind, name } => {
                let query = fact.asked().and_then(Prepared::fixed);
                let name = name.fixed().map(|name| entry_name(*kind, name));
                Some((*kind, name, query))
            }
            _ => None,
        })
    }

    /// What has to be kept close at hand for the rules, or may be, each once: declared where any of
    /// them declares it.
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

    /// Whether a rule may have to wait for a fact: it has a context that is read from somewhere, or is
    /// about what a request does not carry.
    pub fn may_wait(&self) -> bool {
        self.facts().next().is_some() || self.references().next().is_some()
    }

    fn sources(&self) -> impl Iterator<Item = &FactSource> {
        self.facts().map(|fact| &fact.source)
    }

    fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.rules
            .iter()
            .flat_map(Rule::entries)
            .filter_map(|entry| match &entry.loader {
                Loader::Fact(fact) => Some(&**fact),
                Loader::Given | Loader::Variable { .. } => None,
            })
    }

    fn references_of(&self, source: &FactSource) -> Vec<Reference> {
        match source {
            FactSource::Collection(collection) => vec![Reference::Collection(collection.clone())],
            FactSource::Api(call) => {
                let kept = call.kept.as_ref().map(|plan| plan.reference.clone());
                kept.into_iter().collect()
            }
            FactSource::ConfigMap(call) => {
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
            FactSource::Entry { .. } | FactSource::Service(_) | FactSource::Image(_) => Vec::new(),
        }
    }
}

impl Rule {
    /// Whether it is about the roles of whoever asks, in what it matches or in an expression.
    pub(crate) fn reads_roles(&self) -> bool {
        self.matches.asks_roles() || self.names_roles
    }

    /// What it judges in CEL.
    pub(crate) fn cel(&self) -> Option<&Cel> {
        match &self.work {
            Work::Validate(Validation::Whole(Check::Cel(cel))) => Some(cel),
            _ => None,
        }
    }

    /// What it judges by `foreach`.
    pub(crate) fn each(&self) -> &[ForEach] {
        match &self.work {
            Work::Validate(validation) => validation.each(),
            Work::Mutate(_) | Work::Existing(_) => &[],
        }
    }

    /// All its context entries, those of each `foreach` included.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ContextEntry> {
        let each = self.each().iter();
        let mut inner: Vec<_> = each.flat_map(ForEach::entries).collect();
        match &self.work {
            Work::Mutate(mutation) => inner = mutation.entries(),
            Work::Existing(existing) => inner = existing.entries(),
            Work::Validate(_) => {}
        }
        self.context.iter().chain(inner).map(|entry| &**entry)
    }
}

/// What has to be kept of what a request does not carry.
pub(crate) fn surroundings(asks_labels: bool, asks_roles: bool) -> impl Iterator<Item = Reference> {
    let labels = asks_labels.then(CollectionReference::namespaces);
    let bindings = [false, true].map(CollectionReference::role_bindings);
    let bindings = bindings.into_iter().filter(move |_| asks_roles);
    labels
        .into_iter()
        .chain(bindings)
        .map(Reference::Collection)
}

/// The entry in `entry` or `entry.projection`.
fn entry_name(kind: EntryKind, name: &str) -> &str {
    match (kind, name.split_once('.')) {
        (EntryKind::Global, Some((entry, _))) => entry,
        _ => name,
    }
}

impl ConfigMapCall {
    /// Namespace and name, where no variable stands in them.
    pub(crate) fn literal(&self, own: Option<&str>) -> Option<(String, String)> {
        let (namespace, name) = (self.namespace.fixed()?, self.name.fixed()?);
        Some((self.or_home(namespace, own).to_owned(), name.to_owned()))
    }

    /// A namespace that is left out is the policy's own, or `default`.
    pub(crate) fn or_home<'a>(&self, namespace: &'a str, own: Option<&'a str>) -> &'a str {
        match namespace {
            "" => own.unwrap_or("default"),
            namespace => namespace,
        }
    }
}
