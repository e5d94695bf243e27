//! The resources of policies' kinds, as a webhook configuration names them. Pure.

use anteroom_engine::kinds::{Kinds, ResourceName};
use anteroom_policy::{KindPattern, POD_SUBRESOURCES, RegisteredKinds};

use super::Operations;

/// Returns the resources that a webhook for these kinds is called for.
pub(super) fn operations(registered: &[RegisteredKinds], kinds: &Kinds) -> Operations {
    let mut operations_of = Operations::new();
    for one in registered {
        for pattern in &one.kinds {
            for resource in resources(pattern, kinds) {
                operations_of
                    .entry(resource)
                    .or_default()
                    .extend(&one.operations);
            }
        }
    }
    operations_of
}

/// Leaves out what a wildcard covers: the API server refuses a rule that names both.
pub(super) fn without_covered(resources: &[String]) -> Vec<String> {
    let has = |name: &str| resources.iter().any(|resource| resource == name);
    let is_covered = |resource: &str| match resource.split_once('/') {
        _ if resource == "*/*" => false,
        _ if has("*/*") => true,
        None => resource != "*" && has("*"),
        Some((plural, subresource)) => {
            (subresource != "*" && has(&format!("{plural}/*")))
                || (plural != "*" && has(&format!("*/{subresource}")))
        }
    };
    let kept = resources.iter().filter(|resource| !is_covered(resource));
    kept.cloned().collect()
}

/// The resources of a pattern, as a webhook configuration names them. A plural stays as the policy writes it,
/// and a pattern for everything stays one for everything, kinds to come included. Others become the kinds that
/// are served now, or may be soon.
fn resources(pattern: &KindPattern, kinds: &Kinds) -> Vec<ResourceName> {
    if let Some(resource) = &pattern.resource {
        return as_written(pattern, &resource.plural).into_iter().collect();
    }
    let parts = [&*pattern.group, &pattern.version, &pattern.kind];
    match (parts, &*pattern.subresource) {
        // In the API server `*` excludes subresources; in a policy it includes some of Pods.
        (["*", "*", "*"], "") => {
            let of_pods = POD_SUBRESOURCES.map(|name| everything(&format!("pods/{name}")));
            std::iter::once(everything("*")).chain(of_pods).collect()
        }
        (["*", "*", "*"], "*") => vec![everything("*/*")],
        _ => match kinds.covered_by(pattern) {
            covered if covered.is_empty() => to_come(pattern, kinds),
            covered => covered,
        },
    }
}

/// The resource that a policy names by its plural. `None` for one that the API server would refuse, and all of the
/// configuration with it.
fn as_written(pattern: &KindPattern, plural: &str) -> Option<ResourceName> {
    let resource = match &*pattern.subresource {
        "" => plural.to_owned(),
        subresource => format!("{plural}/{subresource}"),
    };
    let is_whole = !pattern.version.is_empty() && !plural.is_empty();
    is_whole.then(|| ResourceName {
        group: pattern.group.clone(),
        version: pattern.version.clone(),
        resource,
    })
}

/// Returns the resources of a kind that is not served in the version of the pattern, and may be at any moment: before the kinds
/// were read again, requests come for it already. Where it is served in another version, its plural is known. Otherwise
/// that is all of its group: the webhook finds the policies by kind. None where the policy names no group then, or none
/// that a definition may have: such a group has a dot.
fn to_come(pattern: &KindPattern, kinds: &Kinds) -> Vec<ResourceName> {
    let may_be_defined = pattern.group.contains('.') && !pattern.group.contains(['*', '?']);
    let of_any_version = KindPattern {
        version: "*".to_owned(),
        ..pattern.clone()
    };
    let mut in_others = kinds.covered_by(&of_any_version);
    if !in_others.is_empty() {
        in_others.retain(|_| !pattern.version.contains(['*', '?']));
        for name in &mut in_others {
            name.version.clone_from(&pattern.version);
        }
        return in_others;
    }
    let are_read = !kinds.records().is_empty();
    let all_of_group = (may_be_defined && are_read).then(|| ResourceName {
        group: pattern.group.clone(),
        version: "*".to_owned(),
        resource: "*/*".to_owned(),
    });
    all_of_group.into_iter().collect()
}

pub(super) fn everything(resource: &str) -> ResourceName {
    ResourceName {
        group: "*".to_owned(),
        version: "*".to_owned(),
        resource: resource.to_owned(),
    }
}
