//! `match` and `exclude`: whether a rule speaks of a request.

mod kind;
mod overrides;
mod roles;
mod selector;
mod surroundings;
mod users;

use std::fmt;

use serde_json::Value;

pub use kind::KindPattern;
pub(crate) use roles::{BINDINGS_OF_USER, Roles, names_of_user, roles_of};
pub(crate) use selector::{Requirement, Selector, SetOperator};
pub(crate) use surroundings::{Lacking, Matched, Surroundings};
pub(crate) use users::{Subject, Users};

use crate::{AdmissionRequest, Phase, Target, wildcard};

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// It is connected to, as in `exec`.
    Connect,
}

impl Operation {
    /// All of them, in the order of a webhook configuration.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// From the API's spelling, as in `CREATE`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.as_str() == text)
    }

    /// The API's spelling, as in `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `match` and `exclude` of a rule.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) include: Filters,
    pub(crate) exclude: Option<Filters>,
    /// Of a derived rule: it speaks of nothing else, whatever its filters say. Empty: of anything.
    pub(crate) kinds_alone: Vec<&'static str>,
    /// What it speaks of is let pass. Where nobody is known to have made a request, it does not hold for
    /// somebody.
    pub(crate) spares: bool,
}

/// Never empty, and no filter of it is.
#[derive(Debug)]
pub(crate) enum Filters {
    /// One must match.
    Any(Vec<Filter>),
    /// All must match; the legacy form is one of these with one filter.
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
    /// Each must be there; both sides may hold wildcards, as those of labels may.
    pub(crate) annotations: Option<Selector>,
    /// About the labels of the object's namespace; a Namespace is in none.
    pub(crate) namespace_selector: Option<Selector>,
    pub(crate) users: Users,
    /// Nothing is said of the object.
    pub(crate) is_about_users: bool,
}

/// What a filter is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Include,
    Exclude,
}

impl Match {
    /// Whether it speaks of the request, as far as `known` tells.
    pub(crate) fn matches(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        if !self.kinds_alone.is_empty() && !self.kinds_alone.contains(&request.kind()) {
            return Matched::No;
        }
        let side = match self.spares {
            true => Side::Exclude,
            false => Side::Include,
        };
        let include = self.include.match_request(request, known, side);
        match &self.exclude {
            Some(exclude) if include != Matched::No => {
                include.and(!exclude.match_request(request, known, Side::Exclude))
            }
            _ => include,
        }
    }

    /// The same of what is let pass.
    pub(crate) fn sparing(mut self) -> Self {
        self.spares = true;
        self
    }

    /// What has to be known of the request, and is not.
    pub(crate) fn lacks(&self, request: &AdmissionRequest, known: &Surroundings) -> Lacking {
        let labels = known.labels(request).is_none();
        let roles = known.roles(request).is_none();
        Lacking {
            namespace_labels: labels && self.asks_labels(),
            roles: roles && self.asks_roles(),
        }
    }

    /// Whether it says anything of the labels of namespaces.
    pub(crate) fn asks_labels(&self) -> bool {
        self.filters()
            .any(|filter| filter.namespace_selector.is_some())
    }

    /// Whether it says anything of roles.
    pub(crate) fn asks_roles(&self) -> bool {
        let exclude = self.exclude.as_ref().is_some_and(Filters::asks_roles);
        self.include.asks_roles() || exclude
    }

    /// All filters, of either side.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &Filter> {
        let exclude = self.exclude.iter().flat_map(Filters::filters);
        self.include.filters().iter().chain(exclude)
    }

    /// Those of which it speaks.
    pub(crate) fn included(&self) -> &[Filter] {
        self.include.filters()
    }

    /// What to register for. Exclusions narrow nothing here: the API server has no way to say them.
    pub(crate) fn targets(&self, phase: Phase) -> impl Iterator<Item = Target> {
        self.include.filters().iter().filter_map(move |filter| {
            let operations = operations(phase, &filter.operations);
            (!operations.is_empty()).then(|| Target {
                kinds: match &*filter.kinds {
                    [] => vec![KindPattern::any()],
                    kinds => kinds.to_vec(),
                },
                operations,
            })
        })
    }
}

/// What a filter of a rule is about, which says so or does not. What is deleted is never changed; what is
/// connected to, where it is said: as Kyverno has it.
fn operations(phase: Phase, said: &[Operation]) -> Vec<Operation> {
    match (phase, said) {
        (Phase::Mutation, []) => vec![Operation::Create, Operation::Update],
        (Phase::Validation, []) => Operation::ALL.to_vec(),
        (Phase::Validation, said) => said.to_vec(),
        (Phase::Mutation, said) => {
            let changed = said.iter().filter(|said| **said != Operation::Delete);
            changed.copied().collect()
        }
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
        side: Side,
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
    fn matches(&self, request: &AdmissionRequest, known: &Surroundings, side: Side) -> Matched {
        if !self.matches_object(request) {
            return Matched::No;
        }
        match self.matches_namespace(request, known) {
            Matched::No => Matched::No,
            labels => labels.and(self.matches_users(request, known, side)),
        }
    }

    /// All that is said of the object itself.
    fn matches_object(&self, request: &AdmissionRequest) -> bool {
        let object = request.matched_object();
        (self.operations.is_empty() || self.operations.contains(&request.operation()))
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.matches(request)))
            && self.matches_name(object)
            && matches_one(&self.namespaces, namespace_to_match(request))
            && matches_map(self.selector.as_ref(), object, "labels")
            && matches_map(self.annotations.as_ref(), object, "annotations")
    }

    /// A Namespace is in none, whatever its own labels.
    fn matches_namespace(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let Some(selector) = &self.namespace_selector else {
            return Matched::Yes;
        };
        if request.kind() == "Namespace" {
            return Matched::No;
        }
        match known.labels(request) {
            Some(labels) => selector.matches(Some(labels)).into(),
            None => Matched::Unknown,
        }
    }

    /// Of a request that nobody is known to have made, what is said of users selects nothing and excludes
    /// nothing.
    fn matches_users(
        &self,
        request: &AdmissionRequest,
        known: &Surroundings,
        side: Side,
    ) -> Matched {
        match (request.has_user(), side) {
            _ if self.users.is_empty() => Matched::Yes,
            (true, _) => self.users.matches(request, known),
            (false, Side::Include) => (!self.is_about_users).into(),
            (false, Side::Exclude) => Matched::No,
        }
    }

    fn matches_name(&self, object: &Value) -> bool {
        let name = object_name(object);
        matches_one(&self.names, name)
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| wildcard::matches(pattern, name))
    }
}

fn matches_map(selector: Option<&Selector>, object: &Value, map: &str) -> bool {
    selector.is_none_or(|selector| selector.matches(metadata(object, map)))
}

fn metadata<'v>(object: &'v Value, field: &str) -> Option<&'v Value> {
    object.get("metadata")?.get(field)
}

fn matches_one(patterns: &[String], text: &str) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| wildcard::matches(pattern, text))
}

/// The object's own name, or the prefix that the API server will make one from.
fn object_name(object: &Value) -> &str {
    let text = |field| {
        let text = metadata(object, field).and_then(Value::as_str);
        text.filter(|name| !name.is_empty())
    };
    text("name")
        .or_else(|| text("generateName"))
        .unwrap_or_default()
}

/// Where the object lives; empty for what is cluster-scoped. A Namespace lives in none, although the
/// API server sends its name as the request's namespace.
pub(crate) fn object_namespace(request: &AdmissionRequest) -> &str {
    if request.kind() == "Namespace" {
        return "";
    }
    match request.namespace() {
        "" => metadata(request.matched_object(), "namespace")
            .and_then(Value::as_str)
            .unwrap_or_default(),
        namespace => namespace,
    }
}

/// `namespaces` of a filter speaks of a Namespace by its name.
fn namespace_to_match(request: &AdmissionRequest) -> &str {
    if request.kind() == "Namespace" {
        object_name(request.matched_object())
    } else {
        object_namespace(request)
    }
}

#[cfg(test)]
mod tests;
