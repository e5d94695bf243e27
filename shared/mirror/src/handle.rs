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
    /// The position up to which everything is in what is served, itself or what superseded it.
    complete_to: watch::Receiver<Revision>,
    clock: Clock,
}

impl ViewHandle {
    pub(crate) fn new(
        id: ViewId,
        kept: SharedView,
        complete_to: watch::Receiver<Revision>,
        clock: Clock,
    ) -> Self {
        let status = kept.read().status();
        Self {
            id,
            kept,
            serves: Arc::new(watch::Sender::new(status.serves())),
            status: Arc::new(watch::Sender::new(status)),
            complete_to,
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

    /// Waits until everything of the view up to `revision_min` is in it. A record that was superseded on its way is in it
    /// once what superseded it is.
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
        let mut complete_to = self.complete_to.clone();
        let reached = async {
            loop {
                let read = *complete_to.borrow_and_update();
                let now = status.borrow_and_update().clone();
                // What has been read is in every view that takes it in at once.
                let is_complete = now.left_complete_to.unwrap_or(read) >= revision_min;
                let is_reached = is_complete && (now.live || now.revision >= revision_min);
                if is_reached && counts() {
                    return true;
                }
                if now.state == LifeState::Dropped {
                    return false;
                }
                let changed = tokio::select! {
                    changed = complete_to.changed() => changed,
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

#[cfg(test)]
mod tests {
    use anteroom_model::{Epoch, ObjectKey, ViewState};
    use parking_lot::RwLock;
    use serde_json::json;

    use super::*;
    use crate::{
        ContentStamp, MirrorConfig,
        mirrored_view::MirroredView,
        testing::{Model, collection},
    };

    /// Returns a view whose last record stands at 28, and the sender of the position up to which it is complete.
    fn view_at_28() -> (ViewHandle, watch::Sender<Revision>) {
        let (log, epoch) = (Incarnation("1".into()), Epoch::new(1, 0));
        let mut model = Model::new(collection("ingresses", "Ingress"));
        let id = model.info.source.view_id();
        let mut kept = MirroredView::live(id.clone(), log, Revision(20), &MirrorConfig::default());
        let delta = model.put(epoch, ObjectKey::new("ns", "a"), json!({}));
        kept.delta(Revision(21), &delta, ContentStamp(1));
        let record = model.control(epoch, ViewState::Synced);
        kept.control(Revision(28), record, Some(Revision(0)), ContentStamp(2));
        let (sender, complete_to) = watch::channel(Revision(28));
        let kept = Arc::new(RwLock::new(kept));
        let view = ViewHandle::new(id, kept, complete_to, Clock::start());
        (view, sender)
    }

    async fn reaches(view: &ViewHandle, revision: u64) -> bool {
        let waited = view.wait_for(Revision(revision), Duration::from_millis(1));
        waited.await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_position_is_reached_once_what_superseded_earlier_records_is_there() {
        let (view, complete_to) = view_at_28();
        assert!(reaches(&view, 28).await);
        assert!(!reaches(&view, 29).await);
        // Something on the way to 28 was superseded.
        complete_to.send_replace(Revision(24));
        assert!(reaches(&view, 24).await);
        assert!(!reaches(&view, 25).await);
        let waited = view.wait_for(Revision(25), Duration::from_secs(1));
        let (waited, _) = tokio::join!(waited, async {
            complete_to.send_replace(Revision(31));
        });
        waited.unwrap();
        assert!(reaches(&view, 31).await, "it had no record of this view");
    }

    #[tokio::test(start_paused = true)]
    async fn positions_of_a_log_that_was_left_are_reached_as_far_as_it_was_read() {
        let (view, complete_to) = view_at_28();
        view.kept.write().left_behind(Revision(24));
        view.kept.write().restart(&Incarnation("2".into()), true);
        complete_to.send_replace(Revision(0));
        view.refresh();
        assert!(reaches(&view, 24).await);
        assert!(!reaches(&view, 25).await);
        complete_to.send_replace(Revision(90));
        assert!(
            !reaches(&view, 25).await,
            "that is a position of another log"
        );
    }
}
