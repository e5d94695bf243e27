//! Chance, from a seed.

use rand::{
    Rng, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};
use serde_json::{Value, json};

/// The part of an object that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// An object that the API server takes.
    Whole,
    /// A partial object.
    Patch,
}

/// The seeded random choices of a run.
pub(super) struct Dice(StdRng);

impl Dice {
    pub(super) fn of(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.0.random_ratio(percent, 100)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    pub(super) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all.choose(&mut self.0)
            .cloned()
            .expect("nothing to pick from")
    }

    /// Some of these, in any order.
    pub(super) fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut some = all.to_vec();
        some.shuffle(&mut self.0);
        let count = self.below(all.len() + 1);
        some.truncate(count);
        some
    }

    /// Some of these, in any order. In a whole object one may be there twice.
    pub(super) fn some_twice<T: Clone>(&mut self, all: &[T], part: Part) -> Vec<T> {
        let mut some = self.some(all);
        if part == Part::Whole && !some.is_empty() && self.chance(25) {
            let again = self.pick(&some);
            let place = self.below(some.len() + 1);
            some.insert(place, again);
        }
        some
    }

    /// A map with some of these names.
    pub(super) fn map(&mut self, names: &[&str], values: &[&str]) -> Value {
        let some = self.some(names);
        let entry = |name: &str| (name.to_owned(), Value::from(self.pick(values)));
        some.into_iter().map(entry).collect()
    }

    /// Sets a field, so often in a hundred.
    pub(super) fn maybe(
        &mut self,
        object: &mut Value,
        name: &str,
        percent: u32,
        make: impl FnOnce(&mut Self) -> Value,
    ) {
        if self.chance(percent) {
            object[name] = make(self);
        }
    }

    /// Any value without a type, as it may stand in what nobody declares. A partial object has no null, and
    /// its lists are of single values or of objects.
    pub(super) fn free(&mut self, part: Part, levels: usize) -> Value {
        match self.below(if levels == 0 { 4 } else { 9 }) {
            0 => self.pick(&["a", "b"]).into(),
            1 => json!(self.below(3)),
            2 => self.chance(50).into(),
            3 if part == Part::Whole => Value::Null,
            3 => json!(1.5),
            4 | 5 => {
                let count = self.below(3);
                let element = |_| match self.chance(50) {
                    true => json!(self.below(3)),
                    false => self.free_object(part, levels - 1),
                };
                (0..count).map(element).collect()
            }
            _ => self.free_object(part, levels - 1),
        }
    }

    pub(super) fn free_object(&mut self, part: Part, levels: usize) -> Value {
        let names = self.some(&["p", "q", "r"]);
        let entry = |name: &str| (name.to_owned(), self.free(part, levels));
        names.into_iter().map(entry).collect()
    }
}
