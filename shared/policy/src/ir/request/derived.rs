//! Requests derived from other requests: with data that the original lacks, or about another object or user. Each shares
//! with its original all large values that it does not change.

use std::sync::{Arc, OnceLock};

use anteroom_cel::Arrival;
use anteroom_functions::{meter, operator};
use anteroom_patch::apply::ObjectSchema;
use serde_json::{Map, Value, json};

use super::{
    AdmissionRequest, IMAGES, OBJECT, OLD_OBJECT, REQUEST, ROLES, RequestKind, Roles,
    objects::{RequestImages, RequestObjects},
    text,
};
use crate::ir::Operation;

/// A user, and a group, that does not exist.
pub(super) const NOBODY: &str = "anteroom:nobody";

impl AdmissionRequest {
    /// Adds the labels of the object's namespace, which a `namespaceSelector` is about: the request does not have
    /// them. Without this, the namespace has no labels.
    #[must_use]
    pub fn with_namespace_labels(mut self, labels: Map<String, Value>) -> Self {
        self.namespace_labels = Arc::new(Value::Object(labels));
        self
    }

    /// Adds the roles of the request's user, in `request.roles` and `request.clusterRoles`. An empty list is a
    /// missing key, as in Kyverno.
    pub(crate) fn with_roles(&self, roles: &Roles) -> Self {
        let mut known = self.clone();
        known.says_roles = true;
        if let Some(request) = known.fields_mut() {
            let lists = ROLES.into_iter().zip([&roles.roles, &roles.cluster_roles]);
            let given = lists.filter(|(_, list)| !list.is_empty());
            request.extend(given.map(|(field, list)| (field.to_owned(), list.clone().into())));
        }
        known
    }

    /// Sets the schema of its kind, by which partial objects are merged. Kubernetes' own kinds need none.
    #[must_use]
    pub fn with_schema(mut self, schema: Arc<ObjectSchema>) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets when it came, which `time_now()`, `random()` and the like need.
    #[must_use]
    pub fn arrived(mut self, arrival: Arrival) -> Self {
        self.arrival = Some(arrival);
        self
    }

    /// Sets the bytes of the review that it came in.
    #[must_use]
    pub fn of_review_bytes(mut self, bytes: usize) -> Self {
        self.review_bytes = bytes;
        self
    }

    /// Sets another value in the context that variables are resolved in, for tests of policies. `path` begins
    /// with `request` or another name that stands in every context. Objects on the way are made. Matching sees
    /// only the changes of the object and of the name.
    #[must_use]
    pub fn with_variable(mut self, path: &[String], value: Value) -> Self {
        if let [first, rest @ ..] = path {
            let mut root = self.whole_root();
            let mut place = root.entry(first.clone()).or_insert(Value::Null);
            for name in rest {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                place = &mut place[name.as_str()];
            }
            *place = value;
            self.set_root(root);
        }
        self
    }

    /// Takes on the values that variables are resolved in, with objects and images.
    fn set_root(&mut self, mut root: Map<String, Value>) {
        let request = root.get_mut(REQUEST).and_then(Value::as_object_mut);
        self.objects = request.map(RequestObjects::take).unwrap_or_default();
        let images = RequestImages {
            found: root.remove(IMAGES),
            error: self.images().error.clone(),
        };
        self.images = OnceLock::from(Arc::new(images));
        self.root = Arc::new(root);
    }

    /// Returns the fields of `request` without its objects, to be changed in this request alone; `None`: it is no object.
    fn fields_mut(&mut self) -> Option<&mut Map<String, Value>> {
        let root = Arc::make_mut(&mut self.root);
        root.get_mut(REQUEST).and_then(Value::as_object_mut)
    }

    /// Sets the objects, unless `request` was made no object and so has no fields.
    fn set_objects(&mut self, objects: RequestObjects) {
        if self.fields().is_object() {
            self.objects = objects;
        }
        self.images = OnceLock::new();
    }

    /// The kind of the resource that a subresource belongs to, as discovery knows it: `Pod` for
    /// `pods/exec`, whose own kind is `PodExecOptions`. Rules match the resource's kind.
    #[must_use]
    pub fn with_resource_kind(
        mut self,
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        let kind = RequestKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        };
        // The images are those of the kind that the request says; of a subresource, those of its object's kind.
        if self.subresource.is_empty() && kind.kind != self.kind.kind {
            self.images();
        }
        self.kind = kind;
        self
    }

    /// The request as if the old object, whole, were being created: its outcome decides whether a violation is
    /// new. `None` unless this is an UPDATE. Of a subresource, the old object is one of its own kind, as in Kyverno.
    ///
    /// The `oldObject` of that request has no fields, as in Kyverno. So a rule that compares both states comes to an error,
    /// since `request.oldObject.spec` is a missing key and not null, and its violation is never an old one.
    pub(crate) fn of_old_object(&self) -> Option<Self> {
        let old = self.objects.old.clone();
        let old = old.filter(|old| old.is_object())?;
        if self.operation != Operation::Update {
            return None;
        }
        let mut earlier = self.clone();
        earlier.operation = Operation::Create;
        if !earlier.subresource.is_empty() {
            earlier.subresource.clear();
            if let Some(kind) = kind_of(&old) {
                earlier.kind = kind;
            }
        }
        if let Some(request) = earlier.fields_mut() {
            request.insert("operation".to_owned(), Operation::Create.as_str().into());
        }
        earlier.set_objects(RequestObjects {
            new: Some(old),
            old: Some(Arc::new(Value::Object(Map::new()))),
        });
        Some(earlier)
    }

    /// The request as if a user had made it whom nothing names but a wildcard.
    pub(crate) fn by_nobody(&self) -> Self {
        let mut request = self.clone();
        request.says_roles = false;
        if let Some(fields) = request.fields_mut() {
            let user = json!({ "username": NOBODY, "groups": [NOBODY] });
            fields.insert("userInfo".to_owned(), user);
            for roles in ROLES {
                fields.remove(roles);
            }
        }
        request
    }

    /// Returns the request with an unknown user: an expression that reads the service account finds no such variable.
    /// For drivers without a cluster.
    #[must_use]
    pub fn by_unknown_user(mut self) -> Self {
        for name in ["serviceAccountName", "serviceAccountNamespace"] {
            Arc::make_mut(&mut self.root).remove(name);
        }
        self
    }

    /// The request about a changed object, as later rules see it.
    #[must_use]
    pub fn with_object(&self, object: impl Into<Arc<Value>>) -> Self {
        let mut changed = self.clone();
        changed.set_objects(RequestObjects {
            new: Some(object.into()),
            old: self.objects.old.clone(),
        });
        changed
    }

    /// Takes out the object and the old object, each if there is one, to be kept in another form. Nothing matches the
    /// request until it has them again.
    pub fn take_objects(&mut self) -> [Option<Value>; 2] {
        let RequestObjects { new, old } = &mut self.objects;
        let objects = [new, old].map(|object| {
            let object = object.as_mut().filter(|value| value.is_object())?;
            Some(Arc::unwrap_or_clone(std::mem::take(object)))
        });
        self.images = OnceLock::new();
        objects
    }

    /// The request with the objects that were taken out of it.
    #[must_use]
    pub fn with_objects(&self, objects: [Option<Value>; 2]) -> Self {
        let mut whole = self.clone();
        let [new, old] = objects.map(|object| object.map(Arc::new));
        whole.set_objects(RequestObjects {
            new: new.or_else(|| self.objects.new.clone()),
            old: old.or_else(|| self.objects.old.clone()),
        });
        whole
    }

    /// The request with another old object.
    #[must_use]
    pub fn with_old_object(mut self, object: Value) -> Self {
        if self.fields().is_object() {
            self.objects.old = Some(Arc::new(object));
        }
        self
    }

    /// Returns the request of an operation on an existing object. Constraints on such objects are compared with it,
    /// and it is the request of an object that triggers a rule on itself. Its copy of the object is charged to the meter.
    /// `None`: it is no object with a kind.
    pub(crate) fn on_existing(
        object: &Value,
        resource: &str,
        operation: Operation,
    ) -> Option<Self> {
        let RequestKind {
            group,
            version,
            kind,
        } = kind_of(object)?;
        let field = match operation {
            Operation::Delete => OLD_OBJECT,
            _ => OBJECT,
        };
        let metadata = |name: &str| text(object, &["metadata", name]).unwrap_or_default();
        let mut request = json!({
            "operation": operation.as_str(), "name": metadata("name"), "namespace": metadata("namespace"),
            "kind": {"group": &group, "version": &version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
        });
        meter::charge(operator::length(object));
        request[field] = object.clone();
        Self::new(request).ok()
    }
}

/// Returns the kind that an object says; `None`: it says none.
fn kind_of(object: &Value) -> Option<RequestKind> {
    let api_version = text(object, &["apiVersion"])?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Some(RequestKind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: text(object, &["kind"])?.to_owned(),
    })
}
