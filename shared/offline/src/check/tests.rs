use std::{fs, path::Path};

use serde_json::json;

use super::{patched::tidied, *};

const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labelled}
spec:
  rules:
    - name: label
      match: {any: [{resources: {kinds: [Pod]}}]}
      validate: {message: "label it", pattern: {metadata: {labels: {a: "?*"}}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: broken}
spec: {rules: 3}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: unsupported}
spec:
  rules:
    - name: asserts
      match: {any: [{resources: {kinds: [Pod]}}]}
      validate: {message: "m", assert: {any: []}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: other}
"#;

const RESOURCES: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: twin}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: twin},
 spec: {template: {metadata: {labels: {a: b}}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: twin, labels: {a: b}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: good, labels: {a: b}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: bad, namespace: shop}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d},
 spec: {template: {metadata: {labels: {a: b}}}}}
"#;

fn suite(path: &Path) -> Suite {
    Suite::read(path).unwrap().remove(0)
}

/// The rows of a suite with these results.
fn rows(results: &str) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("policy.yaml", POLICY);
    write("resources.yaml", RESOURCES);
    write(
        "same.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: good, labels: {a: b}}, spec: {}}",
    );
    write(
        "differs.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: good, labels: {a: c}}}",
    );
    write(
        "elsewhere.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: good, namespace: shop, labels: {a: c}}}",
    );
    let test = folder.path().join("kyverno-test.yaml");
    fs::write(
        &test,
        // What is named twice counts once.
        format!(
            "policies: [policy.yaml, policy.yaml]\nresources: [resources.yaml]\n\
             results: [{{{results}}}]"
        ),
    )
    .unwrap();
    check(&suite(&test)).unwrap()
}

/// Each row as `RESOURCE RESULT REASON`.
fn told(results: &str) -> Vec<String> {
    let rows = rows(results);
    rows.iter()
        .map(|row| format!("{} {} {}", row.resource, row.result.as_str(), row.reason))
        .collect()
}

#[test]
fn an_update_is_held_against_the_object_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "policy.yaml",
        "{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: same-team}, spec: {\
         matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods]}]}, \
         validations: [{expression: 'object.metadata.labels == oldObject.metadata.labels'}]}}",
    );
    let pod = |name: &str, team: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{team: {team}}}}}}}\n"
        )
    };
    write("new.yaml", &(pod("moved", "b") + &pod("same", "a")));
    write("old.yaml", &(pod("moved", "a") + &pod("other", "c")));
    let row = "policy: same-team, kind: Pod, resourceOperation: UPDATE";
    let suite_of = |name: &str, old: &str| {
        let test = folder.path().join(name);
        let text = format!(
            "policies: [policy.yaml]\nresources: [new.yaml]\n{old}\n\
             results: [{{{row}, resources: [moved], result: fail}}, {{{row}, resources: [same], result: pass}}]"
        );
        fs::write(&test, text).unwrap();
        let rows = check(&suite(&test)).unwrap();
        rows.iter()
            .map(|row| row.result.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        suite_of("a.yaml", "oldResources: [old.yaml]"),
        ["Pass", "Pass"]
    );
    assert_eq!(suite_of("b.yaml", ""), ["Fail", "Pass"]);
}

#[test]
fn rows_are_found_by_policy_rule_kind_and_resource() {
    let pod = "policy: labelled, rule: label, kind: Pod";
    for (results, rows) in [
        (
            "resources: [good], result: pass",
            &["Pod/default/good Pass Ok"][..],
        ),
        (
            "resources: [good], result: fail",
            &["Pod/default/good Fail Want fail, got pass"],
        ),
        (
            "resources: [bad, good], result: fail",
            &[
                "Pod/shop/bad Pass Ok",
                "Pod/default/good Fail Want fail, got pass",
            ],
        ),
        (
            "resources: [shop/bad], result: fail",
            &["Pod/shop/bad Pass Ok"],
        ),
        (
            "resource: bad, namespace: shop, status: fail",
            &["Pod/shop/bad Pass Ok"],
        ),
        (
            "resources: [default/bad], result: fail",
            &["Pod/default/bad Fail Not found"],
        ),
        // A name means resources of any kind.
        (
            "resources: [twin], result: pass",
            &[
                "Deployment/default/twin Pass Ok",
                "Pod/default/twin Pass Ok",
            ],
        ),
        (
            "result: pass",
            &[
                "Pod/default/twin Pass Ok",
                "Pod/default/good Pass Ok",
                "Pod/shop/bad Fail Want pass, got fail",
            ],
        ),
    ] {
        assert_eq!(told(&format!("{pod}, {results}")), rows, "{results}");
    }
    for (results, row) in [
        (
            "policy: labelled, rule: label, kind: Deployment, resources: [d], result: pass",
            "Deployment/default/d Pass Ok",
        ),
        // Nothing that the policy speaks of: a row that no rule answers is no success.
        (
            "policy: labelled, rule: label, kind: Service, resources: [web], result: pass",
            "Service/web Fail Not found",
        ),
        (
            "policy: labelled, rule: label, kind: Service, resources: [web], result: skip",
            "Service/default/web Pass Excluded",
        ),
        (
            "policy: labelled, rule: autogen-label, kind: Service, resources: [web], result: skip",
            "Service/default/web Pass Excluded",
        ),
        (
            "policy: labelled, rule: label, kind: Service, resources: [none], result: skip",
            "Service/none Fail Not found",
        ),
        // The row names a rule that the policy does not have: results of existing rules must not fail the row.
        (
            "policy: labelled, rule: other, kind: Pod, resources: [good], result: pass",
            "Pod/default/good Pass Other rule",
        ),
        (
            "policy: labelled, rule: other, kind: Pod, resources: [good], result: fail",
            "Pod/good Fail Not found",
        ),
        (
            "policy: labelled, rule: other, kind: Pod, resources: [good], result: skip",
            "Pod/default/good Pass Other rule",
        ),
        (
            "policy: labelled, rule: other, kind: Pod, resources: [bad], result: pass",
            "Pod/bad Fail Not found",
        ),
        (
            "policy: labelled, rule: other, kind: Service, resources: [web], result: skip",
            "Service/web Fail Not found",
        ),
        // No Deployment has the name.
        (
            "policy: labelled, rule: label, kind: Deployment, resources: [good], result: pass",
            "Pod/default/good Pass Ok",
        ),
        (
            "policy: labelled, kind: Pod, resources: [good], result: pass",
            "Pod/default/good Pass Ok",
        ),
        (
            "policy: shop/labelled, rule: label, kind: Pod, resources: [good], result: pass",
            "Pod/default/good Pass Ok",
        ),
        (
            "policy: labelled, rule: label, kind: Pod, result: fail, \
             resourceSpecs: [{version: v1, kind: Pod, namespace: shop, name: bad}]",
            "Pod/shop/bad Pass Ok",
        ),
        (
            "policy: labelled, rule: label, kind: Pod, result: fail, \
             resourceSpecs: [{version: v2, kind: Pod, name: bad}]",
            "Pod/Pod/bad Fail Not found",
        ),
        (
            "policy: labelled, rule: label, kind: Pod, resources: [good], result: pass, \
             operation: PATCH",
            "Pod/good Fail Not a result",
        ),
        (
            "policy: labelled, rule: label, kind: Pod, resources: [good], result: pass, \
             generatedResources: [g.yaml]",
            "Pod/good Not run Not run",
        ),
        (
            "policy: none, rule: label, kind: Pod, resources: [good], result: pass",
            "Pod/good Fail Not found",
        ),
        (
            "policy: broken, rule: label, kind: Pod, resources: [good], result: pass",
            "Pod/good Fail Policy error",
        ),
        (
            "policy: unsupported, rule: asserts, kind: Pod, resources: [good], result: pass",
            "Pod/good Not run Not run",
        ),
        (
            "policy: other, rule: x, kind: Pod, resources: [good], result: pass",
            "Pod/good Not run Not run",
        ),
        (
            "policy: labelled, rule: label, kind: Pod, resources: [good], result: pass, \
             generatedResource: g.yaml",
            "Pod/good Not run Not run",
        ),
    ] {
        assert_eq!(told(results), [row], "{results}");
    }
}

#[test]
fn an_excepted_resource_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("policy.yaml", POLICY);
    write("resources.yaml", RESOURCES);
    write(
        "exception.yaml",
        "{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e}, spec: {\
         match: {any: [{resources: {names: [bad]}}]}, \
         exceptions: [{policyName: labelled, ruleNames: [label]}]}}",
    );
    let test = folder.path().join("kyverno-test.yaml");
    let text = "policies: [policy.yaml]\nresources: [resources.yaml]\nexceptions: [exception.yaml]\n\
        results: [{policy: labelled, rule: label, kind: Pod, resources: [bad], result: skip}]";
    fs::write(&test, text).unwrap();
    let rows = check(&suite(&test)).unwrap();
    assert_eq!(rows[0].result, RowResult::Pass, "{rows:?}");
    assert_eq!(
        rows[0].message,
        "it is excepted by PolicyException default/e"
    );
    write("exception.yaml", "{kind: PolicyException}");
    let rows = check(&suite(&test)).unwrap();
    assert_eq!(rows[0].reason, "Exception error");
    write(
        "exception.yaml",
        "{apiVersion: example.com/v1, kind: PolicyException, metadata: {name: e}}",
    );
    let rows = check(&suite(&test)).unwrap();
    assert_eq!(rows[0].reason, "Want skip, got fail");
    assert!(rows[0].remark.contains("example.com/v1"));
}

#[test]
fn a_patched_resource_is_compared_but_for_empty_fields() {
    let of = |rest: &str| {
        told(&format!(
            "policy: labelled, rule: label, kind: Pod, resources: [good], {rest}"
        ))
    };
    for (rest, row) in [
        ("patchedResources: same.yaml, result: pass", "Pass Ok"),
        (
            "patchedResources: differs.yaml, result: pass",
            "Fail Resource diff",
        ),
        ("patchedResources: differs.yaml, result: fail", "Pass Ok"),
        (
            "patchedResources: same.yaml, result: fail",
            "Fail Want fail, got pass",
        ),
        ("patchedResources: elsewhere.yaml, result: pass", "Pass Ok"),
        ("patchedResources: elsewhere.yaml, result: fail", "Pass Ok"),
        (
            "patchedResources: elsewhere.yaml, result: pass, failOnMissingResources: true",
            "Fail Resource missing",
        ),
    ] {
        assert_eq!(of(rest), [format!("Pod/default/good {row}")], "{rest}");
    }
    let missing = &of("patchedResources: none.yaml, result: pass")[0];
    assert!(missing.contains("Fail cannot read"), "{missing}");
}

#[test]
fn a_patched_resource_that_is_not_compared_has_a_remark() {
    let rows = rows(
        "policy: labelled, rule: label, kind: Pod, resources: [good], result: pass, \
         patchedResources: elsewhere.yaml",
    );
    assert_eq!(
        rows[0].remark,
        "Pod/default/good does not stand in elsewhere.yaml: what it became is not compared"
    );
}

#[test]
fn rows_follow_the_request_and_facts_not_given_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "policy.yaml",
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: guarded}
spec:
  rules:
    - name: kept
      match: {any: [{resources: {kinds: [Pod], operations: [DELETE]}}]}
      validate: {message: "kept", deny: {}}
    - name: read
      match: {any: [{resources: {kinds: [Pod]}}]}
      context: [{name: tier, apiCall: {urlPath: /api/v1/namespaces/shop, jmesPath: metadata.labels}}]
      validate:
        message: "read"
        deny: {conditions: {any: [{key: "{{ tier.of || 'none' }}", operator: Equals, value: gold}]}}
"#,
    );
    write(
        "pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
    );
    write(
        "cluster.yaml",
        "{apiVersion: cli.kyverno.io/v1alpha1, kind: ClusterResource, spec: {crds: [], resources: [\
         {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {of: gold}}}]}}",
    );
    write(
        "other.yaml",
        "{apiVersion: v1, kind: Namespace, metadata: {name: other}}",
    );
    let rows = |rest: &str| {
        let test = folder.path().join("kyverno-test.yaml");
        let text = format!(
            "policies: [policy.yaml]\nresources: [pod.yaml]\n{rest}\nresults:\n\
             - {{policy: guarded, rule: kept, kind: Pod, resources: [a], operation: DELETE, result: fail}}\n\
             - {{policy: guarded, rule: kept, kind: Pod, resources: [a], result: fail}}\n\
             - {{policy: guarded, rule: read, kind: Pod, resources: [a], result: pass}}"
        );
        fs::write(&test, text).unwrap();
        let rows = check(&suite(&test)).unwrap();
        let reasons: Vec<_> = rows.iter().map(|row| row.reason.clone()).collect();
        (reasons, rows[2].remark.clone())
    };
    let (reasons, remark) = rows("");
    assert_eq!(reasons, ["Ok", "Not found", "Ok"]);
    assert_eq!(
        remark,
        "nothing was given for `tier`, which is taken as missing"
    );
    let (reasons, remark) = rows("clusterResources: [cluster.yaml]");
    assert_eq!(reasons[2], "Want pass, got fail");
    assert_eq!(remark, "");
    // A namespace that is missing among the given objects is unknown, not absent.
    let (reasons, _) = rows("clusterResources: [other.yaml]");
    assert_eq!(reasons[2], "Want pass, got error");
}

/// A call whose path nobody can write, since a variable in it is missing.
#[test]
fn a_value_stands_for_its_entry_whatever_the_entry_would_have_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "policy.yaml",
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
    - name: r
      match: {any: [{resources: {kinds: [Pod]}}]}
      context: [{name: tier, apiCall: {urlPath: "/api/v1/namespaces/{{ request.userInfo.username }}", jmesPath: "kind"}}]
      validate:
        message: m
        deny: {conditions: {any: [{key: "{{ tier || 'none' }}", operator: Equals, value: gold}]}}
"#,
    );
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}";
    write("pod.yaml", pod);
    for (values, result) in [
        ("{}", "pass"),
        (
            "{policies: [{name: p, rules: [{name: r, values: {tier: gold}}]}]}",
            "fail",
        ),
        (
            "{policies: [{name: p, rules: [{name: r, foreachValues: {tier: [gold, tin]}}]}]}",
            "fail",
        ),
        ("{globalValues: {tier: gold}}", "fail"),
        ("{globalValues: {tier: tin}}", "pass"),
    ] {
        let test = folder.path().join("kyverno-test.yaml");
        let text = format!(
            "policies: [policy.yaml]\nresources: [pod.yaml]\nvalues: {values}\nresults:\n\
             - {{policy: p, rule: r, kind: Pod, resources: [a], result: {result}}}"
        );
        fs::write(&test, text).unwrap();
        let rows = check(&suite(&test)).unwrap();
        assert_eq!(rows[0].reason, "Ok", "{values}: {rows:?}");
    }
}

#[test]
fn numbers_are_compared_by_value_and_empty_things_say_nothing() {
    for (a, b, same) in [
        (json!({"a": 1}), json!({"a": 1.0}), true),
        (json!({"a": [], "b": {}, "c": null}), json!({}), true),
        (json!({"a": 1}), json!({"a": "1"}), false),
        (json!([1, 2]), json!([2, 1]), false),
        (json!({"a": false}), json!({}), false),
    ] {
        assert_eq!(tidied(&a) == tidied(&b), same, "{a} {b}");
    }
}

#[test]
fn user_and_namespace_labels_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "policy.yaml",
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: guarded}
spec:
  rules:
    - name: guard
      match: {any: [{resources: {kinds: [Pod], namespaceSelector: {matchLabels: {env: prod}}}}]}
      exclude: {any: [{clusterRoles: [admin]}, {subjects: [{kind: Group, name: "ops-*"}]}]}
      validate: {message: "guarded", deny: {}}
"#,
    );
    write(
        "pods.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: test}}\n---\n\
         {apiVersion: v1, kind: Namespace, metadata: {name: test, labels: {env: test}}}",
    );
    write(
        "admin.yaml",
        "{clusterRoles: [admin], userInfo: {username: alice}}",
    );
    write("ops.yaml", "{userInfo: {username: bob, groups: [ops-1]}}");
    write(
        "other.yaml",
        "{clusterRoles: [view], userInfo: {username: eve, groups: [dev]}}",
    );
    let reasons = |user: &str| -> Vec<String> {
        let text = format!(
            "policies: [policy.yaml]\nresources: [pods.yaml]\n{user}\n\
             values: {{namespaceSelector: [{{name: shop, labels: {{env: prod}}}}]}}\n\
             results: [{{policy: guarded, rule: guard, kind: Pod, resources: [a, b], result: fail}}]"
        );
        let test = folder.path().join("kyverno-test.yaml");
        fs::write(&test, text).unwrap();
        let rows = check(&suite(&test)).unwrap();
        rows.into_iter().map(|row| row.reason).collect()
    };
    assert_eq!(reasons(""), ["Ok", "Not found"]);
    assert_eq!(reasons("userinfo: other.yaml"), ["Ok", "Not found"]);
    assert_eq!(reasons("userinfo: admin.yaml"), ["Not found", "Not found"]);
    assert_eq!(reasons("userinfo: ops.yaml"), ["Not found", "Not found"]);
}

/// However a suite gives the objects of a `CachedContextEntry`, a rule finds them under `items`, as in a cluster.
#[test]
fn a_cached_entry_has_the_shape_that_it_has_in_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "policy.yaml",
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: unique}
spec:
  rules:
    - name: free
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      context:
        - name: owners
          cachedContextEntry:
            name: maps
            jmesPath: items[?data.host == '{{ request.object.data.host }}' && metadata.name != '{{ request.object.metadata.name }}'].metadata.name
      validate:
        deny: {conditions: {all: [{key: "{{ owners | length(@) }}", operator: GreaterThan, value: 0}]}}
"#,
    );
    write(
        "entry.yaml",
        "apiVersion: kyverno.io/v1\nkind: CachedContextEntry\nmetadata: {name: maps}\n\
         spec: {resource: {group: core/v1, kind: configmaps}}",
    );
    write(
        "maps.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {host: x}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {host: y}}",
    );
    write(
        "new.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: taken}, data: {host: x}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: free}, data: {host: z}}",
    );
    for given in [
        "policies: [policy.yaml]\nresources: [new.yaml]\n\
         globalContextEntries: [{name: maps, resourceFiles: [maps.yaml]}]",
        "policies: [policy.yaml]\nresources: [new.yaml]\n\
         globalContextEntries: [{name: maps, fieldPath: '{items: @}', resourceFiles: [maps.yaml]}]",
        "policies: [policy.yaml, entry.yaml]\nresources: [new.yaml, maps.yaml]",
        "policies: [policy.yaml, entry.yaml]\nresources: [new.yaml]\nclusterResources: [maps.yaml]",
    ] {
        let results = [("taken", "fail"), ("free", "pass")].map(|(name, result)| {
            format!("{{policy: unique, rule: free, kind: ConfigMap, resources: [{name}], result: {result}}}")
        });
        let text = format!("{given}\nresults: [{}]", results.join(", "));
        write("kyverno-test.yaml", &text);
        let rows = check(&suite(&folder.path().join("kyverno-test.yaml"))).unwrap();
        let reasons: Vec<_> = rows.iter().map(|row| &*row.reason).collect();
        assert_eq!(reasons, ["Ok", "Ok"], "{given}");
    }
}
