//! The fields of the request's object that an expression reads, and the literals beside them.
//!
//! This is for guiding a search, so it knows both languages roughly: names, fields, calls, macros and projections. A
//! field too many costs some requests, and one too few some chances to find a difference; neither makes a
//! difference that is none.

mod reader;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::reader::TokenReader;
use super::{
    place::{Place, PlaceStep, place},
    token::Language,
};

/// The most steps of a place.
const STEPS_MAX: usize = 16;

/// The places that names in an expression stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct NameScope(BTreeMap<String, Reached>);

impl NameScope {
    pub(super) fn bind(&mut self, name: String, reached: Reached) {
        self.0.insert(name, reached);
    }
}

/// The places that a value may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) places: BTreeSet<Place>,
    /// It is a list of what is at the places, and not what is there.
    is_listed: bool,
    /// The value is built from values at the places, so its fields are no fields of the object.
    is_made: bool,
    /// Its fields are those of a request, or the policy's variables.
    is_root: Option<&'static str>,
}

impl Reached {
    pub(super) fn object() -> Self {
        Self {
            places: BTreeSet::from([Place::new()]),
            ..Self::default()
        }
    }

    fn at(texts: &[&str]) -> Self {
        Self {
            places: texts.iter().map(|text| place(text)).collect(),
            ..Self::default()
        }
    }

    fn made(self) -> Self {
        Self {
            is_made: true,
            is_root: None,
            ..self
        }
    }

    fn step(&self, step: &PlaceStep) -> Self {
        if self.is_made {
            return self.clone();
        }
        let below = |place: &Place| [place, std::slice::from_ref(step)].concat();
        let places = self.places.iter().filter(|place| place.len() < STEPS_MAX);
        Self {
            places: places.map(below).collect(),
            ..Self::default()
        }
    }

    /// Its elements, if it is a list.
    pub(super) fn each(&self) -> Self {
        match self.is_listed {
            true => Self {
                is_listed: false,
                ..self.clone()
            },
            false => self.step(&PlaceStep::Each),
        }
    }

    fn unite(&mut self, other: Self) {
        self.places.extend(other.places);
        self.is_listed |= other.is_listed;
        self.is_made |= other.is_made;
    }
}

/// The parts of an expression that guide a search.
#[derive(Debug, Default)]
pub(super) struct ExpressionParts {
    pub(super) places: BTreeSet<Place>,
    pub(super) literals: Vec<Value>,
    /// The places from which the value may come.
    pub(super) reached: Reached,
}

/// Reads an expression.
pub(super) fn read(source: &str, language: Language, scope: &NameScope) -> ExpressionParts {
    TokenReader::new(source, language, scope).read()
}

#[cfg(test)]
mod tests;
