//! The channel from the readers of manifests to the controller: a [`NoteQueue`] and those who wait for it.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use super::{
    collection::Manifests,
    note_queue::{NoteQueue, TakenNote},
};
use crate::source::reflect::{Note, Sink};

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<NoteQueue>,
    /// Notified when a note was taken.
    room: Notify,
}

/// Returns the two ends of a new channel.
pub(crate) fn note_channel() -> (NoteSender, NoteReceiver) {
    let shared = Arc::<Shared>::default();
    let (wake, woken) = mpsc::channel(1);
    let sender = NoteSender {
        shared: Arc::clone(&shared),
        wake,
    };
    (sender, NoteReceiver { shared, woken })
}

/// The readers' end.
#[derive(Clone, Debug)]
pub(crate) struct NoteSender {
    shared: Arc<Shared>,
    /// Holds a message when there may be notes that the receiver does not know of.
    wake: mpsc::Sender<()>,
}

impl NoteSender {
    /// Returns a sink for the notes of a collection.
    pub(crate) fn sink(&self, collection: Manifests) -> NoteSink {
        NoteSink {
            collection,
            sender: self.clone(),
        }
    }
}

/// Passes the notes of a collection on. Where there is no room, the source waits.
pub(crate) struct NoteSink {
    collection: Manifests,
    sender: NoteSender,
}

#[async_trait]
impl Sink for NoteSink {
    async fn note(&mut self, mut note: Note) {
        let NoteSender { shared, wake } = &self.sender;
        let at = Instant::now();
        loop {
            let room = shared.room.notified();
            tokio::pin!(room);
            // What is taken from here on is not missed.
            room.as_mut().enable();
            let refused = shared.queue.lock().push(self.collection, note, at);
            let Some(refused) = refused else {
                // A full channel wakes the receiver too.
                let _ = wake.try_send(());
                return;
            };
            note = refused;
            tokio::select! {
                () = room => {}
                // The term has ended.
                () = wake.closed() => return,
            }
        }
    }
}

/// The controller's end.
#[derive(Debug)]
pub(crate) struct NoteReceiver {
    shared: Arc<Shared>,
    woken: mpsc::Receiver<()>,
}

impl NoteReceiver {
    /// Waits for the next note; `None`: all senders are gone. Cancelling it loses no note.
    pub(super) async fn recv(&mut self) -> Option<TakenNote> {
        loop {
            let taken = self.shared.queue.lock().take();
            if taken.is_some() {
                self.shared.room.notify_waiters();
                return taken;
            }
            self.woken.recv().await?;
        }
    }

    /// Returns whether no note waits.
    pub(super) fn is_empty(&self) -> bool {
        self.shared.queue.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{EntryKind, ObjectKey, ResourceVersion};
    use futures::FutureExt as _;

    use super::*;
    use crate::source::reflect::{Origin, RawObject};

    fn put(name: &str, bytes: usize) -> Note {
        let object = RawObject {
            key: ObjectKey::new("", name),
            version: ResourceVersion::default(),
            json: "x".repeat(bytes).into(),
        };
        let origin = Origin::List;
        Note::Put { object, origin }
    }

    async fn received(receiver: &mut NoteReceiver) -> Option<String> {
        match receiver.recv().await? {
            (_, Note::Put { object, .. }, _) => Some(object.key.to_string()),
            (_, other, _) => Some(format!("{other:?}")),
        }
    }

    #[tokio::test]
    async fn a_sender_waits_for_room_and_the_receiver_for_notes() {
        let (sender, mut receiver) = note_channel();
        let mut sink = sender.sink(Manifests::Entries(EntryKind::Cached));
        assert!(receiver.recv().now_or_never().is_none());
        sink.note(put("large", 16 * 1024 * 1024)).await;
        let mut waits = sink.note(put("next", 1));
        assert!((&mut waits).now_or_never().is_none());
        assert_eq!(received(&mut receiver).await.unwrap(), "large");
        waits.await;
        assert!(!receiver.is_empty());
        assert_eq!(received(&mut receiver).await.unwrap(), "next");
        assert!(receiver.is_empty());
        sink.note(put("last", 1)).await;
        drop((sink, sender));
        assert_eq!(received(&mut receiver).await.unwrap(), "last");
        assert_eq!(received(&mut receiver).await, None);
    }

    #[tokio::test]
    async fn a_sender_does_not_wait_for_a_receiver_that_is_gone() {
        let (sender, receiver) = note_channel();
        let mut sink = sender.sink(Manifests::Entries(EntryKind::Cached));
        sink.note(put("large", 16 * 1024 * 1024)).await;
        let mut waits = sink.note(put("next", 1));
        assert!((&mut waits).now_or_never().is_none());
        drop(receiver);
        waits.await;
    }
}
