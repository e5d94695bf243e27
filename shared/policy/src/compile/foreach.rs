//! `validate.foreach`.

use std::sync::Arc;

use super::{
    check::{self, CHECKS},
    conditions, context,
    expressions::Names,
    fields::{Field, Known},
    rule::{OBJECT, parsed},
};
use crate::{
    policy::{ContextEntry, ForEach, Loader},
    problem::Problems,
    template::Prepared,
};

/// How many `foreach` a rule may have.
const FOREACH_MAX: usize = 64;

const FOREACH: Known = Known {
    evaluated: &[
        "anyPattern",
        "context",
        "deny",
        "elementScope",
        "list",
        "pattern",
        "preconditions",
    ],
    inert: &[],
    later: &["foreach"],
};

/// What every `foreach` gives: the element and its place, also under the names by which an inner one
/// would know them.
const GIVEN: &[&str] = &["element", "element0", "elementIndex", "elementIndex0"];

/// `outer` are the rule's entries, and `names` what it knows.
pub(super) fn compile(
    field: &Field<'_>,
    outer: &[Arc<ContextEntry>],
    home: Option<&str>,
    names: &Names,
    problems: &mut Problems,
) -> Vec<ForEach> {
    let fields = field.list(problems);
    if fields.is_empty() {
        problems.invalid(field.path(), "it is empty");
    }
    if fields.len() > FOREACH_MAX {
        problems.invalid(field.path(), format!("more than {FOREACH_MAX} of them"));
    }
    fields
        .iter()
        .take(FOREACH_MAX)
        .filter_map(|field| one(field, outer, home, names, problems))
        .collect()
}

fn one(
    field: &Field<'_>,
    outer: &[Arc<ContextEntry>],
    home: Option<&str>,
    names: &Names,
    problems: &mut Problems,
) -> Option<ForEach> {
    let each = field.object(&FOREACH, problems)?;
    let list = each.required("list", problems).and_then(|field| {
        let list = parsed(
            field.path(),
            Prepared::parse(field.text(problems)?),
            problems,
        )?;
        list.visit(&mut |prepared| names.check(field.path(), prepared, problems));
        Some(list)
    });
    let mut names = names.clone();
    GIVEN.iter().for_each(|name| names.define(name));
    let (inner, names) = context::compile_within(each.get("context"), home, names, problems);
    let preconditions = conditions::compile(each.get("preconditions"), &names, problems);
    let given: Vec<_> = CHECKS
        .iter()
        .filter(|check| each.get(check).is_some())
        .copied()
        .collect();
    match &*given {
        [] if !each.has_any(FOREACH.later) => {
            problems.invalid(each.child("deny"), "it is required");
        }
        [_, .., last] => {
            let message = format!("only one of {} can be given", given.join(" and "));
            problems.invalid(each.child(last), message);
        }
        _ => {}
    }
    let whole = each
        .get("elementScope")
        .and_then(|scope| scope.boolean(problems))
        .is_some_and(|is_element| !is_element);
    let about = if whole { OBJECT } else { "element" };
    let check = check::compile(&each, about, &names, problems);
    let given = GIVEN.iter().map(|name| {
        Arc::new(ContextEntry {
            name: (*name).to_owned(),
            loader: Loader::Given,
        })
    });
    Some(ForEach {
        list: list?,
        context: outer.iter().cloned().chain(given).chain(inner).collect(),
        outer: outer.len(),
        preconditions,
        check: check?,
        whole,
    })
}
