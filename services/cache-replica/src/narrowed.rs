//! Which objects of a view a query has to look at.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anteroom_mirror::ViewHandle;
use anteroom_model::Shape;
use anteroom_plan::{Document, IndexKey, Lookup, Operand, Scalar, narrow};
use anteroom_view::{Object, Read, Select, Snapshot};
use anteroom_wire::query::Query;
use moka::sync::Cache;

use crate::{indexes::Indexes, plan::Plan};

/// Expressions of which it is kept what they look up. Each takes a few hundred bytes.
const NARROWINGS_MAX: u64 = 4_096;

/// An expression, and what it is evaluated on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExpressionKey {
    expression: Arc<str>,
    is_array: bool,
    plural: Option<Box<str>>,
}

impl ExpressionKey {
    pub(crate) fn of(plan: &Plan, document: Document<'_>) -> Self {
        let (is_array, plural) = match document {
            Document::Array => (true, None),
            Document::List { plural } => (false, plural.map(Into::into)),
        };
        Self {
            expression: plan.expression.as_str().into(),
            is_array,
            plural,
        }
    }
}

/// What an expression is evaluated on; `None` where that has no list of objects.
pub(crate) fn document<'r>(select: &Select, read: Read<'r>) -> Option<Document<'r>> {
    match select.shape() {
        Shape::Array => Some(Document::Array),
        Shape::Document | Shape::List => Some(Document::List {
            plural: select.plural(read),
        }),
        Shape::Object | Shape::Response => None,
    }
}

/// Finds the objects that can make a difference to a query.
#[derive(Debug)]
pub(crate) struct Narrowed {
    pub(crate) indexes: Arc<Indexes>,
    narrowings: Cache<ExpressionKey, Option<Arc<[Lookup]>>>,
    /// One of so many queries that were looked up is evaluated over all objects too; 0: none.
    verify_every: u64,
    looked_up: AtomicU64,
}

impl Narrowed {
    pub(crate) fn new(indexes: Arc<Indexes>, verify_every: u64) -> Self {
        Self {
            indexes,
            narrowings: Cache::new(NARROWINGS_MAX),
            verify_every,
            looked_up: AtomicU64::default(),
        }
    }

    /// The objects of `state` that can make a difference, in order; `None` where all have to be
    /// looked through, or they may be more than `most`.
    pub(crate) fn find(
        &self,
        view: &ViewHandle,
        state: &Snapshot,
        (plan, select): (&Plan, &Select),
        query: &Query,
        most: usize,
    ) -> Option<Vec<Object>> {
        let read = state.read();
        let lookups = self.lookups(plan, document(select, read)?)?;
        let bare = select.is_bare(read);
        let keyed = lookups.iter().map(|lookup| {
            let key = IndexKey::of(lookup, query.missing_key_is_error, bare);
            (key, value(lookup, query))
        });
        self.indexes.find(view, state, keyed, most)
    }

    /// Whether there are any that are.
    pub(crate) fn verifies(&self) -> bool {
        self.verify_every > 0
    }

    /// Whether this one is to be held against an evaluation over all objects.
    pub(crate) fn is_verified(&self) -> bool {
        self.verifies()
            && self
                .looked_up
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(self.verify_every)
    }

    fn lookups(&self, plan: &Plan, document: Document<'_>) -> Option<Arc<[Lookup]>> {
        let key = ExpressionKey::of(plan, document);
        let find = || narrow(&plan.expression, document).map(Into::into);
        self.narrowings.get_with(key, find)
    }
}

/// What is looked up; `None` for a value with parts. A parameter that is not bound is the
/// evaluation's to complain of.
pub(crate) fn value(lookup: &Lookup, query: &Query) -> Option<Scalar> {
    let value = match &lookup.operand {
        Operand::Literal(value) => Some(value),
        Operand::Parameter(name) => query.parameters.get(name),
    };
    value.and_then(Scalar::of_json)
}
