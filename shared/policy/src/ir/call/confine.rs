//! A `Policy` reads nothing outside its namespace.

use anteroom_model::FactError;

use super::path::Concrete;

/// Refuses a path of the Kubernetes API that leads outside namespace `own`: every path that does not
/// name it where a namespace is named. So cluster-scoped objects are refused, but for the namespace
/// itself, and so are lists over all namespaces.
pub(crate) fn confine(own: Option<&str>, path: &Concrete) -> Result<(), FactError> {
    match own {
        Some(own) if path.namespace() != Some(own) => Err(FactError::PathOutsideNamespace {
            path: path.to_string(),
            namespace: own.to_owned(),
        }),
        _ => Ok(()),
    }
}
