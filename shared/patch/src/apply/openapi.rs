//! Types from OpenAPI v3: of what an API server publishes, and of CustomResourceDefinitions.
//!
//! A schema without a `type` allows every shape. Lists are atomic and maps are merged unless their
//! extensions say otherwise. Maps without declared fields take anything, and what is in them is merged by
//! its shape: objects field by field, lists as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    built_in, record, smallest,
    types::{List, ListMapKey, Map, ObjectSchema, Scalar, SchemaError, TYPES_MAX, Type, TypeId},
};
use crate::size;

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const MERGE_KEY: &str = "x-kubernetes-patch-merge-key";
const PATCH_STRATEGY: &str = "x-kubernetes-patch-strategy";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Types whose schema says less than they are.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// The type of all objects' metadata.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Anything, as one value.
const WHOLE: TypeId = 0;
/// Anything, of which objects are merged.
const DEDUCED: TypeId = 1;

/// Reads the types of all kinds of objects in an API server's OpenAPI v3 documents, one for each group and
/// version. They are by `apiVersion` and kind: `apps/v1 Deployment`.
///
/// # Errors
/// [`SchemaError`]: a document is none.
pub fn published(documents: &[Value]) -> Result<BTreeMap<String, ObjectSchema>, SchemaError> {
    let schemas = documents.iter().filter_map(|document| {
        let schemas = document.pointer("/components/schemas")?;
        schemas.as_object()
    });
    let schemas: BTreeMap<&str, &Value> = schemas
        .flatten()
        .map(|(name, schema)| (name.as_str(), schema))
        .collect();
    let mut reader = SchemaReader::new(schemas);
    let mut kinds = BTreeMap::new();
    for (name, schema) in reader.schemas.clone() {
        let metadata = schema.pointer("/properties/metadata").and_then(reference);
        if metadata != Some(OBJECT_META) {
            continue;
        }
        let of = schema.get(GROUP_VERSION_KIND).and_then(Value::as_array);
        for of in of.into_iter().flatten() {
            let text = |name| of.get(name).and_then(Value::as_str).unwrap_or_default();
            let api_version = match text("group") {
                "" => text("version").to_owned(),
                group => format!("{group}/{}", text("version")),
            };
            let kind = format!("{api_version} {}", text("kind"));
            kinds.insert(kind, reader.named(name)?);
        }
    }
    let types = reader.finish()?;
    let kinds = kinds.into_iter();
    Ok(kinds
        .map(|(kind, root)| (kind, ObjectSchema::new(types.clone(), root)))
        .collect())
}

/// Makes the table of Kubernetes' own types: what `cargo xtask schemas` writes.
///
/// # Errors
/// [`SchemaError`]: a document is none.
pub fn built_in_table(documents: &[Value]) -> Result<String, SchemaError> {
    let kinds = published(documents)?;
    let Some(any) = kinds.values().next() else {
        return Err(malformed("the documents", "they have no kinds of objects"));
    };
    let roots: Vec<TypeId> = kinds.values().map(ObjectSchema::root).collect();
    let (types, roots) = smallest::table(any.types(), &roots);
    let kinds = kinds.into_keys().zip(roots).collect();
    Ok(record::write_kinds(&types, &kinds))
}

/// The type that a CustomResourceDefinition declares, as the API server publishes it: with the type and
/// metadata of all objects, in embedded ones too.
pub(super) fn of_custom(schema: &Value) -> Result<ObjectSchema, SchemaError> {
    size::check_depth(schema).map_err(|_| SchemaError::TooDeep)?;
    let Some(metadata) = built_in::metadata() else {
        return Err(malformed("metadata", "the table of own types has none"));
    };
    let mut reader = SchemaReader::new(BTreeMap::new());
    reader.metadata = Some(reader.copied(&metadata)?);
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(malformed("type", "objects are of the type `object`"));
    }
    let of = reader.inline(schema, false, true, "openAPIV3Schema")?;
    let root = reader.push(of)?;
    Ok(ObjectSchema::new(reader.finish()?, root))
}

fn malformed(place: &str, problem: impl Into<String>) -> SchemaError {
    SchemaError::Malformed {
        place: place.to_owned(),
        problem: problem.into(),
    }
}

/// A table of types, while it is read.
struct SchemaReader<'d> {
    /// The schemas that may be referred to.
    schemas: BTreeMap<&'d str, &'d Value>,
    named: BTreeMap<&'d str, TypeId>,
    types: Vec<Type>,
    /// Pairs of types that differ only in being atomic.
    alike: Vec<(TypeId, TypeId, bool)>,
    /// The type of metadata, where schemas leave it out: in those of definitions.
    metadata: Option<TypeId>,
}

impl<'d> SchemaReader<'d> {
    fn new(schemas: BTreeMap<&'d str, &'d Value>) -> Self {
        let any = |objects: TypeId, is_atomic| Type {
            scalar: Some(Scalar::Any),
            list: Some(List {
                element: WHOLE,
                is_atomic: true,
                keys: Vec::new(),
            }),
            map: Some(Map {
                fields: BTreeMap::new(),
                element: Some(objects),
                is_atomic,
            }),
        };
        Self {
            schemas,
            named: BTreeMap::new(),
            types: vec![any(WHOLE, true), any(DEDUCED, false)],
            alike: Vec::new(),
            metadata: None,
        }
    }

    fn push(&mut self, of: Type) -> Result<TypeId, SchemaError> {
        if self.types.len() >= TYPES_MAX {
            return Err(SchemaError::TooLarge);
        }
        self.types.push(of);
        Ok(self.types.len() - 1)
    }

    /// Copies a type from a different table, with all types that the type refers to.
    fn copied(&mut self, schema: &ObjectSchema) -> Result<TypeId, SchemaError> {
        let reached = ObjectSchema::reached(schema.types(), &[schema.root()]);
        let first = self.types.len();
        let places: BTreeMap<TypeId, TypeId> = reached
            .iter()
            .enumerate()
            .map(|(place, id)| (*id, first + place))
            .collect();
        for id in &reached {
            if let Some(of) = schema.types().get(*id) {
                self.push(of.renamed(|id| places.get(&id).copied().unwrap_or(WHOLE)))?;
            }
        }
        Ok(first)
    }

    fn finish(mut self) -> Result<Arc<[Type]>, SchemaError> {
        for (id, original, is_atomic) in std::mem::take(&mut self.alike) {
            let mut of = self.types.get(original).cloned().unwrap_or_default();
            match (&mut of.map, &mut of.list) {
                (Some(map), _) => map.is_atomic = is_atomic,
                (None, Some(list)) => list.is_atomic = is_atomic,
                (None, None) => return Err(malformed(MAP_TYPE, "a single value has none")),
            }
            if let Some(place) = self.types.get_mut(id) {
                *place = of;
            }
        }
        Ok(self.types.into())
    }

    /// The type of a schema that is referred to.
    fn named(&mut self, name: &'d str) -> Result<TypeId, SchemaError> {
        if let Some(id) = self.named.get(name) {
            return Ok(*id);
        }
        let Some(schema) = self.schemas.get(name).copied() else {
            return Err(malformed(name, "it is referred to, and not there"));
        };
        // Types may be parts of themselves, so the place is taken first.
        let id = self.push(Type::default())?;
        self.named.insert(name, id);
        let of = match name {
            QUANTITY => Type {
                scalar: Some(Scalar::Any),
                ..Type::default()
            },
            RAW_EXTENSION => self.types.get(WHOLE).cloned().unwrap_or_default(),
            _ => self.inline(schema, false, false, name)?,
        };
        if let Some(place) = self.types.get_mut(id) {
            *place = of;
        }
        Ok(id)
    }

    /// The type of a schema in another one. `preserves`: unknown fields of all objects in it are kept.
    fn schema(
        &mut self,
        schema: &'d Value,
        preserves: bool,
        place: &str,
    ) -> Result<TypeId, SchemaError> {
        let Some(name) = reference(schema) else {
            let of = self.inline(schema, preserves, false, place)?;
            return self.push(of);
        };
        let id = self.named(name)?;
        match is_atomic_map(schema, place)? {
            None => Ok(id),
            Some(is_atomic) => {
                let alike = self.push(Type::default())?;
                self.alike.push((alike, id, is_atomic));
                Ok(alike)
            }
        }
    }

    fn inline(
        &mut self,
        schema: &'d Value,
        preserves: bool,
        is_object: bool,
        place: &str,
    ) -> Result<Type, SchemaError> {
        let preserves = preserves || is_true(schema, PRESERVE);
        let of_scalar = |scalar| Type {
            scalar: Some(scalar),
            ..Type::default()
        };
        let format = schema.get("format").and_then(Value::as_str);
        Ok(match schema.get("type").map(Value::as_str) {
            None => Type {
                scalar: Some(Scalar::Any),
                list: Some(self.list(schema, preserves, place)?),
                map: Some(self.map(schema, preserves, is_object, place)?),
            },
            Some(Some("object")) => Type {
                map: Some(self.map(schema, preserves, is_object, place)?),
                ..Type::default()
            },
            Some(Some("array")) => Type {
                list: Some(self.list(schema, preserves, place)?),
                ..Type::default()
            },
            Some(Some("integer" | "number")) => of_scalar(Scalar::Number),
            Some(Some("boolean")) => of_scalar(Scalar::Boolean),
            Some(Some("string")) => of_scalar(match format {
                None | Some("" | "byte") => Scalar::Text,
                Some(_) => Scalar::Any,
            }),
            Some(_) => return Err(malformed(place, "`type` is none of OpenAPI's")),
        })
    }

    fn map(
        &mut self,
        schema: &'d Value,
        preserves: bool,
        is_object: bool,
        place: &str,
    ) -> Result<Map, SchemaError> {
        let mut fields = BTreeMap::new();
        let declared = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in declared.into_iter().flatten() {
            let place = format!("{place}.{name}");
            fields.insert(name.clone(), self.schema(schema, preserves, &place)?);
        }
        if let Some(metadata) = self
            .metadata
            .filter(|_| is_object || is_true(schema, EMBEDDED))
        {
            let text = self.push(Type {
                scalar: Some(Scalar::Text),
                ..Type::default()
            })?;
            fields.insert("apiVersion".to_owned(), text);
            fields.insert("kind".to_owned(), text);
            fields.insert("metadata".to_owned(), metadata);
        }
        let element = match schema.get("additionalProperties") {
            None | Some(Value::Null) if preserves || fields.is_empty() => Some(DEDUCED),
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(DEDUCED),
            Some(schema) => Some(self.schema(schema, preserves, &format!("{place}.*"))?),
        };
        Ok(Map {
            fields,
            element,
            is_atomic: is_atomic_map(schema, place)?.unwrap_or(false),
        })
    }

    fn list(
        &mut self,
        schema: &'d Value,
        preserves: bool,
        place: &str,
    ) -> Result<List, SchemaError> {
        let merged = merged_by(schema, place)?;
        let items = schema.get("items");
        let keys = merged.iter().flatten().map(|name| ListMapKey {
            name: (*name).to_owned(),
            default: items.and_then(|items| self.default(items, name)),
        });
        let keys = keys.collect();
        let element = match items {
            Some(items) => self.schema(items, preserves, &format!("{place}[]"))?,
            None if schema.get("type").is_none() => WHOLE,
            None => return Err(malformed(place, "an array without `items`")),
        };
        Ok(List {
            element,
            is_atomic: merged.is_none(),
            keys,
        })
    }

    /// The default of a field in a schema.
    fn default(&self, schema: &Value, field: &str) -> Option<Value> {
        let schema = match reference(schema) {
            Some(name) => self.schemas.get(name).copied()?,
            None => schema,
        };
        let default = schema.get("properties")?.get(field)?.get("default")?;
        Some(default.clone()).filter(|default| !default.is_null())
    }
}

fn is_true(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// The name of the schema to which this schema refers.
fn reference(schema: &Value) -> Option<&str> {
    let own = schema.get("$ref");
    // With a description or a default beside it, it stands alone in `allOf`.
    let path = own.or_else(|| match schema.get("allOf")?.as_array()?.as_slice() {
        [one] => one.get("$ref"),
        _ => None,
    });
    let path = path?.as_str()?;
    path.rsplit('/').next().filter(|name| !name.is_empty())
}

fn is_atomic_map(schema: &Value, place: &str) -> Result<Option<bool>, SchemaError> {
    match schema.get(MAP_TYPE).map(Value::as_str) {
        None => Ok(None),
        Some(Some("atomic")) => Ok(Some(true)),
        Some(Some("granular")) => Ok(Some(false)),
        Some(_) => Err(malformed(
            place,
            format!("`{MAP_TYPE}` is none that is known"),
        )),
    }
}

/// The keys by which a list is merged, none of a set; `None`: it is not merged.
fn merged_by<'d>(schema: &'d Value, place: &str) -> Result<Option<Vec<&'d str>>, SchemaError> {
    let text = |name| schema.get(name).and_then(Value::as_str);
    match (text(LIST_TYPE), text(PATCH_STRATEGY)) {
        (Some("atomic"), _) | (None, None | Some("retainKeys")) => Ok(None),
        (Some("set"), _) => Ok(Some(Vec::new())),
        (Some("map"), _) => {
            let keys = schema.get(LIST_MAP_KEYS).and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            let keys: BTreeSet<&str> = keys.collect();
            if keys.is_empty() {
                return Err(malformed(place, format!("`{LIST_MAP_KEYS}` names none")));
            }
            Ok(Some(keys.into_iter().collect()))
        }
        (None, Some("merge" | "merge,retainKeys")) => {
            Ok(Some(text(MERGE_KEY).into_iter().collect()))
        }
        (Some(_), _) => Err(malformed(
            place,
            format!("`{LIST_TYPE}` is none that is known"),
        )),
        (None, Some(_)) => {
            let problem = format!("`{PATCH_STRATEGY}` is none that is known");
            Err(malformed(place, problem))
        }
    }
}
