//! The existing objects that rules change, chosen from the given resources.

use anteroom_functions::wildcard;
use anteroom_model::{ExistingObjects, LabelSelector};
use serde_json::{Value, json};

use crate::{
    facts::{Unanswered, World, nothing},
    resource::Resource,
};

impl World {
    /// A list of them. The given targets and the given resources of a kind are all that there are of it; of a
    /// kind of which none is given nothing is known.
    pub(crate) fn existing(&self, wanted: &ExistingObjects) -> Result<Value, Unanswered> {
        let what = wanted.to_string();
        let Ok(labels) = LabelSelector::parse(&wanted.label_selector) else {
            return Err(nothing(&what));
        };
        let of_kind = self.given(|own| is_of_kind(own, wanted));
        if of_kind.is_empty() {
            return Err(nothing(&what));
        }
        let is_wanted = |own: &&Resource| {
            let own_labels = &own.value["metadata"]["labels"];
            is_at(&wanted.namespace, &own.namespace)
                && is_at(&wanted.name, &own.name)
                && labels.matches(|name| own_labels.get(name)?.as_str())
        };
        let items = of_kind.into_iter().filter(is_wanted);
        let items: Vec<_> = items.map(|own| &own.value).collect();
        Ok(json!({ "items": items }))
    }
}

fn is_of_kind(own: &Resource, wanted: &ExistingObjects) -> bool {
    let ExistingObjects {
        group,
        version,
        kind,
        resource,
        ..
    } = wanted;
    (&own.group, &own.version) == (group, version)
        && (kind.is_empty() || own.kind == *kind)
        && (resource.is_empty() || own.plural() == resource)
}

/// Returns whether an object is meant. One that is in no namespace is, whatever namespace is wanted.
fn is_at(wanted: &str, own: &str) -> bool {
    wanted.is_empty() || own.is_empty() || wildcard::matches(wanted, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_those_of_the_kind_that_are_given() {
        let of = |kind: &str, namespace: &str, name: &str, labels: Value| {
            Resource::new(json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "namespace": namespace, "labels": labels}}))
            .unwrap()
        };
        let world = World {
            targets: vec![
                of("ConfigMap", "n", "a", json!({"x": "1"})),
                of("ConfigMap", "m", "ab", json!({})),
            ],
            resources: vec![
                of("ConfigMap", "n", "a", json!({})), // The same again: the target counts.
                of("ConfigMap", "n", "b", json!({})),
                of("Namespace", "", "n", json!({})),
            ],
            ..World::default()
        };
        let found = |kind: &str, namespace: &str, name: &str, labels: &str| {
            let wanted = ExistingObjects {
                version: "v1".to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                label_selector: labels.to_owned(),
                ..ExistingObjects::default()
            };
            let list = world.existing(&wanted).ok()?;
            let items = list["items"].as_array().unwrap().iter();
            let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
            Some(names.collect::<Vec<_>>().join(" "))
        };
        for (kind, namespace, name, labels, expected) in [
            ("ConfigMap", "", "", "", Some("a ab b")),
            ("ConfigMap", "n", "", "", Some("a b")),
            ("ConfigMap", "*", "a*", "", Some("a ab")),
            ("ConfigMap", "n", "a", "x=1", Some("a")),
            ("ConfigMap", "n", "nope", "", Some("")),
            ("Namespace", "n", "n", "", Some("n")),
            ("Secret", "n", "a", "", None),
            ("ConfigMap", "n", "a", "x in (", None),
        ] {
            let found = found(kind, namespace, name, labels);
            assert_eq!(
                found.as_deref(),
                expected,
                "{kind} {namespace}/{name} {labels}"
            );
        }
    }
}
