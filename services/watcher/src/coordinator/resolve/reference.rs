//! The resolution of a policy's reference to a view or an object.

use anteroom_model::{Collection, ObjectKey, Shape};
use anteroom_policy::{CollectionReference, NamedObject, Reference};

use super::{Resolution, Resolved, invalid, within};
use crate::source::discovery::{ResourceQuery, ServedResources, Unresolved};

/// The label of ConfigMaps that are kept for policies, and its value.
const KEPT_LABEL: &str = "cache.kyverno.io/enabled=true";

/// Returns the view for a policy's reference. A reference that no view can answer, and for which the policy did not
/// ask for one, is [`Resolution::Nothing`]: live reads answer it.
pub(crate) fn resolve_reference(reference: &Reference, served: &ServedResources) -> Resolution {
    let resolved = match reference {
        Reference::Collection(collection) => of_collection(collection, served),
        Reference::Object(object) => of_object(object, served),
        Reference::LabelledConfigMaps => labelled_config_maps(served),
    };
    match resolved {
        Err(Unresolved::Invalid(_)) if !reference.is_declared() => Resolution::Nothing,
        other => other.into(),
    }
}

fn of_collection(
    reference: &CollectionReference,
    served: &ServedResources,
) -> Result<Resolved, Unresolved> {
    let found = served.resolve(ResourceQuery {
        group: reference.group.as_deref(),
        version: reference.version.as_deref(),
        kind: &reference.resource,
    })?;
    let namespaces: Vec<_> = Some(reference.namespace.clone())
        .filter(|namespace| !namespace.is_empty())
        .into_iter()
        .collect();
    within(found, &namespaces, "namespace")?;
    let collection = Collection {
        gvr: found.record.gvr.clone(),
        namespaces,
        label_selector: reference.label_selector.clone(),
        field_selector: reference.field_selector.clone(),
        retained: None,
    };
    // How it is presented is said by whoever asks: a call as the API server answers it, a
    // `resourceCache` as a document.
    Ok(Resolved::collection(found, collection, Shape::Document))
}

fn of_object(reference: &NamedObject, served: &ServedResources) -> Result<Resolved, Unresolved> {
    let found = served.resolve(ResourceQuery {
        group: Some(&reference.group),
        version: Some(&reference.version),
        kind: &reference.resource,
    })?;
    if found.record.namespaced == reference.namespace.is_empty() {
        return Err(invalid(format!(
            "`{}` {} a namespace",
            found.record.gvr,
            if found.record.namespaced {
                "needs"
            } else {
                "has no"
            }
        )));
    }
    let object = ObjectKey::new(reference.namespace.as_str(), reference.name.as_str());
    Resolved::object(found, object)
}

fn labelled_config_maps(served: &ServedResources) -> Result<Resolved, Unresolved> {
    let found = served.resolve(ResourceQuery {
        group: Some(""),
        version: Some("v1"),
        kind: "configmaps",
    })?;
    let collection = Collection {
        label_selector: KEPT_LABEL.to_owned(),
        ..Collection::all(found.record.gvr.clone())
    };
    let mut resolved = Resolved::collection(found, collection, Shape::Document);
    // A policy reads single ones by name. Whoever may label ConfigMaps in one namespace takes no more than its part.
    resolved.options.namespaces_limited = true;
    Ok(resolved)
}
