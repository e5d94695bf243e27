//! `match` and `exclude`: whether a rule is about a request. Pure.

use anteroom_functions::wildcard;
use serde_json::Value;

use super::{Lacking, Matched, Selector, Surroundings, Users};
use crate::ir::{AdmissionRequest, KindPattern, Operation};

/// `match` and `exclude` of a rule.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) include: Filters,
    pub(crate) exclude: Option<Filters>,
    /// The only kinds that a derived rule matches, whatever its filters say. Empty: any.
    pub(crate) kinds_alone: Vec<&'static str>,
    /// The match is an exemption: for a request without a known user, its filters of users do not hold.
    pub(crate) spares: bool,
}

/// The filters of a rule. The list is never empty, and neither is a filter.
#[derive(Debug)]
pub(crate) enum Filters {
    /// One must match.
    Any(Vec<Filter>),
    /// All must match; the legacy form has a single filter.
    All(Vec<Filter>),
}

/// `resources`, and who asks: every part that is given must match.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) kinds: Vec<KindPattern>,
    pub(crate) name: Option<String>,
    pub(crate) names: Vec<String>,
    pub(crate) namespaces: Vec<String>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) selector: Option<Selector>,
    /// Annotations that the object must have; keys and values may hold wildcards, as in labels.
    pub(crate) annotations: Option<Selector>,
    /// About the labels of the object's namespace; a Namespace is in none.
    pub(crate) namespace_selector: Option<Selector>,
    pub(crate) users: Users,
    /// The filter selects only by users, and not by the object.
    pub(crate) is_about_users: bool,
}

/// The side that a filter stands on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterSide {
    Include,
    Exclude,
}

impl Match {
    /// Returns whether it matches the request, as far as `known` tells.
    pub(crate) fn matches(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        if !self.kinds_alone.is_empty() && !self.kinds_alone.contains(&request.kind()) {
            return Matched::No;
        }
        let side = match self.spares {
            true => FilterSide::Exclude,
            false => FilterSide::Include,
        };
        let include = self.include.match_request(request, known, side);
        match &self.exclude {
            Some(exclude) if include != Matched::No => {
                include.and(!exclude.match_request(request, known, FilterSide::Exclude))
            }
            _ => include,
        }
    }

    /// Turns it into the match of an exception, whose requests are let pass.
    pub(crate) fn sparing(mut self) -> Self {
        self.spares = true;
        self
    }

    /// Returns the facts about the request that it needs and that are not known.
    pub(crate) fn lacks(&self, request: &AdmissionRequest, known: &Surroundings) -> Lacking {
        let labels = known.labels(request).is_none();
        let roles = known.roles(request).is_none();
        Lacking {
            namespace_labels: labels && self.asks_labels(),
            roles: roles && self.asks_roles(),
        }
    }

    /// Returns whether it selects by the labels of namespaces.
    pub(crate) fn asks_labels(&self) -> bool {
        self.filters()
            .any(|filter| filter.namespace_selector.is_some())
    }

    /// Returns whether it selects by roles.
    pub(crate) fn asks_roles(&self) -> bool {
        let exclude = self.exclude.as_ref().is_some_and(Filters::asks_roles);
        self.include.asks_roles() || exclude
    }

    /// All filters, of either side.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &Filter> {
        let exclude = self.exclude.iter().flat_map(Filters::filters);
        self.include.filters().iter().chain(exclude)
    }

    /// The filters of the side that includes.
    pub(crate) fn included(&self) -> &[Filter] {
        self.include.filters()
    }
}

impl Filters {
    pub(crate) fn asks_labels(&self) -> bool {
        let mut filters = self.filters().iter();
        filters.any(|filter| filter.namespace_selector.is_some())
    }

    pub(crate) fn asks_roles(&self) -> bool {
        self.filters().iter().any(|f| f.users.asks_roles())
    }

    fn filters(&self) -> &[Filter] {
        match self {
            Self::Any(filters) | Self::All(filters) => filters,
        }
    }

    fn match_request(
        &self,
        request: &AdmissionRequest,
        known: &Surroundings,
        side: FilterSide,
    ) -> Matched {
        let mut each = self.filters().iter();
        let mut each = each.by_ref().map(|f| f.matches(request, known, side));
        match self {
            Self::Any(_) => Matched::any(&mut each),
            Self::All(_) => Matched::all(&mut each),
        }
    }
}

impl Filter {
    fn matches(
        &self,
        request: &AdmissionRequest,
        known: &Surroundings,
        side: FilterSide,
    ) -> Matched {
        if !self.matches_object(request, side) {
            return Matched::No;
        }
        match self.matches_namespace(request, known) {
            Matched::No => Matched::No,
            labels => labels.and(self.matches_users(request, known, side)),
        }
    }

    /// Returns whether the object meets the parts of the filter that are about objects.
    fn matches_object(&self, request: &AdmissionRequest, side: FilterSide) -> bool {
        (self.operations.is_empty() || self.operations.contains(&request.operation()))
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.matches(request)))
            && self.matches_name(request, side)
            && (self.namespaces.is_empty()
                || namespace_to_match(request).matches_one(&self.namespaces, side))
            && matches_map(self.selector.as_ref(), request, "labels")
            && matches_map(self.annotations.as_ref(), request, "annotations")
    }

    /// A Namespace is in no namespace; its own labels do not count.
    fn matches_namespace(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let Some(selector) = &self.namespace_selector else {
            return Matched::Yes;
        };
        if request.is_about_namespace() {
            return Matched::No;
        }
        match known.labels(request) {
            Some(labels) => selector.matches(Some(labels)).into(),
            None => Matched::Unknown,
        }
    }

    /// Compares the user. For a request without a known user, a filter of users selects nothing and excludes nothing.
    fn matches_users(
        &self,
        request: &AdmissionRequest,
        known: &Surroundings,
        side: FilterSide,
    ) -> Matched {
        match (request.has_user(), side) {
            _ if self.users.is_empty() => Matched::Yes,
            (true, _) => self.users.matches(request, known),
            (false, FilterSide::Include) => (!self.is_about_users).into(),
            (false, FilterSide::Exclude) => Matched::No,
        }
    }

    fn matches_name(&self, request: &AdmissionRequest, side: FilterSide) -> bool {
        if self.names.is_empty() && self.name.is_none() {
            return true;
        }
        let name = ObjectName::of(request.matched_object());
        (self.names.is_empty() || name.matches_one(&self.names, side))
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| name.matches(pattern, side))
    }
}

fn matches_map(selector: Option<&Selector>, request: &AdmissionRequest, map: &str) -> bool {
    selector.is_none_or(|selector| selector.matches(metadata(request.matched_object(), map)))
}

fn metadata<'v>(object: &'v Value, field: &str) -> Option<&'v Value> {
    object.get("metadata")?.get(field)
}

/// The name of an object, as far as it is known when the object is created.
enum ObjectName<'r> {
    /// The name; empty: the object has none.
    Whole(&'r str),
    /// `generateName`: the API server will append some characters to it.
    Prefix(&'r str),
}

impl<'r> ObjectName<'r> {
    fn of(object: &'r Value) -> Self {
        let text = |field| {
            let text = metadata(object, field).and_then(Value::as_str);
            text.filter(|name| !name.is_empty())
        };
        match (text("name"), text("generateName")) {
            (Some(name), _) => Self::Whole(name),
            (None, Some(prefix)) => Self::Prefix(prefix),
            (None, None) => Self::Whole(""),
        }
    }

    fn matches_one(&self, patterns: &[String], side: FilterSide) -> bool {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| self.matches(pattern, side))
    }

    /// Compares a prefix as if it were the name, as Kyverno does. But an object is excluded only where the pattern matches
    /// all names with that prefix.
    fn matches(&self, pattern: &str, side: FilterSide) -> bool {
        match self {
            Self::Prefix(_) if side == FilterSide::Exclude && !pattern.ends_with('*') => false,
            Self::Whole(name) | Self::Prefix(name) => wildcard::matches(pattern, name),
        }
    }
}

/// Returns the namespace that `namespaces` of a filter is compared with: for a Namespace, its own name.
fn namespace_to_match(request: &AdmissionRequest) -> ObjectName<'_> {
    if request.is_about_namespace() {
        ObjectName::of(request.matched_object())
    } else {
        ObjectName::Whole(request.object_namespace())
    }
}

#[cfg(test)]
mod tests;
