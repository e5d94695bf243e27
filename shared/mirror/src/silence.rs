//! The silence of writers, which is told long before a view is too old to be served.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::{FactError, Group};

use crate::freshness::Moment;

/// The moments at which the writers of the groups that have views here were last heard from. Pure.
#[derive(Debug, Default)]
pub(crate) struct Writers(BTreeMap<Group, Moment>);

impl Writers {
    /// Takes in when each view's writer was last heard from, if ever. A group counts as heard when its first view
    /// comes. Returns the groups that have no view any more.
    pub(crate) fn take(
        &mut self,
        now: Moment,
        views: impl Iterator<Item = (Group, Option<Moment>)>,
    ) -> Vec<Group> {
        let before = std::mem::take(&mut self.0);
        for (group, heard) in views {
            let known = before.get(&group).copied().unwrap_or(now);
            let last = self.0.entry(group).or_insert(known);
            *last = heard.unwrap_or_default().max(*last);
        }
        let gone = before.into_keys();
        gone.filter(|group| !self.0.contains_key(group)).collect()
    }

    /// Each group, with the silence of its writer.
    pub(crate) fn silences(&self, now: Moment) -> impl Iterator<Item = (Group, Duration)> {
        let writers = self.0.iter();
        writers.map(move |(group, heard)| (*group, now.saturating_sub(*heard)))
    }

    /// Returns which writers have been silent for longer than `silence_max`, for people; `None`: none.
    pub(crate) fn note(&self, now: Moment, silence_max: Duration) -> Option<String> {
        let silent = self.silences(now);
        let silent: Vec<_> = silent
            .filter(|(_, silence)| *silence > silence_max)
            .collect();
        let longest = silent.iter().map(|(_, silence)| *silence).max()?;
        let groups: Vec<_> = silent.iter().map(|(group, _)| group.to_string()).collect();
        Some(format!(
            "nothing heard for {} s from the watcher of group {}, whose views answer until their news is too old",
            longest.as_secs(),
            groups.join(", ")
        ))
    }
}

/// Adds to the error of a stale view that its writer is silent.
pub(crate) fn with_silence(error: FactError, silent_ms: Option<u64>) -> FactError {
    match error {
        FactError::Stale {
            view,
            age_ms,
            age_max_ms,
            ..
        } => FactError::Stale {
            view,
            age_ms,
            age_max_ms,
            silent_ms,
        },
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE_MAX: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_writer_is_silent_from_its_last_beat_or_from_its_first_view_on() {
        let (mut writers, group) = (Writers::default(), Group(3));
        let silence = |writers: &Writers, now| writers.silences(at(now)).next();
        assert!(
            writers
                .take(at(100), [(group, None)].into_iter())
                .is_empty()
        );
        assert_eq!(silence(&writers, 102), Some((group, at(2))));
        // A view that came later has not heard of it yet.
        let views = [(group, Some(at(103))), (group, None)];
        assert!(writers.take(at(104), views.into_iter()).is_empty());
        assert_eq!(silence(&writers, 104), Some((group, at(1))));
        assert_eq!(writers.note(at(108), SILENCE_MAX), None);
        let note = writers.note(at(109), SILENCE_MAX).unwrap();
        assert!(
            note.contains("for 6 s from the watcher of group 3"),
            "{note}"
        );
        assert_eq!(writers.take(at(110), std::iter::empty()), [group]);
        assert_eq!(writers.note(at(200), SILENCE_MAX), None);
    }

    #[test]
    fn several_silent_writers_are_told_together() {
        let mut writers = Writers::default();
        let views =
            [(1, 10), (2, 19), (4, 12)].map(|(group, heard)| (Group(group), Some(at(heard))));
        writers.take(at(0), views.into_iter());
        let note = writers.note(at(20), SILENCE_MAX).unwrap();
        assert!(
            note.contains("for 10 s from the watcher of group 1, 4"),
            "{note}"
        );
    }
}
