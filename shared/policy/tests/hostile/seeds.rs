//! Seeds that are changed at random: policies that use all of the language, and objects that they speak of.

use serde_json::{Value, json};

fn policy(rule: &Value) -> Value {
    let mut rule = rule.clone();
    rule["name"] = "r".into();
    if rule["match"].is_null() {
        rule["match"] = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
    }
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"validationFailureAction": "Enforce", "rules": [rule]},
    })
}

/// Each compiles as it is.
pub(crate) fn policies() -> Vec<Value> {
    [validations(), mutations(), contexts(), expressions()]
        .concat()
        .iter()
        .map(policy)
        .collect()
}

/// In CEL, with all that may stand beside an expression.
fn expressions() -> Vec<Value> {
    vec![
        json!({
            "celPreconditions": [{"name": "a", "expression": "has(object.spec) && request.operation != 'DELETE'"}],
            "validate": {"message": "m", "cel": {
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "paramRef": {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Allow"},
                "variables": [
                    {"name": "all", "expression": "object.spec.containers + object.spec.?initContainers.orValue([])"},
                    {"name": "env", "expression": "namespaceObject.metadata.?labels.env.orValue('')"}],
                "expressions": [
                    {"expression": "variables.all.all(c, c.image.matches('^[a-z]+:') || has(params.data))",
                        "messageExpression": "'%s in %s'.format([variables.all, variables.env])"},
                    {"expression": "variables.all.map(c, quantity(c.resources.limits.memory)).size() > 0", "message": "x"}],
                "auditAnnotations": [{"key": "k", "valueExpression": "variables.env"}],
            }},
        }),
        json!({"validate": {"cel": {"expressions": [
            {"expression": "!has(object.metadata.labels) || object.metadata.labels.all(k, k.size() < 9)"},
            {"expression": "object.?spec.?containers[?0].?name.orValue('a').lowerAscii().split('-').join() != ''"}]}}}),
    ]
}

fn validations() -> Vec<Value> {
    vec![
        json!({"validate": {"message": "m {{ request.object.metadata.name }}", "pattern": {
            "metadata": {"=(labels)": {"app": "?*", "X(bad)": "null"}},
            "spec": {"containers": [{"(name)": "a*", "image": "!*:latest & *:*",
                "=(resources)": {"limits": {"memory": "<=2Gi", "cpu": "100m-4"}}}],
                "^(volumes)": [{"name": "?*"}], "<(hostNetwork)": "false"},
        }}}),
        json!({"validate": {"anyPattern": [
            {"spec": {"=(securityContext)": {"=(runAsNonRoot)": true}}},
            {"spec": {"containers": [{"securityContext": {"runAsNonRoot": true}}]}},
        ]}}),
        json!({
            "match": {"any": [{"resources": {"kinds": ["*/*", "Pod/exec", "apps/v*/Deploy?ent"],
                "names": ["a*", "?b"], "namespaces": ["d*"], "operations": ["CREATE", "UPDATE"],
                "selector": {"matchLabels": {"a*": "?"}, "matchExpressions": [
                    {"key": "x", "operator": "NotIn", "values": ["1"]}]},
                "namespaceSelector": {"matchLabels": {"a": "b"}}, "annotations": {"x/*": "*"}},
                "subjects": [{"kind": "Group", "name": "system:*"}],
                "clusterRoles": ["admin"], "roles": ["a:b"]}]},
            "exclude": {"all": [{"resources": {"names": ["z*"]}}, {"subjects": [
                {"kind": "ServiceAccount", "name": "a", "namespace": "b"}]}]},
            "preconditions": {"any": [
                {"key": "{{ request.operation }}", "operator": "AnyIn", "value": ["CREATE", "UP*"]}],
                "all": [{"key": "{{ request.object.spec.x || '' }}", "operator": "NotEquals", "value": "y"}]},
            "validate": {"deny": {"conditions": {"all": [
                {"key": "{{ request.object.metadata.labels.a || '' }}", "operator": "AllNotIn", "value": "a-{{ request.name }}|b"},
                {"key": "{{ length(request.object.spec.containers) }}", "operator": "GreaterThan", "value": "0"},
                {"key": "{{ request.object.spec.containers[].resources.limits.memory }}", "operator": "AnyIn", "value": "1Mi-8Gi"},
                {"key": "1h", "operator": "DurationLessThan", "value": "{{ request.object.spec.x || '2h' }}", "message": "{{ request.name }}"},
            ]}}},
        }),
        json!({"preconditions": [{"key": "a", "operator": "In", "value": ["a"]}],
            "validate": {"deny": {"conditions": [{"key": "1.2.3", "operator": "LessThanOrEquals", "value": "2.0.0"}]}}}),
        json!({"validate": {"foreach": [
            {"list": "request.object.spec.containers[]", "elementScope": true,
             "context": [{"name": "reg", "variable": {"jmesPath": "split(element.image, '/') | [0]", "default": "none"}}],
             "preconditions": {"all": [{"key": "{{ element.name }}", "operator": "Equals", "value": "a*"}]},
             "pattern": {"image": "{{ reg }}*"}},
            {"list": "request.object.spec.[containers, initContainers][] | [?@]",
             "deny": {"conditions": {"any": [{"key": "{{ elementIndex }}", "operator": "GreaterThan", "value": 3}]}}},
        ]}}),
        json!({"validate": {"podSecurity": {"level": "restricted", "version": "latest", "exclude": [
            {"controlName": "Capabilities", "images": ["nginx*"]},
            {"controlName": "Seccomp", "restrictedField": "spec.securityContext.seccompProfile.type", "values": ["U*"]}]}}}),
        json!({"validate": {"message": "{{ request.object.spec | to_string(@) }} {{ images.containers.*.name }}", "deny": {"conditions": {"any": [
            {"key": "{{ regex_match('^(a+)+$', request.name) && pattern_match('a*b?', request.name) }}", "operator": "Equals", "value": true},
            {"key": "{{ multiply('2Gi', `3`) }}", "operator": "LessThan", "value": "{{ add('1h', '30m') }}"},
            {"key": "{{ parse_yaml(request.object.metadata.annotations.y || 'a: 1').a }}", "operator": "Equals", "value": 1},
            {"key": "{{ label_match({a: 'b'}, request.object.metadata.labels || `{}`) }}", "operator": "Equals", "value": true},
            {"key": "{{ lookup(request.object, 'spec') | items(@, 'k', 'v') | [0].k }}", "operator": "AnyNotIn", "value": ["a"]},
            {"key": "{{ truncate(to_upper(request.name), `3`) }}", "operator": "Equals", "value": "?*"},
        ]}}}}),
    ]
}

fn mutations() -> Vec<Value> {
    vec![
        json!({"mutate": {"patchStrategicMerge": {
            "metadata": {"labels": {"+(app)": "{{ request.object.metadata.name }}", "x": null}},
            "spec": {"(hostNetwork)": "false", "containers": [{"(image)": "*:*", "imagePullPolicy": "Always",
                "+(env)": [{"name": "A", "value": "{{ request.namespace }}"}]}],
                "volumes": [{"name": "v", "$patch": "delete"}]},
        }}}),
        json!({"mutate": {"patchesJson6902":
            "- op: add\n  path: /metadata/labels/x\n  value: \"{{ request.name }}\"\n- op: remove\n  path: /spec/x\n- op: replace\n  path: /spec/containers/0/image\n  value: {a: [1, 2]}\n- op: move\n  from: /spec/containers\n  path: /spec/initContainers\n- op: test\n  path: /metadata/name\n  value: a\n- op: copy\n  from: /spec\n  path: /metadata/annotations/y\n"}}),
        json!({"mutate": {"foreach": [
            {"list": "request.object.spec.containers", "order": "Descending",
             "preconditions": {"any": [{"key": "{{ element.image }}", "operator": "Equals", "value": "?*"}]},
             "patchesJson6902": "- op: add\n  path: /spec/containers/{{ elementIndex }}/env\n  value: []\n"},
            {"list": "request.object.spec.containers", "foreach": [
                {"list": "element.env || `[]`", "patchStrategicMerge": {"spec": {"containers": [
                    {"(name)": "{{ element0.name }}", "env": [{"name": "{{ element1.name }}", "value": "x"}]}]}}}]},
        ]}}),
    ]
}

fn contexts() -> Vec<Value> {
    let deny = json!({"deny": {"conditions": {"any": [
        {"key": "{{ request.object.spec.containers[].image }}", "operator": "AnyIn", "value": "{{ a }}"},
        {"key": "{{ b }}", "operator": "Equals", "value": "{{ a[?spec.host == '{{ request.name }}'] | length(@) }}"},
    ]}}});
    vec![
        json!({"context": [
            {"name": "a", "apiCall": {"urlPath": "/api/v1/namespaces/{{ request.namespace }}/pods", "jmesPath": "items[?spec.x > `1`]", "default": []}},
            {"name": "b", "configMap": {"name": "{{ request.object.metadata.name }}", "namespace": "default"}},
        ], "validate": deny}),
        json!({"context": [
            {"name": "a", "globalReference": {"name": "g", "jmesPath": "items[].spec.host"}},
            {"name": "b", "variable": {"value": {"x": "{{ request.name }}"}, "jmesPath": "x | to_string(@)"}},
            {"name": "c", "variable": {"jmesPath": "a[?@ == '{{ b }}']", "default": "{{ request.uid }}"}},
        ], "validate": deny}),
        json!({"context": [
            {"name": "a", "apiCall": {"method": "POST", "urlPath": "/apis/x/v1/y", "data": [{"key": "k", "value": "{{ request.object }}"}]}},
            {"name": "b", "imageRegistry": {"reference": "{{ request.object.spec.containers[0].image }}", "jmesPath": "configData.config.User"}},
        ], "validate": deny}),
    ]
}

pub(crate) fn objects() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "default", "labels": {"app": "web", "a": "b"}, "annotations": {"y": "a: [1"}},
            "spec": {"hostNetwork": false, "x": "3h", "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [
                    {"name": "a1", "image": "ghcr.io/org/app:1.2@sha256:00", "resources": {"limits": {"memory": "1Gi", "cpu": "250m"}},
                     "env": [{"name": "A", "value": "1"}], "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}},
                    {"name": "b", "image": "nginx"}]}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "z", "namespace": "default"}, "spec": {"containers": []}}),
        json!({"apiVersion": "v1", "kind": "Pod"}),
    ]
}

pub(crate) fn exception() -> Value {
    json!({
        "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "default"},
        "spec": {
            "exceptions": [{"policyName": "p", "ruleNames": ["r", "autogen-*"]}],
            "match": {"any": [{"resources": {"kinds": ["Pod"], "names": ["a*"]}}]},
        },
    })
}
