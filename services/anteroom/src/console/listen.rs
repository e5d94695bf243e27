//! The messages heard over NATS, kept for the pages.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::Bus;
use anteroom_runtime::wall_clock;
use anteroom_wire::{
    status::StatusReply,
    tap::{DecisionRecord, RECORDS_PER_SECOND_MAX, Tap, TapFilter, Tapped},
};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{MissedTickBehavior, interval};

use crate::operator::{
    connection::{self, Beats, Tapping},
    system::System,
    tap::time_of,
    window::{By, Window},
};

/// The seconds that rates are about.
pub(super) const SPAN: Duration = Duration::from_secs(10);

/// Denials and errors that are kept.
const DENIALS_MAX: usize = 1_000;

/// Decisions that are kept for the page that shows all.
const DECISIONS_MAX: usize = 200;

/// Points of a line: one each second.
pub(super) const POINTS_MAX: usize = 60;

/// The time after the last request for a page that decisions are looked at.
const LOOKED_MAX: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_secs(1);

/// The interval at which the coordinator is asked.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// The messages that were heard. Cheap to clone.
#[derive(Clone)]
pub(super) struct Console {
    pub(super) cluster: Arc<str>,
    state: Arc<Mutex<ConsoleState>>,
}

/// The state behind the pages.
pub(super) struct ConsoleState {
    pub(super) system: System,
    pub(super) window: Window,
    /// `None`: not asked yet.
    pub(super) statuses: Option<Result<StatusReply, String>>,
    /// The oldest first.
    pub(super) denials: VecDeque<SeenDecision>,
    pub(super) decisions: VecDeque<SeenDecision>,
    pub(super) decisions_left_out: u64,
    /// Decisions each second, the oldest first.
    pub(super) rates: VecDeque<f64>,
    /// When somebody has asked for a page, and for that of all decisions.
    looked: Option<Instant>,
    looked_at_all: Option<Instant>,
}

/// A decision that was told.
#[derive(Clone, Debug)]
pub(super) struct SeenDecision {
    /// The decision's name in links, equal for repeated reports of the decision.
    pub(super) id: String,
    pub(super) at: Timestamp,
    pub(super) webhook: String,
    pub(super) shadow: bool,
    pub(super) record: DecisionRecord,
}

impl Console {
    /// Nothing was heard yet.
    pub(super) fn new(cluster: String) -> Self {
        let state = ConsoleState {
            system: System::default(),
            window: Window::new(SPAN),
            statuses: None,
            denials: VecDeque::new(),
            decisions: VecDeque::new(),
            decisions_left_out: 0,
            rates: VecDeque::new(),
            looked: None,
            looked_at_all: None,
        };
        Self {
            cluster: cluster.into(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ConsoleState> {
        self.state.lock()
    }

    /// Notes that somebody reads a page.
    pub(super) fn note_reader(&self, at_all: bool) {
        let mut state = self.state();
        let now = Instant::now();
        state.looked = Some(now);
        if at_all {
            state.looked_at_all = Some(now);
        }
    }

    fn is_looked_at(&self) -> (bool, bool) {
        let state = self.state();
        let recent = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() <= LOOKED_MAX);
        (recent(state.looked), recent(state.looked_at_all))
    }
}

impl ConsoleState {
    /// Keeps what a webhook told.
    pub(super) fn keep(&mut self, tapped: Tapped, now: Timestamp, all: bool) {
        if all {
            let left_out = &mut self.decisions_left_out;
            *left_out = left_out.saturating_add(tapped.left_out);
        }
        for record in tapped.records {
            let seen = SeenDecision {
                id: format!("{}.{}", record.uid, record.phase),
                at: time_of(&record, now),
                webhook: tapped.webhook.clone(),
                shadow: tapped.shadow,
                record,
            };
            let (kept, max) = match all {
                true => (&mut self.decisions, DECISIONS_MAX),
                false => (&mut self.denials, DENIALS_MAX),
            };
            if kept.iter().any(|known| known.id == seen.id) {
                continue; // A new tap repeats decisions that webhooks have kept.
            }
            // What was kept comes webhook by webhook.
            let at = kept.partition_point(|known| known.at <= seen.at);
            kept.insert(at, seen);
            if kept.len() > max {
                kept.pop_front();
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.system.forget_silent(now);
        let rate = self.window.decisions(By::default(), now).per_second;
        self.rates.push_back(rate);
        if self.rates.len() > POINTS_MAX {
            self.rates.pop_front();
        }
    }
}

/// The taps of a console that somebody reads.
#[derive(Default)]
struct Taps {
    /// The tap that counts decisions.
    counts: Option<Tapping>,
    denials: Option<Tapping>,
    /// All decisions, for the page that shows them.
    all: Option<Tapping>,
}

impl Taps {
    async fn follow(&mut self, bus: &Arc<dyn Bus>, looked: bool, all: bool) -> anyhow::Result<()> {
        let denied = TapFilter {
            denied: true,
            ..TapFilter::default()
        };
        let records_per_second = RECORDS_PER_SECOND_MAX;
        let denials = Tap {
            filter: denied,
            records_per_second,
            past: true,
            ..Tap::default()
        };
        let decisions = Tap {
            records_per_second,
            ..Tap::default()
        };
        keep_tap(&mut self.counts, looked, bus, Tap::default()).await?;
        keep_tap(&mut self.denials, looked, bus, denials).await?;
        keep_tap(&mut self.all, all, bus, decisions).await
    }
}

/// Begins or ends a tap.
async fn keep_tap(
    tapping: &mut Option<Tapping>,
    wanted: bool,
    bus: &Arc<dyn Bus>,
    tap: Tap,
) -> anyhow::Result<()> {
    match (wanted, tapping.is_some()) {
        (true, false) => *tapping = Some(Tapping::begin(bus, tap).await?),
        (false, true) => {
            if let Some(tapping) = tapping.take() {
                tapping.end().await;
            }
        }
        _ => {}
    }
    Ok(())
}

async fn next_tapped(tapping: &mut Option<Tapping>) -> anyhow::Result<Tapped> {
    match tapping {
        Some(tapping) => tapping.next().await,
        None => std::future::pending().await,
    }
}

/// Listens, for ever.
///
/// # Errors
/// The bus was closed.
pub(super) async fn listen(bus: &Arc<dyn Bus>, console: &Console) -> anyhow::Result<()> {
    tokio::try_join!(follow_webhooks(bus, console), poll_statuses(bus, console))?;
    Ok(())
}

async fn follow_webhooks(bus: &Arc<dyn Bus>, console: &Console) -> anyhow::Result<()> {
    let mut beats = Beats::listen(&**bus).await?;
    let mut taps = Taps::default();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            beat = beats.next() => console.state().system.take_beat(beat?, Instant::now()),
            tapped = next_tapped(&mut taps.counts) => {
                console.state().window.add(&tapped?, Instant::now());
            }
            tapped = next_tapped(&mut taps.denials) => {
                console.state().keep(tapped?, wall_clock::now(), false);
            }
            tapped = next_tapped(&mut taps.all) => {
                console.state().keep(tapped?, wall_clock::now(), true);
            }
            _ = tick.tick() => {
                console.state().tick();
                let (looked, all) = console.is_looked_at();
                taps.follow(bus, looked, all).await?;
            }
        }
    }
}

/// Asks the coordinator while somebody reads.
async fn poll_statuses(bus: &Arc<dyn Bus>, console: &Console) -> anyhow::Result<()> {
    let mut tick = interval(TICK);
    let mut last: Option<Instant> = None;
    loop {
        tick.tick().await;
        let is_due = last.is_none_or(|last| last.elapsed() >= STATUS_INTERVAL);
        if is_due && console.is_looked_at().0 {
            let said = connection::statuses(&**bus).await;
            console.state().statuses = Some(said.map_err(|error| format!("{error:#}")));
            last = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ids: &[(&str, u64)]) -> Tapped {
        let record = |(uid, age_ms): &(&str, u64)| DecisionRecord {
            uid: (*uid).into(),
            age_ms: *age_ms,
            ..DecisionRecord::default()
        };
        Tapped {
            records: ids.iter().map(record).collect(),
            left_out: 3,
            ..Tapped::default()
        }
    }

    #[test]
    fn denials_are_kept_once_and_in_the_order_of_their_times() {
        let console = Console::new("default".into());
        let now = wall_clock::now();
        let mut state = console.state();
        state.keep(told(&[("a", 500), ("b", 100)]), now, false);
        state.keep(told(&[("c", 300), ("a", 500)]), now, false);
        let ids: Vec<_> = state.denials.iter().map(|seen| &*seen.record.uid).collect();
        assert_eq!(ids, ["a", "c", "b"]);
        for number in 0..DENIALS_MAX {
            state.keep(told(&[(&format!("n{number}"), 0)]), now, false);
        }
        assert_eq!(state.denials.len(), DENIALS_MAX);
        assert_eq!(state.denials[0].record.uid, "n0");
        assert_eq!(state.decisions_left_out, 0);
        state.keep(told(&[("a", 0)]), now, true);
        assert_eq!((state.decisions.len(), state.decisions_left_out), (1, 3));
    }
}
