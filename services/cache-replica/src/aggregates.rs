//! What queries take of the list as a whole, kept while it changes: see [`crate::kept`].

use std::sync::Arc;

use anteroom_jmespath::Parameters;
use anteroom_mirror::ViewHandle;
use anteroom_plan::{
    Aggregate, AggregateKey, AggregateTerm, Aggregated, Counted, Document, Index,
    Parameters as OfChains, Scalar, aggregate,
};
use anteroom_view::{Select, Snapshot};
use anteroom_wire::query::Query;
use serde_json::Value;

use crate::{
    indexes::{Asked, Indexes},
    kept::Kept,
    narrowed::document,
    per_document::PerDocument,
    plan::Plan,
};

/// What an expression takes of the list as a whole; `None`: nothing.
pub(crate) type Aggregations = PerDocument<Option<Arc<Found>>>;

/// All aggregates of a replica.
#[derive(Debug)]
pub(crate) struct Aggregates {
    pub(crate) kept: Arc<Kept<Aggregate>>,
    indexes: Arc<Indexes>,
}

/// An expression without its terms over the list.
#[derive(Debug)]
pub(crate) struct Found {
    rest: Plan,
    terms: Vec<AggregateTerm>,
}

/// An expression with what is kept in the place of its terms over the list.
#[derive(Debug)]
pub(crate) struct Eased {
    found: Arc<Found>,
    values: Vec<Value>,
}

impl Eased {
    /// What is left to evaluate.
    pub(crate) fn rest(&self) -> &Plan {
        &self.found.rest
    }

    /// The parameters for it: the query's, and what is kept.
    pub(crate) fn parameters<'e>(&'e self, own: &'e dyn Parameters) -> impl Parameters + 'e {
        Bound {
            terms: &self.found.terms,
            values: &self.values,
            own,
        }
    }
}

/// A query's own parameters, and those that stand for terms over the list.
pub(crate) struct Bound<'e> {
    pub(crate) terms: &'e [AggregateTerm],
    /// By term.
    pub(crate) values: &'e [Value],
    pub(crate) own: &'e dyn Parameters,
}

impl Parameters for Bound<'_> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        let mut terms = self.terms.iter();
        match terms.position(|term| term.parameter == name) {
            Some(at) => self.values.get(at),
            None => self.own.parameter(name),
        }
    }
}

impl Aggregates {
    pub(crate) fn new(kept: Arc<Kept<Aggregate>>, indexes: Arc<Indexes>) -> Self {
        Self { kept, indexes }
    }

    /// The query with what is kept in it; `None` where it takes nothing of the list as a whole, or not
    /// all of it is kept yet, or can be.
    pub(crate) fn ease(
        &self,
        view: &ViewHandle,
        state: &Snapshot,
        (plan, select): (&Plan, &Select),
        query: &Query,
    ) -> Option<Eased> {
        let document = document(select, state.read())?;
        let found = plan.aggregations.get(document, || found(plan, document))?;
        let namespace = select.whole_namespace(state.read())?;
        let of = Of {
            view,
            state,
            query,
            namespace,
            bare: select.is_bare(state.read()),
        };
        // All are asked, so that all are built at once.
        let values: Vec<_> = found
            .terms
            .iter()
            .map(|term| self.value(of, term))
            .collect();
        let values = values.into_iter().collect::<Option<_>>()?;
        Some(Eased { found, values })
    }

    fn value(&self, of: Of<'_>, term: &AggregateTerm) -> Option<Value> {
        if let Some(counted) = &term.counted {
            return term.measure.of_count(self.count(of, counted)?);
        }
        let by_namespace = !of.namespace.is_empty();
        if term.is_of_all_objects()
            && !by_namespace
            && let Some(value) = term.measure.of_count(of.state.read().len() as u64)
        {
            return Some(value);
        }
        let strict = of.query.missing_key_is_error;
        let key = AggregateKey::of(term, by_namespace, strict, of.bare);
        let ask = |kept: &Aggregate| kept.value(of.namespace, term.measure);
        self.kept.ask(of.view, of.state, key, ask)?
    }

    /// How many objects agree with the request, or do not.
    fn count(&self, of: Of<'_>, counted: &Counted) -> Option<u64> {
        if !of.namespace.is_empty() {
            return None;
        }
        let asked = Asked {
            parameters: &of.query.parameters,
            missing_key_is_error: of.query.missing_key_is_error,
            bare: of.bare,
        };
        let wanted = asked.operand(&counted.probe).and_then(Scalar::of_json)?;
        let key = asked.key(&counted.probe);
        let exact = |index: &Index| index.exact(&wanted);
        let agree = self.indexes.ask(of.view, of.state, key, exact)??;
        let all = of.state.read().len();
        Some(match counted.others {
            true => all.saturating_sub(agree) as u64,
            false => agree as u64,
        })
    }
}

fn found(plan: &Plan, document: Document<'_>) -> Option<Arc<Found>> {
    let Aggregated { rest, terms } = aggregate(&plan.expression, document, OfChains::Refused)?;
    let rest = Plan::new(rest, plan.repeatable);
    Some(Arc::new(Found { rest, terms }))
}

/// What is asked, and of which state.
#[derive(Clone, Copy)]
struct Of<'a> {
    view: &'a ViewHandle,
    state: &'a Snapshot,
    query: &'a Query,
    /// Whose objects are meant; empty for all.
    namespace: &'a str,
    bare: bool,
}
