//! The footprint of a rule on existing objects: the changes that its patches may make, before there is a trigger.
//!
//! | in the patch | the rule can |
//! |---|---|
//! | a value without variables | set this value there; in a merge, also the text of a number or a boolean |
//! | a value with variables | set any value there |
//! | a field or step with variables | change any field or element there |
//! | `remove`, or null in a merge | take it away |
//! | a list | add such elements, change and reorder existing elements, remove some |
//! | `move`, `copy`, a directive of a merge, operations that are computed | change everything there |
//!
//! So a footprint is never too small, and often too large.

mod change;

use std::collections::BTreeMap;

use anteroom_patch::{anchors::Anchor, decoded_step, merge};
use serde_json::Value;

use crate::ir::{
    mutation::{Mutation, Patch, PatchOperation},
    template::{Template, ValueTemplate},
};

/// The changes that may be made to a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Footprint {
    /// The whole value may change to anything.
    anything: bool,
    /// The values that may replace the present value; null: the value may be removed.
    values: Vec<Value>,
    /// The footprints of fields and elements, by name or index.
    fields: BTreeMap<String, Footprint>,
    /// The footprint of fields and elements that are not known by name.
    others: Option<Box<Footprint>>,
}

impl Footprint {
    /// Returns the footprint of patches on an object, with the fields that the API server keeps by itself.
    pub(super) fn of(mutation: &Mutation) -> Self {
        let mut whole = Self::default();
        whole.add(mutation);
        let metadata = whole.field("metadata");
        for kept in ["managedFields", "resourceVersion"] {
            metadata.field(kept).anything = true;
        }
        whole
    }

    fn add(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Once(Patch::Merge(patch)) => self.merge(patch),
            Mutation::Once(Patch::Json(operations)) => {
                operations.iter().for_each(|one| self.operate(one));
            }
            Mutation::Once(Patch::Computed(_)) => self.anything = true,
            Mutation::ForEach(all) => all.iter().for_each(|each| self.add(&each.work)),
        }
    }

    fn field(&mut self, name: &str) -> &mut Self {
        self.fields.entry(name.to_owned()).or_default()
    }

    fn others(&mut self) -> &mut Self {
        self.others.get_or_insert_default()
    }

    fn named(&mut self, name: &Template, known: Option<&str>) -> &mut Self {
        match (name.fixed(), known) {
            (Some(_), Some(name)) => self.field(name),
            _ => self.others(),
        }
    }

    fn merge(&mut self, patch: &ValueTemplate) {
        match patch {
            ValueTemplate::Fixed(value) => self.merge_fixed(value),
            ValueTemplate::Text(_) => self.anything = true,
            ValueTemplate::List(elements) => {
                self.values.push(Value::Array(Vec::new()));
                let of_each = self.others();
                elements.iter().for_each(|element| of_each.merge(element));
            }
            ValueTemplate::Map(entries) => {
                for (written, value) in entries {
                    let key = match MergeKey::of(written.source()) {
                        MergeKey::Directive => {
                            self.anything = true;
                            return;
                        }
                        MergeKey::Condition(_) if !adds(value) => continue,
                        MergeKey::Condition(key) | MergeKey::Field(key) => key,
                    };
                    self.named(written, Some(key)).merge(value);
                }
            }
        }
    }

    fn merge_fixed(&mut self, patch: &Value) {
        match patch {
            Value::Array(elements) => {
                self.values.push(Value::Array(Vec::new()));
                let of_each = self.others();
                elements
                    .iter()
                    .for_each(|element| of_each.merge_fixed(element));
            }
            Value::Object(entries) => {
                for (written, value) in entries {
                    let key = match MergeKey::of(written) {
                        MergeKey::Directive => {
                            self.anything = true;
                            return;
                        }
                        MergeKey::Condition(_) if !Anchor::adds(value) => continue,
                        MergeKey::Condition(key) | MergeKey::Field(key) => key,
                    };
                    self.field(key).merge_fixed(value);
                }
            }
            scalar => {
                self.values.push(scalar.clone());
                // A merge writes its text where the object has a text.
                self.values
                    .extend(merge::text_of(scalar).map(Value::String));
            }
        }
    }

    fn operate(&mut self, operation: &PatchOperation) {
        match operation.name.as_str() {
            "test" => {}
            "remove" => self.at(&operation.path).values.push(Value::Null),
            "add" | "replace" => match &operation.value {
                Some(value) => self.at(&operation.path).set(value),
                None => self.at(&operation.path).anything = true,
            },
            _ => {
                self.at(&operation.path).anything = true;
                if let Some(from) = operation.from.as_ref().filter(|_| operation.name == "move") {
                    self.at(from).values.push(Value::Null);
                }
            }
        }
    }

    /// Returns the place of a pointer, each of whose variables stands in one step.
    fn at(&mut self, pointer: &Template) -> &mut Self {
        if pointer.is_lone_variable() {
            self.anything = true;
            return self;
        }
        let steps = pointer.split('/');
        steps.iter().skip(1).fold(self, |place, step| {
            let known = step.fixed().map(decoded_step);
            place.named(step, known.as_deref())
        })
    }

    /// Allows this value in place of the present one.
    fn set(&mut self, value: &ValueTemplate) {
        match value {
            ValueTemplate::Fixed(value) => self.values.push(Value::clone(value)),
            ValueTemplate::Text(_) => self.anything = true,
            ValueTemplate::List(elements) => {
                self.values.push(Value::Array(Vec::new()));
                let of_each = self.others();
                elements.iter().for_each(|element| of_each.set(element));
            }
            ValueTemplate::Map(entries) => {
                self.values.push(Value::Object(serde_json::Map::new()));
                for (key, value) in entries {
                    self.named(key, key.fixed()).set(value);
                }
            }
        }
    }
}

/// The meaning of a key in a merge.
enum MergeKey<'k> {
    /// The key says how to merge.
    Directive,
    /// A condition on this field, which may add something below.
    Condition(&'k str),
    Field(&'k str),
}

impl<'k> MergeKey<'k> {
    fn of(written: &'k str) -> Self {
        match Anchor::of(written) {
            Some((Anchor::Condition | Anchor::Global, key)) => Self::Condition(key),
            Some((Anchor::Add, key)) => Self::Field(key),
            None if merge::is_directive(written) => Self::Directive,
            None => Self::Field(written),
        }
    }
}

/// Returns whether a condition of a patch also adds something. The value of a variable never adds anything.
fn adds(condition: &ValueTemplate) -> bool {
    match condition {
        ValueTemplate::Fixed(value) => Anchor::adds(value),
        ValueTemplate::Text(_) => false,
        ValueTemplate::List(elements) => elements.iter().any(adds),
        ValueTemplate::Map(entries) => entries.iter().any(|(key, value)| {
            matches!(Anchor::of(key.source()), Some((Anchor::Add, _))) || adds(value)
        }),
    }
}

#[cfg(test)]
mod tests;
