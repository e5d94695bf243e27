//! Subqueries by their texts: `PODS` stands for a list of all Pods, and `OF(namespace)` for the call that reads one.

use super::*;
use crate::{Dialect, FactScope};

fn written(source: &str) -> String {
    source
        .replace("PODS", "OF('').items")
        .replace("OF(", "resource.list('v1', 'pods', ")
}

/// Compiles an expression after variables, with subqueries marked in all of them.
fn split(source: &str, variables: &[(&str, &str)]) -> Program {
    let names = Names::default().in_dialect(Dialect::Kyverno);
    let mut names = names.with_facts(FactScope::Cluster);
    let mut programs: Vec<Program> = Vec::new();
    for (name, text) in variables {
        let program = Program::compile(&written(text), &names).unwrap();
        let program = program.with_subqueries(&programs, &names);
        names.define(name, &program);
        programs.push(program);
    }
    let program = Program::compile(&written(source), &names)
        .unwrap_or_else(|error| panic!("{source}: {error}"));
    program.with_subqueries(&programs, &names)
}

/// The subqueries of an expression, each behind the variables that travel with it.
fn texts(source: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let program = split(source, variables);
    let subqueries = program.subqueries().into_iter();
    subqueries
        .map(|subquery| {
            let variables = subquery.variables().iter();
            let variables = variables.map(|(name, text)| format!("{name} = {text}; "));
            variables.collect::<String>() + subquery.text()
        })
        .collect()
}

#[test]
fn what_does_not_depend_on_elements_becomes_a_parameter() {
    for (source, expected) in [
        (
            "PODS.exists(x, x.a == object.a && x.b == object.b)",
            "view.items.exists(_0, _0.a == p0 && _0.b == p1)",
        ),
        // A list that is written out is one value, and an empty one tells an index what is not there.
        (
            "PODS.exists(x, x.a in ['a', 'b'])",
            "view.items.exists(_0, _0.a in p0)",
        ),
        (
            "PODS.exists(x, x.a in [object.a, 'b'])",
            "view.items.exists(_0, _0.a in p0)",
        ),
        (
            "PODS.exists(x, x.?m.orValue({}) == {'a': object.a})",
            "view.items.exists(_0, _0[?\"m\"].orValue({}) == p0)",
        ),
        // A variable that reads no list is evaluated once, and not again in a replica.
        (
            "PODS.exists(x, x.a == variables.text)",
            "view.items.exists(_0, _0.a == p0)",
        ),
        (
            "variables.few.size() < variables.all.size()",
            "all = view.items; few = variables.all.filter(_0, _0.n > p0); variables.few.size() < variables.all.size()",
        ),
    ] {
        let variables = [
            ("text", "object.a + 'x'"),
            ("all", "PODS"),
            ("few", "variables.all.filter(y, y.n > object.n)"),
        ];
        assert_eq!(texts(source, &variables), [expected], "{source}");
    }
}

#[test]
fn lists_of_one_view_are_in_one_subquery_and_other_lists_apart() {
    let two = vec!["view.items.size() > 1", "view.items.size() > 2"];
    for (source, expected) in [
        (
            "PODS.size() + PODS.size() > object.n",
            vec!["view.items.size() + view.items.size() > p0"],
        ),
        (
            "OF('a').items.size() > 1 && OF('a').items.size() < 9",
            vec!["view.items.size() > 1 && view.items.size() < 9"],
        ),
        // Of one name, and not of one namespace.
        (
            "OF(object.n).items.size() > OF(object.m).items.size()",
            vec!["view.items.size() > view1.items.size()"],
        ),
        (
            "PODS.size() > OF(object.n).items.size()",
            vec!["view.items.size() > view1.items.size()"],
        ),
        (
            "globalContext.get('a').size() > 1 && globalContext.get('a').exists(x, x.b == 1)",
            vec!["view.size() > 1 && view.exists(_0, _0.b == 1)"],
        ),
        (
            "OF('a').items.size() > 1 && OF('b').items.size() > 2",
            two.clone(),
        ),
        ("PODS.size() > 1 && OF('a').items.size() > 2", two.clone()),
        (
            "PODS.size() > 1 && resource.list('v1', 'services', '').items.size() > 2",
            two,
        ),
        // A list for each element, and a list that another list selects.
        (
            "object.l.exists(n, OF(n).items.size() > 0)",
            vec!["view.items.size() > 0"],
        ),
        ("OF(PODS[0].n).items.size() > 0", vec![]),
        // An element alone, and chance, which no replica has.
        ("PODS[0]", vec![]),
        ("PODS.exists(x, random(x.p) == 'a')", vec![]),
    ] {
        assert_eq!(texts(source, &[]), expected, "{source}");
    }
}

#[test]
fn subqueries_are_limited_at_the_edge() {
    let parameters = |count: usize| {
        let terms: Vec<_> = (0..count)
            .map(|at| format!("x.a == object.a{at}"))
            .collect();
        terms.join(" || ")
    };
    let most = parameters(PARAMETERS_MAX);
    let most = texts(&format!("PODS.exists(x, {most} || x.b == 1)"), &[]);
    assert_eq!(most.len(), 1);
    let more = parameters(PARAMETERS_MAX + 1);
    let more = texts(&format!("PODS.exists(x, {more})"), &[]);
    assert_eq!(more.len(), 0);

    let documents = |count: usize| {
        let sizes: Vec<_> = (0..count)
            .map(|at| format!("OF(object.n{at}).items.size()"))
            .collect();
        texts(&format!("{} > 0", sizes.join(" + ")), &[]).len()
    };
    assert_eq!(documents(DOCUMENTS_MAX), 1);
    assert_eq!(documents(DOCUMENTS_MAX + 1), 2);

    for (source, variable) in [
        ("PODS.exists(x, x.a == 'TEXT')", "PODS"),
        ("variables.v.size() == 1", "PODS.filter(x, x.a == 'TEXT')"),
    ] {
        // The bytes of the first subquery with a text of this length in it.
        let bytes = |length: usize| {
            let text = "a".repeat(length);
            let variable = variable.replace("TEXT", &text);
            let program = split(&source.replace("TEXT", &text), &[("v", variable.as_str())]);
            let subqueries = program.subqueries();
            let first = subqueries.first()?;
            let variables = first.variables().iter().map(|(_, text)| text.len());
            Some(first.text().len() + variables.sum::<usize>())
        };
        let longest = TEXT_BYTES_MAX - bytes(0).unwrap();
        assert_eq!(bytes(longest), Some(TEXT_BYTES_MAX), "{source}");
        // Beyond, no more than a part of it is one.
        assert!(
            bytes(longest + 1).is_none_or(|bytes| bytes < TEXT_BYTES_MAX),
            "{source}"
        );
    }
}

#[test]
fn a_call_with_effects_is_no_part_of_a_subquery() {
    let variables = [("sent", "http.post('http://x', {}).ok == true")];
    for source in [
        "PODS.size() > 9 && http.post('http://x', {}).ok == true",
        "PODS.size() > 9 && variables.sent",
        "PODS.size() > 9 ? variables.sent : false",
    ] {
        assert_eq!(
            texts(source, &variables),
            ["view.items.size() > 9"],
            "{source}"
        );
    }
    let of_a_post = "OF(http.post('http://x', {}).n).items.size() > 9";
    assert!(texts(of_a_post, &[]).is_empty());
}
