//! Checks whether a policy contains a concrete call.
//!
//! A client that may ask for live reads can ask for no more than the policies' own calls. Every part that
//! stands written in the policy must stand in the call. A variable of the policy matches one name in a path,
//! one parameter's value in a query, one value in a body.

mod footprint;
mod mutate_existing;

use anteroom_model::ObjectKey;
use serde_json::Value;
use thiserror::Error;

use crate::ir::{
    ImageCredentials, Policy, Rule,
    call::{
        ApiCall, Concrete, ConfigMapCall, ImageCall, ServiceCall, check_name, check_segment,
        confine,
    },
    cel::NAMESPACE_OBJECT,
    context::{FactOrigin, Loader},
    matching::NAMESPACE_SELECTOR,
    template::{Template, ValueTemplate},
};

/// The path of a namespace up to its name.
const NAMESPACES: &str = "/api/v1/namespaces/";

/// The refusal of credentials for one of two entries with the same name: the watcher cannot tell which of them asks.
const IMAGES_DIFFER: &str = "another entry of this name in the rule has other `imageRegistryCredentials`: \
                             give each a name of its own";

/// A call, with every variable in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Call<'a> {
    /// A path of the API server.
    Api {
        /// The path, with its query.
        path: &'a str,
        /// `None`: GET. Otherwise POST with this body.
        data: Option<&'a Value>,
    },
    /// A service outside of the API server.
    Service {
        /// The URL of the service.
        url: &'a str,
        /// `None`: GET. Otherwise POST with this body.
        data: Option<&'a Value>,
    },
    /// A ConfigMap.
    ConfigMap {
        /// The ConfigMap.
        object: &'a ObjectKey,
    },
    /// The data of an image in its registry.
    Image {
        /// The image's reference.
        reference: &'a str,
    },
}

/// A call that the policy contains, with the data needed to make the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit<'p> {
    /// A path of the API server.
    Api {
        /// The path with fresh escapes: every later reader gets exactly the path that was checked.
        path: String,
    },
    /// A service outside of the API server.
    Service {
        /// The URL, escaped anew.
        url: String,
        /// Names and values.
        headers: &'p [(String, String)],
        /// PEM; empty: the usual authorities.
        ca_bundle: &'p str,
        /// An answer of any status is one: see [`service_answer`](crate::service_answer).
        takes_any_status: bool,
    },
    /// A ConfigMap.
    ConfigMap,
    /// The data of an image in its registry.
    Image {
        /// The credentials for its registry.
        credentials: &'p ImageCredentials,
    },
}

/// The reason why a call is not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The policy has no such rule, or the rule no such context entry that calls anybody.
    #[error("rule `{rule}` has no context entry `{variable}` that makes this kind of call")]
    Unknown {
        /// The rule's name.
        rule: String,
        /// The context entry's name.
        variable: String,
    },
    /// The context entry makes another call.
    #[error("context entry `{variable}` does not make this call: {reason}")]
    Differs {
        /// The context entry's name.
        variable: String,
        /// The difference.
        reason: String,
    },
}

impl Policy {
    /// Permits `call` if context entry `variable` of rule `rule` makes it and it stays in the policy's
    /// namespace. Any of several entries with that name may make it; those that read the same image have to
    /// sign in alike.
    ///
    /// # Errors
    /// [`Refusal`], with the reason.
    pub fn permits(
        &self,
        rule: &str,
        variable: &str,
        call: Call<'_>,
    ) -> Result<Permit<'_>, Refusal> {
        let rules = self.rules.iter().filter(|found| found.name == rule);
        if let Call::Api { path, data: None } = call
            && rules.clone().any(|rule| match variable {
                // Also where only an exception is about them, which the policy does not know.
                NAMESPACE_SELECTOR => true,
                NAMESPACE_OBJECT => {
                    self.kind.is_cel() || rule.cel().is_some_and(|cel| cel.reads().namespace)
                }
                _ => false,
            })
            && let Ok(path) = self.namespace_path(path)
        {
            return Ok(Permit::Api { path });
        }
        let entries = rules.flat_map(Rule::entries);
        let (mut refused, mut image_of) = (None, None);
        for entry in entries.filter(|entry| entry.name == variable) {
            let Loader::Fact(fact) = &entry.loader else {
                continue;
            };
            let permit = match (&fact.source, call) {
                (FactOrigin::Api(own), Call::Api { path, data }) => self.api(own, path, data),
                (FactOrigin::Service(own), Call::Service { url, data }) => service(own, url, data),
                (FactOrigin::ConfigMap(own), Call::ConfigMap { object }) => {
                    self.config_map(own, object)
                }
                (FactOrigin::Image(own), Call::Image { reference }) => image(own, reference),
                _ => continue,
            };
            match permit {
                Ok(Permit::Image { credentials }) => {
                    if image_of.is_some_and(|other| other != credentials) {
                        refused = Some(IMAGES_DIFFER.to_owned());
                        image_of = None;
                        break;
                    }
                    image_of = Some(credentials);
                }
                Ok(permit) => return Ok(permit),
                Err(reason) => refused = Some(reason),
            }
        }
        if let Some(credentials) = image_of {
            return Ok(Permit::Image { credentials });
        }
        let variable = variable.to_owned();
        Err(match refused {
            Some(reason) => Refusal::Differs { variable, reason },
            None => Refusal::Unknown {
                rule: rule.to_owned(),
                variable,
            },
        })
    }

    /// The path of a namespace that a rule is about.
    fn namespace_path(&self, path: &str) -> Result<String, String> {
        let name = path.strip_prefix(NAMESPACES).unwrap_or_default();
        check_name(name)?;
        let path = Concrete::parse(path)?;
        confine(self.namespace(), &path).map_err(|error| error.to_string())?;
        Ok(path.to_string())
    }

    fn api(&self, own: &ApiCall, path: &str, data: Option<&Value>) -> Result<Permit<'_>, String> {
        let path = Concrete::parse(path)?;
        own.path.covers(&path)?;
        confine(self.namespace(), &path).map_err(|error| error.to_string())?;
        covers_data(own.data.as_ref(), data)?;
        let path = path.to_string();
        Ok(Permit::Api { path })
    }

    fn config_map(&self, own: &ConfigMapCall, object: &ObjectKey) -> Result<Permit<'_>, String> {
        check_name(&object.namespace)?;
        check_name(&object.name)?;
        let home = self.namespace();
        if home.is_some_and(|home| home != &*object.namespace) {
            return Err(format!(
                "configMap namespace {:?} is different from policy namespace {:?}",
                object.namespace,
                home.unwrap_or_default()
            ));
        }
        // An empty value of a variable is the default too.
        let is_home = own.or_home("", home) == &*object.namespace;
        let fits = |template: &Template, text: &str| {
            template.can_be(text, |value| check_segment(value).is_ok())
        };
        let is_namespace =
            fits(&own.namespace, &object.namespace) || (is_home && fits(&own.namespace, ""));
        if !is_namespace {
            return Err(format!("its namespace is not `{}`", own.namespace.source()));
        }
        if !fits(&own.name, &object.name) {
            return Err(format!("its name is not `{}`", own.name.source()));
        }
        Ok(Permit::ConfigMap)
    }
}

fn service<'p>(
    own: &'p ServiceCall,
    url: &str,
    data: Option<&Value>,
) -> Result<Permit<'p>, String> {
    let url = own.url.covers(url)?;
    covers_data(own.data.as_ref(), data)?;
    Ok(Permit::Service {
        url,
        headers: &own.headers,
        ca_bundle: &own.ca_bundle,
        takes_any_status: own.takes_any_status,
    })
}

fn image<'p>(own: &'p ImageCall, reference: &str) -> Result<Permit<'p>, String> {
    let ImageCall {
        reference: template,
        credentials,
    } = own;
    match template.can_be(reference, |value| !value.contains(char::is_whitespace)) {
        true => Ok(Permit::Image { credentials }),
        false => Err(format!("its image is not `{}`", template.source())),
    }
}

fn covers_data(own: Option<&ValueTemplate>, data: Option<&Value>) -> Result<(), String> {
    match (own, data) {
        (None, None) => Ok(()),
        (Some(own), Some(data)) if own.can_be(data) => Ok(()),
        (Some(_), Some(_)) => Err("its data are not the policy's".to_owned()),
        (Some(_), None) => Err("the policy makes a POST".to_owned()),
        (None, Some(_)) => Err("the policy makes a GET".to_owned()),
    }
}

#[cfg(test)]
mod tests;
