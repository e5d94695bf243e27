//! Objects that exist already: read whole for a rule that changes them, and written as it has changed them.
//!
//! | request | calls of the API server |
//! |---|---|
//! | one object, by namespace and name | GET; which labels it has to have is seen here |
//! | others | a part of a LIST, without the objects that the names exclude |
//! | a Secret that triggers a rule | GET of its metadata alone |
//! | a write | GET, to see the changes, and PUT with the `resourceVersion` that the change was computed from |
//! | whether there may be writes | SelfSubjectAccessReview |
//!
//! A caller can change only objects that are targets of policies ([`Policy::permits_writing`]), only as the policies'
//! patches do ([`Policy::permits_change`]), and never Secrets. Writes have limits of their own, so that they take no
//! capacity from reads.

mod page;
mod parts;
mod paths;

use std::{sync::Arc, time::Duration};

use anteroom_model::{ExistingObjects, FactError, KindRecord, LabelSelector, ObjectKey};
use anteroom_policy::{FIELD_MANAGER, Policy};
use anteroom_wire::live::LiveRequest;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{
    allowed,
    allowed::Allowed,
    bucket::Bucket,
    failed,
    limits::{self, ReadClaim},
    policies::Policies,
    reader::LiveReader,
};
use crate::{
    gateway::{
        calls::CallTarget,
        rights::{self, Need},
    },
    source::apiserver::{ApiServer, Fault},
};

/// The largest object that is written.
pub(super) const WRITE_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Writes that are begun in a second, in the long run; as many may begin at once. Above it they wait their turn.
pub(super) const WRITES_PER_SECOND: u32 = 50;

/// Writes that are under way at once.
const WRITES_MAX: usize = 8;

/// The longest time for a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The media type of an object's metadata, without its content.
const METADATA_ALONE: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The fields of metadata that identify an object and its version.
const IDENTITY: [&str; 5] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
];

/// The limits of writes.
pub(super) struct Writes {
    bucket: Mutex<Bucket>,
    write_permits: Semaphore,
}

impl Writes {
    pub(super) fn new() -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(WRITES_PER_SECOND, Instant::now())),
            write_permits: Semaphore::new(WRITES_MAX),
        }
    }

    /// Writes one object, if `permits` accepts the object's present state.
    ///
    /// # Errors
    /// [`FactError::WriteFailed`] with the API server's code and words; 409 if the object changed since the change
    /// was computed. [`FactError::LiveReadBusy`] if no capacity was free in time.
    pub(super) async fn write(
        &self,
        api: &ApiServer,
        kind: &KindRecord,
        object: &Value,
        deadline: Instant,
        permits: impl AsyncFnOnce(&Value) -> Result<(), FactError>,
    ) -> Result<(), FactError> {
        let path = paths::of_object(kind, object).map_err(|problem| refused(0, problem))?;
        let body = Bytes::from(object.to_string());
        if body.len() > WRITE_BYTES_MAX {
            let message = format!("the object is larger than {WRITE_BYTES_MAX} bytes");
            return Err(refused(0, message));
        }
        let busy = || {
            let message = format!("{WRITES_PER_SECOND} writes a second, {WRITES_MAX} at once");
            limits::busy(&message, false)
        };
        let most = deadline.saturating_duration_since(Instant::now());
        let wait = self.bucket.lock().take(Instant::now(), most);
        tokio::time::sleep(wait.ok_or_else(busy)?).await;
        let most = deadline.saturating_duration_since(Instant::now());
        let permit = tokio::time::timeout(most, self.write_permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(busy());
        };
        let before = before(api, kind, &path, object).await?;
        permits(&before).await?;
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let put = api.put(&path, body, WRITE_BYTES_MAX * 2);
        let (code, said) = match tokio::time::timeout(WRITE_TIMEOUT, put).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(fault)) => return Err(refused(0, fault.to_string())),
            Err(_) => return Err(refused(0, "the API server did not answer".to_owned())),
        };
        if (200..300).contains(&code) {
            return Ok(());
        }
        Err(refused_by_api(kind, code, &said))
    }
}

/// The API server's refusal, in its words.
fn refused_by_api(kind: &KindRecord, code: u16, said: &[u8]) -> FactError {
    let said: Value = serde_json::from_slice(said).unwrap_or_default();
    let message = said["message"].as_str().unwrap_or("no reason given");
    let message: String = message.chars().take(512).collect();
    refused(
        code,
        match code {
            403 => format!("{message}. {}", rights::grant(kind)),
            _ => message,
        },
    )
}

/// Reads the present state of the object to write.
///
/// # Errors
/// 409 if the object changed since the change was computed.
async fn before(
    api: &ApiServer,
    kind: &KindRecord,
    path: &str,
    object: &Value,
) -> Result<Value, FactError> {
    let read = api.call(path, None, WRITE_BYTES_MAX * 2);
    let (code, said) = match tokio::time::timeout(WRITE_TIMEOUT, read).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(fault)) => return Err(refused(0, fault.to_string())),
        Err(_) => return Err(refused(0, "the API server did not answer".to_owned())),
    };
    if !(200..300).contains(&code) {
        return Err(refused_by_api(kind, code, &said));
    }
    let before: Value =
        serde_json::from_slice(&said).map_err(|error| refused(0, error.to_string()))?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    match version(&before) == version(object) {
        true => Ok(before),
        false => Err(refused(409, "the object has changed".to_owned())),
    }
}

impl LiveReader {
    /// Reads a part of the objects that a rule changes, or of the rule's triggers.
    pub(super) async fn existing(
        &self,
        request: &LiveRequest,
        objects: &ExistingObjects,
        deadline: Instant,
    ) -> Result<Value, FactError> {
        if let Some(reason) = self.writes_forbidden(&request.policy) {
            return Err(FactError::LiveReadFailed {
                code: 403,
                message: reason,
            });
        }
        let check = |policy: &Policy| policy.permits_reading(&request.rule, objects);
        self.permitted_soon(&request.policy, check).await?;
        let claim = &ReadClaim::of(request, deadline);
        let kind = self.served_kind(objects)?;
        if is_secrets(&kind) {
            return self.secret_trigger(&kind, objects, claim).await;
        }
        if let Some(path) = paths::of_one(&kind, objects) {
            match self.fetched(path, claim).await {
                Ok(object) if is_asked(objects, &object) => {
                    return Ok(match is_selected(objects, &object)? {
                        true => json!({"items": [*object]}),
                        false => json!({"items": []}),
                    });
                }
                Ok(_) => {
                    let other = format!("the API server gave another object than {objects}");
                    return Err(failed(other));
                }
                // That may be the kind, too: only a list that lacks an object says that it is not there.
                Err(FactError::LiveReadFailed { code: 404, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.part(&kind, objects, claim).await
    }

    /// Reads a Secret that triggers a rule, and returns its identity without its content.
    async fn secret_trigger(
        &self,
        kind: &KindRecord,
        objects: &ExistingObjects,
        claim: &ReadClaim,
    ) -> Result<Value, FactError> {
        let path = match objects.target {
            None => paths::of_one(kind, objects),
            Some(_) => None,
        };
        let path = path.ok_or_else(no_secrets)?;
        let _permit = self.begin_scan(claim).await?;
        let read = self.api().get_as(&path, METADATA_ALONE, WRITE_BYTES_MAX);
        let until = claim.deadline.min(Instant::now() + WRITE_TIMEOUT);
        let read = match tokio::time::timeout_at(until, read).await {
            Ok(read) => read,
            Err(_) => return Err(failed("the API server did not answer")),
        };
        match read {
            Ok(found) => identity_of_secret(&found),
            Err(Fault::Refused { code: 404, .. }) => Ok(json!({"items": []})),
            Err(fault) => Err(FactError::LiveReadFailed {
                code: fault.code().parse().unwrap_or(0),
                message: fault.to_string(),
            }),
        }
    }

    async fn fetched(&self, path: String, claim: &ReadClaim) -> Result<Arc<Value>, FactError> {
        let read = Allowed {
            target: allowed::ReadTarget::Call(CallTarget::Api { path }),
            data: None,
            config_map: false,
            takes_any_status: false,
            secret: false,
        };
        // Nobody waits for it: it takes nothing from admission.
        let answer = self.read(&read, true, claim).await?.answer;
        Ok(answer)
    }

    /// Writes an object that a rule has changed.
    pub(super) async fn write(
        &self,
        request: &LiveRequest,
        target: usize,
        object: &Value,
        deadline: Instant,
    ) -> Result<Value, FactError> {
        if let Some(reason) = self.writes_forbidden(&request.policy) {
            return Err(refused(403, reason));
        }
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = self.kind(&ExistingObjects {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: object["kind"].as_str().unwrap_or_default().to_owned(),
            ..ExistingObjects::default()
        })?;
        let resource = &*kind.gvr.resource;
        let check =
            |policy: &Policy| policy.permits_writing(&request.rule, target, object, resource);
        self.permitted_soon(&request.policy, check).await?;
        let writes = self.writes();
        let permits = async |before: &Value| {
            let check = |policy: &Policy| {
                policy.permits_change(&request.rule, target, before, object, resource)
            };
            let permitted = self.permitted_soon(&request.policy, check).await;
            permitted.map_err(|error| refused(0, error.to_string()))
        };
        let written = writes.write(self.api(), &kind, object, deadline, permits);
        written.await.map(|()| Value::Null)
    }

    /// Returns the reason why a policy may not change such objects, or the rights that the watcher lacks to; null if
    /// there is none.
    pub(super) async fn may_write(
        &self,
        policy: &ObjectKey,
        objects: &ExistingObjects,
    ) -> Result<Value, FactError> {
        if let Some(reason) = self.writes_forbidden(policy) {
            return Ok(reason.into());
        }
        let kind = self.kind(objects)?;
        let need = Need::from(objects.clone());
        let lacks = rights::lacking(self.api(), &kind, &need.namespace, &need.name).await;
        let lacks = lacks.map_err(failed)?;
        Ok(lacks.map_or(Value::Null, Value::from))
    }

    /// The kind of objects, as the API server serves it. No Secrets.
    fn kind(&self, objects: &ExistingObjects) -> Result<KindRecord, FactError> {
        let record = self.served_kind(objects)?;
        match is_secrets(&record) {
            true => Err(no_secrets()),
            false => Ok(record),
        }
    }

    fn served_kind(&self, objects: &ExistingObjects) -> Result<KindRecord, FactError> {
        let ExistingObjects {
            group,
            version,
            kind,
            resource,
            ..
        } = objects;
        let Some(found) = self.policies().kind(objects) else {
            let (what, name) = match kind.is_empty() {
                true => ("resource", resource),
                false => ("kind", kind),
            };
            return Err(failed(format!(
                "the API server serves no {what} `{name}` of `{group}` in version `{version}`"
            )));
        };
        // Otherwise the permit could be for one resource, and the read of a different one.
        match resource.is_empty() || *resource == found.gvr.resource {
            true => Ok(found),
            false => Err(failed(format!(
                "{kind} is not the kind of the resource `{resource}`"
            ))),
        }
    }
}

/// Returns a Secret without its content, as a part of a list. Annotations may hold a copy of the content.
fn identity_of_secret(found: &[u8]) -> Result<Value, FactError> {
    let found: Value = serde_json::from_slice(found).map_err(|error| failed(error.to_string()))?;
    let known = IDENTITY.into_iter().filter_map(|field| {
        let value = found["metadata"].get(field)?;
        Some((field.to_owned(), value.clone()))
    });
    let metadata: Map<String, Value> = known.collect();
    Ok(json!({"items": [{"apiVersion": "v1", "kind": "Secret", "metadata": metadata}]}))
}

fn is_secrets(kind: &KindRecord) -> bool {
    (&*kind.gvr.group, &*kind.gvr.resource) == ("", "secrets")
}

fn no_secrets() -> FactError {
    failed("Secrets that exist are not changed")
}

impl Policies {
    /// Returns a kind that the API server serves, as the coordinator has published it: by its kind, or else by its plural.
    fn kind(&self, objects: &ExistingObjects) -> Option<KindRecord> {
        let ExistingObjects {
            group,
            version,
            kind,
            resource,
            ..
        } = objects;
        let ending = match &**group {
            "" => format!(".{version}"),
            group => format!(".{version}.{group}"),
        };
        let found = self.kinds()?.read(Some(u64::MAX), |view, _| {
            if !kind.is_empty() {
                let object = view.get("", &format!("{kind}{ending}"))?;
                return anteroom_wire::body::decode::<KindRecord>(object.body()).ok();
            }
            let mut all = view
                .objects()
                .filter_map(|object| anteroom_wire::body::decode::<KindRecord>(object.body()).ok());
            all.find(|record| {
                let gvr = &record.gvr;
                (&gvr.group, &gvr.version, &gvr.resource) == (group, version, resource)
            })
        });
        found.ok()?
    }
}

/// Returns true if the object's name and namespace match the request.
fn is_asked(objects: &ExistingObjects, object: &Value) -> bool {
    (objects.kind.is_empty() || object["kind"] == *objects.kind)
        && object["metadata"]["name"] == *objects.name
        && object["metadata"]["namespace"].as_str().unwrap_or_default() == objects.namespace
}

/// Returns true if the object has the requested labels.
fn is_selected(objects: &ExistingObjects, object: &Value) -> Result<bool, FactError> {
    let selector = LabelSelector::parse(&objects.label_selector);
    let selector = selector.map_err(|error| failed(error.to_string()))?;
    let labels = &object["metadata"]["labels"];
    Ok(selector.matches(|label| labels[label].as_str()))
}

fn refused(code: u16, message: String) -> FactError {
    FactError::WriteFailed { code, message }
}

#[cfg(test)]
mod tests;
