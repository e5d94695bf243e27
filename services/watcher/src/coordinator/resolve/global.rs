//! The resolution of a `GlobalContextEntry` to a view or a call.

use anteroom_model::{Collection, Shape};

use super::{Resolved, invalid, projections, within};
use crate::{
    gateway::calls::{CallSpec, OnFailure},
    source::{
        api::{GlobalContextEntrySpec, KubernetesResource},
        discovery::{ResourceQuery, ServedResources, Unresolved},
    },
};

/// The source that a spec names, if the API server serves it.
pub(super) fn resolve(
    name: &str,
    spec: &GlobalContextEntrySpec,
    served: &ServedResources,
) -> Result<Resolved, Unresolved> {
    let mut resolved = match (&spec.kubernetes_resource, &spec.api_call) {
        (Some(resource), None) => of_resource(resource, served)?,
        (None, Some(call)) => {
            let filled = |path: &String| !path.is_empty();
            if call.service.is_some() == call.url_path.as_ref().is_some_and(filled) {
                return Err(invalid(
                    "An External API call should either have Service or URLPath",
                ));
            }
            let call = CallSpec::new(&call.clone().into(), OnFailure::Error);
            Resolved::call(call.map_err(Unresolved::Invalid)?)
        }
        _ => {
            return Err(invalid(
                "A global context entry should either have KubernetesResource or APICall",
            ));
        }
    };
    resolved.projections = projections::read(name, &spec.projections)?;
    Ok(resolved)
}

fn of_resource(
    resource: &KubernetesResource,
    served: &ServedResources,
) -> Result<Resolved, Unresolved> {
    let KubernetesResource {
        group,
        version,
        resource,
        namespace,
    } = resource;
    let group = group.as_deref().unwrap_or_default();
    if group.is_empty() && version != "v1" {
        return Err(invalid("A Resource entry requires a group"));
    }
    if version.is_empty() {
        return Err(invalid("A Resource entry requires a version"));
    }
    if resource.is_empty() {
        return Err(invalid("A Resource entry requires a resource"));
    }
    let found = served.resolve(ResourceQuery {
        group: Some(group),
        version: Some(version),
        kind: resource,
    })?;
    let namespaces: Vec<_> = namespace
        .clone()
        .into_iter()
        .filter(|n| !n.is_empty())
        .collect();
    within(found, &namespaces, "kubernetesResource.namespace")?;
    let collection = Collection {
        namespaces,
        ..Collection::all(found.record.gvr.clone())
    };
    Ok(Resolved::collection(found, collection, Shape::Array))
}
