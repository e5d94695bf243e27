//! A running watch: the state of its lists, and the time of its last word.

use std::time::Duration;

use anteroom_model::ResourceVersion;
use tokio::time::Instant;
use tokio::{sync::watch, task::AbortHandle};

use super::reads::Reads;

/// The state of a running watch.
#[derive(Debug)]
pub(super) struct RunningWatch {
    relist: watch::Sender<u64>,
    stop: AbortHandle,
    pub(super) heard: Option<Instant>,
    pub(super) spread: Option<Instant>,
    /// The last version that it brought of the source, by a list, an event or a bookmark.
    pub(super) newest: ResourceVersion,
    /// The watch listed at least once since it was last refused.
    listed: bool,
    /// A list runs.
    listing: bool,
    /// A further list was asked for, to begin after the running list.
    again: bool,
    /// A list was asked for, and has not begun.
    relist_asked: bool,
    /// The version of the source that the last list shows.
    pub(super) lists_at: ResourceVersion,
    /// Begin, duration and objects of the last list.
    begun_at: Option<Instant>,
    pub(super) list_took: Duration,
    pub(super) objects: u64,
    /// The number of lists that run beside the watch.
    pub(super) joining: usize,
    /// The single objects whose reads began of late.
    pub(super) reads: Reads,
}

impl RunningWatch {
    pub(super) fn new(relist: watch::Sender<u64>, stop: AbortHandle) -> Self {
        Self {
            relist,
            stop,
            heard: None,
            spread: None,
            newest: ResourceVersion::default(),
            listed: false,
            listing: false,
            again: false,
            relist_asked: false,
            lists_at: ResourceVersion::default(),
            begun_at: None,
            list_took: Duration::ZERO,
            objects: 0,
            joining: 0,
            reads: Reads::default(),
        }
    }

    /// Returns whether the watch has completed a list, or is reading one.
    pub(super) fn has_listed(&self) -> bool {
        self.listed || self.listing
    }

    /// Returns whether a list is due to begin: the list will bring every object that is referenced before its begin.
    pub(super) fn lists_next(&self) -> bool {
        self.again || (self.relist_asked && !self.listing)
    }

    /// Returns the time since the last list began.
    pub(super) fn since_list(&self) -> Duration {
        self.begun_at.map_or(Duration::MAX, |at| at.elapsed())
    }

    /// Returns whether a view may list beside the watch: the watch's events bring all later changes.
    pub(super) fn can_be_joined(&self) -> bool {
        self.listed && !self.listing && !self.again
    }

    /// Asks for a list. A running list ends first, so that no number of requests can prevent its end. A list that was
    /// asked for and has not begun serves the request too.
    pub(super) fn ask(&mut self) {
        if self.listing {
            self.again = true;
        } else if self.listed && !self.relist_asked {
            self.relist_asked = true;
            self.relist.send_modify(|asked| *asked += 1);
        }
    }

    pub(super) fn stop(&self) {
        self.stop.abort();
    }

    /// A list begins, which shows the source at `version`.
    pub(super) fn begin_list(&mut self, is_new_history: bool, version: &ResourceVersion) {
        self.lists_at.clone_from(version);
        if is_new_history {
            self.newest = ResourceVersion::default();
        }
        (self.listing, self.again, self.relist_asked) = (true, false, false);
        self.begun_at = Some(Instant::now());
        self.objects = 0;
    }

    /// Asks for a further list, after the running list.
    pub(super) fn list_again(&mut self) {
        self.again = true;
    }

    /// The running list is complete. If a list was asked for meanwhile, the watch lists again.
    pub(super) fn end(&mut self, version: &ResourceVersion, now: Instant) {
        (self.listed, self.listing) = (true, false);
        self.list_took = self.since_list();
        self.newest.clone_from(version);
        self.heard = Some(now);
        if std::mem::take(&mut self.again) {
            self.ask();
        }
    }

    pub(super) fn refuse(&mut self) {
        (self.listed, self.listing, self.relist_asked) = (false, false, false);
    }
}
