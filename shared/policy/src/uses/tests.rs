use serde_json::Value;

use super::*;
use crate::compile;

fn reads(rule: &str) -> String {
    let rule = rule.trim_matches('\n').replace('\n', "\n    ");
    let manifest = format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [Ingress]}}}}]}}\n    {rule}\n"
    );
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    let policy = compile(&manifest).unwrap_or_else(|problems| panic!("{problems:#?}"));
    policy.rules()[0].reads().iter().map(line).collect()
}

fn line(read: &Read) -> String {
    let why = read.why_whole.as_ref();
    format!(
        "{}: {:?} of {}: `{}`{}\n",
        read.field,
        read.usage,
        read.variable,
        read.expression,
        why.map(|why| format!(" ({why})")).unwrap_or_default()
    )
}

#[test]
fn published_policies() {
    insta::assert_snapshot!(reads(
        r#"
context:
- name: rules
  globalReference: {name: ingresses, jmesPath: "items[].spec.rules[]"}
validate:
  message: "{{ rules }}"
  foreach:
  - list: "request.object.spec.rules[]"
    deny:
      conditions:
        all:
        - key: "{{ element.http.paths[].path }}"
          operator: AnyIn
          value: "{{ rules[?host=='{{element.host}}'][].http.paths[].path }}"
"#
    ), @r#"
    validate.foreach[0].deny.conditions.all[0].value: Probe("AnyIn") of rules: `any_in($key, items[].spec.rules[] | [?host==$q0][].http.paths[].path)`
    validate.message: Whole of rules: `items[].spec.rules[]` (its value is used as it is)
    "#);
}
