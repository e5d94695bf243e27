//! Views of which readers say that the log contradicts their writer.
//!
//! A writer remembers what it wrote, and reads the log's index at the begin of a term alone. If the log loses a record
//! meanwhile, or a late batch brings an older one back, the writer does not notice: digests are computed from its memory.
//! Readers notice once they read the log from its start, name the view in their beats, and do not serve it. Then the view's
//! group is led again: a new term reads the index, and writes what differs.
//!
//! A term costs the group's lists of the API server, and logins of readers are in more hands. So the terms that their word
//! begins are few: see [`REPAIR_WAIT_MIN`].

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_model::{Group, ViewId};
use anteroom_wire::replica_beat::CONTRADICTED_VIEWS_MAX;
use parking_lot::Mutex;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::Instant,
};

/// The time for which a view has to be named before its group is led again. A reader that began just before the writer
/// mended the view needs a moment to notice.
const NAMED_MIN: Duration = Duration::from_secs(5);

/// The longest time between two beats that name a view: some may be lost. Then the view has to be named anew.
const NAMED_GAP_MAX: Duration = Duration::from_secs(3);

/// The time after a group was led again in which the word of readers does not begin another term of it. It doubles each
/// time up to [`REPAIR_WAIT_MAX`], and is back at its least after as long a time without one.
const REPAIR_WAIT_MIN: Duration = Duration::from_secs(60);
const REPAIR_WAIT_MAX: Duration = Duration::from_secs(10 * 60);

/// Beats that wait until the leaders of all groups have looked at them. Those that are too many are passed over.
const BEATS_MAX: usize = 64;

/// The contradicted views that readers name, for the leaders of their groups. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Contradictions {
    named: broadcast::Sender<Arc<[ViewId]>>,
    repairs: Arc<Mutex<BTreeMap<Group, RepairPace>>>,
}

impl Default for Contradictions {
    fn default() -> Self {
        Self {
            named: broadcast::Sender::new(BEATS_MAX),
            repairs: Arc::default(),
        }
    }
}

impl Contradictions {
    /// Takes the views in that a reader's beat names. Those beyond [`CONTRADICTED_VIEWS_MAX`] do not count.
    pub(crate) fn take_beat(&self, views: &[ViewId]) {
        if views.is_empty() {
            return;
        }
        let counted = &views[..views.len().min(CONTRADICTED_VIEWS_MAX)];
        // An error means that this watcher leads no group.
        let _ = self.named.send(counted.into());
    }

    /// Returns once a view of the group has been named for [`NAMED_MIN`], and the group was not led again for that lately.
    /// `writes`: whether this group's leader writes the view.
    pub(crate) async fn repair_due(&self, group: Group, writes: impl Fn(&ViewId) -> bool) {
        let mut heard = self.named.subscribe();
        let mut named = NamedViews::default();
        loop {
            let views = match heard.recv().await {
                Ok(views) => views,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return std::future::pending().await, // Never: `self` sends.
            };
            let now = Instant::now();
            let own = views.iter().filter(|view| writes(view));
            let Some(view) = named.take(own, now) else {
                continue;
            };
            if self.begin_repair(group, now) {
                tracing::error!(
                    %group,
                    %view,
                    "log differs from what was written to it: read and compared with the cluster again; check the disks \
                     of NATS"
                );
                return;
            }
        }
    }

    fn begin_repair(&self, group: Group, now: Instant) -> bool {
        let mut repairs = self.repairs.lock();
        let begun = RepairPace::new(now, REPAIR_WAIT_MIN, REPAIR_WAIT_MAX);
        repairs.entry(group).or_insert(begun).begin(now)
    }
}

/// Views of one group that are named as contradicted, since when, and when last.
#[derive(Debug, Default)]
struct NamedViews(BTreeMap<ViewId, (Instant, Instant)>);

impl NamedViews {
    /// Notes that these views are named now. Returns a view that has been named for long enough.
    fn take<'a>(
        &mut self,
        views: impl Iterator<Item = &'a ViewId>,
        now: Instant,
    ) -> Option<ViewId> {
        self.0
            .retain(|_, (_, last)| now.saturating_duration_since(*last) <= NAMED_GAP_MAX);
        for view in views {
            let (_, last) = self.0.entry(view.clone()).or_insert((now, now));
            *last = now;
        }
        let is_due = |since: Instant| now.saturating_duration_since(since) >= NAMED_MIN;
        let mut due = self.0.iter().filter(|(_, (since, _))| is_due(*since));
        due.next().map(|(view, _)| view.clone())
    }
}

/// The pace of repairs of one kind. The wait between two of them doubles each time. It is back at its least where a repair could
/// have begun for the longest wait, and none did: whoever asks for repairs as often as it may gets them ever more rarely.
#[derive(Debug)]
pub(super) struct RepairPace {
    wait_min: Duration,
    wait_max: Duration,
    not_before: Instant,
    wait: Duration,
}

impl RepairPace {
    /// Returns a pace by which the first repair may begin now.
    pub(super) fn new(now: Instant, wait_min: Duration, wait_max: Duration) -> Self {
        Self {
            wait_min,
            wait_max,
            not_before: now,
            wait: wait_min,
        }
    }

    /// Returns true if a repair may begin now, and counts it as begun.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if now < self.not_before {
            return false;
        }
        if now >= self.not_before + self.wait_max {
            self.wait = self.wait_min;
        }
        self.not_before = now + self.wait;
        self.wait = (self.wait * 2).min(self.wait_max);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Names the view every second, and returns the seconds at which its group was to be led again.
    async fn repaired_at(contradictions: &Contradictions, view: &ViewId, seconds: u64) -> Vec<u64> {
        let begun = Instant::now();
        let mut repaired = Vec::new();
        let naming = async {
            let mut second = tokio::time::interval(SECOND);
            for _ in 0..seconds {
                second.tick().await;
                contradictions.take_beat(std::slice::from_ref(view));
            }
        };
        let leading = async {
            loop {
                let writes = |own: &ViewId| own.as_str() == "own";
                contradictions.repair_due(Group(1), writes).await;
                repaired.push(begun.elapsed().as_secs());
            }
        };
        tokio::select! {
            biased;
            () = leading => {}
            () = naming => {}
        }
        repaired
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_whose_view_stays_contradicted_is_led_again_ever_more_rarely() {
        let contradictions = Contradictions::default();
        let (own, other) = (ViewId::new("own"), ViewId::new("other"));
        assert!(repaired_at(&contradictions, &other, 100).await.is_empty());
        assert!(repaired_at(&contradictions, &own, 5).await.is_empty());
        let repaired = repaired_at(&contradictions, &own, 2_200).await;
        assert_eq!(repaired, [5, 65, 185, 425, 905, 1505, 2105]);
        tokio::time::sleep(2 * REPAIR_WAIT_MAX).await;
        let repaired = repaired_at(&contradictions, &own, 70).await;
        assert_eq!(repaired, [5, 65], "nothing was contradicted for long");
    }

    #[test]
    fn a_view_counts_as_named_while_its_beats_come() {
        let (mut named, view, begun) = (NamedViews::default(), ViewId::new("v"), Instant::now());
        let mut take = |second: u32| named.take(std::iter::once(&view), begun + SECOND * second);
        assert!([0, 3, 4].into_iter().all(|second| take(second).is_none()));
        assert!(take(8).is_none(), "named anew after a gap");
        assert!(take(11).is_none());
        assert_eq!(take(13).as_ref(), Some(&view));
    }

    #[tokio::test]
    async fn a_beat_names_so_many_views_at_most() {
        let contradictions = Contradictions::default();
        let mut heard = contradictions.named.subscribe();
        let views: Vec<_> = (0..1_000).map(|n| ViewId::new(format!("{n}"))).collect();
        contradictions.take_beat(&views);
        contradictions.take_beat(&[]);
        assert_eq!(heard.recv().await.unwrap().len(), CONTRADICTED_VIEWS_MAX);
        assert!(heard.try_recv().is_err(), "none is named by that beat");
    }
}
