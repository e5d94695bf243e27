//! The admission of policies themselves. Pure.
//!
//! A policy that may not read what it names is refused where it is written, in the words that its
//! status would have. Whatever else keeps one from being ready is told as a warning: an older version
//! of this program must not keep anybody from installing what a newer one evaluates.

use anteroom_model::{ErrorCode, FactError, ObjectKey};
use anteroom_policy::{Policy, Problem, compile};
use serde_json::Value;

use crate::catalog::Catalog;

/// What becomes of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Why it is refused; empty: it is not.
    pub(crate) refused: Vec<String>,
    /// What its author is told.
    pub(crate) warnings: Vec<String>,
}

/// Judges a policy as it is written. Of entries that are not known nothing is said: whoever creates one
/// later is told by the policy's status. `before` is what it was: a change of anything but its spec, as
/// of its finalizers, makes it read nothing else.
pub(crate) fn judge(
    manifest: &Value,
    before: Option<&Value>,
    catalog: Option<&Catalog>,
) -> Admission {
    if before.is_some_and(|before| before["spec"] == manifest["spec"]) {
        return Admission::default();
    }
    match compile(manifest) {
        Ok(policy) => Admission {
            refused: catalog.map_or_else(Vec::new, |catalog| refused_entries(&policy, catalog)),
            warnings: Vec::new(),
        },
        Err(problems) => {
            let is_forbidden = |problem: &Problem| problem.code == ErrorCode::POLICY_FORBIDDEN;
            let (forbidden, others): (Vec<_>, Vec<_>) =
                problems.into_iter().partition(is_forbidden);
            let others = others.iter();
            Admission {
                refused: forbidden.iter().map(ToString::to_string).collect(),
                warnings: others
                    .map(|problem| format!("the policy is not in force: {problem}"))
                    .collect(),
            }
        }
    }
}

/// The entries that a namespaced policy may not read, as they are now.
fn refused_entries(policy: &Policy, catalog: &Catalog) -> Vec<String> {
    let Some(own) = policy.namespace() else {
        return Vec::new();
    };
    let refused = policy.entries().filter_map(|(kind, name)| {
        let record = catalog.entry(kind, name).ok()?;
        let error = match record.binding_within(Some(own)) {
            Ok(binding) if binding.secret => FactError::SecretForbidden {
                reader: format!("Policy {}", ObjectKey::new(own, policy.name())),
            },
            Err(error @ FactError::OutsideNamespace { .. }) => error,
            _ => return None,
        };
        Some(format!("{} {error}", error.code()))
    });
    refused.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(kind: &str, context: &Value) -> Value {
        let mut context = context.clone();
        context["name"] = "x".into();
        json!({
            "apiVersion": "kyverno.io/v1", "kind": kind,
            "metadata": { "name": "p", "namespace": "own" },
            "spec": { "rules": [{ "name": "r", "context": [context],
                "match": { "any": [{ "resources": { "kinds": ["Pod"] } }] },
                "validate": { "deny": {} } }] },
        })
    }

    /// Point D: what is written is refused with the policy, by every road that is known by then.
    #[test]
    fn a_policy_that_reads_outside_its_namespace_is_refused() {
        for context in [
            json!({ "configMap": { "name": "c", "namespace": "other" } }),
            json!({ "apiCall": { "urlPath": "/api/v1/namespaces/other/pods" } }),
            json!({ "apiCall": { "urlPath": "/api/v1/pods" } }),
            json!({ "apiCall": { "service": { "url": "https://s/" } } }),
            json!({ "resourceCache": { "version": "v1", "kind": "pods", "namespace": "other" } }),
        ] {
            let admission = judge(&policy("Policy", &context), None, None);
            assert!(
                admission
                    .refused
                    .iter()
                    .all(|why| why.starts_with("AR304 spec.rules[0]")),
                "{admission:?}"
            );
            assert!(!admission.refused.is_empty(), "{context}");
            let admission = judge(&policy("ClusterPolicy", &context), None, None);
            assert_eq!(admission, Admission::default(), "{context}");
        }
        for context in [
            json!({ "configMap": { "name": "c", "namespace": "own" } }),
            json!({ "configMap": { "name": "c", "namespace": "{{ request.object.x }}" } }),
            json!({ "cachedContextEntry": { "name": "unknown" } }),
        ] {
            let admission = judge(&policy("Policy", &context), None, Some(&Catalog::default()));
            assert_eq!(admission, Admission::default(), "{context}");
        }
    }

    #[test]
    fn what_was_there_before_may_lose_its_finalizers() {
        let outside = json!({ "apiCall": { "urlPath": "/version" } });
        let before = policy("Policy", &outside);
        let mut after = before.clone();
        after["metadata"]["finalizers"] = json!([]);
        assert_eq!(judge(&after, Some(&before), None), Admission::default());
        after["spec"]["background"] = false.into();
        assert_eq!(judge(&after, Some(&before), None).refused.len(), 1);
    }

    #[test]
    fn what_is_not_evaluated_is_told_and_not_refused() {
        let image = json!({ "imageRegistry": { "reference": "nginx" } });
        let mut manifest = policy("ClusterPolicy", &image);
        manifest["spec"]["rules"][0]["nope"] = 1.into();
        let admission = judge(&manifest, None, None);
        assert_eq!((admission.refused.len(), admission.warnings.len()), (0, 2));
        assert!(admission.warnings[0].starts_with("the policy is not in force: AR30"));
    }
}
