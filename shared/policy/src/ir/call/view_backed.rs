//! The GETs of the Kubernetes API that a view answers as the API server does.

use anteroom_model::ObjectKey;

use super::path::{Concrete, PathTemplate};
use crate::ir::{CollectionReference, NamedObject, Reference, ViewBackedRead, template::Template};

/// The way in which a view answers a path, as far as the path is known before a request comes.
#[derive(Debug)]
pub(crate) struct ViewBackedPlan {
    /// The reference to keep for the path.
    pub(crate) reference: Reference,
    /// The segments that name the namespace and the object.
    namespace: Option<usize>,
    name: Option<usize>,
    /// The parameters that narrow more than the reference does.
    label_filter: Option<usize>,
    field_filter: Option<usize>,
    limit: Option<usize>,
}

/// The segments of a path, named as in the Kubernetes API.
struct ResourcePath<'a> {
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    namespace: Option<usize>,
    name: Option<usize>,
}

impl ViewBackedPlan {
    /// For a path of a policy that is confined to namespace `own`, if it is, and keeps to it.
    /// `declared` and `inline` as in [`CollectionReference`].
    ///
    /// # Errors
    /// Why only the API server can answer it.
    pub(crate) fn of(
        path: &PathTemplate,
        own: Option<&str>,
        declared: bool,
        inline: bool,
    ) -> Result<Self, String> {
        let resource = resource(path)?;
        let filters = Filters::of(path)?;
        if resource.name.is_some() && !path.query.is_empty() {
            return Err("a single object is not narrowed by a query".to_owned());
        }
        let literal = |at: Option<usize>| at.map(|at| path.segments[at].fixed());
        let namespace = match (resource.namespace, own) {
            (Some(_), Some(own)) => Some(own),
            (at, _) => literal(at).unwrap_or(Some("")),
        };
        // The one cluster-scoped object that a confined policy may read is its own namespace.
        let name = match (literal(resource.name), own) {
            (Some(_), Some(own)) if resource.namespace.is_none() => Some(Some(own)),
            (name, _) => name,
        };
        let reference = match (namespace, name) {
            (Some(namespace), Some(Some(name))) => Reference::Object(NamedObject {
                group: resource.group.to_owned(),
                version: resource.version.to_owned(),
                resource: resource.plural.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                declared,
                inline,
            }),
            (namespace, name) => Reference::Collection(CollectionReference {
                group: Some(resource.group.to_owned()),
                version: Some(resource.version.to_owned()),
                resource: resource.plural.to_owned(),
                namespace: namespace.unwrap_or_default().to_owned(),
                label_selector: filters.literal_labels,
                // One name in whichever namespace: far less than all objects.
                field_selector: match name {
                    Some(Some(name)) => format!("metadata.name={name}"),
                    _ => filters.literal_fields,
                },
                declared,
                inline,
            }),
        };
        Ok(Self {
            reference,
            namespace: resource.namespace,
            name: resource.name,
            label_filter: filters.labels,
            field_filter: filters.fields,
            limit: filters.limit,
        })
    }

    /// Returns whether the path names a list, rather than one object.
    pub(crate) fn is_list(&self) -> bool {
        self.name.is_none()
    }

    /// Returns the way in which a view answers the path with all its values. `None` where a value makes it a
    /// call that only the API server answers: a limit that is no number.
    pub(crate) fn read(&self, path: &Concrete) -> Option<ViewBackedRead> {
        let segment = |at: Option<usize>| at.and_then(|at| path.segments.get(at));
        let parameter = |at: Option<usize>| at.and_then(|at| path.query.get(at));
        let value = |at| parameter(at).map(|(_, value)| value.clone());
        let namespace = segment(self.namespace).cloned().unwrap_or_default();
        let object = segment(self.name).map(|name| ObjectKey::of(&namespace, name));
        let limit = match parameter(self.limit) {
            Some((_, limit)) => Some(limit.parse().ok()?),
            None => None,
        };
        Some(ViewBackedRead {
            reference: self.reference.clone(),
            object,
            namespace,
            label_selector: value(self.label_filter).unwrap_or_default(),
            field_selector: value(self.field_filter).unwrap_or_default(),
            limit: limit.filter(|&limit| limit > 0),
        })
    }
}

fn resource(path: &PathTemplate) -> Result<ResourcePath<'_>, String> {
    let literal = |at: usize| path.segments.get(at).and_then(Template::fixed);
    if path.segments.last().and_then(Template::fixed) == Some("") {
        return Err("it ends in a slash".to_owned());
    }
    let (group, version, rest) = match literal(0) {
        Some("api") => (Some(""), literal(1), 2),
        Some("apis") => (literal(1), literal(2), 3),
        _ => return Err("it is no path of the Kubernetes API's collections".to_owned()),
    };
    let found = group.zip(version);
    let Some((group, version)) = found.filter(|(_, version)| is_version(version)) else {
        return Err("its group and version are not written out".to_owned());
    };
    let is_core = group.is_empty();
    let in_namespace = literal(rest) == Some("namespaces");
    let left = path.segments.len() - rest.min(path.segments.len());
    // Where the plural, the namespace and the name stand.
    let (plural, namespace, name) = match (in_namespace, left) {
        (_, 0) => return Err("it names no resource".to_owned()),
        (_, 1) => (rest, None, None),
        (true, 2) if !is_core => return Err("it names no resource".to_owned()),
        (_, 2) => (rest, None, Some(rest + 1)),
        (true, 3 | 4) => (rest + 2, Some(rest + 1), (left == 4).then_some(rest + 3)),
        _ => return Err("it names a subresource, which no view holds".to_owned()),
    };
    let written = literal(plural).ok_or("its resource is not written out")?;
    let is_subresource = is_core && left == 3 && matches!(written, "status" | "finalize");
    if is_subresource {
        return Err("it names a subresource, which no view holds".to_owned());
    }
    if !is_plural(written) {
        return Err(format!("`{written}` is no resource's plural in lower case"));
    }
    Ok(ResourcePath {
        group,
        version,
        plural: written,
        namespace,
        name,
    })
}

/// Returns whether a text is a version, as in `v1` and `v1beta1`.
fn is_version(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some(number) = text.strip_prefix('v') else {
        return false;
    };
    let (major, minor) = match number.split_once("alpha").or(number.split_once("beta")) {
        Some((major, minor)) => (major, Some(minor)),
        None => (number, None),
    };
    digits(major) && minor.is_none_or(digits)
}

fn is_plural(text: &str) -> bool {
    // `watch` and `proxy` were prefixes of paths once.
    !matches!(text, "" | "watch" | "proxy")
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// The selectors of a query. Literal selectors narrow the view, and the others narrow the objects that the query
/// reads from it.
#[derive(Default)]
struct Filters {
    literal_labels: String,
    literal_fields: String,
    labels: Option<usize>,
    fields: Option<usize>,
    limit: Option<usize>,
}

impl Filters {
    fn of(path: &PathTemplate) -> Result<Self, String> {
        let mut filters = Self::default();
        let mut seen = Vec::new();
        for (at, (key, template)) in path.query.iter().enumerate() {
            if seen.contains(&key) {
                return Err(format!("its query has `{key}` twice"));
            }
            seen.push(key);
            match (key.as_str(), template.fixed()) {
                ("labelSelector", Some(text)) => filters.literal_labels = text.to_owned(),
                ("labelSelector", None) => filters.labels = Some(at),
                ("fieldSelector", Some(text)) => filters.literal_fields = text.to_owned(),
                ("fieldSelector", None) if selects_names(&template.sample("x")) => {
                    filters.fields = Some(at);
                }
                ("fieldSelector", None) => {
                    return Err(
                        "a variable stands in a `fieldSelector` on other fields than metadata.name \
                         and metadata.namespace"
                            .to_owned(),
                    );
                }
                ("limit", text) if text.is_none_or(|text| text.parse::<u64>().is_ok()) => {
                    filters.limit = Some(at);
                }
                _ => {
                    return Err(format!(
                        "`{key}` of its query is for the API server: only labelSelector, \
                         fieldSelector and limit are not"
                    ));
                }
            }
        }
        Ok(filters)
    }
}

/// Returns whether every requirement is about the name or the namespace, which each object has.
fn selects_names(selector: &str) -> bool {
    selector.split(',').all(|requirement| {
        let operator = ["!=", "==", "="]
            .into_iter()
            .find_map(|operator| requirement.split_once(operator));
        operator.is_some_and(|(field, _)| {
            matches!(field.trim(), "metadata.name" | "metadata.namespace")
        })
    })
}
