//! The resolution of a `CachedContextEntry` to a view or a call.

use anteroom_model::{Collection, ObjectKey, Shape, Source};
use anteroom_runtime::units;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Resolved, invalid, projections, selector, within};
use crate::{
    gateway::calls::{CallSpec, OnFailure},
    source::{
        api::{CachedContextEntrySpec, OnForbidden, ResourceSource, Retain},
        discovery::{ResourceQuery, ServedResources, Unresolved},
    },
};

/// The source that a spec names, if the API server serves it.
pub(super) fn resolve(
    name: &str,
    spec: &CachedContextEntrySpec,
    served: &ServedResources,
) -> Result<Resolved, Unresolved> {
    let mut resolved = match (&spec.resource, &spec.api_call) {
        (Some(resource), None) => of_resource(resource, served)?,
        (None, Some(call)) => {
            let on_failure = OnFailure::new(spec.on_failure, spec.max_staleness_seconds);
            Resolved::call(CallSpec::new(call, on_failure).map_err(Unresolved::Invalid)?)
        }
        (Some(_), Some(_)) => {
            return Err(invalid(
                "both `resource` and `apiCall` are set: keep exactly one of them",
            ));
        }
        (None, None) => {
            return Err(invalid(
                "neither `resource` nor `apiCall` is set: set exactly one of them",
            ));
        }
    };
    let is_collection = match &resolved.info.source {
        Source::Collection(_) => true,
        Source::Objects { .. } | Source::ApiCall { .. } | Source::System { .. } => false,
    };
    if spec.retain == Some(Retain::Referenced) && !is_collection {
        return Err(invalid(
            "`retain: Referenced` is about a `resource` without a `name`: leave it out",
        ));
    }
    resolved.projections = projections::read(name, &spec.projections)?;
    resolved.options.pinned = spec.pinned.unwrap_or_default();
    resolved.options.bytes_max = spec.max_bytes.as_ref().map(bytes).transpose()?;
    resolved.options.stops_when_forbidden = spec.on_forbidden == Some(OnForbidden::Stop);
    Ok(resolved)
}

fn of_resource(
    resource: &ResourceSource,
    served: &ServedResources,
) -> Result<Resolved, Unresolved> {
    if resource.kind.is_empty() {
        return Err(invalid(
            "`resource.kind` is empty: it names a resource, as in `ingresses`",
        ));
    }
    let label_selector = resource
        .label_selector
        .as_ref()
        .map(selector::label_selector);
    let label_selector = label_selector.transpose().map_err(Unresolved::Invalid)?;
    let found = served.resolve(ResourceQuery {
        group: resource.group.as_deref(),
        version: resource.version.as_deref(),
        kind: resource.kind.trim(),
    })?;
    let namespaces = namespaces(resource)?;
    let field = if resource.namespaces.is_some() {
        "resource.namespaces"
    } else {
        "resource.namespace"
    };
    within(found, &namespaces, field)?;
    let field_selector = resource.field_selector.clone().unwrap_or_default();
    let Some(name) = &resource.name else {
        let collection = Collection {
            gvr: found.record.gvr.clone(),
            namespaces,
            label_selector: label_selector.unwrap_or_default(),
            field_selector,
            retained: None,
        };
        return Ok(Resolved::collection(found, collection, Shape::Document));
    };
    let selects = label_selector.is_some_and(|selector| !selector.is_empty());
    if selects || !field_selector.is_empty() || resource.namespaces.is_some() {
        return Err(invalid(
            "`resource.name` names one object: `namespaces` and selectors do not go with it",
        ));
    }
    if name.is_empty() || name.contains('/') {
        return Err(invalid(format!(
            "`resource.name` is `{name}`: expected an object's name"
        )));
    }
    match (found.record.namespaced, namespaces.first()) {
        (true, None) => Err(invalid(format!(
            "`resource.name` is set and `{}` is namespaced: set `resource.namespace` too",
            found.record.gvr
        ))),
        (_, namespace) => {
            let namespace = namespace.map_or("", String::as_str);
            Resolved::object(found, ObjectKey::new(namespace, name.as_str()))
        }
    }
}

fn namespaces(resource: &ResourceSource) -> Result<Vec<String>, Unresolved> {
    let given = match (&resource.namespace, &resource.namespaces) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "only one of `resource.namespace` and `resource.namespaces` can be set",
            ));
        }
        (Some(one), None) if one.is_empty() => Vec::new(),
        (Some(one), None) => vec![one.clone()],
        (None, Some(several)) if several.is_empty() => {
            return Err(invalid(
                "`resource.namespaces` is empty: leave it out for all namespaces",
            ));
        }
        (None, Some(several)) => several.clone(),
        (None, None) => Vec::new(),
    };
    // A comma would run two names together in the view's identity.
    let plain = |name: &&String| {
        name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
    };
    match given.iter().find(plain) {
        Some(odd) => Err(invalid(format!("`{odd}` is not the name of a namespace"))),
        None => Ok(given),
    }
}

/// Reads a number of bytes, or a quantity such as `64Mi`.
fn bytes(value: &IntOrString) -> Result<u64, Unresolved> {
    let parsed = match value {
        IntOrString::Int(bytes) => u64::try_from(*bytes).ok(),
        IntOrString::String(text) => units::bytes(text).ok(),
    };
    parsed.filter(|bytes| *bytes > 0).ok_or_else(|| {
        let value = match value {
            IntOrString::Int(bytes) => bytes.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        invalid(format!(
            "`maxBytes` is `{value}`: expected a number of bytes, as in `64Mi`"
        ))
    })
}
