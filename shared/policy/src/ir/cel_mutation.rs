//! The changes of a `MutatingPolicy`: expressions that give patches. Pure.

use anteroom_cel::Program;

use super::cel::Cel;

/// The patches of a policy, one after the other, each of the object as those before it left it.
#[derive(Debug)]
pub(crate) struct CelMutation {
    /// Conditions, variables, annotations and facts; it judges nothing.
    pub(crate) around: Cel,
    pub(crate) patches: Vec<CelPatch>,
    /// The path from the object to the template of its Pods, of a derived rule: patches are of what stands there.
    pub(crate) template: Vec<String>,
    /// Atomic lists, maps and objects may be replaced (`evaluation.useServerSideApply`).
    pub(crate) replaces_atomics: bool,
}

/// One of `mutations`.
#[derive(Debug)]
pub(crate) struct CelPatch {
    /// The path of its expression.
    pub(crate) place: String,
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
