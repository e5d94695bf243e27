use serde_json::Value;

use super::*;
use crate::{CollectionReference, Policy, Reference, compile};

fn policy(rule: &str) -> Policy {
    let rule = rule.trim_matches('\n').replace('\n', "\n    ");
    let manifest = format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [Ingress]}}}}]}}\n    {rule}\n"
    );
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    compile(&manifest).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn reads(rule: &str) -> String {
    policy(rule).rules()[0].reads().iter().map(line).collect()
}

fn line(read: &ExplainedRead) -> String {
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
fn a_published_policy_reads_its_fact_by_subquery_and_whole() {
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

/// The uses of facts in the published policies: the entry's expression, and the condition.
#[test]
fn published_policies_ask_the_replica_these_queries() {
    let asked = |query: &str, key: &str, operator: &str, value: &str| {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        reads(&format!(
            r#"
context:
- name: v
  apiCall: {{urlPath: /apis/x.io/v1/things, jmesPath: {}}}
validate: {{deny: {{conditions: {{all: [{{key: {}, operator: {operator}, value: {}}}]}}}}}}
"#,
            quoted(query),
            quoted(key),
            quoted(value)
        ))
        .replace("validate.deny.conditions.all[0].", "")
    };
    let hosts = "{{ request.object.spec.rules[].host }}";
    let name = "{{ request.object.metadata.name }}";
    let all = [
        asked("items[].spec.rules[].host", hosts, "AnyIn", "{{ v }}"),
        asked(
            "items[?metadata.uid!='{{ request.object.metadata.uid }}'].spec.rules[].host",
            hosts,
            "AnyIn",
            "{{ v }}",
        ),
        asked("items[].spec.host", name, "AnyIn", "{{ v || `[]` }}"),
        asked("items[].metadata.name || `[]`", name, "AnyIn", "{{ v }}"),
        asked("items[].metadata.name || `[]`", name, "AnyNotIn", "{{ v }}"),
        asked("items[].metadata.name", name, "NotIn", "{{ v }}"),
        asked("items[] | length(@)", "{{ v }}", "Equals", "0"),
        asked(
            "items[].metadata.name",
            "{{ length(v) }}",
            "GreaterThan",
            "0",
        ),
        asked("items[].metadata.name", "{{ v }}", "AllIn", "x-*"),
        asked(
            "",
            "{{ v.items[?spec.n > `1`] | length(@) }}",
            "GreaterThan",
            "0",
        ),
        asked("items", "{{ v[?metadata.name == 'x'] }}", "Equals", "x"),
        asked("items[]", "{{ v[0].metadata.name || '' }}", "Equals", name),
        asked("items[]", "{{ v[0].metadata.labels.app }}", "Equals", name),
        asked(
            "items[]",
            "{{ contains(v[].spec.host, request.object.host) }}",
            "Equals",
            "true",
        ),
        asked("items[]", "{{ v.* }}", "Equals", "x"),
        asked("items[]", "{{ v[].\"{{ request.name }}\" }}", "Equals", "x"),
        asked("items[].{{ request.name }}", "{{ v[].x }}", "Equals", "x"),
        asked("{{ request.name }}", "{{ v[].x }}", "Equals", "x"),
    ];
    insta::assert_snapshot!(all.concat());
}

/// One use that wants the list makes all of them use it; a message does not.
#[test]
fn a_list_that_is_needed_whole_answers_all_its_uses() {
    let rule = |second: &str| {
        reads(&format!(
            r#"
context:
- name: v
  resourceCache: {{group: "", version: v1, kind: services, jmesPath: "items[]"}}
- name: w
  variable: {{jmesPath: "v[].metadata.name"}}
validate:
  message: "{{{{ v }}}} {{{{ length(v) }}}}"
  deny:
    conditions:
      all:
      - {{key: "{{{{ length(v) }}}}", operator: Equals, value: "{{{{ {second} }}}}"}}
"#
        ))
    };
    insta::assert_snapshot!(format!("{}\n{}", rule("v[].spec"), rule("v")));
}

/// Asserts whether a condition's key about `v`, which comes from the source, is asked in place of it.
fn assert_is_asked(source: &str, key: &str, is_asked: bool) {
    let reads = reads(&format!(
        "\ncontext: [{{name: v, {source}}}]\nvalidate: {{deny: {{conditions: [{{key: \"{{{{ {key} }}}}\", operator: Equals, value: x}}]}}}}\n"
    ));
    assert_eq!(
        reads.contains("Subquery of v") || reads.contains("Probe(\"Equals\") of v"),
        is_asked,
        "{source} {key}: {reads}"
    );
}

/// Behind a projection of an entry every expression is a stage of a pipe, which would forgive what is an
/// error where the rule evaluates it.
#[test]
fn a_use_that_may_miss_a_key_behind_a_projection_is_not_asked() {
    for (entry, key, is_asked) in [
        ("e", "v[0].host", true),
        ("e.p", "v[0].host", false),
        ("e.p", "v[].host", true),
        ("{{ request.name }}", "v[0].host", false),
        ("{{ request.name }}", "v[].host", true),
    ] {
        let source = format!("globalReference: {{name: \"{entry}\"}}");
        assert_is_asked(&source, key, is_asked);
    }
}

/// An argument that a function refuses is an error of the entry's expression by itself. Left of `[]` or of a
/// filter it would come to null.
#[test]
fn a_use_that_would_hide_an_error_of_the_entry_is_not_pushed_down() {
    for (own, key, is_asked) in [
        ("length(items)", "v[].host && request.object.host", false),
        ("length(items)", "v[?a].host && request.object.host", false),
        ("length(items)", "v[0].host && request.object.host", true),
        ("length(items)", "v[].host", true),
        ("items[]", "v[].host && request.object.host", true),
    ] {
        let source = format!("cachedContextEntry: {{name: e, jmesPath: \"{own}\"}}");
        assert_is_asked(&source, key, is_asked);
    }
}

/// Whoever keeps the fact has the fields of its objects in another order.
#[test]
fn a_use_that_sees_the_order_of_fields_within_a_function_is_not_asked() {
    let source = "resourceCache: {group: '', version: v1, kind: services, jmesPath: 'items[]'}";
    assert_is_asked(source, "map(&labels.app, v)", true);
    assert_is_asked(source, "map(&labels.*, v)", false);
}

#[test]
fn a_variable_beside_a_fact_is_a_parameter_of_the_query() {
    let asked = reads(
        r#"
context: [{name: v, resourceCache: {group: "", version: v1, kind: services, jmesPath: "items[]"}}]
validate: {deny: {conditions: [{key: "{{ contains(v[].host, '{{ request.name }}') }}", operator: Equals, value: true}]}}
"#,
    );
    let query = "Subquery of v: `items[] | contains(@[].host, $q0)`";
    assert!(asked.contains(query), "{asked}");
}

/// A use that nobody finds would not hinder others from having the fact cut.
#[test]
fn facts_are_found_in_every_place_of_a_mutation() {
    let (used, patch) = ("{{ length(v) }}", "patchStrategicMerge: {spec: {b: x}}");
    let condition = format!("[{{key: '{used}', operator: Equals, value: 1}}]");
    let target = "apiVersion: v1, kind: Pod";
    let source = "group: '', version: v1, kind: services, jmesPath: 'items[]'";
    for (mutate, field) in [
        (
            format!("patchStrategicMerge: {{spec: {{a: '{used}'}}}}"),
            "patchStrategicMerge",
        ),
        (
            format!("patchesJson6902: [{{op: add, path: '/spec/{used}', value: 1}}]"),
            "patchesJson6902[0].path",
        ),
        (
            format!("patchesJson6902: [{{op: add, path: /spec/a, value: '{used}'}}]"),
            "patchesJson6902[0].value",
        ),
        (
            format!("foreach: [{{list: v, {patch}}}]"),
            "foreach[0].list",
        ),
        (
            format!(
                "foreach: [{{list: request.object.a, preconditions: {{all: {condition}}}, {patch}}}]"
            ),
            "foreach[0].preconditions.all[0].key",
        ),
        (
            format!(
                "foreach: [{{list: request.object.a, patchStrategicMerge: {{spec: {{a: '{used}'}}}}}}]"
            ),
            "foreach[0].patchStrategicMerge",
        ),
        (
            format!("targets: [{{{target}, name: '{used}'}}], {patch}"),
            "targets[0].name",
        ),
        (
            format!("targets: [{{{target}, preconditions: {{all: {condition}}}}}], {patch}"),
            "targets[0].preconditions.all[0].key",
        ),
        (
            format!("targets: [{{{target}}}], patchStrategicMerge: {{spec: {{a: '{used}'}}}}"),
            "patchStrategicMerge",
        ),
    ] {
        let asked = reads(&format!(
            "\ncontext: [{{name: v, resourceCache: {{{source}}}}}]\nmutate: {{{mutate}}}\n"
        ));
        let place = format!("mutate.{field}: ");
        let is_found = asked.lines().any(|line| line.starts_with(&place));
        assert!(is_found, "{mutate}: {asked}");
    }
}

#[test]
fn an_expression_may_miss_a_key_unless_null_serves_as_well() {
    for (expression, expected) in [
        ("a.b", true),
        ("a && b", true),
        ("a || `1`", false),
        ("a[].b", false),
        ("length(a)", false),
        ("a | b", false),
        ("a[", true),
    ] {
        assert_eq!(may_miss_key(expression), expected, "{expression}");
    }
}

/// The user's roles are looked up for a rule that names them. One that takes the request whole gets it as it came.
#[test]
fn a_rule_waits_for_facts_that_its_request_does_not_carry() {
    let deny = |context: &str, key: &str| {
        policy(&format!(
            "\ncontext: [{context}]\nvalidate: {{deny: {{conditions: [\
             {{key: \"{{{{ {key} }}}}\", operator: Equals, value: x}}]}}}}\n"
        ))
    };
    let bindings: Vec<String> = [false, true]
        .map(CollectionReference::role_bindings)
        .map(|bindings| Reference::Collection(bindings).name())
        .into();
    let entry = "{name: v, globalReference: {name: e.p, jmesPath: 'items[]'}}";
    for (context, key, mut references, may_wait) in [
        ("", "request.name", vec![], false),
        ("", "to_string(request)", vec![], false),
        ("", "request.roles[0]", bindings.clone(), true),
        ("", "request.clusterRoles[0]", bindings, true),
        (entry, "length(v)", vec![], true),
    ] {
        let policy = deny(context, key);
        let mut found: Vec<_> = policy.references().map(|one| one.name()).collect();
        found.sort();
        references.sort();
        assert_eq!(found, references, "{key}");
        assert_eq!(policy.may_wait(), may_wait, "{key}");
    }
    let policy = deny(entry, "length(v)");
    let queries: Vec<_> = policy.entry_queries().collect();
    let [(_, Some("e"), Some(query))] = queries[..] else {
        panic!("{queries:?}");
    };
    assert_eq!(query.as_str(), "items[]");
}

#[test]
fn a_rule_that_prints_its_whole_context_loads_every_entry() {
    let asks = |message: &str| {
        reads(&format!(
            r#"
context:
- name: hosts
  globalReference: {{name: ingresses, jmesPath: "items[].spec.rules[].host"}}
validate:
  message: "{message}"
  deny:
    conditions:
      all:
      - {{key: "{{{{ request.name }}}}", operator: AnyIn, value: "{{{{ hosts }}}}"}}
"#
        ))
    };
    assert!(asks("{{ request.name }}").contains("Probe"));
    for everything in ["{{ @ || `1` }}", "{{ length(@) }}", "{{ *.name }}"] {
        let asked = asks(everything);
        assert!(!asked.contains("Probe"), "{everything}: {asked}");
    }
}

/// A fact that is needed whole is sent with the fields that the rule can read.
#[test]
fn a_list_that_is_needed_is_cut_to_the_fields_that_are_read() {
    let cut = |own: &str, list: &str, conditions: &str| {
        let asked = reads(&format!(
            r#"
context:
- name: v
  resourceCache: {{group: "", version: v1, kind: services, jmesPath: "{own}"}}
- name: first
  variable: {{jmesPath: "v[0]"}}
validate:
  message: "{{{{ element.kind || '' }}}}"
  foreach:
  - list: "{list}"
    deny: {{conditions: [{{key: "{{{{ {conditions} }}}}", operator: Equals, value: x}}]}}
"#
        ));
        let asked = asked.lines().find(|line| line.contains("foreach[0].list"));
        let (_, asked) = asked.unwrap().split_once(" of v: `").unwrap();
        let asked = asked.rsplit_once("` (").map_or(asked, |(asked, _)| asked);
        asked.trim_end_matches('`').to_owned()
    };
    for (own, list, condition, fields) in [
        (
            "items[]",
            "v",
            "element.spec.a",
            r#"{"kind":true,"spec":{"a":true}}"#,
        ),
        (
            "items[]",
            "v",
            "element.spec && length(v)",
            r#"{"kind":true,"spec":true}"#,
        ),
        (
            "items[]",
            "v",
            "first.spec.a",
            r#"{"kind":true,"spec":{"a":true}}"#,
        ),
        (
            "items[]",
            "v[].rules[]",
            "element.host",
            r#"{"host":true,"kind":true}"#,
        ),
        // It may be an object, whose fields are read.
        (
            "items[] || `{}`",
            "v",
            "element.spec && v.a",
            r#"{"a":true,"kind":true,"spec":true}"#,
        ),
        ("items[]", "v", "element", ""),
        ("items[]", "v", "keys(element)", ""),
        ("items[]", "v", "element.* | [0]", ""),
        ("items[]", "v", "to_string(v)", ""),
        ("items[]", "v", "@ || 'x'", ""),
        ("items[]", "v", r#"element.\"{{ request.name }}\""#, ""),
    ] {
        let expected = match fields {
            "" => own.to_owned(),
            fields => format!(
                "({own}{}).keep_only(@, `{fields}`)",
                list.replacen("v[", " | [", 1).trim_start_matches('v')
            ),
        };
        assert_eq!(cut(own, list, condition), expected, "{list} {condition}");
    }
}

/// Whoever goes through the context itself may get to the fact by any name.
#[test]
fn a_fact_reachable_through_the_context_itself_is_not_cut() {
    for (list, variable, key, is_cut) in [
        ("v", "request.name", "element.v[0].host", true),
        ("v", "request.name", "request.{{ request.name }}", true),
        // A name that is put together for each request may be any.
        ("v", "request.name", "@.{{ request.name }}[0].host", false),
        // Where an operand stands, it is a value and no name.
        (
            "v",
            "request.name",
            "request.name || {{ request.name }}[0].host",
            true,
        ),
        ("@", "request.name", "element.v[0].host", false),
        ("v", "@", "element.v[0].host", false),
        ("x", "@", "element.v[0].host", false),
    ] {
        let asked = reads(&format!(
            r#"
context:
- name: x
  variable: {{jmesPath: "{variable}"}}
- name: v
  resourceCache: {{group: "", version: v1, kind: services, jmesPath: "items[]"}}
preconditions: {{all: [{{key: "{{{{ v[0].kind }}}}", operator: NotEquals, value: "{{{{ x.v[0].host || '' }}}}"}}]}}
validate:
  foreach:
  - list: "{list}"
    deny: {{conditions: [{{key: "{{{{ {key} }}}}", operator: Equals, value: "{{{{ request.name }}}}"}}]}}
"#
        ));
        assert_eq!(
            asked.contains("keep_only"),
            is_cut,
            "{list} {variable} {key}: {asked}"
        );
    }
}

/// The first of two facts in one expression that can be asked is asked, and is given the other.
#[test]
fn one_of_two_facts_is_asked_with_the_value_of_the_other_one() {
    let asked = |key: &str, more: &str| {
        reads(&format!(
            r#"
context:
- name: v
  resourceCache: {{group: "", version: v1, kind: services, jmesPath: "items[]"}}
- name: w
  resourceCache: {{group: "", version: v1, kind: pods, jmesPath: "items[]"}}
validate: {{deny: {{conditions: [{{key: "{{{{ {key} }}}}", operator: Equals, value: "{{{{ {more} }}}}"}}]}}}}
"#
        ))
    };
    let both = asked("contains(v[].host, w[0].name)", "request.name");
    for part in [
        "Subquery of v: `items[] | contains(@[].host, $h0)`",
        "Subquery of w: `(items[])[0].name`",
    ] {
        assert!(both.contains(part), "{both}");
    }
    // What one of them is needed whole for, the other is evaluated with in the rule.
    for (key, more) in [
        ("contains(v[].host, w[0].name)", "to_string(w)"),
        ("[v[].host, w[0].name]", "request.name"),
    ] {
        let whole = asked(key, more);
        assert!(!whole.contains("Subquery of v"), "{key} {more}: {whole}");
    }
}
