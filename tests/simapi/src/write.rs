//! POST, PUT, PATCH and DELETE: what becomes of an object before it is stored.

use std::sync::Arc;

use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    admission::{self, Operation, Review},
    metadata,
    object::{Stored, metadata_mut, text},
    patch,
    request::{Params, ResourcePath},
    resource::{ResourceName, ResourceType},
    server::App,
    status::{Failure, json_response},
    store::{Expected, NAMESPACES, StoreError},
};

/// The number of times that a patch is tried again on an object that changed meanwhile.
const PATCH_ATTEMPTS_MAX: usize = 5;

/// One write, on its way.
pub(crate) struct Write<'a> {
    pub(crate) app: &'a Arc<App>,
    pub(crate) resource: Arc<ResourceType>,
    pub(crate) path: ResourcePath,
    pub(crate) params: Params,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A write that was done: its response and what the admission webhooks warned of.
struct Done {
    code: u16,
    object: Value,
    warnings: Vec<String>,
}

impl Write<'_> {
    /// Does it, whichever `verb` it is.
    pub(crate) async fn run(&self, verb: &str) -> Result<Response, Failure> {
        let done = match verb {
            "create" => self.create().await?,
            "update" => self.update().await?,
            "patch" => self.patch().await?,
            _ => self.delete().await?,
        };
        let mut response = json_response(done.code, &done.object).into_response();
        for warning in done.warnings {
            if let Ok(header) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
                response.headers_mut().append("warning", header);
            }
        }
        Ok(response)
    }

    async fn create(&self) -> Result<Done, Failure> {
        self.check_media_type()?;
        let mut object = self.read_object()?;
        self.place(&mut object)?;
        let name = metadata::ensure_name(&mut object, &self.app.identity)?;
        self.insert(object, &name).await
    }

    /// Stores an object that is not there yet.
    async fn insert(&self, mut object: Value, name: &str) -> Result<Done, Failure> {
        self.check_namespace()?;
        metadata::prepare_create(&self.resource, &mut object, &self.app.identity);
        let warnings = self
            .admit(Operation::Create, name, Some(&mut object), None)
            .await?;
        let stored = self.app.store.put(&self.name(), object, Expected::Absent);
        let stored = stored.map_err(|error| match error {
            StoreError::Conflict => Failure::already_exists(&self.resource, name),
            error => self.failed(error, name),
        })?;
        Ok(Done {
            code: 201,
            object: self.whole(&stored)?,
            warnings,
        })
    }

    async fn update(&self) -> Result<Done, Failure> {
        self.check_media_type()?;
        let name = self.path.name.clone().unwrap_or_default();
        let mut object = self.read_object()?;
        self.place(&mut object)?;
        if text(metadata_mut(&mut object), "name") != name {
            let message = "the name of the object does not match the name on the URL";
            return Err(Failure::bad_request(message));
        }
        let current = self.current(&name)?;
        match self.replace(&current, object).await? {
            Some(done) => Ok(done),
            None => Err(self.conflict(&name)),
        }
    }

    async fn patch(&self) -> Result<Done, Failure> {
        let name = self.path.name.clone().unwrap_or_default();
        let kind = patch::Kind::of(&self.headers)?;
        for _ in 0..PATCH_ATTEMPTS_MAX {
            let current = match self.current(&name) {
                Err(failure) if kind == patch::Kind::Apply && failure.code == 404 => {
                    return self.apply_new(&name).await;
                }
                current => current?,
            };
            let mut object = self.whole(&current)?;
            // What the patch says of the version counts; what was read before it does not.
            metadata_mut(&mut object).remove("resourceVersion");
            patch::apply(kind, &mut object, &self.body, &self.params)?;
            self.place(&mut object)?;
            if text(metadata_mut(&mut object), "name") != name {
                return Err(Failure::bad_request(
                    "a patch must not change metadata.name",
                ));
            }
            let names_version = !text(metadata_mut(&mut object), "resourceVersion").is_empty();
            match self.replace(&current, object).await? {
                Some(done) => return Ok(done),
                None if names_version => break,
                None => {}
            }
        }
        Err(self.conflict(&name))
    }

    /// Server-side apply of an object that is not there: it is made.
    async fn apply_new(&self, name: &str) -> Result<Done, Failure> {
        if self.path.subresource.is_some() {
            return Err(Failure::not_found(&self.resource, name));
        }
        let mut object = self.read_object()?;
        self.place(&mut object)?;
        metadata_mut(&mut object).insert("name".into(), name.into());
        self.insert(object, name).await
    }

    /// Stores `object` in the place of `current`; `None` if that has changed meanwhile.
    async fn replace(&self, current: &Stored, mut object: Value) -> Result<Option<Done>, Failure> {
        let name = &current.name;
        let given = text(metadata_mut(&mut object), "resourceVersion");
        if !given.is_empty() && given != current.version.to_string() {
            return Err(self.conflict(name));
        }
        let old = self.whole(current)?;
        let status_only = self.path.subresource.is_some();
        metadata::prepare_update(&self.resource, &old, &mut object, status_only)?;
        let warnings = self
            .admit(Operation::Update, name, Some(&mut object), Some(&old))
            .await?;
        metadata_mut(&mut object)
            .insert("resourceVersion".into(), current.version.to_string().into());
        // Nothing changed: no new version, and no event.
        if object == old {
            return Ok(Some(Done {
                code: 200,
                object: old,
                warnings,
            }));
        }
        match self
            .app
            .store
            .put(&self.name(), object, Expected::Version(current.version))
        {
            Ok(stored) => Ok(Some(Done {
                code: 200,
                object: self.whole(&stored)?,
                warnings,
            })),
            Err(StoreError::Conflict) => Ok(None),
            Err(error) => Err(self.failed(error, name)),
        }
    }

    async fn delete(&self) -> Result<Done, Failure> {
        let name = self.path.name.clone().unwrap_or_default();
        let current = self.current(&name)?;
        let old = self.whole(&current)?;
        let options: Value = if self.body.is_empty() {
            Value::Null
        } else {
            self.read_json()?
        };
        let wanted = |field: &str| options.pointer(&format!("/preconditions/{field}"));
        for field in ["uid", "resourceVersion"] {
            if wanted(field).is_some_and(|wanted| *wanted != old["metadata"][field]) {
                let why = format!("the {field} in the precondition is not the object's");
                return Err(Failure::conflict(&self.resource, &name, &why));
            }
        }
        let warnings = self
            .admit(Operation::Delete, &name, None, Some(&old))
            .await?;
        let expected = match wanted("resourceVersion") {
            Some(_) => Expected::Version(current.version),
            None => Expected::Anything,
        };
        let namespace = self.namespace();
        let deleted = self
            .app
            .store
            .delete(&self.name(), namespace, &name, expected);
        match deleted {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Failure::not_found(&self.resource, &name)),
            Err(StoreError::Conflict) => return Err(self.conflict(&name)),
            Err(error) => return Err(self.failed(error, &name)),
        }
        let object = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": name, "group": self.resource.group, "kind": self.resource.plural,
                "uid": old["metadata"]["uid"]}});
        Ok(Done {
            code: 200,
            object,
            warnings,
        })
    }

    fn name(&self) -> ResourceName {
        self.resource.name()
    }

    fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    fn current(&self, name: &str) -> Result<Arc<Stored>, Failure> {
        let found = self.app.store.get(&self.name(), self.namespace(), name);
        found.ok_or_else(|| Failure::not_found(&self.resource, name))
    }

    fn whole(&self, stored: &Stored) -> Result<Value, Failure> {
        let object = stored.to_value(&self.resource, &self.path.version);
        object.ok_or_else(|| Failure::new(500, "InternalError", "the stored object is malformed"))
    }

    fn conflict(&self, name: &str) -> Failure {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Failure::conflict(&self.resource, name, why)
    }

    fn failed(&self, error: StoreError, name: &str) -> Failure {
        match error {
            StoreError::NoResource => Failure::not_found(&self.resource, name),
            error => Failure::new(500, "InternalError", format!("{error:?}")),
        }
    }

    fn read_json(&self) -> Result<Value, Failure> {
        let unreadable =
            |error| Failure::bad_request(format!("the body of the request is not JSON: {error}"));
        serde_json::from_slice(&self.body).map_err(unreadable)
    }

    /// JSON, or nothing said of it.
    fn check_media_type(&self) -> Result<(), Failure> {
        match self
            .headers
            .get(header::CONTENT_TYPE)
            .map(|value| value.to_str().unwrap_or_default())
        {
            Some(of) if !of.starts_with("application/json") => {
                let message = format!(
                    "the body of the request was in an unknown format ({of}): the simulator reads application/json"
                );
                Err(Failure::new(415, "UnsupportedMediaType", message))
            }
            _ => Ok(()),
        }
    }

    fn read_object(&self) -> Result<Value, Failure> {
        let object = self.read_json()?;
        if object.is_object() {
            Ok(object)
        } else {
            Err(Failure::bad_request("the body is no object"))
        }
    }

    /// Holds what the object says of itself against where it was sent.
    fn place(&self, object: &mut Value) -> Result<(), Failure> {
        let expected = self.resource.api_version(&self.path.version);
        for (field, expected) in [
            ("apiVersion", expected.as_str()),
            ("kind", &self.resource.kind),
        ] {
            let given = object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or(expected);
            if given != expected {
                let message =
                    format!("the object's {field} is {given:?}, and here it must be {expected:?}");
                return Err(Failure::bad_request(message));
            }
            object[field] = expected.into();
        }
        let namespace = self.namespace();
        let metadata = metadata_mut(object);
        let given = text(metadata, "namespace");
        if !given.is_empty() && given != namespace {
            let message = "the namespace of the object does not match the namespace on the URL";
            return Err(Failure::bad_request(message));
        }
        if !namespace.is_empty() {
            metadata.insert("namespace".into(), namespace.into());
        }
        Ok(())
    }

    /// A namespaced object is made in a namespace that exists.
    fn check_namespace(&self) -> Result<(), Failure> {
        if !self.resource.namespaced {
            return Ok(());
        }
        let namespaces = ResourceName::from(NAMESPACES);
        let namespace = self.namespace();
        if namespace.is_empty() {
            return Err(Failure::bad_request(
                "an object of this kind is made in a namespace: name one in the path",
            ));
        }
        if self.app.store.get(&namespaces, "", namespace).is_some() {
            return Ok(());
        }
        match self.app.store.resource(&namespaces) {
            Some(resource) => Err(Failure::not_found(&resource, namespace)),
            None => Ok(()),
        }
    }

    /// The warnings of all webhooks, after those that change the object did.
    async fn admit(
        &self,
        operation: Operation,
        name: &str,
        object: Option<&mut Value>,
        old_object: Option<&Value>,
    ) -> Result<Vec<String>, Failure> {
        let review = |object| Review {
            operation,
            resource: &self.resource,
            version: &self.path.version,
            subresource: self.path.subresource.as_deref().unwrap_or_default(),
            namespace: self.namespace(),
            name,
            object,
            old_object,
        };
        let (store, identity) = (&self.app.store, &self.app.identity);
        let sent = review(object.as_deref());
        let (changed, mut warnings) = admission::change(store, &sent, identity).await?;
        let judged = review(changed.as_ref());
        warnings.extend(admission::review(store, &judged, identity).await?);
        if let Some((object, changed)) = object.zip(changed) {
            *object = changed;
        }
        Ok(warnings)
    }
}
