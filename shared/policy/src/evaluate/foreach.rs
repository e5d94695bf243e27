//! `foreach`: each element of a list, one after the other.

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use serde_json::Value;

use super::{
    FOREACH_ELEMENTS_MAX, RuleError, RuleOutcome, check,
    conditions::{self, Stop, Verdict},
    scope::{Interrupt, Scope},
};
use crate::{
    Rule, VariableErrorKind,
    policy::{ContextEntry, ForEach},
    template::{Prepared, Resolve},
};

/// What each `foreach` of a rule goes through, once that is known: each step begins anew, and comes to the
/// same list.
#[derive(Default)]
pub(super) struct Lists(Vec<Option<Elements>>);

/// The elements of a list, each shared with whoever speaks of it.
pub(super) type Elements = Arc<[Arc<Value>]>;

/// Where a `foreach` stands, for errors: written out only where there is one.
struct Place(usize);

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "validate.foreach[{}]", self.0)
    }
}

impl Lists {
    fn of(
        &mut self,
        at: usize,
        each: &ForEach,
        place: &dyn Display,
        scope: &mut Scope<'_>,
    ) -> Result<Elements, Stop> {
        if let Some(Some(known)) = self.0.get(at) {
            return Ok(Arc::clone(known));
        }
        let elements = elements(&each.list, place, scope)?;
        self.0.resize(self.0.len().max(at + 1), None);
        self.0[at] = Some(Arc::clone(&elements));
        Ok(elements)
    }
}

/// The first element that violates the rule, or cannot be judged, decides. `None` while a fact is
/// waited for: then the elements after it were asked about too, so that their facts come together.
pub(super) fn judge(
    rule: &Rule,
    all: &[ForEach],
    lists: &mut Lists,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    let (mut judged, mut pending) = (0_usize, false);
    for (at, each) in all.iter().enumerate() {
        let place = Place(at);
        let elements = match lists.of(at, each, &place, scope) {
            Ok(elements) => elements,
            Err(stop) => match stop.outcome().filter(|_| !pending) {
                Some(outcome) => return Some(outcome),
                None => {
                    pending = true;
                    continue;
                }
            },
        };
        for (index, element) in elements.iter().enumerate() {
            // Kyverno passes over these.
            if element.is_null() {
                continue;
            }
            match judge_element(rule, each, &place, element, index, scope) {
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
    }
    match (pending, judged) {
        (true, _) => None,
        (false, 0) => Some(RuleOutcome::Skipped {
            reason: "no element of a foreach is judged".to_owned(),
        }),
        (false, _) => Some(RuleOutcome::Pass),
    }
}

/// What the list comes to; a single value is a list of one. A list that is not there has no elements.
pub(super) fn elements(
    list: &Prepared,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Result<Elements, Stop> {
    let elements: Elements = match scope.evaluate(list) {
        Ok(list) => match Arc::unwrap_or_clone(list) {
            Value::Array(elements) => elements.into_iter().map(Arc::new).collect(),
            Value::Null => Arc::default(),
            single => Arc::new([Arc::new(single)]),
        },
        Err(Interrupt::Variable(error)) if error.kind == VariableErrorKind::Missing => {
            Arc::default()
        }
        Err(interrupt) => {
            let error = interrupt.into_error(|| format!("{place}.list"));
            return Err(error.map_or(Stop::Pending, |error| Stop::Error(Box::new(error))));
        }
    };
    match elements.len() {
        found if found > FOREACH_ELEMENTS_MAX => {
            let error = RuleError::TooManyElements { found };
            Err(Stop::Error(Box::new(error)))
        }
        _ => Ok(elements),
    }
}

fn judge_element(
    rule: &Rule,
    each: &ForEach,
    place: &dyn Display,
    element: &Arc<Value>,
    index: usize,
    outer: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    let context = (&*each.context, each.outer);
    within(context, element, index, outer, |scope| {
        let preconditions = format_args!("{place}.preconditions");
        match conditions::evaluate(&each.preconditions, &preconditions, scope) {
            Ok(Verdict { met: true, .. }) => {
                // Of what is no object there is nothing to say but of the object itself.
                let element = Some(&**element).filter(|element| element.is_object() && !each.whole);
                check::judge(rule, &each.check, element, place, scope)
            }
            Ok(_) => Some(RuleOutcome::Skipped {
                reason: String::new(),
            }),
            Err(stop) => stop.outcome(),
        }
    })
}

/// What is made of one element, with the context of its `foreach`: that is all entries, and how many of
/// them stand outside. What was found out of those is known there afterwards.
pub(super) fn within<T>(
    (entries, outside): (&[Arc<ContextEntry>], usize),
    element: &Arc<Value>,
    index: usize,
    outer: &mut Scope<'_>,
    make: impl FnOnce(&mut Scope<'_>) -> T,
) -> T {
    let mut states = outer.states.within(&entries[outside..], element, index);
    let made = make(&mut Scope {
        request: outer.request,
        namespace: outer.namespace,
        entries,
        states: &mut states,
        facts: outer.facts,
        visible: entries.len(),
    });
    outer.states.learn(&states);
    made
}
