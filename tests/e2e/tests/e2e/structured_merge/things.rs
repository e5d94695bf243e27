//! Random objects of a kind that a CustomResourceDefinition declares, with a field of every sort.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    dice::{Dice, Part},
    workloads::metadata,
};

/// The group of the kind.
pub(super) const GROUP: &str = "merge.example.com";

/// The definition.
pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema()}}],
        },
    })
}

/// Its schema.
pub(super) fn schema() -> Value {
    let text = json!({"type": "string"});
    let pair = json!({"type": "object", "properties": {"a": text, "b": text}});
    let mut atomic = pair.clone();
    atomic["x-kubernetes-map-type"] = "atomic".into();
    let mut granular = pair.clone();
    granular["x-kubernetes-map-type"] = "granular".into();
    let element = json!({"type": "object", "required": ["name"], "properties": {
        "name": text, "protocol": {"type": "string", "default": "TCP"}, "value": {"type": "integer"},
        "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "pair": pair, "rules": {"type": "array", "items": text},
    }});
    let mut inner = element.clone();
    inner["properties"]["value"] = json!({"x-kubernetes-int-or-string": true});
    let keyed = |element: &Value, keys: &[&str]| json!({"type": "array", "items": element, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
    let mut outer = element.clone();
    outer["properties"]["inner"] = keyed(&inner, &["name"]);
    let set =
        |of: &str| json!({"type": "array", "items": {"type": of}, "x-kubernetes-list-type": "set"});
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": text, "number": {"type": "number"}, "whole": {"type": "integer"}, "flag": {"type": "boolean"},
        "nullable": {"type": "string", "nullable": true},
        "dated": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": true},
        "labels": {"type": "object", "additionalProperties": text},
        "pairs": {"type": "object", "additionalProperties": pair},
        "atomics": {"type": "object", "additionalProperties": atomic},
        "lists": {"type": "object", "additionalProperties": set("string")},
        "pair": pair, "atomicPair": atomic, "granularPair": granular,
        "keyed": keyed(&outer, &["name", "protocol"]),
        "one": keyed(&inner, &["name"]),
        "set": set("string"), "numbers": set("number"),
        "atomicList": {"type": "array", "items": text},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "properties": {"known": text, "inner": pair, "set": set("string")},
            "x-kubernetes-preserve-unknown-fields": true},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
    }}}})
}

pub(super) fn thing(dice: &mut Dice, part: Part) -> Value {
    let mut spec = of_schema(dice, part, &schema()["properties"]["spec"]);
    if part == Part::Patch {
        // The API server refuses patches of atomic fields, so these fields are rare.
        let is_atomic = |name: &&str| *name != "any" || spec[name].is_array();
        let atomic = ["atomicList", "atomicPair", "any"]
            .into_iter()
            .filter(is_atomic);
        let taken: Vec<&str> = atomic.filter(|_| !dice.chance(4)).collect();
        take(&mut spec, &taken);
    }
    json!({"metadata": metadata(dice, part), "spec": spec})
}

fn take(object: &mut Value, names: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|name, _| !names.contains(&name.as_str()));
    }
}

fn of_schema(dice: &mut Dice, part: Part, schema: &Value) -> Value {
    if schema["x-kubernetes-embedded-resource"] == true {
        return embedded(dice, part);
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return dice.pick(&[json!(80), json!("http")]);
    }
    match schema["type"].as_str() {
        None => match dice.free(part, 3) {
            // It is not declared as nullable.
            Value::Null => json!({}),
            free => free,
        },
        Some("string") if schema["format"] == "date-time" => "2026-01-02T03:04:05Z".into(),
        Some("string") => {
            match part == Part::Whole && schema["nullable"] == true && dice.chance(50) {
                true => Value::Null,
                false => dice.pick(&["a", "b", "c", "d"]).into(),
            }
        }
        Some("integer") => dice.below(4).into(),
        Some("number") => dice.pick(&[json!(0), json!(1), json!(1.5), json!(2.0)]),
        Some("boolean") => dice.chance(50).into(),
        Some("array") => list(dice, part, schema),
        _ => object(dice, part, schema),
    }
}

fn object(dice: &mut Dice, part: Part, schema: &Value) -> Value {
    let mut made = match schema["x-kubernetes-preserve-unknown-fields"] == true {
        true => dice.free_object(part, 3),
        false => json!({}),
    };
    if let Some(element) = schema.get("additionalProperties") {
        for name in dice.some(&["x", "y", "z"]) {
            made[name] = of_schema(dice, part, element);
        }
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let percent = match name.as_str() {
            "name" if part == Part::Whole => 100,
            "name" => 97,
            // Seldom in a patch, since they are atomic in an element.
            "rules" if part == Part::Patch => 1,
            _ => 40,
        };
        dice.maybe(&mut made, name, percent, |dice| {
            of_schema(dice, part, schema)
        });
    }
    made
}

fn list(dice: &mut Dice, part: Part, schema: &Value) -> Value {
    let count = dice.below(5);
    let mut made: Vec<Value> = (0..count)
        .map(|_| of_schema(dice, part, &schema["items"]))
        .collect();
    let is_set = schema["x-kubernetes-list-type"] == "set";
    let keys = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut seen = BTreeSet::new();
    if (is_set || !keys.is_empty()) && (part == Part::Whole || !dice.chance(4)) {
        made.retain(|element| {
            let key = |key: &Value| {
                let name = key.as_str().unwrap_or_default();
                let default = || schema["items"]["properties"][name]["default"].clone();
                element
                    .get(name)
                    .cloned()
                    .unwrap_or_else(default)
                    .to_string()
            };
            let keys: Vec<String> = keys.iter().map(key).collect();
            seen.insert(match is_set {
                true => vec![
                    element
                        .as_f64()
                        .map_or(element.to_string(), |number| number.to_string()),
                ],
                false => keys,
            })
        });
    }
    made.into()
}

fn embedded(dice: &mut Dice, part: Part) -> Value {
    let mut made = json!({});
    let percent = if part == Part::Whole { 100 } else { 30 };
    dice.maybe(&mut made, "apiVersion", percent, |_| "v1".into());
    dice.maybe(&mut made, "kind", percent, |dice| {
        dice.pick(&["A", "B"]).into()
    });
    dice.maybe(&mut made, "spec", 60, |dice| dice.free_object(part, 2));
    let mut of = metadata(dice, Part::Patch);
    take(&mut of, &["ownerReferences"]);
    if part == Part::Whole {
        of["name"] = "it".into();
    }
    dice.maybe(&mut made, "metadata", percent, |_| of);
    made
}
