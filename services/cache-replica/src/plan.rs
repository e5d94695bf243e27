//! Compiled expressions, kept for the next query of the same text.

mod cel;
mod per_document;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anteroom_jmespath::{Expression, FunctionTable};
use anteroom_model::{FactError, RetainedFields, Shape, ViewId};
use anteroom_plan::{
    ChainParameters, Count, CountedExpression, Document, Narrow, Sliced, extract_counts, narrow,
    reads,
};
use anteroom_view::{Read, Select};
use anteroom_wire::query::{CelQuery, Query};
use moka::sync::Cache;

use cel::CelPlans;
pub(crate) use cel::{CelPlan, inputs};
use per_document::PerDocument;

/// The most memory of all plans. A plan of a usual expression takes a few kilobytes, so this is a
/// thousand policies' worth.
const PLANS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The memory of a plan for each byte of its text: mostly nodes of its syntax tree and of the keys that it looks up.
const PLAN_BYTES_PER_TEXT_BYTE: u32 = 32;

/// The memory of a plan beyond its text.
const PLAN_BYTES_MIN: u32 = 512;

/// A query without an expression asks for the data whole.
const WHOLE: &str = "@";

/// An expression with its analysis.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) expression: Expression,
    /// Equal data and parameters give an equal result.
    pub(crate) is_deterministic: bool,
    /// The last evaluation took longer than one may where calls arrive.
    is_long: AtomicBool,
    narrow: PerDocument<Option<Arc<Narrow>>>,
    counted: PerDocument<Option<Arc<CountedPlan>>>,
    sliced: PerDocument<Option<Arc<Sliced>>>,
    reads: PerDocument<Arc<RetainedFields>>,
}

/// An expression with its counts replaced by parameters.
#[derive(Debug)]
pub(crate) struct CountedPlan {
    pub(crate) rest: Plan,
    pub(crate) counts: Vec<Count>,
}

impl Plan {
    fn new(expression: Expression, is_deterministic: bool) -> Self {
        Self {
            expression,
            is_deterministic,
            is_long: AtomicBool::new(false),
            narrow: PerDocument::default(),
            counted: PerDocument::default(),
            sliced: PerDocument::default(),
            reads: PerDocument::default(),
        }
    }

    /// Returns whether the last evaluation took long.
    pub(crate) fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }

    /// Notes whether an evaluation took long.
    pub(crate) fn took_long(&self, is_long: bool) {
        self.is_long.store(is_long, Ordering::Relaxed);
    }

    /// The keys by which the expression looks up objects; `None`: the expression needs all objects.
    pub(crate) fn narrow(&self, document: Document<'_>) -> Option<Arc<Narrow>> {
        let find = || narrow(&self.expression, document).ok().map(Arc::new);
        self.narrow.get(document, find)
    }

    /// The expression with its counts replaced; `None`: the expression counts nothing.
    pub(crate) fn counted(&self, document: Document<'_>) -> Option<Arc<CountedPlan>> {
        let find = || {
            let CountedExpression { rest, counts } =
                extract_counts(&self.expression, document, ChainParameters::Refused)?;
            let rest = Self::new(rest, self.is_deterministic);
            Some(Arc::new(CountedPlan { rest, counts }))
        };
        self.counted.get(document, find)
    }

    /// The expression by slices; `None`: it cannot be cut.
    pub(crate) fn sliced(&self, document: Document<'_>) -> Option<Arc<Sliced>> {
        let find = || Sliced::of(&self.expression, document).map(Arc::new);
        self.sliced.get(document, find)
    }

    /// Checks that the view has all that the expression reads. One that keeps only the fields that
    /// policies read would show the others as absent.
    ///
    /// # Errors
    /// [`FactError::NotRetained`] with the first path that is read and not kept.
    pub(crate) fn check_retained(
        &self,
        view: &ViewId,
        read: Read<'_>,
        select: &Select,
    ) -> Result<(), FactError> {
        let Some(kept) = read.kept() else {
            return Ok(());
        };
        let lacks = match document(select, read) {
            Some(document) => {
                let find = || Arc::new(reads(&self.expression, document));
                kept.lacks(&self.reads.get(document, find))
            }
            None => kept.lacks(&RetainedFields::Whole),
        };
        match lacks {
            None => Ok(()),
            Some(path) => Err(FactError::NotRetained {
                view: view.to_string(),
                path: match path.is_empty() {
                    true => "@".to_owned(),
                    false => path,
                },
            }),
        }
    }
}

/// Returns the document that a query is evaluated on; `None`: it is no list of objects.
pub(crate) fn document<'r>(select: &Select, read: Read<'r>) -> Option<Document<'r>> {
    match select.shape() {
        Shape::Array => Some(Document::Array),
        Shape::Document | Shape::List => Some(Document::List {
            plural: select.plural(read),
        }),
        Shape::Object | Shape::Response => None,
    }
}

/// Compiles expressions once. Also those that cannot be compiled: a policy with a bad expression
/// sends it with every request.
#[derive(Debug)]
pub(crate) struct Plans {
    functions: &'static FunctionTable,
    compiled: Cache<Arc<str>, Result<Arc<Plan>, FactError>>,
    cel: CelPlans,
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
            cel: CelPlans::new(),
        }
    }

    /// Returns the size of all plans in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.compiled.weighted_size() + self.cel.bytes()
    }

    /// The plan of a query in CEL.
    pub(crate) fn cel(&self, query: &Query, cel: &CelQuery) -> Result<Arc<CelPlan>, FactError> {
        self.cel.get(query, cel)
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
        let is_deterministic = !functions.any(|name| anteroom_functions::is_nondeterministic(name));
        Ok(Plan::new(expression, is_deterministic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_text_is_the_data_whole_and_a_bad_one_stays_bad() {
        let plans = Plans::new(anteroom_functions::query_functions());
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
    fn plans_are_bounded_by_weight() {
        let plans = Plans::new(anteroom_functions::query_functions());
        for n in 0..10_000 {
            plans.get(&format!("items[{n}]")).unwrap();
        }
        plans.compiled.run_pending_tasks();
        assert!(plans.compiled.weighted_size() <= PLANS_BYTES_MAX);
        assert!(plans.compiled.entry_count() > 1_000);
    }
}
