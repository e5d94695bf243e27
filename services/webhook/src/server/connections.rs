//! Which connections are taken, and which are closed for others.
//!
//! A connection is *unproven* until a review came by it whose path is known, as the API server's first one is. Those of
//! anybody else stay unproven, so they are few, have little time, and go first. A peer that has proven itself lately, as
//! the API server that opens another connection, is not counted among them.
//!
//! | too many | connection that is closed |
//! |---|---|
//! | unproven, of one address | the oldest unproven connection of the address |
//! | unproven, of all addresses | the oldest one of the address with the most unproven connections |
//! | connections | the oldest unproven one, else the proven one that has been idle for longest |

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections at once, which take about 100 KB each.
const CONNECTIONS_MAX: usize = 512;

/// Unproven connections at once.
const UNPROVEN_MAX: usize = 64;

/// Unproven connections of one address at once.
const UNPROVEN_OF_PEER_MAX: usize = 8;

/// Time in which a connection has to prove itself.
pub(super) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a peer counts as known after it has proven itself.
const PEER_KNOWN: Duration = Duration::from_secs(600);

/// Peers that are remembered as known. More are forgotten, the oldest first.
const PEERS_KNOWN_MAX: usize = 256;

/// The idle time after which a proven connection may be closed in favour of a new connection.
const IDLE_MIN: Duration = Duration::from_secs(10);

/// All connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// The open connections, in the order in which they were opened.
    open: BTreeMap<u64, Arc<ConnectionState>>,
    /// The time of each peer's last proof.
    known: HashMap<IpAddr, Instant>,
}

/// An accepted connection, whose place is free again once the connection is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    state: Arc<ConnectionState>,
    table: Connections,
}

#[derive(Debug)]
struct ConnectionState {
    peer: IpAddr,
    opened: Instant,
    proven: AtomicBool,
    /// Milliseconds after it was opened, at the last review.
    used_ms: AtomicU64,
    closing: CancellationToken,
}

impl ConnectionState {
    fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn idle(&self, now: Instant) -> Duration {
        let used = self.opened + Duration::from_millis(self.used_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(used)
    }
}

impl Connections {
    /// Admits a connection, and closes another one for it if necessary. `None`: all open connections are proven and
    /// in use.
    pub(super) fn admit(&self, peer: IpAddr) -> Option<Connection> {
        let now = Instant::now();
        let mut table = self.0.lock();
        if !table.knows(peer, now) {
            table.make_room_among_unproven(peer);
        }
        if table.open.len() >= CONNECTIONS_MAX {
            let victim = table
                .oldest_unproven(|_| true)
                .or_else(|| table.idlest(now))?;
            table.close(victim);
        }
        let id = table.next;
        table.next += 1;
        let state = Arc::new(ConnectionState {
            peer,
            opened: now,
            proven: AtomicBool::new(false),
            used_ms: AtomicU64::new(0),
            closing: CancellationToken::new(),
        });
        table.open.insert(id, Arc::clone(&state));
        Some(Connection {
            id,
            state,
            table: self.clone(),
        })
    }
}

impl Table {
    fn knows(&self, peer: IpAddr, now: Instant) -> bool {
        let proven_at = self.known.get(&peer);
        proven_at.is_some_and(|at| now.saturating_duration_since(*at) < PEER_KNOWN)
    }

    fn make_room_among_unproven(&mut self, peer: IpAddr) {
        let mut by_peer: HashMap<IpAddr, usize> = HashMap::new();
        for state in self.open.values().filter(|state| !state.is_proven()) {
            *by_peer.entry(state.peer).or_default() += 1;
        }
        let all: usize = by_peer.values().sum();
        let crowded = match by_peer.get(&peer) {
            Some(own) if *own >= UNPROVEN_OF_PEER_MAX => Some(peer),
            _ if all >= UNPROVEN_MAX => {
                let most = by_peer.iter().max_by_key(|(peer, count)| (**count, **peer));
                most.map(|(peer, _)| *peer)
            }
            _ => None,
        };
        let victim = crowded.and_then(|of| self.oldest_unproven(|peer| peer == of));
        if let Some(victim) = victim {
            self.close(victim);
        }
    }

    fn oldest_unproven(&self, is_of: impl Fn(IpAddr) -> bool) -> Option<u64> {
        let mut open = self.open.iter();
        let oldest = open.find(|(_, state)| !state.is_proven() && is_of(state.peer));
        oldest.map(|(id, _)| *id)
    }

    fn idlest(&self, now: Instant) -> Option<u64> {
        let idle = self.open.iter().map(|(id, state)| (state.idle(now), *id));
        let idlest = idle.max_by_key(|(idle, id)| (*idle, std::cmp::Reverse(*id)));
        idlest
            .filter(|(idle, _)| *idle >= IDLE_MIN)
            .map(|(_, id)| id)
    }

    fn close(&mut self, id: u64) {
        if let Some(state) = self.open.remove(&id) {
            state.closing.cancel();
        }
    }

    fn remember(&mut self, peer: IpAddr, now: Instant) {
        self.known.insert(peer, now);
        if self.known.len() > PEERS_KNOWN_MAX {
            let oldest = self.known.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                self.known.remove(&oldest);
            }
        }
    }
}

impl Connection {
    /// A review with a known path came by it.
    pub(super) fn prove(&self) {
        let now = Instant::now();
        let used_ms = now.saturating_duration_since(self.state.opened).as_millis();
        let used_ms = u64::try_from(used_ms).unwrap_or(u64::MAX);
        self.state.used_ms.store(used_ms, Ordering::Relaxed);
        if !self.state.proven.swap(true, Ordering::Relaxed) {
            self.table.0.lock().remember(self.state.peer, now);
        }
    }

    /// Returns whether a review with a known path came by it.
    pub(super) fn is_proven(&self) -> bool {
        self.state.is_proven()
    }

    /// Cancelled once it has to make place for another connection.
    pub(super) fn closing(&self) -> CancellationToken {
        self.state.closing.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.table.0.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.closing().is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_of_one_address_lock_nobody_out() {
        let connections = Connections::default();
        let hostile: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| connections.admit(peer(1)).unwrap())
            .collect();
        let open = hostile.iter().filter(|one| !is_closed(one)).count();
        assert_eq!(open, UNPROVEN_OF_PEER_MAX);
        let server = connections.admit(peer(2)).unwrap();
        server.prove();
        let more = connections.admit(peer(1)).unwrap();
        assert!(!is_closed(&server) && !is_closed(&more));
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_take_each_others_places() {
        let connections = Connections::default();
        let mut hostile = Vec::new();
        for at in 0..200 {
            hostile.push(connections.admit(peer(at % 50 + 10)).unwrap());
        }
        let open = hostile.iter().filter(|one| !is_closed(one)).count();
        assert_eq!(open, UNPROVEN_MAX);
        // The closed connection is not the only connection of its address.
        let server = connections.admit(peer(2)).unwrap();
        let _more = connections.admit(peer(10)).unwrap();
        assert!(!is_closed(&server));
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_peer_has_as_many_connections_as_there_are() {
        let connections = Connections::default();
        let first = connections.admit(peer(1)).unwrap();
        first.prove();
        let more: Vec<_> = (0..100)
            .map(|_| connections.admit(peer(1)).unwrap())
            .collect();
        assert!(more.iter().all(|one| !is_closed(one)));
        tokio::time::advance(PEER_KNOWN).await;
        let _last = connections.admit(peer(1)).unwrap();
        assert!(more.iter().any(is_closed), "it is known no longer");
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_goes_where_all_have_proven_themselves() {
        let connections = Connections::default();
        let proven: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let connection = connections.admit(peer(1)).unwrap();
                connection.prove();
                connection
            })
            .collect();
        assert!(connections.admit(peer(1)).is_none(), "all were just used");
        tokio::time::advance(IDLE_MIN).await;
        proven.iter().skip(1).for_each(Connection::prove);
        assert!(connections.admit(peer(1)).is_some());
        assert!(is_closed(&proven[0]));
        drop(proven);
        assert!(connections.0.lock().open.is_empty());
    }
}
