//! The merge of two values of the same type.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map as Fields, Value};

use super::{
    item,
    types::{List, Map, TypeId, Types},
};
use crate::{PatchError, size::Work};

/// The work of an element of a merged list, in bytes of text, beside that of copying the element: its identity is written,
/// kept, and searched for.
const ELEMENT_BYTES: usize = 2 * item::IDENTITY_BYTES;

/// Merges `patch` into `object`. Both fit the type, and `patch` has no nulls. `work` counts the elements of merged lists;
/// the copy was counted.
pub(super) fn merge(
    types: &Types,
    id: TypeId,
    object: &Value,
    patch: &Value,
    work: Work<'_>,
) -> Result<Value, PatchError> {
    let of = types.get(id);
    Ok(match (object, patch) {
        (Value::Object(fields), Value::Object(patch)) => match of.and_then(|of| of.map.as_ref()) {
            Some(map) if !map.is_atomic => {
                Value::Object(merge_fields(types, map, fields, patch, work)?)
            }
            _ => Value::Object(patch.clone()),
        },
        (Value::Array(elements), Value::Array(patch)) => match of.and_then(|of| of.list.as_ref()) {
            Some(list) if !list.is_atomic => {
                Value::Array(merge_elements(types, list, elements, patch, work)?)
            }
            _ => Value::Array(patch.clone()),
        },
        // A single value, or one of another shape where the type allows several.
        _ => patch.clone(),
    })
}

fn merge_fields(
    types: &Types,
    map: &Map,
    fields: &Fields<String, Value>,
    patch: &Fields<String, Value>,
    work: Work<'_>,
) -> Result<Fields<String, Value>, PatchError> {
    // Each value is copied once, however deep it is.
    let merged = fields.iter().map(|(name, found)| {
        let value = match (patch.get(name), map.field(name)) {
            (None, _) => found.clone(),
            (Some(patch), Some(id)) => merge(types, id, found, patch, work)?,
            (Some(patch), None) => patch.clone(),
        };
        Ok::<_, PatchError>((name.clone(), value))
    });
    let added = patch.iter().filter(|(name, _)| !fields.contains_key(*name));
    let added = added.map(|(name, patch)| Ok((name.clone(), patch.clone())));
    merged.chain(added).collect()
}

/// An element and its identity.
type Item<'v> = (String, &'v Value);

/// A merge of two lists, while it is under way.
struct Merge<'v> {
    types: &'v Types,
    element: TypeId,
    /// The object's elements; `None` of an identity that several have, which no patch is merged into.
    of_object: BTreeMap<String, Option<&'v Value>>,
    /// The patch's elements that are not merged yet, in its order.
    waiting: VecDeque<Item<'v>>,
    /// Identities that both the patch and the object have, in the patch's order.
    shared: VecDeque<String>,
    merged: Vec<Value>,
    work: Work<'v>,
}

impl Merge<'_> {
    /// Merges the patch's next element.
    fn take(&mut self) -> Result<(), PatchError> {
        let Some((item, patch)) = self.waiting.pop_front() else {
            return Ok(());
        };
        if self.shared.front() == Some(&item) {
            self.shared.pop_front();
        }
        let found = self.of_object.get(&item).copied().flatten();
        self.merged.push(match found {
            Some(found) => merge(self.types, self.element, found, patch, self.work)?,
            None => patch.clone(),
        });
        Ok(())
    }

    /// Merges the patch's elements up to and including `item`.
    fn take_through(&mut self, item: &str) -> Result<(), PatchError> {
        while let Some((next, _)) = self.waiting.front() {
            let is_last = next == item;
            self.take()?;
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

fn merge_elements(
    types: &Types,
    list: &List,
    elements: &[Value],
    patch: &[Value],
    work: Work<'_>,
) -> Result<Vec<Value>, PatchError> {
    if patch.is_empty() {
        return Ok(elements.to_vec());
    }
    work.charge(ELEMENT_BYTES * (elements.len() + patch.len()))?;
    let (elements, waiting) = (items(list, elements), items(list, patch));
    let mut of_object = BTreeMap::new();
    for (item, element) in &elements {
        let several = of_object.contains_key(item);
        of_object.insert(item.clone(), (!several).then_some(*element));
    }
    let of_patch: BTreeSet<String> = waiting.iter().map(|(item, _)| item.clone()).collect();
    let shared = waiting.iter().map(|(item, _)| item);
    let shared = shared.filter(|item| of_object.contains_key(*item));
    let mut merge = Merge {
        types,
        element: list.element,
        shared: shared.cloned().collect(),
        of_object,
        waiting,
        merged: Vec::new(),
        work,
    };
    for (item, element) in &elements {
        match merge.shared.front() {
            _ if !of_patch.contains(item) => merge.merged.push((*element).clone()),
            Some(next) if next == item => merge.take_through(item)?,
            // Out of the patch's order: it comes where the patch has it.
            Some(_) => {}
            // It is there twice, and is merged already. The API server goes on with the patch here.
            None => merge.take()?,
        }
    }
    while !merge.waiting.is_empty() {
        merge.take()?;
    }
    Ok(merge.merged)
}

/// Returns the elements that have an identity, each with its identity.
fn items<'v>(list: &List, elements: &'v [Value]) -> VecDeque<Item<'v>> {
    let item = |element| Some((item::identity(list, element).ok()?, element));
    elements.iter().filter_map(item).collect()
}
