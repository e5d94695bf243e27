//! A view that may be answered from.

use std::sync::Arc;

use anteroom_jmespath::{Budget, Environment, EvalError, Expression};
use anteroom_model::{FactError, ResourceVersion, RetainedFields, Revision, Source};
use anteroom_wire::{WireError, body};
use bytes::Bytes;

use crate::{Change, Object, Store, Stretch, ViewNode};

/// A view's objects as they were, all together, at one position of the log. To hold one is to have
/// been let in by [`View::read`](crate::View::read).
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    store: &'a Store,
}

/// An owned [`Read`], for readers that keep the state: later changes of the view do not reach the snapshot.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Arc<Store>,
}

impl Snapshot {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// The objects.
    pub fn read(&self) -> Read<'_> {
        Read::new(&self.store)
    }

    /// Returns true if `other` is the very same state.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// Tells `each` how to come from the objects of `other` to these, in order. It costs little where
    /// one state came out of the other.
    pub fn changes_since<'a>(&'a self, other: &'a Self, each: impl FnMut(Change<'a>)) {
        if !self.is(other) {
            self.store.changes_since(&other.store, each);
        }
    }
}

impl<'a> Read<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        Self { store }
    }

    /// The document that queries are about.
    pub fn node(self) -> ViewNode<'a> {
        ViewNode::root(self.store)
    }

    /// The object of this key. `None` is *absent*: the API server had no such object.
    pub fn get(self, namespace: &str, name: &str) -> Option<&'a Object> {
        self.store.get(namespace, name)
    }

    /// All objects, by namespace and name.
    pub fn objects(self) -> impl DoubleEndedIterator<Item = &'a Object> + Clone {
        self.store.objects()
    }

    /// All objects in the same order, stretch by stretch.
    pub fn stretches(self) -> impl Iterator<Item = Stretch<'a>> {
        self.store.stretches()
    }

    /// The objects of one namespace, by name.
    pub fn namespace(self, namespace: &'a str) -> impl Iterator<Item = &'a Object> {
        self.store.namespace(namespace)
    }

    /// The number of objects.
    pub fn len(self) -> usize {
        self.store.len()
    }

    /// Returns true if there are none: the API server said so.
    pub fn is_empty(self) -> bool {
        self.store.is_empty()
    }

    /// The fields that are kept of each object; `None`: all of them.
    pub fn kept(self) -> Option<&'a RetainedFields> {
        match &self.store.record()?.info.source {
            Source::Collection(collection) => collection.retained.as_ref(),
            Source::Objects { .. } | Source::ApiCall { .. } | Source::System { .. } => None,
        }
    }

    /// The position of the log at which the objects were all as they are here.
    pub fn revision(self) -> Revision {
        self.store.revision()
    }

    /// The source's resource version, at least: that of the last control record. The objects are
    /// as new, or newer.
    pub fn version(self) -> ResourceVersion {
        self.store
            .record()
            .map(|record| record.version.clone())
            .unwrap_or_default()
    }

    /// Evaluates `expression` over the view, into a body.
    ///
    /// # Errors
    /// [`FactError::BudgetExceeded`] where the evaluation or its result is too large;
    /// [`FactError::EvaluationFailed`] for anything else.
    pub fn evaluate(
        self,
        expression: &Expression,
        environment: &Environment<'_>,
    ) -> Result<Bytes, FactError> {
        evaluate(
            self.node(),
            expression,
            environment,
            &mut environment.budget.clone(),
        )
    }

    pub(crate) fn store(self) -> &'a Store {
        self.store
    }
}

/// Evaluates `expression` over a document, into a body, and reduces `left`.
pub(crate) fn evaluate(
    node: ViewNode<'_>,
    expression: &Expression,
    environment: &Environment<'_>,
    left: &mut Budget,
) -> Result<Bytes, FactError> {
    let value = expression
        .evaluate_out_of(node, environment, left)
        .map_err(|error| evaluation_error(&error))?;
    body::encode_result(&value, left).map_err(|error| match error {
        WireError::Limit { .. } => FactError::BudgetExceeded {
            message: format!("its result: {error}"),
        },
        other => FactError::EvaluationFailed {
            message: other.to_string(),
        },
    })
}

fn evaluation_error(error: &EvalError) -> FactError {
    let message = error.to_string();
    match error {
        EvalError::Budget { .. } => FactError::BudgetExceeded { message },
        _ => FactError::EvaluationFailed { message },
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{
        Delta, Digest, Epoch, ObjectKey, Op, Source, SourceInfo, ViewRecord, ViewState,
    };

    use super::*;
    use crate::View;

    #[test]
    fn a_snapshot_does_not_change_with_its_view() {
        let source = Source::System {
            name: "test".into(),
        };
        let mut view = View::live(source.view_id());
        let put = |name: &str| Delta {
            key: ObjectKey::new("", name),
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new("1"),
            op: Op::Put(b"\x80".as_slice()),
        };
        view.apply(Revision(1), &put("a"));
        let record = ViewRecord {
            view: view.id().clone(),
            info: SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            },
            epoch: Epoch::new(1, 0),
            state: ViewState::Synced,
            version: ResourceVersion::new("1"),
            objects: 1,
            digest: Digest::EMPTY,
            origin: anteroom_model::Epoch::default(),
            age_max_ms: None,
        };
        view.control(Revision(2), record);
        let snapshot = view.snapshot(0, 0).unwrap();
        assert!(snapshot.is(&view.snapshot(0, 0).unwrap()));
        view.apply(Revision(3), &put("b"));
        assert_eq!(
            (snapshot.read().len(), snapshot.read().revision()),
            (1, Revision(2))
        );
        let later = view.snapshot(0, 0).unwrap();
        assert_eq!(later.read().len(), 2);
        assert!(!later.is(&snapshot));
        let mut added = Vec::new();
        later.changes_since(&snapshot, |change| match change {
            Change::Added(object) => added.push(object.name()),
            other => panic!("{other:?}"),
        });
        assert_eq!(added, ["b"]);
        assert!(!later.read().is_empty() && Read::new(&Store::default()).is_empty());
        let stale = view.snapshot(1, 0).unwrap_err();
        assert!(matches!(stale, FactError::Stale { .. }));
        let whole = Expression::parse("@").unwrap();
        let read = snapshot.read();
        let result = read.evaluate(&whole, &Environment::default()).unwrap();
        let whole = serde_json::json!({"items": [{}]});
        assert_eq!(body::to_json(&result).unwrap(), whole);
    }
}
