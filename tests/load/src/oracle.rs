//! What the right answer is.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;
use rand::Rng;

/// What a right webhook answers to an Ingress with a given host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nobody has the host.
    Allowed,
    /// Another Ingress has the host.
    Denied,
}

/// Which hosts are taken. Shared by whoever changes the cluster and whoever judges decisions.
#[derive(Debug, Default)]
pub struct Oracle {
    taken: RwLock<Taken>,
    free_counter: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    /// For picking one at random.
    hosts: Vec<String>,
    /// Where each stands in `hosts`.
    index: HashMap<String, usize>,
}

impl Oracle {
    /// An oracle of a cluster with these hosts.
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Self {
        let oracle = Self::default();
        hosts.into_iter().for_each(|host| oracle.take(host));
        oracle
    }

    /// An Ingress with this host exists now.
    pub fn take(&self, host: String) {
        let mut taken = self.taken.write();
        if !taken.index.contains_key(&host) {
            let at = taken.hosts.len();
            taken.index.insert(host.clone(), at);
            taken.hosts.push(host);
        }
    }

    /// The Ingress with this host is gone.
    pub fn release(&self, host: &str) {
        let mut taken = self.taken.write();
        if let Some(at) = taken.index.remove(host) {
            taken.hosts.swap_remove(at);
            if let Some(moved) = taken.hosts.get(at).cloned() {
                taken.index.insert(moved, at);
            }
        }
    }

    /// The right answer for this host, now.
    pub fn expected(&self, host: &str) -> Expected {
        if self.taken.read().index.contains_key(host) {
            Expected::Denied
        } else {
            Expected::Allowed
        }
    }

    /// A host that is taken; `None` in an empty cluster.
    pub fn taken_host(&self, rng: &mut impl Rng) -> Option<String> {
        let taken = self.taken.read();
        if taken.hosts.is_empty() {
            return None;
        }
        Some(taken.hosts[rng.random_range(0..taken.hosts.len())].clone())
    }

    /// A host that nobody has or ever had.
    pub fn free_host(&self) -> String {
        let number = self.free_counter.fetch_add(1, Ordering::Relaxed);
        format!("free-{number}.anteroom.test")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_and_released() {
        let oracle = Oracle::new(["a".into(), "b".into(), "c".into()]);
        oracle.release("a");
        oracle.release("c");
        assert_eq!(oracle.expected("a"), Expected::Allowed);
        assert_eq!(oracle.expected("b"), Expected::Denied);
        assert_eq!(oracle.taken_host(&mut rand::rng()).as_deref(), Some("b"));
        oracle.release("b");
        assert_eq!(oracle.taken_host(&mut rand::rng()), None);
        assert_eq!(oracle.expected(&oracle.free_host()), Expected::Allowed);
    }
}
