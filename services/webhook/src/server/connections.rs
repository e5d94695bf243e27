//! The choice of the connections that are taken, and of those that are closed for others.
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
//!
//! A handshake takes a signature, so an address that is not known is given few of them in a second. One more of its
//! connections is closed before the handshake.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Version;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Connections at once, which take about 100 KB each.
const CONNECTIONS_MAX: usize = 512;

/// Unproven connections at once.
const UNPROVEN_MAX: usize = 64;

/// Unproven connections of one address at once.
const UNPROVEN_OF_PEER_MAX: usize = 8;

/// Handshakes of one address that is not known, in a second: on average, and at once after a quiet second.
const HANDSHAKES_OF_PEER_PER_SECOND_MAX: u32 = 50;

/// Addresses whose handshakes are counted. More are forgotten, those with the fewest handshakes in the last second
/// first.
const HANDSHAKE_PEERS_MAX: usize = 1024;

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
    handshakes: Handshakes,
}

/// The token buckets of addresses that are not known: when each is full again.
#[derive(Debug, Default)]
struct Handshakes(HashMap<IpAddr, Instant>);

/// The reason why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotTaken {
    /// All connections that there are prove to be in use.
    #[error("there are as many connections as this webhook takes")]
    Full,
    /// The address has begun as many handshakes as it may.
    #[error(
        "an address without a review has {HANDSHAKES_OF_PEER_PER_SECOND_MAX} handshakes in a second"
    )]
    TooFast,
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
    /// Cancelled by the first review, if it came over HTTP/2.
    http2: CancellationToken,
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
    /// Takes one more connection, and closes another one for it if need be.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(super) fn admit(&self, peer: IpAddr) -> Result<Connection, NotTaken> {
        let now = Instant::now();
        let mut table = self.0.lock();
        if !table.knows(peer, now) {
            if !table.handshakes.try_begin(peer, now) {
                return Err(NotTaken::TooFast);
            }
            table.make_room_among_unproven(peer);
        }
        if table.open.len() >= CONNECTIONS_MAX {
            let victim = table
                .oldest_unproven(|_| true)
                .or_else(|| table.idlest(now))
                .ok_or(NotTaken::Full)?;
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
            http2: CancellationToken::new(),
        });
        table.open.insert(id, Arc::clone(&state));
        Ok(Connection {
            id,
            state,
            table: self.clone(),
        })
    }
}

impl Handshakes {
    /// Takes a token of an address; false: it has none.
    fn try_begin(&mut self, peer: IpAddr, now: Instant) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        let token = SECOND / HANDSHAKES_OF_PEER_PER_SECOND_MAX;
        let full_at = self.0.get(&peer).map_or(now, |full_at| now.max(*full_at)) + token;
        if full_at > now + SECOND {
            return false;
        }
        if self.0.insert(peer, full_at).is_none() && self.0.len() > HANDSHAKE_PEERS_MAX {
            self.forget_some(peer, now);
        }
        true
    }

    /// Forgets addresses with a full bucket; where there are none, the one that has begun the fewest handshakes.
    fn forget_some(&mut self, but: IpAddr, now: Instant) {
        self.0.retain(|_, full_at| *full_at > now);
        if self.0.len() > HANDSHAKE_PEERS_MAX {
            let others = self.0.iter().filter(|(peer, _)| **peer != but);
            let fewest = others.min_by_key(|(_, full_at)| **full_at);
            if let Some(fewest) = fewest.map(|(peer, _)| *peer) {
                self.0.remove(&fewest);
            }
        }
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
    /// A review with a known path came by it, over this version of HTTP.
    pub(super) fn prove(&self, version: Version) {
        let now = Instant::now();
        let used_ms = now.saturating_duration_since(self.state.opened).as_millis();
        let used_ms = u64::try_from(used_ms).unwrap_or(u64::MAX);
        self.state.used_ms.store(used_ms, Ordering::Relaxed);
        if !self.state.proven.swap(true, Ordering::Relaxed) {
            self.table.0.lock().remember(self.state.peer, now);
            // A connection stays with its version.
            if version == Version::HTTP_2 {
                self.state.http2.cancel();
            }
        }
    }

    /// Waits for a review over HTTP/2; over HTTP/1.1 there is none.
    pub(super) async fn used_http2(&self) {
        self.state.http2.cancelled().await;
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

    fn prove(connection: &Connection) {
        connection.prove(Version::HTTP_11);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_of_one_address_lock_nobody_out() {
        let connections = Connections::default();
        let mut hostile = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            hostile.push(connections.admit(peer(1)).unwrap());
            tokio::time::advance(Duration::from_millis(20)).await;
        }
        let open = hostile.iter().filter(|one| !is_closed(one)).count();
        assert_eq!(open, UNPROVEN_OF_PEER_MAX);
        let server = connections.admit(peer(2)).unwrap();
        prove(&server);
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
    async fn an_unknown_address_has_few_handshakes_in_a_second_and_holds_up_no_known_one() {
        let connections = Connections::default();
        let server = connections.admit(peer(2)).unwrap();
        prove(&server);
        let taken = |last| {
            let admitted = (0..1_000).map(|_| connections.admit(peer(last)));
            admitted.filter(Result::is_ok).count()
        };
        assert_eq!((taken(1), taken(3)), (50, 50));
        let refused = connections.admit(peer(1)).map(drop);
        assert_eq!(refused, Err(NotTaken::TooFast));
        assert_eq!(taken(2), 1_000);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(taken(1), 5);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(1), 50);
    }

    #[test]
    fn handshakes_are_counted_for_a_bounded_number_of_addresses() {
        let mut handshakes = Handshakes::default();
        let now = Instant::now();
        while handshakes.try_begin(peer(1), now) {}
        for at in 0..5_000_u16 {
            let [high, low] = at.to_be_bytes();
            assert!(handshakes.try_begin(IpAddr::from([10, 1, high, low]), now));
            assert!(handshakes.0.len() <= HANDSHAKE_PEERS_MAX);
        }
        assert!(!handshakes.try_begin(peer(1), now), "the busiest is kept");
        let later = now + Duration::from_secs(2);
        assert!(handshakes.try_begin(peer(2), later));
        assert_eq!(handshakes.0.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_peer_has_as_many_connections_as_there_are() {
        let connections = Connections::default();
        let first = connections.admit(peer(1)).unwrap();
        prove(&first);
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
                prove(&connection);
                connection
            })
            .collect();
        assert!(connections.admit(peer(1)).is_err(), "all were just used");
        tokio::time::advance(IDLE_MIN).await;
        proven.iter().skip(1).for_each(prove);
        assert!(connections.admit(peer(1)).is_ok());
        assert!(is_closed(&proven[0]));
        drop(proven);
        assert!(connections.0.lock().open.is_empty());
    }
}
