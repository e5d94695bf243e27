//! The changes of a `MutatingPolicy`: expressions that give patches. Pure.

use anteroom_cel::Program;

use super::cel::Cel;

/// The patches of a policy. Each is evaluated on the object that the patches before left.
#[derive(Debug)]
pub(crate) struct CelMutation {
    /// Conditions, variables, annotations and facts; it judges nothing.
    pub(crate) shared_cel: Cel,
    pub(crate) patches: Vec<CelPatch>,
    /// The path from the object to its Pod template, for a derived rule: patches are about the template.
    pub(crate) template: Vec<String>,
    /// The CustomResourceDefinitions of the kinds that it may be about.
    pub(crate) definitions: Vec<Definition>,
    /// Atomic lists, maps and objects may be replaced (`evaluation.useServerSideApply`).
    pub(crate) replaces_atomics: bool,
}

/// A CustomResourceDefinition, whose schema says how a partial object is merged. It is one of the rule's facts.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The API group of its kind.
    pub(crate) group: String,
    /// The name of the call that reads the definition.
    pub(crate) call: String,
}

/// An entry of `mutations`.
#[derive(Debug)]
pub(crate) struct CelPatch {
    /// The path of its expression.
    pub(crate) path: String,
    pub(crate) program: Program,
    pub(crate) kind: CelPatchKind,
}

/// The kinds of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CelPatchKind {
    /// `applyConfiguration`: a partial object, which is merged.
    Apply,
    /// `jsonPatch`: operations.
    Json,
}
