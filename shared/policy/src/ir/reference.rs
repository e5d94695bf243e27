//! The reads of a policy: the subjects of its facts, and the references that have to be kept for it.

use std::fmt::Write as _;

use anteroom_model::{EntryKind, ExistingObjects, ObjectKey};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::ir::ImageCredentials;

/// The name of the implicit entry that limits which calls of the API server are answered from views, if not all that
/// a view can answer are. It is never bound; the reason of its failure is [`CALLS_OFF`] or [`CALLS_DECLARED`].
pub const CALLS: &str = "calls";

/// The name of the record by which the watcher says as whom it writes objects that rules change
/// (`mutate.targets`): its failure's message is the user's name. Without one that is not known.
pub const WRITER: &str = "writer";

/// The longest name of an implicit entry that is written out. A longer name is cut there, and a digest of the whole
/// name is appended. A name is a key of the log, and the log takes no key over its limit.
const REFERENCE_NAME_BYTES_MAX: usize = 1_000;

/// The field manager of the watcher's writes for rules. A write with a different field manager is not of a rule, even
/// by the same user.
pub const FIELD_MANAGER: &str = "anteroom";

/// No call is answered from a view.
pub const CALLS_OFF: &str = "Off";

/// Only calls with `cache: true` are answered from views.
pub const CALLS_DECLARED: &str = "Declared";

/// A source that a policy needs a view of. The watcher keeps the view, with the policy as its dependent, and
/// publishes how the reference was resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// A collection of the Kubernetes API, whole or narrowed. Published as an implicit entry of the
    /// name [`Reference::name`].
    Collection(CollectionReference),
    /// One object, by name: held in the view of referenced objects of its type
    /// (`Source::Objects`).
    Object(NamedObject),
    /// ConfigMaps that are labelled `cache.kyverno.io/enabled: "true"`.
    LabelledConfigMaps,
}

/// A collection of the Kubernetes API, as a policy names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionReference {
    /// `None`: the group that serves the resource. Empty: the core group.
    pub group: Option<String>,
    /// `None`: the preferred version.
    pub version: Option<String>,
    /// The plural (or, of a `resourceCache`, the kind).
    pub resource: String,
    /// Empty: all namespaces.
    pub namespace: String,
    /// In the API server's syntax; empty: all.
    pub label_selector: String,
    /// In the API server's syntax; empty: all.
    pub field_selector: String,
    /// The policy asks for it to be kept (`resourceCache`, `cache: true`), rather than that it may be:
    /// then its data must be there before the policy is ready, and nothing else answers in its place.
    pub declared: bool,
    /// It is an entry of the policy's own (`resourceCache`), rather than a call of the API server that
    /// a view answers.
    pub inline: bool,
}

impl CollectionReference {
    /// Returns the reference to all namespaces, which a rule with a `namespaceSelector` needs.
    pub fn namespaces() -> Self {
        Self::needed("", "namespaces")
    }

    /// Returns the reference to all bindings of roles, in namespaces or of the cluster. A rule that names roles needs
    /// both.
    pub fn role_bindings(cluster: bool) -> Self {
        let resource = match cluster {
            true => "clusterrolebindings",
            false => "rolebindings",
        };
        Self::needed("rbac.authorization.k8s.io", resource)
    }

    /// Declared: nothing is decided without it. Inline: it is no call that could be made instead.
    fn needed(group: &str, resource: &str) -> Self {
        Self {
            group: Some(group.to_owned()),
            version: Some("v1".to_owned()),
            resource: resource.to_owned(),
            declared: true,
            inline: true,
            ..Self::default()
        }
    }
}

/// One object of the Kubernetes API, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedObject {
    /// Empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The policy asks for it to be kept; see [`CollectionReference::declared`].
    pub declared: bool,
    /// It is an entry of the policy's own; see [`CollectionReference::inline`].
    pub inline: bool,
}

impl Reference {
    /// Returns the reference's canonical text, which is the name of its implicit entry. It is the same for every
    /// policy with an equal reference, declared or not. A long text is cut.
    pub fn name(&self) -> String {
        bounded(self.text())
    }

    fn text(&self) -> String {
        match self {
            Self::Collection(c) => format!(
                "{}/{}/{}/{}?{}&{}",
                c.group.as_deref().unwrap_or("*"),
                c.version.as_deref().unwrap_or("*"),
                c.resource,
                c.namespace,
                c.label_selector,
                c.field_selector
            ),
            Self::Object(o) => format!(
                "{}/{}/{}/{}/{}",
                o.group, o.version, o.resource, o.namespace, o.name
            ),
            Self::LabelledConfigMaps => "labelled configmaps".to_owned(),
        }
    }

    /// The name of the implicit entry that publishes the reference for this policy. Entries that may hold Secrets
    /// have a name per policy, so that a policy without the right never reads the entry of an allowed policy.
    /// `policy` is the policy's namespace (empty for a `ClusterPolicy`) and name.
    pub fn name_for(&self, policy: &ObjectKey) -> String {
        let text = self.text();
        if self.may_be_secrets() {
            bounded(format!("{text} for {}/{}", policy.namespace, policy.name))
        } else {
            bounded(text)
        }
    }

    /// Returns whether it may mean Secrets of the core group, whatever the API server serves: by plural or
    /// kind, in any group and version, since a group that is left out or misspelled may be the core group.
    pub fn may_be_secrets(&self) -> bool {
        let resource = match self {
            Self::Collection(collection) => &collection.resource,
            Self::Object(object) => &object.resource,
            Self::LabelledConfigMaps => return false,
        };
        let resource = resource.trim();
        ["secret", "secrets"]
            .iter()
            .any(|secrets| resource.eq_ignore_ascii_case(secrets))
    }

    /// It is an entry of the policy's own; see [`CollectionReference::inline`].
    pub fn is_inline(&self) -> bool {
        match self {
            Self::Collection(c) => c.inline,
            Self::Object(o) => o.inline,
            Self::LabelledConfigMaps => false,
        }
    }

    /// The policy asks for it to be kept; see [`CollectionReference::declared`].
    pub fn is_declared(&self) -> bool {
        match self {
            Self::Collection(c) => c.declared,
            Self::Object(o) => o.declared,
            Self::LabelledConfigMaps => false,
        }
    }
}

/// A cut name is longer than any whole name, so cut and whole names never collide.
fn bounded(mut text: String) -> String {
    if text.len() <= REFERENCE_NAME_BYTES_MAX {
        return text;
    }
    let digest = Sha256::digest(&text);
    text.truncate(text.floor_char_boundary(REFERENCE_NAME_BYTES_MAX));
    text.push('…');
    for byte in digest {
        let _ = write!(text, "{byte:02x}"); // Writing to a string cannot fail.
    }
    text
}

/// The subject of a question about a fact: the fact's source, with every variable in its place.
#[derive(Clone, Debug, PartialEq)]
pub enum FactSubject {
    /// An entry, by name: `cachedContextEntry` or `globalReference`.
    Entry {
        /// The kind of resource that declares it.
        kind: EntryKind,
        /// Its name.
        name: String,
        /// The projection to read; empty: the entry's whole data.
        projection: String,
    },
    /// `resourceCache`: a collection that the policy declares.
    Collection(CollectionReference),
    /// `apiCall` with a `urlPath`.
    Api(ResolvedApiCall),
    /// `apiCall` with a `service`.
    Service {
        /// Its URL.
        url: String,
        /// `None`: GET. Otherwise POST with this body.
        data: Option<Value>,
    },
    /// `configMap`. The request's expression makes `{data, metadata}` of the object, and changes nothing if that was
    /// done before.
    ConfigMap {
        /// The object, by name.
        object: ObjectKey,
        /// The policy has the name as a literal, so the object is referenced ([`Reference::Object`]).
        literal: bool,
    },
    /// The object of a namespace, of which a `namespaceSelector` looks at the labels. Not for a driver that
    /// gives them with the request ([`AdmissionRequest::with_namespace_labels`](crate::AdmissionRequest)).
    NamespaceLabels {
        /// The object, by name.
        namespace: String,
    },
    /// The list of all `RoleBinding`s, or of all `ClusterRoleBinding`s: whose roles a user has. Not for a
    /// driver that gives them with the request (`request.roles`, `request.clusterRoles`).
    RoleBindings {
        /// True for `ClusterRoleBinding`s, false for `RoleBinding`s.
        cluster: bool,
    },
    /// `imageRegistry`: the metadata of an image from its registry.
    Image {
        /// The reference of the image, as in `ghcr.io/shop/web:1.2`.
        reference: String,
        /// The credentials for the image's registry. Different credentials may read different images.
        credentials: ImageCredentials,
    },
    /// Objects that a rule changes (`mutate.targets`), as they are now, whole: `{items, continue}`. Only of a
    /// policy that was compiled for a driver that knows [targets](crate::Driver::targets).
    Existing(ExistingObjects),
}

/// The prefix of a ConfigMap's text, which no entry's name and no path begins with.
pub(crate) const CONFIG_MAP: &str = "configmap ";

/// Returns the part of the path before the query.
fn without_query(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

/// Writes a URL for people: scheme, host and path, without user information and query.
fn write_url(url: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let url = without_query(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        return f.write_str(url);
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    write!(f, "{scheme}://{host}{path}")
}

/// Returns the name for people: an entry's name, or a path. A URL is shown without parts that may be secret.
impl std::fmt::Display for FactSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entry {
                name, projection, ..
            } if !projection.is_empty() => write!(f, "{name}.{projection}"),
            Self::Entry { name, .. } => f.write_str(name),
            Self::Collection(collection) => {
                f.write_str(&Reference::Collection(collection.clone()).name())
            }
            Self::Api(subject) => f.write_str(without_query(&subject.path)),
            Self::Service { url, .. } => write_url(url, f),
            Self::ConfigMap { object, .. } => write!(f, "{CONFIG_MAP}{object}"),
            Self::NamespaceLabels { namespace } => write!(f, "labels of namespace {namespace}"),
            Self::RoleBindings { cluster: false } => f.write_str("rolebindings"),
            Self::RoleBindings { cluster: true } => f.write_str("clusterrolebindings"),
            Self::Image { reference, .. } => write!(f, "image {reference}"),
            Self::Existing(objects) => objects.fmt(f),
        }
    }
}

/// A call of the Kubernetes API.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedApiCall {
    /// The path with its query, escaped anew, always in the same way.
    pub path: String,
    /// `None`: GET. Otherwise POST with this body.
    pub data: Option<Value>,
    /// The way in which a view answers it; `None`: only a live read can.
    pub by_view: Option<ViewBackedRead>,
}

/// The way in which a view answers a GET of the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewBackedRead {
    /// The reference that holds the data, as the watcher knows it: literal where the policy's path is, whole
    /// where the path has a variable.
    pub reference: Reference,
    /// The object to read; `None`: a list.
    pub object: Option<ObjectKey>,
    /// The only namespace to read from a collection; empty: all namespaces of the collection.
    pub namespace: String,
    /// Only objects whose labels match; empty: all.
    pub label_selector: String,
    /// Only objects whose `metadata.name` or `metadata.namespace` match; empty: all.
    pub field_selector: String,
    /// The most objects that the list may have; `None`: there is no limit.
    pub limit: Option<u64>,
}

#[cfg(test)]
mod tests;
