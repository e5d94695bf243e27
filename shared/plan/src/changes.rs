//! The difference between two states of a view, found once for all indexes and counters over it.

use anteroom_jmespath::{Node as _, Shape};
use anteroom_model::RetainedFields;
use anteroom_view::{Change, Object, Snapshot};
use anteroom_wire::body::BodyNode;

/// The depth down to which two bodies are compared, field by field. A difference further down counts as
/// one of the field that it stands in.
const DEPTH_MAX: usize = 4;

/// The most fields in which the elements of a list may differ; a list with more differs in anything. Long lists would
/// otherwise be held in memory once more, and most changes concern a reader of such a list.
const FIELDS_MAX: usize = 64;

/// The changes between two states of a view.
#[derive(Debug)]
pub struct Changes {
    from: Snapshot,
    to: Snapshot,
    changed: Vec<Changed>,
}

/// The change of one object of a view.
#[derive(Debug)]
pub(crate) enum Changed {
    Added(Object),
    Removed(Object),
    Replaced {
        old: Object,
        new: Object,
        by: Difference,
    },
}

/// The difference of two values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The values may differ in every part.
    Whole,
    /// The values differ in these fields. Either both are objects, and each field has its own difference. Or both are
    /// lists of the same length whose elements differ in place, and a field may be named several times.
    Fields(Vec<(Box<str>, Difference)>),
}

impl Changes {
    /// Compares two states. The comparison is cheap if the states share most of their objects.
    pub fn between(from: &Snapshot, to: &Snapshot) -> Self {
        let mut changed = Vec::new();
        to.changes_since(from, |change| changed.push(Changed::of(change)));
        Self {
            from: from.clone(),
            to: to.clone(),
            changed,
        }
    }

    /// Returns true if they lead from this state to that.
    pub fn lead(&self, from: &Snapshot, to: &Snapshot) -> bool {
        self.from.is(from) && self.to.is(to)
    }

    /// The state that they lead to.
    pub fn to(&self) -> &Snapshot {
        &self.to
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Changed> {
        self.changed.iter()
    }
}

impl Changed {
    fn of(change: Change<'_>) -> Self {
        match change {
            Change::Added(new) => Self::Added(new.clone()),
            Change::Removed(old) => Self::Removed(old.clone()),
            Change::Replaced { old, new } => Self::Replaced {
                by: Difference::between(old.node(), new.node(), DEPTH_MAX),
                old: old.clone(),
                new: new.clone(),
            },
        }
    }
}

impl Difference {
    fn between(old: BodyNode<'_>, new: BodyNode<'_>, depth: usize) -> Self {
        match (old.shape(), new.shape()) {
            _ if depth == 0 => Self::Whole,
            // Who goes through the names of a map that was empty reads none of its fields, whatever they are.
            (Shape::Object(before), Shape::Object(after)) if (before == 0) == (after == 0) => {
                Self::of_objects(old, new, depth)
            }
            (Shape::Array(before), Shape::Array(after)) if before == after => {
                Self::of_elements(old, new, depth).map_or(Self::Whole, Self::Fields)
            }
            _ => Self::Whole,
        }
    }

    /// Returns the fields in which two lists differ, element by element; `None`: the fields are unknown, or too many. A
    /// reader of a list's elements reads the same fields of each.
    fn of_elements(
        old: BodyNode<'_>,
        new: BodyNode<'_>,
        depth: usize,
    ) -> Option<Vec<(Box<str>, Self)>> {
        let (mut before, mut after) = (old.elements(), new.elements());
        let mut fields = Vec::new();
        loop {
            let (old, new) = match (before.next(), after.next()) {
                (Some(old), Some(new)) => (old.body(), new.body()),
                (None, None) => return Some(fields),
                _ => return None,
            };
            // What cannot be read is empty, and may be anything.
            if old != new || old.is_empty() {
                match Self::between(BodyNode::new(old), BodyNode::new(new), depth - 1) {
                    Self::Whole => return None,
                    Self::Fields(more) if fields.len() + more.len() > FIELDS_MAX => return None,
                    Self::Fields(more) => fields.extend(more),
                }
            }
        }
    }

    fn of_objects(old: BodyNode<'_>, new: BodyNode<'_>, depth: usize) -> Self {
        let (mut before, mut after) = (old.entries(), new.entries());
        let mut fields = Vec::new();
        while let Some((name, old)) = before.next_bytes() {
            if after.pass(name, old) {
                continue;
            }
            match after.next_bytes() {
                Some((same, new)) if same == name => {
                    let (old, new) = (BodyNode::new(old), BodyNode::new(new));
                    fields.push((text(name), Self::between(old, new, depth - 1)));
                }
                // From here on they are not held against each other: each may stand elsewhere.
                new => {
                    let names = [Some(name), new.map(|(name, _)| name)];
                    fields.extend(names.into_iter().flatten().map(wholly));
                    break;
                }
            }
        }
        for behind in [&mut before, &mut after] {
            while let Some((name, _)) = behind.next_bytes() {
                fields.push(wholly(name));
            }
            if behind.left() > 0 {
                return Self::Whole; // What cannot be read may be anything.
            }
        }
        Self::Fields(fields)
    }

    /// Returns true if the difference may matter to a reader of these fields.
    pub(crate) fn concerns(&self, reads: &RetainedFields) -> bool {
        match (self, reads) {
            (Self::Whole, _) => true,
            (Self::Fields(fields), RetainedFields::Whole) => !fields.is_empty(),
            (Self::Fields(fields), RetainedFields::Fields(reads)) => {
                fields.iter().any(|(name, by)| {
                    let reads = reads.get(&**name);
                    reads.is_some_and(|reads| by.concerns(reads))
                })
            }
        }
    }
}

fn wholly(name: &[u8]) -> (Box<str>, Difference) {
    (text(name), Difference::Whole)
}

/// Returns a field's name as text. Names of fields are UTF-8, or no expression can name them.
fn text(name: &[u8]) -> Box<str> {
    String::from_utf8_lossy(name).into()
}

#[cfg(test)]
mod tests {
    use anteroom_view::testing::TestView;
    use anteroom_wire::body::encode_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn difference(old: &Value, new: &Value) -> Difference {
        let (old, new) = (encode_json(old).unwrap(), encode_json(new).unwrap());
        Difference::between(BodyNode::new(&old), BodyNode::new(&new), DEPTH_MAX)
    }

    fn paths(difference: &Difference, of: &str, found: &mut Vec<String>) {
        match difference {
            Difference::Whole => found.push(of.to_owned()),
            Difference::Fields(fields) => fields
                .iter()
                .for_each(|(name, by)| paths(by, &format!("{of}.{name}"), found)),
        }
    }

    #[test]
    fn only_differing_fields_are_listed() {
        let old =
            json!({"a": {"b": 1, "c": {"d": {"e": {"f": 1, "g": 1}}}}, "l": [{"x": 1}], "z": 1});
        for (new, expected) in [
            (old.clone(), vec![]),
            (
                json!({"a": {"b": 2, "c": {"d": {"e": {"f": 1, "g": 1}}}}, "l": [{"x": 1}], "z": 1}),
                vec![".a.b"],
            ),
            // Deeper than is looked.
            (
                json!({"a": {"b": 1, "c": {"d": {"e": {"f": 2, "g": 1}}}}, "l": [{"x": 1}], "z": 1}),
                vec![".a.c.d.e"],
            ),
            (
                json!({"a": {"b": 1, "c": {"d": {"e": {"f": 1, "g": 1}}}}, "l": [{"x": 2}], "z": {}}),
                vec![".l.x", ".z"],
            ),
            // Elements that came or went may have moved all others.
            (
                json!({"a": {"b": 1, "c": {"d": {"e": {"f": 1, "g": 1}}}}, "l": [{"x": 1}, 1], "z": 1}),
                vec![".l"],
            ),
            (
                json!({"a": {"b": 1, "c": {"d": {"e": {"f": 1, "g": 1}}}}, "l": [1], "z": 1}),
                vec![".l"],
            ),
            // The fields after a new field are not compared with their old values.
            (
                json!({"a": {"b": 1, "c": {"d": {"e": {"f": 1, "g": 1}}}}, "k": 1, "l": [{"x": 1}], "z": 1}),
                vec![".l", ".k", ".z", ".l", ".z"],
            ),
            (json!({}), vec![""]),
            (json!([1]), vec![""]),
        ] {
            let mut found = Vec::new();
            paths(&difference(&old, &new), "", &mut found);
            assert_eq!(found, expected, "{new}");
        }
        let (empty, filled) = (json!({"n": {}}), json!({"n": {"d": 1}}));
        for (old, new) in [(&empty, &filled), (&filled, &empty)] {
            let mut found = Vec::new();
            paths(&difference(old, new), "", &mut found);
            assert_eq!(found, [".n"], "{new}");
        }
    }

    #[test]
    fn a_list_with_too_many_differing_fields_counts_as_changed_whole() {
        let list = |differ: usize| {
            let element = |n: usize| json!({"a": usize::from(n < differ), "b": 1});
            json!({"l": (0..2 * FIELDS_MAX).map(element).collect::<Vec<_>>()})
        };
        for (differ, expected) in [
            (FIELDS_MAX, vec![".l.a"; FIELDS_MAX]),
            (FIELDS_MAX + 1, vec![".l"]),
        ] {
            let mut found = Vec::new();
            paths(&difference(&list(0), &list(differ)), "", &mut found);
            assert_eq!(found, expected, "{differ}");
        }
    }

    #[test]
    fn a_body_that_ends_early_may_differ_in_anything() {
        let whole = encode_json(&json!({"a": 1, "b": 2})).unwrap();
        let cut = &whole[..whole.len() - 1];
        for (old, new) in [(cut, &*whole), (&*whole, cut)] {
            let difference = Difference::between(BodyNode::new(old), BodyNode::new(new), DEPTH_MAX);
            assert_eq!(difference, Difference::Whole);
        }
    }

    #[test]
    fn a_difference_concerns_whoever_reads_a_field_of_it() {
        let old = json!({"a": {"b": 1, "c": 1}, "d": 1});
        let by = difference(&old, &json!({"a": {"b": 2, "c": 1}, "d": 1}));
        for (path, concerned) in [
            (&["a", "b"][..], true),
            (&["a", "c"], false),
            (&["a"], true),
            (&["d"], false),
            (&[], true),
        ] {
            let mut reads = RetainedFields::default();
            reads.keep(path);
            assert_eq!(by.concerns(&reads), concerned, "{path:?}");
            assert!(!difference(&old, &old).concerns(&reads), "{path:?}");
        }
    }

    #[test]
    fn changes_lead_from_one_state_to_one_other() {
        let mut view = TestView::new("", "pods", "Pod");
        let from = view.snapshot();
        view.put("ns", "a", &json!({}));
        let to = view.snapshot();
        let changes = Changes::between(&from, &to);
        assert!(changes.lead(&from, &to));
        for (from, to) in [(&to, &from), (&from, &from), (&to, &to)] {
            assert!(!changes.lead(from, to));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("x"))];
        leaf.prop_recursive(6, 32, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn reads() -> impl Strategy<Value = RetainedFields> {
        let path = prop::collection::vec("[a-c]", 0..6);
        prop::collection::vec((path, any::<bool>()), 0..4).prop_map(|paths| {
            let mut kept = RetainedFields::default();
            for (path, whole) in paths {
                let path: Vec<_> = path.iter().map(String::as_str).collect();
                match whole {
                    true => kept.keep(&path),
                    false => kept.touch(&path),
                };
            }
            kept
        })
    }

    proptest! {
        #[test]
        fn a_difference_that_does_not_concern_a_reader_leaves_its_fields_the_same(
            old in value(), new in value(), reads in reads(),
        ) {
            if !difference(&old, &new).concerns(&reads) {
                prop_assert_eq!(crate::pruned(&old, &reads), crate::pruned(&new, &reads));
            }
        }
    }
}
