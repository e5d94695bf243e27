//! The context of a rule, compiled: named values, and the facts that some of these values come from. Pure.

use anteroom_functions::calls_nondeterministic;
use anteroom_model::EntryKind;

use crate::ir::{
    CollectionReference,
    call::{ApiCall, ConfigMapCall, ImageCall, ServiceCall},
    subquery::ExpressionId,
    template::{Prepared, Template, ValueTemplate},
};

/// An entry of a rule's context.
#[derive(Debug)]
pub(crate) struct ContextEntry {
    pub(crate) name: String,
    pub(crate) loader: Loader,
}

/// The source of a context entry's value.
#[derive(Debug)]
pub(crate) enum Loader {
    /// A fact, which has to be fetched.
    Fact(Box<ContextFact>),
    /// A value of the evaluation itself: the element of a `foreach`.
    Given,
    /// `variable`: computed from the rest of the context. A variable has a value, a query, or both.
    Variable {
        value: Option<ValueTemplate>,
        query: Option<Prepared>,
        default: Option<ValueTemplate>,
    },
}

/// A fact that a rule reads.
#[derive(Debug)]
pub(crate) struct ContextFact {
    pub(crate) source: FactOrigin,
    /// `None`: the data whole.
    pub(crate) query: Option<Prepared>,
    /// In its place where the source has nothing to give; no query is made over it.
    pub(crate) default: Option<ValueTemplate>,
    pub(crate) age_max_ms: Option<u64>,
    /// Its number in the rule around it.
    pub(crate) id: ExpressionId,
}

impl ContextFact {
    /// Returns the entry's expression, if it is evaluated where the fact is kept.
    pub(crate) fn pushed_down_query(&self) -> Option<&Prepared> {
        self.query
            .as_ref()
            .filter(|_| self.nondeterministic_query().is_none())
    }

    /// Returns the entry's expression if it uses the time or random values. Then the rule evaluates it, over the
    /// whole data.
    pub(crate) fn nondeterministic_query(&self) -> Option<&Prepared> {
        let query = self.query.as_ref();
        query.filter(|query| calls_nondeterministic(query.expression()))
    }
}

/// The source of a fact.
#[derive(Debug)]
pub(crate) enum FactOrigin {
    /// `cachedContextEntry`, `globalReference`.
    Entry { kind: EntryKind, name: Template },
    /// `resourceCache`: a collection of the Kubernetes API.
    Collection(CollectionReference),
    /// `apiCall` with a `urlPath`; `resourceCache` with a name.
    Api(ApiCall),
    /// `apiCall` with a `service`.
    Service(ServiceCall),
    /// `configMap`: one ConfigMap.
    ConfigMap(ConfigMapCall),
    /// `imageRegistry`: the data of an image.
    Image(ImageCall),
}
