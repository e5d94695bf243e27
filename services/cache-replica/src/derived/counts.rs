//! Answers the counts of a query, and puts them in the place of their subexpressions.

use std::sync::Arc;

use anteroom_jmespath::Parameters;
use anteroom_plan::{Count, Counter, CounterKey, Index, IndexedCount, Scalar};
use anteroom_view::Select;
use anteroom_wire::query::Query;
use serde_json::Value;

use super::{AskedState, Derived, LookupContext, WAIT_MAX};
use crate::plan::{CountedPlan, Plan, document};

/// A query with its counts replaced by parameters.
#[derive(Debug)]
pub(crate) struct RewrittenQuery {
    counted: Arc<CountedPlan>,
    values: Vec<Value>,
}

impl RewrittenQuery {
    /// The plan of the rest of the query.
    pub(crate) fn plan(&self) -> &Plan {
        &self.counted.rest
    }

    /// Returns the parameters of the rewritten expression: the query's own, and the counts.
    pub(crate) fn parameters<'e>(&'e self, own: &'e dyn Parameters) -> CountParameters<'e> {
        CountParameters {
            counts: &self.counted.counts,
            values: &self.values,
            own,
        }
    }
}

/// Parameters of which some stand for counts.
pub(crate) struct CountParameters<'e> {
    pub(crate) counts: &'e [Count],
    /// The values of the counts, one for each.
    pub(crate) values: &'e [Value],
    /// The parameters of the request.
    pub(crate) own: &'e dyn Parameters,
}

impl Parameters for CountParameters<'_> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        let mut counts = self.counts.iter();
        match counts.position(|count| count.parameter == name) {
            Some(at) => self.values.get(at),
            None => self.own.parameter(name),
        }
    }
}

/// A query, and the state that its objects are counted in.
#[derive(Clone, Copy)]
struct CountContext<'a> {
    asked: AskedState<'a>,
    query: &'a Query,
    /// The namespace whose objects are counted; empty for all.
    namespace: &'a str,
    bare: bool,
}

impl Derived {
    /// Replaces the counts of a query by parameters. `None`: the query has no counts, or one of them is unknown.
    pub(crate) fn substitute_counts(
        &self,
        asked: AskedState<'_>,
        plan: &Plan,
        select: &Select,
        query: &Query,
    ) -> Option<RewrittenQuery> {
        let state = asked.state;
        let counted = plan.counted(document(select, state.read())?)?;
        let context = CountContext {
            asked,
            query,
            namespace: select.whole_namespace(state.read())?,
            bare: select.is_bare(state.read()),
        };
        // All are asked, so that all are built at once.
        let value = |count: &Count| {
            let number = self.number(context, count)?;
            Some(count.measure.value(number))
        };
        let values: Vec<_> = counted.counts.iter().map(value).collect();
        let values = values.into_iter().collect::<Option<_>>()?;
        Some(RewrittenQuery { counted, values })
    }

    fn number(&self, context: CountContext<'_>, count: &Count) -> Option<u64> {
        if let Some(by_index) = &count.by_index {
            return self.number_by_index(context, by_index);
        }
        let by_namespace = !context.namespace.is_empty();
        if count.is_of_all_objects() && !by_namespace {
            return Some(context.asked.state.read().len() as u64);
        }
        let strict = context.query.missing_key_is_error;
        let key = CounterKey::of(count, by_namespace, strict, context.bare);
        let ask = |counter: &Counter| counter.count(context.namespace);
        self.counters.ask(context.asked, key, WAIT_MAX, ask)?
    }

    fn number_by_index(&self, context: CountContext<'_>, count: &IndexedCount) -> Option<u64> {
        if !context.namespace.is_empty() {
            return None;
        }
        let lookup = LookupContext {
            asked: context.asked,
            parameters: &context.query.parameters,
            missing_key_is_error: context.query.missing_key_is_error,
            bare: context.bare,
            wait_max: WAIT_MAX,
        };
        let wanted = lookup.operand(&count.probe).and_then(Scalar::of_json)?;
        let key = lookup.key(&count.probe);
        let exact = |index: &Index| index.exact(&wanted);
        let agree = self.indexes.ask(context.asked, key, WAIT_MAX, exact)??;
        let all = context.asked.state.read().len();
        Some(match count.negated {
            true => all.saturating_sub(agree) as u64,
            false => agree as u64,
        })
    }
}
