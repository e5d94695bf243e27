//! Compiles `mutate` rules.

mod operations;

use std::sync::Arc;

use super::{
    conditions, context,
    expressions::RootNames,
    fields::{Field, KnownFields, ManifestObject},
    foreach::{FOREACH_LEVELS_MAX, FOREACH_MAX, loop_variables},
    templates::parsed,
};
use crate::ir::{
    context::ContextEntry,
    cost,
    mutation::{MutateEach, Mutation, Patch},
    problem::Problems,
    template::{Prepared, ValueTemplate},
};
use anteroom_patch::{anchors::Anchor, merge};

const MUTATE: KnownFields = KnownFields {
    evaluated: &[
        "foreach",
        "mutateExistingOnPolicyUpdate",
        "patchStrategicMerge",
        "patchesJson6902",
        "targets",
    ],
    inert: &[],
    later: &[],
};

const MUTATE_FOREACH: KnownFields = KnownFields {
    evaluated: &[
        "context",
        "foreach",
        "list",
        "order",
        "patchStrategicMerge",
        "patchesJson6902",
        "preconditions",
    ],
    inert: &[],
    later: &[],
};

/// The ways, of which one is given.
const MUTATE_WAYS: &[&str] = &["foreach", "patchStrategicMerge", "patchesJson6902"];

/// The fields of `mutate`.
pub(super) fn fields<'m>(field: &Field<'m>, problems: &mut Problems) -> Option<ManifestObject<'m>> {
    let mutate = field.object(&MUTATE, problems)?;
    // About rules with targets alone; any other has nothing to do then.
    let flag = mutate.get("mutateExistingOnPolicyUpdate");
    flag.and_then(|flag| flag.boolean(problems));
    Some(mutate)
}

/// Compiles the patches of an object. `entries` and `names` are the rule's; `about` is the variable that holds the
/// object.
pub(super) fn work(
    mutate: &ManifestObject<'_>,
    entries: &[Arc<ContextEntry>],
    names: &RootNames,
    home: Option<&str>,
    about: &'static str,
    problems: &mut Problems,
) -> Option<Mutation> {
    let mut compiler = MutationCompiler {
        home,
        about,
        level: 0,
        problems,
    };
    compiler.work(mutate, entries, names)
}

/// Compiles the mutation of one level of `foreach`.
struct MutationCompiler<'p> {
    home: Option<&'p str>,
    about: &'static str,
    level: usize,
    problems: &'p mut Problems,
}

impl MutationCompiler<'_> {
    fn work(
        &mut self,
        of: &ManifestObject<'_>,
        entries: &[Arc<ContextEntry>],
        names: &RootNames,
    ) -> Option<Mutation> {
        let given: Vec<_> = MUTATE_WAYS
            .iter()
            .filter(|way| of.get(way).is_some())
            .copied()
            .collect();
        let (way, field) = match &*given {
            [] => {
                self.problems
                    .invalid(of.child("patchStrategicMerge"), "it is required");
                return None;
            }
            [way] => (*way, of.get(way)?),
            [.., last] => {
                let message = format!("only one of {} can be given", given.join(" and "));
                self.problems.invalid(of.child(last), message);
                return None;
            }
        };
        match way {
            "foreach" => self.all(&field, entries, names).map(Mutation::ForEach),
            "patchStrategicMerge" => {
                let patch = self.merge(&field, names)?;
                Some(Mutation::Once(Patch::Merge(patch)))
            }
            _ => {
                let operations = operations::compile(&field, names, self.problems)?;
                Some(Mutation::Once(operations))
            }
        }
    }

    fn merge(&mut self, field: &Field<'_>, names: &RootNames) -> Option<ValueTemplate> {
        if !field.value().is_object() {
            self.problems
                .invalid(field.path(), "an object is expected here");
            return None;
        }
        check_keys(field.value(), field.path(), false, self.problems);
        let parsed = parsed(
            field.path(),
            ValueTemplate::parse_document(field.value(), self.about),
            self.problems,
        )?;
        parsed.visit(&mut |prepared| names.check(field.path(), prepared, self.problems));
        Some(parsed)
    }

    fn all(
        &mut self,
        field: &Field<'_>,
        entries: &[Arc<ContextEntry>],
        names: &RootNames,
    ) -> Option<Vec<MutateEach>> {
        let fields = field.list(self.problems);
        if fields.is_empty() {
            self.problems.invalid(field.path(), "it is empty");
        }
        if fields.len() > FOREACH_MAX {
            let message = format!("more than {FOREACH_MAX} of them");
            self.problems.invalid(field.path(), message);
        }
        if self.level >= FOREACH_LEVELS_MAX {
            let message = format!("more than {FOREACH_LEVELS_MAX} of them in each other");
            self.problems.invalid(field.path(), message);
            return None;
        }
        let fields = fields.iter().take(FOREACH_MAX);
        let all: Vec<_> = fields
            .map(|field| self.each(field, entries, names))
            .collect();
        all.into_iter().collect()
    }

    fn each(
        &mut self,
        field: &Field<'_>,
        outer: &[Arc<ContextEntry>],
        names: &RootNames,
    ) -> Option<MutateEach> {
        let each = field.object(&MUTATE_FOREACH, self.problems)?;
        let list = each
            .required("list", self.problems)
            .and_then(|field| self.list(&field, names));
        let order = each
            .get("order")
            .and_then(|order| order.known_text(&["Ascending", "Descending"], self.problems));
        let variables = loop_variables(self.level);
        let mut names = names.within(self.problems)?;
        variables.iter().for_each(|entry| names.define(&entry.name));
        let own = each.get("context");
        let (own, names) = context::compile_within(own, self.home, names, self.problems);
        let preconditions = conditions::compile(each.get("preconditions"), &names, self.problems);
        let context: Vec<_> = outer.iter().cloned().chain(variables).chain(own).collect();
        let mut inner = MutationCompiler {
            home: self.home,
            about: self.about,
            level: self.level + 1,
            problems: self.problems,
        };
        let work = inner.work(&each, &context, &names)?;
        Some(MutateEach {
            list: list?,
            outer: outer.len(),
            preconditions,
            // A merge puts new elements first in their list, so the elements are merged in reverse order.
            is_descending: match order {
                None => matches!(work, Mutation::Once(Patch::Merge(_))),
                Some(order) => order == "Descending",
            },
            context,
            work,
        })
    }

    fn list(&mut self, field: &Field<'_>, names: &RootNames) -> Option<Prepared> {
        let text = field.text(self.problems)?;
        let list = parsed(field.path(), Prepared::parse(text), self.problems)?;
        list.visit(&mut |prepared| names.check(field.path(), prepared, self.problems));
        Some(list)
    }
}

/// Reports anchors and directives that no patch has. The value below a condition is a pattern and may have all
/// anchors of patterns, unless the value also adds something.
fn check_keys(patch: &serde_json::Value, path: &str, is_pattern: bool, problems: &mut Problems) {
    match patch {
        serde_json::Value::Object(entries) => {
            for (key, value) in entries {
                let path = format!("{path}.{key}");
                if !cost::charge_read(path.len()) {
                    return problems.invalid("spec", cost::OVER_LIMIT);
                }
                let anchor = Anchor::of(key).map(|(anchor, _)| anchor);
                let is_condition = matches!(anchor, Some(Anchor::Condition | Anchor::Global));
                let is_below = is_pattern || (is_condition && !Anchor::adds(value));
                if Anchor::is_of_patterns(key) && !is_pattern {
                    let message = format!(
                        "`{key}` is an anchor of patterns; a patch has `(key)`, `<(key)` and `+(key)`"
                    );
                    problems.invalid(&path, message);
                } else if key.starts_with('$') && !merge::is_directive(key) {
                    problems.invalid(&path, format!("there is no directive `{key}`"));
                }
                check_keys(value, &path, is_below, problems);
            }
        }
        serde_json::Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                check_keys(element, &format!("{path}[{at}]"), is_pattern, problems);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
