//! Looking through all objects of a large view: by slices, side by side while nothing short is asked.
//!
//! A slice takes about a millisecond, and a scan waits for its turn before each slice. So scans share the cores one
//! slice at a time, however long each of them is, and a scan takes a second core only while no short query comes in.
//! An expression that cannot be evaluated slice by slice is evaluated whole. Those of one beneficiary leave a core free.
//!
//! A large view is scanned in slices of about 512 objects. A chain's value is the values of its slices, one
//! behind the other. A scan waits for its turn before each slice, so scans share the cores whatever their
//! length. A scan takes a second core only if no short query came for 10 ms. All slices share one budget and
//! one deadline. If a slice fails, the expression is evaluated whole, so that the first error in the list's
//! order is reported. An expression that cannot be sliced (`sort_by`, an index into the list) is evaluated
//! whole; those of one beneficiary leave a core free. Results of slices without parameters are remembered, so
//! after a change only the changed slices are evaluated again. A scan holds a snapshot, and changes go on
//! beside it.

mod pieces;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anteroom_jmespath::{Budget, Environment, EvalError, FunctionTable, MissingKey};
use anteroom_model::{FactError, limits::RESULT_BYTES_MAX};
use anteroom_plan::{NoPart, SliceResult, Sliced, Whole};
use anteroom_view::{Select, Snapshot};
use anteroom_wire::{beneficiary::Beneficiary, query::Query};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::{
    deadline::Deadline,
    derived::CountParameters,
    fair_slots::{FairSlot, FairSlots},
};
pub(crate) use pieces::{PartialResults, PieceKey, Pieces};
pub(crate) use turns::Turns;

/// The approximate number of objects in a slice, which ends with a whole stretch.
pub(crate) const SLICE_OBJECTS: usize = 512;

/// Steps after which a slice leaves its other stretches to a later turn: some milliseconds.
const SLICE_STEPS_MAX: u64 = 200_000;

/// The most steps of a stretch in a turn. An expression that takes more over so few objects is evaluated whole.
const STRETCH_STEPS_MAX: u64 = 1_000_000;

/// For how long no short query has come in before a scan takes more than one core.
const LULL: Duration = Duration::from_millis(10);

/// The evaluations in turns per core that may have a thread at once, for policies of the cluster, and as many for all
/// namespaces. More wait without a thread. The runtime has 512 threads for all work that blocks.
const PLACES_PER_CORE: usize = 2;

/// The resources that all scans share.
#[derive(Debug)]
pub(crate) struct Scans {
    /// The slots for slices, one for each evaluation of a slice.
    lanes: Arc<FairSlots>,
    /// The most lanes that one scan has at once.
    width: usize,
    /// The slots for evaluations over whole views, one for each core, and two at least. One beneficiary leaves a slot to
    /// the others.
    wholes: Arc<FairSlots>,
    /// The places of evaluations in turns for policies of namespaces. An evaluation has its place to its end, so one
    /// beneficiary leaves a place to the others.
    places: Arc<FairSlots>,
    /// The places for policies of the cluster, so that none waits for the end of a namespace's evaluation.
    cluster_places: Arc<FairSlots>,
    begun: Instant,
    /// The time of the last short query, in microseconds from `begun`.
    short_us: AtomicU64,
}

/// A scan of one state of a view.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) sliced: Arc<Sliced>,
    pub(crate) state: Snapshot,
    pub(crate) select: Select,
    pub(crate) query: Query,
    pub(crate) functions: &'static FunctionTable,
    pub(crate) budget: Budget,
    /// The first stretch of each slice, and the stretch after its last one.
    slices: Vec<(usize, usize)>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    next: usize,
    /// The rests of slices that took many steps.
    rests: Vec<(usize, usize)>,
    left: Budget,
    /// The results, one for each stretch.
    parts: Vec<Option<SliceResult>>,
    /// The bytes of the results that this scan has added.
    part_bytes: usize,
    fault: Option<NoPart>,
}

impl Scans {
    /// Returns lanes for the scans, one for each of `cores`. Without cores, no scan ends.
    pub(crate) fn new(cores: usize) -> Self {
        // An evaluation keeps its slot to its end, so with a single slot one beneficiary would hold up all others.
        let wholes = match cores {
            0 => 0,
            cores => cores.max(2),
        };
        Self {
            lanes: FairSlots::new(cores),
            width: cores,
            wholes: FairSlots::leaving_one(wholes),
            places: FairSlots::leaving_one(PLACES_PER_CORE * cores.max(1)),
            cluster_places: FairSlots::leaving_one(PLACES_PER_CORE * cores.max(1)),
            begun: Instant::now(),
            short_us: AtomicU64::new(0),
        }
    }

    /// A short query has come in.
    pub(crate) fn short(&self) {
        self.short_us.store(self.now_us(), Ordering::Relaxed);
    }

    /// Returns the number of lanes that one scan may take now.
    fn width(&self) -> usize {
        let since_us = self
            .now_us()
            .saturating_sub(self.short_us.load(Ordering::Relaxed));
        match Duration::from_micros(since_us) >= LULL {
            true => self.width,
            false => 1,
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Runs a scan to its end. `None`: it takes an evaluation
    /// over the whole list.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(crate) async fn run(
        &self,
        scan: &Arc<Scan>,
        beneficiary: &Beneficiary,
        deadline: Deadline,
    ) -> Result<Option<Result<Bytes, FactError>>, FactError> {
        while !scan.is_over() {
            deadline.check()?;
            let Ok(lane) = timeout(deadline.left(), self.lanes.take(beneficiary.clone())).await
            else {
                return Err(deadline.exceeded());
            };
            let mut running = vec![spawn(scan, lane, Scan::step)];
            for _ in 1..self.width() {
                // Others that wait come first.
                let Some(lane) = self.lanes.try_take(beneficiary.clone()) else {
                    break;
                };
                running.push(spawn(scan, lane, Scan::step));
            }
            for step in running {
                step.await.map_err(|error| unexpected(&error))?;
            }
        }
        let lane = self.lanes.take(beneficiary.clone()).await;
        let result = spawn(scan, lane, Scan::result).await;
        result.map_err(|error| unexpected(&error))
    }

    /// Runs an evaluation over a whole view.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(crate) async fn whole<R: Send + 'static>(
        &self,
        beneficiary: &Beneficiary,
        deadline: Deadline,
        evaluate: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, FactError> {
        let Ok(turn) = timeout(deadline.left(), self.wholes.take(beneficiary.clone())).await else {
            return Err(deadline.exceeded());
        };
        let span = tracing::Span::current();
        let evaluation = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            span.in_scope(evaluate)
        });
        evaluation.await.map_err(|error| unexpected(&error))
    }
}

fn spawn<R: Send + 'static>(
    scan: &Arc<Scan>,
    lane: FairSlot,
    work: fn(&Scan) -> R,
) -> tokio::task::JoinHandle<R> {
    let (scan, span) = (Arc::clone(scan), tracing::Span::current());
    tokio::task::spawn_blocking(move || {
        let _lane = lane;
        span.in_scope(|| work(&scan))
    })
}

fn unexpected(error: &tokio::task::JoinError) -> FactError {
    FactError::EvaluationFailed {
        message: format!("the evaluation ended unexpectedly: {error}"),
    }
}

impl Scan {
    /// A scan of all objects, but for the stretches of which `pieces` are known.
    pub(crate) fn new(
        sliced: Arc<Sliced>,
        state: &Snapshot,
        select: &Select,
        query: &Query,
        functions: &'static FunctionTable,
        budget: Budget,
        pieces: Option<&Pieces>,
    ) -> Self {
        let (mut parts, mut slices) = (Vec::new(), Vec::new());
        let (mut begun, mut objects) = (0, 0);
        for (at, stretch) in state.read().stretches().enumerate() {
            let known = pieces.and_then(|pieces| pieces.get(stretch));
            objects += match known {
                Some(_) => 0,
                None => stretch.objects().len(),
            };
            parts.push(known);
            if objects >= SLICE_OBJECTS {
                slices.push((begun, at + 1));
                (begun, objects) = (at + 1, 0);
            }
        }
        if objects > 0 {
            slices.push((begun, parts.len()));
        }
        Self {
            sliced,
            state: state.clone(),
            select: select.clone(),
            query: query.clone(),
            functions,
            budget,
            slices,
            progress: Mutex::new(Progress {
                next: 0,
                rests: Vec::new(),
                left: budget,
                parts,
                part_bytes: 0,
                fault: None,
            }),
        }
    }

    /// The number of slices that are to be evaluated.
    #[cfg(test)]
    pub(crate) fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Returns true if no slice is left to begin with.
    pub(crate) fn is_over(&self) -> bool {
        let progress = self.progress.lock();
        let has_begun_all = progress.next >= self.slices.len() && progress.rests.is_empty();
        progress.fault.is_some() || has_begun_all
    }

    /// Evaluates the next slice, or as much of it as may be in a turn.
    pub(crate) fn step(&self) {
        let Some((begin, end)) = self.progress.lock().next_slice(&self.slices) else {
            return;
        };
        let mut steps = 0;
        let read = self.state.read();
        let stretches = read.stretches().enumerate();
        for (at, stretch) in stretches.skip(begin).take(end - begin) {
            if steps >= SLICE_STEPS_MAX {
                self.progress.lock().rests.push((at, end));
                return;
            }
            let left = match &*self.progress.lock() {
                Progress { fault: Some(_), .. } => return,
                Progress { parts, .. } if parts.get(at).is_some_and(Option::is_some) => continue,
                Progress { left, .. } => *left,
            };
            let given = Budget {
                steps: left.steps.min(STRETCH_STEPS_MAX),
                ..left
            };
            let mut after = given;
            let part = match self.select.among(read, stretch.objects().iter()) {
                Some(some) => self
                    .sliced
                    .part(some.array(), &self.environment(), &mut after),
                None => Err(NoPart::Failed),
            };
            let part = part.map_err(|fault| match fault {
                NoPart::Budget(_) if given.steps < left.steps => NoPart::Failed,
                fault => fault,
            });
            steps += given.steps - after.steps;
            self.progress.lock().settle(at, part, given, after);
        }
    }

    /// Returns the result; `None`: it needs an evaluation over the whole list.
    pub(crate) fn result(&self) -> Option<Result<Bytes, FactError>> {
        let progress = self.progress.lock();
        match &progress.fault {
            Some(NoPart::Budget(error)) => {
                let message = self.over_budget(error).to_string();
                return Some(Err(FactError::BudgetExceeded { message }));
            }
            Some(NoPart::Failed) => return None,
            None => {}
        }
        let whole = self.sliced.whole(progress.parts.iter().flatten())?;
        drop(progress);
        let (values, rest) = match (whole, self.sliced.rest()) {
            (Whole::Result(bytes), _) => return Some(Ok(bytes)),
            (Whole::Values(values), Some(rest)) => (values, rest),
            (Whole::Values(_), None) => return None,
        };
        let environment = self.environment();
        let bound = CountParameters {
            counts: self.sliced.counts(),
            values: &values,
            own: environment.parameters,
        };
        let none = self.select.among(self.state.read(), [].iter())?;
        Some(none.evaluate(rest, &environment.with_parameters(&bound)))
    }

    /// Returns the part that each stretch gave, for the next scan of the same query.
    pub(crate) fn pieces(&self) -> Pieces {
        let progress = self.progress.lock();
        let stretches = self.state.read().stretches().zip(&progress.parts);
        stretches
            .filter_map(|(stretch, part)| Some((stretch.mark(), part.clone()?)))
            .collect()
    }

    fn environment(&self) -> Environment<'_> {
        Environment {
            functions: self.functions,
            parameters: &self.query.parameters,
            missing_key: match self.query.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            budget: self.budget,
            seed: None,
        }
    }

    /// Returns the error with the limit of the whole scan. A slice knows only the rest of that limit.
    fn over_budget(&self, error: &EvalError) -> EvalError {
        use anteroom_jmespath::BudgetKind;
        let EvalError::Budget { which, .. } = error else {
            return error.clone();
        };
        let limit = match which {
            BudgetKind::Steps => self.budget.steps,
            BudgetKind::BuiltBytes => self.budget.built_bytes,
            _ => u64::from(self.budget.depth),
        };
        EvalError::Budget {
            which: *which,
            limit,
        }
    }
}

impl Progress {
    /// Takes the next slice to evaluate, or the rest of one that was begun.
    fn next_slice(&mut self, slices: &[(usize, usize)]) -> Option<(usize, usize)> {
        if let Some(rest) = self.rests.pop() {
            return Some(rest);
        }
        let slice = slices.get(self.next)?;
        self.next += 1;
        Some(*slice)
    }

    /// Takes the result of a stretch, and the part of the budget that it used. Slices that run side by side may each
    /// have counted on the same rest.
    fn settle(
        &mut self,
        at: usize,
        part: Result<SliceResult, NoPart>,
        before: Budget,
        after: Budget,
    ) {
        use anteroom_jmespath::BudgetKind;
        let over = |which| {
            NoPart::Budget(EvalError::Budget { which, limit: 0 }) // The limit is said in the end.
        };
        let steps = before.steps - after.steps;
        let built_bytes = before.built_bytes - after.built_bytes;
        let part_bytes = part.as_ref().map_or(0, SliceResult::bytes);
        let fault = match (&part, self.left.steps.checked_sub(steps)) {
            (Err(fault), _) => Some(fault.clone()),
            (_, None) => Some(over(BudgetKind::Steps)),
            (Ok(_), Some(_)) if self.left.built_bytes < built_bytes => {
                Some(over(BudgetKind::BuiltBytes))
            }
            // No further ones are held: the evaluation over the whole list says that the result is too long.
            _ if self.part_bytes + part_bytes > RESULT_BYTES_MAX => Some(NoPart::Failed),
            _ => None,
        };
        self.part_bytes += part_bytes;
        self.left.steps = self.left.steps.saturating_sub(steps);
        self.left.built_bytes = self.left.built_bytes.saturating_sub(built_bytes);
        // An error of the expression on an object does not depend on the cost of the slices.
        if self.fault.is_none() || fault == Some(NoPart::Failed) {
            self.fault = fault.or(self.fault.take());
        }
        if let (Ok(part), Some(slot)) = (part, self.parts.get_mut(at)) {
            *slot = Some(part);
        }
    }
}

#[cfg(test)]
mod tests;
