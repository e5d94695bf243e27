//! The broker of an in-process bus: the state that its clients share.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use anteroom_model::{Incarnation, Revision};
use anteroom_wire::WireError;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::sync::{mpsc, watch};

use super::{
    Chances, LocalOptions, WitnessedBatch,
    faults::{APPEND_LATE_MAX, APPEND_LATE_MIN},
    link::Link,
    log::Log,
};
use crate::{Address, BusError, Incoming, LogHead};

/// The broker's part of an in-process bus.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) options: LocalOptions,
    state: Mutex<HubState>,
    /// Bumped whenever a follower may have something to do.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct HubState {
    pub(super) log: Option<Log>,
    /// See [`LocalOptions::log_name`].
    log_name: String,
    /// The number of logs made so far, which names the incarnation too: equal runs get equal names.
    logs_made: u64,
    /// The number of times that a log lost its last records.
    losses: u64,
    /// See [`LocalOptions::log_bytes_max`].
    log_bytes_max: Option<u64>,
    /// True while the broker runs.
    pub(super) up: bool,
    pub(super) links: Vec<Weak<Link>>,
    /// The number of clients so far.
    clients_made: u64,
    /// Gets every batch that is appended; `None`: nobody watches.
    pub(super) witness: Option<mpsc::UnboundedSender<WitnessedBatch>>,
    servers: HashMap<Address, Vec<Server>>,
    servers_made: u64,
    pub(super) chances: Chances,
    random: StdRng,
}

/// One member of an address's queue group.
#[derive(Clone, Debug)]
pub(super) struct Server {
    id: u64,
    pub(super) link: Arc<Link>,
    pub(super) calls: mpsc::Sender<Result<Incoming, WireError>>,
}

impl Hub {
    pub(super) fn new(options: LocalOptions) -> Self {
        let state = HubState {
            log: None,
            log_name: options.log_name.clone(),
            logs_made: 0,
            losses: 0,
            log_bytes_max: options.log_bytes_max,
            up: true,
            links: Vec::new(),
            clients_made: 0,
            witness: None,
            servers: HashMap::new(),
            servers_made: 0,
            chances: Chances::default(),
            random: StdRng::seed_from_u64(options.seed),
        };
        Self {
            options,
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
        }
    }

    /// Reads or changes the broker's state; never held across an await.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut HubState) -> T) -> T {
        act(&mut self.state.lock())
    }

    /// Makes a log if there is none, and returns its head.
    pub(super) fn ensure_log(&self) -> LogHead {
        let tombstone_ttl = self.options.tombstone_ttl;
        self.with(|state| state.ensure_log(tombstone_ttl).head())
    }

    /// Makes the log anew if its incarnation is `incarnation`.
    pub(super) fn remake_log(&self, incarnation: &Incarnation) -> Result<(), BusError> {
        let tombstone_ttl = self.options.tombstone_ttl;
        self.with(|state| {
            let log = state.log.as_ref().ok_or(BusError::NoLog)?;
            if log.head().incarnation == *incarnation {
                state.log = None;
                state.ensure_log(tombstone_ttl);
            }
            Ok(())
        })
    }

    /// Reads or changes the log.
    pub(super) fn with_log<T>(&self, act: impl FnOnce(&mut Log) -> T) -> Result<T, BusError> {
        self.with(|state| state.log.as_mut().map(act))
            .ok_or(BusError::NoLog)
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Wakes the followers.
    pub(super) fn notify(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    /// Rolls the dice for one of the [`Chances`].
    pub(super) fn happens(&self, chance: impl FnOnce(&Chances) -> f64) -> bool {
        self.with(|state| {
            let chance = chance(&state.chances).clamp(0.0, 1.0);
            chance > 0.0 && state.random.random_bool(chance)
        })
    }

    /// Returns for how long a beat waits on its way this time.
    pub(super) fn beat_delay(&self) -> Duration {
        if !self.happens(|chances| chances.beat_delayed) {
            return Duration::ZERO;
        }
        self.with(|state| {
            let delay_max = state.chances.beat_delay_max;
            state.random.random_range(Duration::ZERO..=delay_max)
        })
    }

    /// Waits for as long as the transport takes this time.
    pub(super) async fn delay(&self) {
        let delay = self.with(|state| {
            let delay_max = state.chances.delay_max;
            if delay_max.is_zero() {
                Duration::ZERO
            } else {
                state.random.random_range(Duration::ZERO..=delay_max)
            }
        });
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns for how long a batch is held up this time.
    pub(super) fn lateness(&self) -> Duration {
        let late = APPEND_LATE_MIN..=APPEND_LATE_MAX;
        self.with(|state| state.random.random_range(late))
    }

    /// Joins the queue group of `address`. [`Hub::leave`] takes the returned id.
    pub(super) fn join(
        &self,
        address: &Address,
        link: &Arc<Link>,
        calls: mpsc::Sender<Result<Incoming, WireError>>,
    ) -> u64 {
        self.with(|state| {
            state.servers_made += 1;
            let id = state.servers_made;
            let link = Arc::clone(link);
            state
                .servers
                .entry(address.clone())
                .or_default()
                .push(Server { id, link, calls });
            id
        })
    }

    pub(super) fn leave(&self, address: &Address, id: u64) {
        self.with(|state| {
            if let Some(servers) = state.servers.get_mut(address) {
                servers.retain(|server| server.id != id);
                if servers.is_empty() {
                    state.servers.remove(address);
                }
            }
        });
    }

    /// Returns a random server among those within reach that serve `address`.
    pub(super) fn choose(&self, address: &Address) -> Option<Server> {
        self.with(|state| {
            let within_reach: Vec<_> = state
                .servers
                .get(address)?
                .iter()
                .filter(|server| server.link.is_up() && !server.calls.is_closed())
                .collect();
            let chosen = match within_reach.len() {
                0 => return None,
                servers => state.random.random_range(0..servers),
            };
            Some(within_reach[chosen].clone())
        })
    }
}

impl HubState {
    /// Makes a log if there is none.
    pub(super) fn ensure_log(&mut self, tombstone_ttl: Duration) -> &mut Log {
        let (name, logs_made) = (&self.log_name, &mut self.logs_made);
        let log = self.log.get_or_insert_with(|| {
            *logs_made += 1;
            Log::new(Incarnation(format!("{name}-{logs_made}")), tombstone_ttl)
        });
        log.limit(self.log_bytes_max);
        log
    }

    /// Changes the limit of the log.
    pub(super) fn limit_log(&mut self, bytes_max: Option<u64>) {
        self.log_bytes_max = bytes_max;
        if let Some(log) = &mut self.log {
            log.limit(bytes_max);
        }
    }

    /// Returns the number of the log's history: another log, or one that lost records, has another number. Servers that
    /// lose records lose what they have not stored yet, too.
    pub(super) fn history(&self) -> (u64, u64) {
        (self.logs_made, self.losses)
    }

    /// Loses the newest records.
    pub(super) fn truncate(&mut self, last: Revision) {
        self.losses += 1;
        if let Some(log) = &mut self.log {
            log.truncate(last);
        }
    }

    /// Puts another history in the place of the newest records.
    pub(super) fn replace_history(&mut self, last: Revision) {
        self.losses += 1;
        if let Some(log) = &mut self.log {
            log.replace_history(last);
        }
    }

    /// Returns the number of one more client.
    pub(super) fn next_client(&mut self) -> u64 {
        self.clients_made += 1;
        self.clients_made
    }

    /// Tells whoever watches of a batch that was appended.
    pub(super) fn bear_witness(&mut self, batch: WitnessedBatch) {
        if self
            .witness
            .as_ref()
            .is_some_and(|witness| witness.send(batch).is_err())
        {
            self.witness = None; // Nobody watches any more.
        }
    }

    /// Tells every client whether it is within reach.
    pub(super) fn refresh_links(&mut self) {
        let up = self.up;
        self.links
            .retain(|link| link.upgrade().inspect(|link| link.set_broker(up)).is_some());
    }
}
