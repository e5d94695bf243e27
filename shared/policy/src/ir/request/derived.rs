//! Requests derived from other requests: with data that the original lacks, or about another object or user.

use std::sync::Arc;

use anteroom_cel::Arrival;
use anteroom_patch::apply::ObjectSchema;
use serde_json::{Map, Value, json};

use super::{AdmissionRequest, ROLES, RequestKind, Roles, text};
use crate::ir::Operation;

/// The fields of a request that hold its objects.
const OBJECTS: [&str; 2] = ["object", "oldObject"];

/// A user, and a group, that does not exist.
const NOBODY: &str = "anteroom:nobody";

impl AdmissionRequest {
    /// Adds the labels of the object's namespace, which a `namespaceSelector` is about: the request does not have
    /// them. Without this, the namespace has no labels.
    #[must_use]
    pub fn with_namespace_labels(mut self, labels: Map<String, Value>) -> Self {
        self.namespace_labels = Value::Object(labels);
        self
    }

    /// Adds the roles of the request's user, in `request.roles` and `request.clusterRoles`. An empty list is a
    /// missing key, as in Kyverno.
    pub(crate) fn with_roles(&self, roles: &Roles) -> Self {
        let mut known = self.clone();
        known.says_roles = true;
        if let Some(Value::Object(request)) = known.root.get_mut("request") {
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
            let mut place = self.root.entry(first.clone()).or_insert(Value::Null);
            for name in rest {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                place = &mut place[name.as_str()];
            }
            *place = value;
        }
        self
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
        self.kind = RequestKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        };
        self
    }

    /// The request as if the old object, whole, were being created: its outcome decides whether a violation is
    /// new. `None` unless this is an UPDATE.
    pub(crate) fn of_old_object(&self) -> Option<Self> {
        let old = self.old_object()?.clone();
        if self.operation != Operation::Update {
            return None;
        }
        let mut earlier = self.clone();
        earlier.operation = Operation::Create;
        earlier.subresource.clear();
        if let Some(Value::Object(request)) = earlier.root.get_mut("request") {
            request.insert("object".to_owned(), old);
            request.insert("oldObject".to_owned(), Value::Null);
            request.insert("operation".to_owned(), Operation::Create.as_str().into());
        }
        earlier.look_for_images();
        Some(earlier)
    }

    /// The request as if a user had made it whom nothing names but a wildcard.
    pub(crate) fn by_nobody(&self) -> Self {
        let mut request = self.clone();
        request.says_roles = false;
        if let Some(Value::Object(fields)) = request.root.get_mut("request") {
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
            self.root.remove(name);
        }
        self
    }

    /// The request about a changed object, as later rules see it.
    #[must_use]
    pub fn with_object(&self, object: Value) -> Self {
        let mut changed = self.clone();
        if let Some(Value::Object(request)) = changed.root.get_mut("request") {
            request.insert("object".to_owned(), object);
        }
        changed.look_for_images();
        changed
    }

    /// Takes out the object and the old object, each if there is one, to be kept in another form. Nothing matches the
    /// request until it has them again.
    pub fn take_objects(&mut self) -> [Option<Value>; 2] {
        let request = self.root.get_mut("request");
        let Some(Value::Object(request)) = request else {
            return [None, None];
        };
        let objects = OBJECTS.map(|field| {
            let object = request.get_mut(field).filter(|value| value.is_object());
            object.map(Value::take)
        });
        self.look_for_images();
        objects
    }

    /// The request with the objects that were taken out of it.
    #[must_use]
    pub fn with_objects(&self, objects: [Option<Value>; 2]) -> Self {
        let mut whole = self.clone();
        if let Some(Value::Object(request)) = whole.root.get_mut("request") {
            let given = OBJECTS.into_iter().zip(objects);
            request.extend(given.filter_map(|(field, object)| Some((field.to_owned(), object?))));
        }
        whole.look_for_images();
        whole
    }

    /// The request with another old object.
    #[must_use]
    pub fn with_old_object(mut self, object: Value) -> Self {
        if let Some(Value::Object(request)) = self.root.get_mut("request") {
            request.insert("oldObject".to_owned(), object);
        }
        self
    }

    /// Returns the request of an operation on an existing object. Constraints on such objects are compared with it,
    /// and it is the request of an object that triggers a rule on itself. `None`: it is no object with a kind.
    pub(crate) fn on_existing(
        object: &Value,
        resource: &str,
        operation: Operation,
    ) -> Option<Self> {
        let api_version = text(object, &["apiVersion"])?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let field = match operation {
            Operation::Delete => "oldObject",
            _ => "object",
        };
        let metadata = |name: &str| text(object, &["metadata", name]).unwrap_or_default();
        let mut request = json!({
            "operation": operation.as_str(), "name": metadata("name"), "namespace": metadata("namespace"),
            "kind": {"group": group, "version": version, "kind": text(object, &["kind"])?},
            "resource": {"group": group, "version": version, "resource": resource},
        });
        request[field] = object.clone();
        Self::new(request).ok()
    }
}
