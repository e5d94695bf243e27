//! Questions to the API server, by the caller's own rights.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::Value;
use tokio::time::timeout;

/// Limit for one question.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The most objects of a list that are looked at.
const OBJECTS_MAX: usize = 10_000;

/// An answer, or the reason why there is none.
pub(crate) type ReadResult<T> = Result<T, String>;

/// A client of the API server, with the caller's rights.
pub(crate) struct Asker<'a>(pub(crate) &'a Client);

impl Asker<'_> {
    /// Returns the answer at a path; `None`: there is nothing.
    pub(crate) async fn get(&self, path: &str) -> ReadResult<Option<Value>> {
        let answer = timeout(TIMEOUT, self.0.request::<Value>(request(path)?)).await;
        match answer.map_err(|_| SILENT.to_owned())? {
            Ok(answer) => Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(refusal_message(&error, path)),
        }
    }

    /// Returns the text at a path.
    pub(crate) async fn text(&self, path: &str) -> ReadResult<String> {
        let answer = timeout(TIMEOUT, self.0.request_text(request(path)?)).await;
        let answer = answer.map_err(|_| SILENT.to_owned())?;
        answer.map_err(|error| refusal_message(&error, path))
    }

    /// Returns the objects of a resource; `None`: there is no such resource.
    pub(crate) async fn list(&self, path: &str) -> ReadResult<Option<Vec<Value>>> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}limit={OBJECTS_MAX}");
        let answer = self.get(&path).await?;
        Ok(answer.map(|mut list| match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }))
    }

    /// Returns the objects of a resource, none if there is no such resource.
    pub(crate) async fn all(&self, path: &str) -> ReadResult<Vec<Value>> {
        Ok(self.list(path).await?.unwrap_or_default())
    }
}

const SILENT: &str = "the API server does not answer";

fn request(path: &str) -> ReadResult<Request<Vec<u8>>> {
    let request = Request::builder().method(Method::GET).uri(path);
    request.body(Vec::new()).map_err(|error| error.to_string())
}

fn refusal_message(error: &kube::Error, path: &str) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!("you may not read {path}"),
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
