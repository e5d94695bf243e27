//! Calls that read facts: `resource.get`, `resource.list`, `resource.post`, `globalContext.get`,
//! `image.getMetadata`, `http.get` and `http.post`.
//!
//! This crate reads nothing. A call is a [`Site`], known when the expression is compiled, with values for the
//! arguments that are not constant. A [`Host`] has the fact, or does not have it yet.

use std::fmt::{self, Write as _};

use anteroom_functions::pure;
use serde_json::Value;

use crate::subquery::{SubqueryAnswer, SubqueryRequest};

/// The policies whose expressions may read facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactScope {
    /// Cluster-wide policies: calls name a namespace.
    Cluster,
    /// Policies of a namespace: calls are about the policy's namespace, and name none.
    Namespace,
}

/// A function that reads a fact. Its arguments have a fixed order, the same for all overloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactFunction {
    /// `resource.get`: API version, plural, namespace, name. Null where the API server has no such object.
    ResourceGet,
    /// `resource.list`: API version, plural, namespace (empty: all), labels or null. A list object.
    ResourceList,
    /// `resource.post`: API version, plural, namespace, body. The API server's answer.
    ResourcePost,
    /// `globalContext.get`: name, projection or null. The data of the entry.
    Entry,
    /// `image.getMetadata`: reference. The data of an image in its registry.
    ImageMetadata,
    /// `http.get`: URL, headers or null, CA bundle or null. The answer of any status.
    HttpGet,
    /// `http.post`: URL, body, headers or null, CA bundle or null. The answer of any status.
    HttpPost,
}

impl FactFunction {
    /// The name in an expression, as in `resource.get`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ResourceGet => "resource.get",
            Self::ResourceList => "resource.list",
            Self::ResourcePost => "resource.post",
            Self::Entry => "globalContext.get",
            Self::ImageMetadata => "image.getMetadata",
            Self::HttpGet => "http.get",
            Self::HttpPost => "http.post",
        }
    }

    /// Returns whether a call may have an effect, or is seen by others: it is made only where it is certain that
    /// the expression makes it.
    pub fn has_effect(self) -> bool {
        self == Self::ResourcePost || self.is_http()
    }

    /// Returns whether it asks a service other than the API server.
    pub fn is_http(self) -> bool {
        matches!(self, Self::HttpGet | Self::HttpPost)
    }
}

/// An argument of a call, as far as it is known before there is a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A constant: one value for every request.
    Constant(Value),
    /// The argument at this index among the values that the evaluation passes.
    Dynamic(usize),
    /// A text: the concatenation of the parts.
    Text(Vec<Argument>),
    /// A map of these, whose keys are constant.
    Map(Vec<(String, Argument)>),
    /// The namespace of the policy.
    Home,
}

/// A call in an expression, by which the expression reads a fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    function: FactFunction,
    arguments: Vec<Argument>,
    name: String,
}

impl Site {
    pub(crate) fn new(function: FactFunction, arguments: Vec<Argument>) -> Self {
        let mut name = String::new();
        // Writing to a string cannot fail.
        let _ = write!(name, "{}(", function.as_str());
        for (at, argument) in arguments.iter().enumerate() {
            let argument = match argument {
                Argument::Constant(Value::Null) => continue,
                // A bundle has thousands of characters.
                Argument::Constant(Value::String(ca))
                    if function.is_http() && at + 1 == arguments.len() =>
                {
                    &Argument::Constant(format!("CA {}", pure::sha256(ca.as_bytes())).into())
                }
                argument => argument,
            };
            let _ = match at {
                0 => write!(name, "{argument}"),
                _ => write!(name, ", {argument}"),
            };
        }
        name.push(')');
        Self {
            function,
            arguments,
            name,
        }
    }

    /// The function.
    pub fn function(&self) -> FactFunction {
        self.function
    }

    /// The arguments, in the order of the [function](FactFunction).
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Returns whether the result may be kept in a view, and subexpressions over it be evaluated there: a list, or the
    /// data of an entry. A projection of an entry is computed, and comes whole.
    pub fn may_be_kept(&self) -> bool {
        match self.function {
            FactFunction::ResourceList => true,
            FactFunction::Entry => match self.arguments.get(1) {
                Some(Argument::Constant(projection)) => projection.is_null() || projection == "",
                _ => true,
            },
            _ => false,
        }
    }

    /// A canonical text of the call: calls that differ in no more than values of a request have the same. `_` stands
    /// for what is known only with a request, as in `resource.get("v1", "configmaps", _, "limits")`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "{value}"),
            Self::Dynamic(_) => f.write_char('_'),
            Self::Home => f.write_str("own"),
            Self::Text(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        f.write_str(" + ")?;
                    }
                    part.fmt(f)?;
                }
                Ok(())
            }
            Self::Map(entries) => {
                f.write_char('{')?;
                for (at, (key, value)) in entries.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{key:?}: {value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

/// The answer of a [`Host`].
#[derive(Clone, Copy, Debug)]
pub enum Fact<'v> {
    /// The fact.
    Value(&'v Value),
    /// The fact is not there yet: the evaluation goes on without it, and is begun again once it is.
    Unknown,
    /// It cannot be read. The number is the host's own, and comes back in
    /// [`EvalError::Fact`](crate::EvalError::Fact).
    Failed(u32, &'v str),
}

/// The source of facts for an evaluation. The answer to a question stays the same throughout.
pub trait Host<'v> {
    /// Reads a fact. `values` are those of the [dynamic](Argument::Dynamic) arguments. Of a call that is not
    /// certain to be made, something before it is unknown.
    fn read(&self, site: &'v Site, values: Vec<Value>, is_certain: bool) -> Fact<'v>;

    /// Returns whether subqueries are evaluated where their lists are kept. Otherwise the lists are read.
    fn takes_subqueries(&self) -> bool {
        false
    }

    /// Evaluates a subquery.
    fn subquery(&self, _request: SubqueryRequest<'v>) -> SubqueryAnswer<'v> {
        SubqueryAnswer::Declined
    }
}

/// The plural that Kubernetes guesses for a kind, as in `ingresses` for `Ingress`.
pub fn plural_of_kind(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower.ends_with("endpoints") {
        return lower;
    }
    match lower.as_bytes().last() {
        Some(b's' | b'x') => format!("{lower}es"),
        Some(b'y') => format!("{}ies", &lower[..lower.len() - 1]),
        _ if lower.ends_with("ch") => format!("{lower}es"),
        _ => format!("{lower}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_are_those_of_kubernetes() {
        for (kind, plural) in [
            ("Pod", "pods"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Endpoints", "endpoints"),
            ("StorageClass", "storageclasses"),
            ("Branch", "branches"),
        ] {
            assert_eq!(plural_of_kind(kind), plural);
        }
    }

    #[test]
    fn posts_and_calls_of_other_services_have_effects() {
        for (function, has_effect, is_http) in [
            (FactFunction::ResourceGet, false, false),
            (FactFunction::ResourceList, false, false),
            (FactFunction::ResourcePost, true, false),
            (FactFunction::Entry, false, false),
            (FactFunction::ImageMetadata, false, false),
            (FactFunction::HttpGet, true, true),
            (FactFunction::HttpPost, true, true),
        ] {
            let found = (function.has_effect(), function.is_http());
            assert_eq!(found, (has_effect, is_http), "{function:?}");
        }
    }
}
