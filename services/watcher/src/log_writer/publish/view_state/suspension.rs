//! A view that does not fit into the log, or into its namespace's quota. The log then has only a control record with
//! the reason. The writer still counts the source's objects, so that the view is written again once all of them fit.

use std::time::Duration;

use anteroom_model::{Digest, Epoch, Failure, ViewState, own_reason};
use tokio::time::Instant;

use super::ViewWriteState;
use crate::log_writer::publish::{log_space, pending::Change};

/// The shortest time between suspending a view and writing it again.
const SUSPENDED_MIN: Duration = Duration::from_secs(5);

/// The longest time for which a resuming view keeps the other suspended views waiting.
const RESUME_MAX: Duration = Duration::from_secs(60);

/// The limit that a view is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log_writer::publish) enum Limit {
    /// The limit of the log.
    Log,
    /// The quota of its namespace, in bytes.
    Quota(u64),
}

impl Limit {
    /// Returns the name of the limit for log lines.
    pub(in crate::log_writer::publish) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Quota(_) => "quota",
        }
    }
}

/// The suspension of a view that does not fit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Suspension {
    /// The view is written.
    #[default]
    No,
    /// The view is not written. Its size is known once its source was read to the end.
    Since {
        at: Instant,
        is_measured: bool,
        over: Limit,
    },
    /// The view is written again.
    Resumes { since: Instant },
}

impl ViewWriteState {
    /// Returns whether nothing of the view is written, for lack of room.
    pub(in crate::log_writer::publish) fn is_suspended(&self) -> bool {
        matches!(self.suspension, Suspension::Since { .. })
    }

    /// Returns whether it was suspended and is being written again.
    pub(in crate::log_writer::publish) fn is_resuming(&self, now: Instant) -> bool {
        let Suspension::Resumes { since } = self.suspension else {
            return false;
        };
        now.saturating_duration_since(since) < RESUME_MAX
    }

    /// Returns whether its size is known, and a while has passed.
    pub(in crate::log_writer::publish) fn may_resume(&self, now: Instant) -> bool {
        let Suspension::Since {
            at, is_measured, ..
        } = self.suspension
        else {
            return false;
        };
        is_measured && now.saturating_duration_since(at) >= SUSPENDED_MIN
    }

    /// Returns about the bytes that the whole view would take in the log.
    pub(in crate::log_writer::publish) fn bytes_wanted(&self) -> u64 {
        log_space::bytes_in_log(self.objects(), self.bytes)
    }

    /// Returns about the bytes that the view takes in the log.
    pub(in crate::log_writer::publish) fn bytes_logged(&self) -> u64 {
        let waiting: usize = self.pending.values().map(Change::body_bytes).sum();
        let bodies = self.bytes.saturating_sub(waiting as u64);
        log_space::bytes_in_log(self.logged_objects, bodies)
    }

    /// Returns whether only policies of namespaces need the view, and the log has objects of it.
    pub(in crate::log_writer::publish) fn is_tenants_in_log(&self) -> bool {
        self.in_quota && self.bytes_logged() > 0
    }

    /// Suspends the view, in a new epoch: waiting changes are dropped, and no object counts as being in the log.
    /// Returns the bytes of these changes.
    pub(in crate::log_writer::publish) fn suspend(
        &mut self,
        epoch: Epoch,
        over: Limit,
        now: Instant,
    ) -> usize {
        self.freshness.drop_changes(self.oldest_pending(), now);
        let is_measured = self.state == ViewState::Synced;
        let pending = std::mem::take(&mut self.pending);
        let bytes = pending.values().map(Change::body_bytes).sum();
        self.suspension = Suspension::Since {
            at: now,
            is_measured,
            over,
        };
        self.epoch = epoch;
        self.origin = epoch;
        self.logged_objects = 0;
        self.logged_digest = Digest::default();
        self.state = self.state_when_listed();
        bytes
    }

    /// The source was read to its end: the size is known.
    pub(in crate::log_writer::publish) fn measured(&mut self) {
        if let Suspension::Since { is_measured, .. } = &mut self.suspension {
            *is_measured = true;
        }
    }

    /// There is room: the next list brings everything, as to a view that is new.
    pub(in crate::log_writer::publish) fn resume_after_full(&mut self, now: Instant) {
        self.suspension = Suspension::Resumes { since: now };
        self.at_source.clear();
        (self.bytes, self.key_bytes) = (0, 0);
        if let Some(parts) = &mut self.parts {
            parts.clear();
        }
    }

    /// Notes that readers have learned this state of the view's last epoch.
    pub(in crate::log_writer::publish) fn reported(&mut self, state: &ViewState) {
        if matches!(state, ViewState::Dropped | ViewState::Failed { .. }) {
            self.freshness.tell_failure();
        }
        let settled = matches!(state, ViewState::Synced | ViewState::Failed { .. });
        if settled && matches!(self.suspension, Suspension::Resumes { .. }) {
            self.suspension = Suspension::No;
        }
    }

    /// Returns the state to publish in place of a state that was queued before the view was suspended.
    pub(in crate::log_writer::publish) fn truthful(&self, state: ViewState) -> ViewState {
        match state {
            ViewState::Synced if self.is_suspended() => self.state_when_listed(),
            state => state,
        }
    }

    /// Returns the state to publish once a list is complete.
    pub(in crate::log_writer::publish) fn state_when_listed(&self) -> ViewState {
        let Suspension::Since { over, .. } = self.suspension else {
            return ViewState::Synced;
        };
        let (objects, bytes) = (self.objects(), self.bytes_wanted());
        let size = format!("this view, of {objects} object(s) and about {bytes} bytes");
        let failure = match over {
            Limit::Log => Failure::new(
                own_reason::LOG_FULL,
                format!(
                    "the log has no room for {size}. It is written again by itself once there is: \
                     delete objects or entries, narrow this one by a selector, or raise \
                     `--nats-log-bytes-max`"
                ),
            ),
            Limit::Quota(bytes_max) => Failure::new(
                own_reason::QUOTA_EXCEEDED,
                format!(
                    "views that only policies of this namespace read may take {bytes_max} bytes of \
                     the log, and with {size}, they would take more. It is written again by itself \
                     once it fits: delete objects, read fewer, or raise \
                     `--namespace-log-bytes-max`"
                ),
            ),
        };
        ViewState::Failed { failure }
    }
}
