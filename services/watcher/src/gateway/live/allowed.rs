//! A read that a policy contains, and all that is needed to make it.

use anteroom_model::{FactError, ObjectKey};
use anteroom_policy::{Call, Permit, Policy};
use anteroom_wire::live::{LiveCall, LiveRequest};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::failed;
use crate::gateway::{
    calls::{CallTarget, Service, is_of_secrets, parse_url},
    images::ImageRequest,
};

/// A read that may be made.
#[derive(Clone)]
pub(super) struct Allowed {
    pub(super) target: ReadTarget,
    /// The body of a POST, JSON.
    pub(super) data: Option<Bytes>,
    /// The answer is a ConfigMap, of which `{data, metadata}` are wanted.
    pub(super) config_map: bool,
    /// The call takes an answer of a service with any HTTP status.
    pub(super) takes_any_status: bool,
    /// The call reads Secrets.
    pub(super) secret: bool,
}

/// The key that equal reads share: all that is asked for, and the body of a POST.
pub(super) type ReadKey = (String, Option<Bytes>);

/// The server of a read.
#[derive(Clone)]
pub(super) enum ReadTarget {
    Call(CallTarget),
    /// An image's registry.
    Image(ImageRequest),
}

impl Allowed {
    /// Returns the read of `request` if `policy` contains it.
    ///
    /// # Errors
    /// [`FactError::LiveReadFailed`] where the policy does not contain it.
    pub(super) fn by(policy: &Policy, request: &LiveRequest) -> Result<Self, FactError> {
        let (call, data) = match &request.call {
            LiveCall::Api { path, data } => {
                let data = data.as_ref();
                (Call::Api { path, data }, data)
            }
            LiveCall::Service { url, data } => {
                let data = data.as_ref();
                (Call::Service { url, data }, data)
            }
            LiveCall::ConfigMap { object } => (Call::ConfigMap { object }, None),
            LiveCall::Image { reference } => (Call::Image { reference }, None),
            LiveCall::Existing { .. } | LiveCall::Write { .. } | LiveCall::MayWrite { .. } => {
                return Err(failed("this is no call of a context entry"));
            }
        };
        let permit = policy.permits(&request.rule, &request.variable, call);
        let permit = permit.map_err(|refusal| {
            let policy = &request.policy;
            failed(format!("policy `{policy}` does not read this: {refusal}"))
        })?;
        let takes_any_status = matches!(
            permit,
            Permit::Service {
                takes_any_status: true,
                ..
            }
        );
        let target = match permit {
            Permit::Api { path } => ReadTarget::Call(CallTarget::Api { path }),
            Permit::ConfigMap => match &request.call {
                LiveCall::ConfigMap { object } => ReadTarget::Call(config_map(object)),
                _ => return Err(another_call()),
            },
            Permit::Image { credentials } => match &request.call {
                LiveCall::Image { reference } => ReadTarget::Image(ImageRequest {
                    reference: reference.clone(),
                    credentials: credentials.clone(),
                }),
                _ => return Err(another_call()),
            },
            Permit::Service {
                url,
                headers,
                ca_bundle,
                ..
            } => ReadTarget::Call(service(&url, headers, ca_bundle)?),
        };
        Ok(Self {
            secret: matches!(
                &target,
                ReadTarget::Call(CallTarget::Api { path }) if is_of_secrets(path)
            ),
            config_map: matches!(request.call, LiveCall::ConfigMap { .. }),
            data: data.map(|data| Bytes::from(data.to_string())),
            takes_any_status,
            target,
        })
    }

    /// Returns a key that equal reads share. `None` for a POST to a service, which may have effects
    /// each time.
    pub(super) fn key(&self) -> Option<ReadKey> {
        let target = match &self.target {
            ReadTarget::Image(ImageRequest {
                reference,
                credentials,
            }) => return Some((format!("image {reference} {credentials:?}"), None)),
            ReadTarget::Call(target) => target,
        };
        match target {
            CallTarget::Api { path } => {
                let asked = format!("{} {path}", self.config_map);
                Some((asked, self.data.clone()))
            }
            CallTarget::Service(_) if self.data.is_some() => None,
            CallTarget::Service(Service {
                url,
                ca_bundle,
                headers,
            }) => {
                let headers = headers.iter();
                let headers: Vec<_> = headers
                    .map(|(name, value)| (name.as_str(), value.as_bytes()))
                    .collect();
                let any = self.takes_any_status;
                Some((format!("{any} {url} {ca_bundle:?} {headers:?}"), None))
            }
        }
    }
}

fn another_call() -> FactError {
    failed("the policy contains another call")
}

fn config_map(object: &ObjectKey) -> CallTarget {
    let ObjectKey { namespace, name } = object;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    CallTarget::Api { path }
}

fn service(
    url: &str,
    headers: &[(String, String)],
    ca_bundle: &str,
) -> Result<CallTarget, FactError> {
    let mut sent = HeaderMap::new();
    let url = parse_url(url, &mut sent).map_err(|failure| failed(failure.message))?;
    for (name, value) in headers {
        let name = HeaderName::try_from(name);
        let name =
            name.map_err(|_| failed("a header of the policy has no name to be sent with"))?;
        let value = HeaderValue::try_from(value);
        let mut value = value.map_err(|_| failed("a header of the policy cannot be sent"))?;
        value.set_sensitive(true);
        sent.insert(name, value);
    }
    Ok(CallTarget::Service(Service {
        url,
        ca_bundle: Some(ca_bundle.to_owned()).filter(|pem| !pem.trim().is_empty()),
        headers: sent,
    }))
}
