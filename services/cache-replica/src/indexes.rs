//! Indexes of the views: see [`crate::kept`].

use std::sync::Arc;

use anteroom_jmespath::Parameters;
use anteroom_mirror::ViewHandle;
use anteroom_plan::{Index, IndexKey, Narrow, Operand, Probe, Terms};
use anteroom_view::{Object, Snapshot};
use serde_json::Value;

use crate::kept::Kept;

/// All indexes of a replica.
pub(crate) type Indexes = Kept<Index>;

/// Objects that are so few that no other index is asked for fewer.
const FEW: usize = 16;

/// What of a query decides which objects are found.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'q> {
    /// The request's, and what is kept in their place.
    pub(crate) parameters: &'q dyn Parameters,
    pub(crate) missing_key_is_error: bool,
    /// See [`IndexKey::bare`].
    pub(crate) bare: bool,
}

impl<'q> Asked<'q> {
    /// The index that a probe needs.
    pub(crate) fn key(&self, probe: &Probe) -> IndexKey {
        IndexKey::of(probe, self.missing_key_is_error, self.bare)
    }

    /// What it asks for. A parameter that is not bound is the evaluation's to complain of.
    pub(crate) fn operand(&self, probe: &'q Probe) -> Option<&'q Value> {
        match &probe.operand {
            Operand::Literal(value) => Some(value),
            Operand::Parameter(name) => self.parameters.parameter(name),
        }
    }
}

impl Indexes {
    /// The objects of `state` that make a difference, each once and in order. `None`: there is no index
    /// for them yet, or they are more than the terms allow.
    pub(crate) fn find(
        self: &Arc<Self>,
        at: (&ViewHandle, &Snapshot),
        narrow: &Narrow,
        asked: &Asked<'_>,
        terms: Terms<'_>,
    ) -> Option<Vec<Object>> {
        let mut found = self.gather(at, narrow, asked, terms)?;
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    fn gather(
        self: &Arc<Self>,
        at: (&ViewHandle, &Snapshot),
        narrow: &Narrow,
        asked: &Asked<'_>,
        terms: Terms<'_>,
    ) -> Option<Vec<Object>> {
        match narrow {
            Narrow::Probe(probe) => {
                let gather = |index: &Index| index.gather(probe, terms);
                self.ask(at.0, at.1, asked.key(probe), gather)?
            }
            Narrow::Any(parts) => self.of_any(at, parts, asked, terms),
            Narrow::All(ways) => self.of_one(at, ways, asked, terms),
        }
    }

    fn of_any(
        self: &Arc<Self>,
        at: (&ViewHandle, &Snapshot),
        parts: &[Narrow],
        asked: &Asked<'_>,
        terms: Terms<'_>,
    ) -> Option<Vec<Object>> {
        let mut found = Some(Vec::new());
        for part in parts {
            // The others are still asked where one is not there, so that all are built at once.
            let more = self.gather(at, part, asked, terms);
            found = found.zip(more).map(|(found, more)| [found, more].concat());
            found = found.filter(|found| found.len() <= terms.objects_max);
        }
        found
    }

    /// By the way that finds the fewest.
    fn of_one(
        self: &Arc<Self>,
        at: (&ViewHandle, &Snapshot),
        ways: &[Narrow],
        asked: &Asked<'_>,
        mut terms: Terms<'_>,
    ) -> Option<Vec<Object>> {
        let mut best: Option<Vec<Object>> = None;
        for way in ways {
            if let Some(found) = self.gather(at, way, asked, terms) {
                terms.objects_max = found.len();
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.len() <= FEW) {
                break;
            }
        }
        best
    }
}
