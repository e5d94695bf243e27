//! Kinds of requests that no policy is asked about, in Kyverno's syntax of `resourceFilters`:
//! `[Kind,namespace,name]`, each part with wildcards, the kind spelled as in a policy.

mod parse;

use std::{collections::BTreeMap, str::FromStr};

pub use parse::{FILTERS_MAX, FilterError, FilterProblem};

use anteroom_functions::wildcard;

use crate::ir::KindPattern;

/// The longest name of a namespace.
const NAMESPACE_BYTES_MAX: usize = 63;

/// Filters, ready to be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFilters {
    /// Filters for a single kind, by the name of the kind.
    of_kind: BTreeMap<String, Vec<Filter>>,
    /// Filters whose kind has wildcards.
    of_kinds: Vec<Filter>,
}

/// The subject of a filter: an object, or a request about one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filtered<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// The version, as in `v1`.
    pub version: &'a str,
    /// The kind of the resource, also where a subresource is accessed.
    pub kind: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// The name; empty if it is not known yet.
    pub name: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    kind: KindPattern,
    namespace: String,
    name: String,
}

impl ResourceFilters {
    /// The default filters: objects that the control plane and the kubelets write all the time, and reviews
    /// that the API server asks for itself.
    pub const USUAL: &str = "[Event,*,*][*/*,kube-public,*][*/*,kube-node-lease,*]\
                             [APIService,*,*][APIService/?*,*,*][TokenReview,*,*]\
                             [SubjectAccessReview,*,*][SelfSubjectAccessReview,*,*]";

    /// The filters of [`USUAL`](Self::USUAL).
    pub fn usual() -> Self {
        Self::parse(Self::USUAL).unwrap_or_default()
    }

    /// From their text: one after the other, with spaces, lines or commas between them or nothing. Empty: none.
    ///
    /// # Errors
    /// The first place that is not understood.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut filters = Self::default();
        for filter in parse::filters(text)? {
            match wildcard::has_wildcard(&filter.kind.kind) {
                true => filters.of_kinds.push(filter),
                false => {
                    let kind = filter.kind.kind.clone();
                    filters.of_kind.entry(kind).or_default().push(filter);
                }
            }
        }
        Ok(filters)
    }

    /// Returns whether a filter excludes the subject.
    pub fn filter(&self, subject: &Filtered<'_>) -> bool {
        let named = self.of_kind.get(subject.kind);
        let mut filters = named.into_iter().flatten().chain(&self.of_kinds);
        filters.any(|filter| filter.speaks_of(subject))
    }

    /// Returns the namespaces whose objects are all filtered out, by name. Policies need not be asked about objects
    /// in them.
    pub fn whole_namespaces(&self) -> impl Iterator<Item = &str> {
        let whole = self
            .of_kinds
            .iter()
            .filter(|filter| filter.is_of_everything());
        let namespaces = whole.map(|filter| filter.namespace.as_str());
        namespaces.filter(|namespace| is_namespace(namespace))
    }
}

impl FromStr for ResourceFilters {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

impl Filter {
    fn speaks_of(&self, subject: &Filtered<'_>) -> bool {
        let kind = &self.kind;
        self.is_about(subject)
            && wildcard::matches(&kind.kind, subject.kind)
            && wildcard::matches(&kind.group, subject.group)
            && wildcard::matches(&kind.version, subject.version)
            && wildcard::matches(&kind.subresource, subject.subresource)
    }

    /// Compares namespace and name. A Namespace is also meant by a filter of everything in it.
    fn is_about(&self, subject: &Filtered<'_>) -> bool {
        let of = |namespace: &str| wildcard::matches(&self.namespace, namespace);
        let is_namespace =
            (subject.group, subject.version, subject.kind) == ("", "v1", "Namespace");
        (of(subject.namespace) && wildcard::matches(&self.name, subject.name))
            || (is_namespace && of(subject.name))
    }

    /// Returns whether it is narrowed by the namespace alone.
    fn is_of_everything(&self) -> bool {
        let KindPattern {
            group,
            version,
            kind,
            subresource,
            resource: _,
        } = &self.kind;
        [group, version, kind, subresource, &self.name]
            .iter()
            .all(|part| *part == "*")
    }
}

/// Returns whether there can be a namespace of this name.
pub fn is_namespace(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAMESPACE_BYTES_MAX
        && text.bytes().all(|byte| is_inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(is_inner)
        && text.bytes().last().is_some_and(is_inner)
}

#[cfg(test)]
mod tests;
