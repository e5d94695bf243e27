//! A count over one state of a view, to be brought up to another.

use std::{collections::HashMap, sync::Arc};

use anteroom_jmespath::{Environment, Expression, FunctionTable, MissingKey, ParseError, Shape};
use anteroom_model::RetainedFields;
use anteroom_view::{Object, Snapshot, ViewNode};

use super::Count;
use crate::{Changes, changes::Changed, field_reads::reads_to_count, index::key_budget};

/// Identifies a counter. Counts with equal keys share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CounterKey {
    /// An expression over the array of objects, whose elements are counted.
    pub chain: Arc<str>,
    /// Each namespace is counted by itself.
    pub by_namespace: bool,
    /// A key that an object lacks is an error, as in [`MissingKey::Error`].
    pub missing_key_is_error: bool,
    /// Objects are seen as in lists of the API server's own types, without `apiVersion` and `kind`.
    pub bare: bool,
}

impl CounterKey {
    /// Returns the key of the counter that `count` needs.
    pub fn of(count: &Count, by_namespace: bool, missing_key_is_error: bool, bare: bool) -> Self {
        Self {
            chain: count.chain.as_str().into(),
            by_namespace,
            missing_key_is_error,
            bare,
        }
    }
}

/// The number of elements that the objects of one state of a view contribute to a chain.
#[derive(Debug)]
pub struct Counter {
    key: CounterKey,
    chain: Expression,
    /// The fields of an object that its contribution depends on.
    reads: RetainedFields,
    functions: &'static FunctionTable,
    at: Snapshot,
    /// The count of each namespace; a single count under the empty name if the counter does not separate namespaces.
    namespaces: HashMap<Box<str>, NamespaceCount>,
    name_bytes: usize,
}

/// The count of one namespace's objects.
#[derive(Debug, Default)]
struct NamespaceCount {
    objects: usize,
    /// Objects on which the chain fails, or is no list.
    failed: usize,
    elements: u64,
}

/// The direction of a change of a count.
#[derive(Clone, Copy)]
enum CountChange {
    Add,
    Remove,
}

impl Counter {
    /// Counts all objects of `at`. It takes as long as evaluating the chain on each.
    ///
    /// # Errors
    /// The chain cannot be parsed.
    pub fn new(
        key: CounterKey,
        functions: &'static FunctionTable,
        at: &Snapshot,
    ) -> Result<Self, ParseError> {
        let chain = Expression::parse(&key.chain)?;
        let mut counter = Self {
            reads: reads_to_count(&chain),
            chain,
            key,
            functions,
            at: at.clone(),
            namespaces: HashMap::new(),
            name_bytes: 0,
        };
        let objects = at.read();
        objects
            .objects()
            .for_each(|object| counter.change(object, CountChange::Add));
        Ok(counter)
    }

    /// Moves the counter forward, or back, to the state `to`. The cost grows with the difference of the two states.
    pub fn advance(&mut self, to: &Snapshot) {
        self.follow(&Changes::between(&self.at, to));
    }

    /// Applies changes that are known already. They must lead from the state of [`Counter::at`].
    pub fn follow(&mut self, changes: &Changes) {
        self.at = changes.to().clone();
        for change in changes.iter() {
            match change {
                Changed::Added(new) => self.change(new, CountChange::Add),
                Changed::Removed(old) => self.change(old, CountChange::Remove),
                // It contributes as many elements as before.
                Changed::Replaced { by, .. } if !by.concerns(&self.reads) => {}
                Changed::Replaced { old, new, .. } => {
                    self.change(old, CountChange::Remove);
                    self.change(new, CountChange::Add);
                }
            }
        }
    }

    /// Returns the number of elements of this namespace's objects, or of all objects if the counter does not separate
    /// namespaces. `None`: the chain fails on one of the objects, so the expression has to be evaluated.
    pub fn count(&self, namespace: &str) -> Option<u64> {
        match self.namespaces.get(namespace) {
            Some(count) => (count.failed == 0).then_some(count.elements),
            None => Some(0),
        }
    }

    /// The state that it is of.
    pub fn at(&self) -> &Snapshot {
        &self.at
    }

    /// Returns the counter's size on the heap.
    pub fn bytes(&self) -> usize {
        let slots = self.namespaces.capacity() * (size_of::<(Box<str>, NamespaceCount)>() + 1);
        self.name_bytes + slots
    }

    fn change(&mut self, object: &Object, change: CountChange) {
        let namespace = match self.key.by_namespace {
            true => object.namespace(),
            false => "",
        };
        let elements = self.elements(object);
        if !self.namespaces.contains_key(namespace) {
            self.namespaces
                .insert(namespace.into(), NamespaceCount::default());
            self.name_bytes += namespace.len();
        }
        let Some(count) = self.namespaces.get_mut(namespace) else {
            return;
        };
        count.apply(elements, change);
        if count.objects == 0 {
            self.namespaces.remove(namespace);
            self.name_bytes -= namespace.len();
        }
    }

    /// The number of elements that an object contributes; `None` where the chain fails on it.
    fn elements(&self, object: &Object) -> Option<u64> {
        let environment = Environment {
            functions: self.functions,
            parameters: &(),
            missing_key: match self.key.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            budget: key_budget(object.body().len()),
            seed: None,
        };
        let node = ViewNode::array_of(std::slice::from_ref(object), self.key.bare);
        match self.chain.evaluate(node, &environment).ok()?.shape() {
            Shape::Array(elements) => Some(elements as u64),
            _ => None,
        }
    }
}

impl NamespaceCount {
    fn apply(&mut self, elements: Option<u64>, change: CountChange) {
        let failed = usize::from(elements.is_none());
        let elements = elements.unwrap_or(0);
        match change {
            CountChange::Add => {
                self.objects += 1;
                self.failed += failed;
                self.elements = self.elements.saturating_add(elements);
            }
            CountChange::Remove => {
                self.objects = self.objects.saturating_sub(1);
                self.failed = self.failed.saturating_sub(failed);
                self.elements = self.elements.saturating_sub(elements);
            }
        }
    }
}
