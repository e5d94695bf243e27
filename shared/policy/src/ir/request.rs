//! The request of an AdmissionReview, as rules see it.

mod derived;
mod objects;

use std::sync::{Arc, OnceLock};

use anteroom_cel::{Arrival, Roots};
use anteroom_functions::images;
use anteroom_jmespath::EvalSeed;
use anteroom_model::ExistingObjects;
use anteroom_patch::apply::ObjectSchema;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Operation, ServedKind};
use objects::{OBJECT, OLD_OBJECT, RequestImages, RequestObjects};

/// The name under which a rule finds the fields of the request.
const REQUEST: &str = "request";

/// The name under which a rule finds the images of the object.
const IMAGES: &str = "images";

/// The fields of a request that hold the roles of its user.
const ROLES: [&str; 2] = ["roles", "clusterRoles"];

/// The bytes of a review from which on its request is large: its sender could make it smaller. One of a Pod has about
/// 6,000.
pub const LARGE_REQUEST_BYTES_MIN: usize = 16 * 1024;

/// The reason why a value is not an admission request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// A field that every request has is not there, or is of another type.
    #[error("request.{field} is missing or is not {expected}")]
    Field {
        /// The field, as in `kind.kind`.
        field: &'static str,
        /// The type that it should have.
        expected: &'static str,
    },
    /// An operation that Kubernetes does not have.
    #[error("request.operation `{0}` is none of CREATE, UPDATE, DELETE, CONNECT")]
    Operation(String),
    /// A DELETE without `oldObject`, or any other operation without `object`.
    #[error("request.{field} is missing: a {operation} request carries it")]
    Object {
        /// `object` or `oldObject`.
        field: &'static str,
        /// The request's operation.
        operation: Operation,
    },
}

/// The `request` of an AdmissionReview, checked once.
///
/// An admission request. Rules match its `object`, or `oldObject` of a DELETE. A copy shares all large values.
#[derive(Clone, Debug)]
pub struct AdmissionRequest {
    /// The context in which variables are resolved, without the large values: `request` without its objects,
    /// `serviceAccountName` and `serviceAccountNamespace`.
    root: Arc<Map<String, Value>>,
    objects: RequestObjects,
    /// The images of the object, once a rule has asked for them.
    images: OnceLock<Arc<RequestImages>>,
    operation: Operation,
    kind: RequestKind,
    /// The namespace that rules match, independent of the context.
    namespace: String,
    /// The labels of the namespace; null if they were not given.
    namespace_labels: Arc<Value>,
    arrival: Option<Arrival>,
    /// The bytes of its review; 0 if they are unknown.
    review_bytes: usize,
    /// The schema of its kind, if that is none of Kubernetes' own.
    schema: Option<Arc<ObjectSchema>>,
    subresource: String,
    /// The request was given together with its user's roles, if the user has any.
    says_roles: bool,
}

/// The roles of a user, in order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    /// Names as in `namespace:name`.
    pub(crate) roles: Vec<String>,
    pub(crate) cluster_roles: Vec<String>,
}

#[derive(Clone, Debug)]
struct RequestKind {
    group: String,
    version: String,
    kind: String,
}

impl AdmissionRequest {
    /// Reads `AdmissionReview.request`.
    pub fn new(mut request: Value) -> Result<Self, RequestError> {
        let operation = match text(&request, &["operation"]) {
            Some(name) => {
                Operation::parse(name).ok_or_else(|| RequestError::Operation(name.to_owned()))?
            }
            None => return Err(field("operation", "a string")),
        };
        let kind = RequestKind {
            group: text(&request, &["kind", "group"])
                .unwrap_or_default()
                .to_owned(),
            version: text(&request, &["kind", "version"])
                .ok_or(field("kind.version", "a string"))?
                .to_owned(),
            kind: text(&request, &["kind", "kind"])
                .ok_or(field("kind.kind", "a string"))?
                .to_owned(),
        };
        let matched = if operation == Operation::Delete {
            OLD_OBJECT
        } else {
            OBJECT
        };
        if !request.get(matched).is_some_and(Value::is_object) {
            return Err(RequestError::Object {
                field: matched,
                operation,
            });
        }
        let subresource = text(&request, &["subResource"])
            .unwrap_or_default()
            .to_owned();
        let namespace = text(&request, &["namespace"]).unwrap_or_default();
        let namespace = namespace.to_owned();
        let says_roles = take_empty_roles(&mut request);
        let objects = request.as_object_mut().map(RequestObjects::take);
        Ok(Self {
            namespace,
            namespace_labels: Arc::default(),
            arrival: None,
            review_bytes: 0,
            schema: None,
            root: Arc::new(root(request)),
            objects: objects.unwrap_or_default(),
            images: OnceLock::new(),
            operation,
            kind,
            subresource,
            says_roles,
        })
    }

    /// Returns the images of the new state, which are determined once. The result is kept whole even if it takes the
    /// last steps of a meter, since another meter may run when it is used again.
    fn images(&self) -> &RequestImages {
        self.images.get_or_init(|| Arc::new(self.found_images()))
    }

    /// Extracts the images of the new state; a deleted object has none. A subresource may carry an object of another
    /// kind: a Pod where ephemeral containers are added.
    fn found_images(&self) -> RequestImages {
        let object = match self.operation {
            Operation::Delete => &Value::Null,
            _ => self.matched_object(),
        };
        let kind = match &*self.subresource {
            "" => self.kind(),
            _ => text(object, &["kind"]).unwrap_or_default(),
        };
        let (found, error) = match images::images(kind, object) {
            Ok(found) => (found, None),
            Err(error) => (None, Some(error)),
        };
        RequestImages { found, error }
    }

    /// Returns the reason why the context entry of this name cannot be determined, if it cannot.
    pub(crate) fn untold(&self, name: &str) -> Option<&str> {
        match name {
            IMAGES => self.images().error.as_deref(),
            _ => None,
        }
    }

    /// The schema of an object, if it is of the request's kind and version and there is one.
    pub(crate) fn schema_of(&self, object: &Value) -> Option<&ObjectSchema> {
        let own = self.matched_object();
        let is_own = ["apiVersion", "kind"]
            .iter()
            .all(|field| own[field] == object[field]);
        self.schema.as_deref().filter(|_| is_own)
    }

    /// The clock and the random numbers of the rule of this name. Each rule has random numbers of its own.
    pub(crate) fn eval_seed_of(&self, rule: &str) -> Option<EvalSeed> {
        let Arrival { now_ns, seed } = self.arrival?;
        Some(EvalSeed::new(now_ns, seed ^ hash(rule)))
    }

    /// The clock and the random numbers of the expressions in CEL of the policy of this name.
    pub(crate) fn cel_arrival_of(&self, policy: &str) -> Option<Arrival> {
        let Arrival { now_ns, seed } = self.arrival?;
        Some(Arrival {
            now_ns,
            seed: seed ^ hash(policy),
        })
    }

    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The group that rules match; empty for the core group.
    pub fn group(&self) -> &str {
        &self.kind.group
    }

    /// The version that rules match.
    pub fn version(&self) -> &str {
        &self.kind.version
    }

    /// The kind that rules match.
    pub fn kind(&self) -> &str {
        &self.kind.kind
    }

    /// Returns whether it is about a Namespace. Kinds of this name in other groups are kinds like any other.
    pub fn is_about_namespace(&self) -> bool {
        (&*self.kind.group, &*self.kind.kind) == ("", "Namespace")
    }

    /// Returns the subresource, as in `status` or `exec`; empty for the resource itself.
    pub fn subresource(&self) -> &str {
        &self.subresource
    }

    /// Returns the plural of the resource; empty where the request does not say it.
    pub fn resource(&self) -> &str {
        self.text(&["resource", "resource"])
    }

    /// Returns the kind that rules match.
    pub fn served_kind(&self) -> ServedKind<'_> {
        self.served_kind_as(self.resource())
    }

    /// Returns the kind that rules match, with `resource` as the plural.
    pub(crate) fn served_kind_as<'k>(&'k self, resource: &'k str) -> ServedKind<'k> {
        ServedKind {
            group: self.group(),
            version: self.version(),
            kind: self.kind(),
            resource,
            subresource: self.subresource(),
        }
    }

    /// Returns `request.uid`.
    pub fn uid(&self) -> &str {
        self.text(&["uid"])
    }

    /// `request.name`, which is empty where the API server is to generate one.
    pub fn name(&self) -> &str {
        self.text(&["name"])
    }

    /// Returns `request.namespace`; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns `request.userInfo.username`.
    pub fn username(&self) -> &str {
        self.text(&["userInfo", "username"])
    }

    /// Returns whether it has a user, as every request has that the API server sends.
    pub(crate) fn has_user(&self) -> bool {
        self.fields().get("userInfo").is_some_and(Value::is_object)
    }

    /// The roles of its user, if it says them, as one that was made for a test of policies does.
    pub(crate) fn roles(&self) -> Option<Roles> {
        let of = |field| texts(self.fields(), field).map(str::to_owned).collect();
        self.says_roles().then(|| Roles {
            roles: of("roles"),
            cluster_roles: of("clusterRoles"),
        })
    }

    /// The groups of its user.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &str> {
        let user = self.fields().get("userInfo").unwrap_or(&Value::Null);
        texts(user, "groups")
    }

    /// Returns the namespace that the object lives in; empty for a cluster-scoped object. A Namespace lives in none,
    /// although the API server sends its name as the request's namespace.
    pub(crate) fn object_namespace(&self) -> &str {
        match self.namespace() {
            _ if self.is_about_namespace() => "",
            "" => text(self.matched_object(), &["metadata", "namespace"]).unwrap_or_default(),
            namespace => namespace,
        }
    }

    /// Returns whether the request has its user's roles.
    pub(crate) fn says_roles(&self) -> bool {
        self.says_roles
            || ROLES
                .into_iter()
                .any(|name| self.fields().get(name).is_some())
    }

    pub(crate) fn namespace_labels(&self) -> Option<&Value> {
        Some(&*self.namespace_labels).filter(|labels| labels.is_object())
    }

    /// The new state; `None` on DELETE.
    pub fn object(&self) -> Option<&Value> {
        let object = self.objects.new.as_deref();
        object.filter(|object| object.is_object())
    }

    /// The old state; `None` on CREATE.
    pub fn old_object(&self) -> Option<&Value> {
        let object = self.objects.old.as_deref();
        object.filter(|object| object.is_object())
    }

    /// The object that rules match: the new state, or the old one on DELETE.
    pub fn matched_object(&self) -> &Value {
        self.object()
            .or_else(|| self.old_object())
            .unwrap_or(&Value::Null)
    }

    /// Returns the object that rules match, shared with the request; null if the request has none.
    pub fn shared_object(&self) -> Arc<Value> {
        let RequestObjects { new, old } = &self.objects;
        let mut objects = [new, old].into_iter().flatten();
        let found = objects.find(|object| object.is_object());
        found.cloned().unwrap_or_default()
    }

    /// Returns whether it is large: see [`LARGE_REQUEST_BYTES_MIN`].
    pub fn is_large(&self) -> bool {
        self.review_bytes >= LARGE_REQUEST_BYTES_MIN
    }

    /// Returns a copy of the `request` as it came.
    pub fn value(&self) -> Value {
        let mut value = self.fields().clone();
        if let Value::Object(fields) = &mut value {
            let objects = self.objects.fields();
            fields.extend(objects.map(|(name, object)| (name.to_owned(), object.clone())));
        }
        value
    }

    /// The `request` without its objects.
    pub(crate) fn fields(&self) -> &Value {
        self.root.get(REQUEST).unwrap_or(&Value::Null)
    }

    /// The value of `request.object` or `request.oldObject`, whatever it is; `None` for any other field.
    pub(crate) fn object_field(&self, name: &str) -> Option<&Value> {
        self.objects.get(name)
    }

    /// The fields of `request` that hold its objects, with their values.
    pub(crate) fn object_fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.fields()
    }

    /// The roots of expressions in CEL that the request has values of.
    pub(crate) fn cel_roots(&self) -> Roots<'_> {
        Roots {
            object: self.object(),
            old_object: self.old_object(),
            request: Some(self.fields()),
            request_object: self.object_field(OBJECT),
            request_old_object: self.object_field(OLD_OBJECT),
            ..Roots::default()
        }
    }

    /// Returns the object that the request is about, to be looked up in the cluster.
    pub fn subject(&self) -> ExistingObjects {
        let named = text(self.matched_object(), &["metadata", "name"]);
        ExistingObjects {
            group: self.group().to_owned(),
            version: self.version().to_owned(),
            kind: self.kind().to_owned(),
            resource: self.resource().to_owned(),
            namespace: self.object_namespace().to_owned(),
            // Of an object with a generated name the request says none.
            name: named.unwrap_or_else(|| self.name()).to_owned(),
            ..ExistingObjects::default()
        }
    }

    /// Returns a value that variables are resolved in, before any context entry. `request` is without its objects.
    pub(crate) fn root_value(&self, name: &str) -> Option<&Value> {
        match name {
            IMAGES => self.images().found.as_ref(),
            name => self.root.get(name),
        }
    }

    /// Returns the values that variables are resolved in, before any context entry. `request` is without its objects.
    pub(crate) fn root_values(&self) -> impl Iterator<Item = (&str, &Value)> {
        let images = self.images().found.iter();
        let others = self.root.iter().map(|(name, value)| (name.as_str(), value));
        others.chain(images.map(|images| (IMAGES, images)))
    }

    /// Returns a copy of all values that variables are resolved in, before any context entry.
    fn whole_root(&self) -> Map<String, Value> {
        let mut root = (*self.root).clone();
        root.insert(REQUEST.to_owned(), self.value());
        let images = self.images().found.clone();
        root.extend(images.map(|images| (IMAGES.to_owned(), images)));
        root
    }

    fn text(&self, path: &[&str]) -> &str {
        text(self.fields(), path).unwrap_or_default()
    }
}

/// The FNV-1a hash of a text.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Removes empty lists of roles, which are missing keys to an expression. Returns whether there were any lists.
fn take_empty_roles(request: &mut Value) -> bool {
    let mut says = false;
    for name in ROLES {
        let list = request.get(name).and_then(Value::as_array);
        says |= list.is_some();
        if list.is_some_and(Vec::is_empty)
            && let Some(fields) = request.as_object_mut()
        {
            fields.remove(name);
        }
    }
    says
}

fn field(field: &'static str, expected: &'static str) -> RequestError {
    RequestError::Field { field, expected }
}

fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    let found = path.iter().try_fold(value, |value, field| value.get(field));
    found.and_then(Value::as_str)
}

fn texts<'v>(of: &'v Value, field: &str) -> impl Iterator<Item = &'v str> {
    let list = of.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn root(request: Value) -> Map<String, Value> {
    let (namespace, name) =
        service_account(text(&request, &["userInfo", "username"]).unwrap_or_default());
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Map::from_iter([
        (REQUEST.to_owned(), request),
        ("serviceAccountName".to_owned(), name.into()),
        ("serviceAccountNamespace".to_owned(), namespace.into()),
    ])
}

/// Namespace and name of a service account's user name; both empty for other users.
fn service_account(username: &str) -> (&str, &str) {
    username
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
