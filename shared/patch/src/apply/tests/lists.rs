//! Lists that are merged: by keys and as sets, and the order of what comes out.

use super::*;

/// Elements by their names, written as one letter each, with the number of times that each was merged.
fn order(object: &str, patch: &str) -> String {
    let list = |names: &str, field: &str| -> Value {
        let element = |name: char| json!({"name": name.to_string(), field: 1});
        names.chars().map(element).collect()
    };
    let (object, patch) = (list(object, "value"), list(patch, "number"));
    let schema = ObjectSchema::from_crd(&json!({"type": "object", "properties": {"list": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"},
            "number": {"type": "integer"}}},
    }}}))
    .unwrap();
    let merged = apply(
        &json!({"list": object}),
        &json!({"list": patch}),
        &schema,
        Atomics::Refused,
    );
    let merged = merged.unwrap();
    let names = merged["list"].as_array().unwrap().iter().map(|element| {
        let name = element["name"].as_str().unwrap();
        let of_both = element.get("value").is_some() && element.get("number").is_some();
        if of_both {
            name.to_uppercase()
        } else {
            name.to_owned()
        }
    });
    names.collect()
}

#[test]
fn a_merged_list_keeps_the_objects_order_where_the_patchs_order_allows_it() {
    let table = [
        // object, patch, merged; what both have is written large.
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("ab", "a", "Ab"),
        ("ab", "b", "aB"),
        ("ab", "ab", "AB"),
        ("ab", "ba", "BA"),
        ("abc", "ca", "bCA"),
        ("abc", "cb", "aCB"),
        ("axb", "ab", "AxB"),
        ("ab", "c", "abc"),
        ("ab", "ca", "cAb"),
        ("ab", "ac", "Abc"),
        ("ab", "cb", "acB"),
        ("ab", "acb", "AcB"),
        ("ab", "bca", "BcA"),
        ("axc", "ca", "xCA"),
        ("abcd", "dxb", "acDxB"),
        ("abcde", "xeyaz", "bcdxEyAz"),
    ];
    for (object, patch, expected) in table {
        assert_eq!(order(object, patch), expected, "{object} under {patch}");
    }
}

#[test]
fn elements_that_an_object_has_twice_stay_unless_the_patch_has_them() {
    let table = [
        ("aab", "b", "aaB"),
        ("aab", "c", "aabc"),
        // A patch is merged into neither, and is there once.
        ("aab", "a", "ab"),
        ("abab", "ac", "abcb"),
        ("aax", "ac", "acx"),
        ("axa", "ab", "axb"),
    ];
    for (object, patch, expected) in table {
        assert_eq!(order(object, patch), expected, "{object} under {patch}");
    }
}

#[test]
fn keys_have_defaults() {
    let ports = |ports: Value| json!({"containers": [{"name": "app", "ports": ports}]});
    let table = [
        (
            json!([{"containerPort": 80, "protocol": "TCP"}]),
            json!([{"containerPort": 80, "name": "http"}]),
            json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}]),
        ),
        (
            json!([{"containerPort": 80}]),
            json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}]),
            json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}]),
        ),
        (
            json!([{"containerPort": 80, "protocol": "UDP"}]),
            json!([{"containerPort": 80, "name": "http"}]),
            json!([{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80, "name": "http"}]),
        ),
        (
            json!([{"containerPort": 80}]),
            json!([{"containerPort": 80.0, "name": "http"}]),
            json!([{"containerPort": 80.0, "name": "http"}]),
        ),
    ];
    for (object, patch, expected) in table {
        let merged = of_pod(&ports(object.clone()), &ports(patch.clone()));
        assert_eq!(merged, Ok(ports(expected)), "{object} under {patch}");
    }
}

#[test]
fn an_element_needs_one_of_its_keys() {
    let keyed = |keyed: Value| json!({"keyed": keyed});
    // The other key has a default.
    let merged = of_every_sort(
        &keyed(json!([{"name": "a"}, {"value": 1}])),
        &keyed(json!([{"value": 2}])),
        Atomics::Refused,
    );
    assert_eq!(merged, Ok(keyed(json!([{"name": "a"}, {"value": 2}]))));
    let refused = of_pod(&json!({}), &json!({"hostAliases": [{"hostnames": ["a"]}]}));
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn containers_are_merged_by_their_names() {
    let spec = json!({"containers": [
        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]},
        {"name": "b", "image": "b:1"},
    ]});
    let patch = json!({"containers": [
        {"name": "b", "imagePullPolicy": "Always"},
        {"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]},
    ]});
    let expected = json!({"containers": [
        {"name": "b", "image": "b:1", "imagePullPolicy": "Always"},
        {"name": "a", "image": "a:1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}]},
    ]});
    assert_eq!(of_pod(&spec, &patch), Ok(expected));
}

#[test]
fn sets_have_each_value_once() {
    let set = |set: Value| json!({"set": set});
    let table = [
        (json!(["a", "b"]), json!(["c"]), json!(["a", "b", "c"])),
        (json!(["a", "b"]), json!(["b", "a"]), json!(["b", "a"])),
        (json!(["a", "b"]), json!(["c", "b"]), json!(["a", "c", "b"])),
        (json!(["a", "a"]), json!(["b"]), json!(["a", "a", "b"])),
        (json!(["a", "a"]), json!(["a"]), json!(["a"])),
        (json!([]), json!([]), json!([])),
        (json!(null), json!(["a"]), json!(["a"])),
    ];
    for (object, patch, expected) in table {
        let merged = of_every_sort(&set(object.clone()), &set(patch.clone()), Atomics::Refused);
        assert_eq!(merged, Ok(set(expected)), "{object} under {patch}");
    }
    let numbers = |numbers: Value| json!({"numbers": numbers});
    let (object, patch) = (numbers(json!([1, 2.5, 0])), numbers(json!([1.0, -0.0])));
    let merged = of_every_sort(&object, &patch, Atomics::Refused);
    assert_eq!(merged, Ok(numbers(json!([1.0, 2.5, -0.0]))));
    // Both would be the same number with a fraction.
    let (one, other) = (1_i64 << 53, (1_i64 << 53) + 1);
    let (object, patch) = (numbers(json!([one])), numbers(json!([other])));
    let merged = of_every_sort(&object, &patch, Atomics::Refused);
    assert_eq!(merged, Ok(numbers(json!([one, other]))));
}
