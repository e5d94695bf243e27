//! The live watchers, and how they divide the groups of views among themselves.
//!
//! Every watcher says by a heartbeat that it stands for election ([`Group::NONE`]); the leader of a
//! group says that too. From both, each watcher knows the others and computes the same division:
//! [`divide`]. Where two see it differently for a while, nothing breaks: the lease decides who writes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, BusError, BusExt as _, Connection};
use anteroom_model::{
    Group, Incarnation,
    limits::{BEAT_INTERVAL_MS, BEAT_SILENCE_MAX_MS, REPLICA_BEAT_INTERVAL_MS},
};
use anteroom_wire::beat::Beat;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, interval},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{contradictions::Contradictions, highest::HighestPosition, readers};

/// The silence after which a leader or a candidate is no longer counted on.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(BEAT_SILENCE_MAX_MS / 2);

/// The time after which a leader hands its group over to a better placed watcher. A watcher that comes and goes
/// within this time moves no group.
pub(crate) const HAND_OVER_AFTER: Duration = Duration::from_secs(5);

/// The time after the first connection within which readers and other watchers have told how far they know the log: two
/// of the readers' beats, or one and a reconnection.
pub(crate) const INFORMED_AFTER: Duration = Duration::from_millis(2 * REPLICA_BEAT_INTERVAL_MS);

/// The time for which a watcher whose batches were lost does not stand for election. Later it tries again: its way may
/// be whole by then, and nothing tells it so while it writes nothing.
pub(crate) const UNWRITTEN_MEMORY: Duration = Duration::from_secs(10 * 60);

/// The interval at which a leader checks whether its group is better placed elsewhere.
const PLACE_INTERVAL: Duration = Duration::from_millis(500);

/// The wait before heartbeats are subscribed to again, where the bus refused.
const BEATS_RETRY: Duration = Duration::from_millis(500);

/// The last heartbeat of a group's leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaderBeat {
    /// The leader's term.
    pub term: u32,
    /// Empty: the lease was handed back.
    pub holder: String,
    /// The moment at which it was heard.
    pub at: Instant,
}

/// Returns the watcher that each group belongs with. No watcher gets more than its equal share, rounded up. A hash
/// decides among the watchers with room, so that few groups move when a watcher comes or goes. All watchers compute
/// the same division.
pub(crate) fn divide(members: &BTreeSet<String>) -> BTreeMap<Group, String> {
    let share = Group::all().count().div_ceil(members.len().max(1));
    let mut load: HashMap<&String, usize> = HashMap::new();
    let mut division = BTreeMap::new();
    for group in Group::all() {
        let open = members
            .iter()
            .filter(|member| load.get(member).is_none_or(|load| *load < share));
        let best = open.max_by_key(|member| xxh3_64(format!("{group}/{member}").as_bytes()));
        if let Some(best) = best {
            *load.entry(best).or_default() += 1;
            division.insert(group, best.clone());
        }
    }
    division
}

/// The candidates and the leaders, and this watcher's own part in the election.
#[derive(Debug)]
struct ElectionState {
    /// Watchers that stand for election, and when each was last heard.
    candidates: BTreeMap<String, Instant>,
    leaders: HashMap<Group, LeaderBeat>,
    /// The time since which this client hears the bus: silence before that proves nothing.
    since: Instant,
    /// When this client heard the bus for the first time.
    first_up: Option<Instant>,
    /// True while this watcher can do the work of its groups.
    is_able: bool,
    /// The groups whose batches did not come through from here, and when each was last so.
    unwritten: BTreeMap<Group, Instant>,
    /// True while this watcher stands for election.
    stands: bool,
    /// The watcher shuts down, and never stands for election again.
    withdrawn: bool,
}

impl ElectionState {
    /// Returns the other watchers that were heard as candidates lately.
    fn live(&self, now: Instant) -> impl Iterator<Item = &String> {
        let live = self
            .candidates
            .iter()
            .filter(move |(_, at)| now.saturating_duration_since(**at) < SILENCE_MAX);
        live.map(|(name, _)| name)
    }

    /// Forgets silent candidates. A watcher that crashes does not withdraw, and its successor has a new name.
    fn forget_silent(&mut self, now: Instant) {
        self.candidates
            .retain(|_, at| now.saturating_duration_since(*at) < SILENCE_MAX);
    }

    /// Decides whether this watcher stands for election. Returns true if that has changed.
    fn decide(&mut self, now: Instant) -> bool {
        self.unwritten
            .retain(|_, at| now.saturating_duration_since(*at) < UNWRITTEN_MEMORY);
        let stands = self.is_able && self.unwritten.is_empty() && !self.withdrawn;
        std::mem::replace(&mut self.stands, stands) != stands
    }
}

/// The watchers that stand for election, and the leaders of the groups. Cheap to clone; clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    me: Arc<str>,
    election: Arc<Mutex<ElectionState>>,
    /// Somebody came or went, or a lease was handed back.
    changed: watch::Sender<()>,
    highest: HighestPosition,
    contradictions: Contradictions,
    /// The highest term in a log, as [`Members::term_in`] read it.
    term_in_log: Arc<tokio::sync::Mutex<Option<(Incarnation, u32)>>>,
}

impl Members {
    /// Returns the members with `me` among them, who stands for election once [`Members::stand`] says so.
    pub(crate) fn new(me: &str) -> Self {
        let election = ElectionState {
            candidates: BTreeMap::new(),
            leaders: HashMap::new(),
            since: Instant::now(),
            first_up: None,
            is_able: false,
            unwritten: BTreeMap::new(),
            stands: false,
            withdrawn: false,
        };
        Self {
            me: me.into(),
            election: Arc::new(Mutex::new(election)),
            changed: watch::Sender::new(()),
            highest: HighestPosition::default(),
            contradictions: Contradictions::default(),
            term_in_log: Arc::default(),
        }
    }

    /// Returns this watcher's name.
    pub(crate) fn me(&self) -> &str {
        &self.me
    }

    /// Returns the highest term in this log, as it was when a candidate asked first: the log is read once for all groups.
    /// Nobody has written for a group without a lease since.
    ///
    /// # Errors
    /// The log was not read.
    pub(crate) async fn term_in(&self, bus: &dyn Bus, log: &Incarnation) -> Result<u32, BusError> {
        let mut known = self.term_in_log.lock().await;
        if let Some((of, term)) = &*known
            && of == log
        {
            return Ok(*term);
        }
        let index = bus.index().await?;
        *known = Some((index.incarnation, index.term_max));
        Ok(index.term_max)
    }

    /// The highest position of the log that any watcher is known to have written, or any reader to have read.
    pub(crate) fn highest(&self) -> &HighestPosition {
        &self.highest
    }

    /// The views of which readers say that the log contradicts their writer.
    pub(crate) fn contradictions(&self) -> &Contradictions {
        &self.contradictions
    }

    /// Notes whether this watcher can do the work. An unable watcher leads a group only while no other watcher stands
    /// for election.
    pub(crate) fn stand(&self, is_able: bool) {
        self.decide(|election| election.is_able = is_able);
    }

    /// Notes that batches of the group do not come through from here, although the bus answers. Returns false if no other
    /// watcher could do better: this one then goes on as a candidate.
    pub(crate) fn writes_fail(&self, group: Group) -> bool {
        let now = Instant::now();
        if self.election.lock().live(now).next().is_none() {
            return false;
        }
        self.decide(|election| {
            election.unwritten.insert(group, now);
        });
        true
    }

    /// Notes that a batch of the group came through after all.
    pub(crate) fn writes_again(&self, group: Group) {
        self.decide(|election| {
            election.unwritten.remove(&group);
        });
    }

    fn decide(&self, note: impl FnOnce(&mut ElectionState)) {
        let mut election = self.election.lock();
        note(&mut election);
        let has_changed = election.decide(Instant::now());
        drop(election);
        if has_changed {
            self.changed.send_replace(());
        }
    }

    /// Withdraws this watcher from the election before the process stops. The remaining watchers need not wait for
    /// the silence.
    pub(crate) async fn withdraw(&self, bus: &dyn Bus) {
        {
            let mut election = self.election.lock();
            election.withdrawn = true;
            election.stands = false;
        }
        self.announce_once(bus, false).await;
    }

    /// Signals that a watcher came or went, or that a lease was handed back.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the watcher that the group belongs with now.
    pub(crate) fn preferred_leader(&self, group: Group) -> String {
        let election = self.election.lock();
        let mut members: BTreeSet<_> = election.live(Instant::now()).cloned().collect();
        if election.stands || members.is_empty() {
            members.insert(self.me.to_string());
        }
        divide(&members)
            .remove(&group)
            .unwrap_or_else(|| self.me.to_string())
    }

    /// Returns the last heartbeat of the group's leader, if it is of `term` or later.
    pub(crate) fn last_beat(&self, group: Group, term: u32) -> Option<LeaderBeat> {
        let election = self.election.lock();
        let beat = election.leaders.get(&group).cloned();
        beat.filter(|beat| beat.term >= term)
    }

    /// Returns how long nothing was heard from the group's leader of `term` or a later one, counted from when
    /// the bus could be heard, and from `from` at the earliest.
    pub(crate) fn silence(&self, group: Group, term: u32, from: Instant) -> Duration {
        let beat_at = self.last_beat(group, term).map(|beat| beat.at);
        let since = self.election.lock().since.max(from);
        let last = beat_at.map_or(since, |at| at.max(since));
        Instant::now().saturating_duration_since(last)
    }

    /// Returns for how long this watcher, which has just started, has to listen yet before it knows what others know of
    /// the log's end; `None`: it has listened long enough.
    pub(crate) fn uninformed_for(&self) -> Option<Duration> {
        let first_up = self.election.lock().first_up;
        let heard_for = first_up.map_or(Duration::ZERO, |at| at.elapsed());
        let rest = INFORMED_AFTER.saturating_sub(heard_for);
        (!rest.is_zero()).then_some(rest)
    }

    /// Groups without a heartbeat of a leader.
    pub(crate) fn leaderless(&self) -> Vec<Group> {
        let election = self.election.lock();
        let now = Instant::now();
        let led = |group: &Group| {
            // A group that was handed back is led again in a moment.
            election.leaders.get(group).is_some_and(|beat| {
                let silent = now.saturating_duration_since(beat.at);
                silent < Duration::from_millis(BEAT_SILENCE_MAX_MS)
            })
        };
        Group::all().filter(|group| !led(group)).collect()
    }

    /// Returns once the group has been better placed with another watcher for [`HAND_OVER_AFTER`].
    pub(crate) async fn better_placed(&self, group: Group) {
        let mut interval = interval(PLACE_INTERVAL);
        let mut elsewhere: Option<(String, Instant)> = None;
        loop {
            let now = interval.tick().await;
            let preferred = self.preferred_leader(group);
            if preferred == *self.me {
                elsewhere = None;
                continue;
            }
            match &elsewhere {
                Some((name, since)) if *name == preferred => {
                    if now.saturating_duration_since(*since) >= HAND_OVER_AFTER {
                        return;
                    }
                }
                _ => elsewhere = Some((preferred, now)),
            }
        }
    }

    /// Returns once somebody is heard who took the group after `term`: a leader that has nothing to
    /// write would not notice.
    pub(crate) async fn superseded(&self, group: Group, term: u32) {
        let begun = Instant::now();
        let mut interval = interval(PLACE_INTERVAL);
        loop {
            interval.tick().await;
            let later = self.last_beat(group, term.saturating_add(1));
            if later.is_some_and(|beat| beat.at > begun && !beat.holder.is_empty()) {
                return;
            }
        }
    }

    /// Takes a heartbeat.
    pub(crate) fn take_beat(&self, beat: &Beat) {
        let at = Instant::now();
        if let Some(last) = beat.views.iter().map(|view| view.revision).max() {
            self.highest.raise(&beat.incarnation, last);
        }
        let mut election = self.election.lock();
        let has_changed = if beat.group == Group::NONE {
            if *beat.holder == *self.me {
                return;
            }
            if beat.term == 0 {
                election.candidates.remove(&beat.holder).is_some()
            } else {
                let before = election.candidates.insert(beat.holder.clone(), at);
                if before.is_none() {
                    election.forget_silent(at);
                }
                before.is_none_or(|before| at.saturating_duration_since(before) >= SILENCE_MAX)
            }
        } else {
            let later = election.leaders.get(&beat.group).is_none_or(|last| {
                // Terms begin anew in a log that was made anew, after a silence.
                last.term <= beat.term || at.saturating_duration_since(last.at) >= SILENCE_MAX
            });
            if later {
                let last = LeaderBeat {
                    term: beat.term,
                    holder: beat.holder.clone(),
                    at,
                };
                election.leaders.insert(beat.group, last);
            }
            later && beat.holder.is_empty()
        };
        drop(election);
        if has_changed {
            self.changed.send_replace(());
        }
    }

    /// Follows the heartbeats of watchers and readers, and announces this watcher, for ever.
    pub(crate) async fn run(&self, bus: &dyn Bus) {
        tokio::join!(
            self.listen(bus),
            readers::listen(bus, &self.highest, &self.contradictions),
            self.announce(bus),
            self.connected(bus)
        );
    }

    async fn listen(&self, bus: &dyn Bus) {
        loop {
            match bus.signals::<Beat>().await {
                Ok(mut beats) => {
                    while let Some(beat) = beats.next().await {
                        self.take_beat(&beat);
                    }
                }
                Err(error) => tracing::debug!(
                    %error,
                    "heartbeats of watchers not subscribed yet: tried again"
                ),
            }
            tokio::time::sleep(BEATS_RETRY).await;
        }
    }

    async fn announce(&self, bus: &dyn Bus) {
        let mut interval = interval(Duration::from_millis(BEAT_INTERVAL_MS));
        let mut changes = self.changes();
        let mut said = false;
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                _ = changes.changed() => {}
            }
            let stands = self.election.lock().stands;
            if stands || said {
                self.announce_once(bus, stands).await;
            }
            said = stands;
        }
    }

    /// Sends this watcher's heartbeat as a candidate; with `stands` false, the heartbeat withdraws the candidacy.
    async fn announce_once(&self, bus: &dyn Bus, stands: bool) {
        let beat = Beat {
            incarnation: Incarnation::default(),
            group: Group::NONE,
            term: u32::from(stands),
            holder: self.me.to_string(),
            page: 0,
            sent_ms: None,
            views: Vec::new(),
        };
        if let Err(error) = bus.send(&beat).await {
            tracing::debug!(%error, "candidacy not announced: the next heartbeat follows");
        }
    }

    /// Counts silence anew whenever the bus is back: heartbeats missed while the bus was away are no silence.
    async fn connected(&self, bus: &dyn Bus) {
        let mut connection = bus.connection();
        loop {
            if *connection.borrow_and_update() == Connection::Up {
                let (mut election, now) = (self.election.lock(), Instant::now());
                election.since = now;
                election.first_up.get_or_insert(now);
            }
            if connection.changed().await.is_err() {
                return; // The bus was closed.
            }
        }
    }
}

#[cfg(test)]
mod tests;
