use super::*;

fn found(text: &str, document: Document<'_>) -> Option<Vec<(String, bool, String)>> {
    let expression = Expression::parse(text).unwrap();
    let lookups = narrow(&expression, document)?;
    let shown = |lookup: &Lookup| {
        let operand = match &lookup.operand {
            Operand::Parameter(name) => format!("${name}"),
            Operand::Literal(value) => value.to_string(),
        };
        (lookup.key.to_string(), lookup.any_element, operand)
    };
    Some(lookups.iter().map(shown).collect())
}

const LIST: Document<'_> = Document::List {
    plural: Some("ingresses"),
};

#[test]
fn what_objects_have_to_agree_in() {
    let name = ("metadata.name", false, "$n");
    for (text, wanted) in [
        ("items[?metadata.name == $n]", vec![name]),
        ("items[?$n == metadata.name]", vec![name]),
        ("items[? metadata.name == $n ] | length(@)", vec![name]),
        (
            "items[?metadata.name == $n] || `[]` | length(@)",
            vec![name],
        ),
        ("ingresses | items[?metadata.name == $n].x", vec![name]),
        ("ingresses.items[?metadata.name == $n].x", vec![name]),
        ("items[] | [?metadata.name == $n]", vec![name]),
        ("items[*] | [?metadata.name == $n] | [0].data", vec![name]),
        ("length(items[?metadata.name == $n])", vec![name]),
        (
            "{n: length(items[?metadata.name == $n]), k: kind}",
            vec![name],
        ),
        ("items[?metadata.name == $n && spec.x != $y]", vec![name]),
        ("items[?spec.x != $y && metadata.name == $n]", vec![name]),
        (
            "items[?metadata.name == $n && to_number(x) > `3`]",
            vec![name],
        ),
        (
            "items[?metadata.name == $n || metadata.uid == 'u']",
            vec![name, ("metadata.uid", false, "\"u\"")],
        ),
        (
            "[items[?metadata.name == $n], items[?a == `1`]]",
            vec![name, ("a", false, "1")],
        ),
        (
            "items[?contains(spec.rules[].host, $h)]",
            vec![("spec.rules[].host", true, "$h")],
        ),
        (
            "items[?to_string(spec.x) == $n]",
            vec![("to_string(spec.x)", false, "$n")],
        ),
        ("kind", vec![]),
        ("other.items[?a > `1`]", vec![]),
        ("$n", vec![]),
    ] {
        let wanted: Vec<_> = wanted
            .into_iter()
            .map(|(key, any, operand)| (key.to_owned(), any, operand.to_owned()))
            .collect();
        assert_eq!(found(text, LIST), Some(wanted), "{text}");
    }
}

#[test]
fn what_needs_all_objects() {
    for text in [
        "@",
        "items",
        "length(items)",
        "items[].metadata.name",
        "items[0]",
        "items[:2]",
        "items[?a > $n]",
        "items[?a != $n]",
        "items[?a]",
        "items[?a == b]",
        "items[?$a == $b]",
        "items[?'a' == `1`]",
        "items[?a == $n] && items",
        "[items[?a == $n], length(items)]",
        "items[?a == $n || b > `1`]",
        // The function may fail on an object that does not agree.
        "items[?to_number(x) > `3` && metadata.name == $n]",
        "items[?starts_with(a, 'x') && b == $n]",
        "items[?time_now() == $n]",
        "items[?to_string($m) == $n]",
        "*",
        "*[?a == $n]",
        "ingresses",
        "ingresses.*",
        "items || `[]`",
        "!items",
        "items == $n",
        "items | sort_by(@, &a)",
        "[@]",
        "{a: ingresses}",
        "to_string(@)",
    ] {
        assert_eq!(found(text, LIST), None, "{text}");
    }
}

#[test]
fn an_array_is_the_list_itself() {
    let name = ("metadata.name".to_owned(), false, "$n".to_owned());
    for text in ["[?metadata.name == $n]", "@[?metadata.name == $n] | [0]"] {
        assert_eq!(
            found(text, Document::Array),
            Some(vec![name.clone()]),
            "{text}"
        );
    }
    assert_eq!(found("[0]", Document::Array), None);
    assert_eq!(found("length(@)", Document::Array), None);
    assert_eq!(found("items[?a == $n]", Document::Array), Some(vec![]));
    let apart = Document::List { plural: None };
    assert_eq!(found("ingresses.items", apart), Some(vec![]));
}

#[test]
fn too_many_lookups_are_none() {
    let terms: Vec<_> = (0..=LOOKUPS_MAX).map(|n| format!("a == `{n}`")).collect();
    assert_eq!(
        found(&format!("items[?{}]", terms.join(" || ")), LIST),
        None
    );
    let terms = &terms[1..];
    assert_eq!(
        found(&format!("items[?{}]", terms.join(" || ")), LIST).map(|found| found.len()),
        Some(LOOKUPS_MAX)
    );
}
