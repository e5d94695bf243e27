//! Sources and the identity of their views.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{RetainedFields, selector};

/// A resource type of the Kubernetes API. `resource` is the plural, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupVersionResource {
    /// Empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The plural, as in `ingresses`.
    pub resource: String,
}

impl GroupVersionResource {
    /// `group` is empty for the core group.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Returns `group/version`, as in `networking.k8s.io/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Writes `resource.version.group`, as in `ingresses.v1.networking.k8s.io`, or `services.v1` for the core group.
impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// A Kubernetes collection, whole or narrowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Collection {
    /// The type that is listed and watched.
    pub gvr: GroupVersionResource,
    /// Empty: all namespaces, or a cluster-scoped type. Sorted, each once, in
    /// [`Collection::canonical`].
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// In the API server's syntax; empty: all. Requirements are sorted in [`Collection::canonical`],
    /// so that two spellings of one selector are one view.
    #[serde(default)]
    pub label_selector: String,
    /// In the API server's syntax; empty: all.
    #[serde(default)]
    pub field_selector: String,
    /// The fields that are kept of each object; `None`: all but what nobody reads.
    #[serde(default, rename = "kept", skip_serializing_if = "Option::is_none")]
    pub retained: Option<RetainedFields>,
}

impl Collection {
    /// All objects of a type.
    pub fn all(gvr: GroupVersionResource) -> Self {
        Self {
            gvr,
            namespaces: Vec::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            retained: None,
        }
    }

    /// The objects of a type in one namespace; empty: all namespaces.
    pub fn in_namespace(gvr: GroupVersionResource, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        Self {
            namespaces: Some(namespace)
                .filter(|n| !n.is_empty())
                .into_iter()
                .collect(),
            ..Self::all(gvr)
        }
    }

    /// The namespace to which the source is confined; `None`: the source is confined to none, or to several.
    pub fn only_namespace(&self) -> Option<&str> {
        match self.namespaces.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }

    /// The source in its canonical spelling.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        self.namespaces.sort_unstable();
        self.namespaces.dedup();
        self.label_selector = canonical_labels(&self.label_selector);
        self.field_selector = canonical_fields(&self.field_selector);
        self.retained = self
            .retained
            .filter(|retained| *retained != RetainedFields::Whole);
        self
    }
}

/// Commas inside parentheses (`in (a, b)`) do not separate requirements.
fn canonical_labels(selector: &str) -> String {
    let mut requirements = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in selector.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                requirements.push(selector::trim(&selector[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    requirements.push(selector::trim(&selector[start..]));
    canonical(requirements)
}

/// White space belongs to the value that it stands in, and a comma behind a backslash to the value before it. A text with a
/// backslash is left as it is.
fn canonical_fields(selector: &str) -> String {
    match selector.contains('\\') {
        true => selector.to_owned(),
        false => canonical(selector.split(',').collect()),
    }
}

/// Requirements of a selector are a conjunction, so their order means nothing.
fn canonical(mut requirements: Vec<&str>) -> String {
    requirements.retain(|requirement| !requirement.is_empty());
    requirements.sort_unstable();
    requirements.dedup();
    requirements.join(",")
}

/// A source of facts. Its canonical form is the identity of its view.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Source {
    /// A collection of the Kubernetes API.
    Collection(Collection),
    /// The objects of one type that are referenced one by one: one view for each type, whatever the number of
    /// references. A record for each reference says whether the object is there (see `anteroom_wire::referenced`):
    /// *not registered*, *not synced* and *not found* are told apart.
    Objects {
        /// The type.
        gvr: GroupVersionResource,
    },
    /// The response of an API call: a view with the one object [`Source::RESPONSE`].
    ApiCall {
        /// The address, without user information and query: for people.
        url: String,
        /// Stands for all that makes the call what it is: URL, method, headers, data, authority.
        id: String,
    },
    /// Records that the watcher itself derives and publishes for the other services: see
    /// [`system`](crate::system).
    System {
        /// One of the names in [`system`](crate::system).
        name: String,
    },
}

/// The kind of a source, which the name of its view tells: a variant for each of [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// [`Source::Collection`].
    Collection,
    /// [`Source::Objects`].
    Objects,
    /// [`Source::ApiCall`].
    ApiCall,
    /// [`Source::System`].
    System,
}

impl Source {
    /// The name of the one object of an API call's view; its namespace is empty.
    pub const RESPONSE: &'static str = "response";

    /// The resource type, where there is one.
    pub fn gvr(&self) -> Option<&GroupVersionResource> {
        match self {
            Self::Collection(collection) => Some(&collection.gvr),
            Self::Objects { gvr } => Some(gvr),
            Self::ApiCall { .. } | Self::System { .. } => None,
        }
    }

    /// The view that holds this source. Sources with the same canonical form share a view.
    pub fn view_id(&self) -> ViewId {
        match self {
            Self::System { name } => ViewId::new(format!("{}{name}", ViewId::SYSTEM_PREFIX)),
            Self::Objects { gvr } => ViewId::new(format!("{gvr}{}", ViewId::OBJECTS_SUFFIX)),
            Self::ApiCall { id, .. } => ViewId::new(format!("{}{id}", ViewId::CALL_PREFIX)),
            Self::Collection(collection) => {
                let collection = collection.clone().canonical();
                let Collection {
                    gvr,
                    namespaces,
                    label_selector,
                    field_selector,
                    retained,
                } = &collection;
                let selected = !label_selector.is_empty() || !field_selector.is_empty();
                if namespaces.is_empty() && !selected && retained.is_none() {
                    return ViewId::new(gvr.to_string());
                }
                // Selectors are long and free in form, so a narrowed source is named by a hash.
                let namespaces = namespaces.join(",");
                let mut narrowed = format!("{namespaces}\n{label_selector}\n{field_selector}");
                if let Some(retained) = retained {
                    // The retained fields are part of the view's identity: a view that retains more is a different
                    // view.
                    narrowed.push('\n');
                    narrowed.push_str(&retained.canonical());
                }
                ViewId::new(format!("{gvr}~{:016x}", xxh3_64(narrowed.as_bytes())))
            }
        }
    }
}

/// For people: `ingresses.v1.networking.k8s.io in apps, labels app=web`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { name } => write!(f, "system {name}"),
            Self::Objects { gvr } => write!(f, "referenced {gvr}"),
            Self::ApiCall { url, .. } => write!(f, "API call {url}"),
            Self::Collection(c) => {
                write!(f, "{}", c.gvr)?;
                if !c.namespaces.is_empty() {
                    write!(f, " in {}", c.namespaces.join(", "))?;
                }
                if !c.label_selector.is_empty() {
                    write!(f, ", labels {}", c.label_selector)?;
                }
                if !c.field_selector.is_empty() {
                    write!(f, ", fields {}", c.field_selector)?;
                }
                if c.retained.is_some() {
                    write!(f, ", of each what is read")?;
                }
                Ok(())
            }
        }
    }
}

/// The name of a view: readable, unique per canonical source, and of bounded cardinality, so that it
/// may be a metric label. As in `ingresses.v1.networking.k8s.io`, with `~` and a hash where the
/// source is narrowed by namespace or selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ViewId(Arc<str>);

impl ViewId {
    const SYSTEM_PREFIX: &'static str = "anteroom:";
    const CALL_PREFIX: &'static str = "apicall:";
    const OBJECTS_SUFFIX: &'static str = "~objects";

    /// Returns the identifier with this text. Only [`Source::view_id`] and decoders call this.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the kind of the view's source.
    pub fn source_kind(&self) -> SourceKind {
        if self.0.starts_with(Self::SYSTEM_PREFIX) {
            SourceKind::System
        } else if self.0.starts_with(Self::CALL_PREFIX) {
            SourceKind::ApiCall
        } else if self.0.ends_with(Self::OBJECTS_SUFFIX) {
            SourceKind::Objects
        } else {
            SourceKind::Collection
        }
    }

    /// Returns whether the view is a system view, which the watcher derives for the other services.
    pub fn is_system(&self) -> bool {
        self.source_kind() == SourceKind::System
    }

    /// Returns whether it holds the response of an API call ([`Source::ApiCall`]).
    pub fn is_of_a_call(&self) -> bool {
        self.source_kind() == SourceKind::ApiCall
    }

    /// Returns whether the view holds objects that are referenced by name ([`Source::Objects`]).
    pub fn is_of_references(&self) -> bool {
        self.source_kind() == SourceKind::Objects
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ingresses() -> Collection {
        Collection::all(GroupVersionResource::new(
            "networking.k8s.io",
            "v1",
            "ingresses",
        ))
    }

    #[test]
    fn a_whole_collection_is_named_by_its_type() {
        let id = Source::Collection(ingresses()).view_id();
        assert_eq!(id.as_str(), "ingresses.v1.networking.k8s.io");
        assert!(!id.is_system());
        let core = Collection::all(GroupVersionResource::new("", "v1", "services"));
        assert_eq!(Source::Collection(core).view_id().as_str(), "services.v1");
        let objects = Source::Objects {
            gvr: ingresses().gvr,
        }
        .view_id();
        assert!(objects.is_of_references() && !id.is_of_references());
    }

    #[test]
    fn the_name_of_a_view_tells_the_kind_of_its_source() {
        let narrowed = Collection {
            label_selector: "a=b".into(),
            ..ingresses()
        };
        for source in [
            Source::Collection(ingresses()),
            Source::Collection(narrowed),
            Source::Objects {
                gvr: ingresses().gvr,
            },
            Source::ApiCall {
                url: "https://example.org".into(),
                id: "00ff".into(),
            },
            Source::System {
                name: "entries".into(),
            },
        ] {
            let kind = match source {
                Source::Collection(_) => SourceKind::Collection,
                Source::Objects { .. } => SourceKind::Objects,
                Source::ApiCall { .. } => SourceKind::ApiCall,
                Source::System { .. } => SourceKind::System,
            };
            let view = source.view_id();
            assert_eq!(view.source_kind(), kind, "{source}");
            assert_eq!(view.is_system(), kind == SourceKind::System, "{source}");
            assert_eq!(view.is_of_a_call(), kind == SourceKind::ApiCall, "{source}");
        }
    }

    #[test]
    fn spellings_of_one_selector_are_one_view() {
        let with = |selector: &str| {
            Source::Collection(Collection {
                label_selector: selector.into(),
                ..ingresses()
            })
            .view_id()
        };
        assert_eq!(with("a=b,c in (d,e)"), with(" c in (d,e) ,a=b,a=b"));
        assert_ne!(with("a=b"), with("a=c"));
        assert_ne!(with("a=b"), Source::Collection(ingresses()).view_id());
        // The canonical text is what the API server is asked for.
        let canonical = Collection {
            label_selector: "x in (b, a) ,!y".into(),
            ..ingresses()
        }
        .canonical();
        assert_eq!(canonical.label_selector, "!y,x in (b, a)");
    }

    #[test]
    fn values_of_selectors_keep_what_belongs_to_them() {
        let fields = |selector: &str| {
            let field_selector = selector.to_owned();
            let collection = Collection {
                field_selector,
                ..ingresses()
            };
            collection.canonical().field_selector
        };
        // A Role's name may end in a space.
        assert_eq!(fields("metadata.name=p ,,a=b,a=b"), "a=b,metadata.name=p ");
        assert_eq!(fields(r"metadata.name=p\,a"), r"metadata.name=p\,a");
        let label_selector = "a=b\u{a0}, c=d".to_owned();
        let labels = Collection {
            label_selector,
            ..ingresses()
        }
        .canonical();
        assert_eq!(labels.label_selector, "a=b\u{a0},c=d");
    }

    #[test]
    fn a_collection_is_confined_to_the_one_namespace_that_is_given() {
        let within = |namespace: &str| Collection::in_namespace(ingresses().gvr, namespace);
        assert_eq!(within("apps").only_namespace(), Some("apps"));
        assert_eq!(within(""), ingresses());
        assert_eq!(within("").only_namespace(), None);
        let two = Collection {
            namespaces: vec!["apps".into(), "shop".into()],
            ..ingresses()
        };
        assert_eq!(two.only_namespace(), None);
    }

    #[test]
    fn retained_fields_are_part_of_a_views_identity() {
        let keeping = |retained: RetainedFields| {
            Source::Collection(Collection {
                retained: Some(retained),
                ..ingresses()
            })
            .view_id()
        };
        let mut spec = RetainedFields::identity();
        spec.keep(&["spec"]);
        assert_ne!(keeping(spec.clone()), keeping(RetainedFields::identity()));
        assert_eq!(keeping(spec.clone()), keeping(spec));
        let all = Source::Collection(ingresses()).view_id();
        assert_eq!(keeping(RetainedFields::Whole), all);
    }

    #[test]
    fn a_view_id_tells_namespace_from_selectors() {
        let namespaced = Collection {
            namespaces: vec!["a=b".into()],
            ..ingresses()
        };
        let labelled = Collection {
            label_selector: "a=b".into(),
            ..ingresses()
        };
        let fielded = Collection {
            field_selector: "a=b".into(),
            ..ingresses()
        };
        let ids = [namespaced, labelled, fielded].map(|c| Source::Collection(c).view_id());
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    }
}
