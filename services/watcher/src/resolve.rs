//! What an entry's spec means: checked in code, whatever the schema let through.

use anteroom_model::{Collection, Failure, Source, SourceInfo};

use crate::{
    api::{CachedContextEntrySpec, LabelRequirement, LabelSelector, ResourceSource},
    discovery::{Catalog, Unresolved, Wanted, spec_invalid},
    registry::Resolution,
};

/// The source that a spec names, if the API server serves it.
pub(crate) fn resolve(spec: &CachedContextEntrySpec, catalog: &Catalog) -> Resolution {
    match (&spec.resource, &spec.api_call) {
        (Some(resource), None) => match collection(resource, catalog) {
            Ok(info) => Resolution::Found(info),
            Err(Unresolved::Invalid(failure)) => Resolution::Invalid(failure),
            Err(Unresolved::Unknown(failure)) => Resolution::Unknown(failure),
        },
        (None, Some(_)) => Resolution::Invalid(Failure::new(
            "Unsupported",
            "`apiCall` is not served by this version of Anteroom: use `resource`",
        )),
        (Some(_), Some(_)) => Resolution::Invalid(spec_invalid(
            "both `resource` and `apiCall` are set: keep exactly one of them",
        )),
        (None, None) => Resolution::Invalid(spec_invalid(
            "neither `resource` nor `apiCall` is set: set exactly one of them",
        )),
    }
}

fn collection(resource: &ResourceSource, catalog: &Catalog) -> Result<SourceInfo, Unresolved> {
    if resource.kind.is_empty() {
        let message = "`resource.kind` is empty: it names a resource, as in `ingresses`";
        return Err(Unresolved::Invalid(spec_invalid(message)));
    }
    let selector = resource
        .label_selector
        .as_ref()
        .map(label_selector)
        .transpose();
    let label_selector = selector.map_err(Unresolved::Invalid)?.unwrap_or_default();
    let found = catalog.resolve(Wanted {
        group: resource.group.as_deref(),
        version: resource.version.as_deref(),
        kind: resource.kind.trim(),
    })?;
    let namespace = resource.namespace.clone().unwrap_or_default();
    if !namespace.is_empty() && !found.record.namespaced {
        return Err(Unresolved::Invalid(spec_invalid(format!(
            "`resource.namespace` is `{namespace}` but `{}` is cluster-scoped: leave it out",
            found.record.gvr
        ))));
    }
    let collection = Collection {
        gvr: found.record.gvr.clone(),
        namespaces: Some(namespace)
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect(),
        label_selector,
        field_selector: resource.field_selector.clone().unwrap_or_default(),
    };
    Ok(SourceInfo {
        source: Source::Collection(collection.canonical()),
        kind: found.record.kind.clone(),
        namespaced: found.record.namespaced,
    })
}

/// In the API server's syntax.
fn label_selector(selector: &LabelSelector) -> Result<String, Failure> {
    let labels = selector.match_labels.iter();
    let mut requirements = labels
        .map(|(key, value)| {
            check_label(key, [value])?;
            Ok(format!("{key}={value}"))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    for expression in &selector.match_expressions {
        requirements.push(requirement(expression)?);
    }
    Ok(requirements.join(","))
}

fn requirement(expression: &LabelRequirement) -> Result<String, Failure> {
    let LabelRequirement {
        key,
        operator,
        values,
    } = expression;
    check_label(key, values)?;
    let mut values = values.clone();
    values.sort_unstable();
    values.dedup();
    let list = values.join(",");
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(format!("{key} in ({list})")),
        ("NotIn", false) => Ok(format!("{key} notin ({list})")),
        ("Exists", true) => Ok(key.clone()),
        ("DoesNotExist", true) => Ok(format!("!{key}")),
        ("In" | "NotIn", true) => Err(spec_invalid(format!(
            "`labelSelector`: `{key} {operator}` needs `values`"
        ))),
        ("Exists" | "DoesNotExist", false) => Err(spec_invalid(format!(
            "`labelSelector`: `{key} {operator}` takes no `values`"
        ))),
        _ => Err(spec_invalid(format!(
            "`labelSelector`: operator `{operator}` of `{key}` is not one of In, NotIn, Exists and \
             DoesNotExist"
        ))),
    }
}

/// Keys and values are put into the selector's text, so what could change its meaning is refused;
/// the API server checks the rest.
fn check_label<'a>(key: &str, values: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    let plain = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    };
    if key.is_empty() || !plain(key) {
        return Err(spec_invalid(format!(
            "`labelSelector`: `{key}` is not the key of a label"
        )));
    }
    match values
        .into_iter()
        .find(|value| value.len() > 63 || !plain(value))
    {
        Some(value) => Err(spec_invalid(format!(
            "`labelSelector`: `{value}` is not the value of a label"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
