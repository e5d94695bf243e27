//! An aggregate of one state of a view, to be brought up to another.

use std::{collections::HashMap, sync::Arc};

use anteroom_jmespath::{Environment, Expression, FunctionTable, MissingKey, ParseError};
use anteroom_model::Kept;
use anteroom_view::{Object, Snapshot, ViewNode};
use serde_json::Value;

use super::{AggregateTerm, Measure, Tally, numbers::Way, tally::TallyKind};
use crate::{
    Changes, Document,
    changes::Changed,
    index::KEY_BUDGET,
    reads::{reads, reads_to_count},
};

/// What an aggregate is an aggregate of. Terms that differ in what is read off share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AggregateKey {
    /// What is taken of the array of objects.
    pub chain: Arc<str>,
    /// What is kept of it.
    pub kind: TallyKind,
    /// It is kept for each namespace.
    pub by_namespace: bool,
    /// Whether a key that an object lacks is an error, as in [`MissingKey::Error`].
    pub missing_key_is_error: bool,
    /// Objects are looked at as in lists of the API server's own types, without `apiVersion` and
    /// `kind`.
    pub bare: bool,
}

impl AggregateKey {
    /// What a term needs, under this rule for missing keys.
    pub fn of(
        term: &AggregateTerm,
        by_namespace: bool,
        missing_key_is_error: bool,
        bare: bool,
    ) -> Self {
        Self {
            chain: term.chain.as_str().into(),
            kind: term.measure.kind(),
            by_namespace,
            missing_key_is_error,
            bare,
        }
    }
}

/// What the objects of one state of a view come to together.
#[derive(Debug)]
pub struct Aggregate {
    key: AggregateKey,
    chain: Expression,
    /// What of an object its contribution depends on.
    reads: Kept,
    functions: &'static FunctionTable,
    at: Snapshot,
    /// By namespace; of all under the empty name, where they are not told apart.
    groups: HashMap<Box<str>, Group>,
    bytes: usize,
}

/// What is kept of the objects of one namespace.
#[derive(Debug)]
struct Group {
    objects: usize,
    /// Objects on which the chain fails, or is no list because of what a function refuses.
    failed: usize,
    tally: Tally,
}

impl Aggregate {
    /// An aggregate of all objects of `at`. It takes as long as evaluating the chain on each.
    ///
    /// # Errors
    /// The chain cannot be parsed.
    pub fn new(
        key: AggregateKey,
        functions: &'static FunctionTable,
        at: &Snapshot,
    ) -> Result<Self, ParseError> {
        let chain = Expression::parse(&key.chain)?;
        let mut aggregate = Self {
            reads: match key.kind {
                TallyKind::Count => reads_to_count(&chain),
                TallyKind::Sum | TallyKind::Order => reads(&chain, Document::Array),
            },
            chain,
            key,
            functions,
            at: at.clone(),
            groups: HashMap::new(),
            bytes: 0,
        };
        at.read()
            .objects()
            .for_each(|object| aggregate.take(object, Way::In));
        Ok(aggregate)
    }

    /// Brings it up, or back, to another state. It costs what differs between the two.
    pub fn advance(&mut self, to: &Snapshot) {
        self.follow(&Changes::between(&self.at, to));
    }

    /// The same by what is known to differ: `changes` must lead from the state that it is of.
    pub fn follow(&mut self, changes: &Changes) {
        self.at = changes.to().clone();
        for change in changes.iter() {
            match change {
                Changed::Added(new) => self.take(new, Way::In),
                Changed::Removed(old) => self.take(old, Way::Out),
                // What it contributes is as it was.
                Changed::Replaced { by, .. } if !by.concerns(&self.reads) => {}
                Changed::Replaced { old, new, .. } => {
                    self.take(old, Way::Out);
                    self.take(new, Way::In);
                }
            }
        }
    }

    /// What the evaluator would say of the objects of this namespace, or of all where they are not
    /// told apart; `None` where that takes an evaluation: it fails, or depends on their order.
    pub fn value(&self, namespace: &str, measure: Measure) -> Option<Value> {
        match self.groups.get(namespace) {
            Some(group) if group.failed > 0 => None,
            Some(group) => group.tally.value(measure),
            None => Tally::new(self.key.kind).value(measure),
        }
    }

    /// The state that it is of.
    pub fn at(&self) -> &Snapshot {
        &self.at
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let slots = self.groups.capacity() * (size_of::<(Box<str>, Group)>() + 1);
        self.bytes + slots
    }

    fn take(&mut self, object: &Object, way: Way) {
        let namespace = match self.key.by_namespace {
            true => object.namespace(),
            false => "",
        };
        if !self.groups.contains_key(namespace) {
            self.groups
                .insert(namespace.into(), Group::new(self.key.kind));
            self.bytes += namespace.len();
        }
        let Some(group) = self.groups.get_mut(namespace) else {
            return;
        };
        let before = group.tally.bytes();
        let environment = Environment {
            functions: self.functions,
            parameters: &(),
            missing_key: match self.key.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            budget: KEY_BUDGET,
            occasion: None,
        };
        let node = ViewNode::array_of(std::slice::from_ref(object), self.key.bare);
        match self.chain.evaluate(node, &environment) {
            Ok(list) if group.tally.take_all(&list, way) => {}
            _ => group.fail(way),
        }
        match way {
            Way::In => group.objects += 1,
            Way::Out => group.objects = group.objects.saturating_sub(1),
        }
        self.bytes = self.bytes + group.tally.bytes() - before;
        if group.objects == 0 {
            self.groups.remove(namespace);
            self.bytes -= namespace.len();
        }
    }
}

impl Group {
    fn new(kind: TallyKind) -> Self {
        Self {
            objects: 0,
            failed: 0,
            tally: Tally::new(kind),
        }
    }

    fn fail(&mut self, way: Way) {
        match way {
            Way::In => self.failed += 1,
            Way::Out => self.failed = self.failed.saturating_sub(1),
        }
    }
}
