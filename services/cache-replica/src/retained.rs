//! Whether a view has all that a query reads: one that keeps only what policies read is never asked for
//! more, since what was left out would look absent.

use anteroom_model::{FactError, Kept, ViewId};
use anteroom_plan::reads;
use anteroom_view::{Read, Select};

use crate::{narrowed, plan::Plan};

/// # Errors
/// [`FactError::NotRetained`] with the first path that is read and not kept.
pub(crate) fn check(
    view: &ViewId,
    read: Read<'_>,
    plan: &Plan,
    select: &Select,
) -> Result<(), FactError> {
    let Some(kept) = read.kept() else {
        return Ok(());
    };
    let wanted = match narrowed::document(select, read) {
        Some(document) => reads(&plan.expression, document),
        None => Kept::Whole,
    };
    match kept.lacks(&wanted) {
        None => Ok(()),
        Some(path) => Err(FactError::NotRetained {
            view: view.to_string(),
            path: match path.is_empty() {
                true => "@".to_owned(),
                false => path,
            },
        }),
    }
}
