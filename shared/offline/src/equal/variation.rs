//! Variations of an object: a single change each, guided by the fields that policies read.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};

use super::value_path::{
    MAPS, PathStep, Pointer, PointerStep, get, is_container, is_required, pointers, set, title,
};

/// The most changes of one object.
const CHANGES_MAX: usize = 5_000;

/// The promise of a change: lower ones are tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A field is removed, or emptied, or has another number of elements.
    Shape,
    /// A field has a literal that a policy mentions beside it.
    Near,
    /// A field has a literal that a policy mentions elsewhere.
    Far,
}

/// One change of an object.
#[derive(Clone, Debug)]
pub(super) struct Variation {
    /// The values that are put, in order; `None` removes.
    puts: Vec<(Pointer, Option<Value>)>,
    /// The number of steps to what policies begin to read at.
    root: usize,
    pub(super) rank: Rank,
    /// An API server refuses that of its own kinds: a field is null, or of another type than elsewhere, or one is
    /// missing that has to be there.
    pub(super) is_invalid: bool,
}

impl Variation {
    pub(super) fn apply(&self, object: &mut Value) {
        for (pointer, to) in &self.puts {
            set(object, pointer, to.clone());
        }
    }

    /// For people, as in `spec.replicas = 3`.
    pub(super) fn title(&self) -> String {
        let put = |(pointer, to): &(Pointer, Option<Value>)| match to {
            Some(to) => format!("{} = {to}", title(pointer)),
            None => format!("without {}", title(pointer)),
        };
        self.puts.iter().map(put).collect::<Vec<_>>().join(", ")
    }

    /// The sort key of a change: within a rank, changes that keep the object well typed come first.
    fn order(&self) -> (bool, Rank, bool) {
        (
            self.rank == Rank::Far,
            if self.is_invalid {
                Rank::Far
            } else {
                self.rank
            },
            self.is_invalid,
        )
    }

    /// Moves the change to an object at `root` within another object.
    pub(super) fn below(mut self, root: &[PointerStep]) -> Self {
        for (pointer, _) in &mut self.puts {
            pointer.splice(0..0, root.iter().cloned());
        }
        self.root = root.len();
        self
    }

    /// The path of the change, the same in a Pod and in a Pod template.
    pub(super) fn about(&self) -> String {
        self.puts
            .last()
            .map_or_else(String::new, |(pointer, _)| title(&pointer[self.root..]))
    }
}

/// The words of policies about one path.
#[derive(Debug, Default)]
pub(super) struct Mentioned {
    /// The literals beside it.
    pub(super) near: Vec<Value>,
    /// No path below it is mentioned.
    pub(super) is_leaf: bool,
    /// The path is a list, or a map that is gone through.
    pub(super) is_list: bool,
    /// The path is a list of objects.
    pub(super) has_fields: bool,
}

/// The changes of an object.
pub(super) struct Changes<'o> {
    object: &'o Value,
    seen: HashSet<String>,
    found: Vec<Variation>,
}

impl<'o> Changes<'o> {
    pub(super) fn new(object: &'o Value) -> Self {
        Self {
            object,
            seen: HashSet::new(),
            found: Vec::new(),
        }
    }

    /// Returns them in their order.
    pub(super) fn into_sorted(mut self) -> Vec<Variation> {
        // A literal from elsewhere in a field of another type tells nothing.
        self.found
            .retain(|change| !(change.is_invalid && change.rank == Rank::Far));
        self.found.sort_by_key(Variation::order);
        self.found
    }

    fn add(&mut self, rank: Rank, is_invalid: bool, puts: Vec<(Pointer, Option<Value>)>) {
        let change = Variation {
            puts,
            root: 0,
            rank,
            is_invalid,
        };
        if self.found.len() < CHANGES_MAX && self.seen.insert(change.title()) {
            self.found.push(change);
        }
    }

    fn put(&mut self, rank: Rank, is_invalid: bool, at: &Pointer, to: Option<Value>) {
        let (is_map, is_text) = (is_map(at), is_map(&at[..at.len().saturating_sub(1)]));
        let is_invalid = is_invalid
            || to
                .as_ref()
                .is_some_and(|to| (is_map && !to.is_object()) || (is_text && !to.is_string()));
        self.add(rank, is_invalid, vec![(at.clone(), to)]);
    }

    /// Removes, empties and mistypes.
    pub(super) fn shape(&mut self, at: &Pointer, mentioned: &Mentioned) {
        let current = get(self.object, at);
        let is_required = is_required(at);
        if current.is_some() {
            self.put(Rank::Shape, is_required, at, None);
        }
        self.put(Rank::Shape, true, at, Some(Value::Null));
        let (empty, wrong) = match current {
            Some(Value::Object(_)) => (json!({}), json!("x")),
            Some(Value::Array(_)) => (json!([]), json!({})),
            Some(Value::String(_)) => (json!(""), json!(7)),
            Some(_) => return self.put(Rank::Shape, true, at, Some(json!("x"))),
            None if mentioned.is_list && !is_map(at) => (json!([]), json!("x")),
            None if mentioned.is_leaf => {
                if mentioned.near.iter().any(Value::is_string) {
                    self.put(Rank::Shape, false, at, Some(json!("")));
                }
                return;
            }
            None => (json!({}), json!("x")),
        };
        let is_bare = is_required || is_container(at);
        self.put(Rank::Shape, is_bare, at, Some(empty));
        self.put(Rank::Shape, true, at, Some(wrong));
        if let Some(Value::Array(list)) = current
            && let Some(first) = list.first()
        {
            self.put(Rank::Shape, false, at, Some(json!([first])));
            self.put(Rank::Shape, false, at, Some(json!([first, another(first)])));
        }
    }

    pub(super) fn literals(
        &mut self,
        at: &Pointer,
        mentioned: &Mentioned,
        rank: Rank,
        values: &[Value],
    ) {
        let current = get(self.object, at);
        let is_map = matches!(current, Some(Value::Object(_))) || is_map(at);
        for value in values {
            for neighbour in neighbours(value, current) {
                if is_map {
                    if let Value::String(name) = &neighbour {
                        let mut inside = at.clone();
                        inside.push(PointerStep::Field(name.as_str().into()));
                        self.put(rank, false, &inside, Some("x".into()));
                    }
                    continue;
                }
                let is_list = mentioned.is_list || matches!(current, Some(Value::Array(_)));
                if is_list || (current.is_none() && rank == Rank::Near) {
                    let mut list = current
                        .and_then(Value::as_array)
                        .cloned()
                        .unwrap_or_default();
                    let is_invalid = !is_list
                        || mentioned.has_fields
                        || list.first().is_some_and(|one| !is_like(one, &neighbour));
                    self.put(rank, is_invalid, at, Some(json!([neighbour])));
                    if !list.is_empty() {
                        list.push(neighbour.clone());
                        self.put(rank, is_invalid, at, Some(list.into()));
                    }
                }
                let like = current.or(mentioned.near.first());
                let is_invalid = is_list || like.is_some_and(|like| !is_like(like, &neighbour));
                self.put(rank, is_invalid, at, Some(neighbour));
            }
        }
        if mentioned.near.is_empty() && rank == Rank::Near && mentioned.is_leaf && !is_map {
            // Nothing is known of the value, so it may be of any type.
            for value in [json!(true), json!(false), json!("x"), json!(0), json!(1)] {
                let is_invalid = current.is_some_and(|current| !is_like(current, &value));
                self.put(rank, is_invalid, at, Some(value));
            }
        }
    }

    /// Lists with one element more, which has one change: some of their elements are as they should be then.
    pub(super) fn appended(&mut self, lists: &BTreeSet<&[PathStep]>) {
        let single: Vec<Variation> = self.found.clone();
        for list in lists {
            for at in pointers(self.object, list) {
                let Some(Value::Array(elements)) = get(self.object, &at) else {
                    continue;
                };
                let (Some(first), last) = (elements.first(), elements.len()) else {
                    continue;
                };
                let mut first_at = at.clone();
                first_at.push(PointerStep::At(0));
                let mut end = at.clone();
                end.push(PointerStep::At(last));
                for change in &single {
                    let Some((pointer, to)) = change.puts.first() else {
                        continue;
                    };
                    if pointer.len() > first_at.len() && pointer.starts_with(&first_at) {
                        let mut moved = end.clone();
                        moved.extend(pointer[first_at.len()..].iter().cloned());
                        let puts = vec![(end.clone(), Some(another(first))), (moved, to.clone())];
                        self.add(change.rank, change.is_invalid, puts);
                    }
                }
            }
        }
    }
}

/// Returns whether a map of texts stands at a pointer.
fn is_map(at: &[PointerStep]) -> bool {
    matches!(at.last(), Some(PointerStep::Field(name)) if MAPS.contains(&&**name))
}

/// Returns a copy of a list's element with a name of its own.
fn another(element: &Value) -> Value {
    let mut other = element.clone();
    if let Some(Value::String(name)) = other.get_mut("name") {
        name.push_str("-2");
    }
    other
}

/// Returns whether two values have the same type.
fn is_like(one: &Value, other: &Value) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Returns a literal, with values that a comparison could distinguish from it.
fn neighbours(literal: &Value, current: Option<&Value>) -> Vec<Value> {
    match literal {
        Value::Bool(is) => vec![(*is).into(), (!is).into()],
        Value::Number(number) => match number.as_i64() {
            Some(whole) => [whole, whole.saturating_sub(1), whole.saturating_add(1)]
                .map(Value::from)
                .to_vec(),
            None => vec![literal.clone()],
        },
        Value::String(text) => {
            let mut found = vec![
                literal.clone(),
                format!("{text}x").into(),
                format!("x{text}").into(),
            ];
            if let Some(Value::String(current)) = current
                && !current.is_empty()
                && !text.is_empty()
            {
                found.push(format!("{current}{text}").into());
                found.push(format!("{text}{current}").into());
            }
            found
        }
        Value::Object(fields) if fields.is_empty() => vec![Value::Object(Map::new())],
        other => vec![other.clone()],
    }
}

#[cfg(test)]
mod tests;
