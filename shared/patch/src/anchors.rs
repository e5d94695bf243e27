//! Kyverno's anchors: what of a strategic merge patch is about one document.
//!
//! | key | means |
//! |---|---|
//! | `(key)` | what stands beside it, and inside of a list its element, is about objects where the field is there and matches |
//! | `<(key)` | the whole patch is about documents where it is there and matches; in a list, in some element |
//! | `+(key)` | the field is added where it is not there |
//!
//! An empty object says nothing, and is left out wherever it stands, as in Kyverno; an empty list is not.
//!
//! An element of a list with any of these stands for every element of the document's list that it is
//! about. Its `name`, and the key that the list is merged by, select them.

use serde_json::{Map, Value};

use crate::{
    PatchError, Schema,
    schema::ListRule,
    size::{self, Budget, VALUE_BYTES, Work},
};

/// A test that a value of the document matches one of the patch.
pub type Matcher<'m> = dyn Fn(&Value, &Value) -> bool + 'm;

/// The meaning of an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The anchor `(key)`.
    Condition,
    /// The anchor `<(key)`.
    Global,
    /// The anchor `+(key)`.
    Add,
}

impl Anchor {
    /// The anchor of a key and the key in it; `None` of a key without. Space around an anchor is no part of it, and
    /// space inside is part of the key.
    pub fn of(key: &str) -> Option<(Self, &str)> {
        let written = key.trim();
        let inside = |prefix: &str| {
            let inside = written.strip_prefix(prefix)?.strip_suffix(')')?;
            (!inside.is_empty() && !inside.contains('\n')).then_some(inside)
        };
        [
            ("(", Self::Condition),
            ("<(", Self::Global),
            ("+(", Self::Add),
        ]
        .into_iter()
        .find_map(|(prefix, anchor)| Some((anchor, inside(prefix)?)))
    }

    /// Returns whether anything in a value is to be added where it is not there.
    pub fn adds(patch: &Value) -> bool {
        adds(patch)
    }

    /// Returns whether a key looks like an anchor that only patterns have: `=(key)`, `X(key)`, `^(key)`.
    pub fn is_of_patterns(key: &str) -> bool {
        let written = key.trim();
        written.ends_with(')')
            && ["=(", "X(", "^("]
                .iter()
                .any(|prefix| written.starts_with(prefix))
    }
}

/// The patch without anchors, as far as it is about `document`; `None` where it is not, or says
/// nothing.
///
/// # Errors
/// [`PatchError::DoesNotApply`] where a list is expected and something else is there,
/// [`PatchError::TooLarge`], [`PatchError::TooDeep`].
pub fn resolve(
    patch: &Value,
    document: &Value,
    schema: Schema,
    matches: &Matcher<'_>,
) -> Result<Option<Value>, PatchError> {
    resolve_charged(patch, document, schema, matches, &|_| true)
}

/// Resolves anchors like [`resolve`]. Each part tells `charge` its work before it does it, but for the work of `matches`. The
/// unit is the time to copy a byte of text. If `charge` returns `false`, nothing more is resolved.
///
/// # Errors
/// Those of [`resolve`]; [`PatchError::TooCostly`] if `charge` has returned `false`.
pub fn resolve_charged(
    patch: &Value,
    document: &Value,
    schema: Schema,
    matches: &Matcher<'_>,
    charge: &dyn Fn(usize) -> bool,
) -> Result<Option<Value>, PatchError> {
    size::check_depth(patch)?;
    let mut resolver = Resolver {
        matches,
        budget: Budget::new(),
        work: Work::counted_by(charge),
    };
    match resolver.value(patch, Some(document), schema) {
        Ok(resolved) => Ok(resolved),
        Err(Stop::Condition | Stop::Global) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Why a part of a patch is not about what it stands beside.
enum Stop {
    /// A condition does not hold: about the next list or the whole.
    Condition,
    /// A global condition does not.
    Global,
    Error(PatchError),
}

impl From<PatchError> for Stop {
    fn from(error: PatchError) -> Self {
        Self::Error(error)
    }
}

struct Resolver<'m> {
    matches: &'m Matcher<'m>,
    budget: Budget,
    work: Work<'m>,
}

impl Resolver<'_> {
    /// Returns a patch without its anchors; `None`: the pattern was empty, or had anchors only. Lists are resolved by the
    /// object that holds them, which knows how they merge.
    fn value(
        &mut self,
        patch: &Value,
        found: Option<&Value>,
        schema: Schema,
    ) -> Result<Option<Value>, Stop> {
        match patch {
            Value::Object(patch) => {
                let resolved = self.object(patch, found, schema)?;
                Ok(resolved.map(Value::Object))
            }
            Value::Array(patch) => {
                let rule = ListRule::Replaced(Schema::UNKNOWN);
                let resolved = self.list(patch, found, rule, "")?;
                Ok(resolved.map(Value::Array))
            }
            scalar => {
                self.work.charge_value(scalar)?;
                self.budget.take(scalar)?;
                Ok(Some(scalar.clone()))
            }
        }
    }

    fn object(
        &mut self,
        patch: &Map<String, Value>,
        found: Option<&Value>,
        schema: Schema,
    ) -> Result<Option<Map<String, Value>>, Stop> {
        let keys: usize = patch.keys().map(|key| VALUE_BYTES + key.len()).sum();
        self.work.charge(VALUE_BYTES + keys)?;
        self.check(patch, found, Anchor::Global)?;
        self.check(patch, found, Anchor::Condition)?;
        let mut resolved = Map::new();
        for (written, patch) in patch {
            let (anchor, key) = match Anchor::of(written) {
                Some((anchor, key)) => (Some(anchor), key),
                None => (None, written.as_str()),
            };
            let below = found.and_then(|found| found.get(key));
            match anchor {
                Some(Anchor::Add) if below.is_some() => continue,
                Some(Anchor::Condition | Anchor::Global) => {
                    self.work.charge_value(patch)?;
                    // It matches, so there is nothing to say but what is to be added.
                    if !adds(patch) {
                        continue;
                    }
                }
                Some(Anchor::Add) | None => {}
            }
            let made = match patch {
                Value::Array(elements) => {
                    let made = self.list(elements, below, schema.list(key), key)?;
                    made.map(Value::Array)
                }
                patch => self.value(patch, below, schema.field(key))?,
            };
            if let Some(made) = made {
                self.budget.take_member(key, resolved.is_empty())?;
                resolved.insert(key.to_owned(), made);
            }
        }
        Ok((!resolved.is_empty()).then_some(resolved))
    }

    /// The conditions of one kind that stand in an object.
    fn check(
        &self,
        patch: &Map<String, Value>,
        found: Option<&Value>,
        kind: Anchor,
    ) -> Result<(), Stop> {
        for (written, pattern) in patch {
            let Some((anchor, key)) = Anchor::of(written).filter(|(anchor, _)| *anchor == kind)
            else {
                continue;
            };
            let holds = match found.and_then(|found| found.get(key)) {
                None => false,
                // What is to be added need not be there.
                Some(found) => {
                    let fields = pattern.as_object().map_or(0, Map::len);
                    self.work.charge(VALUE_BYTES * (1 + fields))?;
                    adds_here(pattern) || (self.matches)(pattern, found)
                }
            };
            if !holds {
                return Err(match anchor {
                    Anchor::Global => Stop::Global,
                    Anchor::Condition | Anchor::Add => Stop::Condition,
                });
            }
        }
        Ok(())
    }

    /// Returns elements without anchors unchanged, followed by the elements that anchors stand for.
    fn list(
        &mut self,
        patch: &[Value],
        found: Option<&Value>,
        rule: ListRule,
        name: &str,
    ) -> Result<Option<Vec<Value>>, Stop> {
        let (keys, of) = match rule {
            ListRule::Keyed(keys, of) => (keys, of),
            ListRule::Replaced(of) => (&[][..], of),
            ListRule::Set => (&[][..], Schema::UNKNOWN),
        };
        let is_of_objects = patch.first().is_some_and(Value::is_object);
        // Each element is searched for anchors, or copied.
        self.work.charge(patch.iter().map(size::work).sum())?;
        if !is_of_objects {
            patch
                .iter()
                .try_for_each(|element| self.budget.take(element))?;
            return Ok(Some(patch.to_vec()));
        }
        let elements = match found {
            None | Some(Value::Null) => None,
            Some(Value::Array(elements)) => Some(elements.as_slice()),
            Some(_) => {
                return Err(Stop::Error(PatchError::DoesNotApply {
                    operation: "merge",
                    path: name.to_owned(),
                    problem: "the patch has a list where the object has none".to_owned(),
                }));
            }
        };
        let (mut plain, mut stood_for) = (Vec::new(), Vec::new());
        for element in patch {
            match element.as_object().filter(|_| has_anchors(element)) {
                None => plain.extend(self.value(element, None, of)?),
                Some(element) => {
                    stood_for.extend(self.anchored(element, elements, keys, of)?);
                }
            }
        }
        plain.append(&mut stood_for);
        Ok((!plain.is_empty() || patch.is_empty()).then_some(plain))
    }

    /// Resolves the anchors of one element.
    fn anchored(
        &mut self,
        patch: &Map<String, Value>,
        elements: Option<&[Value]>,
        keys: &[&str],
        of: Schema,
    ) -> Result<Vec<Value>, Stop> {
        let is_global = has_global(patch);
        let (mut made, mut passed, mut failed) = (Vec::new(), false, false);
        let each = match elements {
            Some(elements) => elements.iter().map(Some).collect(),
            None => vec![None],
        };
        for found in each {
            match self.object(patch, found, of) {
                Ok(resolved) if !is_global => {
                    if let (Some(resolved), Some(found)) = (resolved, found) {
                        made.extend(self.named(resolved, found, keys)?);
                    }
                }
                Ok(_) => passed = true,
                Err(Stop::Condition) => {}
                Err(Stop::Global) => failed = true,
                Err(error) => return Err(error),
            }
        }
        match failed && !passed {
            true => Err(Stop::Global),
            false => Ok(made),
        }
    }

    /// Returns the element that is about `found`: by its name, and by the keys of its list. `None` where it has none of
    /// them.
    fn named(
        &mut self,
        mut resolved: Map<String, Value>,
        found: &Value,
        keys: &[&str],
    ) -> Result<Option<Value>, PatchError> {
        let name = found.get("name").filter(|name| *name != "");
        let keys = keys
            .iter()
            .filter_map(|key| Some((*key, found.get(*key)?)))
            .chain(name.map(|name| ("name", name)));
        let mut is_named = false;
        for (key, value) in keys {
            self.work.charge_value(value)?;
            self.budget.take(value)?;
            resolved.insert(key.to_owned(), value.clone());
            is_named = true;
        }
        Ok(is_named.then_some(Value::Object(resolved)))
    }
}

/// Returns whether anything in a value is to be added where it is not there.
fn adds(patch: &Value) -> bool {
    any_key(patch, &|key| {
        matches!(Anchor::of(key), Some((Anchor::Add, _)))
    })
}

/// Returns whether the object itself has such a field.
fn adds_here(patch: &Value) -> bool {
    let is_add = |key: &String| matches!(Anchor::of(key), Some((Anchor::Add, _)));
    patch
        .as_object()
        .is_some_and(|patch| patch.keys().any(is_add))
}

fn has_anchors(patch: &Value) -> bool {
    any_key(patch, &|key| Anchor::of(key).is_some())
}

fn has_global(patch: &Map<String, Value>) -> bool {
    let is_global = |key: &str| matches!(Anchor::of(key), Some((Anchor::Global, _)));
    patch
        .iter()
        .any(|(key, value)| is_global(key) || any_key(value, &is_global))
}

fn any_key(value: &Value, is: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| is(key) || any_key(value, is)),
        Value::Array(elements) => elements.iter().any(|element| any_key(element, is)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
