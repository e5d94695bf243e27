//! What queries take of the list as a whole, kept while it changes: see [`crate::kept`].

use std::sync::Arc;

use anteroom_jmespath::Parameters;
use anteroom_mirror::ViewHandle;
use anteroom_plan::{
    Aggregate, AggregateKey, AggregateTerm, Aggregated, Counted, Document, IndexKey,
    Parameters as OfChains, aggregate,
};
use anteroom_view::{Select, Snapshot};
use anteroom_wire::query::Query;
use moka::sync::Cache;
use serde_json::Value;

use crate::{
    indexes::Indexes,
    kept::Kept,
    narrowed::{ExpressionKey, document, value},
    plan::Plan,
};

/// Expressions of which it is kept what they take of the list. Each takes about a kilobyte.
const FOUND_MAX: u64 = 4_096;

/// All aggregates of a replica.
#[derive(Debug)]
pub(crate) struct Aggregates {
    pub(crate) kept: Arc<Kept<Aggregate>>,
    indexes: Arc<Indexes>,
    found: Cache<ExpressionKey, Option<Arc<Found>>>,
}

/// An expression without its terms over the list.
#[derive(Debug)]
struct Found {
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
        Bound { eased: self, own }
    }
}

struct Bound<'e> {
    eased: &'e Eased,
    own: &'e dyn Parameters,
}

impl Parameters for Bound<'_> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        let mut terms = self.eased.found.terms.iter();
        match terms.position(|term| term.parameter == name) {
            Some(at) => self.eased.values.get(at),
            None => self.own.parameter(name),
        }
    }
}

impl Aggregates {
    pub(crate) fn new(kept: Arc<Kept<Aggregate>>, indexes: Arc<Indexes>) -> Self {
        Self {
            kept,
            indexes,
            found: Cache::new(FOUND_MAX),
        }
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
        let found = self.found(plan, document)?;
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

    fn found(&self, plan: &Plan, document: Document<'_>) -> Option<Arc<Found>> {
        let key = ExpressionKey::of(plan, document);
        self.found.get_with(key, || {
            let Aggregated { rest, terms } =
                aggregate(&plan.expression, document, OfChains::Refused)?;
            let rest = Plan {
                expression: rest,
                repeatable: plan.repeatable,
            };
            Some(Arc::new(Found { rest, terms }))
        })
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
        let strict = of.query.missing_key_is_error;
        let key = IndexKey::of(&counted.lookup, strict, of.bare);
        let wanted = value(&counted.lookup, of.query)?;
        let agree = self
            .indexes
            .ask(of.view, of.state, key, |index| index.exact(&wanted))??;
        let all = of.state.read().len();
        Some(match counted.others {
            true => all.saturating_sub(agree) as u64,
            false => agree as u64,
        })
    }
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
