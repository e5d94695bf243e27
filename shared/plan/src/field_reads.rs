//! The fields of each object that an expression can read, and objects that keep only those. Pure.
//!
//! An expression has the same result over objects with only these fields as over whole objects, errors included: see
//! [`anteroom_jmespath::reads`].

use anteroom_cel::{KeyPath, KeyStep};
use anteroom_jmespath::{
    Expression,
    reads::{self, Reached, Use},
};
use anteroom_model::RetainedFields;
use serde_json::Value;

use crate::Document;

/// Returns the fields of each object that an expression over a list of objects reads.
pub fn reads(expression: &Expression, document: Document<'_>) -> RetainedFields {
    let (root, plural) = match document {
        Document::List { plural } => (Reached::Root, plural),
        Document::Array => (Reached::all(true), None),
    };
    read(expression, plural, &root, ValueUse::Read)
}

/// Returns the fields of each object that an expression over an array of objects reads, if only the length of the
/// result counts.
pub(crate) fn reads_to_count(expression: &Expression) -> RetainedFields {
    read(expression, None, &Reached::all(true), ValueUse::Counted)
}

/// Returns the fields that an expression reads of an object, if it is evaluated on the object alone.
pub(crate) fn reads_of_one(expression: &Expression) -> RetainedFields {
    read(expression, None, &Reached::all(false), ValueUse::Read)
}

/// Returns the fields that a path of CEL depends on.
pub(crate) fn reads_of_path(path: &KeyPath) -> RetainedFields {
    let mut fields = Vec::new();
    for step in path.steps() {
        if let KeyStep::Field { name, .. } = step {
            fields.push(&**name);
        }
    }
    let mut read = RetainedFields::default();
    read.keep(&fields);
    read
}

/// The use that is made of an expression's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueUse {
    Read,
    /// The elements of the value are counted.
    Counted,
}

fn read(
    expression: &Expression,
    plural: Option<&str>,
    root: &Reached,
    result: ValueUse,
) -> RetainedFields {
    let fields = |name: &str| match name {
        "items" => Reached::all(true),
        // The same once more.
        name if plural == Some(name) => Reached::Root,
        _ => Reached::NotInDocument,
    };
    let mut read = RetainedFields::default();
    let mut tell = |used: Use<'_>| match used {
        Use::Touched(path) => {
            read.touch(path);
        }
        Use::Whole(path) => {
            read.keep(path);
        }
        Use::Everything => read = RetainedFields::Whole,
    };
    let value = reads::reads(expression.ast(), root, &fields, &mut tell);
    if !(result == ValueUse::Counted && value.is_listed()) {
        value.whole(&mut tell);
    }
    read
}

/// Returns the part of an object that is kept.
#[must_use]
pub fn pruned(value: &Value, kept: &RetainedFields) -> Value {
    let RetainedFields::Fields(fields) = kept else {
        return value.clone();
    };
    match value {
        Value::Object(object) => {
            let kept = object.iter().filter_map(|(name, value)| {
                let kept = fields.get(name)?;
                Some((name.clone(), pruned(value, kept)))
            });
            Value::Object(kept.collect())
        }
        Value::Array(elements) => elements.iter().map(|value| pruned(value, kept)).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(expression: &str) -> RetainedFields {
        let expression = Expression::parse(expression).unwrap();
        reads(
            &expression,
            Document::List {
                plural: Some("pods"),
            },
        )
    }

    fn kept(whole: &[&str], touched: &[&str]) -> RetainedFields {
        let mut kept = RetainedFields::default();
        for path in touched {
            kept.touch(&path.split('.').collect::<Vec<_>>());
        }
        for path in whole {
            kept.keep(&path.split('.').collect::<Vec<_>>());
        }
        kept
    }

    #[test]
    fn an_expression_reads_the_fields_that_it_follows_to_their_end() {
        for (expression, expected) in [
            ("length(items)", kept(&[], &[])),
            ("length(pods.items[?spec.a == $a])", kept(&["spec.a"], &[])),
            ("items[].spec.rules[].host", kept(&["spec.rules.host"], &[])),
            (
                "items[*].metadata.labels.app | length(@)",
                kept(&[], &["metadata.labels.app"]),
            ),
            (
                "items[?metadata.labels.app == 'x' && !(spec.paused)].{n: metadata.name}",
                kept(
                    &["metadata.labels.app", "spec.paused", "metadata.name"],
                    &[],
                ),
            ),
            ("items[0].spec", kept(&["spec"], &[])),
            ("items[0:5].status.phase", kept(&["status.phase"], &[])),
            ("sort_by(items, &spec.a)", RetainedFields::Whole),
            ("items[].spec.* | [0]", kept(&["spec"], &[])),
            ("length(items[0].spec.list)", kept(&["spec.list"], &[])),
            (
                "items[?contains(spec.hosts, $h)] | [0].kind",
                kept(&["spec.hosts", "kind"], &[]),
            ),
            ("kind", kept(&[], &[])),
            ("items.spec", kept(&[], &[])),
            ("@", RetainedFields::Whole),
            ("items", RetainedFields::Whole),
            ("[items[].a, 'x']", kept(&["a"], &[])),
            ("items[].a || `[]`", kept(&["a"], &[])),
            ("(items || `[]`)[].a | length(@)", kept(&[], &["a"])),
            ("!(items[].a) && length(items[].b)", kept(&[], &["a", "b"])),
            (
                "(items[].a && items[].b)[].c",
                kept(&["a.c", "b.c"], &["a", "b"]),
            ),
            ("items[?rules[].host]", RetainedFields::Whole),
            ("items[?rules[].host].a", kept(&["a"], &["rules.host"])),
            ("(items[0].a || items[].b).c", kept(&["a"], &["b"])),
            ("(items || @)[0].a", RetainedFields::Whole),
        ] {
            assert_eq!(read(expression), expected, "{expression}");
        }
    }

    #[test]
    fn an_expression_with_too_many_fields_reads_whole_objects() {
        let fields: Vec<_> = (0..300).map(|n| format!("f{n}: spec.f{n}")).collect();
        let expression = format!("items[].{{{}}}", fields.join(", "));
        assert_eq!(read(&expression), RetainedFields::Whole);
    }
}
