//! The age, the state and the answers of a view.

use anteroom_model::{Digest, FactError, Incarnation};
use anteroom_view::{LifeState, Snapshot};

use super::{MirroredView, RecordSource};
use crate::{ReadPosition, ServedFrom, ViewStatus, freshness::Moment, silence::with_silence};

impl MirroredView {
    /// The time since the source was last heard from; `u64::MAX` if that is not known.
    pub(crate) fn age_ms(&self, now: Moment) -> u64 {
        self.freshness.age_ms(now)
    }

    /// The time since the view's writer was heard from, if that is too long; `u64::MAX` if it never was.
    fn silent_ms(&self, now: Moment) -> Option<u64> {
        let silent_ms = self.heard_at.map_or(u64::MAX, |heard| {
            let since = now.saturating_sub(heard).as_millis();
            u64::try_from(since).unwrap_or(u64::MAX)
        });
        (silent_ms > self.beat_silence_max_ms).then_some(silent_ms)
    }

    /// The age limit for readers that name none: the view's own limit from its writer, or the mirror's.
    fn age_max_ms(&self) -> u64 {
        let record = self.view.served().record();
        let own = record.and_then(|record| record.age_max_ms);
        own.unwrap_or(self.age_max_ms)
    }

    /// Returns true if readers that name no age are refused.
    pub(super) fn is_over_age(&self, now: Moment) -> bool {
        self.age_ms(now) > self.age_max_ms()
    }

    /// Returns true if [`MirroredView::age`] would change its state.
    pub(crate) fn has_aged(&self, now: Moment) -> bool {
        match self.view.state() {
            LifeState::Synced => self.is_over_age(now),
            LifeState::Stale => !self.is_over_age(now),
            _ => false,
        }
    }

    /// Makes it stale, or fresh again, as its age is now.
    pub(crate) fn age(&mut self, now: Moment) {
        self.view.aged(self.is_over_age(now));
    }

    /// The view as a reader may see it now. `age_max_ms` is what the reader accepts; `None`: what this mirror does. Who
    /// has died matters to nobody as long as the news is young enough.
    pub(crate) fn read(
        &self,
        now: Moment,
        age_max_ms: Option<u64>,
    ) -> Result<(Snapshot, ReadPosition), FactError> {
        let age_ms = self.age_ms(now);
        let silent_ms = self.silent_ms(now);
        let snapshot = self
            .view
            .snapshot(age_ms, age_max_ms.unwrap_or(self.age_max_ms()))
            .map_err(|error| with_silence(error, silent_ms))?;
        if !self.proof.answers() {
            return Err(FactError::NotSynced {
                view: self.view.id().to_string(),
                state: "a record of the log could not be read, so it waits until its digest agrees with \
                        the watcher's"
                    .to_owned(),
            });
        }
        let read = snapshot.read();
        let position = ReadPosition {
            incarnation: self.served_from.clone(),
            revision: read.revision(),
            version: read.version(),
            age_ms,
            objects: read.len() as u64,
            content: self.content,
        };
        Ok((snapshot, position))
    }

    /// Compares this log with the log of the served data.
    pub(crate) fn serves_from(&self, log: &Incarnation) -> ServedFrom {
        if self.served_from == *log {
            ServedFrom::This
        } else if self.incarnation == *log {
            ServedFrom::ThisSoon
        } else {
            ServedFrom::Another
        }
    }

    /// The number of the served objects, and their digest.
    pub(crate) fn digest(&self) -> (u64, Digest) {
        let served = self.view.served();
        (served.len() as u64, served.digest())
    }

    /// Its size in memory, with the objects that are gathered.
    pub(crate) fn bytes(&self) -> u64 {
        self.view.bytes().total() as u64
    }

    /// The status of the view.
    pub(crate) fn status(&self) -> ViewStatus {
        let state = match self.view.state() {
            state if state.answers() && !self.proof.answers() => LifeState::Unsynced,
            state => state.clone(),
        };
        ViewStatus {
            state,
            live: self.is_live() && self.record_source == RecordSource::Log,
            revision: self.view.served().revision(),
            left_complete_to: self.left_complete_to,
            objects: self.view.served().len() as u64,
            bytes: self.view.bytes().total() as u64,
            staged_bytes: self.view.staged_bytes().total() as u64,
            is_contradicted: self.contradicted.is_some(),
        }
    }
}
