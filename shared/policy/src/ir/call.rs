//! Calls that a policy contains: their paths with variables, the views that may answer them, and the concrete calls
//! that come from them.
//!
//! A path is taken apart once, when the policy is compiled. From then on a segment is a segment and a
//! parameter of the query a parameter, whatever the values that stand in them: a value can make a
//! path name another object, never another kind of thing.

mod confine;
mod escape;
mod image;
mod path;
mod service;
mod view_backed;

pub(crate) use confine::confine;
pub(crate) use escape::{check_name, check_segment};
pub(crate) use image::ImageCall;
pub use image::{ImageCredentials, SecretName};
pub(crate) use path::{Concrete, PathTemplate};
pub(crate) use service::ServiceUrl;
pub use service::service_answer;
pub(crate) use view_backed::ViewBackedPlan;

use crate::ir::template::{Template, ValueTemplate};

/// `apiCall` with a `urlPath`.
#[derive(Debug)]
pub(crate) struct ApiCall {
    pub(crate) path: PathTemplate,
    /// The body of a POST. `None`: GET.
    pub(crate) data: Option<ValueTemplate>,
    /// The way in which a view answers it; `None`: only a live read can, or the policy wants one.
    pub(crate) by_view: Option<ViewBackedPlan>,
}

/// `apiCall` with a `service`.
#[derive(Debug)]
pub(crate) struct ServiceCall {
    pub(crate) url: ServiceUrl,
    /// The body of a POST. `None`: GET.
    pub(crate) data: Option<ValueTemplate>,
    /// Name and value.
    pub(crate) headers: Vec<(String, String)>,
    /// PEM; empty: the usual authorities.
    pub(crate) ca_bundle: String,
    /// An answer of any status is one: see [`service_answer`].
    pub(crate) takes_any_status: bool,
}

/// `configMap`: one ConfigMap by namespace and name.
#[derive(Debug)]
pub(crate) struct ConfigMapCall {
    pub(crate) namespace: Template,
    pub(crate) name: Template,
}

impl ConfigMapCall {
    /// Namespace and name, where no variable stands in them.
    pub(crate) fn literal(&self, own: Option<&str>) -> Option<(String, String)> {
        let (namespace, name) = (self.namespace.fixed()?, self.name.fixed()?);
        Some((self.or_home(namespace, own).to_owned(), name.to_owned()))
    }

    /// A namespace that is left out is the policy's own, or `default`.
    pub(crate) fn or_home<'a>(&self, namespace: &'a str, own: Option<&'a str>) -> &'a str {
        match namespace {
            "" => own.unwrap_or("default"),
            namespace => namespace,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
