//! Macros over keys and values, and what else goes through lists.

use serde_json::json;

use super::{all_errors, all_true};
use crate::{Names, Program};

#[test]
fn two_variables_are_place_and_element_or_key_and_value() {
    all_true(
        &json!({"l": ["a", "b"], "m": {"x": 1, "y": 2}, "z": [0, 1]}),
        &[
            "object.l.all(i, v, i < 2 && v in ['a', 'b'])",
            "object.l.exists(i, v, i == 1 && v == 'b') && !object.l.exists(i, v, i == 1 && v == 'a')",
            "object.m.all(k, v, k == 'x' && v == 1 || k == 'y' && v == 2)",
            "object.m.existsOne(k, v, v > 1) && object.m.exists_one(k, v, k == 'x')",
            "[].all(i, v, false) && ![].exists(i, v, true) && {}.all(k, v, false)",
            // An element that decides the result wins over an error of a different element.
            "object.z.exists(i, v, 1 / v == 1) && !object.z.all(i, v, 1 / v == 2)",
            "object.l.transformList(i, v, v + string(i)) == ['a0', 'b1']",
            "object.l.transformList(i, v, i > 0, v) == ['b']",
            "object.m.transformList(k, v, k) == ['x', 'y']",
            "object.m.transformMap(k, v, v * 2) == {'x': 2, 'y': 4}",
            "object.m.transformMap(k, v, v > 1, k) == {'y': 'y'}",
            "object.l.transformMap(i, v, v) == {0: 'a', 1: 'b'}",
            "object.l.transformMapEntry(i, v, {v: i}) == {'a': 0, 'b': 1}",
            "object.m.transformMapEntry(k, v, v > 1, {v: k}) == {2: 'y'}",
            "object.m.transformMapEntry(k, v, {}) == {}",
            // Each variable means the innermost of its name.
            "object.l.all(i, v, object.m.exists(k, v, v == i + 1) && v != 'x')",
            "object.l.map(v, object.m.transformList(k, w, v + k)) == [['ax', 'ay'], ['bx', 'by']]",
        ],
    );
    all_errors(
        &json!({"z": [0, 1], "t": "text"}),
        &[
            ("object.z.existsOne(i, v, 1 / v == 1)", "division by zero"),
            ("object.z.all(i, v, 1 / v == 1)", "division by zero"),
            ("object.t.all(i, v, true)", "no such overload: all(string)"),
            (
                "object.t.transformList(i, v, v) == []",
                "no such overload: transformList(string)",
            ),
            (
                "[1, 1].transformMapEntry(i, v, {v: i}) == {}",
                "transformMapEntry() makes a key twice",
            ),
            (
                "[1].transformMapEntry(i, v, dyn(v)) == {}",
                "no such overload: transformMapEntry(int)",
            ),
        ],
    );
    for (source, part) in [
        ("[1].all(i, i, true)", "the variables of all() are both `i`"),
        (
            "[1].all(i, v.x, true)",
            "the variables of all() are simple names",
        ),
        ("[1].all(i, v, w == 1)", "there is no `w`"),
        ("[1].all(i, v, 1)", "no matching overload"),
        (
            "[1].all(i, v, true, true)",
            "the macro all() does not take 4 arguments so",
        ),
        ("1.all(i, v, true)", "a int has no elements to go through"),
        (
            "[1].transformMapEntry(i, v, 1) == {}",
            "no matching overload",
        ),
        (
            "{'a': 1}.sortBy(x, x) == []",
            "a map has no elements to go through",
        ),
    ] {
        let error = Program::compile(source, &Names::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{source}: {error}");
    }
}

#[test]
fn list_functions_sort_and_take_ends() {
    all_true(
        &json!({"c": [{"n": "b", "at": 1}, {"n": "a", "at": 2}, {"n": "b", "at": 3}]}),
        &[
            "object.c.sortBy(e, e.n).map(e, e.at) == [2, 1, 3]",
            "[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && [].sortBy(x, x) == []",
            "[1, 2].first().value() == 1 && [1, 2].last() == optional.of(2)",
            "!([].first().hasValue()) && [].last() == optional.none()",
            "lists.range(3) == [0, 1, 2] && lists.range(0) == []",
            "optional.unwrap([optional.of(1), optional.none()]) == [1]",
            "[optional.none(), optional.of('a')].unwrapOpt() == ['a']",
        ],
    );
    all_errors(
        &json!({}),
        &[
            (
                "[1, 'a'].sortBy(x, x) == []",
                "no such overload: sortBy(string, int)",
            ),
            ("[1].unwrapOpt() == []", "no such overload: unwrapOpt(list)"),
            (
                "lists.range(9223372036854775807) == []",
                "the expression takes more than 2000000 steps on this object",
            ),
        ],
    );
}

#[test]
fn named_formats_accept_well_formed_names_and_refuse_others() {
    let long = "a".repeat(64);
    let fit = [
        ("dns1123Label", "a-1"),
        ("dns1123LabelPrefix", "ab-"),
        ("dns1123Subdomain", "a.b-c.d"),
        ("dns1123SubdomainPrefix", "a.b-"),
        ("dns1035Label", "a1"),
        ("dns1035LabelPrefix", "ab-"),
        ("qualifiedName", "a.b/C_d"),
        ("qualifiedName", "C.d"),
        ("labelValue", ""),
        ("labelValue", "A_b.c"),
        ("uri", "http://a/b"),
        ("uuid", "123E4567-e89b-12d3-a456-426614174000"),
        ("uuid", "123e4567e89b12d3a456426614174000"),
        ("uuid", "123e4567-e89b12d3-a456426614174000"),
        ("byte", "YQ=="),
        ("date", "2024-02-29"),
        ("datetime", "2024-02-29T23:59:59.5+01:00"),
        ("datetime", "2024-02-29t00:00:00z"),
    ];
    let unfit = [
        ("dns1123Label", "A"),
        ("dns1123Label", "-a"),
        ("dns1123Label", ""),
        ("dns1123Label", &long),
        ("dns1123Subdomain", "a..b"),
        ("dns1035Label", "1a"),
        ("qualifiedName", "/a"),
        ("qualifiedName", "a/b/c"),
        ("qualifiedName", "a/"),
        ("labelValue", "a b"),
        ("labelValue", &long),
        ("uri", "x"),
        ("uuid", "123e4567"),
        ("uuid", "123e-4567e89b12d3a456426614174000"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000-"),
        ("uuid", "123e4567--e89b12d3a456426614174000"),
        ("byte", "YQ="),
        ("byte", ""),
        ("date", "2023-02-29"),
        ("date", "24-02-0229"),
        ("datetime", "2024-02-29"),
        ("datetime", "2024-02-29T24:00:00Z"),
        ("datetime", "2024-02-29T00:00:00"),
    ];
    for (all, is_fit) in [(&fit[..], true), (&unfit[..], false)] {
        for (format, text) in all {
            let object = json!({"t": text, "f": format, "fit": is_fit});
            let direct = format!("!format.{format}().validate(object.t).hasValue() == object.fit");
            let named =
                "!format.named(object.f).value().validate(object.t).hasValue() == object.fit";
            all_true(&object, &[&direct, named]);
        }
    }
    all_true(
        &json!({}),
        &[
            "!format.named('none').hasValue()",
            "format.dns1123Label() == format.named('dns1123Label').value()",
            "format.dns1123Label().validate('A').value()[0].contains('lower case')",
        ],
    );
    all_errors(
        &json!({}),
        &[(
            "dyn('a').validate('b').hasValue()",
            "no such overload: validate(string, string)",
        )],
    );
}
