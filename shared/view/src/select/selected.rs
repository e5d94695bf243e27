//! The part of a view that was selected, and how it is read.

use anteroom_jmespath::{Budget, Environment, Expression};
use anteroom_model::{FactError, GroupVersionResource, ObjectKey, Shape, Source};
use anteroom_wire::{
    body::BodyNode,
    referenced::{self, Referenced},
};
use bytes::Bytes;

use crate::{
    Store, ViewNode,
    listing::{Chosen, Listing},
    read::evaluate,
};

/// The part of a view that a [`Select`](crate::Select) selects. Nothing of it is copied: it holds a pointer for each
/// object that was chosen, or none where all were.
#[derive(Debug)]
pub struct Selected<'a> {
    pub(super) document: SelectedDocument<'a>,
    /// The number of objects that were looked at to find them.
    looked_at: u64,
}

/// The document that queries read: the chosen objects as a list, or one object.
#[derive(Debug)]
pub(super) enum SelectedDocument<'a> {
    Listed {
        store: &'a Store,
        shape: Shape,
        chosen: Chosen<'a>,
    },
    One(BodyNode<'a>),
}

impl<'a> Selected<'a> {
    /// A list of the objects that were chosen.
    pub(super) fn listed(
        store: &'a Store,
        shape: Shape,
        chosen: Chosen<'a>,
        looked_at: u64,
    ) -> Self {
        Self {
            document: SelectedDocument::Listed {
                store,
                shape,
                chosen,
            },
            looked_at,
        }
    }

    fn single(node: BodyNode<'a>) -> Self {
        Self {
            document: SelectedDocument::One(node),
            looked_at: 0,
        }
    }

    /// The document that queries are about.
    pub fn node(&self) -> ViewNode<'_> {
        match &self.document {
            SelectedDocument::One(node) => ViewNode::body(*node),
            SelectedDocument::Listed {
                store,
                shape,
                chosen,
            } => {
                let listing = Listing::of(store, chosen);
                match shape {
                    Shape::List => ViewNode::list(listing),
                    Shape::Array => ViewNode::array(listing),
                    _ => ViewNode::document(listing),
                }
            }
        }
    }

    /// The objects of it alone, as an array; empty where it is no list.
    pub fn array(&self) -> ViewNode<'_> {
        match &self.document {
            SelectedDocument::One(_) => ViewNode::array_of(&[], false),
            SelectedDocument::Listed { store, chosen, .. } => {
                ViewNode::array(Listing::of(store, chosen))
            }
        }
    }

    /// Evaluates `expression` over it, into a body. What it took to find the objects is paid from the
    /// same budget.
    ///
    /// # Errors
    /// Fails as [`Read::evaluate`](crate::Read::evaluate) does.
    pub fn evaluate(
        &self,
        expression: &Expression,
        environment: &Environment<'_>,
    ) -> Result<Bytes, FactError> {
        self.evaluate_out_of(expression, environment, &mut environment.budget.clone())
    }

    /// Evaluates `expression` as [`Self::evaluate`] does, with `left` in place of the environment's budget, and reduces
    /// `left`.
    ///
    /// # Errors
    /// Fails as [`Read::evaluate`](crate::Read::evaluate) does.
    pub fn evaluate_out_of(
        &self,
        expression: &Expression,
        environment: &Environment<'_>,
        left: &mut Budget,
    ) -> Result<Bytes, FactError> {
        left.steps = left.steps.saturating_sub(self.looked_at);
        evaluate(self.node(), expression, environment, left)
    }
}

pub(super) fn object<'a>(
    store: &'a Store,
    source: Option<&Source>,
    key: &ObjectKey,
) -> Result<Selected<'a>, FactError> {
    match store.get(&key.namespace, &key.name) {
        Some(object) => Ok(Selected::single(object.node())),
        None => Err(not_found(resource_text(source.and_then(Source::gvr)), key)),
    }
}

pub(super) fn referenced<'a>(
    store: &'a Store,
    gvr: &GroupVersionResource,
    key: &ObjectKey,
) -> Result<Selected<'a>, FactError> {
    let resource = resource_text(Some(gvr));
    let view = || Source::Objects { gvr: gvr.clone() }.view_id().to_string();
    let Some(held) = store.get(&key.namespace, &key.name) else {
        return Err(FactError::ObjectNotRegistered {
            resource,
            object: key.to_string(),
        });
    };
    match referenced::read(held.node()) {
        Ok(Referenced::Found(object)) => Ok(Selected::single(object)),
        Ok(Referenced::Absent) => Err(not_found(resource, key)),
        Ok(Referenced::Failed(failure)) => Err(FactError::Failed {
            view: view(),
            failure,
        }),
        Ok(Referenced::Pending | Referenced::Idle) => Err(FactError::NotSynced {
            view: view(),
            state: format!("the API server has not answered yet for {resource} {key}"),
        }),
        Err(error) => Err(FactError::EvaluationFailed {
            message: error.to_string(),
        }),
    }
}

pub(super) fn response(store: &Store) -> Result<Selected<'_>, FactError> {
    let response = store.get("", Source::RESPONSE);
    response
        .map(|held| Selected::single(held.node()))
        .ok_or_else(|| {
            let view = store.record().map(|record| record.view.to_string());
            FactError::NotSynced {
                view: view.unwrap_or_default(),
                state: "the call has had no response yet".to_owned(),
            }
        })
}

/// The resource in the API server's words: `configmaps`, `ingresses.networking.k8s.io`.
fn resource_text(gvr: Option<&GroupVersionResource>) -> String {
    match gvr {
        Some(gvr) if gvr.group.is_empty() => gvr.resource.clone(),
        Some(gvr) => format!("{}.{}", gvr.resource, gvr.group),
        None => "object".to_owned(),
    }
}

fn not_found(resource: String, key: &ObjectKey) -> FactError {
    FactError::ObjectNotFound {
        resource,
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
    }
}
