use proptest::prelude::*;
use regex::Regex;

use super::*;

/// A budget of steps, and what was taken from it.
#[derive(Debug)]
struct Budget {
    left: usize,
    taken: usize,
}

#[derive(Debug, PartialEq)]
struct Spent;

impl Budget {
    fn of(left: usize) -> Self {
        Self { left, taken: 0 }
    }

    fn charge(&mut self, steps: usize) -> Result<(), Spent> {
        self.left = self.left.checked_sub(steps).ok_or(Spent)?;
        self.taken += steps;
        Ok(())
    }
}

fn free(_: usize) -> Result<(), Spent> {
    Ok(())
}

fn compile(text: &str) -> BoundedRegex {
    BoundedRegex::compile(text, free).unwrap()
}

/// Returns the steps of a search, or the error that a budget of 2 million is spent.
fn searched(text: &str, search: impl FnOnce(&BoundedRegex, &mut Budget)) -> usize {
    let regex = compile(text);
    let mut budget = Budget::of(2_000_000);
    search(&regex, &mut budget);
    budget.taken
}

#[test]
fn compiling_is_charged_before_the_work() {
    for (text, is_ok, steps) in [
        ("^a[b]c$".to_owned(), true, 20_000..21_000),
        ("(?:.{100}){10}1".to_owned(), true, 220_000..221_000),
        ("(?:.{1000}){100}1".to_owned(), false, 220_000..221_000),
        ("(".to_owned(), false, 1..100),
        ("a".repeat(PATTERN_BYTES_MAX), true, 340_000..500_000),
        ("a".repeat(PATTERN_BYTES_MAX + 1), false, 0..1),
        (r"\p{L}\p{L}[\p{L}]".to_owned(), true, 12_000..250_000),
        // Half a second of work each, for all characters.
        (r"(?i:\p{Any})".to_owned(), true, 290_000..600_000),
        (r"(?i)[\x{0}-\x{10ffff}]".to_owned(), true, 290_000..600_000),
        ("(?i)^[a-z0-9]+$".to_owned(), true, 20_000..21_000),
    ] {
        let mut budget = Budget::of(usize::MAX);
        let compiled = BoundedRegex::compile(&text, |steps| budget.charge(steps));
        let name: String = text.chars().take(30).collect();
        assert_eq!(compiled.is_ok(), is_ok, "{name}");
        assert!(steps.contains(&budget.taken), "{name}: {}", budget.taken);
    }
    // Seconds of work, some of it in classes within classes, which Go's syntax does not have.
    for text in [
        r"(?i:\p{Any})".repeat(500),
        format!("(?i){}", "[[^0-9]a]".repeat(700)),
        format!("(?i){}", "[[:^alpha:]b]".repeat(500)),
        format!("(?i){}", r"[\Wb]".repeat(500)),
        format!("(?i){}a{}", "[^b".repeat(10), "]".repeat(10)),
        format!("(?i){}", r"[[^a]--\d]".repeat(500)),
    ] {
        let mut budget = Budget::of(2_000_000);
        let refused = parse(&text, &mut |steps| budget.charge(steps));
        let name: String = text.chars().take(30).collect();
        let error = refused.map(drop).unwrap_err();
        assert_eq!(error, CompileError::TooCostly(Spent), "{name}");
    }
    // As policies have them.
    for text in [
        "(?i)^[^/]+/[^:]+$",
        r"(?i)[^\w.-]+",
        r"(?i)[\s\S]*",
        r"^[\p{L}\p{N}_.-]+$",
    ] {
        let mut budget = Budget::of(1_000_000);
        assert!(
            BoundedRegex::compile(text, |steps| budget.charge(steps)).is_ok(),
            "{text}"
        );
    }
}

#[test]
fn an_error_says_what_is_wrong() {
    for (text, says) in [
        ("(".to_owned(), "unclosed group"),
        (
            "(?:.{1000}){100}1".to_owned(),
            "takes more than 1048576 bytes",
        ),
        ("a".repeat(PATTERN_BYTES_MAX + 1), "more than 8192 bytes"),
        ("(".repeat(60) + &")".repeat(60), "nest"),
        (r"\p{Nonsense}".to_owned(), "Unicode property not found"),
    ] {
        let CompileError::Invalid(error) = BoundedRegex::compile(&text, free).unwrap_err() else {
            panic!("{text}");
        };
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Searches as policies have them cost next to nothing; those that take long are refused.
#[test]
fn a_search_is_charged_by_what_it_costs() {
    let name = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
    let first = searched(name, |regex, budget| {
        let found = regex.is_match("abcdefghij-abcdefghij", |steps| budget.charge(steps));
        assert_eq!(found, Ok(true));
    });
    assert!((1..5_000).contains(&first), "{first}");
    let many = searched(name, |regex, budget| {
        for _ in 0..1_000 {
            let found = regex.is_match("abcdefghij-abcdefghij", |steps| budget.charge(steps));
            assert_eq!(found, Ok(true));
        }
    });
    assert!(many < first + 2_000, "{many}");
    // Two seconds of work: 5,000 states for each byte.
    searched("(?:a|b)*a(?:[ab]{1000}){5}c", |regex, budget| {
        let text = "ab".repeat(25_000);
        let found = regex.is_match(&text, |steps| budget.charge(steps));
        assert_eq!(found, Err(Spent));
    });
    // Each match looks through all that is left.
    searched("[A-Z]*[^A-Z]|[A-Z]", |regex, budget| {
        let text = "A".repeat(40_000);
        let mut matches = regex.matches(&text);
        let refused = loop {
            match matches.next(|steps| budget.charge(steps)) {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        assert_eq!(refused, Err(Spent));
    });
}

#[test]
fn groups_of_a_large_expression_are_refused() {
    let many = compile(&"(a)".repeat(300));
    let text = "a".repeat(300);
    assert_eq!(many.groups(), 300);
    assert_eq!(many.find(&text, free), Ok(Some(0..300)));
    assert!(many.captures(&text, 0..300, free).unwrap().is_none());
    // Nor does a search of the whole keep room for them: one slot for each end.
    assert_eq!(many.states.get_nfa().group_info().slot_len(), 2);
    assert!(
        compile("(a)(b)?")
            .captures("a", 0..1, free)
            .unwrap()
            .is_some()
    );
}

/// The places of all matches with their groups, by the `regex` crate.
fn expected(regex: &Regex, text: &str) -> Vec<Vec<Option<Range<usize>>>> {
    let places = |captures: regex::Captures<'_>| {
        let groups = captures
            .iter()
            .map(|group| group.map(|group| group.range()));
        groups.collect()
    };
    regex.captures_iter(text).map(places).collect()
}

fn found(regex: &BoundedRegex, text: &str) -> Vec<Vec<Option<Range<usize>>>> {
    let mut matches = regex.matches(text);
    let mut all = Vec::new();
    while let Some(found) = matches.next(free).unwrap() {
        let captures = regex.captures(text, found, free).unwrap().unwrap();
        let groups = captures
            .iter()
            .map(|group| group.map(|group| group.range()));
        all.push(groups.collect());
    }
    all
}

/// Expressions with all that matters to a search: empty matches, alternatives in order, groups, laziness, edges of words
/// and lines, and characters of several bytes.
fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[abé]",
        Just("[a-b]".to_owned()),
        Just("[^a]".to_owned()),
        Just(".".to_owned()),
        Just("^".to_owned()),
        Just("$".to_owned()),
        Just(r"\b".to_owned()),
        Just(r"(?-u:\B)".to_owned()),
        Just(r"\w".to_owned()),
        Just(String::new()),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(?:{a}|{b})")),
            inner.clone().prop_map(|a| format!("({a})")),
            (inner, "[*+?]\\??|\\{1,2\\}").prop_map(|(a, times)| format!("(?:{a}){times}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn searches_find_what_the_regex_crate_finds(pattern in pattern(), text in "[abé \n]{0,12}") {
        let theirs = Regex::new(&pattern).unwrap();
        let expected = expected(&theirs, &text);
        let parsed = parse(&pattern, &mut free).unwrap();
        for automaton_bytes_max in [AUTOMATON_BYTES_MAX, 0] {
            let ours = BoundedRegex::build(&parsed, SIZES[1].bytes_max, automaton_bytes_max).unwrap();
            prop_assert_eq!(&found(&ours, &text), &expected);
            prop_assert_eq!(ours.is_match(&text, free), Ok(!expected.is_empty()));
            let first = expected.first().and_then(|groups| groups[0].clone());
            prop_assert_eq!(ours.find(&text, free), Ok(first));
        }
    }
}
