//! The plurals and scopes of custom kinds, out of the CustomResourceDefinitions among the inputs.

use std::collections::BTreeMap;

use crate::resource::Resource;

/// Plurals by group and kind, and whether objects are in no namespace.
#[derive(Debug, Default)]
pub(crate) struct Plurals(BTreeMap<(String, String), (String, bool)>);

impl Plurals {
    /// Those that the definitions among some resources give.
    pub(crate) fn of<'r>(resources: impl IntoIterator<Item = &'r Resource>) -> Self {
        let definitions = resources.into_iter().filter(|resource| {
            (&*resource.group, &*resource.kind)
                == ("apiextensions.k8s.io", "CustomResourceDefinition")
        });
        let plurals = definitions.filter_map(|definition| {
            let spec = &definition.value["spec"];
            let (group, names) = (spec["group"].as_str()?, &spec["names"]);
            let kind = (group.to_owned(), names["kind"].as_str()?.to_owned());
            let is_of_cluster = spec["scope"] == "Cluster";
            Some((kind, (names["plural"].as_str()?.to_owned(), is_of_cluster)))
        });
        Self(plurals.collect())
    }

    /// Gives resources the plurals of their kinds, and takes them out of namespaces that they cannot be in, where a
    /// definition says so.
    pub(crate) fn name<'r>(&self, resources: impl IntoIterator<Item = &'r mut Resource>) {
        if self.0.is_empty() {
            return;
        }
        for resource in resources {
            let kind = (resource.group.clone(), resource.kind.clone());
            if let Some((plural, is_of_cluster)) = self.0.get(&kind) {
                resource.plural.clone_from(plural);
                if *is_of_cluster {
                    resource.leave_namespace();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_names_the_plural_of_its_kind_alone() {
        let of = |group: &str, kind: &str| {
            let manifest = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
            Resource::new(manifest).unwrap()
        };
        let definition = Resource::new(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"group": "a.b", "names": {"kind": "Ox", "plural": "oxen"}, "scope": "Cluster"},
        }))
        .unwrap();
        let mut resources = [of("a.b", "Ox"), of("c.d", "Ox"), of("a.b", "Cow")];
        Plurals::of([&definition]).name(&mut resources);
        let plurals: Vec<_> = resources.iter().map(|own| &*own.plural).collect();
        assert_eq!(plurals, ["oxen", "oxes", "cows"]);
        let namespaces: Vec<_> = resources.iter().map(|own| &*own.namespace).collect();
        assert_eq!(namespaces, ["", "default", "default"]);
        assert_eq!(resources[0].value["metadata"], json!({}));
    }
}
