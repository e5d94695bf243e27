//! A change of an object, held against a footprint.

use serde_json::{Map, Value};

use super::Footprint;

/// Pairs of values that are compared. A change that takes more is refused.
const STEPS_MAX: usize = 100_000;

impl Footprint {
    /// Checks that the footprint covers every difference.
    ///
    /// # Errors
    /// The path of the first one outside, as in `spec.containers[0].image`.
    pub(in crate::permit) fn covers(&self, old: &Value, new: &Value) -> Result<(), String> {
        let mut steps_left = STEPS_MAX;
        let covered = Union(vec![self]).change(old, new, &mut steps_left);
        covered.map_err(|path| match steps_left {
            0 => "more than can be compared".to_owned(),
            _ => path.trim_start_matches('.').to_owned(),
        })
    }
}

/// The footprints of a value: those by its name and those by a wildcard. A change of the value is permitted if any
/// footprint permits the change.
struct Union<'f>(Vec<&'f Footprint>);

impl<'f> Union<'f> {
    fn change(&self, old: &Value, new: &Value, steps_left: &mut usize) -> Result<(), String> {
        *steps_left = steps_left.saturating_sub(1);
        if *steps_left == 0 {
            return Err(String::new());
        }
        let all = || self.0.iter();
        if old == new || all().any(|one| one.anything || one.values.contains(new)) {
            return Ok(());
        }
        let of_old = self.below(old, new, steps_left);
        if of_old.is_ok() {
            return of_old;
        }
        // The patch may first replace the old value by a value of its own, and then change that value.
        let mut set = all().flat_map(|one| &one.values);
        match set.any(|set| self.below(set, new, steps_left).is_ok()) {
            true => Ok(()),
            false => of_old,
        }
    }

    /// The parts of an object or of a list.
    fn below(&self, old: &Value, new: &Value, steps_left: &mut usize) -> Result<(), String> {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.fields(old, new, steps_left),
            // Setting a nested field creates its missing parents.
            (Value::Null, Value::Object(new)) if self.0.iter().any(|one| one.has_parts()) => {
                self.fields(&Map::new(), new, steps_left)
            }
            (Value::Array(old), Value::Array(new)) => self.elements(old, new, steps_left),
            (Value::Null, Value::Array(new)) => self.elements(&[], new, steps_left),
            _ => Err(String::new()),
        }
    }

    /// A field that is not there is null.
    fn fields(
        &self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        steps_left: &mut usize,
    ) -> Result<(), String> {
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        for key in new.keys().chain(gone) {
            let [old, new] = [old, new].map(|of| of.get(key).unwrap_or(&Value::Null));
            if old != new {
                let covered = self.of_parts(|step| step == key);
                let covered = covered.change(old, new, steps_left);
                covered.map_err(|path| format!(".{key}{path}"))?;
            }
        }
        Ok(())
    }

    /// Checks that each element of `new` is an old element, or one that the footprint can make of an old element or
    /// of nothing.
    fn elements(&self, old: &[Value], new: &[Value], steps_left: &mut usize) -> Result<(), String> {
        let each = self.of_parts(is_index);
        let mut set = self.0.iter().flat_map(|one| &one.values);
        if each.0.is_empty() && !set.any(Value::is_array) {
            return Err(String::new());
        }
        let before = old.iter().zip(new).take_while(|(old, new)| old == new);
        let before = before.count();
        let (old, new) = (&old[before..], &new[before..]);
        let behind = old.iter().rev().zip(new.iter().rev());
        let behind = behind.take_while(|(old, new)| old == new).count();
        let (old, new) = (&old[..old.len() - behind], &new[..new.len() - behind]);
        for (at, element) in new.iter().enumerate() {
            // The one at its place, as most often, or nothing, or any.
            let same = each.change(old.get(at).unwrap_or(&Value::Null), element, steps_left);
            let Err(path) = same else {
                continue;
            };
            let mut others = std::iter::once(&Value::Null).chain(old);
            if !others.any(|old| each.change(old, element, steps_left).is_ok()) {
                return Err(format!("[{}]{path}", before + at));
            }
        }
        Ok(())
    }

    /// The footprints of a part, by those steps of a path that can mean it.
    fn of_parts(&self, is_it: impl Fn(&str) -> bool) -> Self {
        let mut parts: Vec<&'f Footprint> = Vec::new();
        for one in &self.0 {
            let named = one.fields.iter().filter(|(step, _)| is_it(step));
            parts.extend(named.map(|(_, part)| part));
            parts.extend(one.others.as_deref());
        }
        Self(parts)
    }
}

impl Footprint {
    fn has_parts(&self) -> bool {
        !self.fields.is_empty() || self.others.is_some()
    }
}

/// Returns whether a step of a pointer can mean an element of a list.
fn is_index(step: &str) -> bool {
    let digits = step.strip_prefix('-').unwrap_or(step);
    digits.chars().all(|digit| digit.is_ascii_digit())
}
