//! Compiled expressions, kept for the next query of the same text.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use anteroom_jmespath::{Expression, FunctionTable};
use anteroom_model::FactError;
use moka::sync::Cache;

use crate::{aggregates::Aggregations, narrowed::Narrowings, retained::Readings, scan::Slicings};

/// What all plans may take. A plan of a usual expression takes a few kilobytes, so this is a
/// thousand policies' worth.
const PLANS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a plan takes for each byte of its text: nodes of its syntax tree, mostly, and those of the keys
/// that it looks up.
const PLAN_BYTES_PER_TEXT_BYTE: u32 = 32;

/// What a plan takes whatever its text.
const PLAN_BYTES_MIN: u32 = 512;

/// So many quick results of a plan, one after the other, are taken to say that the next is quick too.
const QUICK_RESULTS: u8 = 16;

/// A query without an expression asks for the data whole.
const WHOLE: &str = "@";

/// An expression, ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) expression: Expression,
    /// Whether equal data and parameters give an equal result.
    pub(crate) repeatable: bool,
    /// How many more quick results it takes until the memo is not asked any more.
    remembers: AtomicU8,
    /// What it looks up.
    pub(crate) narrowings: Narrowings,
    /// What it takes of the list as a whole.
    pub(crate) aggregations: Aggregations,
    /// How it is cut into slices.
    pub(crate) slicings: Slicings,
    /// What of each object it reads.
    pub(crate) readings: Readings,
}

impl Plan {
    pub(crate) fn new(expression: Expression, repeatable: bool) -> Self {
        Self {
            expression,
            repeatable,
            remembers: AtomicU8::new(0),
            narrowings: Narrowings::default(),
            aggregations: Aggregations::default(),
            slicings: Slicings::default(),
            readings: Readings::default(),
        }
    }

    /// A result of it took so long that it is remembered.
    pub(crate) fn was_slow(&self) {
        self.remembers.store(QUICK_RESULTS, Ordering::Relaxed);
    }

    /// A result of it was there as soon as the memo would have said it.
    pub(crate) fn was_quick(&self) {
        let left = self.remembers.load(Ordering::Relaxed);
        if left > 0 {
            // Of two at once one may not count.
            self.remembers.store(left - 1, Ordering::Relaxed);
        }
    }

    /// Whether results of it are remembered.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers.load(Ordering::Relaxed) > 0
    }
}

/// Compiles expressions once. Also those that cannot be compiled: a policy with a bad expression
/// sends it with every request.
#[derive(Debug)]
pub(crate) struct Plans {
    functions: &'static FunctionTable,
    compiled: Cache<Arc<str>, Result<Arc<Plan>, FactError>>,
}

impl Plans {
    pub(crate) fn new(functions: &'static FunctionTable) -> Self {
        let weigh = |text: &Arc<str>, _: &Result<Arc<Plan>, FactError>| {
            let text_bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
            text_bytes
                .saturating_mul(PLAN_BYTES_PER_TEXT_BYTE)
                .saturating_add(PLAN_BYTES_MIN)
        };
        Self {
            functions,
            compiled: Cache::builder()
                .max_capacity(PLANS_BYTES_MAX)
                .weigher(weigh)
                .build(),
        }
    }

    /// What they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.compiled.weighted_size()
    }

    pub(crate) fn functions(&self) -> &'static FunctionTable {
        self.functions
    }

    /// The plan of `text`, which is within `EXPRESSION_BYTES_MAX`.
    pub(crate) fn get(&self, text: &str) -> Result<Arc<Plan>, FactError> {
        let text = if text.is_empty() { WHOLE } else { text };
        if let Some(plan) = self.compiled.get(text) {
            return plan;
        }
        let plan = self.compile(text).map(Arc::new);
        self.compiled.insert(text.into(), plan.clone());
        plan
    }

    fn compile(&self, text: &str) -> Result<Plan, FactError> {
        let invalid = |message: String| FactError::ExpressionInvalid { message };
        let expression = Expression::parse(text).map_err(|error| invalid(format!("{error:#}")))?;
        expression
            .check(self.functions)
            .map_err(|error| invalid(error.to_string()))?;
        let mut functions = expression.ast().functions().iter();
        let repeatable = !functions.any(|name| anteroom_policy::functions::is_of_occasion(name));
        Ok(Plan::new(expression, repeatable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_text_is_the_data_whole_and_a_bad_one_stays_bad() {
        let plans = Plans::new(anteroom_policy::query_functions());
        assert_eq!(plans.get("").unwrap().expression.as_str(), "@");
        for bad in ["items[", "no_such_function(@)", "length(@, @)"] {
            for _ in 0..2 {
                let error = plans.get(bad).unwrap_err();
                assert!(
                    matches!(error, FactError::ExpressionInvalid { .. }),
                    "{bad}"
                );
            }
        }
    }

    #[test]
    fn a_plan_remembers_until_it_was_quick_many_times() {
        let plan = Plan::new(Expression::parse("a").unwrap(), true);
        assert!(!plan.remembers());
        plan.was_quick();
        assert!(!plan.remembers());
        plan.was_slow();
        for _ in 0..QUICK_RESULTS {
            assert!(plan.remembers());
            plan.was_quick();
        }
        assert!(!plan.remembers());
    }

    #[test]
    fn plans_are_bounded_by_weight() {
        let plans = Plans::new(anteroom_policy::query_functions());
        for n in 0..10_000 {
            plans.get(&format!("items[{n}]")).unwrap();
        }
        plans.compiled.run_pending_tasks();
        assert!(plans.compiled.weighted_size() <= PLANS_BYTES_MAX);
        assert!(plans.compiled.entry_count() > 1_000);
    }
}
