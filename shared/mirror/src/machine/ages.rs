//! The ages of views, by the writers' beats and the passing of time.

use std::time::Duration;

use anteroom_model::limits::SUSPEND_SETTLE_MS;

use super::*;

impl Machine {
    /// The process stood still, perhaps with its machine, and runs again since `now`.
    pub(crate) fn woke(&mut self, now: Moment) {
        self.woke = Some(now);
        // What was late before would seem late by as long as the process stood still.
        self.ahead = self.ahead.map(|(position, _)| (position, now));
        self.progress = self.progress.map(|_| now);
        self.earlier.clear();
    }

    /// A group's writer says that it lives.
    pub(crate) fn beat(&mut self, now: Moment, beat: &Beat) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        self.healthy = false;
        // A watcher that stands for election writes nothing by that.
        if self.reading == Reading::Unheard || beat.group == Group::NONE {
            return effects;
        }
        if self.left.contains(&beat.incarnation) {
            // What is read already is no news, nor is what somebody says of a log that is gone.
        } else if beat.incarnation != self.incarnation {
            self.rereads.want(RereadCause::Incarnation);
        } else if self.is_of_the_leader(now, beat) {
            self.terms.insert(beat.group, beat.term);
            self.news(now, beat, &mut effects);
            self.age(now, &mut effects);
        }
        self.repair(now, &mut effects);
        effects.push(MirrorEffect::Heard);
        effects
    }

    /// Returns whether the beat is of the group's last term. If only beats of an earlier one have come for so long that
    /// the last leader counts as silent, terms have begun anew: the log has lost its lease, and no watcher of before lives.
    fn is_of_the_leader(&mut self, now: Moment, beat: &Beat) -> bool {
        if beat.term >= self.term(beat.group) {
            self.earlier.remove(&beat.group);
            return true;
        }
        let since = *self.earlier.entry(beat.group).or_insert(now);
        let silence_max = Duration::from_millis(self.config.beat_silence_max_ms);
        if now.saturating_sub(since) <= silence_max {
            return false;
        }
        self.earlier.remove(&beat.group);
        self.delays.forget(beat.group);
        for kept in self.views.values() {
            let of_group = kept.read().group() == Some(beat.group);
            if of_group {
                kept.write().terms_began_anew();
            }
        }
        true
    }

    /// Returns true if what arrives now may have been sent before the process stood still.
    fn settles(&self, now: Moment) -> bool {
        let settle = Duration::from_millis(SUSPEND_SETTLE_MS);
        let since_woken = self.woke.map(|woke| now.saturating_sub(woke));
        since_woken.is_some_and(|since| since < settle)
    }

    fn news(&mut self, now: Moment, beat: &Beat, effects: &mut Vec<MirrorEffect>) {
        let settles = self.settles(now);
        let delay_ms = self.delays.arrived(now, beat);
        for kept in self.views.values() {
            let of_group = kept.read().group() == Some(beat.group);
            if of_group {
                kept.write().note_heard(now);
            }
        }
        for news in beat
            .views
            .iter()
            .filter(|news| self.scope.holds(&news.view))
        {
            if news.revision > self.position && self.ahead.is_none() {
                self.ahead = Some((news.revision, now));
            }
            if let Some(kept) = self.views.get(&news.view) {
                changing(now, self.complete_to, &news.view, kept, effects, |kept| {
                    // Also where nothing is known of the view but its name.
                    kept.note_heard(now);
                    let read = match kept.record_source() {
                        RecordSource::Log => self.complete_to,
                        RecordSource::Alone | RecordSource::None => self.loads.position(&news.view),
                    };
                    // Else the view would seem younger than it is by as long as the process stood still.
                    let age_ms = match settles {
                        true => u64::MAX,
                        false => news.news_age_ms.saturating_add(delay_ms),
                    };
                    kept.beat(now, news.revision, age_ms, read);
                });
                self.behind |= kept.read().is_behind();
            }
        }
    }

    pub(super) fn reached(&mut self, now: Moment) {
        self.behind = false;
        for kept in self.views.values() {
            let mut kept = kept.write();
            if kept.record_source() == RecordSource::Log {
                kept.reached(now, self.complete_to);
                self.behind |= kept.is_behind();
            }
        }
    }

    /// Makes views stale or fresh as their ages are now, and forgets those of which nothing is left.
    pub(super) fn age(&mut self, now: Moment, effects: &mut Vec<MirrorEffect>) {
        let mut forsaken = Vec::new();
        for (id, kept) in &self.views {
            if kept.read().has_aged(now) {
                kept.write().age(now);
            }
            if kept.read().is_forsaken() {
                forsaken.push((id.clone(), kept.read().left_over()));
            }
        }
        for (id, left_over) in forsaken {
            self.forget(&id, effects);
            if let Some(seen) = left_over {
                self.unheld.insert(id, seen);
            }
        }
    }

    /// Returns true if a beat named a position long ago, and nothing has been read since.
    pub(super) fn lags(&self, now: Moment) -> bool {
        let (Some((_, since)), Some(progress)) = (self.ahead, self.progress) else {
            return false;
        };
        now.saturating_sub(since.max(progress)).as_millis() > u128::from(self.config.lag_max_ms)
    }

    pub(super) fn term(&self, group: Group) -> u32 {
        self.terms.get(&group).copied().unwrap_or_default()
    }
}
