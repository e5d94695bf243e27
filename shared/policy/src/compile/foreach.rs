//! `validate.foreach`.

use std::sync::Arc;

use super::{
    check, conditions, context,
    expressions::RootNames,
    fields::{Field, KnownFields, ManifestObject},
    templates::parsed,
};
use crate::ir::{
    context::{ContextEntry, Loader},
    problem::Problems,
    rule::{ForEach, Validation},
    template::Prepared,
};

/// The most `foreach` beside each other.
pub(super) const FOREACH_MAX: usize = 64;

/// The most `foreach` inside each other.
pub(super) const FOREACH_LEVELS_MAX: usize = 8;

const VALIDATE_FOREACH: KnownFields = KnownFields {
    evaluated: &[
        "anyPattern",
        "context",
        "deny",
        "elementScope",
        "foreach",
        "list",
        "pattern",
        "preconditions",
    ],
    inert: &[],
    later: &[],
};

/// The ways to judge an element.
const FOREACH_WAYS: &[&str] = &["anyPattern", "deny", "foreach", "pattern"];

/// The surroundings of a `foreach`.
#[derive(Clone, Copy)]
pub(super) struct Outer<'o> {
    pub(super) entries: &'o [Arc<ContextEntry>],
    pub(super) names: &'o RootNames,
    pub(super) home: Option<&'o str>,
    /// The expression of the object that a pattern judges where the pattern is not about an element.
    pub(super) about: &'o str,
    /// The number of `foreach` around it.
    pub(super) level: usize,
}

pub(super) fn compile(
    field: &Field<'_>,
    outer: Outer<'_>,
    problems: &mut Problems,
) -> Vec<ForEach> {
    let fields = field.list(problems);
    if fields.is_empty() {
        problems.invalid(field.path(), "it is empty");
    }
    if fields.len() > FOREACH_MAX {
        problems.invalid(field.path(), format!("more than {FOREACH_MAX} of them"));
    }
    if outer.level >= FOREACH_LEVELS_MAX {
        let message = format!("more than {FOREACH_LEVELS_MAX} of them in each other");
        problems.invalid(field.path(), message);
        return Vec::new();
    }
    fields
        .iter()
        .take(FOREACH_MAX)
        .filter_map(|field| compile_foreach(field, outer, problems))
        .collect()
}

fn compile_foreach(
    field: &Field<'_>,
    outer: Outer<'_>,
    problems: &mut Problems,
) -> Option<ForEach> {
    let each = field.object(&VALIDATE_FOREACH, problems)?;
    let list = each.required("list", problems).and_then(|field| {
        let list = parsed(
            field.path(),
            Prepared::parse(field.text(problems)?),
            problems,
        )?;
        list.visit(&mut |prepared| outer.names.check(field.path(), prepared, problems));
        Some(list)
    });
    let variables = loop_variables(outer.level);
    let mut names = outer.names.within(problems)?;
    variables.iter().for_each(|entry| names.define(&entry.name));
    let own = each.get("context");
    let (own, names) = context::compile_within(own, outer.home, names, problems);
    let preconditions = conditions::compile(each.get("preconditions"), &names, problems);
    let element_scope = each
        .get("elementScope")
        .and_then(|scope| scope.boolean(problems));
    let entries: Vec<_> = outer
        .entries
        .iter()
        .cloned()
        .chain(variables)
        .chain(own)
        .collect();
    let inner = Outer {
        entries: &entries,
        names: &names,
        about: match element_scope {
            Some(false) => outer.about,
            _ => "element",
        },
        level: outer.level + 1,
        ..outer
    };
    let work = work(&each, inner, problems);
    Some(ForEach {
        list: list?,
        outer: outer.entries.len(),
        preconditions,
        work: work?,
        element_scope,
        context: entries,
    })
}

/// Compiles the check of each element.
fn work(
    each: &ManifestObject<'_>,
    inner: Outer<'_>,
    problems: &mut Problems,
) -> Option<Validation> {
    let given: Vec<_> = FOREACH_WAYS
        .iter()
        .filter(|way| each.get(way).is_some())
        .copied()
        .collect();
    match &*given {
        [] => problems.invalid(each.child("deny"), "it is required"),
        [_, .., last] => {
            let message = format!("only one of {} can be given", given.join(" and "));
            problems.invalid(each.child(last), message);
        }
        _ => {}
    }
    match each.get("foreach") {
        Some(field) => Some(Validation::ForEach(compile(&field, inner, problems))),
        None => check::compile(each, inner.about, inner.names, problems).map(Validation::Whole),
    }
}

/// Returns the entries that a `foreach` gives at its level: the element and its index, by the level's names
/// too.
pub(super) fn loop_variables(level: usize) -> Vec<Arc<ContextEntry>> {
    let names = [
        "element".to_owned(),
        format!("element{level}"),
        "elementIndex".to_owned(),
        format!("elementIndex{level}"),
    ];
    let entry = |name| {
        Arc::new(ContextEntry {
            name,
            loader: Loader::Given,
        })
    };
    names.into_iter().map(entry).collect()
}
