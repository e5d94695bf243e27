use super::*;

fn found(text: &str, parameters: Parameters) -> Option<(String, Vec<(String, Measure)>)> {
    let expression = Expression::parse(text).unwrap();
    let document = Document::List {
        plural: Some("things"),
    };
    let found = aggregate(&expression, document, parameters)?;
    let plain = |expression: &Expression| expression.as_str().to_owned();
    let terms = found.terms.iter();
    Some((
        plain(&found.rest),
        terms
            .map(|term| (plain(&term.chain), term.measure))
            .collect(),
    ))
}

/// What is found is compared by tree, so that parentheses do not matter.
fn is(text: &str, rest: &str, terms: &[(&str, Measure)]) {
    let (found_rest, found_terms) = found(text, Parameters::Refused).expect(text);
    let parse = |text: &str| Expression::parse(text).unwrap();
    assert_eq!(parse(&found_rest), parse(rest), "{text}: {found_rest}");
    assert_eq!(found_terms.len(), terms.len(), "{text}: {found_terms:?}");
    for ((chain, measure), (wanted, of)) in found_terms.iter().zip(terms) {
        assert_eq!(
            (parse(chain), measure),
            (parse(wanted), of),
            "{text}: {chain}"
        );
    }
}

#[test]
fn calls_over_chains_are_taken_out() {
    use Measure::*;
    is("length(items)", "$kept0", &[("@", Length)]);
    is("items | length(@)", "$kept0", &[("@", Length)]);
    is(
        "items[] | length(@) > `3`",
        "$kept0 > `3`",
        &[("@[]", Length)],
    );
    is(
        "things.items[*].a | max(@)",
        "$kept0",
        &[("@[*].a", Largest)],
    );
    is(
        "things | items[].a | max(@)",
        "$kept0",
        &[("@[].a", Largest)],
    );
    is("things | max(items[].a)", "$kept0", &[("@[].a", Largest)]);
    is(
        "items[].spec.rules[] | [?host == 'x'].port | sum(@)",
        "$kept0",
        &[("@[].spec.rules[] | [?host == 'x'].port", Sum)],
    );
    is(
        "items | {n: length(@), m: min([].a)}",
        "{n: $kept0, m: $kept1}",
        &[("@", Length), ("@[].a", Smallest)],
    );
    is(
        "items[?a].b | sort(@) | [0]",
        "$kept0 | [0]",
        &[("@[?a].b", Sorted)],
    );
    is("sort(items[].a)[0].b", "$kept0[0].b", &[("@[].a", Sorted)]);
    is("things.sort(items)[*].x", "$kept0[*].x", &[("@", Sorted)]);
    is(
        "avg(items[].a) == avg(items[].a)",
        "$kept0 == $kept0",
        &[("@[].a", Average)],
    );
    is(
        "items[?a].b | [length(@), max(@)] | [0]",
        "[$kept0, $kept1] | [0]",
        &[("@[?a].b", Length), ("@[?a].b", Largest)],
    );
    is(
        "items[].a | {n: length(@), all: @}",
        "items[].a | {n: $kept0, all: @}",
        &[("@[].a", Length)],
    );
    is(
        "items[].a | max([].b)",
        "$kept0",
        &[("@[].a | @[].b", Largest)],
    );
    is(
        "items[?metadata.name == $n].x == max(items[].x)",
        "items[?metadata.name == $n].x == $kept0",
        &[("@[].x", Largest)],
    );
}

#[test]
fn of_existence_it_only_matters_whether() {
    use Measure::Existence;
    is("!(items[?a])", "!$kept0", &[("@[?a]", Existence)]);
    is(
        "items[?a] && 'some'",
        "$kept0 && 'some'",
        &[("@[?a]", Existence)],
    );
    is(
        "items[?a] == `[]`",
        "$kept0 == `[]`",
        &[("@[?a]", Existence)],
    );
    is(
        "`[]` != items[?a].b",
        "`[]` != $kept0",
        &[("@[?a].b", Existence)],
    );
}

#[test]
fn what_is_no_chain_is_left() {
    for text in [
        "items",
        "items[].a",
        "items[?a] || 'none'",
        "'x' && items[?a]",
        "items[0]",
        "length(items[0].a)",
        "length(items[:3])",
        "sum((items[].a)[0])",
        "items[?a == max(b)]",
        "items[*].length(@)",
        "map(&length(@), items)",
        "length(metadata)",
        "items[].to_number(a) | 'x'",
        "items[?a == $p].b | length(@)",
        "items[?a > $p] | length(@)",
        "sort(items[?a == $p])",
        "length(items[].join('', [$p, a]))",
        "max_by(items, &a)",
    ] {
        assert_eq!(found(text, Parameters::Refused), None, "{text}");
    }
    assert!(found("items[?a == $p] | length(@)", Parameters::Allowed).is_some());
}

#[test]
fn objects_are_counted_by_what_they_agree_in() {
    for (text, key, others) in [
        ("items[?a.b == $p] | length(@)", "a.b", false),
        ("length(items[?$p != a]) > `3`", "a", true),
        ("items[?a == $p] && 'some'", "a", false),
    ] {
        let expression = Expression::parse(text).unwrap();
        let document = Document::List { plural: None };
        let found = aggregate(&expression, document, Parameters::Refused).expect(text);
        let counted = found.terms[0].counted.as_ref().unwrap();
        assert_eq!(counted.probe.key.shown(), key);
        assert_eq!(
            (counted.others, counted.probe.key.reading().depth > 0),
            (others, false)
        );
    }
}

#[test]
fn parameters_of_the_expression_keep_their_names() {
    let (rest, _) = found("length(items) > $kept0", Parameters::Refused).unwrap();
    assert!(
        rest.contains("$kept_0") && rest.contains("$kept0"),
        "{rest}"
    );
}
