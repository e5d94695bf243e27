//! Entries that are declared among the given manifests, with what they keep out of the given resources.

use anteroom_model::{EntryKind, FactError, ObjectKey};
use anteroom_policy::CollectionReference;
use serde_json::{Map, Value};

use crate::{
    facts::{Unanswered, World, nothing, search},
    given_objects::ObjectType,
    suite::ProjectionData,
};

/// A `GlobalContextEntry` or a `CachedContextEntry` of objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredEntry {
    kind: EntryKind,
    name: String,
    /// `None` where it keeps something else, as what an API call answers, or selects by more than is looked at
    /// here (`namespaces`, `matchExpressions`): nothing is known of that.
    kept: Option<DeclaredSource>,
    projections: Vec<(String, String)>,
}

/// The source of an entry.
#[derive(Clone, Debug, PartialEq)]
enum DeclaredSource {
    Objects(CollectionReference),
    /// One of a group (`None`: any) and a resource.
    Object(Option<String>, String, ObjectKey),
}

impl DeclaredEntry {
    /// Returns whether it is a `CachedContextEntry`, which Kyverno does not have.
    pub(crate) fn is_cached(&self) -> bool {
        self.kind == EntryKind::Cached
    }

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
        let kept = match kind {
            EntryKind::Cached => spec["resource"].as_object().and_then(cached),
            _ => spec["kubernetesResource"].as_object().map(global),
        };
        let projections = spec["projections"].as_array().into_iter().flatten();
        Some(Self {
            kind,
            name: text(&manifest["metadata"]["name"]),
            kept,
            projections: projections
                .map(|one| (text(&one["name"]), text(&one["jmesPath"])))
                .collect(),
        })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn global(of: &Map<String, Value>) -> DeclaredSource {
    let part = |name: &str| of.get(name).map(text).unwrap_or_default();
    DeclaredSource::Objects(CollectionReference {
        // A missing group is the core group.
        group: Some(group(&part("group"))),
        resource: part("resource"),
        namespace: part("namespace"),
        ..CollectionReference::default()
    })
}

/// `None` where it selects by what is not looked at here.
fn cached(of: &Map<String, Value>) -> Option<DeclaredSource> {
    let part = |name: &str| of.get(name).map(text).unwrap_or_default();
    let group = of.get("group").map(|given| group(&text(given)));
    let resource = part("kind").trim().to_owned();
    if !part("name").is_empty() {
        let selects = ["namespaces", "labelSelector", "fieldSelector"];
        let key = ObjectKey::new(&*part("namespace"), &*part("name"));
        return (!selects.iter().any(|field| of.contains_key(*field)))
            .then_some(DeclaredSource::Object(group, resource, key));
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
    (!of.contains_key("namespaces")).then(|| {
        DeclaredSource::Objects(CollectionReference {
            group,
            resource,
            namespace: part("namespace"),
            field_selector: part("fieldSelector"),
            label_selector: labels.join(","),
            ..CollectionReference::default()
        })
    })
}

/// The group and version as objects have it; entries may also write it as the beginning of a path, and the core group by name.
fn group(written: &str) -> String {
    let written = written.trim().trim_matches('/');
    let written = written.strip_prefix("apis/").unwrap_or(written);
    match written.split('/').next().unwrap_or_default() {
        "core" | "api" => String::new(),
        group => group.to_owned(),
    }
}

impl DeclaredSource {
    /// The only namespace of the source's objects; empty: the source may have objects of several.
    fn namespace(&self) -> &str {
        match self {
            Self::Objects(of) => &of.namespace,
            Self::Object(_, _, key) => &key.namespace,
        }
    }
}

impl World {
    /// Returns whether an entry of this kind and name is declared.
    pub(crate) fn declares(&self, kind: EntryKind, name: &str) -> bool {
        let mut all = self.declared.iter();
        all.any(|entry| entry.kind == kind && entry.name == name)
    }

    /// Returns the data of a declared entry, or the result of one of its projections. `home` is the namespace of a
    /// namespaced policy. `None`: no entry has this name.
    pub(crate) fn declared(
        &self,
        kind: EntryKind,
        name: &str,
        projection: &str,
        home: Option<&str>,
    ) -> Option<Result<Value, Unanswered>> {
        let mut all = self.declared.iter();
        let entry = all.find(|entry| entry.kind == kind && entry.name == name)?;
        let within = entry.kept.as_ref().map_or("", DeclaredSource::namespace);
        Some(match home {
            Some(home) if home != within => Err(Unanswered::Failed(FactError::OutsideNamespace {
                entry: name.to_owned(),
                namespace: home.to_owned(),
            })),
            _ => self.kept(entry, projection),
        })
    }

    /// In the shape that it has in a cluster: a document of a `CachedContextEntry`, the objects of a
    /// `GlobalContextEntry`, or one object.
    fn kept(&self, entry: &DeclaredEntry, projection: &str) -> Result<Value, Unanswered> {
        let name = &entry.name;
        let data = match entry.kept.as_ref().ok_or_else(|| nothing(name))? {
            DeclaredSource::Object(group, resource, key) => {
                let of = ObjectType {
                    group: group.as_deref(),
                    name: resource,
                };
                self.object(of, key)?.clone()
            }
            DeclaredSource::Objects(objects) if entry.kind == EntryKind::Cached => {
                self.document(objects)?
            }
            DeclaredSource::Objects(objects) => self.collection(objects)?["items"].take(),
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
    use serde_json::json;

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
            let found = world.declared(EntryKind::Global, "hosts", projection, None);
            found.unwrap()
        };
        assert_eq!(of(&world, "").unwrap()[0]["metadata"]["name"], "a");
        assert_eq!(of(&world, "names"), Ok(json!(["a"])));
        let error = of(&world, "nope").unwrap_err();
        assert!(
            format!("{error:?}").contains("known: \"names\""),
            "{error:?}"
        );
        assert!(
            world
                .declared(EntryKind::Cached, "hosts", "", None)
                .is_none()
        );
        assert!(
            world
                .declared(EntryKind::Global, "other", "", None)
                .is_none()
        );
        // Of a kind of which none is given nothing is known, and of what a call answers.
        world.resources.clear();
        assert!(matches!(of(&world, "names"), Err(Unanswered::Nothing(_))));
        let called = entry(&json!({"apiCall": {"urlPath": "/api/v1/pods"}}));
        world.declared = vec![DeclaredEntry::new(&called).unwrap()];
        assert!(matches!(of(&world, ""), Err(Unanswered::Nothing(_))));
        assert!(DeclaredEntry::new(&json!({"kind": "GlobalContextEntry"})).is_none());
    }

    fn service(version: &str, name: &str, labels: &Value) -> Resource {
        let metadata = json!({"name": name, "namespace": "n", "labels": labels});
        let manifest = json!({"apiVersion": version, "kind": "Service", "metadata": metadata});
        Resource::new(manifest).unwrap()
    }

    fn services(entry: &Value) -> World {
        World {
            declared: vec![DeclaredEntry::new(entry).unwrap()],
            resources: vec![
                service("v1", "a", &json!({"x": "1"})),
                service("v1", "b", &json!({})),
            ],
            ..World::default()
        }
    }

    fn cached_entry(resource: &Value) -> Value {
        json!({"apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
            "metadata": {"name": "all"}, "spec": {"resource": resource, "projections": [
                {"name": "names", "jmesPath": "[services.items[].metadata.name, metadata.name]"}]}})
    }

    #[test]
    fn a_cached_entry_has_the_shape_that_it_has_in_a_cluster() {
        let found = |resource: &Value, projection: &str| {
            let world = services(&cached_entry(resource));
            let found = world.declared(EntryKind::Cached, "all", projection, None);
            found.unwrap().ok()
        };
        let selects = json!({"matchLabels": {"x": "1"}});
        for (resource, expected) in [
            (json!({"kind": "services"}), Some(json!([["a", "b"], null]))),
            (json!({"kind": "Service"}), Some(json!([["a", "b"], null]))),
            (
                json!({"kind": "services", "group": "core"}),
                Some(json!([["a", "b"], null])),
            ),
            (
                json!({"kind": "services", "namespace": "m"}),
                Some(json!([[], null])),
            ),
            (
                json!({"kind": "services", "labelSelector": selects}),
                Some(json!([["a"], null])),
            ),
            (
                json!({"kind": "services", "fieldSelector": "metadata.name=b"}),
                Some(json!([["b"], null])),
            ),
            (
                json!({"kind": "services", "labelSelector": {"matchExpressions": []}}),
                None,
            ),
            (json!({"kind": "services", "namespaces": ["n"]}), None),
            (json!({"kind": "pods"}), None),
            // Of another group nothing is given.
            (
                json!({"kind": "services", "group": "serving.knative.dev"}),
                None,
            ),
            // A source of a single object holds this object; an object that was not given is unknown.
            (
                json!({"kind": "Service", "namespace": "n", "name": "b"}),
                Some(json!([null, "b"])),
            ),
            (
                json!({"kind": "services", "namespace": "n", "name": "c"}),
                None,
            ),
        ] {
            assert_eq!(found(&resource, "names"), expected, "{resource}");
        }
        let whole = found(&json!({"kind": "services"}), "").unwrap();
        let list = &whole["services"];
        assert_eq!(
            (&whole["apiVersion"], &whole["kind"]),
            (&json!("v1"), &json!("ServiceList"))
        );
        assert_eq!(
            (&list["kind"], &list["items"]),
            (&whole["kind"], &whole["items"])
        );
        let one = found(
            &json!({"kind": "services", "namespace": "n", "name": "b"}),
            "",
        );
        assert_eq!(one.unwrap()["metadata"]["name"], "b");
    }

    #[test]
    fn an_entry_selects_objects_of_its_own_api_group() {
        let knative =
            json!({"version": "v1", "group": "serving.knative.dev", "resource": "services"});
        let mut world = services(&entry(&json!({"kubernetesResource": knative})));
        let of = |world: &World| world.declared(EntryKind::Global, "hosts", "", None);
        assert!(matches!(of(&world), Some(Err(Unanswered::Nothing(_)))));
        let own = service("serving.knative.dev/v1", "k", &json!({}));
        world.targets.push(own);
        let found = of(&world).unwrap().unwrap();
        assert_eq!(found.as_array().unwrap().len(), 1);
        assert_eq!(found[0]["metadata"]["name"], "k");
        // Without a group, either could be meant.
        world.declared =
            vec![DeclaredEntry::new(&cached_entry(&json!({"kind": "services"}))).unwrap()];
        let found = world.declared(EntryKind::Cached, "all", "", None);
        assert!(matches!(found, Some(Err(Unanswered::Failed(_)))));
    }

    #[test]
    fn a_policy_of_a_namespace_reads_entries_of_it_alone() {
        for (namespace, is_inside) in [("n", true), ("m", false), ("", false)] {
            let resource = json!({"kind": "services", "namespace": namespace});
            let world = services(&cached_entry(&resource));
            let found = world.declared(EntryKind::Cached, "all", "", Some("n"));
            match found.unwrap() {
                Ok(_) => assert!(is_inside),
                Err(Unanswered::Failed(FactError::OutsideNamespace { entry, namespace })) => {
                    assert!(!is_inside);
                    assert_eq!((&*entry, &*namespace), ("all", "n"));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
