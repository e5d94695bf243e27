//! Handles of views for readers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_model::{Digest, FactError, Group, Incarnation, Revision, ViewId};
use anteroom_runtime::age_clock::BootInstant;
use anteroom_view::{LifeState, Read, Snapshot};
use tokio::sync::watch;

use crate::{ReadPosition, ServedFrom, ViewStatus, freshness::Moment, machine::SharedView};

/// Every view that a mirror has.
pub type ViewSet = Arc<BTreeMap<ViewId, ViewHandle>>;

/// When the mirror was made: what its moments are counted from. Suspends of the machine count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(BootInstant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(BootInstant::now())
    }

    pub(crate) fn now(self) -> Moment {
        self.0.elapsed()
    }
}

/// A view of a mirror. Cheap to clone; a view that was dropped stays dropped in its handles, even
/// if the mirror gets one of the same name again.
#[derive(Clone, Debug)]
pub struct ViewHandle {
    id: ViewId,
    kept: SharedView,
    status: Arc<watch::Sender<ViewStatus>>,
    /// Apart from the status, which every change of an object changes.
    serves: Arc<watch::Sender<bool>>,
    position: watch::Receiver<Revision>,
    clock: Clock,
}

impl ViewHandle {
    pub(crate) fn new(
        id: ViewId,
        kept: SharedView,
        position: watch::Receiver<Revision>,
        clock: Clock,
    ) -> Self {
        let status = kept.read().status();
        Self {
            id,
            kept,
            serves: Arc::new(watch::Sender::new(status.serves())),
            status: Arc::new(watch::Sender::new(status)),
            position,
            clock,
        }
    }

    /// The view's name.
    pub fn id(&self) -> &ViewId {
        &self.id
    }

    /// Returns true if `other` is a handle of the very same view, and not of one that came again under
    /// its name.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kept, &other.kept)
    }

    /// The status of the view, and its changes. Whether it has become stale is looked at a few times a
    /// second; [`ViewHandle::read`] looks at the very moment.
    pub fn status(&self) -> watch::Receiver<ViewStatus> {
        self.status.subscribe()
    }

    /// Tells if the view serves ([`ViewStatus::serves`]), and changes of that alone: a task that waits
    /// for them is not woken by changes of objects.
    pub fn serving(&self) -> watch::Receiver<bool> {
        self.serves.subscribe()
    }

    /// The time since the source was last heard from; `u64::MAX` if that is not known.
    pub fn age_ms(&self) -> u64 {
        self.kept.read().age_ms(self.clock.now())
    }

    /// The group of the view's writer, once it is known, and when that writer was last heard from.
    pub(crate) fn writer(&self) -> Option<(Group, Option<Moment>)> {
        let kept = self.kept.read();
        kept.group().map(|group| (group, kept.heard_at()))
    }

    /// The view's present size in memory, gathered and served objects together.
    pub fn bytes(&self) -> u64 {
        self.kept.read().bytes()
    }

    /// The number of the served objects, and their digest, to be compared with the writer's.
    pub fn digest(&self) -> (u64, Digest) {
        self.kept.read().digest()
    }

    /// Reads the view as it is now. `age_max_ms` is the oldest news that the reader accepts,
    /// `u64::MAX` for last-good data whatever its age; `None`: what the mirror accepts, and only
    /// while the writer is heard.
    ///
    /// `reader` holds up nobody, however long it takes: it reads a snapshot.
    ///
    /// # Errors
    /// [`FactError::NotSynced`], [`FactError::Stale`], [`FactError::Failed`]: never an empty view
    /// in their place.
    pub fn read<R>(
        &self,
        age_max_ms: Option<u64>,
        reader: impl FnOnce(Read<'_>, &ReadPosition) -> R,
    ) -> Result<R, FactError> {
        let (snapshot, position) = self.snapshot(age_max_ms)?;
        Ok(reader(snapshot.read(), &position))
    }

    /// Returns an immutable snapshot of the view's present state. Later changes of the view do not reach the snapshot.
    ///
    /// # Errors
    /// As [`ViewHandle::read`].
    pub fn snapshot(&self, age_max_ms: Option<u64>) -> Result<(Snapshot, ReadPosition), FactError> {
        self.kept.read().read(self.clock.now(), age_max_ms)
    }

    /// Compares this log with the log of the served data.
    pub fn serves_from(&self, log: &Incarnation) -> ServedFrom {
        self.kept.read().serves_from(log)
    }

    /// Waits until everything of the view up to `revision_min` is in it.
    ///
    /// # Errors
    /// [`FactError::RevisionNotReached`] after `timeout`, or once the view is dropped.
    pub async fn wait_for(
        &self,
        revision_min: Revision,
        timeout: Duration,
    ) -> Result<(), FactError> {
        self.wait(revision_min, timeout, || true).await
    }

    /// Waits for a position of this log. Data of another log counts for nothing, whatever its position.
    ///
    /// # Errors
    /// As [`ViewHandle::wait_for`].
    pub async fn wait_for_log(
        &self,
        log: &Incarnation,
        revision_min: Revision,
        timeout: Duration,
    ) -> Result<(), FactError> {
        let of_log = || self.serves_from(log) == ServedFrom::This;
        self.wait(revision_min, timeout, of_log).await
    }

    async fn wait(
        &self,
        revision_min: Revision,
        timeout: Duration,
        counts: impl Fn() -> bool,
    ) -> Result<(), FactError> {
        let mut status = self.status();
        let mut position = self.position.clone();
        let reached = async {
            loop {
                let read = *position.borrow_and_update();
                let now = status.borrow_and_update().clone();
                // What has been read is in every view that takes it in at once.
                let reached = now.revision >= revision_min || (now.live && read >= revision_min);
                if reached && counts() {
                    return true;
                }
                if now.state == LifeState::Dropped {
                    return false;
                }
                let changed = tokio::select! {
                    changed = position.changed() => changed,
                    changed = status.changed() => changed,
                };
                if changed.is_err() {
                    return false; // The mirror has ended.
                }
            }
        };
        if tokio::time::timeout(timeout, reached).await == Ok(true) {
            return Ok(());
        }
        Err(FactError::RevisionNotReached {
            view: self.id.as_str().to_owned(),
            have: self.status.borrow().revision,
            want: revision_min,
        })
    }

    /// Tells waiting readers the present status of the view.
    pub(crate) fn refresh(&self) -> ViewStatus {
        let status = self.kept.read().status();
        self.publish(&status);
        status
    }

    /// Does the same as [`ViewHandle::refresh`], and returns true if the status has changed.
    pub(crate) fn has_changed(&self) -> bool {
        let status = self.kept.read().status();
        self.publish(&status)
    }

    fn publish(&self, status: &ViewStatus) -> bool {
        self.status.send_if_modified(|last| {
            let modified = last != status;
            // Updated inside the closure, so that both watches change together.
            self.serves.send_if_modified(|last| {
                let serves = status.serves();
                std::mem::replace(last, serves) != serves
            });
            last.clone_from(status);
            modified
        })
    }
}

/// The views that the log contradicts, the first `views_max` of them.
pub(crate) fn contradicted(views: &ViewSet, views_max: usize) -> Vec<ViewId> {
    let contradicted = views
        .iter()
        .filter(|(_, view)| view.status.borrow().is_contradicted);
    let ids = contradicted.map(|(id, _)| id.clone());
    ids.take(views_max).collect()
}
