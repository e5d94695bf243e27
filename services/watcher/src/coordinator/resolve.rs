//! The resolution of an entry's spec or a policy's reference. The code checks each field, and does
//! not rely on the schema.

mod cached;
mod global;
mod projections;
mod reference;
mod selector;

use std::sync::Arc;

use anteroom_model::{
    Binding, Collection, Failure, GroupVersionResource, ObjectKey, ObjectReference, Projection,
    RetainedFields, Shape, Source, SourceInfo, ViewOptions, limits::NAME_BYTES_MAX, system,
};
use anteroom_wire::subject::check_object;

use crate::{
    coordinator::manifests::EntrySpec,
    gateway::calls::CallSpec,
    source::discovery::{ServedResource, ServedResources, Unresolved, spec_invalid},
};

pub(crate) use reference::resolve_reference;

/// The meaning of a spec or a reference, by the kinds that the API server serves right now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Resolution {
    /// A source.
    Found(Box<Resolved>),
    /// Nothing that can be served.
    Invalid(Failure),
    /// The source is unknown, because the API group does not answer. An entry of the same generation keeps its
    /// earlier view, since *unknown* is not *absent*.
    Unknown(Failure),
    /// No view is kept: a policy reads a kind that the API server does not serve or that cannot be watched, and never
    /// asked for a view. Live reads answer instead.
    Nothing,
}

/// A source, and how its data are asked for and presented.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    /// The source and its kind.
    pub info: SourceInfo,
    /// The view to ask, and how its data are presented.
    pub binding: Binding,
    /// Options of the view.
    pub options: ViewOptions,
    /// The one object that has to be referenced, where the source is [`Source::Objects`].
    pub object: Option<ObjectReference>,
    /// The call to make, where the source is [`Source::ApiCall`].
    pub call: Option<Arc<CallSpec>>,
    /// Parts of its data under names of their own.
    pub projections: Vec<Projection>,
}

impl From<Result<Resolved, Unresolved>> for Resolution {
    fn from(result: Result<Resolved, Unresolved>) -> Self {
        match result {
            Ok(resolved) => Self::Found(Box::new(resolved)),
            Err(Unresolved::Invalid(failure)) => Self::Invalid(failure),
            Err(Unresolved::Unknown(failure)) => Self::Unknown(failure),
        }
    }
}

/// Returns the meaning of the spec of the entry of this name.
pub(crate) fn resolve(name: &str, spec: &EntrySpec, served: &ServedResources) -> Resolution {
    let resolved = match spec {
        EntrySpec::Cached(spec) => cached::resolve(name, spec, served),
        EntrySpec::Global(spec) => global::resolve(name, spec, served),
    };
    resolved.into()
}

impl Resolved {
    /// A source whole, as a document.
    #[cfg(test)]
    pub(crate) fn whole(info: SourceInfo) -> Self {
        Self {
            binding: Binding::whole(info.source.view_id()),
            info,
            options: ViewOptions::default(),
            object: None,
            call: None,
            projections: Vec::new(),
        }
    }

    /// Narrows a collection to these fields of each object; other sources stay unchanged.
    pub(crate) fn keep(&mut self, retained: RetainedFields) {
        if let Source::Collection(collection) = &mut self.info.source {
            collection.retained = Some(retained);
            *collection = collection.clone().canonical();
            self.binding.view = self.info.source.view_id();
        }
    }

    fn collection(found: &ServedResource, collection: Collection, shape: Shape) -> Self {
        let namespace = collection.only_namespace().unwrap_or_default().to_owned();
        let source = Source::Collection(collection.canonical());
        Self::new(found, source, shape, namespace)
    }

    /// Resolves a reference to one object. An object whose records in the log could not be named is refused alone: a
    /// failed write would fail the view for all other referenced objects.
    fn object(found: &ServedResource, object: ObjectKey) -> Result<Self, Unresolved> {
        let gvr = found.record.gvr.clone();
        let source = Source::Objects { gvr: gvr.clone() };
        let namespace = object.namespace.to_string();
        let mut resolved = Self::new(found, source, Shape::Object, namespace);
        resolved.binding.object = Some(object.clone());
        let reference = ObjectReference {
            gvr,
            object,
            in_quota: false, // The registry knows who refers to it.
        };
        let name_bytes = reference.object.name.len();
        if name_bytes > NAME_BYTES_MAX {
            return Err(invalid(format!(
                "the object's name has {name_bytes} bytes: at most {NAME_BYTES_MAX} are read by name"
            )));
        }
        check_object(&reference.view(), &reference.object)
            .and_then(|()| check_object(&system::references(), &reference.key()))
            .map_err(|error| invalid(format!("the object's name is too long: {error}")))?;
        resolved.object = Some(reference);
        Ok(resolved)
    }

    fn call(call: CallSpec) -> Self {
        let source = call.source();
        Self {
            binding: Binding {
                shape: Shape::Response,
                object: None,
                ..Binding::whole(source.view_id())
            },
            info: SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            },
            options: ViewOptions::default(),
            object: None,
            call: Some(Arc::new(call)),
            projections: Vec::new(),
        }
    }

    fn new(found: &ServedResource, source: Source, shape: Shape, namespace: String) -> Self {
        let secret = is_secret(&found.record.gvr);
        Self {
            binding: Binding {
                view: source.view_id(),
                shape,
                namespace,
                object: None,
                secret,
            },
            info: SourceInfo {
                source,
                kind: found.record.kind.clone(),
                namespaced: found.record.namespaced,
            },
            options: ViewOptions {
                sealed: secret,
                ..ViewOptions::default()
            },
            object: None,
            call: None,
            projections: Vec::new(),
        }
    }
}

/// Returns whether objects of this type are Secrets.
pub(crate) fn is_secret(gvr: &GroupVersionResource) -> bool {
    gvr.group.is_empty() && gvr.resource == "secrets"
}

/// The namespaces, for a resource that has them.
fn within(found: &ServedResource, namespaces: &[String], field: &str) -> Result<(), Unresolved> {
    if namespaces.is_empty() || found.record.namespaced {
        return Ok(());
    }
    Err(Unresolved::Invalid(spec_invalid(format!(
        "`{field}` is `{}` but `{}` is cluster-scoped: leave it out",
        namespaces.join(", "),
        found.record.gvr
    ))))
}

fn invalid(message: impl Into<String>) -> Unresolved {
    Unresolved::Invalid(spec_invalid(message))
}

#[cfg(test)]
mod tests;
