//! Evaluates single queries, by the path that is chosen for each.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anteroom_jmespath::Budget;
use anteroom_model::FactError;
use anteroom_plan::Language;
use bytes::Bytes;

use super::{
    batch::{Batch, Prepared, QueryContext},
    cel::CelQueryContext,
    path::{AnswerPath, Stage},
    traits::{IndexHits, LazyTraits},
};
use crate::{
    Args,
    derived::Derived,
    fair_slots::FairSlots,
    memo::Memo,
    metrics::QueryMetrics,
    plan::Plans,
    scan::{PartialResults, Scans},
};

/// Evaluations that run at once per core. With more than one, the operating system gives short evaluations their turn
/// beside long ones. The bound limits threads and memory.
const EVALUATIONS_PER_CORE: usize = 4;

/// Steps of an evaluation where its call arrived: a few tenths of a millisecond. Over a few objects it takes more only
/// where the expression or an object is large.
const INLINE_STEPS_MAX: u64 = 8_192;

/// Steps of all evaluations of a request where its call arrived: about a millisecond.
pub(crate) const REQUEST_INLINE_STEPS_MAX: u64 = 4 * INLINE_STEPS_MAX;

/// Evaluates queries over any view.
#[derive(Debug)]
pub(crate) struct Evaluator {
    pub(super) budget: Budget,
    /// The slots for evaluations on worker threads.
    pub(super) workers: Arc<FairSlots>,
    pub(super) plans: Plans,
    pub(super) derived: Derived,
    pub(super) scans: Scans,
    pub(super) pieces: PartialResults,
    pub(super) metrics: QueryMetrics,
    memo: Memo,
    /// The interval of queries whose result is compared with a scan; 0: none is.
    verify_every: u64,
    verified: AtomicU64,
}

impl Evaluator {
    pub(crate) fn new(args: &Args, metrics: QueryMetrics) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = args.workers.unwrap_or(cores * EVALUATIONS_PER_CORE);
        let pieces_bytes_max = args.memo_bytes_max / 2;
        let functions = anteroom_functions::query_functions();
        let language = Language {
            functions,
            matches: anteroom_functions::wildcard::matches,
        };
        Self {
            budget: args.budget(workers),
            workers: FairSlots::leaving_one(workers),
            plans: Plans::new(functions),
            derived: Derived::new(language, args.derived_bytes_max()),
            scans: Scans::new(args.lanes()),
            pieces: PartialResults::new(pieces_bytes_max),
            metrics,
            memo: Memo::new(args.memo_bytes_max - pieces_bytes_max),
            verify_every: args.verify_plans,
            verified: AtomicU64::default(),
        }
    }

    pub(crate) fn plans(&self) -> &Plans {
        &self.plans
    }

    /// The indexes and counters of all views.
    pub(crate) fn derived(&self) -> &Derived {
        &self.derived
    }

    /// The size of plans and results in memory.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.memo.bytes() + self.plans.bytes() + self.pieces.bytes()
    }

    /// Returns the result of a query if the evaluation is too short to delay further queries. `inline_steps` are left
    /// for the queries of its request, of [`REQUEST_INLINE_STEPS_MAX`] at first.
    pub(crate) fn answer_inline(
        &self,
        batch: &Batch,
        prepared: &Prepared,
        inline_steps: &mut u64,
    ) -> Option<Result<Bytes, FactError>> {
        if let Some(context) = CelQueryContext::of(batch, prepared) {
            return self.answer_cel_inline(context, inline_steps);
        }
        let context = match batch.context(prepared) {
            Ok(context) => context,
            Err(error) => return Some(Err(error)),
        };
        let (view, read) = (batch.view.id(), context.read());
        let retained = context.plan.check_retained(view, read, context.select);
        if let Err(error) = retained.and_then(|()| context.select.check_readable(read)) {
            return Some(Err(error));
        }
        let mut traits = LazyTraits::new(self, context);
        match AnswerPath::choose(Stage::Arrival, &mut traits) {
            AnswerPath::Inline => {
                self.evaluate_inline(context, traits.found.as_ref(), inline_steps)
            }
            AnswerPath::Remembered => traits.remembered,
            AnswerPath::Offloaded | AnswerPath::Sliced | AnswerPath::Whole => None,
        }
    }

    /// All queries of a request were short ones.
    pub(crate) fn note_short_request(&self) {
        self.scans.short();
    }

    /// Evaluates a query over few objects where its call arrived. `None`: it takes more steps than it may there,
    /// whatever the number of objects.
    fn evaluate_inline(
        &self,
        context: QueryContext<'_>,
        found: Option<&IndexHits>,
        inline_steps: &mut u64,
    ) -> Option<Result<Bytes, FactError>> {
        if context.plan.is_long() || *inline_steps < INLINE_STEPS_MAX {
            return None;
        }
        let (budget, _) = context.deadline().limit(self.budget);
        let steps = budget.steps.min(INLINE_STEPS_MAX);
        let mut left = Budget { steps, ..budget };
        let result = self.evaluate_within(context, found, &mut left);
        *inline_steps -= steps - left.steps;
        if matches!(result, Err(FactError::BudgetExceeded { .. })) {
            context.plan.took_long(true);
            return None;
        }
        self.note_evaluated(context, found);
        Some(result)
    }

    /// Evaluates a query over the objects `found`, or over all selected objects.
    pub(super) fn evaluate_over(
        &self,
        context: QueryContext<'_>,
        found: Option<&IndexHits>,
    ) -> Result<Bytes, FactError> {
        let (budget, is_shortened) = context.deadline().limit(self.budget);
        let mut left = budget;
        let result = self.evaluate_within(context, found, &mut left);
        let steps = budget.steps - left.steps;
        context.plan.took_long(steps > INLINE_STEPS_MAX);
        self.note_evaluated(context, found);
        if is_shortened && matches!(result, Err(FactError::BudgetExceeded { .. })) {
            return Err(context.deadline().exceeded());
        }
        result
    }

    fn note_evaluated(&self, context: QueryContext<'_>, found: Option<&IndexHits>) {
        context.examines(found.map(|found| found.objects.len()));
        self.metrics.evaluated();
    }

    /// Evaluates a query over the objects `found`, or over all selected objects, and reduces `left`.
    fn evaluate_within(
        &self,
        context: QueryContext<'_>,
        found: Option<&IndexHits>,
        left: &mut Budget,
    ) -> Result<Bytes, FactError> {
        let QueryContext { plan, select, .. } = context;
        let environment = context.environment(self.plans.functions(), *left);
        let read = context.read();
        let all = |left: &mut Budget| {
            let selected = select.apply(read)?;
            selected.evaluate_out_of(&plan.expression, &environment, left)
        };
        let few = |found: &IndexHits, left: &mut Budget| {
            let few = select.among(read, found.objects.iter())?;
            Some(match &found.rewritten {
                None => few.evaluate_out_of(&plan.expression, &environment, left),
                Some(rewritten) => {
                    let parameters = rewritten.parameters(environment.parameters);
                    let environment = environment.with_parameters(&parameters);
                    few.evaluate_out_of(&rewritten.plan().expression, &environment, left)
                }
            })
        };
        match found.and_then(|found| few(found, left)) {
            None => all(left),
            Some(result) if self.is_verified() => {
                let all = all(&mut environment.budget.clone());
                self.verified(context, result, all)
            }
            Some(result) => result,
        }
    }

    /// Returns the result of an equal query over the same content.
    pub(super) fn remembered(&self, context: QueryContext<'_>) -> Option<Result<Bytes, FactError>> {
        if !context.plan.is_deterministic {
            return None;
        }
        self.remembered_of(context.batch, context.prepared)
    }

    /// Returns the result of an equal query in any language over the same content.
    pub(super) fn remembered_of(
        &self,
        batch: &Batch,
        prepared: &Prepared,
    ) -> Option<Result<Bytes, FactError>> {
        let (view, content) = (batch.view.id(), batch.position.content);
        let result = self.memo.get(view, content, prepared.key())?;
        self.metrics.remembered();
        Some(result)
    }

    /// Keeps a result for the next query that is equal, unless it depends on the moment.
    pub(super) fn remember(&self, context: QueryContext<'_>, result: &Result<Bytes, FactError>) {
        if context.plan.is_deterministic {
            self.remember_of(context.batch, context.prepared, result);
        }
    }

    /// Keeps a result of a query in any language, which depends on nothing but the view.
    pub(super) fn remember_of(
        &self,
        batch: &Batch,
        prepared: &Prepared,
        result: &Result<Bytes, FactError>,
    ) {
        if !matches!(result, Err(FactError::DeadlineExceeded { .. })) {
            let (view, content) = (batch.view.id(), batch.position.content);
            self.memo.put(view, content, prepared.key(), result.clone());
        }
    }

    /// Returns true if some results are checked against a scan.
    pub(super) fn verifies(&self) -> bool {
        self.verify_every > 0
    }

    /// Returns true if this result is to be compared with that of a scan.
    pub(super) fn is_verified(&self) -> bool {
        self.verifies()
            && self
                .verified
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(self.verify_every)
    }

    /// Compares a result with that of a scan, which is given. The two must be the same, unless the scan
    /// costs too much, or takes too long.
    pub(super) fn verified(
        &self,
        context: QueryContext<'_>,
        few: Result<Bytes, FactError>,
        all: Result<Bytes, FactError>,
    ) -> Result<Bytes, FactError> {
        self.verified_of(context.batch, &context.query().expression, few, all)
    }

    /// Compares a result of an expression in any language with that of a scan, as [`Self::verified`] does.
    pub(super) fn verified_of(
        &self,
        batch: &Batch,
        expression: &str,
        few: Result<Bytes, FactError>,
        all: Result<Bytes, FactError>,
    ) -> Result<Bytes, FactError> {
        use FactError::{BudgetExceeded, DeadlineExceeded};
        if matches!(all, Err(BudgetExceeded { .. } | DeadlineExceeded { .. })) {
            return few;
        }
        if few != all {
            self.metrics.mismatch();
            tracing::error!(
                view = %batch.view.id(),
                expression,
                revision = batch.position.revision.0,
                "result by indexes, counters or slices differs from the result of a scan, which was returned; \
                 please report this bug"
            );
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use anteroom_runtime::Service;

    use super::*;

    #[test]
    fn both_caches_of_results_share_the_bytes_for_results() {
        for bytes_max in [0, 1, 1_001, u64::MAX] {
            let args = Args {
                memo_bytes_max: bytes_max,
                ..Args::default()
            };
            let metrics = QueryMetrics::register(&Service::new("test").metrics);
            let evaluator = Evaluator::new(&args, metrics);
            let (pieces, results) = (evaluator.pieces.bytes_max(), evaluator.memo.bytes_max());
            assert_eq!(pieces.checked_add(results), Some(bytes_max));
            assert!(results - pieces <= 1, "{bytes_max}");
        }
    }
}
