//! The queries of one request, and the one state of the view that answers all of them.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use anteroom_jmespath::{Budget, Environment, FunctionTable, MissingKey};
use anteroom_mirror::{ReadPosition, ViewHandle};
use anteroom_model::FactError;
use anteroom_view::{Read, Select, Snapshot};
use anteroom_wire::{beneficiary::Beneficiary, query::Query};
use tokio::sync::Semaphore;

use super::cel::CelPrepared;
use crate::{
    deadline::Deadline,
    derived::AskedState,
    memo::QueryKey,
    plan::{Plan, Plans},
};

/// Queries of one request that look at the whole view at once: each may build as much as an evaluation
/// may. One more waits, and so may miss its deadline; its errors are its own.
const SCANS_PER_REQUEST: usize = 4;

/// A query with its plan and selection, or the reason why it has none.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) query: Query,
    plan: Result<PreparedPlan, FactError>,
    /// Most queries are never looked for in the memo.
    key: OnceLock<QueryKey>,
}

/// A plan with its selections.
#[derive(Debug)]
enum PreparedPlan {
    Jmespath(Arc<Plan>, Select),
    Cel(CelPrepared),
}

/// The queries of a request, all over the same state of a view.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) view: ViewHandle,
    pub(crate) state: Snapshot,
    pub(crate) position: ReadPosition,
    pub(crate) queries: Vec<Prepared>,
    pub(crate) beneficiary: Beneficiary,
    pub(crate) deadline: Deadline,
    /// A permit for each query of the batch that scans the whole view.
    pub(super) scans: Semaphore,
    examined: AtomicU64,
}

/// A query of a batch, with the batch.
#[derive(Clone, Copy)]
pub(super) struct QueryContext<'b> {
    pub(super) batch: &'b Batch,
    pub(super) prepared: &'b Prepared,
    pub(super) plan: &'b Plan,
    pub(super) select: &'b Select,
}

impl Prepared {
    pub(crate) fn new(query: Query, plans: &Plans) -> Self {
        let plan = |query: &Query| {
            let select = match &query.selection {
                Some(selection) => Select::new(selection)?,
                None => Select::default(),
            };
            let Some(cel) = &query.cel else {
                return Ok(PreparedPlan::Jmespath(
                    plans.get(&query.expression)?,
                    select,
                ));
            };
            let mut selects = vec![select];
            for selection in cel.documents.values() {
                selects.push(Select::new(selection)?);
            }
            let plan = plans.cel(query, cel)?;
            Ok(PreparedPlan::Cel(CelPrepared { plan, selects }))
        };
        Self {
            plan: plan(&query),
            key: OnceLock::new(),
            query,
        }
    }

    /// Returns the parts of a view that the query is about; none if the query cannot be answered.
    pub(crate) fn selects(&self) -> impl Iterator<Item = &Select> {
        let selects = match &self.plan {
            Ok(PreparedPlan::Jmespath(_, select)) => std::slice::from_ref(select),
            Ok(PreparedPlan::Cel(cel)) => &*cel.selects,
            Err(_) => &[],
        };
        selects.iter()
    }

    /// The query, if its language is CEL.
    pub(super) fn cel(&self) -> Option<&CelPrepared> {
        match &self.plan {
            Ok(PreparedPlan::Cel(cel)) => Some(cel),
            _ => None,
        }
    }

    /// Returns the query's key in caches of results.
    pub(super) fn key(&self) -> &QueryKey {
        self.key.get_or_init(|| QueryKey::of(&self.query))
    }
}

impl Batch {
    pub(crate) fn new(
        view: ViewHandle,
        state: Snapshot,
        position: ReadPosition,
        queries: Vec<Prepared>,
        beneficiary: Beneficiary,
        deadline: Deadline,
    ) -> Self {
        Self {
            view,
            state,
            position,
            queries,
            beneficiary,
            deadline,
            scans: Semaphore::new(SCANS_PER_REQUEST),
            examined: AtomicU64::new(0),
        }
    }

    /// Returns the state that its queries are over, and who asks them.
    pub(super) fn asked(&self) -> AskedState<'_> {
        AskedState {
            view: &self.view,
            state: &self.state,
            namespace: self.beneficiary.policy_namespace(),
        }
    }

    /// Returns the number of objects that its queries were evaluated over.
    pub(crate) fn examined(&self) -> u64 {
        self.examined.load(Ordering::Relaxed)
    }

    /// Counts objects that a query is evaluated over.
    pub(super) fn examines(&self, objects: u64) {
        self.examined.fetch_add(objects, Ordering::Relaxed);
    }

    /// Returns one of its queries with its plan.
    ///
    /// # Errors
    /// The expression or the selection is invalid.
    pub(super) fn context<'b>(
        &'b self,
        prepared: &'b Prepared,
    ) -> Result<QueryContext<'b>, FactError> {
        match &prepared.plan {
            Ok(PreparedPlan::Jmespath(plan, select)) => Ok(QueryContext {
                batch: self,
                prepared,
                plan,
                select,
            }),
            Ok(PreparedPlan::Cel(_)) => Err(FactError::RequestInvalid {
                message: "the query is in CEL".to_owned(),
            }),
            Err(error) => Err(error.clone()),
        }
    }
}

impl<'b> QueryContext<'b> {
    pub(super) fn read(&self) -> Read<'b> {
        self.batch.state.read()
    }

    pub(super) fn query(&self) -> &'b Query {
        &self.prepared.query
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.batch.deadline
    }

    /// Counts the objects that the query looks at: `found`, or all selected objects.
    pub(super) fn examines(&self, found: Option<usize>) {
        let read = self.read();
        let objects = found.unwrap_or_else(|| self.select.looks_at(read, read.len()));
        self.batch.examines(objects as u64);
    }

    /// The environment of its evaluation.
    pub(super) fn environment(
        &self,
        functions: &'static FunctionTable,
        budget: Budget,
    ) -> Environment<'b> {
        let query = self.query();
        Environment {
            functions,
            parameters: &query.parameters,
            missing_key: match query.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            budget,
            seed: None,
        }
    }
}
