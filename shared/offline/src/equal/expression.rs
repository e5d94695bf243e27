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
    token::Language,
    value_path::{PathStep, ValuePath, path},
};

/// The most steps of a path.
const STEPS_MAX: usize = 16;

/// The paths that names in an expression stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct NameScope(BTreeMap<String, Reached>);

impl NameScope {
    pub(super) fn bind(&mut self, name: String, reached: Reached) {
        self.0.insert(name, reached);
    }
}

/// The paths that a value may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) paths: BTreeSet<ValuePath>,
    /// It is a list of what is at the paths, and not what is there.
    is_listed: bool,
    /// The value is built from values at the paths, so its fields are no fields of the object.
    is_made: bool,
    /// Its fields are those of a request, or the policy's variables.
    is_root: Option<&'static str>,
}

impl Reached {
    pub(super) fn object() -> Self {
        Self {
            paths: BTreeSet::from([ValuePath::new()]),
            ..Self::default()
        }
    }

    fn at(texts: &[&str]) -> Self {
        Self {
            paths: texts.iter().map(|text| path(text)).collect(),
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

    fn step(&self, step: &PathStep) -> Self {
        if self.is_made {
            return self.clone();
        }
        let below = |path: &ValuePath| [path, std::slice::from_ref(step)].concat();
        let paths = self.paths.iter().filter(|path| path.len() < STEPS_MAX);
        Self {
            paths: paths.map(below).collect(),
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
            false => self.step(&PathStep::Each),
        }
    }

    fn unite(&mut self, other: Self) {
        self.paths.extend(other.paths);
        self.is_listed |= other.is_listed;
        self.is_made |= other.is_made;
    }
}

/// The parts of an expression that guide a search.
#[derive(Debug, Default)]
pub(super) struct ExpressionParts {
    pub(super) paths: BTreeSet<ValuePath>,
    pub(super) literals: Vec<Value>,
    /// The paths from which the value may come.
    pub(super) reached: Reached,
}

/// Reads an expression.
pub(super) fn read(source: &str, language: Language, scope: &NameScope) -> ExpressionParts {
    TokenReader::new(source, language, scope).read()
}

#[cfg(test)]
mod tests;
