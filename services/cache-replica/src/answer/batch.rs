//! The queries of one request, and the state of the view that all of them are answered from.

use std::sync::{Arc, OnceLock};

use anteroom_jmespath::{Budget, Environment, FunctionTable, MissingKey};
use anteroom_mirror::{ReadPosition, ViewHandle};
use anteroom_model::FactError;
use anteroom_view::{Read, Select, Snapshot};
use anteroom_wire::query::Query;
use tokio::sync::Semaphore;

use crate::{
    deadline::Deadline,
    memo::QueryKey,
    plan::{Plan, Plans},
};

/// A query with all that can be known before the data.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) query: Query,
    plan: Result<(Arc<Plan>, Select), FactError>,
    /// Most queries are never looked for in the memo.
    key: OnceLock<QueryKey>,
}

/// The queries of one request over one state of one view.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) view: ViewHandle,
    pub(super) state: Snapshot,
    pub(super) position: ReadPosition,
    pub(super) queries: Vec<Prepared>,
    pub(super) deadline: Deadline,
    /// Places for queries of it that look at the whole view.
    pub(super) scans: Semaphore,
}

/// One query, and what it is asked of.
#[derive(Clone, Copy)]
pub(super) struct Asking<'b> {
    pub(super) batch: &'b Batch,
    pub(super) prepared: &'b Prepared,
    pub(super) plan: &'b Plan,
    pub(super) select: &'b Select,
}

impl Prepared {
    pub(super) fn new(query: Query, plans: &Plans) -> Self {
        let plan = |query: &Query| {
            let select = match &query.selection {
                Some(selection) => Select::new(selection)?,
                None => Select::default(),
            };
            Ok((plans.get(&query.expression)?, select))
        };
        Self {
            plan: plan(&query),
            key: OnceLock::new(),
            query,
        }
    }

    /// What of a view it is about; `None` where it cannot be answered at all.
    pub(super) fn select(&self) -> Option<&Select> {
        self.plan.as_ref().ok().map(|(_, select)| select)
    }

    /// What it is, as a key.
    pub(super) fn key(&self) -> &QueryKey {
        self.key.get_or_init(|| QueryKey::of(&self.query))
    }
}

impl Batch {
    /// One of its queries.
    ///
    /// # Errors
    /// Why it cannot be answered at all.
    pub(super) fn asking<'b>(&'b self, prepared: &'b Prepared) -> Result<Asking<'b>, FactError> {
        match &prepared.plan {
            Ok((plan, select)) => Ok(Asking {
                batch: self,
                prepared,
                plan,
                select,
            }),
            Err(error) => Err(error.clone()),
        }
    }
}

impl<'b> Asking<'b> {
    pub(super) fn read(&self) -> Read<'b> {
        self.batch.state.read()
    }

    pub(super) fn query(&self) -> &'b Query {
        &self.prepared.query
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.batch.deadline
    }

    /// How many objects there are.
    pub(super) fn objects(&self) -> u64 {
        self.batch.position.objects
    }

    /// What it is evaluated in.
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
            occasion: None,
        }
    }
}
