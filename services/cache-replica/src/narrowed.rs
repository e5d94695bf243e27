//! Which objects of a view a query has to look at.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anteroom_mirror::ViewHandle;
use anteroom_model::Shape;
use anteroom_plan::{Document, Narrow, Terms, narrow, selected};
use anteroom_view::{Object, Read, Select, Snapshot};

use crate::{
    indexes::{Asked, Indexes},
    per_document::PerDocument,
    plan::Plan,
};

/// What an expression looks up; `None` where it takes a scan.
pub(crate) type Narrowings = PerDocument<Option<Arc<Narrow>>>;

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
    /// One of so many queries that were looked up is evaluated over all objects too; 0: none.
    verify_every: u64,
    looked_up: AtomicU64,
}

/// What finding objects may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Objects that are found.
    pub(crate) objects: usize,
    /// Values and objects that are looked at for it.
    pub(crate) steps: usize,
}

impl Narrowed {
    pub(crate) fn new(indexes: Arc<Indexes>, verify_every: u64) -> Self {
        Self {
            indexes,
            verify_every,
            looked_up: AtomicU64::default(),
        }
    }

    /// The objects of `state` that can make a difference, in order; `None` where all have to be
    /// looked through, or that may cost more than `most`.
    pub(crate) fn find(
        &self,
        (view, state): (&ViewHandle, &Snapshot),
        (plan, select): (&Plan, &Select),
        asked: &Asked<'_>,
        most: Most,
    ) -> Option<Vec<Object>> {
        let read = state.read();
        let document = document(select, read)?;
        let find = || narrow(&plan.expression, document).ok().map(Arc::new);
        let narrow = plan.narrowings.get(document, find);
        let narrow = selected(narrow.as_deref(), select.labels())?;
        let terms = Terms {
            objects_max: most.objects,
            steps_max: most.steps,
            admits: &|object| select.admits(object),
            parameters: asked.parameters,
        };
        self.indexes.find((view, state), &narrow, asked, terms)
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
}
