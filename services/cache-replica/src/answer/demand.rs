//! The log position that a request demands of a view.

use anteroom_mirror::{ServedFrom, ViewHandle};
use anteroom_model::{FactError, Incarnation, Revision};
use anteroom_wire::query::QueryRequest;

use crate::deadline::Deadline;

/// The position of the log that a request demands of a view.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// Nothing, or a position of a log that says nothing about this view.
    Nothing,
    /// A position, of whichever log is served.
    Position(Revision),
    /// A position in the log that is being read now. The served objects are still of the log before it, which the
    /// asker has left already.
    Coming(Incarnation, Revision),
}

impl Demand {
    pub(super) fn of(view: &ViewHandle, request: &QueryRequest) -> Self {
        let Some(revision_min) = request.revision_min else {
            return Self::Nothing;
        };
        let Some(log) = &request.revision_min_of else {
            return Self::Position(revision_min);
        };
        match view.serves_from(log) {
            ServedFrom::This => Self::Position(revision_min),
            // Whatever the age: this looks at whether there are data. Where there are none, it is waited.
            _ if view.snapshot(Some(u64::MAX)).is_err() => Self::Position(revision_min),
            ServedFrom::ThisSoon => Self::Coming(log.clone(), revision_min),
            ServedFrom::Another => Self::Nothing,
        }
    }

    /// Waits until it is met.
    ///
    /// # Errors
    /// [`FactError::RevisionNotReached`] at the deadline.
    pub(super) async fn wait(
        &self,
        view: &ViewHandle,
        deadline: Deadline,
    ) -> Result<(), FactError> {
        let left = deadline.left();
        match self {
            Self::Nothing => Ok(()),
            Self::Position(revision_min) => view.wait_for(*revision_min, left).await,
            Self::Coming(log, revision_min) => view.wait_for_log(log, *revision_min, left).await,
        }
    }
}
