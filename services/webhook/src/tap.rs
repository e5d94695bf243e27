//! Taps: operators who look at decisions for a while.
//!
//! | module | content |
//! |---|---|
//! | `filter` | the decisions that a tap asks for |
//! | `open_tap` | one tap, with the decisions that were not sent to it yet |
//! | `record` | a decision as taps get it |
//!
//! Without a tap, an admitted request costs one load of an atomic. The last denials and errors are kept, so that a
//! tap can explain one afterwards.

mod filter;
mod open_tap;
mod record;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{Bus, BusExt as _};
use anteroom_engine::verdict::Decision;
use anteroom_policy::Phase;
use anteroom_runtime::Shutdown;
use anteroom_wire::tap::{DecisionRecord, NAME_BYTES_MAX, Tap, Tapped};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::review::Review;
use open_tap::OpenTap;

/// Taps at once; one more is refused. Each costs every decision about as much as its metrics do.
const TAPS_MAX: usize = 8;

/// The most denials and errors that are kept: at most 1 MiB.
const KEPT_MAX: usize = 256;

/// The interval at which decisions are sent to taps.
const TELL_INTERVAL: Duration = Duration::from_millis(250);

/// The wait before a failed subscription is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// A decision on a review, as it was made.
#[derive(Clone, Copy)]
pub(crate) struct Decided<'a> {
    pub(crate) review: &'a Review<'a>,
    pub(crate) phase: Phase,
    pub(crate) decision: &'a Decision,
    pub(crate) took: Duration,
}

/// The taps of a webhook, and the decisions that it keeps for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps(Arc<SharedTaps>);

/// The state that clones of [`Taps`] share.
#[derive(Debug, Default)]
struct SharedTaps {
    /// The number of open taps. Each decision reads it.
    open_taps: AtomicUsize,
    state: Mutex<TapState>,
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct TapState {
    open_taps: Vec<OpenTap>,
    /// The last denials and errors, with their times.
    kept: VecDeque<(Instant, DecisionRecord)>,
}

impl Taps {
    /// Returns taps that are counted in `gauge`.
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self(Arc::new(SharedTaps {
            gauge,
            ..SharedTaps::default()
        }))
    }

    /// Notes a decision.
    pub(crate) fn decided(&self, decided: Decided<'_>) {
        let is_notable = !decided.decision.allowed() || decided.decision.error;
        if is_notable || self.0.open_taps.load(Ordering::Relaxed) > 0 {
            self.note(decided, is_notable);
        }
    }

    #[cold]
    fn note(&self, decided: Decided<'_>, is_notable: bool) {
        let now = Instant::now();
        let kept = is_notable.then(|| record::decision_record(&decided));
        let mut state = self.0.state.lock();
        for open_tap in &mut state.open_taps {
            open_tap.decided(&decided, is_notable, now, kept.as_ref());
        }
        if let Some(record) = kept {
            if state.kept.len() == KEPT_MAX {
                state.kept.pop_front();
            }
            state.kept.push_back((now, record));
        }
    }

    /// Begins, renews or ends a tap. Returns the reason why it is refused, if it is.
    fn take(&self, tap: Tap, now: Instant) -> Result<(), String> {
        let mut state = self.0.state.lock();
        let TapState { open_taps, kept } = &mut *state;
        let known = open_taps
            .iter()
            .position(|open_tap| open_tap.id() == tap.id);
        let result = match known {
            _ if tap.id.is_empty() || tap.id.len() > NAME_BYTES_MAX => {
                Err("a tap has a name of at most 253 bytes".to_owned())
            }
            Some(at) if tap.duration_ms == 0 => {
                open_taps.remove(at);
                Ok(())
            }
            None if tap.duration_ms == 0 => Ok(()),
            Some(at) => {
                open_taps[at].renew(tap, now);
                Ok(())
            }
            None if open_taps.len() >= TAPS_MAX => {
                Err(format!("{TAPS_MAX} others look at decisions already"))
            }
            None => {
                let past = tap.past.then_some(kept);
                let past = past
                    .into_iter()
                    .flatten()
                    .map(|(at, record)| (*at, &*record));
                open_taps.push(OpenTap::new(tap, now, past));
                Ok(())
            }
        };
        self.count(open_taps);
        result
    }

    /// Returns the messages for taps, and ends the taps whose time is over.
    fn messages(&self, now: Instant) -> Vec<Tapped> {
        let mut state = self.0.state.lock();
        state.open_taps.retain(|open_tap| !open_tap.is_over(now));
        self.count(&state.open_taps);
        state
            .open_taps
            .iter_mut()
            .flat_map(|open_tap| open_tap.messages(now))
            .collect()
    }

    fn count(&self, open_taps: &[OpenTap]) {
        self.0.open_taps.store(open_taps.len(), Ordering::Relaxed);
        self.0.gauge.set(open_taps.len() as i64);
    }

    fn is_idle(&self) -> bool {
        self.0.open_taps.load(Ordering::Relaxed) == 0
    }
}

/// Listens to operators, and sends decisions to their taps.
pub(crate) struct Teller {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) taps: Taps,
    pub(crate) webhook: String,
    pub(crate) is_shadow: bool,
}

impl Teller {
    /// Tells until shutdown.
    pub(crate) async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let stop = shutdown.token();
        stop.run_until_cancelled(async {
            loop {
                if let Err(error) = self.send_records().await {
                    tracing::debug!(%error, "address of taps not subscribed: tried again");
                }
                sleep(RETRY).await;
            }
        })
        .await;
        Ok(())
    }

    /// Sends records to taps until the subscription ends.
    async fn send_records(&self) -> Result<(), anteroom_bus::BusError> {
        let mut asked = self.bus.signals::<Tap>().await?;
        let mut due = interval(TELL_INTERVAL);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                tap = asked.next() => match tap {
                    Some(tap) => self.take(tap).await,
                    None => return Ok(()),
                },
                _ = due.tick(), if !self.taps.is_idle() => {
                    for message in self.taps.messages(Instant::now()) {
                        self.send(message).await;
                    }
                }
            }
        }
    }

    async fn take(&self, tap: Tap) {
        let id = tap.id.clone();
        if let Err(reason) = self.taps.take(tap, Instant::now()) {
            self.send(Tapped {
                id,
                refused: Some(reason),
                ..Tapped::default()
            })
            .await;
        }
    }

    async fn send(&self, message: Tapped) {
        let message = Tapped {
            webhook: self.webhook.clone(),
            shadow: self.is_shadow,
            ..message
        };
        if let Err(error) = self.bus.send(&message).await {
            tracing::debug!(%error, "decisions not sent to a tap");
        }
    }
}

#[cfg(test)]
mod tests;
