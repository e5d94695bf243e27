//! Versions: of an object, of an epoch, of the log.

use std::{cmp::Ordering, fmt};

use serde::{Deserialize, Serialize};

use crate::ObjectKey;

/// An epoch of a view: the writer's term in the upper half, and in the lower half a generation. The writer
/// raises the generation whenever the source's own history restarts: a resource version went backwards after a
/// restore, or a view was dropped and wanted again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of `generation` within `term`.
    pub fn new(term: u32, generation: u32) -> Self {
        Self((u64::from(term) << 32) | u64::from(generation))
    }

    /// The writer's term.
    pub fn term(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The generation within the term.
    pub fn generation(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term(), self.generation())
    }
}

/// A position in the log. Positions start at 1, only grow within one [`Incarnation`], and are the
/// same in every replica: two replies with one revision of one view come from equal data.
///
/// Zero is "before everything".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a log: made anew whenever the log is made anew, so that a position of one log is never taken
/// for a position of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub String);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Kubernetes resource version.
///
/// Comparable within one resource type since Kubernetes 1.35 (KEP-5504): decimal numbers of any
/// length without a leading zero, so the longer one is newer, and of two of one length the one that
/// sorts last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceVersion(pub Box<str>);

impl ResourceVersion {
    /// From the API server's own text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The API server's own text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether no resource version is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares two versions; `None` where either is not a decimal number as the KEP defines it.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if self.is_decimal() && other.is_decimal() {
            Some(
                self.0
                    .len()
                    .cmp(&other.0.len())
                    .then_with(|| self.0.cmp(&other.0)),
            )
        } else {
            None
        }
    }

    fn is_decimal(&self) -> bool {
        let bytes = self.0.as_bytes();
        !bytes.is_empty()
            && bytes.iter().all(u8::is_ascii_digit)
            && (bytes[0] != b'0' || bytes.len() == 1)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The operation of a delta on its key. `B` is the compact body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op<B> {
    /// The object is now this.
    Put(B),
    /// The object is gone: a tombstone.
    Delete,
}

/// One change of a view on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta<B> {
    /// The object that changed.
    pub key: ObjectKey,
    /// The epoch of the view in which it was written.
    pub epoch: Epoch,
    /// The object's resource version; of a tombstone, that of the deletion (or of the list that no
    /// longer had the object).
    pub version: ResourceVersion,
    /// The operation.
    pub op: Op<B>,
}

impl<B> Delta<B> {
    /// The apply rule: whether this delta supersedes a state of its key that was written in
    /// `epoch` at `version`.
    ///
    /// A higher epoch wins, a lower one is dropped; within an epoch the newer resource version
    /// wins. Where two versions cannot be compared, the log's own order decides, so the later
    /// delta wins.
    pub fn supersedes(&self, epoch: Epoch, version: &ResourceVersion) -> bool {
        match self.epoch.cmp(&epoch) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => self.version.compare(version) != Some(Ordering::Less),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(text: &str) -> ResourceVersion {
        ResourceVersion::new(text)
    }

    #[test]
    fn resource_versions_compare_as_numbers_of_any_length() {
        assert_eq!(rv("9").compare(&rv("10")), Some(Ordering::Less));
        assert_eq!(rv("10").compare(&rv("10")), Some(Ordering::Equal));
        assert_eq!(
            rv("99999999999999999999999").compare(&rv("99999999999999999999998")),
            Some(Ordering::Greater)
        );
        assert_eq!(rv("0").compare(&rv("1")), Some(Ordering::Less));
        for bad in ["", "01", "1a", "-1"] {
            assert_eq!(rv(bad).compare(&rv("1")), None, "{bad:?}");
            assert_eq!(rv(bad).is_empty(), bad.is_empty());
        }
    }

    #[test]
    fn epochs_order_by_term_then_generation() {
        assert!(Epoch::new(2, 0) > Epoch::new(1, 9));
        assert!(Epoch::new(2, 1) > Epoch::new(2, 0));
        assert_eq!(Epoch::new(7, 9).to_string(), "7.9");
    }

    #[test]
    fn a_delta_supersedes_by_epoch_and_then_by_version() {
        let delta = |term, version: &str| Delta::<()> {
            key: ObjectKey::new("", "a"),
            epoch: Epoch::new(term, 0),
            version: rv(version),
            op: Op::Delete,
        };
        let (held, at) = (Epoch::new(3, 0), rv("10"));
        assert!(delta(4, "1").supersedes(held, &at), "a higher epoch wins");
        assert!(
            !delta(2, "99").supersedes(held, &at),
            "a lower epoch is dropped"
        );
        assert!(delta(3, "11").supersedes(held, &at));
        assert!(delta(3, "10").supersedes(held, &at), "a repeat is harmless");
        assert!(!delta(3, "9").supersedes(held, &at));
        assert!(
            delta(3, "opaque").supersedes(held, &at),
            "else the log's order decides"
        );
    }
}
