//! The differences that were found, shrunk.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Difference,
    outcome::{Class, compare},
    request::Request,
    shrink::shrink,
    subject::ComparedPolicies,
};

/// The most kinds of differences that are kept apart; those of further ones are counted.
const CLASSES_MAX: usize = 100;

/// The most requests of one kind of difference that are shrunk.
const CANDIDATES_MAX: usize = 6;

/// The most examples of one kind of difference.
const EXAMPLES_MAX: usize = 3;

/// The requests that show differences.
#[derive(Default)]
pub(super) struct FoundDifferences {
    /// All requests.
    pub(super) requests: usize,
    /// Requests that show a difference.
    pub(super) different: usize,
    /// Requests that show a difference but are not kept, since there are too many kinds of differences.
    pub(super) untold: usize,
    classes: BTreeMap<Class, Candidates>,
}

/// Requests that show one kind of difference.
#[derive(Default)]
struct Candidates {
    requests: usize,
    has_valid: bool,
    /// Requests that are about different paths.
    kept: Vec<Request>,
}

impl FoundDifferences {
    /// Adds a request that shows a difference.
    pub(super) fn add(&mut self, class: Class, request: Request) {
        self.different += 1;
        if self.classes.len() >= CLASSES_MAX && !self.classes.contains_key(&class) {
            self.untold += 1;
            return;
        }
        let own = self.classes.entry(class).or_default();
        own.requests += 1;
        if !request.is_invalid && !own.has_valid {
            own.has_valid = true;
            own.kept.clear();
        }
        if request.is_invalid && own.has_valid {
            return;
        }
        if own.kept.len() < CANDIDATES_MAX && own.kept.iter().all(|one| one.about != request.about)
        {
            own.kept.push(request);
        }
    }

    /// Shrinks what was found.
    pub(super) fn differences(
        self,
        subject: &mut ComparedPolicies,
        is_over: &dyn Fn() -> bool,
    ) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (class, candidates) in self.classes {
            let mut seen = BTreeSet::new();
            let mut examples = Vec::new();
            for request in candidates.kept {
                if examples.len() == EXAMPLES_MAX {
                    break;
                }
                let small = shrink(request, &mut |smaller| {
                    let outcomes = (!is_over()).then(|| subject.outcomes(smaller)).flatten();
                    outcomes.is_some_and(|[old, new]| {
                        let class_of_smaller =
                            compare(&old, &new, smaller.operation, &smaller.object);
                        class_of_smaller.as_ref() == Some(&class)
                    })
                });
                if seen.insert(form(&small.object)) {
                    examples.extend(subject.example(small));
                }
            }
            differences.push(Difference {
                kind: class.kind,
                requests: candidates.requests,
                invalid: !candidates.has_valid,
                examples,
            });
        }
        differences.sort_by_key(|one| (one.invalid, one.kind, std::cmp::Reverse(one.requests)));
        differences
    }
}

/// The form of an object, whatever its texts and numbers: two objects of one form are examples of one thing.
fn form(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", form(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(elements) => {
            format!(
                "[{}]",
                elements.iter().map(form).collect::<Vec<_>>().join(",")
            )
        }
        Value::Null => "null".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        _ => "x".to_owned(),
    }
}
