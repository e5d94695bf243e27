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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn rule(names: &[&str]) -> ResourceRule {
        ResourceRule {
            kinds: vec![KindPattern::of_resource("", "v1", "configmaps", false)],
            operations: vec![Operation::Create, Operation::Delete],
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            in_namespace: None,
        }
    }

    fn including(rule: ResourceRule) -> Constraints {
        Constraints {
            include: vec![rule],
            ..Constraints::default()
        }
    }

    /// A CREATE of a ConfigMap; `name` is what the request says, and `metadata` what the object does.
    fn request(namespace: &str, name: &str, metadata: &Value) -> AdmissionRequest {
        AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "namespace": namespace, "name": name, "object": {"metadata": metadata},
        }))
        .unwrap()
    }

    #[test]
    fn a_name_still_to_be_generated_is_included_by_its_prefix_and_excluded_by_none() {
        let rows: [(&[&str], &str, Value, bool, bool); 9] = [
            (&[], "a", json!({"name": "a"}), true, true),
            (&["b", "a"], "a", json!({"name": "a"}), true, true),
            (&["b"], "a", json!({"name": "a"}), false, false),
            (&["a"], "a", json!({}), true, true),
            (&["a"], "", json!({"name": "a"}), true, true),
            (&["a-"], "", json!({"generateName": "a-"}), true, false),
            (
                &["a-"],
                "",
                json!({"name": "", "generateName": "a-"}),
                true,
                false,
            ),
            (
                &["a-"],
                "",
                json!({"name": "b", "generateName": "a-"}),
                false,
                false,
            ),
            (&[], "", json!({"generateName": "a-"}), true, true),
        ];
        for (names, name, metadata, is_included, is_excluded) in rows {
            let request = request("ns", name, &metadata);
            let known = Surroundings::default();
            let included = including(rule(names)).matches(&request, &known);
            assert_eq!(included, is_included.into(), "{names:?} {name} {metadata}");
            let excluding = Constraints {
                exclude: vec![rule(names)],
                ..including(rule(&[]))
            };
            let left = excluding.matches(&request, &known);
            assert_eq!(left, (!is_excluded).into(), "{names:?} {name} {metadata}");
        }
    }

    #[test]
    fn a_scope_includes_only_objects_inside_or_outside_of_namespaces() {
        for (in_namespace, inside, outside) in [
            (None, true, true),
            (Some(true), true, false),
            (Some(false), false, true),
        ] {
            let constraints = including(ResourceRule {
                in_namespace,
                ..rule(&[])
            });
            for (namespace, expected) in [("ns", inside), ("", outside)] {
                let request = request(namespace, "a", &json!({"name": "a"}));
                let matched = constraints.matches(&request, &Surroundings::default());
                assert_eq!(
                    matched,
                    expected.into(),
                    "{in_namespace:?} in `{namespace}`"
                );
            }
        }
    }

    #[test]
    fn labels_of_the_namespace_are_lacking_only_where_a_selector_asks_for_them() {
        let selecting = Constraints {
            namespace_selector: Some(Selector {
                labels: vec![("env".to_owned(), "prod".to_owned())],
                requirements: vec![],
            }),
            ..including(rule(&[]))
        };
        let plain = including(rule(&[]));
        assert!(selecting.asks_labels() && !plain.asks_labels());
        for (namespace, labels, expected, lacks) in [
            ("ns", None, Matched::Unknown, true),
            ("ns", Some(json!({"env": "prod"})), Matched::Yes, false),
            ("ns", Some(json!({"env": "dev"})), Matched::No, false),
            ("", None, Matched::Yes, false),
        ] {
            let known = Surroundings {
                namespace_labels: labels.map(Arc::new),
                roles: None,
            };
            let request = request(namespace, "a", &json!({"name": "a"}));
            assert_eq!(selecting.matches(&request, &known), expected);
            assert_eq!(selecting.lacks(&request, &known).namespace_labels, lacks);
            assert_eq!(plain.matches(&request, &known), Matched::Yes);
            assert_eq!(plain.lacks(&request, &known), Lacking::default());
        }
    }

    #[test]
    fn a_deletion_is_registered_for_validation_alone() {
        let constraints = Constraints {
            include: vec![
                rule(&[]),
                ResourceRule {
                    operations: vec![Operation::Delete],
                    ..rule(&[])
                },
            ],
            ..Constraints::default()
        };
        let operations = |phase| {
            let registered = constraints.registered_kinds(phase);
            registered.map(|one| one.operations).collect::<Vec<_>>()
        };
        let (create, delete) = (Operation::Create, Operation::Delete);
        assert_eq!(
            operations(Phase::Validation),
            [vec![create, delete], vec![delete]]
        );
        assert_eq!(operations(Phase::Mutation), [vec![create]]);
    }
}
