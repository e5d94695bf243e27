//! What is told of policies as ready, and which webhooks have to decide by it.
//!
//! Ready means that every webhook that is heard enforces the policy. So a webhook is excused while nobody may hear it,
//! and for as long as it then takes to catch up. The API server excuses all: after a restore it tells again what was
//! true before, so what it tells of a policy counts from that policy's next change on.

use std::collections::BTreeSet;

use super::*;

/// A webhook that the bus does not reach for so long is not waited for.
const UNHEARD_AFTER: Duration = Duration::from_secs(4);

/// The time within which a webhook reads missed records.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(2);

/// The policies that were told as ready, and the excuses of webhooks.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The generations of policies that were told as ready.
    ready: BTreeMap<&'static str, u64>,
    /// Since when the ways of processes to the bus are cut.
    cut: BTreeMap<Id, Instant>,
    /// When webhooks were last reached again, which may not have been heard for long.
    reached: BTreeMap<Id, Instant>,
    /// The bus loses and delays messages.
    is_lossy: bool,
    /// Beats are among them.
    loses_beats: bool,
    /// When beats were last lost.
    beats_lost: Option<Instant>,
    /// When messages were last lost or delayed.
    eased: Option<Instant>,
    /// Webhooks that may miss records which were lost in silence.
    doubted: BTreeSet<Id>,
    /// The log itself may miss records.
    doubts_all: bool,
    /// The policy's generation after the last restore of the API server.
    restored: Option<u64>,
}

impl Told {
    /// The generation of the policy that was told last.
    pub(super) fn generation(&self, policy: &str) -> Option<u64> {
        self.ready.get(policy).copied()
    }

    /// The policy is told as ready. Returns true if that is news.
    pub(super) fn ready(&mut self, policy: &'static str, generation: u64) -> bool {
        self.ready.insert(policy, generation) != Some(generation)
    }

    /// There is no such policy.
    pub(super) fn deleted(&mut self, policy: &str) {
        self.ready.remove(policy);
        if policy == UNIQUE_HOST && self.restored.is_some() {
            // One that is made now begins with the first generation.
            self.restored = Some(0);
        }
    }

    /// The API server was restored, and has the policy in this generation; 0: it has none.
    pub(super) fn restored(&mut self, generation: u64) {
        self.restored = Some(generation);
    }

    /// The way of a process to the bus is cut.
    pub(super) fn cut(&mut self, id: Id) {
        self.cut.entry(id).or_insert_with(Instant::now);
    }

    /// It is whole again.
    pub(super) fn mended(&mut self, id: Id) {
        if let Some(at) = self.cut.remove(&id)
            && self.may_be_unheard(at)
        {
            self.reached.insert(id, Instant::now());
        }
    }

    /// The bus loses and delays messages, and this part of all beats.
    pub(super) fn lossy(&mut self, beat_lost: f64) {
        self.is_lossy = true;
        self.loses_beats |= beat_lost > 0.0;
    }

    /// It does not any more.
    pub(super) fn eased(&mut self) {
        let now = Instant::now();
        if std::mem::take(&mut self.is_lossy) {
            self.eased = Some(now);
        }
        if std::mem::take(&mut self.loses_beats) {
            self.beats_lost = Some(now);
        }
    }

    /// The webhook may miss records, and nobody was told.
    pub(super) fn doubt(&mut self, id: Id) {
        self.doubted.insert(id);
    }

    /// The log may miss records, and nobody was told.
    pub(super) fn doubt_all(&mut self) {
        self.doubts_all = true;
    }

    /// A new process reads the whole log.
    pub(super) fn restarted(&mut self, id: Id) {
        self.doubted.remove(&id);
    }

    /// The generation of the policy that this webhook has to decide by. The API server has it in `present`.
    pub(super) fn binds(&self, id: Id, policy: &str, present: u64) -> Option<u64> {
        let told = self.generation(policy)?;
        let is_unheard = self.cut.get(&id).is_some_and(|at| self.may_be_unheard(*at));
        let is_doubted = self.doubts_all || self.doubted.contains(&id);
        let is_old = |restored| told <= restored || told != present;
        let is_of_before = policy == UNIQUE_HOST && self.restored.is_some_and(is_old);
        let is_excused =
            is_unheard || self.loses_beats() || self.catches_up(id) || is_doubted || is_of_before;
        (!is_excused).then_some(told)
    }

    /// A webhook whose way is cut since then may not be waited for.
    fn may_be_unheard(&self, at: Instant) -> bool {
        let lost_before = self
            .beats_lost
            .is_some_and(|lost| lost + UNHEARD_AFTER > at);
        self.loses_beats || lost_before || at.elapsed() > UNHEARD_AFTER
    }

    /// Beats are lost by chance, and so a webhook may not be heard for long, or were a moment ago.
    fn loses_beats(&self) -> bool {
        let lately = self.beats_lost;
        self.loses_beats || lately.is_some_and(|at| at.elapsed() < CATCHES_UP_WITHIN)
    }

    /// The webhook was not heard, and may still read what it missed, which takes longer while messages are delayed.
    fn catches_up(&self, id: Id) -> bool {
        self.reached.get(&id).is_some_and(|reached| {
            let since = self.eased.map_or(*reached, |eased| eased.max(*reached));
            self.is_lossy || since.elapsed() < CATCHES_UP_WITHIN
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WEBHOOK: Id = Id(Kind::Webhook, 0);

    fn told() -> Told {
        let mut told = Told::default();
        assert!(told.ready(UNIQUE_HOST, 2));
        told
    }

    fn binds(told: &Told) -> bool {
        told.binds(WEBHOOK, UNIQUE_HOST, 2) == Some(2)
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_is_excused_while_it_is_not_heard_and_catches_up() {
        let mut told = told();
        told.cut(WEBHOOK);
        assert!(binds(&told));
        advance(UNHEARD_AFTER * 2).await;
        assert!(!binds(&told));
        told.mended(WEBHOOK);
        assert!(!binds(&told));
        advance(CATCHES_UP_WITHIN).await;
        assert!(binds(&told));
        told.lossy(0.0);
        assert!(!binds(&told), "what it missed comes with delays");
    }

    #[tokio::test(start_paused = true)]
    async fn delays_alone_excuse_nobody_and_lost_beats_excuse_all_for_their_time() {
        let mut told = told();
        told.lossy(0.0);
        assert!(binds(&told));
        told.eased();
        assert!(binds(&told));
        told.lossy(0.1);
        assert!(!binds(&told));
        told.eased();
        assert!(!binds(&told));
        advance(CATCHES_UP_WITHIN).await;
        assert!(binds(&told));
        // It may not have been heard for some time already.
        told.cut(WEBHOOK);
        assert!(!binds(&told));
    }

    #[test]
    fn what_is_told_after_a_restore_counts_from_the_next_generation_on() {
        let mut told = told();
        told.restored(2);
        assert!(!binds(&told));
        told.ready(UNIQUE_HOST, 3);
        assert_eq!(told.binds(WEBHOOK, UNIQUE_HOST, 3), Some(3));
        assert_eq!(told.binds(WEBHOOK, UNIQUE_HOST, 4), None, "it is of before");
        told.ready(NO_BAD, 1);
        assert_eq!(told.binds(WEBHOOK, NO_BAD, 3), Some(1), "it never changes");
        told.deleted(UNIQUE_HOST);
        told.ready(UNIQUE_HOST, 1);
        assert_eq!(told.binds(WEBHOOK, UNIQUE_HOST, 1), Some(1));
    }

    #[test]
    fn a_webhook_that_may_miss_records_is_excused_until_it_begins_anew() {
        let mut told = told();
        told.doubt(WEBHOOK);
        assert!(!binds(&told));
        told.restarted(WEBHOOK);
        assert!(binds(&told));
        told.doubt_all();
        told.restarted(WEBHOOK);
        assert!(!binds(&told), "the log may miss them");
    }
}
