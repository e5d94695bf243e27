//! Heartbeats on their way to the machine.
//!
//! There are several writers, one for each group of views, and the newest of each page of a group's beat is all
//! that matters. So what waits is one message for each page, however slow its reader is.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusExt as _};
use anteroom_model::Group;
use anteroom_wire::beat::Beat;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The wait before beats are subscribed to again, after the bus refused.
const BEATS_RETRY: Duration = Duration::from_millis(500);

/// The newest page of every group's beat that has not been taken yet. Cheap to clone; one reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beats(Arc<BeatQueue>);

#[derive(Debug, Default)]
struct BeatQueue {
    beats: Mutex<BTreeMap<(Group, u32), Beat>>,
    come: Notify,
}

impl Beats {
    /// Hands a beat on. A beat of an earlier term than the one that waits comes from a writer that has been
    /// succeeded. A beat of a group that there is none of comes from nobody who is known here.
    pub(crate) fn put(&self, beat: Beat) {
        if beat.group.0 > Group::SHARDS {
            return;
        }
        let mut beats = self.0.beats.lock();
        let place = (beat.group, beat.page);
        let waits = beats.get(&place);
        if waits
            .is_none_or(|waits| waits.incarnation != beat.incarnation || waits.term <= beat.term)
        {
            beats.insert(place, beat);
            self.0.come.notify_one();
        }
    }

    /// The next one. Nothing is lost where this is dropped before it is ready.
    pub(crate) async fn next(&self) -> Beat {
        loop {
            if let Some((_, beat)) = self.0.beats.lock().pop_first() {
                return beat;
            }
            self.0.come.notified().await;
        }
    }
}

/// Hands on the beats of the bus, and subscribes again whenever the subscription ends.
pub(crate) async fn listen(bus: Arc<dyn Bus>, heard: Beats, stop: CancellationToken) {
    let listening = async {
        loop {
            match bus.signals::<Beat>().await {
                Ok(mut beats) => {
                    while let Some(beat) = beats.next().await {
                        heard.put(beat);
                    }
                }
                Err(error) => {
                    tracing::debug!(
                        %error,
                        "heartbeats of watchers not subscribed yet: tried again"
                    );
                }
            }
            tokio::time::sleep(BEATS_RETRY).await;
        }
    };
    stop.run_until_cancelled(listening).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(group: u16, term: u32, holder: &str) -> Beat {
        Beat {
            incarnation: anteroom_model::Incarnation("1".to_owned()),
            group: Group(group),
            term,
            holder: holder.to_owned(),
            page: 0,
            sent_ms: None,
            views: Vec::new(),
        }
    }

    #[tokio::test]
    async fn every_groups_newest_beat_arrives_however_slow_the_reader() {
        let beats = Beats::default();
        for n in 0..100 {
            for group in Group::all() {
                beats.put(beat(group.0, 3, &format!("{n}")));
            }
        }
        for group in Group::all() {
            let next = beats.next().await;
            assert_eq!((next.group, &*next.holder), (group, "99"));
        }
        assert!(beats.0.beats.lock().is_empty());
    }

    #[tokio::test]
    async fn a_page_takes_no_other_pages_place() {
        let beats = Beats::default();
        for page in [0, 1, 0, 1] {
            beats.put(Beat {
                page,
                ..beat(1, 3, "w")
            });
        }
        assert_eq!(beats.next().await.page, 0);
        assert_eq!(beats.next().await.page, 1);
        assert!(beats.0.beats.lock().is_empty());
    }

    #[tokio::test]
    async fn a_beat_of_a_succeeded_writer_does_not_replace_its_successors() {
        let beats = Beats::default();
        beats.put(beat(1, 4, "successor"));
        beats.put(beat(1, 3, "paused"));
        beats.put(beat(2, 1, "another group's"));
        assert_eq!(beats.next().await.holder, "successor");
        assert_eq!(beats.next().await.holder, "another group's");
        beats.put(beat(Group::SHARDS + 1, 1, "no group"));
        assert!(beats.0.beats.lock().is_empty());
    }
}
