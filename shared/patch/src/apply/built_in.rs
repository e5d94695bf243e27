//! The table of Kubernetes' own types, read once, when it is needed. `cargo xtask schemas` writes it.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use super::{
    record,
    types::{ObjectSchema, SchemaError, Type, TypeId},
};

/// The types of the Kubernetes version that `tests/parts` pins.
pub(super) const TABLE: &str = include_str!("built_in.json");

/// Types by `apiVersion` and kind.
struct BuiltIn {
    types: Arc<[Type]>,
    kinds: BTreeMap<String, TypeId>,
}

static BUILT_IN: LazyLock<Result<BuiltIn, SchemaError>> = LazyLock::new(|| {
    let (types, kinds) = record::read_kinds(TABLE)?;
    let types = types.into();
    Ok(BuiltIn { types, kinds })
});

pub(super) fn find(api_version: &str, kind: &str) -> Option<ObjectSchema> {
    let table = BUILT_IN.as_ref().ok()?;
    let root = table.kinds.get(&format!("{api_version} {kind}"))?;
    Some(ObjectSchema::new(table.types.clone(), *root))
}

/// Returns whether any kind is of this API group.
pub(super) fn has_group(group: &str) -> bool {
    let is_of = |key: &String| match key.split_once(' ').map_or("", |(version, _)| version) {
        version if group.is_empty() => !version.contains('/'),
        version => version.split_once('/').is_some_and(|(own, _)| own == group),
    };
    let table = BUILT_IN.as_ref().ok();
    table.is_some_and(|table| table.kinds.keys().any(is_of))
}

/// The type of the metadata of all objects.
pub(super) fn metadata() -> Option<ObjectSchema> {
    let table = BUILT_IN.as_ref().ok()?;
    let root = table.types.get(*table.kinds.get("v1 ConfigMap")?)?;
    let id = root.map.as_ref()?.field("metadata")?;
    Some(ObjectSchema::new(table.types.clone(), id))
}
