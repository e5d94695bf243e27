//! The oracle: the right answer to each review.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;
use rand::Rng;

/// The answer of a right webhook to an Ingress with a given host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nobody has the host.
    Allowed,
    /// Another Ingress has the host.
    Denied,
}

/// The state of a host at one moment. Two that are equal, one before and one after a review,
/// say that nothing changed between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The right answer; `None` while the cluster changes: either is right.
    pub expected: Option<Expected>,
    /// The number of changes of the host so far.
    changes: u64,
}

/// The hosts that are taken. Shared by whoever changes the cluster and whoever judges decisions.
///
/// The oracle is fair: whoever changes the cluster says [`Oracle::unsettle`] before, and
/// [`Oracle::take`] or [`Oracle::free`] once the change is known to have arrived.
#[derive(Debug, Default)]
pub struct Oracle {
    hosts: RwLock<Hosts>,
    free_counter: AtomicU64,
}

#[derive(Debug, Default)]
struct Hosts {
    standings: HashMap<String, Standing>,
    taken: Pool,
    freed: Pool,
}

/// Hosts to pick from at random.
#[derive(Debug, Default)]
struct Pool {
    hosts: Vec<String>,
    /// The position of each in `hosts`.
    index: HashMap<String, usize>,
}

impl Oracle {
    /// An oracle of a cluster with these hosts.
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Self {
        let oracle = Self::default();
        hosts.into_iter().for_each(|host| oracle.take(host));
        oracle
    }

    /// An Ingress with this host exists, and decisions know it.
    pub fn take(&self, host: String) {
        self.hosts.write().settle(host, Some(Expected::Denied));
    }

    /// The Ingress with this host is about to be made or deleted: nothing is expected for now.
    pub fn unsettle(&self, host: &str) {
        self.hosts.write().settle(host.to_owned(), None);
    }

    /// The Ingress with this host is gone, and decisions know it.
    pub fn free(&self, host: String) {
        self.hosts.write().settle(host, Some(Expected::Allowed));
    }

    /// Returns the state of this host, now. A host that nobody ever mentioned is free.
    pub fn standing(&self, host: &str) -> Standing {
        let never = Standing {
            expected: Some(Expected::Allowed),
            changes: 0,
        };
        let hosts = self.hosts.read();
        hosts.standings.get(host).copied().unwrap_or(never)
    }

    /// A host that is taken; `None` in an empty cluster.
    pub fn taken_host(&self, rng: &mut impl Rng) -> Option<String> {
        self.hosts.read().taken.pick(rng)
    }

    /// A host that was taken once and is free; `None` if there is none.
    pub fn freed_host(&self, rng: &mut impl Rng) -> Option<String> {
        self.hosts.read().freed.pick(rng)
    }

    /// A host that nobody has or ever had.
    pub fn free_host(&self) -> String {
        let number = self.free_counter.fetch_add(1, Ordering::Relaxed);
        format!("free-{number}.anteroom.test")
    }
}

impl Hosts {
    fn settle(&mut self, host: String, expected: Option<Expected>) {
        self.taken.remove(&host);
        self.freed.remove(&host);
        match expected {
            Some(Expected::Denied) => self.taken.insert(host.clone()),
            Some(Expected::Allowed) => self.freed.insert(host.clone()),
            None => {}
        }
        let before = self.standings.get(&host).map_or(0, |known| known.changes);
        let changes = before + 1;
        self.standings.insert(host, Standing { expected, changes });
    }
}

impl Pool {
    fn insert(&mut self, host: String) {
        self.index.insert(host.clone(), self.hosts.len());
        self.hosts.push(host);
    }

    fn remove(&mut self, host: &str) {
        if let Some(at) = self.index.remove(host) {
            self.hosts.swap_remove(at);
            if let Some(moved) = self.hosts.get(at).cloned() {
                self.index.insert(moved, at);
            }
        }
    }

    fn pick(&self, rng: &mut impl Rng) -> Option<String> {
        let last = self.hosts.len().checked_sub(1)?;
        Some(self.hosts[rng.random_range(0..=last)].clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_and_freed() {
        let oracle = Oracle::new(["a".into(), "b".into(), "c".into()]);
        let expected = |host: &str| oracle.standing(host).expected;
        oracle.unsettle("a");
        oracle.unsettle("c");
        assert_eq!(expected("a"), None);
        assert_eq!(expected("b"), Some(Expected::Denied));
        assert_eq!(oracle.taken_host(&mut rand::rng()).as_deref(), Some("b"));
        assert_eq!(oracle.freed_host(&mut rand::rng()), None);
        oracle.free("a".into());
        assert_eq!(expected("a"), Some(Expected::Allowed));
        assert_eq!(oracle.freed_host(&mut rand::rng()).as_deref(), Some("a"));
        oracle.unsettle("b");
        assert_eq!(oracle.taken_host(&mut rand::rng()), None);
        assert_eq!(expected(&oracle.free_host()), Some(Expected::Allowed));
    }

    #[test]
    fn a_host_that_changed_and_changed_back_has_another_standing() {
        let oracle = Oracle::new(["a".into()]);
        let before = oracle.standing("a");
        assert_eq!(before, oracle.standing("a"));
        oracle.unsettle("a");
        oracle.take("a".into());
        assert_eq!(oracle.standing("a").expected, before.expected);
        assert_ne!(oracle.standing("a"), before);
    }
}
