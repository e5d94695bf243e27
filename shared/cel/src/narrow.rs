//! The elements that can matter to a macro.
//!
//! A macro over a list of objects looks at those elements alone that an index finds, where its body says what they
//! have to have. One rule decides what may be left out:
//!
//! > For `exists`, `filter`, `map` with a filter and `exists_one`, an element may be left out only if the body is
//! > *definitely* false for it: false, and no error. For `all`, it may be left out only if the body is definitely true.
//!
//! In CEL `&&` is false if any side is, whatever error the other comes to. So one side that is definitely false will
//! do, in any place; of `||` both must be. `K == c` is definitely false for an element whose value at the path `K`
//! is another one: values of different types are unequal, and that is no error. Where the path itself fails, as
//! with a missing field, the element is *irregular*: it can matter, but it cannot make the body true by itself, as
//! the value that is looked for is not among those that it has. A guard (`has(x.host) && x.host == c`,
//! `x.?host.orValue('') == c`) says what becomes of a missing field, so it makes none irregular.
//!
//! [`Access::of`] finds the paths in the tree, once for each macro. The values are subexpressions that do not mention
//! the element: they are evaluated where the macro runs, within its scope, so that a loop over the request around a
//! loop over the list asks once for each round.

mod find;
mod path;

use crate::{
    ast::{ExprPath, Macro, MacroKind},
    key_path::KeyPath,
};

/// The access of a macro to its elements.
#[derive(Debug, PartialEq)]
pub(crate) struct Access {
    pub(crate) narrow: Narrow,
}

/// The condition that elements have to meet.
#[derive(Debug, PartialEq)]
pub(crate) enum Narrow {
    Probe(Probe),
    /// Lookups that find different elements, all of which matter.
    Any(Vec<Narrow>),
    /// Each finds all elements that can matter.
    All(Vec<Narrow>),
    /// For each element of another collection, which becomes the variable at `place`.
    Over {
        range: Operand,
        place: usize,
        inner: Box<Narrow>,
    },
}

/// A value at a path that is equal to another value, or to one of a collection.
#[derive(Debug, PartialEq)]
pub(crate) struct Probe {
    pub(crate) key: KeyPath,
    pub(crate) matching: Matching,
    pub(crate) operand: Operand,
}

/// The use of an operand's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matching {
    /// The operand's value is looked for.
    Equal,
    /// The operand is an optional, and its value is looked for.
    OptionalEqual,
    /// The elements of the operand are looked up, or its keys.
    Among,
}

/// A subexpression of the body that does not mention the element.
#[derive(Debug, PartialEq)]
pub(crate) struct Operand {
    /// The path of the operand, from the macro's filter on, or from its body if that decides.
    pub(crate) path: ExprPath,
    /// The variables of macros around it.
    pub(crate) depth: usize,
}

impl Access {
    /// Finds the access of a macro with so many variables of macros around it. `None`: all elements can matter.
    pub(crate) fn of(made: &Macro, place: usize) -> Option<Self> {
        let decided = match (made.kind, made.is_of_pairs) {
            (MacroKind::All, false) => true,
            (MacroKind::Exists | MacroKind::ExistsOne, false) => false,
            (MacroKind::Map, false) if made.filter.is_some() => false,
            _ => return None,
        };
        let narrow = find::find(made.deciding(), place, decided)?;
        Some(Self { narrow })
    }
}

#[cfg(test)]
mod tests;
