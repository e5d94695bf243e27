use serde_json::json;

use super::*;
use crate::{AdmissionRequest, compile, ir::template::Prepared};

/// Returns the request reduced to `parts`.
pub(crate) fn cut(parts: &RequestParts, request: &AdmissionRequest) -> AdmissionRequest {
    let value = request.value();
    let fields = value.as_object().unwrap().iter();
    let cut = fields.filter_map(|(name, value)| {
        let value = parts.field(name, &value.to_string())?;
        Some((name.clone(), value.unwrap()))
    });
    let cut = AdmissionRequest::new(Value::Object(cut.collect())).unwrap();
    cut.with_resource_kind(request.group(), request.version(), request.kind())
}

/// Returns the parts of `object` that an expression reads.
fn left(expression: &str, object: &Value) -> Value {
    let mut parts = RequestParts(Tree::NONE);
    let prepared = Prepared::parse(expression).unwrap();
    expression::add(prepared.expression().ast(), &mut parts);
    match parts.field("object", &object.to_string()) {
        Some(value) => value.unwrap(),
        None => json!("nothing"),
    }
}

#[test]
fn an_expression_reads_the_paths_that_it_names() {
    let object = json!({"a": {"b": [{"c": 1, "d": 2}], "e": 3}, "f": {"g": 4}, "h": null});
    for (expression, expected) in [
        ("request.object", object.clone()),
        ("request", object.clone()),
        ("@", object.clone()),
        ("request.operation", json!("nothing")),
        ("hosts", json!("nothing")),
        ("request.object.f.g", json!({"f": {"g": 4}})),
        ("request.oldObject.f.g", json!({"f": {"g": 4}})),
        (
            "request.object.a.b[].c",
            json!({"a": {"b": [{"c": 1, "d": 2}]}}),
        ),
        (
            "request.object.a.b[0].c",
            json!({"a": {"b": [{"c": 1, "d": 2}]}}),
        ),
        ("request.object.f | g", json!({"f": {"g": 4}})),
        ("request.object.*.g", object.clone()),
        (
            "request.object.a || request.object.h",
            json!({"a": object["a"], "h": null}),
        ),
        (
            "length(request.object.a.e) == request.object.f.g",
            json!({"a": {"e": 3}, "f": {"g": 4}}),
        ),
        // Whether something is there matters, and not what.
        ("request.object.f | 'x'", json!({"f": {}})),
        ("request.object.f.{x: g}", json!({"f": {"g": 4}})),
        ("request.object.f.['x']", json!({"f": {}})),
        ("hosts[?a == $request].request.object", json!("nothing")),
        ("map(&request.object.f, hosts)", json!("nothing")),
        ("request.[object.f][0]", json!({"f": {"g": 4}})),
    ] {
        let expression = expression.replace("$request", "'x'");
        assert_eq!(left(&expression, &object), expected, "{expression}");
    }
}

/// Whether a value is there may change too.
#[test]
fn the_path_of_a_value_that_need_only_be_there_is_one_of_the_paths() {
    for (expression, expected) in [
        ("request.object.f | 'x'", "f"),
        ("request.object.a.b || request.oldObject.h", "a.b h"),
        ("request.object", ""),
    ] {
        let mut parts = RequestParts(Tree::NONE);
        let prepared = Prepared::parse(expression).unwrap();
        expression::add(prepared.expression().ast(), &mut parts);
        let Tree::Fields(fields) = &parts.0 else {
            panic!("{expression}");
        };
        let mut paths = Vec::new();
        fields[OBJECT].ends(&mut ObjectPath::new(), &mut paths);
        let paths: Vec<String> = paths.iter().map(|path| path.join(".")).collect();
        assert_eq!(paths.join(" "), expected, "{expression}");
    }
}

/// The conditions of an exception may be about anything.
#[test]
fn an_exception_reads_the_users_that_it_names_and_all_that_it_has_conditions_about() {
    let parts = |filter: Value, conditions: Value| {
        let manifest = json!({
            "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
            "metadata": {"name": "e", "namespace": "n"},
            "spec": {
                "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
                "match": {"any": [filter]}, "conditions": conditions,
            },
        });
        PolicyException::compile(&manifest, crate::Driver::ALL)
            .unwrap()
            .parts()
    };
    let pods = json!({"resources": {"kinds": ["Pod"]}});
    assert_eq!(parts(pods.clone(), Value::Null), RequestParts::default());
    let user = json!({"subjects": [{"kind": "Group", "name": "dev"}]});
    let of_user = parts(user, Value::Null);
    let groups = of_user.field("userInfo", "{\"groups\": [\"dev\"], \"uid\": \"u\"}");
    assert_eq!(groups.unwrap().unwrap(), json!({"groups": ["dev"]}));
    let condition = json!({"key": "{{ request.name }}", "operator": "Equals", "value": "x"});
    assert_eq!(parts(pods, json!({"all": [condition]})), RequestParts::ALL);
}

#[test]
fn the_value_after_64_steps_is_read_whole() {
    let within =
        |steps: usize, inner: Value| (0..steps).fold(inner, |inner, _| json!({"a": inner}));
    let object = within(63, json!({"b": {"c": 1, "d": 2}, "e": 3}));
    let path = format!("request.object{}.b.c", ".a".repeat(63));
    // The object itself is the first step.
    assert_eq!(left(&path, &object), object);
    let object = within(61, json!({"b": {"c": 1, "d": 2}, "e": 3}));
    let path = format!("request.object{}.b.c", ".a".repeat(61));
    let expected = within(61, json!({"b": {"c": 1}}));
    assert_eq!(left(&path, &object), expected);
}

#[test]
fn images_are_taken_from_the_spec() {
    let object = json!({"kind": "Pod", "spec": {"containers": []}, "status": 1});
    let expected = json!({"kind": "Pod", "spec": {"containers": []}});
    assert_eq!(left("images.containers", &object), expected);
}

/// A policy that reads `read` in every place of a rule that may hold an expression.
#[test]
fn every_place_of_a_rule_is_looked_at() {
    let read = |name: &str| format!("{{{{ request.object.{name} }}}}");
    let condition = |name: &str| {
        json!([{"key": read(&format!("{name}Key")), "operator": "Equals",
                "value": [read(&format!("{name}Value"))]}])
    };
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Service"]}}]},
            "context": [
                {"name": "a", "globalReference": {"name": read("entry"),
                    "jmesPath": format!("items[?x == '{}']", read("parameter"))}},
                {"name": "b", "apiCall": {"urlPath": format!("/api/v1/pods/{}?labelSelector={}",
                    read("segment"), read("selector")), "default": {"x": read("default")}}},
                {"name": "c", "apiCall": {"method": "POST", "data": [{"key": "x", "value": read("data")}],
                    "service": {"url": format!("https://x/{}", read("url"))}}},
                {"name": "d", "configMap": {"name": read("mapName"), "namespace": read("mapNamespace")}},
                {"name": "e", "variable": {"value": read("value"), "jmesPath": "x"}},
                {"name": "f", "variable": {"jmesPath": "request.object.query",
                    "default": read("variableDefault")}},
            ],
            "preconditions": {"any": condition("any"), "all": condition("all")},
            "validate": {
                "message": read("message"),
                "foreach": [{
                    "list": "request.object.list",
                    "context": [{"name": "g", "variable": {"value": read("inner")}}],
                    "preconditions": {"all": condition("each")},
                    "deny": {"conditions": {"any": condition("deny")}},
                }],
            },
        }]},
    });
    let policy = compile(&manifest).unwrap();
    let Tree::Fields(fields) = RequestParts::of(&policy, Phase::Validation).0 else {
        panic!("all of it");
    };
    let Some(Tree::Fields(object)) = fields.get(OBJECT) else {
        panic!("all of the object");
    };
    let mut text = manifest.to_string();
    let mut names = 0;
    while let Some((_, rest)) = text.split_once("request.object.") {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
        let name = &rest[..end];
        assert!(object.contains_key(name), "{name} is forgotten");
        names += 1;
        text = rest.to_owned();
    }
    assert!(names > 20, "{names}");
    assert!(!object.contains_key("other"));
}

#[test]
fn a_pattern_and_a_pasted_expression_read_more_than_they_name() {
    let rule = |rule: Value| {
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [rule]},
        });
        RequestParts::of(&compile(&manifest).unwrap(), Phase::Validation)
    };
    let matching = json!({"any": [{"resources": {"kinds": ["Service"]}}]});
    let of_pattern = rule(json!({"name": "r", "match": matching,
        "validate": {"pattern": {"spec": {"x": "y"}}}}));
    let object = json!({"spec": {"z": 1}, "status": 2});
    let read = of_pattern.field(OLD_OBJECT, &object.to_string());
    assert_eq!(read.unwrap().unwrap(), object);
    let pasted = rule(
        json!({"name": "r", "match": matching, "validate": {"deny": {"conditions": {
        "all": [{"key": "{{ request.object.\"{{ request.name }}\" }}", "operator": "Equals",
                 "value": "x"}]}}}}),
    );
    assert_eq!(pasted, RequestParts::ALL);
}

#[test]
fn malformed_json_is_an_error_and_unread_fields_are_skipped() {
    let mut parts = RequestParts::default();
    parts.add(&["object", "a"]);
    let read = |text: &str| parts.field("object", text).unwrap();
    assert!(read("{\"a\": 1, \"b\": }").is_err());
    assert!(read("{\"a\": 1} x").is_err());
    let same_key = read("{\"a\": 1, \"b\": \"\\ud800\", \"a\": [2, {\"c\": 1.5}]}");
    assert_eq!(same_key.unwrap(), json!({"a": [2, {"c": 1.5}]}));
    let escaped = read("{\"\\u0061\": 1, \"\\u0062\": 2}");
    assert_eq!(escaped.unwrap(), json!({"a": 1}));
    for scalar in [
        "null",
        "true",
        "-1",
        "18446744073709551615",
        "1.5",
        "\"x\\n\"",
        "[[1]]",
    ] {
        let plain: Value = serde_json::from_str(scalar).unwrap();
        assert_eq!(read(scalar).unwrap(), plain);
    }
}
