//! Entries that are declared among the given manifests, with what they keep out of the given resources.

use anteroom_model::{EntryKind, FactError};
use anteroom_policy::CollectionReference;
use serde_json::{Map, Value};

use crate::{
    facts::{Unanswered, World, nothing, search},
    suite::ProjectionData,
};

/// A `GlobalContextEntry` of objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredEntry {
    name: String,
    /// `None` where it keeps something else, as what an API call answers: nothing is known of that.
    objects: Option<CollectionReference>,
    projections: Vec<(String, String)>,
}

impl DeclaredEntry {
    /// From a manifest; `None` where it is no `GlobalContextEntry`.
    pub fn new(manifest: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = manifest["apiVersion"].as_str().unwrap_or_default();
        if manifest["kind"] != "GlobalContextEntry" || !version.starts_with("kyverno.io/") {
            return None;
        }
        let spec = &manifest["spec"];
        let objects = spec["kubernetesResource"].as_object();
        let objects = objects.map(|of| {
            let part = |name: &str| of.get(name).map(text).unwrap_or_default();
            CollectionReference {
                group: Some(part("group")),
                version: Some(part("version")),
                resource: part("resource"),
                namespace: part("namespace"),
                ..CollectionReference::default()
            }
        });
        let projections = spec["projections"].as_array().into_iter().flatten();
        Some(Self {
            name: text(&manifest["metadata"]["name"]),
            objects,
            projections: projections
                .map(|one| (text(&one["name"]), text(&one["jmesPath"])))
                .collect(),
        })
    }
}

impl World {
    /// What an entry that is declared keeps, or what one of its projections makes of it; `None` where none of
    /// this name is.
    pub(crate) fn declared(
        &self,
        kind: EntryKind,
        name: &str,
        projection: &str,
    ) -> Option<Result<Value, Unanswered>> {
        let mut all = self.declared.iter().filter(|_| kind == EntryKind::Global);
        let entry = all.find(|entry| entry.name == name)?;
        Some(self.kept(entry, projection))
    }

    fn kept(&self, entry: &DeclaredEntry, projection: &str) -> Result<Value, Unanswered> {
        let name = &entry.name;
        let objects = entry.objects.as_ref().ok_or_else(|| nothing(name))?;
        let items = self.collection(objects)?["items"].take();
        if projection.is_empty() {
            return Ok(items);
        }
        let mut all = entry.projections.iter();
        match all.find(|(known, _)| known == projection) {
            Some((_, path)) => Ok(search(path, &items, &Map::new(), false)?),
            None => Err(unknown_projection(
                name,
                projection,
                entry.projections.iter().map(|(name, _)| &**name),
            )),
        }
    }
}

pub(crate) fn unknown_projection<'n>(
    entry: &str,
    projection: &str,
    known: impl Iterator<Item = &'n str>,
) -> Unanswered {
    let known: Vec<_> = known.collect();
    let error = FactError::ProjectionNotFound {
        entry: entry.to_owned(),
        projection: projection.to_owned(),
        known: match known.is_empty() {
            true => "none".to_owned(),
            false => known.join(", "),
        },
    };
    Unanswered::Failed(error)
}

/// The names of the projections of an entry whose data are given.
pub(crate) fn names(projections: &[ProjectionData]) -> impl Iterator<Item = &str> {
    projections.iter().map(|known| &*known.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Resource;

    fn entry(spec: Value) -> Value {
        json!({"apiVersion": "kyverno.io/v2", "kind": "GlobalContextEntry",
               "metadata": {"name": "hosts"}, "spec": spec})
    }

    #[test]
    fn an_entry_keeps_the_given_objects_of_its_kind() {
        let maps =
            json!({"group": "", "version": "v1", "resource": "configmaps", "namespace": "n"});
        let declared = entry(json!({"kubernetesResource": maps,
            "projections": [{"name": "names", "jmesPath": "[].metadata.name"}]}));
        let object = |kind: &str, namespace: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": namespace});
            let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
            Resource::new(manifest).unwrap()
        };
        let mut world = World {
            declared: vec![DeclaredEntry::new(&declared).unwrap()],
            resources: vec![object("ConfigMap", "n", "a"), object("ConfigMap", "m", "b")],
            ..World::default()
        };
        let of = |world: &World, projection: &str| {
            let found = world.declared(EntryKind::Global, "hosts", projection);
            found.unwrap()
        };
        assert_eq!(of(&world, "").unwrap()[0]["metadata"]["name"], "a");
        assert_eq!(of(&world, "names"), Ok(json!(["a"])));
        let error = of(&world, "nope").unwrap_err();
        assert!(
            format!("{error:?}").contains("known: \"names\""),
            "{error:?}"
        );
        assert!(world.declared(EntryKind::Cached, "hosts", "").is_none());
        assert!(world.declared(EntryKind::Global, "other", "").is_none());
        // Of a kind of which none is given nothing is known, and of what a call answers.
        world.resources.clear();
        assert!(matches!(of(&world, "names"), Err(Unanswered::Nothing(_))));
        let called = entry(json!({"apiCall": {"urlPath": "/api/v1/pods"}}));
        world.declared = vec![DeclaredEntry::new(&called).unwrap()];
        assert!(matches!(of(&world, ""), Err(Unanswered::Nothing(_))));
        assert!(DeclaredEntry::new(&json!({"kind": "GlobalContextEntry"})).is_none());
    }
}
