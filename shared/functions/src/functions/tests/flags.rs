//! The flags of signatures say what functions do.

use std::collections::BTreeSet;

use anteroom_jmespath::{Node, Shape};

use super::*;

/// A document whose objects have their fields in the opposite order.
#[derive(Clone, Copy)]
struct Reversed<'a>(&'a Value);

impl<'a> Node<'a> for Reversed<'a> {
    type Elements = std::vec::IntoIter<Self>;
    type Entries = std::vec::IntoIter<(&'a str, Self)>;

    fn shape(self) -> Shape<'a> {
        self.0.shape()
    }

    fn field(self, name: &str) -> Option<Self> {
        Node::field(self.0, name).map(Self)
    }

    fn element(self, index: usize) -> Option<Self> {
        Node::element(self.0, index).map(Self)
    }

    fn elements(self) -> Self::Elements {
        let elements: Vec<_> = Node::elements(self.0).map(Self).collect();
        elements.into_iter()
    }

    fn entries(self) -> Self::Entries {
        let entries: Vec<_> = Node::entries(self.0)
            .map(|(name, value)| (name, Self(value)))
            .collect();
        entries.into_iter().rev().collect::<Vec<_>>().into_iter()
    }
}

/// Every call of a function with up to three of these arguments that comes to a value on one side at least.
fn calls(name: &str, arguments: usize) -> impl Iterator<Item = String> {
    let names = ["&@", "object", "objects", "texts", "text", "number"];
    let count = names.len().pow(u32::try_from(arguments).unwrap());
    (0..count).map(move |which| {
        let one =
            |at: usize| names[which / names.len().pow(u32::try_from(at).unwrap()) % names.len()];
        let shown: Vec<_> = (0..arguments).map(one).collect();
        format!("{name}({})", shown.join(", "))
    })
}

#[test]
fn exactly_the_order_sensitive_functions_show_the_order_of_fields() {
    let document = json!({
        "object": {"a": "x", "b": "y", "c": {"d": 1, "e": 2}},
        "objects": [{"name": "p", "value": 1}, {"name": "q", "value": 2}],
        "texts": ["x", "y"], "text": "x", "number": 2,
    });
    let environment = Environment::standard().with_functions(query_functions());
    let (mut shown, mut flagged) = (BTreeSet::new(), BTreeSet::new());
    for name in query_functions().names() {
        if is_order_sensitive(name) {
            flagged.insert(name);
        }
        for text in (0..=3).flat_map(|arguments| calls(name, arguments)) {
            let expression = Expression::parse(&text).unwrap();
            let one = expression.evaluate_json(&document, &environment);
            let other = expression
                .evaluate(Reversed(&document), &environment)
                .and_then(|value| value.to_json_within(1 << 20));
            if one != other {
                shown.insert(name);
            }
        }
    }
    assert_eq!(shown, flagged);
}

#[test]
fn exactly_the_nondeterministic_functions_need_a_seed() {
    let needs_a_seed: BTreeSet<_> = query_functions()
        .names()
        .filter(|name| is_nondeterministic(name))
        .collect();
    let expected = ["random", "time_now", "time_now_utc", "time_since"];
    assert_eq!(needs_a_seed, BTreeSet::from(expected));
    for expression in [
        "random('[a-z]')",
        "time_now()",
        "time_now_utc()",
        "time_since('', '2021-01-02T15:04:05Z', '')",
    ] {
        let error = evaluate(expression).unwrap_err();
        assert!(
            error.contains("where this is evaluated"),
            "{expression}: {error}"
        );
        let seed = EvalSeed::new(1_700_000_000_000_000_000, 1);
        let environment = Environment::standard()
            .with_functions(functions())
            .with_seed(Some(&seed));
        let expression = Expression::parse(expression).unwrap();
        assert!(
            expression.evaluate_json(&json!({}), &environment).is_ok(),
            "{expression}"
        );
        assert!(calls_nondeterministic(&expression), "{expression}");
    }
    let other = Expression::parse("to_upper('a')").unwrap();
    assert!(!calls_nondeterministic(&other));
}
