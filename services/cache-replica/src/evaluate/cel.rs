//! Queries in CEL. An evaluation asks for indexes while it runs, so how long it takes is seen only then.
//!
//! A query in CEL is tried on arrival, within few steps. If those do not suffice, a worker evaluates it, unless it
//! scans a long list. Otherwise it runs in turns with other scans, a slice at a time. An attempt that is given up
//! begins anew at the next place. That costs little, since it is given up where the long list begins.

mod documents;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anteroom_cel::{Budget, EvalError, JsonError, Machine, Roots};
use anteroom_model::{FactError, RetainedFields};
use anteroom_plan::{Index, IndexKey, ListHost, PACE_OBJECTS};
use anteroom_view::Select;
use anteroom_wire::{
    WireError,
    query::{CelOutcome, CelQuery, encode_cel},
};
use bytes::Bytes;

use documents::Documents;

use super::{
    batch::{Batch, Prepared},
    evaluator::Evaluator,
};
use crate::{
    derived::{AskedState, Derived},
    plan::{self, CelPlan},
    scan::{SLICE_OBJECTS, Turns},
};

/// Steps of an evaluation where its call arrived: about a tenth of a millisecond, on a machine that is not fast.
const INLINE_STEPS_MAX: u64 = 4_096;

/// A query in CEL with its plan and selections.
#[derive(Debug)]
pub(crate) struct CelPrepared {
    pub(super) plan: Arc<CelPlan>,
    /// The part of `view`, then the parts of the further documents, in the order of their names.
    pub(super) selects: Vec<Select>,
}

/// A query in CEL of a batch, with the batch.
#[derive(Clone, Copy)]
pub(super) struct CelQueryContext<'b> {
    batch: &'b Batch,
    prepared: &'b Prepared,
    cel: &'b CelPrepared,
    query: &'b CelQuery,
}

impl<'b> CelQueryContext<'b> {
    /// `None`: the query is not in CEL.
    pub(super) fn of(batch: &'b Batch, prepared: &'b Prepared) -> Option<Self> {
        Some(Self {
            batch,
            prepared,
            cel: prepared.cel()?,
            query: prepared.query.cel.as_deref()?,
        })
    }

    /// Checks that the view has all that the expression reads: a field that is not kept would seem to be absent.
    fn check_retained(self, kept: &RetainedFields) -> Result<(), FactError> {
        let names = plan::inputs(&self.prepared.query, self.query);
        let selects = self.cel.selects.iter().map(Select::shape);
        let documents: Vec<_> = names.zip(selects).collect();
        match kept.lacks(&self.cel.plan.reads(&documents)) {
            None => Ok(()),
            Some(path) => Err(FactError::NotRetained {
                view: self.batch.view.id().to_string(),
                path: match path.is_empty() {
                    true => "@".to_owned(),
                    false => path,
                },
            }),
        }
    }
}

/// The way in which an evaluation runs, which says how many objects it may look through.
#[derive(Debug)]
enum EvaluationPace<'b> {
    /// On arrival, in the call's task.
    Inline,
    /// On a worker.
    Worker,
    /// In turns with other scans.
    Turns(&'b Turns),
}

/// The surroundings of the lists of an evaluation.
#[derive(Debug)]
struct Host<'b> {
    /// `None`: it is to look through all objects.
    derived: Option<&'b Derived>,
    asked: AskedState<'b>,
    pace: EvaluationPace<'b>,
    has_asked: AtomicBool,
}

impl ListHost for Host<'_> {
    fn ask(&self, key: &IndexKey, ask: &mut dyn FnMut(&Index)) -> bool {
        let Some(derived) = self.derived else {
            return false;
        };
        let asked = derived.ask_index(self.asked, key, ask);
        self.has_asked.fetch_or(asked, Ordering::Relaxed);
        asked
    }

    fn goes_on(&self, looked_through: usize) -> bool {
        match self.pace {
            EvaluationPace::Inline => looked_through < PACE_OBJECTS,
            EvaluationPace::Worker => looked_through < SLICE_OBJECTS,
            EvaluationPace::Turns(turns) => {
                !looked_through.is_multiple_of(SLICE_OBJECTS) || turns.next()
            }
        }
    }
}

/// The outcome of an attempt.
enum Attempt {
    Done {
        result: Result<Bytes, FactError>,
        steps: u64,
        /// An index found the objects that matter.
        is_narrowed: bool,
        /// The objects that were looked through.
        examined: u64,
    },
    /// The evaluation looks through more objects than it may in this place.
    Cut,
}

impl Evaluator {
    /// Returns the result of a query in CEL, if it takes no time that another could miss. `inline_steps` are left for
    /// the queries of its request.
    pub(super) fn answer_cel_inline(
        &self,
        context: CelQueryContext<'_>,
        inline_steps: &mut u64,
    ) -> Option<Result<Bytes, FactError>> {
        let is_long = context.cel.plan.is_long() || *inline_steps < INLINE_STEPS_MAX;
        if self.verifies() || is_long {
            return None;
        }
        let (mut budget, _) = context.batch.deadline.limit(self.budget);
        budget.steps = budget.steps.min(INLINE_STEPS_MAX);
        let host = self.host(context.batch, EvaluationPace::Inline);
        let attempt = self.attempt(context, budget, &host);
        *inline_steps -= match attempt {
            Attempt::Done { steps, .. } => steps.min(INLINE_STEPS_MAX),
            Attempt::Cut => INLINE_STEPS_MAX,
        };
        match attempt {
            Attempt::Done {
                result: Err(FactError::BudgetExceeded { .. } | FactError::DeadlineExceeded { .. }),
                ..
            }
            | Attempt::Cut => {
                context.cel.plan.took_long(true);
                None
            }
            Attempt::Done {
                result,
                is_narrowed,
                examined,
                ..
            } => {
                self.note(context, is_narrowed, examined);
                Some(result)
            }
        }
    }

    /// Evaluates a query to its end, and returns the result.
    pub(super) async fn answer_cel_at_length(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Bytes, FactError> {
        let (result, is_narrowed) = match self.attempt_on_worker(batch, index).await? {
            Attempt::Done {
                result,
                is_narrowed,
                ..
            } => (result, is_narrowed),
            Attempt::Cut => (self.scan_cel(batch, index, true).await?, true),
        };
        if !(is_narrowed && self.is_verified()) {
            return result;
        }
        let all = self.scan_cel(batch, index, false).await?;
        let expression = match CelQueryContext::of(batch, &batch.queries[index]) {
            Some(context) => context.query.expression.as_str(),
            None => "",
        };
        self.verified_of(batch, expression, result, all)
    }

    async fn attempt_on_worker(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Attempt, FactError> {
        let permit = self.workers.take(batch.beneficiary.clone()).await;
        let (this, batch) = (Arc::clone(self), Arc::clone(batch));
        let span = tracing::Span::current();
        let attempt = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            // It may have waited for a thread.
            batch.deadline.check()?;
            let Some(context) = CelQueryContext::of(&batch, &batch.queries[index]) else {
                return Err(not_in_cel());
            };
            span.in_scope(|| Ok(this.attempt_at_length(context)))
        });
        attempt.await.unwrap_or_else(|error| {
            Err(FactError::EvaluationFailed {
                message: format!("the evaluation ended unexpectedly: {error}"),
            })
        })
    }

    fn attempt_at_length(&self, context: CelQueryContext<'_>) -> Attempt {
        if let Some(result) = self.cel_remembered(context) {
            return Attempt::Done {
                result,
                steps: 0,
                is_narrowed: false,
                examined: 0,
            };
        }
        let (budget, _) = context.batch.deadline.limit(self.budget);
        let host = self.host(context.batch, EvaluationPace::Worker);
        let attempt = self.attempt(context, budget, &host);
        if let Attempt::Done {
            result,
            steps,
            is_narrowed,
            examined,
        } = &attempt
        {
            context.cel.plan.took_long(*steps > INLINE_STEPS_MAX);
            self.note(context, *is_narrowed, *examined);
            self.remember_cel(context, result);
        }
        attempt
    }

    /// Evaluates a query in turns with other scans; with `by_index`, existing indexes are asked.
    async fn scan_cel(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
        by_index: bool,
    ) -> Result<Result<Bytes, FactError>, FactError> {
        let permit = batch.scans.acquire().await;
        let _permit = permit.map_err(|_| batch.deadline.exceeded())?;
        let (this, of) = (Arc::clone(self), Arc::clone(batch));
        let evaluate = move |turns: &Turns| {
            let Some(context) = CelQueryContext::of(&of, &of.queries[index]) else {
                return Err(not_in_cel());
            };
            let (budget, _) = of.deadline.limit(this.budget);
            let mut host = this.host(&of, EvaluationPace::Turns(turns));
            if !by_index {
                host.derived = None;
            }
            match this.attempt(context, budget, &host) {
                Attempt::Done {
                    result, examined, ..
                } => {
                    this.metrics.scanned();
                    // Without an index, this evaluation only verifies an answer that was counted before.
                    if by_index {
                        this.note(context, false, examined);
                    }
                    this.remember_cel(context, &result);
                    result
                }
                Attempt::Cut => Err(of.deadline.exceeded()),
            }
        };
        self.scans
            .in_turns(&batch.beneficiary, batch.deadline, evaluate)
            .await
    }

    fn host<'b>(&'b self, batch: &'b Batch, pace: EvaluationPace<'b>) -> Host<'b> {
        Host {
            derived: Some(&self.derived),
            asked: batch.asked(),
            pace,
            has_asked: AtomicBool::new(false),
        }
    }

    /// Counts an evaluation whose result is an answer.
    fn note(&self, context: CelQueryContext<'_>, is_narrowed: bool, examined: u64) {
        context.batch.examines(examined);
        self.metrics.evaluated();
        if is_narrowed {
            self.metrics.looked_up();
        }
    }

    /// Evaluates a query in one place.
    fn attempt(
        &self,
        context: CelQueryContext<'_>,
        budget: anteroom_jmespath::Budget,
        host: &Host<'_>,
    ) -> Attempt {
        let done = |result, steps, examined| Attempt::Done {
            result,
            steps,
            is_narrowed: host.has_asked.load(Ordering::Relaxed),
            examined,
        };
        let documents = match Documents::of(context, host) {
            Ok(documents) => documents,
            Err(error) => return done(Err(error), 0, 0),
        };
        let inputs = documents.inputs(context);
        let plan = &context.cel.plan;
        let limit = Budget {
            steps: budget.steps,
            built_bytes: budget.built_bytes,
            json_bytes: budget.json_bytes,
        };
        let mut machine =
            Machine::new(Roots::default(), &plan.variables, limit).with_inputs(&inputs);
        let value = machine.exact_json(&plan.program);
        let steps = budget.steps.saturating_sub(machine.budget().steps);
        if documents.are_cut() {
            return Attempt::Cut;
        }
        let is_shortened = budget.steps < self.budget.steps;
        done(
            outcome(value, budget).map_err(|error| match error {
                FactError::BudgetExceeded { .. } if is_shortened => {
                    context.batch.deadline.exceeded()
                }
                error => error,
            }),
            steps,
            documents.examined(),
        )
    }

    fn cel_remembered(&self, context: CelQueryContext<'_>) -> Option<Result<Bytes, FactError>> {
        if !context.cel.plan.is_deterministic {
            return None;
        }
        self.remembered_of(context.batch, context.prepared)
    }

    fn remember_cel(&self, context: CelQueryContext<'_>, result: &Result<Bytes, FactError>) {
        if context.cel.plan.is_deterministic {
            self.remember_of(context.batch, context.prepared, result);
        }
    }
}

/// The outcome of an evaluation, as a result.
fn outcome(
    value: Result<serde_json::Value, JsonError>,
    budget: anteroom_jmespath::Budget,
) -> Result<Bytes, FactError> {
    let exceeded = |message: String| Err(FactError::BudgetExceeded { message });
    let outcome = match value {
        Ok(value) => CelOutcome::Value(value),
        Err(JsonError::NoJson(kind)) => CelOutcome::NoJson { kind: kind.into() },
        Err(JsonError::Failed(EvalError::Input { name, .. })) => CelOutcome::Parameter { name },
        Err(JsonError::Failed(EvalError::Steps)) => {
            return exceeded(format!(
                "the expression takes more than {} steps",
                budget.steps
            ));
        }
        Err(JsonError::Failed(EvalError::Bytes)) => {
            return exceeded(format!(
                "the expression builds more than {} bytes, or JSON of more than {}",
                budget.built_bytes, budget.json_bytes
            ));
        }
        Err(JsonError::Failed(error)) if error.is_budget() => return exceeded(error.to_string()),
        Err(JsonError::Failed(error)) => CelOutcome::Failed {
            message: error.to_string(),
        },
    };
    encode_cel(&outcome).map_err(|error| match error {
        WireError::Limit { .. } => FactError::BudgetExceeded {
            message: format!("its result: {error}"),
        },
        other => FactError::EvaluationFailed {
            message: other.to_string(),
        },
    })
}

fn not_in_cel() -> FactError {
    FactError::EvaluationFailed {
        message: "the query is not in CEL".to_owned(),
    }
}
