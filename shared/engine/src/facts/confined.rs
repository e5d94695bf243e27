//! The limits of a policy that is confined to a namespace. Pure.
//!
//! The compiler refuses forbidden reads that are written out in the policy. The values of variables are known only
//! here.

use anteroom_model::{ExistingObjects, FactError, ObjectKey};

/// Checks that a call of `path` stays within `namespace`; `None`: anything does.
///
/// # Errors
/// [`FactError::PathOutsideNamespace`] unless the path is `/api/VERSION/namespaces/NAMESPACE/…` or
/// `/apis/GROUP/VERSION/namespaces/NAMESPACE/…`, written without any detour.
pub(super) fn check_path(path: &str, namespace: Option<&str>) -> Result<(), FactError> {
    match namespace {
        Some(own) if !leads_into(path, own) => Err(outside(path, own)),
        _ => Ok(()),
    }
}

/// Checks that a ConfigMap is one of `namespace`; `None`: any is.
///
/// # Errors
/// [`FactError::PathOutsideNamespace`]
pub(super) fn check_namespace(
    config_map: &ObjectKey,
    namespace: Option<&str>,
) -> Result<(), FactError> {
    let ObjectKey {
        namespace: of,
        name,
    } = config_map;
    match namespace {
        Some(own) if own != &**of => {
            let path = format!("/api/v1/namespaces/{of}/configmaps/{name}");
            Err(outside(&path, own))
        }
        _ => Ok(()),
    }
}

/// Checks that objects that a rule changes are of `namespace`; `None`: any are.
///
/// # Errors
/// [`FactError::PathOutsideNamespace`]
pub(super) fn check_existing(
    objects: &ExistingObjects,
    namespace: Option<&str>,
) -> Result<(), FactError> {
    match namespace {
        Some(own) if own != objects.namespace => Err(outside(&objects.to_string(), own)),
        _ => Ok(()),
    }
}

pub(super) fn outside(path: &str, namespace: &str) -> FactError {
    FactError::PathOutsideNamespace {
        path: path.to_owned(),
        namespace: namespace.to_owned(),
    }
}

fn leads_into(path: &str, namespace: &str) -> bool {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    let path = &path[..end];
    // What a server or a proxy on the way would read as another path: dots, slashes, and `%` itself.
    let escaped = path.to_ascii_lowercase();
    let detour = ["%2e", "%2f", "%5c", "%25", "\\"];
    if detour.iter().any(|detour| escaped.contains(detour))
        || path.split('/').any(|part| part == "." || part == "..")
    {
        return false;
    }
    let mut parts = path.strip_suffix('/').unwrap_or(path).split('/');
    let versioned = match (parts.next(), parts.next()) {
        (Some(""), Some("api")) => 1,
        (Some(""), Some("apis")) => 2,
        _ => return false,
    };
    let named = parts.by_ref().take(versioned).all(|part| !part.is_empty());
    named
        && parts.next() == Some("namespaces")
        && parts.next() == Some(namespace)
        && parts.all(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check at evaluation, with every variable resolved.
    #[test]
    fn a_path_leads_into_the_namespace_or_is_refused() {
        for path in [
            "/api/v1/namespaces/own",
            "/api/v1/namespaces/own/",
            "/api/v1/namespaces/own/pods?labelSelector=a%3Db",
            "/api/v1/namespaces/own/pods/p/log",
            "/apis/apps/v1/namespaces/own/deployments/d",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/own/rolebindings/a%3Ab",
        ] {
            assert_eq!(check_path(path, Some("own")), Ok(()), "{path}");
        }
        for path in [
            "",
            "/version",
            "/api/v1/pods",
            "/api/v1/nodes/namespaces/own",
            "/api/v1/namespaces/other/pods",
            "/api/v1/namespaces/own/../other/pods",
            "/api/v1/namespaces/own/./pods",
            "/api/v1/namespaces/own/%2e%2E/other",
            "/api/v1/namespaces/own%2Fpods",
            "/api/v1/namespaces/own/%252e%252e/other",
            "/api/v1/namespaces/own/..\\other",
            "/api/v1/namespaces/own//pods",
            "/api//namespaces/own/pods",
            "//api/v1/namespaces/own/pods",
            "/apis/apps/namespaces/own/pods",
            "/api/v1/namespaces/other/pods?x=/namespaces/own",
            "/api/v1/namespaces/owner/pods",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "api/v1/namespaces/own/pods",
        ] {
            let error = check_path(path, Some("own")).unwrap_err();
            assert_eq!(error.code().as_str(), "AR304", "{path}");
            assert_eq!(check_path(path, None), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_config_map_is_of_the_namespace_or_refused() {
        let key = ObjectKey::new("other", "c");
        assert!(check_namespace(&key, Some("own")).is_err());
        assert!(check_namespace(&key, Some("other")).is_ok());
        assert!(check_namespace(&key, None).is_ok());
    }
}
