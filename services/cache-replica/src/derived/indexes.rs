//! Finds the objects that can make a difference to a query.

use std::time::Duration;

use anteroom_jmespath::Parameters;
use anteroom_plan::{Index, IndexKey, LookupOptions, Narrow, Operand, Probe, selected};
use anteroom_view::{Object, Select};
use serde_json::Value;

use super::{AskedState, Derived};
use crate::plan::{Plan, document};

/// The number of found objects up to which no other index is asked.
const FEW: usize = 16;

/// A query's lookup in one state of a view.
#[derive(Clone, Copy)]
pub(crate) struct LookupContext<'q> {
    pub(crate) asked: AskedState<'q>,
    /// The request's parameters, and the counts that stand beside them.
    pub(crate) parameters: &'q dyn Parameters,
    pub(crate) missing_key_is_error: bool,
    /// See [`IndexKey::bare`].
    pub(crate) bare: bool,
    /// The longest wait for an index that is in use in another state of the view.
    pub(crate) wait_max: Duration,
}

/// The limits of one lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupLimit {
    /// Objects that are found.
    pub(crate) objects: usize,
    /// Bytes of the bodies of these objects.
    pub(crate) bytes: usize,
    /// Values and objects that are looked at for it. Meanwhile the index cannot be brought to another state.
    pub(crate) steps: usize,
    /// See [`LookupContext::wait_max`].
    pub(crate) wait_max: Duration,
}

impl<'q> LookupContext<'q> {
    /// The key of the index that a probe needs.
    pub(super) fn key(&self, probe: &Probe) -> IndexKey {
        IndexKey::of(probe, self.missing_key_is_error, self.bare)
    }

    /// The value that a probe looks for. `None`: the parameter is not bound, and the evaluation says so.
    pub(super) fn operand(&self, probe: &'q Probe) -> Option<&'q Value> {
        match &probe.operand {
            Operand::Literal(value) => Some(value),
            Operand::Parameter(name) => self.parameters.parameter(name),
        }
    }
}

impl Derived {
    /// Returns the objects that can make a difference, each once and in order. `None`: no
    /// index can tell, or it is not built yet, or the lookup goes beyond `limit`.
    pub(crate) fn find(
        &self,
        plan: &Plan,
        select: &Select,
        context: &LookupContext<'_>,
        limit: LookupLimit,
    ) -> Option<Vec<Object>> {
        let narrow = plan.narrow(document(select, context.asked.state.read())?);
        let narrow = selected(narrow.as_deref(), select.labels())?;
        let options = LookupOptions {
            objects_max: limit.objects,
            steps_max: limit.steps,
            admits: &|object| select.admits(object),
            parameters: context.parameters,
        };
        let mut found = self.gather(&narrow, context, options)?;
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    fn gather(
        &self,
        narrow: &Narrow,
        context: &LookupContext<'_>,
        options: LookupOptions<'_>,
    ) -> Option<Vec<Object>> {
        match narrow {
            Narrow::Probe(probe) => {
                let gather = |index: &Index| index.gather(probe, options);
                let key = context.key(probe);
                self.indexes
                    .ask(context.asked, key, context.wait_max, gather)?
            }
            Narrow::Any(parts) => self.gather_any(parts, context, options),
            Narrow::All(alternatives) => self.gather_fewest(alternatives, context, options),
        }
    }

    fn gather_any(
        &self,
        parts: &[Narrow],
        context: &LookupContext<'_>,
        options: LookupOptions<'_>,
    ) -> Option<Vec<Object>> {
        let mut found = Some(Vec::new());
        for part in parts {
            // Indexes are asked even after a missing one, so that all missing indexes are built at once.
            let more = self.gather(part, context, options);
            found = found.zip(more).map(|(found, more)| [found, more].concat());
            found = found.filter(|found| found.len() <= options.objects_max);
        }
        found
    }

    /// Asks the alternative lookups in turn, until one finds few objects.
    fn gather_fewest(
        &self,
        alternatives: &[Narrow],
        context: &LookupContext<'_>,
        mut options: LookupOptions<'_>,
    ) -> Option<Vec<Object>> {
        let mut best: Option<Vec<Object>> = None;
        for alternative in alternatives {
            if let Some(found) = self.gather(alternative, context, options) {
                options.objects_max = found.len();
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.len() <= FEW) {
                break;
            }
        }
        best
    }
}
