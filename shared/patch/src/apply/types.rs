//! Types as the structured merge sees them: which shapes a value may have, and how lists and maps merge.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use thiserror::Error;

/// Types of one schema.
pub const TYPES_MAX: usize = 50_000;

/// A place in a table of types.
pub(super) type TypeId = usize;

/// Types that refer to each other by index.
pub(super) type Types = [Type];

/// The shapes that a value may have. A type may allow several: `int-or-string`, or anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Type {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List>,
    pub(super) map: Option<Map>,
}

/// A single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Text,
    Number,
    Boolean,
    Any,
}

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct List {
    pub(super) element: TypeId,
    pub(super) is_atomic: bool,
    /// The fields that tell elements from each other; none: the elements themselves do.
    pub(super) keys: Vec<ListMapKey>,
}

/// A field by which elements of a list are told from each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ListMapKey {
    pub(super) name: String,
    /// The value of an element that does not have the field.
    pub(super) default: Option<Value>,
}

/// An object with known fields, or a map from names to values of one type, or both.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Map {
    pub(super) fields: BTreeMap<String, TypeId>,
    /// The type of all other fields; `None`: there are no others.
    pub(super) element: Option<TypeId>,
    pub(super) is_atomic: bool,
}

impl Map {
    pub(super) fn field(&self, name: &str) -> Option<TypeId> {
        self.fields.get(name).copied().or(self.element)
    }
}

impl Type {
    /// Returns the types of the elements and fields.
    pub(super) fn named(&self) -> impl Iterator<Item = TypeId> + '_ {
        let list = self.list.iter().map(|list| list.element);
        let map = self.map.iter();
        let map = map.flat_map(|map| map.fields.values().copied().chain(map.element));
        list.chain(map)
    }

    /// Returns the type with its type ids renamed.
    pub(super) fn renamed(&self, rename: impl Fn(TypeId) -> TypeId) -> Self {
        let mut renamed = self.clone();
        if let Some(list) = &mut renamed.list {
            list.element = rename(list.element);
        }
        if let Some(map) = &mut renamed.map {
            map.element = map.element.map(&rename);
            for id in map.fields.values_mut() {
                *id = rename(*id);
            }
        }
        renamed
    }
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// The schema is none, or of a form that structured merges do not know.
    #[error("the schema cannot be used: {place}: {problem}")]
    Malformed {
        /// The path in the schema.
        place: String,
        /// The fault at that path.
        problem: String,
    },
    /// The schema has more types than are kept.
    #[error("the schema has more than {TYPES_MAX} types")]
    TooLarge,
    /// The schema nests deeper than is read.
    #[error("the schema nests deeper than {} levels", crate::DEPTH_MAX)]
    TooDeep,
}

/// The type of a kind's objects.
#[derive(Clone, Debug)]
pub struct ObjectSchema {
    types: Arc<Types>,
    root: TypeId,
}

impl ObjectSchema {
    pub(super) fn new(types: Arc<Types>, root: TypeId) -> Self {
        Self { types, root }
    }

    pub(super) fn types(&self) -> &Types {
        &self.types
    }

    pub(super) fn root(&self) -> TypeId {
        self.root
    }

    /// The types that the root needs, in the order in which they are met.
    pub(super) fn reached(types: &Types, roots: &[TypeId]) -> Vec<TypeId> {
        let (mut seen, mut reached) = (BTreeSet::new(), Vec::new());
        let mut waiting: Vec<TypeId> = roots.iter().rev().copied().collect();
        while let Some(id) = waiting.pop() {
            let Some(of) = types.get(id).filter(|_| seen.insert(id)) else {
                continue;
            };
            reached.push(id);
            let named: Vec<TypeId> = of.named().collect();
            waiting.extend(named.into_iter().rev());
        }
        reached
    }
}
