//! Proves by digests that a view holds everything.
//!
//! The writer's control record says how many objects the view has at that position of the log, and
//! their digest. Equal digests prove that nothing is missing. Different ones prove a loss only if
//! every record up to there was seen: the log keeps the last record of each object alone, so a
//! reader that lags finds that a record on its way was superseded by one that stands further on.
//! Three things tell a loss from a lag:
//!
//! - no hole in the positions since everything was known to be there;
//! - a beat, later, that says that the view has no record after the control record;
//! - the same difference at the next control record. What a superseded record leaves out is in
//!   place by then, since the later record is older than that control record.

use anteroom_model::{Digest, Revision};

/// The evidence that a view holds everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A record could not be read, and it may have been this view's: it takes equal digests now.
    Unproven,
    /// Everything was there at this position, and nothing says otherwise since.
    Complete(Revision),
    /// The digests differ, which may be our lag.
    Suspect {
        /// The position at which they were compared.
        at: Revision,
        /// The difference of the digests.
        difference: Digest,
        /// Everything was there before: then the view answers until the doubt is settled, which takes
        /// one beat of a view at rest.
        answers: bool,
    },
    /// Something was missing. Where the log has been read again, that settles it anew.
    Broken,
}

/// A comparison of two digests at one position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DigestComparison {
    /// The control record's position.
    pub at: Revision,
    /// Ours minus the writer's; [`Digest::EMPTY`] where they are equal.
    pub difference: Digest,
    /// The writer counts as many objects as this mirror does.
    pub counts_agree: bool,
    /// The last position at which a record was missing; `None` where that cannot be seen, since
    /// only some views are followed.
    pub hole: Option<Revision>,
}

impl DigestComparison {
    pub(crate) fn agrees(&self) -> bool {
        self.counts_agree && self.difference == Digest::EMPTY
    }
}

impl Proof {
    /// Returns true if a view in this state may answer.
    pub(crate) fn answers(self) -> bool {
        match self {
            Self::Complete(_) => true,
            Self::Suspect { answers, .. } => answers,
            Self::Unproven | Self::Broken => false,
        }
    }

    /// A control record was compared, at a point from which the log is followed live.
    pub(crate) fn compared(self, comparison: DigestComparison) -> Self {
        if comparison.agrees() {
            return Self::Complete(comparison.at);
        }
        let proven = match self {
            Self::Broken => true,
            Self::Complete(since) => comparison.hole.is_some_and(|hole| hole <= since),
            Self::Suspect { at, difference, .. } => {
                at != comparison.at && difference == comparison.difference
            }
            Self::Unproven => false,
        };
        if proven {
            return Self::Broken;
        }
        Self::Suspect {
            at: comparison.at,
            difference: comparison.difference,
            answers: self.answers(),
        }
    }

    /// A beat says that the view's last record stands at `last`, and ours at `ours`.
    pub(crate) fn beat(self, last: Revision, ours: Revision) -> Self {
        match self {
            Self::Suspect { at, .. } if at == last && at == ours => Self::Broken,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{ObjectKey, ResourceVersion};

    use super::*;

    fn differing(name: &str) -> Digest {
        let mut digest = Digest::EMPTY;
        digest.add(&ObjectKey::new("", name), &ResourceVersion::new("1"));
        digest
    }

    fn compare(at: u64, difference: Digest, hole: Option<u64>) -> DigestComparison {
        DigestComparison {
            at: Revision(at),
            difference,
            counts_agree: difference == Digest::EMPTY,
            hole: hole.map(Revision),
        }
    }

    const EQUAL: Digest = Digest::EMPTY;

    #[test]
    fn equal_digests_prove_completeness_from_any_state() {
        for from in [Proof::Unproven, Proof::Broken, Proof::Complete(Revision(1))] {
            let proof = from.compared(compare(9, EQUAL, None));
            assert_eq!(proof, Proof::Complete(Revision(9)));
        }
    }

    #[test]
    fn a_digest_difference_without_a_hole_is_a_loss() {
        let complete = Proof::Complete(Revision(5));
        let proof = complete.compared(compare(9, differing("a"), Some(5)));
        assert_eq!(proof, Proof::Broken);
        assert!(!proof.answers());
    }

    #[test]
    fn a_digest_difference_after_a_hole_may_be_our_lag() {
        let complete = Proof::Complete(Revision(5));
        for hole in [Some(6), None] {
            let suspect = complete.compared(compare(9, differing("a"), hole));
            assert!(suspect.answers(), "{hole:?}");
            let cleared = suspect.compared(compare(20, EQUAL, hole));
            assert_eq!(cleared, Proof::Complete(Revision(20)));
            let another = suspect.compared(compare(20, differing("b"), hole));
            assert!(another.answers(), "another difference is another lag");
            let same = suspect.compared(compare(20, differing("a"), hole));
            assert_eq!(same, Proof::Broken, "the same difference is no lag");
        }
    }

    #[test]
    fn a_beat_of_a_view_at_rest_settles_the_doubt() {
        let suspect = Proof::Complete(Revision(5)).compared(compare(9, differing("a"), None));
        assert_eq!(suspect.beat(Revision(12), Revision(9)), suspect);
        assert_eq!(suspect.beat(Revision(9), Revision(10)), suspect);
        assert_eq!(suspect.beat(Revision(9), Revision(9)), Proof::Broken);
    }

    #[test]
    fn the_same_count_with_another_digest_is_no_agreement_and_the_reverse() {
        let other_count = DigestComparison {
            counts_agree: false,
            ..compare(9, EQUAL, Some(0))
        };
        let proof = Proof::Complete(Revision(5)).compared(other_count);
        assert_eq!(proof, Proof::Broken);
    }

    #[test]
    fn a_view_with_an_unreadable_record_answers_once_its_digest_agrees() {
        let unproven = Proof::Unproven;
        assert!(!unproven.answers());
        let suspect = unproven.compared(compare(9, differing("a"), Some(0)));
        assert!(!suspect.answers());
        assert!(suspect.compared(compare(20, EQUAL, Some(0))).answers());
    }
}
