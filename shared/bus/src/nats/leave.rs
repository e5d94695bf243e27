//! Leaving a server that is cut off from the others of its cluster. Pure.
//!
//! Such a server goes on serving its clients: it accepts messages, and delivers them to nobody. The client library
//! notices only a dead connection. Two signs tell: JetStream has answered nothing for long, or watchers or replicas
//! that were heard are heard no more. Both have other causes too, so a server is left ever more rarely while nothing mends.

use std::time::Duration;

use parking_lot::Mutex;
use rand::seq::IndexedRandom as _;
use tokio::time::Instant;

/// The time without an answer of JetStream after which a server is left: the longest two elections after each other, of
/// JetStream's own leader and of the stream's.
const UNANSWERED_MAX: Duration = Duration::from_secs(20);

/// The time without a beat of any watcher, or of any replica, after which a server is left if there were some before: eight
/// of their intervals.
const UNHEARD_MAX: Duration = Duration::from_secs(4);

/// The shortest time between two departures. Each is twice as long as the one before, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(8);

/// The longest time between two departures.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The most attempts in a row to get to another server than the one that is left. A Service chooses at random.
const ATTEMPTS_MAX: u32 = 8;

/// The servers in the order in which they are tried, each after all the rest. The client library would prefer servers
/// that never failed, and so go back to the server just left.
#[derive(Debug)]
pub(super) struct Turns<T>(Mutex<Vec<T>>);

impl<T: Clone + PartialEq> Turns<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the next server: an untried server, or the server tried longest ago.
    pub(super) fn next(&self, servers: &[T]) -> Option<T> {
        let mut tried = self.0.lock();
        tried.retain(|server| servers.contains(server));
        let new: Vec<_> = servers.iter().filter(|of| !tried.contains(of)).collect();
        let next = match new.choose(&mut rand::rng()) {
            Some(server) => (*server).clone(),
            None if tried.is_empty() => return None,
            None => tried.remove(0),
        };
        tried.push(next.clone());
        Some(next)
    }
}

/// Signs of life of the cluster, over one connection.
#[derive(Debug, Default)]
pub(super) struct Signs(Mutex<ServerContact>);

#[derive(Clone, Copy, Debug, Default)]
struct ServerContact {
    /// The time of the first call of JetStream's API since the last answer that has failed.
    unanswered_since: Option<Instant>,
    /// The time of the last beat of a watcher.
    watchers: Option<Instant>,
    /// The time of the last beat of a replica.
    replicas: Option<Instant>,
    /// There was an answer.
    is_answered: bool,
}

impl Signs {
    /// JetStream has answered.
    pub(super) fn answered(&self) {
        let mut heard = self.0.lock();
        (heard.unanswered_since, heard.is_answered) = (None, true);
    }

    /// A call of JetStream that began then has failed for want of an answer.
    pub(super) fn unanswered(&self, begun: Instant) {
        let mut heard = self.0.lock();
        heard.unanswered_since.get_or_insert(begun);
    }

    /// A watcher was heard.
    pub(super) fn watcher(&self, at: Instant) {
        self.0.lock().watchers = Some(at);
    }

    /// A replica was heard.
    pub(super) fn replica(&self, at: Instant) {
        self.0.lock().replicas = Some(at);
    }

    /// Starts the measurement for a new connection, over which every sender has to be heard again.
    fn begin(&self, now: Instant) {
        let mut heard = self.0.lock();
        *heard = ServerContact {
            watchers: heard.watchers.map(|_| now),
            replicas: heard.replicas.map(|_| now),
            ..ServerContact::default()
        };
    }
}

/// The departures from servers of one client.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// The server just left and the number of attempts to leave it; `None` once a different server is reached.
    left: Option<(String, u32)>,
    /// The time of the last departure.
    at: Option<Instant>,
    /// The time that has to pass before the next.
    pause: Duration,
}

impl Departures {
    /// Notes a connection to this server. Returns true if the server is the server just left, so that the client
    /// leaves at once.
    pub(super) fn connected(&mut self, server: &str, signs: &Signs, now: Instant) -> bool {
        signs.begin(now);
        match &mut self.left {
            Some((left, attempts)) if left == server && *attempts < ATTEMPTS_MAX => {
                *attempts += 1;
                true
            }
            _ => {
                self.left = None;
                false
            }
        }
    }

    /// Returns why this server is to be left now; `None`: it is not.
    pub(super) fn reason(
        &mut self,
        server: &str,
        signs: &Signs,
        now: Instant,
    ) -> Option<&'static str> {
        let heard = *signs.0.lock();
        let since = |at: Option<Instant>| at.map(|at| now.saturating_duration_since(at));
        let lasts = |at, max| since(at).is_some_and(|lasts| lasts >= max);
        let reason = if lasts(heard.unanswered_since, UNANSWERED_MAX) {
            "JetStream does not answer"
        } else if lasts(heard.watchers, UNHEARD_MAX) {
            "no watcher is heard any more"
        } else if lasts(heard.replicas, UNHEARD_MAX) {
            "no replica is heard any more"
        } else {
            if heard.is_answered {
                self.pause = Duration::ZERO;
            }
            return None;
        };
        if since(self.at).is_some_and(|passed| passed < self.pause) {
            return None;
        }
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.left = Some((server.to_owned(), 1));
        self.at = Some(now);
        signs.begin(now);
        Some(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_server_is_left_once_jetstream_is_silent_for_long() {
        let (signs, mut departures, begun) =
            (Signs::default(), Departures::default(), Instant::now());
        signs.unanswered(begun);
        signs.unanswered(begun + 3 * SECOND);
        assert_eq!(departures.reason("a", &signs, begun + 19 * SECOND), None);
        signs.answered();
        signs.unanswered(begun + 19 * SECOND);
        assert_eq!(departures.reason("a", &signs, begun + 38 * SECOND), None);
        assert!(
            departures
                .reason("a", &signs, begun + 39 * SECOND)
                .is_some()
        );
        assert_eq!(departures.reason("a", &signs, begun + 40 * SECOND), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_left_once_watchers_are_heard_no_more() {
        let (signs, mut departures, begun) =
            (Signs::default(), Departures::default(), Instant::now());
        assert_eq!(departures.reason("a", &signs, begun + 90 * SECOND), None);
        signs.watcher(begun);
        assert_eq!(departures.reason("a", &signs, begun + 3 * SECOND), None);
        signs.watcher(begun + 2 * SECOND);
        assert_eq!(departures.reason("a", &signs, begun + 5 * SECOND), None);
        signs.replica(begun);
        signs.watcher(begun + 4 * SECOND);
        assert!(departures.reason("a", &signs, begun + 4 * SECOND).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_left_is_left_again_a_few_times() {
        let (signs, mut departures, begun) =
            (Signs::default(), Departures::default(), Instant::now());
        let mut connected = |server| departures.connected(server, &signs, begun);
        assert!(!connected("a"));
        signs.watcher(begun);
        let left = begun + 4 * SECOND;
        assert!(departures.reason("a", &signs, left).is_some());
        let mut connected = |server| departures.connected(server, &signs, left);
        assert!(connected("a"));
        assert!(!connected("b"));
        assert!(!connected("a"), "later, it may be well");
        departures.left = Some(("a".into(), 1));
        let again = (0..20).filter(|_| departures.connected("a", &signs, left));
        assert_eq!(again.count(), 7, "there may be no other");
        let later = left + PAUSE_MIN;
        assert!(
            departures.reason("a", &signs, later).is_some(),
            "nobody is heard there either"
        );
    }

    #[test]
    fn every_server_is_tried_before_any_is_tried_again() {
        let turns = Turns::new();
        assert_eq!(turns.next(&[]), None);
        let first: Vec<_> = (0..3)
            .filter_map(|_| turns.next(&["a", "b", "c"]))
            .collect();
        let second: Vec<_> = (0..3)
            .filter_map(|_| turns.next(&["a", "b", "c"]))
            .collect();
        assert_eq!(first, second);
        assert!(["a", "b", "c"].iter().all(|server| first.contains(server)));
        assert_eq!(turns.next(&["a", "b", "c", "d"]), Some("d"));
        assert_eq!(turns.next(&["d"]), Some("d"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_leaves_ever_more_rarely_while_nothing_mends() {
        let (signs, mut departures, begun) =
            (Signs::default(), Departures::default(), Instant::now());
        let mut left = Vec::new();
        signs.watcher(begun);
        for second in 0..200 {
            let now = begun + second * SECOND;
            if departures.reason("a", &signs, now).is_some() {
                left.push(second);
            }
        }
        assert_eq!(left, [4, 12, 28, 60, 120, 180]);
        let mended = begun + 200 * SECOND;
        signs.answered();
        signs.watcher(mended);
        assert_eq!(departures.reason("a", &signs, mended), None);
        assert!(
            departures
                .reason("a", &signs, mended + 4 * SECOND)
                .is_some()
        );
    }
}
