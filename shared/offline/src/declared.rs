//! Entries that are declared among the given manifests, with what they keep out of the given resources.

use anteroom_model::{EntryKind, FactError};
use anteroom_policy::CollectionReference;
use serde_json::{Map, Value, json};

use crate::{
    facts::{Unanswered, World, nothing, search},
    suite::ProjectionData,
};

/// A `GlobalContextEntry` or a `CachedContextEntry` of objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredEntry {
    kind: EntryKind,
    name: String,
    /// `None` where it keeps something else, as what an API call answers, or selects by more than is looked at
    /// here (`namespaces`, `matchExpressions`): nothing is known of that.
    objects: Option<CollectionReference>,
    projections: Vec<(String, String)>,
}

impl DeclaredEntry {
    /// From a manifest; `None` where it is no entry.
    pub fn new(manifest: &Value) -> Option<Self> {
        let version = manifest["apiVersion"].as_str().unwrap_or_default();
        let kind = match manifest["kind"].as_str()? {
            "CachedContextEntry" => EntryKind::Cached,
            "GlobalContextEntry" => EntryKind::Global,
            _ => return None,
        };
        if !version.starts_with("kyverno.io/") {
            return None;
        }
        let spec = &manifest["spec"];
        let objects = match kind {
            EntryKind::Cached => spec["resource"].as_object().and_then(cached),
            _ => spec["kubernetesResource"].as_object().map(global),
        };
        let projections = spec["projections"].as_array().into_iter().flatten();
        Some(Self {
            kind,
            name: text(&manifest["metadata"]["name"]),
            objects,
            projections: projections
                .map(|one| (text(&one["name"]), text(&one["jmesPath"])))
                .collect(),
        })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn global(of: &Map<String, Value>) -> CollectionReference {
    let part = |name: &str| of.get(name).map(text).unwrap_or_default();
    CollectionReference {
        resource: part("resource"),
        namespace: part("namespace"),
        ..CollectionReference::default()
    }
}

/// `None` where it selects by what is not looked at here.
fn cached(of: &Map<String, Value>) -> Option<CollectionReference> {
    let part = |name: &str| of.get(name).map(text).unwrap_or_default();
    let mut fields = part("fieldSelector");
    if !part("name").is_empty() {
        let name = format!("metadata.name={}", part("name"));
        fields = match fields.is_empty() {
            true => name,
            false => return None,
        };
    }
    let mut labels = Vec::new();
    if let Some(selector) = of.get("labelSelector") {
        let selector = selector.as_object()?;
        if selector.keys().any(|field| field != "matchLabels") {
            return None;
        }
        for (name, value) in selector.get("matchLabels")?.as_object()? {
            labels.push(format!("{name}={}", value.as_str()?));
        }
    }
    (!of.contains_key("namespaces")).then(|| CollectionReference {
        resource: part("kind"),
        namespace: part("namespace"),
        field_selector: fields,
        label_selector: labels.join(","),
        ..CollectionReference::default()
    })
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
        let mut all = self.declared.iter();
        let entry = all.find(|entry| entry.kind == kind && entry.name == name)?;
        Some(self.kept(entry, projection))
    }

    fn kept(&self, entry: &DeclaredEntry, projection: &str) -> Result<Value, Unanswered> {
        let name = &entry.name;
        let objects = entry.objects.as_ref().ok_or_else(|| nothing(name))?;
        let items = self.collection(objects)?["items"].take();
        let data = match entry.kind {
            // In both shapes that policies read: `items`, and `NAME | items`.
            EntryKind::Cached => {
                let mut data = Map::new();
                data.insert(name.clone(), json!({ "items": items }));
                data.insert("items".to_owned(), items);
                Value::Object(data)
            }
            _ => items,
        };
        if projection.is_empty() {
            return Ok(data);
        }
        let mut all = entry.projections.iter();
        match all.find(|(known, _)| known == projection) {
            Some((_, path)) => Ok(search(path, &data, &Map::new(), false)?),
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
    use super::*;
    use crate::resource::Resource;

    fn entry(spec: &Value) -> Value {
        json!({"apiVersion": "kyverno.io/v2", "kind": "GlobalContextEntry",
               "metadata": {"name": "hosts"}, "spec": spec})
    }

    #[test]
    fn an_entry_keeps_the_given_objects_of_its_kind() {
        let maps =
            json!({"group": "", "version": "v1", "resource": "configmaps", "namespace": "n"});
        let declared = entry(&json!({"kubernetesResource": maps,
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
        let called = entry(&json!({"apiCall": {"urlPath": "/api/v1/pods"}}));
        world.declared = vec![DeclaredEntry::new(&called).unwrap()];
        assert!(matches!(of(&world, ""), Err(Unanswered::Nothing(_))));
        assert!(DeclaredEntry::new(&json!({"kind": "GlobalContextEntry"})).is_none());
    }

    #[test]
    fn a_cached_entry_keeps_what_it_selects_in_both_shapes() {
        let object = |name: &str, labels: Value| {
            let metadata = json!({"name": name, "namespace": "n", "labels": labels});
            let manifest = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
            Resource::new(manifest).unwrap()
        };
        let found = |resource: Value, projection: &str| {
            let entry = json!({"apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
                "metadata": {"name": "all"}, "spec": {"resource": resource, "projections": [
                    {"name": "names", "jmesPath": "all.items[].metadata.name"}]}});
            let world = World {
                declared: vec![DeclaredEntry::new(&entry).unwrap()],
                resources: vec![object("a", json!({"x": "1"})), object("b", json!({}))],
                ..World::default()
            };
            let found = world.declared(EntryKind::Cached, "all", projection);
            found.unwrap().ok()
        };
        for (resource, expected) in [
            (json!({"kind": "services"}), Some(json!(["a", "b"]))),
            (json!({"kind": "services", "name": "b"}), Some(json!(["b"]))),
            (
                json!({"kind": "services", "namespace": "m"}),
                Some(json!([])),
            ),
            (
                json!({"kind": "services", "labelSelector": {"matchLabels": {"x": "1"}}}),
                Some(json!(["a"])),
            ),
            (
                json!({"kind": "services", "labelSelector": {"matchExpressions": []}}),
                None,
            ),
            (json!({"kind": "services", "namespaces": ["n"]}), None),
            (json!({"kind": "pods"}), None),
        ] {
            assert_eq!(found(resource.clone(), "names"), expected, "{resource}");
        }
        let whole = found(json!({"kind": "services", "name": "b"}), "").unwrap();
        assert_eq!(whole["items"][0]["metadata"]["name"], "b");
    }
}
