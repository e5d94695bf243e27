//! Objects of a label selector.

use std::{borrow::Cow, sync::LazyLock};

use anteroom_jmespath::Expression;
use anteroom_model::LabelSelector;
use serde_json::json;

use super::{Matching, Narrow, Operand, Probe};
use crate::{Key, Leaf, Reading};

/// An object without labels has none, which is no reason to look at it.
const LABELS: &str = "metadata.labels || `{}`";

/// The labels of an object.
static KEY: LazyLock<Option<Key>> = LazyLock::new(|| {
    let reading = Reading {
        depth: 0,
        leaf: Leaf::Entries,
    };
    let expression = Expression::parse(LABELS).ok()?;
    Some(Key::new(expression, reading, "metadata.labels".to_owned()))
});

/// Finds the objects of a label selector that matter: by the plan `narrow` for all objects, or by their labels.
/// `None`: all objects have to be scanned.
pub fn selected<'n>(
    narrow: Option<&'n Narrow>,
    selector: &LabelSelector,
) -> Option<Cow<'n, Narrow>> {
    let mut ways: Vec<_> = selector
        .values()
        .filter_map(|(label, values)| labelled(label, values))
        .collect();
    match narrow {
        Some(narrow) if ways.is_empty() || narrow.probes().is_empty() => {
            Some(Cow::Borrowed(narrow))
        }
        Some(narrow) => {
            ways.insert(0, narrow.clone());
            Some(Cow::Owned(Narrow::All(ways)))
        }
        None if ways.len() > 1 => Some(Cow::Owned(Narrow::All(ways))),
        None => ways.pop().map(Cow::Owned),
    }
}

/// Objects whose label has one of the values.
fn labelled(label: &str, values: &[String]) -> Option<Narrow> {
    let probe = |value: &String| {
        Some(Narrow::Probe(Probe {
            key: KEY.clone()?,
            matching: Matching::HasEntries,
            operand: Operand::Literal(json!({ label: value })),
            once: false,
            check: None,
        }))
    };
    Some(Narrow::Any(
        values.iter().map(probe).collect::<Option<_>>()?,
    ))
}
