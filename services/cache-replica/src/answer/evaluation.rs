//! One query: the objects that it has to look at, and the evaluation over them.

use std::time::Instant;

use anteroom_jmespath::Parameters;
use anteroom_model::FactError;
use anteroom_view::Object;
use bytes::Bytes;

use super::{Answerer, INLINE_OBJECTS_MAX, batch::Asking};
use crate::{aggregates::Eased, indexes::Asked, narrowed::Most};

/// The most bytes of a result that is worked out as soon as it is found among those that are kept.
const QUICK_BYTES_MAX: usize = 2 * 1024;

/// What a query has to look at.
pub(super) struct Found {
    objects: Vec<Object>,
    /// What is evaluated over them, where that is not the query as it is.
    eased: Option<Eased>,
}

impl Answerer {
    /// The objects that can make a difference, where they are known to be no more than `most`.
    pub(super) fn found(&self, asking: Asking<'_>, most: Most) -> Option<Found> {
        if asking.objects() <= INLINE_OBJECTS_MAX {
            return None; // They are looked through as fast.
        }
        let Asking { plan, select, .. } = asking;
        let (view, state) = (&asking.batch.view, &asking.batch.state);
        let query = asking.query();
        let eased = self.aggregates.ease(view, state, (plan, select), query);
        let plan = eased.as_ref().map_or(plan, Eased::rest);
        let objects = {
            let bound = eased
                .as_ref()
                .map(|eased| eased.parameters(&query.parameters));
            let asked = Asked {
                parameters: bound
                    .as_ref()
                    .map_or(&query.parameters as &dyn Parameters, |bound| bound),
                missing_key_is_error: query.missing_key_is_error,
                bare: select.is_bare(state.read()),
            };
            self.narrowed
                .find((view, state), (plan, select), &asked, most)?
        };
        match eased {
            Some(_) => self.metrics.eased(),
            None => self.metrics.looked_up(),
        }
        Some(Found { objects, eased })
    }

    /// The result of one query over these objects, or over all. What was to be done for it was `begun`
    /// then.
    pub(super) fn over(
        &self,
        asking: Asking<'_>,
        found: Option<&Found>,
        begun: Instant,
    ) -> Result<Bytes, FactError> {
        let Asking { plan, select, .. } = asking;
        let (budget, shortened) = asking.deadline().limit(self.budget);
        let environment = asking.environment(self.plans.functions(), budget);
        let read = asking.read();
        let all = || {
            let selected = select.of(read)?;
            selected.evaluate(&plan.expression, &environment)
        };
        let few = |found: &Found| {
            let few = select.among(read, found.objects.iter())?;
            Some(match &found.eased {
                None => few.evaluate(&plan.expression, &environment),
                Some(eased) => {
                    let parameters = eased.parameters(environment.parameters);
                    let environment = environment.with_parameters(&parameters);
                    few.evaluate(&eased.rest().expression, &environment)
                }
            })
        };
        let result = match found.and_then(few) {
            None => all(),
            Some(result) if self.narrowed.is_verified() => self.verified(asking, result, all()),
            Some(result) => result,
        };
        self.metrics.evaluated();
        if shortened && matches!(result, Err(FactError::BudgetExceeded { .. })) {
            return Err(asking.deadline().exceeded());
        }
        let bytes = result.as_ref().map_or(0, Bytes::len);
        match begun.elapsed() < self.quick_max && bytes <= QUICK_BYTES_MAX {
            true => plan.was_quick(),
            false => self.remember(asking, &result),
        }
        result
    }

    /// What an equal query came to over the same content.
    pub(super) fn remembered(&self, asking: Asking<'_>) -> Option<Result<Bytes, FactError>> {
        if !asking.plan.repeatable {
            return None;
        }
        let (view, content) = (asking.batch.view.id(), asking.batch.position.content);
        let result = self.memo.get(view, content, asking.prepared.key())?;
        self.metrics.remembered();
        Some(result)
    }

    /// Keeps what a query came to, for the next one that is equal.
    pub(super) fn remember(&self, asking: Asking<'_>, result: &Result<Bytes, FactError>) {
        if asking.plan.repeatable {
            asking.plan.was_slow();
            let (view, content) = (asking.batch.view.id(), asking.batch.position.content);
            let key = asking.prepared.key();
            self.memo.put(view, content, key, result.clone());
        }
    }

    /// What is over all objects counts. What is not over all of them must be the same, unless it costs
    /// too much over all, or takes too long.
    pub(super) fn verified(
        &self,
        asking: Asking<'_>,
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
                view = %asking.batch.view.id(),
                expression = asking.query().expression,
                revision = asking.batch.position.revision.0,
                "what an index found, or what is kept, is not what a scan says; please report this"
            );
        }
        all
    }
}
