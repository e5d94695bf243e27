//! The document that a rule's expressions are evaluated on.

use std::{cell::Cell, collections::BTreeMap, iter, slice, sync::Arc, vec};

use anteroom_jmespath::{Node, Shape};
use serde_json::Value;

use super::states::{EntryState, States};
use crate::ir::{AdmissionRequest, context::ContextEntry};

/// The request and the visible entries side by side. An entry of the same name hides an earlier one.
pub(super) struct Root<'a> {
    request: &'a AdmissionRequest,
    entries: &'a [Arc<ContextEntry>],
    states: &'a States,
    missed: Cell<Option<usize>>,
    untold: Cell<Option<&'a str>>,
}

impl<'a> Root<'a> {
    pub(super) fn new(
        request: &'a AdmissionRequest,
        entries: &'a [Arc<ContextEntry>],
        states: &'a States,
    ) -> Self {
        Self {
            request,
            entries,
            states,
            missed: Cell::new(None),
            untold: Cell::new(None),
        }
    }

    pub(super) fn node(&'a self) -> RootNode<'a> {
        RootNode::Root(self)
    }

    /// Returns the first entry that the expression looked up and that is not loaded. Entries that it looked up later
    /// may depend on the first one.
    pub(super) fn missed(&self) -> Option<usize> {
        self.missed.get()
    }

    /// Returns the reason why a value of the request cannot be determined, if an expression looked one up.
    pub(super) fn untold(&self) -> Option<&'a str> {
        self.untold.get()
    }

    fn field(&self, name: &str) -> Option<RootNode<'a>> {
        let Some(entry) = self.entries.iter().rposition(|entry| entry.name == name) else {
            if let Some(reason) = self.request.untold(name) {
                self.untold.set(Some(reason));
            }
            let value = self.request.root_value(name)?;
            return Some(self.of_request(name, value));
        };
        match &self.states.0[entry] {
            EntryState::Loaded(loaded) => Some(RootNode::Value(&loaded.value)),
            EntryState::Absent(_) => None,
            EntryState::Unloaded => {
                if self.missed.get().is_none() {
                    self.missed.set(Some(entry));
                }
                None
            }
        }
    }

    /// Returns a value that is no context entry.
    fn of_request(&self, name: &str, value: &'a Value) -> RootNode<'a> {
        match name == "request" && value.is_object() {
            true => RootNode::Request(self.request),
            false => RootNode::Value(value),
        }
    }

    /// Returns the values that are already loaded, for an expression that reads the whole context.
    fn present(&self) -> Vec<(&'a str, RootNode<'a>)> {
        let loaded =
            self.entries
                .iter()
                .zip(&self.states.0)
                .filter_map(|(entry, state)| match state {
                    EntryState::Loaded(loaded) => {
                        Some((&*entry.name, RootNode::Value(&loaded.value)))
                    }
                    EntryState::Unloaded | EntryState::Absent(_) => None,
                });
        let of_request = self.request.root_values();
        let of_request = of_request.map(|(name, value)| (name, self.of_request(name, value)));
        let all: BTreeMap<_, _> = of_request.chain(loaded).collect();
        all.into_iter().collect()
    }
}

/// Returns the fields of `request`, in order of their names.
fn request_fields(request: &AdmissionRequest) -> Vec<(&str, RootNode<'_>)> {
    let fields = request.fields().entries().chain(request.object_fields());
    let fields: BTreeMap<_, _> = fields.collect();
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name, RootNode::Value(value)))
        .collect()
}

/// The root, or any value below it.
#[derive(Clone, Copy)]
pub(super) enum RootNode<'a> {
    Root(&'a Root<'a>),
    /// The value of `request`, whose objects stand apart from its other fields.
    Request(&'a AdmissionRequest),
    Value(&'a Value),
}

impl<'a> Node<'a> for RootNode<'a> {
    type Elements = iter::Map<slice::Iter<'a, Value>, fn(&'a Value) -> RootNode<'a>>;
    type Entries = vec::IntoIter<(&'a str, RootNode<'a>)>;

    fn shape(self) -> Shape<'a> {
        match self {
            Self::Root(root) => Shape::Object(root.present().len()),
            Self::Request(request) => Shape::Object(request_fields(request).len()),
            Self::Value(value) => value.shape(),
        }
    }

    fn field(self, name: &str) -> Option<Self> {
        match self {
            Self::Root(root) => root.field(name),
            Self::Request(request) => {
                let object = request.object_field(name);
                let value = object.or_else(|| request.fields().get(name));
                value.map(Self::Value)
            }
            Self::Value(value) => value.field(name).map(Self::Value),
        }
    }

    fn element(self, index: usize) -> Option<Self> {
        match self {
            Self::Root(_) | Self::Request(_) => None,
            Self::Value(value) => value.element(index).map(Self::Value),
        }
    }

    fn elements(self) -> Self::Elements {
        let elements: &[Value] = match self {
            Self::Root(_) | Self::Request(_) => &[],
            Self::Value(value) => value.as_array().map(Vec::as_slice).unwrap_or_default(),
        };
        elements.iter().map(Self::Value)
    }

    fn entries(self) -> Self::Entries {
        match self {
            Self::Root(root) => root.present(),
            Self::Request(request) => request_fields(request),
            Self::Value(value) => value
                .entries()
                .map(|(name, value)| (name, Self::Value(value)))
                .collect(),
        }
        .into_iter()
    }
}
