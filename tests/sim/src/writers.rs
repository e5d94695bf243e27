//! One writer for each group: every batch as the broker saw it, against what its writer could prove.
//!
//! Each record is of the term of the lease, the writer names the fence of that lease, no two watchers write in one term,
//! and no record of an earlier term follows one of a later term.

use std::collections::HashMap;

use anteroom_bus::local::WitnessedBatch;
use anteroom_model::{Group, Incarnation};

/// A group in one log.
type GroupOfLog = (Incarnation, Group);

/// The writers so far.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    /// The last term that was written.
    terms: HashMap<GroupOfLog, u32>,
    /// The client that wrote in each term.
    clients: HashMap<(GroupOfLog, u32), u64>,
}

impl Writers {
    /// Takes a batch. Returns what is wrong with it.
    pub(crate) fn take(&mut self, batch: &WitnessedBatch) -> Vec<String> {
        let group = batch.fence.group;
        let of = (batch.incarnation.clone(), group);
        let at = format!("group {group}, up to {}", batch.last.0);
        let mut wrong = Vec::new();
        let lease = batch.lease.as_ref();
        if lease.is_none_or(|(_, fence)| *fence != batch.fence) {
            wrong.push(format!(
                "{at}: appended under the fence at {}, but the lease is {lease:?}",
                batch.fence.at.0
            ));
        }
        let led = lease.map(|(lease, _)| lease.term);
        for term in batch.epochs.iter().map(|epoch| epoch.term()) {
            if led != Some(term) {
                wrong.push(format!(
                    "{at}: a record is of term {term}, but the lease is {lease:?}"
                ));
            }
            let last = self.terms.entry(of.clone()).or_insert(term);
            if *last > term {
                wrong.push(format!(
                    "{at}: a record is of term {term}, after one of term {last}"
                ));
            }
            *last = term.max(*last);
            let writer = self.clients.entry((of.clone(), term));
            if *writer.or_insert(batch.client) != batch.client {
                wrong.push(format!("{at}: two watchers write in term {term}"));
            }
        }
        wrong
    }

    /// The log has lost its last records, and leases with them: terms may begin anew.
    pub(crate) fn log_is_shortened(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::{Fence, Lease};
    use anteroom_model::{Epoch, Revision};

    use super::*;

    fn batch(client: u64, term: u32, lease: (u32, u64), last: u64) -> WitnessedBatch {
        let (led, at) = lease;
        let fence = Fence {
            group: Group(1),
            at: Revision(at),
        };
        let lease = Lease {
            term: led,
            holder: "w".into(),
        };
        WitnessedBatch {
            incarnation: Incarnation("one".into()),
            client,
            fence,
            lease: Some((lease, fence)),
            epochs: vec![Epoch::new(term, 1)],
            last: Revision(last),
        }
    }

    #[test]
    fn one_writer_after_the_other_is_right() {
        let mut writers = Writers::default();
        for right in [
            batch(1, 1, (1, 1), 2),
            batch(1, 1, (1, 1), 3),
            batch(2, 2, (2, 4), 5),
        ] {
            assert_eq!(writers.take(&right), Vec::<String>::new());
        }
        writers.log_is_shortened();
        assert_eq!(
            writers.take(&batch(3, 1, (1, 4), 5)),
            Vec::<String>::new(),
            "terms have begun anew"
        );
    }

    #[test]
    fn a_stale_fence_a_false_term_and_a_second_writer_are_found() {
        let mut stale = batch(1, 2, (2, 4), 6);
        stale.fence.at = Revision(1);
        for (wrong, what) in [
            (stale, "appended under the fence at 1"),
            (batch(2, 1, (2, 4), 6), "is of term 1, but the lease"),
            (batch(2, 1, (1, 4), 6), "of term 1, after one of term 2"),
            (batch(3, 2, (2, 4), 6), "two watchers write in term 2"),
        ] {
            let mut writers = Writers::default();
            assert_eq!(writers.take(&batch(2, 2, (2, 4), 5)), Vec::<String>::new());
            let found = writers.take(&wrong);
            assert!(found.iter().any(|found| found.contains(what)), "{found:?}");
        }
    }
}
