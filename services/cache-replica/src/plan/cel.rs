//! Compiled expressions of CEL, kept for the next query of the same text.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anteroom_cel::{Dialect, ListInput, Names, Program, ReadDepth};
use anteroom_model::{FactError, RetainedFields, Shape};
use anteroom_wire::query::{CelQuery, Query, VIEW};
use moka::sync::Cache;
use parking_lot::Mutex;

/// The most memory of all plans.
const PLANS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The memory of a plan for each byte of its texts: nodes of its syntax tree, mostly.
const PLAN_BYTES_PER_TEXT_BYTE: usize = 32;

/// The memory of a plan beyond its texts.
const PLAN_BYTES_MIN: usize = 512;

/// An expression with its variables.
#[derive(Debug)]
pub(crate) struct CelPlan {
    pub(crate) program: Program,
    pub(crate) variables: Vec<Program>,
    names: Names,
    /// The fields that the expression reads of each object, by the shapes of its documents.
    reads: Mutex<Option<(Vec<Shape>, Arc<RetainedFields>)>>,
    /// Equal data and parameters give an equal result.
    pub(crate) is_deterministic: bool,
    /// The last evaluation took longer than one may where calls arrive.
    is_long: AtomicBool,
}

impl CelPlan {
    /// Returns whether the last evaluation took long.
    pub(crate) fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }

    /// The fields that it reads of each object, where the documents have these names and shapes.
    pub(crate) fn reads(&self, documents: &[(&str, Shape)]) -> Arc<RetainedFields> {
        let shapes = documents.iter().map(|(_, shape)| *shape);
        let shapes: Vec<_> = shapes.collect();
        if let Some((known, reads)) = &*self.reads.lock()
            && *known == shapes
        {
            return Arc::clone(reads);
        }
        let documents: Vec<_> = documents
            .iter()
            .map(|(name, shape)| as_document(name, *shape))
            .collect();
        let mut reads = RetainedFields::default();
        let mut tell = |path: &[Box<str>], depth: ReadDepth| {
            match depth {
                ReadDepth::Touched => reads.touch(path),
                ReadDepth::Whole => reads.keep(path),
            };
        };
        let (names, variables) = (&self.names, &self.variables);
        self.program
            .object_reads(names, variables, &documents, &mut tell);
        let reads = Arc::new(reads);
        *self.reads.lock() = Some((shapes, Arc::clone(&reads)));
        reads
    }

    /// Notes whether an evaluation took long.
    pub(crate) fn took_long(&self, is_long: bool) {
        self.is_long.store(is_long, Ordering::Relaxed);
    }
}

fn as_document(name: &str, shape: Shape) -> ListInput<'_> {
    match shape {
        Shape::Document | Shape::List => ListInput::List(name),
        Shape::Array => ListInput::Array(name),
        Shape::Object | Shape::Response => ListInput::Object(name),
    }
}

/// Compiles each expression once, and remembers compile errors too.
#[derive(Debug)]
pub(crate) struct CelPlans(Cache<Arc<str>, Result<Arc<CelPlan>, FactError>>);

impl CelPlans {
    pub(crate) fn new() -> Self {
        let weigh = |key: &Arc<str>, _: &Result<Arc<CelPlan>, FactError>| {
            let bytes = key.len() * PLAN_BYTES_PER_TEXT_BYTE + PLAN_BYTES_MIN;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(PLANS_BYTES_MAX);
        Self(cache.weigher(weigh).build())
    }

    /// Returns the size of all plans in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weighted_size()
    }

    /// The plan of a query, whose texts are within their limits.
    pub(crate) fn get(&self, query: &Query, cel: &CelQuery) -> Result<Arc<CelPlan>, FactError> {
        let key = key(query, cel);
        if let Some(plan) = self.0.get(&*key) {
            return plan;
        }
        let plan = compile(query, cel).map(Arc::new);
        self.0.insert(key.into(), plan.clone());
        plan
    }
}

/// The names of the inputs, in order: the documents, the parameters, those that are errors.
pub(crate) fn inputs<'q>(query: &'q Query, cel: &'q CelQuery) -> impl Iterator<Item = &'q str> {
    let documents = std::iter::once(VIEW).chain(cel.documents.keys().map(String::as_str));
    let parameters = query.parameters.keys().chain(cel.failed.keys());
    documents.chain(parameters.map(String::as_str))
}

/// Returns a text of everything on which the plan depends.
fn key(query: &Query, cel: &CelQuery) -> String {
    let mut key = String::new();
    let mut add = |text: &str| {
        // The length comes first, so that no text runs into the next text.
        key.push_str(&text.len().to_string());
        key.push(':');
        key.push_str(text);
    };
    add(&cel.expression);
    for (name, text) in &cel.variables {
        add(name);
        add(text);
    }
    add("");
    inputs(query, cel).for_each(add);
    key
}

fn compile(query: &Query, cel: &CelQuery) -> Result<CelPlan, FactError> {
    let mut names = Names::default()
        .in_dialect(Dialect::Kyverno)
        .without_request();
    inputs(query, cel).for_each(|name| names.add_input(name));
    let compiled = |text: &str, names: &Names| {
        Program::compile(text, names).map_err(|error| FactError::ExpressionInvalid {
            message: error.to_string(),
        })
    };
    let mut variables = Vec::with_capacity(cel.variables.len());
    for (name, text) in &cel.variables {
        let variable = compiled(text, &names)?;
        names.define(name, &variable);
        variables.push(variable);
    }
    let program = compiled(&cel.expression, &names)?;
    let is_deterministic = variables
        .iter()
        .chain([&program])
        .all(Program::is_deterministic);
    Ok(CelPlan {
        is_deterministic,
        program,
        variables,
        names,
        reads: Mutex::new(None),
        is_long: AtomicBool::new(false),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn plan(plans: &CelPlans, cel: &CelQuery) -> Result<Arc<CelPlan>, FactError> {
        let parameters = BTreeMap::from([("p0".to_owned(), json!(1))]);
        plans.get(&Query::cel(cel.clone(), Arc::new(parameters), None), cel)
    }

    fn query(expression: &str, variables: &[(&str, &str)]) -> CelQuery {
        let variables = variables.iter();
        CelQuery {
            expression: expression.into(),
            variables: variables
                .map(|(name, text)| ((*name).into(), (*text).into()))
                .collect(),
            ..CelQuery::default()
        }
    }

    #[test]
    fn a_plan_of_cel_is_compiled_once_and_a_bad_one_stays_bad() {
        let plans = CelPlans::new();
        let good = query("variables.n == p0", &[("n", "view.items.size()")]);
        let first = plan(&plans, &good).unwrap();
        assert!(Arc::ptr_eq(&first, &plan(&plans, &good).unwrap()));
        assert_eq!(first.variables.len(), 1);
        for bad in [
            "view.items[",
            "object.a",
            "p1",
            "variables.n",
            "request.name",
        ] {
            for _ in 0..2 {
                let error = plan(&plans, &query(bad, &[])).unwrap_err();
                assert!(
                    matches!(error, FactError::ExpressionInvalid { .. }),
                    "{bad}"
                );
            }
        }
    }

    #[test]
    fn texts_that_differ_in_where_they_end_are_different_plans() {
        let (one, other) = (query("1", &[("a", "23")]), query("1", &[("a2", "3")]));
        let of = |cel: &CelQuery| key(&Query::cel(cel.clone(), Arc::default(), None), cel);
        assert_ne!(of(&one), of(&other));
    }
}
