//! Calls that a policy contains: their paths with variables in them, what a view may answer in their
//! place, and which concrete calls come from them.
//!
//! A path is taken apart once, when the policy is compiled. From then on a segment is a segment and a
//! parameter of the query a parameter, whatever the values that stand in them: a value can make a
//! path name another object, never another kind of thing.

mod confine;
mod escape;
mod image;
mod kept;
mod path;
mod service;

pub(crate) use confine::confine;
pub(crate) use escape::{check_name, check_segment};
pub(crate) use image::ImageCall;
pub use image::{ImageCredentials, SecretName};
pub(crate) use kept::KeptPlan;
pub(crate) use path::{Concrete, PathTemplate};
pub(crate) use service::ServiceUrl;

use serde_json::{Map, Value};

use crate::template::{Resolve, Template, ValueTemplate};

/// `apiCall` with a `urlPath`.
#[derive(Debug)]
pub(crate) struct ApiCall {
    pub(crate) path: PathTemplate,
    /// `None`: GET.
    pub(crate) data: Option<Data>,
    /// How a view answers it; `None`: only a live read can, or the policy wants one.
    pub(crate) kept: Option<KeptPlan>,
}

/// `apiCall` with a `service`.
#[derive(Debug)]
pub(crate) struct ServiceCall {
    pub(crate) url: ServiceUrl,
    /// `None`: GET.
    pub(crate) data: Option<Data>,
    /// Name and value.
    pub(crate) headers: Vec<(String, String)>,
    /// PEM; empty: the usual authorities.
    pub(crate) ca_bundle: String,
}

/// What is posted: an object of these fields.
#[derive(Debug)]
pub(crate) struct Data(pub(crate) Vec<(String, ValueTemplate)>);

impl Data {
    pub(crate) fn value<R: Resolve>(&self, resolver: &mut R) -> Result<Value, R::Interrupt> {
        let mut data = Map::new();
        for (key, value) in &self.0 {
            let value = value.value(resolver)?;
            data.insert(key.clone(), std::sync::Arc::unwrap_or_clone(value));
        }
        Ok(Value::Object(data))
    }

    /// Whether `value` can come of it.
    pub(crate) fn can_be(&self, value: &Value) -> bool {
        let fits = |fields: &Map<String, Value>| {
            fields.len() == self.0.len()
                && self.0.iter().all(|(key, template)| {
                    fields.get(key).is_some_and(|value| template.can_be(value))
                })
        };
        value.as_object().is_some_and(fits)
    }
}

/// `configMap`.
#[derive(Debug)]
pub(crate) struct ConfigMapCall {
    pub(crate) namespace: Template,
    pub(crate) name: Template,
}

#[cfg(test)]
pub(crate) mod tests;
