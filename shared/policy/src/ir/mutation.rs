//! The compiled changes of the object under review.

use std::sync::Arc;

use crate::ir::{
    conditions::Conditions,
    context::ContextEntry,
    template::{Prepared, Template, ValueTemplate},
};

/// The patches of an object.
#[derive(Debug)]
pub(crate) enum Mutation {
    /// The object is patched once.
    Once(Patch),
    /// The object is patched for elements of lists, one list after the other.
    ForEach(Vec<MutateEach>),
}

/// One patch.
#[derive(Debug)]
pub(crate) enum Patch {
    /// `patchStrategicMerge`: a strategic merge patch.
    Merge(ValueTemplate),
    /// `patchesJson6902`: a JSON patch.
    Json(Vec<PatchOperation>),
    /// `patchesJson6902`: a JSON patch.
    Computed(Template),
}

/// One operation of a JSON patch.
#[derive(Debug)]
pub(crate) struct PatchOperation {
    pub(crate) name: String,
    pub(crate) path: Template,
    pub(crate) from: Option<Template>,
    pub(crate) value: Option<ValueTemplate>,
}

/// One `foreach`.
#[derive(Debug)]
pub(crate) struct MutateEach {
    pub(crate) list: Prepared,
    /// The entries around it, the element, and its own entries.
    pub(crate) context: Vec<Arc<ContextEntry>>,
    /// The number of context entries of enclosing scopes.
    pub(crate) outer: usize,
    pub(crate) preconditions: Conditions,
    /// From the last element to the first.
    pub(crate) is_descending: bool,
    pub(crate) work: Mutation,
}

impl Mutation {
    /// The context entries of each `foreach`, the outer ones left out.
    pub(crate) fn entries(&self) -> Vec<&Arc<ContextEntry>> {
        let Self::ForEach(all) = self else {
            return Vec::new();
        };
        let of_each = all.iter().flat_map(|each| {
            let own = each.context[each.outer..].iter();
            own.chain(each.work.entries())
        });
        of_each.collect()
    }
}

impl PatchOperation {
    /// Returns the templates of its paths, each with the name of its field.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&'static str, &Template)> {
        let from = self.from.iter().map(|from| ("from", from));
        [("path", &self.path)].into_iter().chain(from)
    }
}
