use anteroom_model::LabelSelector;

use super::*;
use crate::Leaf;

const LIST: Document<'_> = Document::List {
    plural: Some("ingresses"),
};

fn on(text: &str, document: Document<'_>) -> Result<String, Scan> {
    narrow(&Expression::parse(text).unwrap(), document).map(|narrow| shown(&narrow))
}

/// `key == $p`, with `any_of` and `one_of` around several.
fn shown(narrow: &Narrow) -> String {
    let all = |name: &str, parts: &[Narrow]| {
        let parts: Vec<_> = parts.iter().map(shown).collect();
        format!("{name}({})", parts.join(", "))
    };
    match narrow {
        Narrow::Any(parts) => all("any_of", parts),
        Narrow::All(parts) => all("one_of", parts),
        Narrow::Probe(probe) => {
            let reading = probe.key.reading();
            let key = match reading.leaf {
                Leaf::Value => probe.key.shown().to_owned(),
                Leaf::FirstEntry => format!("first({})", probe.key.shown()),
                Leaf::Entries => format!("entries({})", probe.key.shown()),
            };
            let operand = match &probe.operand {
                Operand::Parameter(name) => format!("${name}"),
                Operand::Literal(value) => value.to_string(),
            };
            let once = match (probe.once, &probe.check) {
                (true, None) => "once ",
                (true, Some(_)) => "checked ",
                (false, _) => "",
            };
            let matching = match probe.matching {
                Matching::Equal => "==",
                Matching::Among => "among",
                Matching::Alike => "alike",
                Matching::AlikeOne => "alike one",
                Matching::AmongEntries => "<=",
                Matching::HasEntries => ">=",
            };
            let depth = reading.depth;
            format!("{once}{key}/{depth} {matching} {operand}")
        }
    }
}

#[test]
fn expressions_that_are_narrowed_to_keys() {
    let name = "metadata.name/0 == $n";
    for (text, wanted) in [
        ("items[?metadata.name == $n]", name),
        ("items[?$n == metadata.name]", name),
        ("items[? metadata.name == $n ] | length(@)", name),
        ("items[?metadata.name == $n] || `[]` | length(@)", name),
        ("ingresses | items[?metadata.name == $n].x", name),
        ("ingresses.items[?metadata.name == $n].x", name),
        ("items[] | [?metadata.name == $n]", name),
        ("items[*] | [?metadata.name == $n] | [0].data", name),
        ("length(items[?metadata.name == $n])", name),
        ("{n: length(items[?metadata.name == $n]), k: kind}", name),
        ("items[?metadata.name == $n && spec.x != $y]", name),
        ("items[?spec.x != $y && metadata.name == $n]", name),
        ("items[?metadata.name == $n && to_number(x) > `3`]", name),
        ("items[?!(metadata.name != $n)]", name),
        (
            "items[?metadata.name == $n || metadata.uid == 'u']",
            "any_of(metadata.name/0 == $n, metadata.uid/0 == \"u\")",
        ),
        (
            "[items[?metadata.name == $n], items[?a == `1`]]",
            "any_of(metadata.name/0 == $n, a/0 == 1)",
        ),
        // Equal lookups are done once; no lookup that differs is left out.
        ("[items[?a == $n], items[?a == $n]]", "a/0 == $n"),
        (
            "[items[?a == $n], items[?b == $n]]",
            "any_of(a/0 == $n, b/0 == $n)",
        ),
        (
            "[items[?a == $n], items[?contains(a, $n)]]",
            "any_of(a/0 == $n, a/1 == $n)",
        ),
        // Either will do; what the policy names itself is for want of anything else.
        ("items[?a == $n && b == $m]", "one_of(a/0 == $n, b/0 == $m)"),
        (
            "items[?a == $n] | [?b == $m]",
            "one_of(a/0 == $n, b/0 == $m)",
        ),
        ("items[?kind == 'x' && a == $n]", "a/0 == $n"),
        (
            "items[?contains(spec.rules[].host, $h)]",
            "spec.rules[].host/1 == $h",
        ),
        (
            "items[?contains($names, metadata.name)]",
            "metadata.name/0 among $names",
        ),
        (
            "items[?subjects[?contains($names, name)]].{r: roleRef, s: subjects[?kind == 'User']}",
            "subjects[].name/1 among $names",
        ),
        (
            "items[?to_string(spec.x) == $n]",
            "to_string(spec.x)/0 == $n",
        ),
        (
            "items[?label_match(spec.selector, $labels)]",
            "first(spec.selector)/0 <= $labels",
        ),
        (
            "items[?label_match($labels, metadata.labels)]",
            "entries(metadata.labels)/0 >= $labels",
        ),
        ("kind", "any_of()"),
        ("other.items[?a > `1`]", "any_of()"),
        ("$n", "any_of()"),
    ] {
        assert_eq!(on(text, LIST), Ok(wanted.to_owned()), "{text}");
    }
}

#[test]
fn filters_behind_and_within_projections_are_looked_up() {
    let host = "spec.rules[].host/1 == $h";
    for (text, wanted) in [
        (
            "(items[].spec.rules[]) | ([?host == $h][].http.paths[].path)",
            host,
        ),
        ("items[].spec.rules[] | [?host == $h]", host),
        ("items[].spec.rules[?host == $h][].http", host),
        ("items[].spec.rules[?host == $h].http.paths[].path", host),
        ("items[?spec.rules[?host == $h]]", host),
        ("items[?spec.rules[?host == $h] | [0]].metadata.name", host),
        ("items[?spec.rules | [?host == $h]]", host),
        ("items[].spec.rules[].host | [?@ == $h]", host),
        (
            "items[].{r: spec.rules[]} | [].r[] | [?host == $h]",
            "{r: spec.rules[]}[].r[].host/1 == $h",
        ),
        (
            "items[].spec.rules[].http.paths[?path == $p][]",
            "spec.rules[].http.paths[].path/1 == $p",
        ),
        // What is left out has to be fit to be left out.
        ("items[?a != $n].spec.rules[] | [?host == $h]", host),
    ] {
        assert_eq!(on(text, LIST), Ok(wanted.to_owned()), "{text}");
    }
}

#[test]
fn membership_functions_become_index_lookups() {
    let host = "spec.rules[].host/1 alike $k";
    let once = format!("once {host}");
    for (text, wanted) in [
        ("any_in($k, items[].spec.rules[].host)", &*once),
        ("all_not_in($k, (items[].spec.rules[].host))", &once),
        ("items[].spec.rules[].host | any_in($k, @)", &once),
        (
            "contains((items[].spec.rules[].host), $k)",
            "once spec.rules[].host/1 == $k",
        ),
        // A filter may leave out the one that was taken for all.
        (
            "any_in($k, (items[?metadata.uid != $u].spec.rules[].host))",
            "checked spec.rules[].host/1 alike $k",
        ),
        (
            "any_in($k, (items[].spec.rules[]) | ([?host == $h][].http.paths[].path))",
            "one_of(spec.rules[].host/1 == $h, checked spec.rules[][].http.paths[].path/1 alike $k)",
        ),
        (
            "any_in($k, items[?metadata.namespace == $n].spec.rules[].host)",
            "one_of(metadata.namespace/0 == $n, checked spec.rules[].host/1 alike $k)",
        ),
        (
            "any_in($k, items[?spec.x].spec.rules[].host)",
            "once [?spec.x].spec.rules[].host/1 alike $k",
        ),
        (
            "is_not_in($k, items[].spec.rules[].host)",
            "once spec.rules[].host/1 alike one $k",
        ),
        // Of an empty list an empty list is made, or nothing at all.
        ("any_not_in($k, (items[].spec.rules[].host || `[]`))", &once),
        (
            "any_not_in($k, not_null(items[].spec.rules[].host, ''))",
            &once,
        ),
        ("any_in($k, to_array(items)[].spec.rules[].host)", &once),
        (
            "any_in($k, items[?spec.x][].spec.a)",
            "once [?spec.x][].spec.a/1 alike $k",
        ),
    ] {
        assert_eq!(on(text, LIST), Ok(wanted.to_owned()), "{text}");
    }
}

#[test]
fn an_expression_without_an_indexable_filter_needs_all_objects() {
    use NoIndexReason::{Condition, Document, Places, Whole};
    for (text, why) in [
        ("@", Document),
        ("items", Whole),
        ("length(items)", Whole),
        ("items[].metadata.name", Whole),
        ("items[0]", Places),
        ("items[:2]", Places),
        ("items[:2] | [?a == $n]", Places),
        ("items[?a > $n]", Condition),
        ("items[?a != $n]", Condition),
        ("items[?a]", Condition),
        ("items[?a == b]", Condition),
        ("items[?$a == $b]", Condition),
        ("items[?'a' == `1`]", Condition),
        ("items[?a == $n] && items", Whole),
        ("[items[?a == $n], length(items)]", Whole),
        ("items[?a == $n || b > `1`]", Condition),
        // The function may fail on an object that does not agree.
        (
            "items[?to_number(x) > `3` && metadata.name == $n]",
            Condition,
        ),
        ("items[?starts_with(a, 'x') && b == $n]", Condition),
        ("[items[?a == $n], (items[].to_number(a) | 'x')]", Whole),
        ("items[?time_now() == $n]", Condition),
        ("items[?to_string($m) == $n]", Condition),
        // An empty list for each object that has no such rule.
        ("items[].spec.rules[?host == $h]", Whole),
        ("items[].[spec.rules[?host == $h]][]", Whole),
        ("any_in($k, items)", Whole),
        ("equals($k, items[].a)", Whole),
        ("any_in($k, items[].[a, $p])", Whole),
        ("*", Document),
        ("*[?a == $n]", Document),
        ("ingresses", Document),
        ("ingresses.*", Document),
        ("items || `[]`", Whole),
        ("any_in($k, items[].a || 'x')", Whole),
        ("any_in($k, not_null(items[].a, items))", Whole),
        ("!items", Whole),
        ("items == $n", Whole),
        ("items | sort_by(@, &a)", Whole),
        ("[@]", Document),
        ("{a: ingresses}", Document),
        ("to_string(@)", Document),
    ] {
        assert_eq!(on(text, LIST).map_err(|scan| scan.why), Err(why), "{text}");
    }
}

#[test]
fn a_label_selector_is_one_more_way_to_find_what_matters() {
    let a = "a/0 == $n";
    let x = r#"any_of(entries(metadata.labels)/0 >= {"l":"x"})"#;
    let both = format!("one_of({a}, {x})");
    let values = r#"any_of(entries(metadata.labels)/0 >= {"l":"x"}, entries(metadata.labels)/0 >= {"l":"y"})"#;
    let labels = format!("one_of({x}, any_of(entries(metadata.labels)/0 >= {{\"k\":\"y\"}}))");
    for (text, selector, wanted) in [
        ("items[?a == $n]", "", Some(a)),
        ("items[?a == $n]", "l!=x", Some(a)),
        ("items[?a == $n]", "l=x", Some(&*both)),
        ("kind", "l=x", Some("any_of()")),
        ("items", "l=x", Some(x)),
        ("items", "l in (x, y)", Some(values)),
        ("items", "l=x,k=y", Some(&*labels)),
        ("items", "l!=x", None),
        ("items", "", None),
    ] {
        let narrow = narrow(&Expression::parse(text).unwrap(), LIST).ok();
        let selector = LabelSelector::parse(selector).unwrap();
        let found = selected(narrow.as_ref(), &selector).map(|found| shown(&found));
        assert_eq!(found.as_deref(), wanted, "{text} of {selector:?}");
    }
}

#[test]
fn a_filter_on_an_array_document_is_looked_up() {
    for text in ["[?metadata.name == $n]", "@[?metadata.name == $n] | [0]"] {
        let wanted = Ok("metadata.name/0 == $n".to_owned());
        assert_eq!(on(text, Document::Array), wanted, "{text}");
    }
    assert!(on("[0]", Document::Array).is_err());
    assert!(on("length(@)", Document::Array).is_err());
    let none = Ok("any_of()".to_owned());
    assert_eq!(on("items[?a == $n]", Document::Array), none);
    let apart = Document::List { plural: None };
    assert_eq!(on("ingresses.items", apart), none);
}

#[test]
fn an_expression_with_too_many_probes_is_scanned() {
    let exprs: Vec<_> = (0..=PROBES_MAX).map(|n| format!("a == `{n}`")).collect();
    let scan = on(&format!("items[?{}]", exprs.join(" || ")), LIST).unwrap_err();
    assert_eq!(scan.why, NoIndexReason::Probes);
    let exprs = &exprs[1..];
    assert!(on(&format!("items[?{}]", exprs.join(" || ")), LIST).is_ok());
}
