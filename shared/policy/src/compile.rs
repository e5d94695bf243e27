//! From a manifest to a [`Policy`].
use crate::{Policy, Problem};
use serde_json::Value;

/// Compiles a kyverno.io/v1 `ClusterPolicy` or `Policy`, as an API server serves it.
///
/// # Errors
/// Every problem that keeps it from being ready, in the manifest's order: what is malformed or not
/// known at all (`POLICY_INVALID`), and what Kyverno knows and this version does not evaluate
/// (`POLICY_UNSUPPORTED`).
pub fn compile(manifest: &Value) -> Result<Policy, Vec<Problem>> {
    let _ = manifest;
    Err(Vec::new())
}
