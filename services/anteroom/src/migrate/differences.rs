//! The rows of docs/differences.md that a policy is sure to be about. Pure.
//!
//! Most rows depend on requests. Only those stand here that a manifest shows by itself.

use anteroom_policy::PolicyKind;
use serde::Serialize;
use serde_json::Value;

use super::installation::text;

/// A difference from Kyverno that a policy is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// The rule, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<String>,
    /// The first cell of its row.
    pub(super) what: &'static str,
}

/// A row, and whether a part of a policy is about it.
type Row = (&'static str, fn(&Value) -> bool);

/// Differences that a rule of kyverno.io may have.
const OF_RULES: [Row; 3] = [
    (
        "An update violates a rule with `preconditions`, and the old object violated it too",
        |rule| {
            let validate = &rule["validate"];
            !rule["preconditions"].is_null()
                && validate.is_object()
                && validate["allowExistingViolations"] != false
        },
    ),
    ("`is_external_url` of a name", |rule| {
        rule.to_string().contains("is_external_url(")
    }),
    ("`imageRegistryCredentials.secrets`", |rule| {
        let mut entries = rule["context"].as_array().into_iter().flatten();
        entries
            .any(|entry| entry["imageRegistry"]["imageRegistryCredentials"]["secrets"].is_array())
    }),
];

/// Rows that a whole policy shows.
const OF_POLICIES: [Row; 3] = [
    (
        "An override in the `spec` has a `namespaceSelector`",
        |policy| {
            let overrides = policy["spec"]["validationFailureActionOverrides"].as_array();
            let mut overrides = overrides.into_iter().flatten();
            overrides.any(|one| !one["namespaceSelector"].is_null())
        },
    ),
    (
        "A validation of a `ValidatingPolicy` fails with an error, under `failurePolicy: Ignore`",
        |policy| {
            policy["spec"]["failurePolicy"] == "Ignore" && policy["spec"]["validations"].is_array()
        },
    ),
    (
        "`globalContext.get` of an entry that is not there",
        |policy| is_in_cel(policy) && policy.to_string().contains("globalContext.get("),
    ),
];

/// Returns the differences of the policy's rules, and then of the policy itself.
pub(super) fn of_policy(policy: &Value) -> Vec<Difference> {
    let rules = policy["spec"]["rules"].as_array().into_iter().flatten();
    let of_rules = rules.flat_map(|rule| {
        let rows = OF_RULES.iter().filter(|(_, is_about)| is_about(rule));
        rows.map(|(what, _)| Difference {
            rule: Some(text(rule, "/name")),
            what,
        })
    });
    let rows = OF_POLICIES.iter().filter(|(_, is_about)| is_about(policy));
    let of_policy = rows.map(|(what, _)| Difference { rule: None, what });
    of_rules.chain(of_policy).collect()
}

fn is_in_cel(policy: &Value) -> bool {
    let (version, kind) = (text(policy, "/apiVersion"), text(policy, "/kind"));
    PolicyKind::of_manifest(&version, &kind).is_some_and(PolicyKind::is_cel)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_difference_is_a_row_of_the_docs_page() {
        let page = include_str!("../../../../docs/differences.md");
        for (what, _) in OF_RULES.iter().chain(&OF_POLICIES) {
            assert!(page.contains(&format!("\n| {what} |")), "{what}");
        }
    }

    #[test]
    fn a_rule_gets_the_difference_that_concerns_its_fields() {
        let rule = |rule: Value| {
            let found = of_policy(&json!({ "spec": { "rules": [rule] } }));
            found.into_iter().map(|one| one.what).collect::<Vec<_>>()
        };
        let conditions = json!({ "any": [] });
        for (manifest, row) in [
            (
                json!({ "preconditions": conditions, "validate": {} }),
                Some(0),
            ),
            (
                json!({ "preconditions": conditions, "validate": { "allowExistingViolations": false } }),
                None,
            ),
            (json!({ "preconditions": conditions, "mutate": {} }), None),
            (json!({ "message": "{{ is_external_url('a') }}" }), Some(1)),
            (
                json!({ "context": [{ "imageRegistry": { "imageRegistryCredentials": { "secrets": ["a"] } } }] }),
                Some(2),
            ),
        ] {
            let expected: Vec<_> = row.map(|at: usize| OF_RULES[at].0).into_iter().collect();
            assert_eq!(rule(manifest.clone()), expected, "{manifest}");
        }
        let policy = json!({ "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy",
            "spec": { "failurePolicy": "Ignore", "validations": [{ "expression": "globalContext.get('a', '') == null" }] } });
        let whats: Vec<_> = of_policy(&policy).into_iter().map(|one| one.what).collect();
        assert_eq!(whats, [OF_POLICIES[1].0, OF_POLICIES[2].0]);
    }
}
