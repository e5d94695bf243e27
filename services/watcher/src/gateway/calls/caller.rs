//! Makes one call, wherever it goes.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use anteroom_functions::json::{self, JsonError};
use anteroom_model::limits::OBJECT_BYTES_MAX;
use bytes::Bytes;
use serde_json::Value;

use super::{
    CallFault, CallSpec, CallTarget, Service,
    http::{AddressFilter, CallAnswer, HttpCall, HttpClients, Redirects, Validators},
};
use crate::source::apiserver::ApiServer;

/// Makes calls. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    api: ApiServer,
    clients: HttpClients,
    bytes_max: usize,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The answer is unchanged since the call before.
    Unchanged,
    /// A response body of JSON.
    Json(Value, Validators),
}

impl Caller {
    /// Returns a caller. It sends the API server's credentials only to paths of the API server. It calls other hosts
    /// without credentials, at the addresses that `services` permits. It reads at most `bytes_max` of an entry's
    /// response.
    pub(crate) fn new(api: ApiServer, bytes_max: usize, services: Arc<dyn AddressFilter>) -> Self {
        Self {
            api,
            bytes_max,
            clients: HttpClients::new(services),
        }
    }

    /// Returns the client of the API server, for writes.
    pub(crate) fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Makes a call, and reads the response as JSON.
    ///
    /// # Errors
    /// [`CallFault`].
    pub(crate) async fn make(
        &self,
        target: &CallTarget,
        data: Option<&Bytes>,
        known: &Validators,
        timeout: Duration,
    ) -> Result<Reply, CallFault> {
        let fetched = self.fetch(target, data, known, self.bytes_max, timeout);
        match fetched.await? {
            CallAnswer::Unchanged => Ok(Reply::Unchanged),
            CallAnswer::Body(bytes, validators) => Ok(Reply::Json(parse(&bytes)?, validators)),
        }
    }

    /// Makes a call. With `known`, an endpoint that offers it may say that nothing changed.
    ///
    /// # Errors
    /// [`CallFault`].
    pub(crate) async fn fetch(
        &self,
        target: &CallTarget,
        data: Option<&Bytes>,
        known: &Validators,
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<CallAnswer, CallFault> {
        match target {
            CallTarget::Api { path } => {
                let bytes = self.ask_api(path, data.cloned(), bytes_max, timeout);
                Ok(CallAnswer::Body(bytes.await?, Validators::default()))
            }
            CallTarget::Service(service) => {
                let call = self.http_call(service, data, bytes_max);
                call.make(known, timeout).await
            }
        }
    }

    /// Asks a service. An answer of any status is one: the number of its status, and its body.
    ///
    /// # Errors
    /// [`CallFault`], but for an error status.
    pub(crate) async fn ask(
        &self,
        service: &Service,
        data: Option<&Bytes>,
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<(u16, Bytes), CallFault> {
        let call = HttpCall {
            reads_errors_whole: true,
            ..self.http_call(service, data, bytes_max)
        };
        let answer = call.ask(timeout).await?;
        Ok((answer.status.as_u16(), answer.body))
    }

    fn http_call(&self, service: &Service, data: Option<&Bytes>, bytes_max: usize) -> HttpCall {
        let Service {
            url,
            ca_bundle,
            headers,
        } = service;
        HttpCall {
            url: url.clone(),
            headers: headers.clone(),
            data: data.cloned(),
            clients: self.clients.clone(),
            ca_bundle: ca_bundle.clone(),
            redirects: Redirects::SameOrigin,
            bytes_max,
            reads_errors_whole: false,
        }
    }

    async fn ask_api(
        &self,
        path: &str,
        data: Option<Bytes>,
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<Bytes, CallFault> {
        let called = tokio::time::timeout(timeout, self.api.call(path, data, bytes_max)).await;
        let (code, body) = called.map_err(|_| CallFault::Slow { timeout })??;
        if (200..300).contains(&code) {
            Ok(body)
        } else {
            Err(CallFault::status(code, &body))
        }
    }
}

impl CallSpec {
    /// Returns the HTTP method, for people.
    pub(crate) fn method(&self) -> &'static str {
        match &self.data {
            None => "GET",
            Some(_) => "POST",
        }
    }
}

/// Parses a response as JSON.
///
/// # Errors
/// [`CallFault::Unreadable`], with the position of the fault and without the text, which may be secret.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, CallFault> {
    read(bytes).map_err(parse_fault)
}

/// Parses a response as JSON; one that is none is null.
///
/// # Errors
/// [`CallFault::Unreadable`]: it is JSON, and too deep.
pub(crate) fn parse_or_null(bytes: &[u8]) -> Result<Value, CallFault> {
    match read(bytes) {
        Err(JsonError::Malformed(_)) => Ok(Value::Null),
        read => read.map_err(parse_fault),
    }
}

fn read(bytes: &[u8]) -> Result<Value, JsonError> {
    let value = PhantomData::<Value>;
    json::read(bytes, value, || serde_json::from_slice(bytes))
}

fn parse_fault(error: JsonError) -> CallFault {
    CallFault::Unreadable {
        problem: match error {
            JsonError::TooDeep => error.to_string(),
            JsonError::Malformed(error) => format!(
                "{:?} error at line {} column {}",
                error.classify(),
                error.line(),
                error.column()
            ),
        },
    }
}

/// Encodes a response as the log keeps it.
///
/// # Errors
/// [`CallFault::Unreadable`] or [`CallFault::TooLarge`].
pub(crate) fn encode(json: &Value) -> Result<Bytes, CallFault> {
    let body = anteroom_wire::body::encode_json(json);
    let body = body.map_err(|error| CallFault::Unreadable {
        problem: error.to_string(),
    })?;
    if body.len() > OBJECT_BYTES_MAX {
        return Err(CallFault::TooLarge {
            bytes_max: OBJECT_BYTES_MAX,
        });
    }
    Ok(body)
}
