//! Whether a view has all that a query reads: one that keeps only what policies read is never asked for
//! more, since what was left out would look absent.

use std::sync::Arc;

use anteroom_model::{FactError, Kept, ViewId};
use anteroom_plan::reads;
use anteroom_view::{Read, Select};

use crate::{narrowed, per_document::PerDocument, plan::Plan};

/// What of each object an expression reads.
pub(crate) type Readings = PerDocument<Arc<Kept>>;

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
    let lacks = match narrowed::document(select, read) {
        Some(document) => {
            let find = || Arc::new(reads(&plan.expression, document));
            kept.lacks(&plan.readings.get(document, find))
        }
        None => kept.lacks(&Kept::Whole),
    };
    match lacks {
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
