//! Map values.

use std::{cmp::Ordering, sync::Arc};

use anteroom_jmespath::{Node as _, Shape};
use anteroom_wire::body::BodyNode;
use serde_json::Value;

use super::{Text, Val, compare};

/// A map, of the request or of a view, or made.
#[derive(Clone, Debug)]
pub(crate) enum Map<'v> {
    Json(&'v serde_json::Map<String, Value>),
    Body(BodyNode<'v>),
    /// A few entries, no key twice.
    Own(Arc<[(Val<'v>, Val<'v>)]>),
}

impl<'v> Map<'v> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(entries) => entries.len(),
            Self::Body(node) => match node.shape() {
                Shape::Object(count) => count,
                _ => 0,
            },
            Self::Own(entries) => entries.len(),
        }
    }

    pub(crate) fn get(&self, key: &Val<'_>) -> Option<Val<'v>> {
        match self {
            Self::Json(entries) => entries.get(key.as_text()?).map(Val::of),
            Self::Body(node) => node.field(key.as_text()?).map(Val::of_node),
            Self::Own(entries) => {
                let mut all = entries.iter();
                let found = all.find(|(own, _)| same_key(own, key))?;
                Some(found.1.clone())
            }
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<Val<'v>> {
        match self {
            Self::Json(entries) => entries.get(name).map(Val::of),
            Self::Body(node) => node.field(name).map(Val::of_node),
            Self::Own(entries) => {
                let mut all = entries.iter();
                let found = all.find(|(own, _)| own.as_text() == Some(name))?;
                Some(found.1.clone())
            }
        }
    }

    pub(crate) fn keys(&self) -> Vec<Val<'v>> {
        match self {
            Self::Json(entries) => {
                let lent = |key| Val::Text(Text::Lent(key));
                entries.keys().map(|key| lent(key.as_str())).collect()
            }
            Self::Body(_) => {
                let entries = self.entries().into_iter();
                entries.map(|(key, _)| key).collect()
            }
            Self::Own(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    pub(crate) fn entries(&self) -> Vec<(Val<'v>, Val<'v>)> {
        match self {
            Self::Json(entries) => {
                let lent = |key| Val::Text(Text::Lent(key));
                let all = entries.iter();
                all.map(|(key, value)| (lent(key.as_str()), Val::of(value)))
                    .collect()
            }
            // In the order that JSON has them in: what is read in place is read as what was parsed.
            Self::Body(node) => {
                let mut all: Vec<_> = node.entries().collect();
                all.sort_by_key(|(name, _)| *name);
                let lent = |key| Val::Text(Text::Lent(key));
                let all = all.into_iter();
                all.map(|(key, value)| (lent(key), Val::of_node(value)))
                    .collect()
            }
            Self::Own(entries) => entries.to_vec(),
        }
    }

    /// Returns whether a value can be a key.
    pub(crate) fn is_key(value: &Val<'_>) -> bool {
        matches!(
            value,
            Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Text(_)
        )
    }
}

/// Numbers are one key, whatever their type.
pub(crate) fn same_key(left: &Val<'_>, right: &Val<'_>) -> bool {
    match (left, right) {
        (Val::Text(left), Val::Text(right)) => **left == **right,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        (left, right) => compare::numbers(left, right) == Some(Some(Ordering::Equal)),
    }
}
