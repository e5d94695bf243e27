use super::*;

fn found(text: &str, parameters: ChainParameters) -> Option<(String, Vec<(String, Measure)>)> {
    let expression = Expression::parse(text).unwrap();
    let document = Document::List {
        plural: Some("things"),
    };
    let found = extract_counts(&expression, document, parameters)?;
    let plain = |expression: &Expression| expression.as_str().to_owned();
    let counts = found.counts.iter();
    Some((
        plain(&found.rest),
        counts
            .map(|count| (plain(&count.chain), count.measure))
            .collect(),
    ))
}

/// Trees are compared, so that parentheses do not matter.
fn is(text: &str, rest: &str, counts: &[(&str, Measure)]) {
    let (found_rest, found_counts) = found(text, ChainParameters::Refused).expect(text);
    let parse = |text: &str| Expression::parse(text).unwrap();
    assert_eq!(parse(&found_rest), parse(rest), "{text}: {found_rest}");
    assert_eq!(found_counts.len(), counts.len(), "{text}: {found_counts:?}");
    for ((chain, measure), (wanted, of)) in found_counts.iter().zip(counts) {
        assert_eq!(
            (parse(chain), measure),
            (parse(wanted), of),
            "{text}: {chain}"
        );
    }
}

#[test]
fn lengths_of_chains_are_taken_out() {
    use Measure::*;
    is("length(items)", "$count0", &[("@", Length)]);
    is("items | length(@)", "$count0", &[("@", Length)]);
    is(
        "items[] | length(@) > `3`",
        "$count0 > `3`",
        &[("@[]", Length)],
    );
    is("length(items || `[]`)", "$count0", &[("@", Length)]);
    is(
        "length(to_array(items)[].a)",
        "$count0",
        &[("@[].a", Length)],
    );
    let kept = "keep_only(@, `{\"a\": true}`)";
    is(
        "length(keep_only(items, `{\"a\": true}`))",
        "$count0",
        &[(kept, Length)],
    );
    is(
        "things.items[*].a | length(@)",
        "$count0",
        &[("@[*].a", Length)],
    );
    is(
        "things | items[].a | length(@)",
        "$count0",
        &[("@[].a", Length)],
    );
    is(
        "things | length(items[].a)",
        "$count0",
        &[("@[].a", Length)],
    );
    is(
        "items[].spec.rules[] | [?host == 'x'].port | length(@)",
        "$count0",
        &[("@[].spec.rules[] | [?host == 'x'].port", Length)],
    );
    is(
        "items | {n: length(@), m: length([].a)}",
        "{n: $count0, m: $count1}",
        &[("@", Length), ("@[].a", Length)],
    );
    is(
        "items[?a].b | to_string(length(@)) | [0]",
        "to_string($count0) | [0]",
        &[("@[?a].b", Length)],
    );
    is("things.length(items).x", "$count0.x", &[("@", Length)]);
    is("things | (items | length(@))", "$count0", &[("@", Length)]);
    is(
        "items | (length(@) | @ > `1`)",
        "$count0 | @ > `1`",
        &[("@", Length)],
    );
    is(
        "items | [length(@)][?@ > `1`]",
        "[$count0][?@ > `1`]",
        &[("@", Length)],
    );
    is(
        "length(items[].a) == length(items[].a)",
        "$count0 == $count0",
        &[("@[].a", Length)],
    );
    is(
        "items[?a].b | [length(@), length([].c)] | [0]",
        "[$count0, $count1] | [0]",
        &[("@[?a].b", Length), ("@[?a].b | @[].c", Length)],
    );
    is(
        "items[].a | {n: length(@), all: @}",
        "items[].a | {n: $count0, all: @}",
        &[("@[].a", Length)],
    );
    is(
        "items[].a | [length(@), max(@)]",
        "items[].a | [$count0, max(@)]",
        &[("@[].a", Length)],
    );
    is(
        "items[?metadata.name == $n].x == length(items[].x)",
        "items[?metadata.name == $n].x == $count0",
        &[("@[].x", Length)],
    );
}

#[test]
fn a_term_of_which_only_the_truth_matters_becomes_existence() {
    use Measure::Existence;
    is("!(items[?a])", "!$count0", &[("@[?a]", Existence)]);
    is(
        "items[?a] && 'some'",
        "$count0 && 'some'",
        &[("@[?a]", Existence)],
    );
    is(
        "items[?a] == `[]`",
        "$count0 == `[]`",
        &[("@[?a]", Existence)],
    );
    is(
        "`[]` != items[?a].b",
        "`[]` != $count0",
        &[("@[?a].b", Existence)],
    );
}

#[test]
fn only_lengths_and_existence_of_chains_are_taken_out() {
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
        // No index knows the elements within objects.
        "length((items[].a)[?x == $p])",
        // These are others the next time.
        "length(items[].time_now())",
        "length(items[?a].time_now_utc())",
        "length(items[?a == time_now()])",
        "length(items[?a == to_string(time_now())])",
        "max_by(items, &a)",
        "sum(items[].a)",
        "items[].a | avg(@)",
        "max(items[].a)",
        "min(items[].a)",
        "sort(items[].a)[0]",
    ] {
        assert_eq!(found(text, ChainParameters::Refused), None, "{text}");
    }
    for text in ["items[?a == $p] | length(@)", "items[?a > $p] | length(@)"] {
        assert!(found(text, ChainParameters::Allowed).is_some(), "{text}");
    }
}

#[test]
fn only_a_count_of_the_objects_themselves_is_one_of_all_objects() {
    let document = Document::List { plural: None };
    for (text, is_of_all) in [("length(items)", true), ("length(items[].a)", false)] {
        let expression = Expression::parse(text).unwrap();
        let found = extract_counts(&expression, document, ChainParameters::Refused).expect(text);
        assert_eq!(found.counts[0].is_of_all_objects(), is_of_all, "{text}");
    }
}

#[test]
fn objects_are_counted_by_the_index_of_an_equality() {
    for (text, key, negated) in [
        ("items[?a.b == $p] | length(@)", "a.b", false),
        ("length(items[?$p != a]) > `3`", "a", true),
        ("items[?a == $p] && 'some'", "a", false),
    ] {
        let expression = Expression::parse(text).unwrap();
        let document = Document::List { plural: None };
        let found = extract_counts(&expression, document, ChainParameters::Refused).expect(text);
        let by_index = found.counts[0].by_index.as_ref().unwrap();
        assert_eq!(by_index.probe.key.shown(), key);
        assert_eq!(
            (by_index.negated, by_index.probe.key.reading().depth > 0),
            (negated, false)
        );
    }
}

#[test]
fn parameters_of_the_expression_keep_their_names() {
    let (rest, _) = found("length(items) > $count0", ChainParameters::Refused).unwrap();
    assert!(
        rest.contains("$count_0") && rest.contains("$count0"),
        "{rest}"
    );
}
