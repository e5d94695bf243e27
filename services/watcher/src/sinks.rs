//! Who listens to a reflector, beside the feeds: the controller, and the discovery.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};

use crate::reflect::{Note, Sink};

/// Passes everything on, with whose it is.
pub(crate) struct ForwardSink<T> {
    /// Whose.
    pub of: T,
    /// To whom. When nobody takes it any more, it is dropped: the term has ended.
    pub to: mpsc::Sender<(T, Note)>,
}

#[async_trait]
impl<T: Copy + Send + Sync + 'static> Sink for ForwardSink<T> {
    async fn note(&mut self, note: Note) {
        let _ = self.to.send((self.of, note)).await;
    }
}

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
