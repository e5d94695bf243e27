//! Counts the records of a system view that were read, and compares them with the digest that the view's writer tells.
//!
//! A server whose copy of the log lacks a record leaves it out without a gap. A desired view whose record was left out is
//! not fed, and nothing else would ever tell.

use std::collections::HashMap;

use anteroom_model::{
    Delta, Digest, Epoch, ObjectKey, Op, ResourceVersion, Revision, ViewRecord, ViewState,
};
use bytes::Bytes;

/// The relation of the records that were read to the writer's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Agreement {
    /// Nothing says that a record is missing.
    #[default]
    Assumed,
    /// The digests differ by this. A record that was superseded on its way is missing until the later one is read.
    Suspect(Digest),
    /// A record was missed.
    Differs,
}

/// The keys and versions of one view, as they were read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    versions: HashMap<ObjectKey, (Epoch, ResourceVersion)>,
    digest: Digest,
    /// Objects of earlier epochs do not count.
    origin: Epoch,
    /// The epoch and the position of the last control record.
    controlled: (Epoch, Revision),
    /// The writer's count and digest, if no object was read since.
    claim: Option<(u64, Digest)>,
    agreement: Agreement,
}

impl Tally {
    /// Returns the number of records, and their digest.
    pub(super) fn sum(&self) -> (u64, Digest) {
        (self.versions.len() as u64, self.digest)
    }

    /// Returns true if a record was missed.
    pub(super) fn misses(&self) -> bool {
        self.agreement == Agreement::Differs
    }

    /// Counts a change of an object.
    pub(super) fn delta(&mut self, delta: &Delta<Bytes>) {
        self.claim = None;
        let held = self.versions.get(&delta.key);
        let is_late = held.is_some_and(|(epoch, version)| !delta.supersedes(*epoch, version));
        if is_late || delta.epoch < self.origin {
            return;
        }
        if let Some((_, version)) = self.versions.remove(&delta.key) {
            self.digest.remove(&delta.key, &version);
        }
        if matches!(delta.op, Op::Put(_)) {
            self.digest.add(&delta.key, &delta.version);
            let written = (delta.epoch, delta.version.clone());
            self.versions.insert(delta.key.clone(), written);
        }
    }

    /// Notes what the writer says of the view, in the record at `revision`. Returns false if that is old.
    pub(super) fn control(&mut self, revision: Revision, record: &ViewRecord) -> bool {
        let (epoch, at) = self.controlled;
        if record.epoch < epoch || revision <= at {
            return false;
        }
        self.controlled = (record.epoch, revision);
        if record.origin > self.origin {
            self.origin = record.origin;
            let (origin, digest) = (self.origin, &mut self.digest);
            self.versions.retain(|key, (epoch, version)| {
                let counts = *epoch >= origin;
                if !counts {
                    digest.remove(key, version);
                }
                counts
            });
        }
        let is_synced = record.state == ViewState::Synced;
        self.claim = is_synced.then_some((record.objects, record.digest));
        true
    }

    /// Compares, after a control record that was read as it was written.
    pub(super) fn compare_live(&mut self) {
        let Some((agrees, difference)) = self.comparison() else {
            return;
        };
        self.agreement = match self.agreement {
            _ if agrees => Agreement::Assumed,
            Agreement::Differs => Agreement::Differs,
            // What was superseded at the record before has been replaced since.
            Agreement::Suspect(before) if before == difference => Agreement::Differs,
            Agreement::Assumed | Agreement::Suspect(_) => Agreement::Suspect(difference),
        };
    }

    /// Compares at the log's end: nothing is on its way there.
    pub(super) fn compare_at_end(&mut self) {
        if let Some((agrees, _)) = self.comparison() {
            self.agreement = match agrees {
                true => Agreement::Assumed,
                false => Agreement::Differs,
            };
        }
    }

    /// Returns true and the empty digest if what was read is what the writer claims, and else their difference; `None`: the
    /// writer claims nothing.
    fn comparison(&self) -> Option<(bool, Digest)> {
        let ((objects, digest), (claimed, claimed_digest)) = (self.sum(), self.claim?);
        let difference = digest.difference(claimed_digest);
        let agrees = objects == claimed && difference == Digest::EMPTY;
        Some((agrees, difference))
    }
}
