//! The large parts of a request, which requests share that are derived from each other.

use std::sync::Arc;

use serde_json::{Map, Value};

/// The field of a request with the new state of its object.
pub(super) const OBJECT: &str = "object";

/// The field of a request with the old state of its object.
pub(super) const OLD_OBJECT: &str = "oldObject";

/// The values of `request.object` and `request.oldObject`, each if the request has that field.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestObjects {
    pub(super) new: Option<Arc<Value>>,
    pub(super) old: Option<Arc<Value>>,
}

impl RequestObjects {
    /// Takes both out of the fields of a request.
    pub(super) fn take(request: &mut Map<String, Value>) -> Self {
        let mut take = |field: &str| request.remove(field).map(Arc::new);
        Self {
            new: take(OBJECT),
            old: take(OLD_OBJECT),
        }
    }

    /// Returns the value of one of the two fields.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        match field {
            OBJECT => self.new.as_deref(),
            OLD_OBJECT => self.old.as_deref(),
            _ => None,
        }
    }

    /// Returns the fields that there are, with their values.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = [(OBJECT, &self.new), (OLD_OBJECT, &self.old)];
        let found = all.into_iter();
        found.filter_map(|(field, object)| Some((field, object.as_deref()?)))
    }
}

/// The images of a request's object.
#[derive(Debug)]
pub(super) struct RequestImages {
    /// The images by their containers, if there are any.
    pub(super) found: Option<Value>,
    /// The reason why they cannot be determined, if they cannot.
    pub(super) error: Option<String>,
}
