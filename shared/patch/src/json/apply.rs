//! Operations on a document.

use serde_json::{Map, Value};

use super::{Action, Leniency, Operation};
use crate::{
    PatchError,
    pointer::Pointer,
    size::{self, Budget, VALUE_BYTES},
};

/// Nulls that are put into a list to reach an index behind its end; one that is further is an error.
pub const PADDING_MAX: usize = 1_000;

/// The work of shifting one element of a list, in bytes of text.
const SHIFTED_BYTES: usize = 4;

pub(super) fn apply(
    operations: &[Operation],
    document: &Value,
    leniency: Leniency,
    charge: &dyn Fn(usize) -> bool,
) -> Result<Value, PatchError> {
    size::check_depth(document)?;
    let mut budget = Budget::new();
    budget.take_document(document)?;
    let mut patched = document.clone();
    for operation in operations {
        let mut at = OperationInProgress {
            operation: operation.name(),
            path: &operation.path,
            leniency,
            budget: &mut budget,
            charge,
        };
        at.charge(VALUE_BYTES + operation.path.work())?;
        at.apply(&operation.action, &mut patched)?;
    }
    Ok(patched)
}

/// One operation on its way.
struct OperationInProgress<'o> {
    operation: &'static str,
    path: &'o Pointer,
    leniency: Leniency,
    budget: &'o mut Budget,
    charge: &'o dyn Fn(usize) -> bool,
}

/// Why a step leads nowhere.
enum Missing {
    /// There is no such field or element.
    NotThere(String),
    /// There never can be.
    Impossible(String),
}

impl Missing {
    fn problem(self) -> String {
        match self {
            Self::NotThere(problem) | Self::Impossible(problem) => problem,
        }
    }
}

impl OperationInProgress<'_> {
    /// Counts work, in bytes of text.
    fn charge(&self, bytes: usize) -> Result<(), PatchError> {
        match (self.charge)(bytes) {
            true => Ok(()),
            false => Err(PatchError::TooCostly),
        }
    }

    /// Counts the shifting of the elements of a list behind an index.
    fn charge_shift(&self, length: usize, at: usize) -> Result<(), PatchError> {
        self.charge(SHIFTED_BYTES * length.saturating_sub(at))
    }

    fn apply(&mut self, action: &Action, document: &mut Value) -> Result<(), PatchError> {
        match action {
            Action::Add(value) => {
                self.charge(size::work(value))?;
                self.add(document, value.clone(), self.leniency.creates_parents)
            }
            Action::Remove => self.remove(document),
            Action::Replace(value) => {
                self.charge(size::work(value))?;
                if self.lacks_field(document, self.path)? {
                    return self.add(document, value.clone(), false);
                }
                self.admit(value)?;
                let found = self.find(document, self.path)?;
                value.clone_into(found);
                Ok(())
            }
            Action::Move(from) => {
                if from.is_above(self.path) {
                    return Err(self.refuse("a value cannot be moved into itself"));
                }
                if from == self.path {
                    self.find(document, from)?;
                    return Ok(());
                }
                let value = self.copied(document, from)?;
                self.remove_at(document, from)?;
                self.add(document, value, false)
            }
            Action::Copy(from) => {
                let value = match self.lacks_field(document, from)? {
                    true => Value::Null,
                    false => self.copied(document, from)?,
                };
                self.add(document, value, false)
            }
            Action::Test(expected) => {
                // No more than the smaller of two values is compared.
                self.charge(size::work(expected))?;
                match self.lacks_field(document, self.path)? {
                    true => Err(self.test_failed()),
                    false => self.test(document, expected),
                }
            }
        }
    }

    /// Returns whether the path leads to a field that its object does not have, and that may be missing.
    fn lacks_field(&self, document: &mut Value, path: &Pointer) -> Result<bool, PatchError> {
        let Some((last, before)) = path.steps().split_last() else {
            return Ok(false);
        };
        if !self.leniency.fields_may_be_missing {
            return Ok(false);
        }
        let mut parent = document;
        for step in before {
            parent = self
                .below(parent, step)
                .map_err(|missing| self.refuse(missing.problem()))?;
        }
        let fields = parent.as_object();
        Ok(fields.is_some_and(|fields| !fields.contains_key(last)))
    }

    /// Returns a copy of the value at the path.
    fn copied(&self, document: &mut Value, from: &Pointer) -> Result<Value, PatchError> {
        self.charge(from.work())?;
        let found = self.find(document, from)?;
        self.charge(size::work(found))?;
        Ok(found.clone())
    }

    /// A field that is not there is null, where that is how it is meant.
    fn test(&self, document: &mut Value, expected: &Value) -> Result<(), PatchError> {
        let mut found = &mut *document;
        let (last, before) = match self.path.steps().split_last() {
            Some((last, before)) if self.leniency.missing_is_null => (Some(last), before),
            _ => (None, self.path.steps()),
        };
        let refuse = |missing: Missing| self.refuse(missing.problem());
        for step in before {
            found = self.below(found, step).map_err(refuse)?;
        }
        let is_null = expected.is_null() && found.is_object();
        let is_alike = match last.map(|last| self.below(found, last)) {
            None => is_same(found, expected),
            Some(Ok(found)) => is_same(found, expected),
            Some(Err(Missing::NotThere(_))) if is_null => true,
            Some(Err(missing)) => return Err(refuse(missing)),
        };
        match is_alike {
            true => Ok(()),
            false => Err(self.test_failed()),
        }
    }

    fn test_failed(&self) -> PatchError {
        PatchError::TestFailed {
            path: self.path.to_string(),
        }
    }

    /// Checks that a value may stand at the path. The document never nests deeper than the walk.
    fn admit(&mut self, value: &Value) -> Result<(), PatchError> {
        size::check_depth_at(value, self.path.steps().len())?;
        self.budget.take(value)
    }

    fn refuse(&self, problem: impl Into<String>) -> PatchError {
        PatchError::DoesNotApply {
            operation: self.operation,
            path: self.path.to_string(),
            problem: problem.into(),
        }
    }

    fn find<'d>(
        &self,
        document: &'d mut Value,
        path: &Pointer,
    ) -> Result<&'d mut Value, PatchError> {
        let mut found = document;
        for step in path.steps() {
            found = self
                .below(found, step)
                .map_err(|missing| self.refuse(missing.problem()))?;
        }
        Ok(found)
    }

    /// The field or element of this name.
    fn below<'d>(&self, of: &'d mut Value, step: &str) -> Result<&'d mut Value, Missing> {
        match of {
            Value::Object(fields) => fields
                .get_mut(step)
                .ok_or_else(|| Missing::NotThere(format!("there is no field `{step}`"))),
            Value::Array(elements) => {
                let at = self.index(step, elements.len())?;
                let count = elements.len();
                elements.get_mut(at).ok_or_else(|| {
                    Missing::NotThere(format!("there is no element {step} of {count}"))
                })
            }
            _ => Err(Missing::NotThere(format!(
                "`{step}` is below what is neither an object nor a list"
            ))),
        }
    }

    /// The place that a step means in a list with `places` of them.
    fn index(&self, step: &str, places: usize) -> Result<usize, Missing> {
        if step == "-" {
            return Err(Missing::NotThere(
                "`-` is behind the last element".to_owned(),
            ));
        }
        let impossible = || Missing::Impossible(format!("`{step}` is no index of a list"));
        if let Some(back) = step
            .strip_prefix('-')
            .filter(|_| self.leniency.negative_indexes)
        {
            let back = digits(back)
                .filter(|&back| back > 0)
                .ok_or_else(impossible)?;
            return places.checked_sub(back).ok_or_else(|| {
                Missing::NotThere(format!("there are not {back} elements in the list"))
            });
        }
        digits(step).ok_or_else(impossible)
    }

    fn remove(&self, document: &mut Value) -> Result<(), PatchError> {
        self.remove_at(document, self.path)
    }

    fn remove_at(&self, document: &mut Value, path: &Pointer) -> Result<(), PatchError> {
        let Some((last, before)) = path.steps().split_last() else {
            return Err(self.refuse("the whole document cannot be removed"));
        };
        let mut parent = document;
        for step in before {
            parent = match self.below(parent, step) {
                Ok(found) => found,
                Err(_) if self.leniency.removes_missing => return Ok(()),
                Err(missing) => return Err(self.refuse(missing.problem())),
            };
        }
        let is_allowed = self.leniency.removes_missing && !(parent.is_array() && last == "-");
        match self.below(parent, last) {
            Ok(_) => {}
            Err(Missing::NotThere(_)) if is_allowed => return Ok(()),
            Err(missing) => return Err(self.refuse(missing.problem())),
        }
        match parent {
            Value::Object(fields) => {
                fields.remove(last);
            }
            Value::Array(elements) => {
                if let Ok(at) = self.index(last, elements.len()) {
                    self.charge_shift(elements.len(), at)?;
                    elements.remove(at);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add(
        &mut self,
        document: &mut Value,
        value: Value,
        creates_parents: bool,
    ) -> Result<(), PatchError> {
        self.admit(&value)?;
        let path = self.path;
        let Some((last, before)) = path.steps().split_last() else {
            *document = value;
            return Ok(());
        };
        let mut parent = document;
        for (at, step) in before.iter().enumerate() {
            if creates_parents {
                self.create(parent, step, &path.steps()[at + 1])?;
            }
            parent = self
                .below(parent, step)
                .map_err(|missing| self.refuse(missing.problem()))?;
        }
        match parent {
            Value::Object(fields) => {
                fields.insert(last.clone(), value);
            }
            Value::Array(elements) => {
                let at = self.insertion(last, elements.len())?;
                self.charge_shift(elements.len(), at)?;
                elements.insert(at, value);
            }
            _ => {
                let problem = format!("`{last}` is below what is neither an object nor a list");
                return Err(self.refuse(problem));
            }
        }
        Ok(())
    }

    /// Returns the index at which an element is inserted.
    fn insertion(&self, step: &str, length: usize) -> Result<usize, PatchError> {
        if step == "-" {
            return Ok(length);
        }
        match self.index(step, length + 1) {
            Ok(at) if at <= length => Ok(at),
            Ok(at) => Err(self.refuse(format!("element {at} is behind the end of {length}"))),
            Err(missing) => Err(self.refuse(missing.problem())),
        }
    }

    /// Makes what is missing at one step, for `next` to be put into it.
    fn create(&mut self, parent: &mut Value, step: &str, next: &str) -> Result<(), PatchError> {
        match self.below(parent, step) {
            Ok(found) if !found.is_null() => return Ok(()),
            Ok(null) => {
                *null = self.made_for(next)?;
                return Ok(());
            }
            Err(Missing::Impossible(problem)) => return Err(self.refuse(problem)),
            Err(Missing::NotThere(_)) => {}
        }
        let made = self.made_for(next)?;
        match parent {
            Value::Object(fields) => {
                self.budget.take_member(step, fields.is_empty())?;
                fields.insert(step.to_owned(), made);
            }
            Value::Array(elements) => {
                let at = match digits(step) {
                    Some(at) => at,
                    None => elements.len(),
                };
                self.pad(elements, at)?;
                elements.push(made);
            }
            _ => {}
        }
        Ok(())
    }

    fn made_for(&mut self, next: &str) -> Result<Value, PatchError> {
        self.budget.take_bytes(2)?;
        let mut elements = Vec::new();
        match next {
            "-" | "-1" => {}
            _ => match digits(next) {
                Some(at) => self.pad(&mut elements, at)?,
                None => return Ok(Value::Object(Map::new())),
            },
        }
        Ok(Value::Array(elements))
    }

    /// Fills a list up to `length`.
    fn pad(&mut self, elements: &mut Vec<Value>, length: usize) -> Result<(), PatchError> {
        let missing = length.saturating_sub(elements.len());
        if missing > PADDING_MAX {
            let problem = format!("element {length} is more than {PADDING_MAX} behind the end");
            return Err(self.refuse(problem));
        }
        self.charge(VALUE_BYTES * missing)?;
        self.budget.take_bytes(4 * missing)?;
        elements.resize(elements.len() + missing, Value::Null);
        Ok(())
    }
}

/// An index as the RFC has it: digits, and no zero before others.
fn digits(text: &str) -> Option<usize> {
    let is_index =
        text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_index.then(|| text.parse().ok())?
}

/// Returns whether two values are alike as the RFC has it: numbers by what they amount to.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right
                || left
                    .as_f64()
                    .is_some_and(|left| right.as_f64() == Some(left))
                    && (left.is_f64() || right.is_f64())
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| is_same(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, left)| right.get(key).is_some_and(|right| is_same(left, right)))
        }
        (left, right) => left == right,
    }
}

#[cfg(test)]
mod tests;
