//! The collections of manifests that the coordinator reads from the API server.

use anteroom_model::EntryKind;
use anteroom_policy::PolicyKind;

use super::{effect::SystemView, exception_store::ExceptionKind};

/// A collection that the coordinator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manifests {
    /// `CachedContextEntry` or `GlobalContextEntry`.
    Entries(EntryKind),
    /// Policies of a kind.
    Policies(PolicyKind),
    /// Exceptions to policies: `PolicyException` of a group.
    Exceptions(ExceptionKind),
}

impl Manifests {
    /// Returns the view in the log that holds these manifests.
    pub(super) fn view(self) -> SystemView {
        match self {
            Self::Entries(_) => SystemView::Entries,
            Self::Policies(_) => SystemView::Policies,
            Self::Exceptions(_) => SystemView::Exceptions,
        }
    }
}
