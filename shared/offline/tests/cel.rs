//! A suite of a policy in CEL: parameters and namespaces come out of the files.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used)]

use std::fs;

use anteroom_offline::{Suite, check};

const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: replicas}
spec:
  rules:
    - name: limit
      match: {any: [{resources: {kinds: [Deployment]}}]}
      celPreconditions:
        - {name: has-replicas, expression: has(object.spec.replicas)}
      validate:
        cel:
          paramKind: {apiVersion: v1, kind: ConfigMap}
          paramRef: {selector: {matchLabels: {limits: replicas}}, parameterNotFoundAction: Deny}
          variables:
            - {name: most, expression: int(params.data.most)}
          expressions:
            - expression: object.spec.replicas <= variables.most
              messageExpression: "'at most ' + string(variables.most)"
            - expression: "namespaceObject.metadata.name == request.namespace"
"#;

const RESOURCES: &str = r#"
{apiVersion: apps/v1, kind: Deployment, metadata: {name: small, namespace: shop}, spec: {replicas: 2}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: large, namespace: shop}, spec: {replicas: 9}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: none, namespace: shop}, spec: {}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: lost, namespace: other}, spec: {replicas: 1}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: limits, namespace: shop, labels: {limits: replicas}}, data: {most: "5"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: unrelated, namespace: shop}, data: {most: "0"}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
"#;

#[test]
fn a_suite_of_a_policy_in_cel() {
    let folder = tempfile::tempdir().unwrap();
    let results = [
        ("small", "pass"),
        ("large", "fail"),
        ("none", "skip"),
        // None of the parameters is of its namespace.
        ("lost", "error"),
    ];
    let mut suite = "policies: [policy.yaml]\nresources: [resources.yaml]\nresults:\n".to_owned();
    for (resource, result) in results {
        let row = format!(
            "- {{policy: replicas, rule: limit, kind: Deployment, resources: [{resource}], result: {result}}}\n"
        );
        suite.push_str(&row);
    }
    for (name, text) in [
        ("policy.yaml", POLICY),
        ("resources.yaml", RESOURCES),
        ("kyverno-test.yaml", &suite),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let suite = Suite::read(&folder.path().join("kyverno-test.yaml")).unwrap();
    let rows = check(&suite[0]).unwrap();
    let told: Vec<_> = rows
        .iter()
        .map(|row| format!("{} {} {}", row.resource, row.result.as_str(), row.reason))
        .collect();
    assert_eq!(told.len(), results.len(), "{told:#?}");
    for told in told {
        assert!(told.ends_with(" Pass Ok"), "{told}");
    }
}
