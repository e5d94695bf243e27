//! `matchConstraints`: the requests that a policy of policies.kyverno.io matches. Pure.

use serde_json::Value;

use super::{KindPattern, Lacking, Matched, RegisteredKinds, Selector, Surroundings};
use crate::ir::{AdmissionRequest, Operation, Phase};

/// `matchConstraints`: a rule must match, and everything else that is given.
#[derive(Debug, Default)]
pub(crate) struct Constraints {
    pub(crate) include: Vec<ResourceRule>,
    pub(crate) exclude: Vec<ResourceRule>,
    /// The selector of the labels of the object's namespace, or of the object if it is a Namespace.
    pub(crate) namespace_selector: Option<Selector>,
    /// About the labels of either state of the object.
    pub(crate) object_selector: Option<Selector>,
}

/// One of `resourceRules`, as in a webhook configuration.
#[derive(Debug)]
pub(crate) struct ResourceRule {
    /// One for each group, version and resource.
    pub(crate) kinds: Vec<KindPattern>,
    /// Never empty.
    pub(crate) operations: Vec<Operation>,
    /// Empty: any.
    pub(crate) names: Vec<String>,
    /// Namespaced or cluster-scoped objects only; `None`: both.
    pub(crate) in_namespace: Option<bool>,
}

impl Constraints {
    /// Returns whether they match the request, as far as `known` tells.
    pub(crate) fn matches(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let any = |rules: &[ResourceRule]| rules.iter().any(|rule| rule.matches(request));
        let excludes =
            |rule: &ResourceRule| rule.matches(request) && !rule.is_about_prefix(request);
        if !any(&self.include) || self.exclude.iter().any(excludes) || !self.selects_object(request)
        {
            return Matched::No;
        }
        let Some(selector) = &self.namespace_selector else {
            return Matched::Yes;
        };
        if request.is_about_namespace() {
            let labels = labels_of(request.matched_object());
            return selector.matches(labels).into();
        }
        // What lives in no namespace is selected by none and left out by none.
        if request.object_namespace().is_empty() {
            return Matched::Yes;
        }
        match known.labels(request) {
            Some(labels) => selector.matches(Some(labels)).into(),
            None => Matched::Unknown,
        }
    }

    /// Returns the facts about the request that they need and that are not known.
    pub(crate) fn lacks(&self, request: &AdmissionRequest, known: &Surroundings) -> Lacking {
        Lacking {
            namespace_labels: self.asks_labels() && known.labels(request).is_none(),
            roles: false,
        }
    }

    /// Returns whether they select by the labels of namespaces.
    pub(crate) fn asks_labels(&self) -> bool {
        self.namespace_selector.is_some()
    }

    /// Returns the kinds and operations to register for. Exclusions narrow nothing here.
    pub(crate) fn registered_kinds(&self, phase: Phase) -> impl Iterator<Item = RegisteredKinds> {
        self.include.iter().filter_map(move |rule| {
            let changes = |operation: &Operation| {
                phase == Phase::Validation || *operation != Operation::Delete
            };
            let operations: Vec<_> = rule.operations.iter().copied().filter(changes).collect();
            (!operations.is_empty()).then(|| RegisteredKinds {
                kinds: rule.kinds.clone(),
                operations,
            })
        })
    }

    /// The kinds that they include.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &KindPattern> {
        self.include.iter().flat_map(|rule| &rule.kinds)
    }

    fn selects_object(&self, request: &AdmissionRequest) -> bool {
        let Some(selector) = &self.object_selector else {
            return true;
        };
        let states = [request.object(), request.old_object()];
        let mut states = states.into_iter().flatten();
        states.any(|object| selector.matches(labels_of(object)))
    }
}

impl ResourceRule {
    fn matches(&self, request: &AdmissionRequest) -> bool {
        let served = request.served_kind();
        self.operations.contains(&request.operation())
            && self.kinds.iter().any(|kind| kind.covers(served))
            && (self.names.is_empty() || self.names.iter().any(|name| is_name(name, request)))
            && self
                .in_namespace
                .is_none_or(|inside| inside != request.object_namespace().is_empty())
    }

    /// Returns whether it names objects, and the API server will make the object's name from a prefix. As in Kubernetes,
    /// such an object has none of the names; it is included by its prefix all the same, as in Kyverno.
    fn is_about_prefix(&self, request: &AdmissionRequest) -> bool {
        let name = request
            .matched_object()
            .get("metadata")
            .and_then(|metadata| metadata.get("name"));
        let is_named = name
            .and_then(Value::as_str)
            .is_some_and(|name| !name.is_empty());
        !self.names.is_empty() && request.name().is_empty() && !is_named
    }
}

/// Returns whether the object has this name. An object whose name the API server will generate is compared by the
/// beginning of its name.
fn is_name(name: &str, request: &AdmissionRequest) -> bool {
    let text = |field: &str| {
        let found = request.matched_object().get("metadata")?.get(field)?;
        found.as_str().filter(|text| !text.is_empty())
    };
    let own = Some(request.name()).filter(|name| !name.is_empty());
    own.or_else(|| text("name"))
        .or_else(|| text("generateName"))
        == Some(name)
}

fn labels_of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("labels")
}
