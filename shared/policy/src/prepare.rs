//! The two steps from a manifest to a policy that can be evaluated: it is compiled, then analysed for push-down.

use serde_json::Value;

use crate::{
    compile as compiler,
    ir::{Driver, Policy, Problem, cost},
    pushdown,
};

/// Compiles a policy of any [kind](crate::PolicyKind), as an API server serves it.
///
/// # Errors
/// Every problem that keeps the policy from being ready, in the manifest's order: malformed or unknown fields
/// (`POLICY_INVALID`), fields that Kyverno knows and this version does not evaluate (`POLICY_UNSUPPORTED`), and reads
/// that are forbidden to a namespaced policy (`POLICY_FORBIDDEN`). A policy that takes more than
/// [`COMPILE_STEPS_MAX`](crate::COMPILE_STEPS_MAX) steps has that one problem. Entries are not checked here, but when
/// they are resolved.
pub fn compile(manifest: &Value) -> Result<Policy, Vec<Problem>> {
    compile_for(manifest, Driver::IN_CLUSTER)
}

/// Compiles a policy for evaluations that are driven by `driver`; see [`compile`].
///
/// # Errors
/// The same problems as [`compile`].
pub fn compile_for(manifest: &Value, driver: Driver) -> Result<Policy, Vec<Problem>> {
    cost::limited(|| {
        let mut policy = compiler::policy(manifest, driver)?;
        policy.rules.iter_mut().for_each(pushdown::prepare);
        Ok(policy)
    })
}

#[cfg(test)]
mod tests;
