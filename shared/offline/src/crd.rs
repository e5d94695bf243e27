//! The plurals, scopes and schemas of custom kinds, out of the CustomResourceDefinitions among the inputs.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_policy::ObjectSchema;
use serde_json::Value;

use crate::resource::Resource;

/// Custom kinds, by group and kind.
#[derive(Debug, Default)]
pub(crate) struct CustomKinds(BTreeMap<(String, String), CustomKind>);

/// A custom kind.
#[derive(Debug)]
struct CustomKind {
    plural: String,
    /// Its objects are in no namespace.
    is_of_cluster: bool,
    /// The schemas by version; versions without a schema are missing.
    schemas: BTreeMap<String, Arc<ObjectSchema>>,
}

impl CustomKind {
    fn of(spec: &Value) -> Option<Self> {
        let versions = spec["versions"].as_array().into_iter().flatten();
        let schemas = versions.filter_map(|version| {
            let schema = &version["schema"]["openAPIV3Schema"];
            let schema = ObjectSchema::from_crd(schema).ok()?;
            Some((version["name"].as_str()?.to_owned(), Arc::new(schema)))
        });
        Some(Self {
            plural: spec["names"]["plural"].as_str()?.to_owned(),
            is_of_cluster: spec["scope"] == "Cluster",
            schemas: schemas.collect(),
        })
    }
}

impl CustomKinds {
    /// The kinds that the definitions among some resources define.
    pub(crate) fn of<'r>(resources: impl IntoIterator<Item = &'r Resource>) -> Self {
        let definitions = resources.into_iter().filter(|resource| {
            (&*resource.group, &*resource.kind)
                == ("apiextensions.k8s.io", "CustomResourceDefinition")
        });
        let kinds = definitions.filter_map(|definition| {
            let spec = &definition.value["spec"];
            let (group, kind) = (spec["group"].as_str()?, spec["names"]["kind"].as_str()?);
            Some(((group.to_owned(), kind.to_owned()), CustomKind::of(spec)?))
        });
        Self(kinds.collect())
    }

    /// The schema of a resource's kind and version.
    pub(crate) fn schema(&self, resource: &Resource) -> Option<Arc<ObjectSchema>> {
        let kind = (resource.group.clone(), resource.kind.clone());
        self.0.get(&kind)?.schemas.get(&resource.version).cloned()
    }

    /// Gives resources the plurals of their kinds, and takes them out of namespaces that they cannot be in, where a
    /// definition says so.
    pub(crate) fn name<'r>(&self, resources: impl IntoIterator<Item = &'r mut Resource>) {
        if self.0.is_empty() {
            return;
        }
        for resource in resources {
            let kind = (resource.group.clone(), resource.kind.clone());
            if let Some(custom) = self.0.get(&kind) {
                resource.plural.clone_from(&custom.plural);
                if custom.is_of_cluster {
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
    fn a_definition_says_plural_scope_and_schema_of_its_kind_alone() {
        let of = |group: &str, kind: &str| {
            let manifest = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
            Resource::new(manifest).unwrap()
        };
        let definition = Resource::new(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"group": "a.b", "names": {"kind": "Ox", "plural": "oxen"}, "scope": "Cluster",
                "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        }))
        .unwrap();
        let mut resources = [of("a.b", "Ox"), of("c.d", "Ox"), of("a.b", "Cow")];
        let kinds = CustomKinds::of([&definition]);
        kinds.name(&mut resources);
        assert!(kinds.schema(&resources[0]).is_some());
        assert!(kinds.schema(&resources[1]).is_none());
        let plurals: Vec<_> = resources.iter().map(|own| &*own.plural).collect();
        assert_eq!(plurals, ["oxen", "oxes", "cows"]);
        let namespaces: Vec<_> = resources.iter().map(|own| &*own.namespace).collect();
        assert_eq!(namespaces, ["", "default", "default"]);
        assert_eq!(resources[0].value["metadata"], json!({}));
    }
}
