//! The traits of one query, found out when they are asked for, and the data found with them.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_plan::Sliced;
use anteroom_view::Object;
use bytes::Bytes;

use super::{
    batch::QueryContext,
    evaluator::Evaluator,
    path::{INLINE_OBJECTS_MAX, QueryTraits},
};
use crate::{
    derived::{LookupContext, LookupLimit, RewrittenQuery},
    plan::document,
};

/// The objects that can make a difference to a query.
pub(super) struct IndexHits {
    pub(super) objects: Vec<Object>,
    /// The query that is evaluated over them, where counts were substituted in it.
    pub(super) rewritten: Option<RewrittenQuery>,
}

/// The traits of one query, each found out when it is asked for.
pub(super) struct LazyTraits<'e> {
    evaluator: &'e Evaluator,
    context: QueryContext<'e>,
    pub(super) found: Option<IndexHits>,
    pub(super) remembered: Option<Result<Bytes, FactError>>,
    pub(super) sliced: Option<Arc<Sliced>>,
}

impl<'e> LazyTraits<'e> {
    pub(super) fn new(evaluator: &'e Evaluator, context: QueryContext<'e>) -> Self {
        Self {
            evaluator,
            context,
            found: None,
            remembered: None,
            sliced: None,
        }
    }

    fn find(&self, limit: LookupLimit) -> Option<IndexHits> {
        let QueryContext { plan, select, .. } = self.context;
        let asked = self.context.batch.asked();
        let query = self.context.query();
        let derived = &self.evaluator.derived;
        let rewritten = derived.substitute_counts(asked, plan, select, query);
        let objects = {
            let parameters = rewritten
                .as_ref()
                .map(|rewritten| rewritten.parameters(&query.parameters));
            let context = LookupContext {
                asked,
                parameters: match &parameters {
                    Some(parameters) => parameters,
                    None => &query.parameters,
                },
                missing_key_is_error: query.missing_key_is_error,
                bare: select.is_bare(asked.state.read()),
                wait_max: limit.wait_max,
            };
            let plan = rewritten.as_ref().map_or(plan, RewrittenQuery::plan);
            derived.find(plan, select, &context, limit)?
        };
        let bytes: usize = objects.iter().map(|object| object.body().len()).sum();
        if bytes > limit.bytes {
            return None;
        }
        match rewritten {
            Some(_) => self.evaluator.metrics.counted(),
            None => self.evaluator.metrics.looked_up(),
        }
        Some(IndexHits { objects, rewritten })
    }
}

impl QueryTraits for LazyTraits<'_> {
    fn is_verified(&self) -> bool {
        self.evaluator.verifies()
    }

    fn objects(&self) -> usize {
        self.context.read().len()
    }

    fn selected(&self, most: usize) -> usize {
        self.context.select.looks_at(self.context.read(), most)
    }

    fn selects_at_most(&self, objects: usize, bytes: usize) -> bool {
        let read = self.context.read();
        self.context.select.is_within(read, objects, bytes)
    }

    fn finds(&mut self, limit: LookupLimit) -> bool {
        // Objects that are so few are looked through as fast.
        if self.objects() > INLINE_OBJECTS_MAX {
            self.found = self.find(limit);
        }
        self.found.is_some()
    }

    fn is_remembered(&mut self) -> bool {
        self.remembered = self.evaluator.remembered(self.context);
        self.remembered.is_some()
    }

    fn is_sliceable(&mut self) -> bool {
        let QueryContext { plan, select, .. } = self.context;
        let read = self.context.read();
        let cut = |document| plan.sliced(document);
        // A selection that a slice cannot tell cannot be cut: one with a limit.
        let is_listed = select.among(read, [].iter()).is_some();
        self.sliced = document(select, read).and_then(cut).filter(|_| is_listed);
        self.sliced.is_some()
    }
}
