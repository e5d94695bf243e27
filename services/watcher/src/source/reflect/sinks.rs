//! Sinks of the reflectors that do not feed a view: one forwards notes, one only says that there were some.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc};

use super::{Note, Sink};

/// Passes all notes on, with the collection that they are of.
pub(crate) struct ForwardSink<T> {
    /// The collection.
    pub collection: T,
    /// The receiver. Notes are dropped once it is gone: the term has ended.
    pub to: mpsc::Sender<(T, Note)>,
}

#[async_trait]
impl<T: Copy + Send + Sync + 'static> Sink for ForwardSink<T> {
    async fn note(&mut self, note: Note) {
        let _ = self.to.send((self.collection, note)).await;
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
