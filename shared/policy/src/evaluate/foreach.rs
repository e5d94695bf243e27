//! `foreach`: each element of a list, one after the other.

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use anteroom_functions::meter;
use serde_json::Value;

use super::{
    check,
    conditions::{self, Verdict},
    error::RuleError,
    interrupt::{Interrupt, Stop},
    limits::FOREACH_ELEMENTS_MAX,
    report::RuleOutcome,
    scope::Scope,
};
use crate::ir::{
    Rule, VariableError, VariableErrorKind,
    context::ContextEntry,
    rule::{ForEach, Validation},
    template::{Prepared, Resolve},
};

/// The elements of each `foreach` of a rule, once they are known. Each step evaluates the rule anew and gets the same
/// list.
#[derive(Default)]
pub(super) struct Lists(Vec<Option<ListElements>>);

/// The elements of a list.
#[derive(Clone, Default)]
pub(super) struct ListElements {
    /// Each is shared with the scopes that refer to it.
    pub(super) elements: Arc<[Arc<Value>]>,
    /// The memory that they take.
    bytes: u64,
}

/// The path of a `foreach`, for errors. Its text is only made if an error needs it.
struct ForEachPath<'p> {
    outer: &'p dyn Display,
    at: usize,
}

impl Display for ForEachPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.foreach[{}]", self.outer, self.at)
    }
}

/// The rule whose `foreach` loops are evaluated.
pub(super) struct ForEachWalk<'w> {
    pub(super) rule: &'w Rule,
    /// The lists of outermost `foreach` loops.
    pub(super) lists: &'w mut Lists,
}

impl Lists {
    fn of(
        &mut self,
        at: usize,
        each: &ForEach,
        place: &dyn Display,
        scope: &mut Scope<'_>,
    ) -> Result<ListElements, Stop> {
        if let Some(Some(known)) = self.0.get(at) {
            go_through(known, scope)?;
            return Ok(known.clone());
        }
        let list = judged_elements(&each.list, place, scope)?;
        self.0.resize(self.0.len().max(at + 1), None);
        self.0[at] = Some(list.clone());
        Ok(list)
    }

    /// Returns the memory of all elements.
    pub(super) fn bytes(&self) -> u64 {
        let known = self.0.iter().flatten();
        known.map(|list| list.bytes).fold(0, u64::saturating_add)
    }
}

/// The surroundings of a `foreach`.
#[derive(Clone, Copy)]
struct Outer<'o> {
    place: &'o dyn Display,
    /// The value that patterns are compared with, if it is not the object.
    about: Option<&'o Value>,
    /// The `foreach` stands in no other.
    is_first: bool,
}

impl ForEachWalk<'_> {
    /// Judges the elements of the rule's lists.
    pub(super) fn judge(&mut self, all: &[ForEach], scope: &mut Scope<'_>) -> Option<RuleOutcome> {
        let outer = Outer {
            place: &"validate",
            about: None,
            is_first: true,
        };
        self.all(all, outer, scope)
    }

    /// The first element that violates the rule, or cannot be judged, decides. `None` while a fact is
    /// waited for: then the elements after it were asked about too, so that their facts come together.
    fn all(
        &mut self,
        all: &[ForEach],
        outer: Outer<'_>,
        scope: &mut Scope<'_>,
    ) -> Option<RuleOutcome> {
        let (mut judged, mut pending, mut no_list) = (0_usize, false, None);
        for (at, each) in all.iter().enumerate() {
            let place = ForEachPath {
                outer: outer.place,
                at,
            };
            let held = scope.run.list_bytes;
            let list = match outer.is_first {
                true => self.lists.of(at, each, &place, scope),
                false => judged_elements(&each.list, &place, scope),
            };
            let list = match list {
                Ok(list) => list,
                // The other lists are judged all the same, as in Kyverno: an element may violate the rule.
                Err(Stop::Error(error)) if is_of(&error, VariableErrorKind::Failed) => {
                    no_list = Some(*error);
                    continue;
                }
                Err(stop) => match stop.outcome().filter(|_| !pending) {
                    Some(outcome) => return Some(outcome),
                    None => {
                        pending = true;
                        continue;
                    }
                },
            };
            for (index, element) in list.elements.iter().enumerate() {
                // Kyverno passes over these.
                if element.is_null() {
                    continue;
                }
                let outer = Outer {
                    place: &place,
                    ..outer
                };
                match self.element(each, element, index, outer, scope) {
                    None => pending = true,
                    Some(_) if pending => {}
                    Some(RuleOutcome::Pass) => judged += 1,
                    Some(RuleOutcome::Skipped { .. }) => {}
                    Some(RuleOutcome::Fail { message }) => {
                        let message = format!("validation failure: {message}");
                        return Some(RuleOutcome::Fail { message });
                    }
                    Some(outcome) => return Some(outcome),
                }
            }
            if !outer.is_first {
                scope.run.list_bytes = held;
            }
        }
        match (pending, judged, no_list) {
            (true, ..) => None,
            // A sender may choose to break one list, and the others say nothing about its elements.
            (false, _, Some(error)) => Some(RuleOutcome::Error(error)),
            (false, 0, None) => Some(RuleOutcome::Skipped {
                reason: "no element of a foreach is judged".to_owned(),
            }),
            (false, ..) => Some(RuleOutcome::Pass),
        }
    }

    fn element(
        &mut self,
        each: &ForEach,
        element: &Arc<Value>,
        index: usize,
        outer: Outer<'_>,
        scope: &mut Scope<'_>,
    ) -> Option<RuleOutcome> {
        // Of what is no object there is nothing to say but of what is around it.
        let about = match each.element_scope {
            Some(false) => outer.about,
            _ if element.is_object() => Some(&**element),
            Some(true) => return Some(RuleOutcome::Error(no_object(each, outer.place))),
            None => outer.about,
        };
        within(&each.context, each.outer, element, index, scope, |scope| {
            let place = outer.place;
            let preconditions = format_args!("{place}.preconditions");
            match conditions::evaluate(&each.preconditions, &preconditions, scope) {
                Ok(Verdict { met: true, .. }) => match &each.work {
                    Validation::Whole(check) => check::judge(self.rule, check, about, place, scope),
                    Validation::ForEach(all) => {
                        let inner = Outer {
                            place,
                            about,
                            is_first: false,
                        };
                        self.all(all, inner, scope)
                    }
                },
                Ok(_) => Some(RuleOutcome::Skipped {
                    reason: String::new(),
                }),
                // What its conditions are about is not there: the rule does not speak of it, as in Kyverno.
                Err(Stop::Error(error)) if is_of(&error, VariableErrorKind::Missing) => {
                    Some(RuleOutcome::Skipped {
                        reason: error.to_string(),
                    })
                }
                Err(stop) => stop.outcome(),
            }
        })
    }
}

/// Returns whether it is an error of a variable, and of this kind. An error of a fact never is.
fn is_of(error: &RuleError, kind: VariableErrorKind) -> bool {
    matches!(error, RuleError::Variable { source, .. } if source.kind == kind)
}

fn no_object(each: &ForEach, place: &dyn Display) -> RuleError {
    RuleError::Variable {
        place: format!("{place}.elementScope"),
        source: VariableError {
            expression: each.list.source().to_owned(),
            message: "an element of it is no object, which `elementScope: true` is about"
                .to_owned(),
            kind: VariableErrorKind::Failed,
        },
    }
}

/// Counts elements that are gone through, and their memory.
fn go_through(list: &ListElements, scope: &mut Scope<'_>) -> Result<(), Stop> {
    scope.run.list_bytes = scope.run.list_bytes.saturating_add(list.bytes);
    match scope.run.go_through(list.elements.len()) {
        true => Ok(()),
        false => Err(Stop::Error(Box::new(RuleError::TooManyElementsInAll))),
    }
}

/// Evaluates the list of a `foreach` that judges elements: a list that is not there has none.
fn judged_elements(
    list: &Prepared,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Result<ListElements, Stop> {
    match elements(list, place, scope) {
        Err(Stop::Error(error)) if is_of(&error, VariableErrorKind::Missing) => {
            Ok(ListElements::default())
        }
        found => found,
    }
}

/// Evaluates the list of a `foreach`. A single value becomes a list of one element, and a missing value is an error.
pub(super) fn elements(
    list: &Prepared,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Result<ListElements, Stop> {
    let stop = |interrupt: Interrupt| {
        let error = interrupt.into_error(|| format!("{place}.list"));
        error.map_or(Stop::Pending, |error| Stop::Error(Box::new(error)))
    };
    let value = scope.evaluate(list).map_err(stop)?;
    let found = value.as_array().map_or(1, Vec::len);
    if found > FOREACH_ELEMENTS_MAX {
        let of_request = list.fixed().is_some_and(|list| {
            let roots = list.ast().root_fields();
            roots.iter().all(|root| *root == "request")
        });
        let error = RuleError::TooManyElements { found, of_request };
        return Err(Stop::Error(Box::new(error)));
    }
    // A list that others share is copied.
    let bytes = scope.list_bytes(&value).map_err(stop)?;
    let elements: Arc<[Arc<Value>]> = match Arc::unwrap_or_clone(value) {
        Value::Array(elements) => elements.into_iter().map(Arc::new).collect(),
        Value::Null => Arc::default(),
        single => Arc::new([Arc::new(single)]),
    };
    let list = ListElements { elements, bytes };
    go_through(&list, scope).map(|()| list)
}

/// Calls `make` for an element, within the context of its `foreach`. The first `outside` of the `entries` belong to
/// the enclosing rule: facts learned for them are kept.
pub(super) fn within<T>(
    entries: &[Arc<ContextEntry>],
    outside: usize,
    element: &Arc<Value>,
    index: usize,
    outer: &mut Scope<'_>,
    make: impl FnOnce(&mut Scope<'_>) -> T,
) -> T {
    meter::charge(1);
    let mut states = outer.states.within(&entries[outside..], element, index);
    let made = make(&mut Scope {
        request: outer.request,
        namespace: outer.namespace,
        entries,
        states: &mut states,
        facts: outer.facts,
        run: outer.run,
        pushdown: outer.pushdown,
        visible: entries.len(),
    });
    outer.states.learn(&states);
    made
}
