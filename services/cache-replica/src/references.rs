//! Objects that are referenced by themselves: waiting for the first state of one, and the keys of those
//! read, which beats report to the watcher.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use anteroom_mirror::ViewHandle;
use anteroom_model::{FactError, ObjectKey, ViewId, limits::REFERENCE_WAIT_MAX_MS};
use anteroom_view::{ReferenceState, Select};
use anteroom_wire::replica_beat::READ_KEYS_MAX;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// Idle references that wait for the next beat, which follows at once. Over it the rest is not reported:
/// the query gets the answer that nothing is known, and its sender asks again.
const ASKED_MAX: usize = READ_KEYS_MAX;

/// References read that wait for a beat to name them, [`READ_KEYS_MAX`] with each. Over it the rest is
/// not reported; at worst the watch of one that is read is stopped, and begun again when it is read next.
const READ_MAX: usize = 100_000;

/// The time of a call that is kept for its answer, after a wait that came to nothing.
const ANSWER_TIME: Duration = Duration::from_millis(10);

type ReferenceKey = (ViewId, ObjectKey);

/// References that were asked for and read, for the replica's beats.
#[derive(Debug, Default)]
pub(crate) struct References {
    asked: Mutex<BTreeSet<ReferenceKey>>,
    read: Mutex<HashSet<ReferenceKey>>,
    /// Something was asked for: a beat is due.
    due: Notify,
}

impl References {
    /// Waits until the state of the requested objects is known, for as long as the watcher may take, and tells the
    /// watcher that they are read.
    pub(crate) async fn wait_until_settled(
        &self,
        view: &ViewHandle,
        selects: impl Iterator<Item = &Select>,
        left: Duration,
    ) {
        if !view.id().is_of_references() {
            return;
        }
        let until = Instant::now() + wait_max(left);
        let mut unknown: Vec<_> = selects
            .filter_map(|select| Some((select, select.object_key()?)))
            .collect();
        for (_, key) in &unknown {
            self.was_read(view.id(), key);
        }
        let mut status = view.status();
        let known = async {
            loop {
                status.borrow_and_update();
                // All idle ones are asked for before the first wait, so that their watches start together.
                unknown.retain(|(select, key)| !self.is_known(view, select, key));
                if unknown.is_empty() || status.changed().await.is_err() {
                    return;
                }
            }
        };
        // After the time limit, the query itself says which objects are not known.
        let _ = timeout_at(until, known).await;
    }

    /// Returns whether there is nothing to wait for. Asks for the object if it is idle.
    fn is_known(&self, view: &ViewHandle, select: &Select, key: &ObjectKey) -> bool {
        // The state of the reference matters here, not the age of the data.
        let state = view.read(Some(u64::MAX), |read, _| {
            select.referenced_object(read).map(|object| object.state)
        });
        match state {
            Ok(Some(ReferenceState::Pending)) | Err(FactError::NotSynced { .. }) => false,
            Ok(Some(ReferenceState::Idle)) => {
                self.ask(view.id(), key);
                false
            }
            Ok(Some(ReferenceState::Settled | ReferenceState::Unregistered) | None) | Err(_) => {
                true
            }
        }
    }

    fn ask(&self, view: &ViewId, key: &ObjectKey) {
        let mut asked = self.asked.lock();
        if asked.len() < ASKED_MAX && asked.insert((view.clone(), key.clone())) {
            self.due.notify_one();
        }
    }

    fn was_read(&self, view: &ViewId, key: &ObjectKey) {
        let mut read = self.read.lock();
        if read.len() < READ_MAX {
            read.insert((view.clone(), key.clone()));
        }
    }

    /// Waits until something was asked for.
    pub(crate) async fn wait_until_asked(&self) {
        self.due.notified().await;
    }

    /// Returns the references that were asked for since the last call.
    pub(crate) fn take_asked(&self) -> Vec<ReferenceKey> {
        std::mem::take(&mut *self.asked.lock())
            .into_iter()
            .collect()
    }

    /// Returns references that were read, [`READ_KEYS_MAX`] at most. The next call returns the rest.
    pub(crate) fn take_read(&self) -> Vec<ReferenceKey> {
        let mut read = self.read.lock();
        if read.len() <= READ_KEYS_MAX {
            return std::mem::take(&mut *read).into_iter().collect();
        }
        let some: Vec<_> = read.iter().take(READ_KEYS_MAX).cloned().collect();
        for key in &some {
            read.remove(key);
        }
        some
    }
}

/// The longest wait for one answer, with `left` of the call's time.
fn wait_max(left: Duration) -> Duration {
    Duration::from_millis(REFERENCE_WAIT_MAX_MS).min(left.saturating_sub(ANSWER_TIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_leaves_time_for_the_answer() {
        let ms = Duration::from_millis;
        assert_eq!(wait_max(ms(5_000)), ms(REFERENCE_WAIT_MAX_MS));
        assert_eq!(wait_max(ms(500)), ms(490));
        assert_eq!(wait_max(ms(5)), ms(0));
    }

    #[test]
    fn the_keys_that_were_read_are_reported_in_parts_and_completely() {
        let references = References::default();
        let view = ViewId::new("v");
        let count = READ_KEYS_MAX * 2 + 1;
        for n in 0..count {
            references.was_read(&view, &ObjectKey::new("ns", n.to_string()));
        }
        references.was_read(&view, &ObjectKey::new("ns", "0"));
        let told: Vec<_> = std::iter::repeat_with(|| references.take_read())
            .take_while(|part| !part.is_empty())
            .collect();
        assert_eq!(
            told.iter().map(Vec::len).collect::<Vec<_>>(),
            [READ_KEYS_MAX, READ_KEYS_MAX, 1]
        );
        let all: HashSet<_> = told.into_iter().flatten().collect();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn keys_that_wait_to_be_reported_are_bounded() {
        let references = References::default();
        let view = ViewId::new("v");
        for n in 0..=READ_MAX {
            let key = ObjectKey::new("ns", n.to_string());
            references.ask(&view, &key);
            references.was_read(&view, &key);
        }
        assert_eq!(references.take_asked().len(), ASKED_MAX);
        assert_eq!(references.read.lock().len(), READ_MAX);
    }
}
