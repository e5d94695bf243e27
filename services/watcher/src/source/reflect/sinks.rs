//! A sink that feeds no view: it only says that there were notes.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{Note, Sink};

/// Says only that something changed.
pub(crate) struct NudgeSink(pub Arc<Notify>);

#[async_trait]
impl Sink for NudgeSink {
    async fn note(&mut self, note: Note) {
        if matches!(
            note,
            Note::Put { .. } | Note::Gone { .. } | Note::Listed { .. }
        ) {
            self.0.notify_one();
        }
    }
}
