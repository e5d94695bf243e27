//! One question, answered by a scan and by what indexes find.

use std::collections::{BTreeMap, HashMap};

use anteroom_jmespath::{Environment, Expression, MissingKey};
use anteroom_model::{FactError, Shape};
use anteroom_plan::{
    Document, Index, IndexKey, Language, LookupOptions, Narrow, Probe, narrow, selected,
};
use anteroom_view::{Object, Select, Snapshot};
use anteroom_wire::query::Selection;
use bytes::Bytes;
use serde_json::Value;

pub(crate) fn language() -> Language {
    Language {
        functions: anteroom_functions::query_functions(),
        matches: anteroom_functions::wildcard::matches,
    }
}

/// An expression with its parameters, and the selection to evaluate on.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) expression: String,
    pub(crate) parameters: BTreeMap<String, Value>,
    pub(crate) missing_key_is_error: bool,
    pub(crate) selection: Selection,
    /// The number of the alternative that is taken where there are several.
    pub(crate) way: usize,
}

/// The result for a question by indexes.
pub(crate) struct Found {
    pub(crate) value: Result<Bytes, FactError>,
    pub(crate) objects: usize,
}

impl Question {
    fn environment(&self) -> Environment<'_> {
        Environment {
            functions: anteroom_functions::query_functions(),
            parameters: &self.parameters,
            missing_key: match self.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            ..Environment::standard()
        }
    }

    pub(crate) fn scanned(
        &self,
        expression: &Expression,
        state: &Snapshot,
    ) -> Result<Bytes, FactError> {
        let select = Select::new(&self.selection)?;
        let selected = select.apply(state.read())?;
        selected.evaluate(expression, &self.environment())
    }

    /// Evaluates by indexes, which are kept from one state to the next; `None` where it takes a scan.
    pub(crate) fn looked_up(
        &self,
        expression: &Expression,
        state: &Snapshot,
        indexes: &mut HashMap<IndexKey, Index>,
    ) -> Option<Found> {
        let select = Select::new(&self.selection).unwrap();
        let read = state.read();
        let document = match select.shape() {
            Shape::Array => Document::Array,
            _ => Document::List {
                plural: select.plural(read),
            },
        };
        let narrow = narrow(expression, document).ok();
        let narrow = selected(narrow.as_ref(), select.labels())?;
        let mut found = self.found(&narrow, state, &select, indexes)?;
        found.sort();
        found.dedup();
        let selected = select.among(read, found.iter())?;
        Some(Found {
            value: selected.evaluate(expression, &self.environment()),
            objects: found.len(),
        })
    }

    fn found(
        &self,
        narrow: &Narrow,
        state: &Snapshot,
        select: &Select,
        indexes: &mut HashMap<IndexKey, Index>,
    ) -> Option<Vec<Object>> {
        match narrow {
            Narrow::Probe(probe) => self.probed(probe, state, select, indexes),
            Narrow::Any(parts) => {
                let mut found = Vec::new();
                for part in parts {
                    found.extend(self.found(part, state, select, indexes)?);
                }
                Some(found)
            }
            Narrow::All(ways) => {
                let way = &ways[self.way % ways.len()];
                self.found(way, state, select, indexes)
            }
        }
    }

    fn probed(
        &self,
        probe: &Probe,
        state: &Snapshot,
        select: &Select,
        indexes: &mut HashMap<IndexKey, Index>,
    ) -> Option<Vec<Object>> {
        let key = IndexKey {
            key: probe.key.clone(),
            missing_key_is_error: self.missing_key_is_error,
            bare: select.is_bare(state.read()),
        };
        let index = indexes
            .entry(key.clone())
            .or_insert_with(|| Index::new(key, language(), state));
        index.advance(state);
        let options = LookupOptions {
            objects_max: usize::MAX,
            steps_max: usize::MAX,
            admits: &|object| select.admits(object),
            parameters: &self.parameters,
        };
        index.gather(probe, options)
    }
}
