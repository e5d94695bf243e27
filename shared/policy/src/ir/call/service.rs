//! The URL of a service.

use serde_json::{Value, json};

use super::path::{Concrete, PathTemplate};
use crate::ir::{
    VariableError,
    template::{Resolve, Template},
};

/// A URL whose scheme and authority have no variables: no value can make it another server's.
#[derive(Debug)]
pub(crate) struct ServiceUrl {
    /// Scheme, host and port, as in `https://service.namespace:8443`.
    origin: String,
    path: PathTemplate,
}

impl ServiceUrl {
    pub(crate) fn path(&self) -> &PathTemplate {
        &self.path
    }

    /// # Errors
    /// The problem with the URL.
    pub(crate) fn parse(template: &Template) -> Result<Self, String> {
        // The first slash after the two of the scheme ends the authority.
        let mut pieces = template.split('/').into_iter();
        let (scheme, empty, authority) = (pieces.next(), pieces.next(), pieces.next());
        let scheme = scheme
            .as_ref()
            .and_then(Template::fixed)
            .unwrap_or_default();
        if !matches!(scheme, "http:" | "https:")
            || empty.as_ref().and_then(Template::fixed) != Some("")
        {
            return Err("a service's URL begins with `http://` or `https://`".to_owned());
        }
        let (authority, _) = authority
            .unwrap_or_else(|| Template::literal(""))
            .split_once('?');
        let Some(authority) = authority.fixed() else {
            return Err("no variable can stand in the host of a service's URL".to_owned());
        };
        check_authority(authority)?;
        let origin = format!("{scheme}//{authority}");
        let path = template.without_prefix(&origin);
        let path = PathTemplate::parse(&path, false)?;
        Ok(Self { origin, path })
    }

    /// Renders the URL; see [`PathTemplate::render`].
    pub(crate) fn render<R: Resolve>(
        &self,
        resolver: &mut R,
    ) -> Result<Result<String, VariableError>, R::Interrupt> {
        let rendered = self.path.render(resolver)?;
        Ok(rendered.map(|path| format!("{}{path}", self.origin)))
    }

    /// Returns the canonical form of `url`, if this template can produce it.
    ///
    /// # Errors
    /// The template cannot produce the URL: the reason, for people.
    pub(crate) fn covers(&self, url: &str) -> Result<String, String> {
        let rest = url.strip_prefix(&self.origin);
        let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with(['/', '?'])) else {
            return Err(format!("it is not at `{}`", self.origin));
        };
        let path = Concrete::parse(rest)?;
        self.path.covers(&path)?;
        Ok(format!("{}{path}", self.origin))
    }
}

/// The answer of a service as `http.get` and `http.post` of Kyverno's kinds give it: an object has its status in the
/// field `statusCode`, and any other body stands in `body` beside it.
pub fn service_answer(status: u16, body: Value) -> Value {
    match body {
        Value::Object(mut body) => {
            body.insert("statusCode".to_owned(), status.into());
            Value::Object(body)
        }
        body => json!({"body": body, "statusCode": status}),
    }
}

/// A host and a port, and no user.
fn check_authority(authority: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if authority.is_empty() || !authority.chars().all(plain) {
        return Err(format!(
            "`{authority}` is no host: letters, digits, `-`, `.`, and a port"
        ));
    }
    Ok(())
}
