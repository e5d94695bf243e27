//! What is kept of contributions: how many, their sum, their order.

use std::{cmp::Ordering, collections::BTreeMap};

use anteroom_jmespath::{Node, Number, Shape, Value as Contributed};
use serde_json::Value;

use super::numbers::{Sum, Way};

/// What is taken of a chain's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// `length()`
    Length,
    /// `true`, or the empty list where there is none: for where it only matters which.
    Existence,
    /// `sum()`
    Sum,
    /// `avg()`
    Average,
    /// `max()`
    Largest,
    /// `min()`
    Smallest,
    /// `sort()`
    Sorted,
}

/// What has to be kept for a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TallyKind {
    /// How many elements there are.
    Count,
    /// Their sum.
    Sum,
    /// Each value that there is.
    Order,
}

impl Measure {
    /// What a function of this name takes of a list.
    pub(super) fn of_function(name: &str) -> Option<Self> {
        Some(match name {
            "length" => Self::Length,
            "sum" => Self::Sum,
            "avg" => Self::Average,
            "max" => Self::Largest,
            "min" => Self::Smallest,
            "sort" => Self::Sorted,
            _ => return None,
        })
    }

    /// What has to be kept for it.
    pub(crate) fn kind(self) -> TallyKind {
        match self {
            Self::Length | Self::Existence => TallyKind::Count,
            Self::Sum | Self::Average => TallyKind::Sum,
            Self::Largest | Self::Smallest | Self::Sorted => TallyKind::Order,
        }
    }

    /// The value for so many elements, where their number says it.
    pub fn of_count(self, count: u64) -> Option<Value> {
        match self {
            Self::Length => Some(count.into()),
            Self::Existence if count > 0 => Some(true.into()),
            Self::Existence => Some(Value::Array(Vec::new())),
            _ => None,
        }
    }
}

/// What is kept of many elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    elements: u64,
    /// Elements that the function does not take.
    others: u64,
    kept: Kept,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Count,
    Sum(Sum),
    Order {
        numbers: BTreeMap<Ranked, u64>,
        texts: BTreeMap<Box<str>, u64>,
        text_bytes: usize,
    },
}

/// A number by its place in the order, and equal numbers by how they are written: `1`, then `1.0`.
#[derive(Clone, Copy, Debug)]
struct Ranked(Number);

/// What an element takes in a map, the room that is not used included.
const IN_MAP_BYTES: usize = 48;

impl Tally {
    /// Of no elements.
    pub(crate) fn new(kind: TallyKind) -> Self {
        Self {
            elements: 0,
            others: 0,
            kept: match kind {
                TallyKind::Count => Kept::Count,
                TallyKind::Sum => Kept::Sum(Sum::default()),
                TallyKind::Order => Kept::Order {
                    numbers: BTreeMap::new(),
                    texts: BTreeMap::new(),
                    text_bytes: 0,
                },
            },
        }
    }

    /// Takes all elements of a chain's value in, or out; `false`: it is no list.
    #[must_use]
    pub(crate) fn take_all<'a, N: Node<'a>>(
        &mut self,
        list: &Contributed<'a, N>,
        way: Way,
    ) -> bool {
        let Shape::Array(elements) = list.shape() else {
            return false;
        };
        match self.kept {
            Kept::Count => step(&mut self.elements, elements as u64, way),
            _ => list
                .elements()
                .for_each(|element| self.take(element.shape(), way)),
        }
        true
    }

    /// Takes an element in, or out.
    fn take(&mut self, element: Shape<'_>, way: Way) {
        step(&mut self.elements, 1, way);
        match (&mut self.kept, element) {
            (Kept::Count, _) => {}
            (Kept::Sum(sum), Shape::Number(number)) => sum.add(number, way),
            (Kept::Order { numbers, .. }, Shape::Number(number)) => {
                let ranked = Ranked(number.integer().map_or(number, Number::from_integer));
                step_in(numbers, ranked, way);
            }
            (
                Kept::Order {
                    texts, text_bytes, ..
                },
                Shape::String(text),
            ) => match (texts.get_mut(text), way) {
                (Some(count), Way::In) => *count += 1,
                (Some(count), Way::Out) if *count > 1 => *count -= 1,
                (Some(_), Way::Out) => {
                    texts.remove(text);
                    *text_bytes -= text.len();
                }
                (None, Way::In) => {
                    texts.insert(text.into(), 1);
                    *text_bytes += text.len();
                }
                (None, Way::Out) => {}
            },
            _ => step(&mut self.others, 1, way),
        }
    }

    /// Takes in what was kept of other elements, of the same kind.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.elements += other.elements;
        self.others += other.others;
        match (&mut self.kept, &other.kept) {
            (Kept::Sum(sum), Kept::Sum(other)) => sum.merge(other),
            (
                Kept::Order {
                    numbers,
                    texts,
                    text_bytes,
                },
                Kept::Order {
                    numbers: other_numbers,
                    texts: other_texts,
                    ..
                },
            ) => {
                for (number, count) in other_numbers {
                    *numbers.entry(*number).or_default() += count;
                }
                for (text, count) in other_texts {
                    let bytes = text.len();
                    let held = texts.entry(text.clone()).or_default();
                    *text_bytes += if *held == 0 { bytes } else { 0 };
                    *held += count;
                }
            }
            _ => {}
        }
    }

    /// What the evaluator would say of all elements in any order; `None` where it depends on the
    /// order, or is an error.
    pub(crate) fn value(&self, measure: Measure) -> Option<Value> {
        if self.others > 0 {
            return None;
        }
        match (measure, &self.kept) {
            (Measure::Length | Measure::Existence, _) => measure.of_count(self.elements),
            (Measure::Sum, Kept::Sum(sum)) => sum.sum(),
            (Measure::Average, Kept::Sum(sum)) => sum.mean(),
            (_, Kept::Order { numbers, texts, .. }) => match (numbers.len(), texts.len()) {
                (0, _) => of_texts(measure, texts),
                (_, 0) => of_numbers(measure, numbers),
                _ => None,
            },
            _ => None,
        }
    }

    /// What it takes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        match &self.kept {
            Kept::Count | Kept::Sum(_) => 0,
            Kept::Order {
                numbers,
                texts,
                text_bytes,
            } => (numbers.len() + texts.len()) * IN_MAP_BYTES + text_bytes,
        }
    }
}

fn step(count: &mut u64, by: u64, way: Way) {
    *count = match way {
        Way::In => count.saturating_add(by),
        Way::Out => count.saturating_sub(by),
    };
}

fn step_in(numbers: &mut BTreeMap<Ranked, u64>, number: Ranked, way: Way) {
    match (numbers.get_mut(&number), way) {
        (Some(count), Way::In) => *count += 1,
        (Some(count), Way::Out) if *count > 1 => *count -= 1,
        (Some(_), Way::Out) => drop(numbers.remove(&number)),
        (None, Way::In) => drop(numbers.insert(number, 1)),
        (None, Way::Out) => {}
    }
}

fn of_texts(measure: Measure, texts: &BTreeMap<Box<str>, u64>) -> Option<Value> {
    let only = |text: Option<(&Box<str>, &u64)>| text.map(|(text, _)| Value::from(&**text));
    match measure {
        Measure::Largest => Some(only(texts.last_key_value()).unwrap_or_default()),
        Measure::Smallest => Some(only(texts.first_key_value()).unwrap_or_default()),
        Measure::Sorted => Some(in_order(texts.iter(), |text| Value::from(&**text))),
        _ => None,
    }
}

/// Of numbers that are equal and written in several ways, the first that came counts.
fn of_numbers(measure: Measure, numbers: &BTreeMap<Ranked, u64>) -> Option<Value> {
    let mut ascending = numbers.keys();
    let (outer, next) = match measure {
        Measure::Largest => (ascending.next_back(), ascending.next_back()),
        Measure::Smallest => (ascending.next(), ascending.next()),
        Measure::Sorted => {
            let differ = |(one, next): (&Ranked, &Ranked)| one.0 != next.0;
            let distinct = numbers.keys().zip(numbers.keys().skip(1)).all(differ);
            let write = |number: &Ranked| Value::from(number.0);
            return distinct.then(|| in_order(numbers.iter(), write));
        }
        _ => return None,
    };
    let outer = outer?;
    let ties = next.is_some_and(|next| next.0 == outer.0);
    (!ties).then(|| Value::from(outer.0))
}

fn in_order<'m, K: 'm>(
    counted: impl Iterator<Item = (&'m K, &'m u64)>,
    write: impl Fn(&K) -> Value,
) -> Value {
    let each = counted.flat_map(|(key, count)| {
        let times = usize::try_from(*count).unwrap_or(usize::MAX);
        std::iter::repeat_n(write(key), times)
    });
    Value::Array(each.collect())
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let written = |number: Number| match number {
            Number::F64(float) => (true, float.to_bits()),
            _ => (false, 0),
        };
        let order = self.0.order(other.0);
        order.then_with(|| written(self.0).cmp(&written(other.0)))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tally(elements: &Value) -> Tally {
        let mut tally = Tally::new(TallyKind::Order);
        assert!(tally.take_all(&Contributed::<&Value>::json(elements), Way::In));
        tally
    }

    #[test]
    fn of_equal_numbers_that_are_written_differently_the_first_counts_so_none_is_said() {
        let all = [Measure::Largest, Measure::Smallest, Measure::Sorted];
        let said = |elements: Value| all.map(|measure| tally(&elements).value(measure));
        let [largest, smallest, sorted] = said(json!([2, 1, 1.0]));
        assert_eq!((largest, smallest, sorted), (Some(json!(2)), None, None));
        let [largest, smallest, sorted] = said(json!([2, 2.0, 1]));
        assert_eq!((largest, smallest, sorted), (None, Some(json!(1)), None));
        let [largest, smallest, sorted] = said(json!([0.5, -0.0, 2, 2]));
        assert_eq!((largest, smallest), (Some(json!(2)), Some(json!(-0.0))));
        assert_eq!(sorted, Some(json!([-0.0, 0.5, 2, 2])));
    }
}
