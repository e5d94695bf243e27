//! The context of a rule: the request, and the entries as far as anybody refers to them.
//!
//! An entry is loaded when an expression looks it up, not before. Evaluation finds that out by
//! itself: the root that it reads says which entry it missed, the entry is loaded, and the expression
//! is evaluated again. An entry sees the entries before it, so none can wait for itself.

mod fact;
mod root;
mod states;
mod subquery;

use std::sync::Arc;

use anteroom_functions::{functions, meter};
use anteroom_jmespath::{Budget, Environment, EvalError, MissingKey, ast::Expr, json_memory};
use anteroom_model::limits::RESULT_BYTES_MAX;
use serde_json::Value;

use super::{
    facts::Facts,
    interrupt::Interrupt,
    limits::{COPIED_BYTES_MAX, VALUES_BYTES_MAX},
    run_state::RunState,
};
use crate::ir::{
    AdmissionRequest, Operation, VariableError, VariableErrorKind,
    context::{ContextEntry, Loader},
    subquery::Pushdown,
    template::{Bound, Prepared, Resolve, ValueTemplate},
};
use root::Root;
pub(super) use states::States;
use states::{EntryState, LoadedValue};

/// The most bytes that an expression in a rule builds on the way.
const BUILT_BYTES_MAX: u64 = RESULT_BYTES_MAX as u64;

/// Memory of a value that is copied in one step, where the copy is kept: a review may take 10 million steps, and so copies
/// of 80 MB.
const COPIED_BYTES_PER_STEP: u64 = 8;

/// Steps of one expression in a rule, about a tenth of a second of work: a list of 100,000 facts is
/// filtered well within it.
const STEPS_MAX: u64 = 2_000_000;

/// The context at one place of a rule.
pub(super) struct Scope<'e> {
    pub(super) request: &'e AdmissionRequest,
    /// The namespace of a `Policy`, which reads nothing outside it.
    pub(super) namespace: Option<&'e str>,
    pub(super) entries: &'e [Arc<ContextEntry>],
    pub(super) states: &'e mut States,
    pub(super) facts: &'e mut Facts,
    pub(super) run: &'e mut RunState,
    pub(super) pushdown: &'e Pushdown,
    /// The number of entries that are visible here.
    pub(super) visible: usize,
}

impl Resolve for Scope<'_> {
    type Interrupt = Interrupt;

    fn is_delete(&self) -> bool {
        self.request.operation() == Operation::Delete
    }

    fn evaluate(&mut self, prepared: &Prepared) -> Result<Arc<Value>, Interrupt> {
        if let Some(value) = self.asked_value(prepared)? {
            return Ok(value);
        }
        let bound = prepared.bind(self)?;
        self.search(&bound, prepared.source())
    }

    fn copy(&mut self, value: &Value) -> Result<(), Interrupt> {
        let bytes = json_memory::copied_bytes(value, self.copied_bytes_max());
        self.charge_copy(bytes.unwrap_or(u64::MAX))
    }

    fn bind_value(&mut self, bytes: u64, beside: u64) -> Result<u64, Interrupt> {
        let all = beside.saturating_add(bytes);
        let is_charged =
            all <= self.copied_bytes_max() && meter::charge(bytes / json_memory::STEP_BYTES);
        match is_charged {
            true => Ok(all),
            false => Err(too_large_to_copy()),
        }
    }

    fn search(&mut self, bound: &Bound, written: &str) -> Result<Arc<Value>, Interrupt> {
        let found = self.searched(bound, written)?;
        found.map_err(|error| self.variable_error(written, &error).into())
    }
}

enum SearchOutcome {
    Done(Value),
    Missed(usize),
    /// A part of the request that it reads cannot be determined.
    Undetermined(String),
    Failed(EvalError),
}

impl Scope<'_> {
    /// Evaluates an expression: its value, or an error of its own. Errors of its entries interrupt.
    fn searched(
        &mut self,
        bound: &Bound,
        written: &str,
    ) -> Result<Result<Arc<Value>, EvalError>, Interrupt> {
        if let Some(value) = self.lone_entry(bound)? {
            return Ok(Ok(value));
        }
        // Each search but the last loads an entry, so there is an end to it.
        loop {
            match self.search_once(bound) {
                SearchOutcome::Done(value) => return Ok(Ok(Arc::new(value))),
                SearchOutcome::Missed(entry) => self.load(entry)?,
                SearchOutcome::Undetermined(message) => {
                    return Err(Interrupt::Variable(VariableError {
                        expression: written.to_owned(),
                        message,
                        kind: VariableErrorKind::Failed,
                    }));
                }
                SearchOutcome::Failed(error) => return Ok(Err(error)),
            }
        }
    }

    fn search_once(&self, bound: &Bound) -> SearchOutcome {
        let root = Root::new(self.request, &self.entries[..self.visible], self.states);
        let result = self.charged(bound, |environment, left| {
            let value = bound
                .expression
                .evaluate_out_of(root.node(), environment, left)?;
            value.to_json_out_of(left)
        });
        // A result that was computed without the entry means nothing.
        match (root.missed(), root.untold(), result) {
            (Some(entry), ..) => SearchOutcome::Missed(entry),
            (None, Some(reason), _) => SearchOutcome::Undetermined(reason.to_owned()),
            (None, None, Ok(value)) => SearchOutcome::Done(value),
            (None, None, Err(error)) => SearchOutcome::Failed(error),
        }
    }

    /// The value of an expression that is the name of an entry and nothing else: by far the most
    /// common one, and its value may be large, so it is shared and not copied.
    fn lone_entry(&mut self, bound: &Bound) -> Result<Option<Arc<Value>>, Interrupt> {
        let ast = bound.expression.ast();
        let Expr::Field(name) = ast.expr(ast.root()) else {
            return Ok(None);
        };
        let Some(entry) = self.find(name) else {
            return Ok(None);
        };
        if matches!(self.states.0[entry], EntryState::Unloaded) {
            self.load(entry)?;
        }
        Ok(match &self.states.0[entry] {
            EntryState::Loaded(loaded) => Some(Arc::clone(&loaded.value)),
            EntryState::Unloaded | EntryState::Absent(_) => None,
        })
    }

    /// Returns the index of the last visible entry with the name.
    fn find(&self, name: &str) -> Option<usize> {
        self.entries[..self.visible]
            .iter()
            .rposition(|entry| entry.name == name)
    }

    /// The context as an entry sees it.
    fn before(&mut self, entry: usize) -> Scope<'_> {
        Scope {
            request: self.request,
            namespace: self.namespace,
            entries: self.entries,
            states: self.states,
            facts: self.facts,
            run: self.run,
            pushdown: self.pushdown,
            visible: entry,
        }
    }

    fn load(&mut self, entry: usize) -> Result<(), Interrupt> {
        let entries = self.entries;
        let mut before = self.before(entry);
        let name = &entries[entry].name;
        let state = match &entries[entry].loader {
            Loader::Fact(fact) => match before.load_fact(name, fact)? {
                Some(value) => EntryState::Loaded(LoadedValue::new(value)),
                None => EntryState::Absent(left_out(name)),
            },
            // Never unloaded: see `States::within`.
            Loader::Given => EntryState::Loaded(LoadedValue::new(Arc::new(Value::Null))),
            Loader::Variable {
                value,
                query,
                default,
            } => {
                let (value, query) = (value.as_ref(), query.as_ref());
                let loaded = before.load_variable(name, value, query, default.as_ref());
                let loaded = loaded.map_err(|interrupt| without_value(name, interrupt))?;
                EntryState::Loaded(LoadedValue::new(loaded))
            }
        };
        self.states.0[entry] = state;
        // An element's own entries are loaded anew in each step.
        let is_given = |entry: &Arc<ContextEntry>| matches!(entry.loader, Loader::Given);
        if !entries[..entry].iter().any(is_given) {
            self.run.keep_drawn();
        }
        Ok(())
    }

    /// Returns the variable's value, or the query's result over that value or over the context. If there is no
    /// result, returns the default. Without a default, each reference to the variable fails, and `||` does not catch
    /// that error: the variable exists.
    fn load_variable(
        &mut self,
        name: &str,
        value: Option<&ValueTemplate>,
        query: Option<&Prepared>,
        default: Option<&ValueTemplate>,
    ) -> Result<Arc<Value>, Interrupt> {
        let found = match (value, query) {
            (Some(value), None) => value.value(self),
            (Some(value), Some(query)) => {
                let document = value.value(self)?;
                let bound = query.bind(self)?;
                self.query_document(&document, &bound, query.source())
            }
            (None, Some(query)) => self.evaluate(query),
            (None, None) => Ok(Arc::new(Value::Null)),
        };
        let default = default.filter(|_| query.is_some());
        let (reason, default) = match found {
            Ok(found) if !found.is_null() => return Ok(found),
            Ok(_) => {
                // No key is missing, so a `foreach` over it is not passed over.
                let nothing = VariableError {
                    expression: name.to_owned(),
                    message: format!(
                        "context entry `{name}` has no value: it came to null, and has no default"
                    ),
                    kind: VariableErrorKind::Failed,
                };
                // As in Kyverno, none stands in for a null within a value of the variable's own.
                (nothing, default.filter(|_| value.is_none()))
            }
            // A default stands in for what is not there or does not fit, as in Kyverno; not for what
            // could not be read or computed to the end.
            Err(Interrupt::Variable(error)) if error.kind != VariableErrorKind::OverBudget => {
                (error, default)
            }
            Err(interrupt) => return Err(interrupt),
        };
        default.map_or(Err(reason.into()), |default| default.value(self))
    }

    /// A query over a value by itself, which sees nothing of the context.
    fn query_document(
        &self,
        document: &Value,
        bound: &Bound,
        written: &str,
    ) -> Result<Arc<Value>, Interrupt> {
        let result = self.charged(bound, |environment, left| {
            let value = bound
                .expression
                .evaluate_out_of(document, environment, left)?;
            value.to_json_out_of(left)
        });
        let result = result.map(Arc::new);
        result.map_err(|error| variable_error(written, &error).into())
    }

    fn environment<'b>(&'b self, bound: &'b Bound) -> Environment<'b> {
        Environment::standard()
            .with_functions(functions())
            .with_parameters(&bound.parameters)
            .with_missing_key(MissingKey::Error)
            .with_seed(self.run.seed.as_ref())
    }

    /// Evaluates an expression within the budget of one expression, and charges its steps to the review's meter. The
    /// memory and the steps of its result are a part of that.
    fn charged<'e>(
        &'e self,
        bound: &'e Bound,
        evaluate: impl FnOnce(&Environment<'e>, &mut Budget) -> Result<Value, EvalError>,
    ) -> Result<Value, EvalError> {
        let budget = Budget {
            steps: STEPS_MAX.min(meter::left()),
            built_bytes: BUILT_BYTES_MAX,
            json_bytes: self.value_bytes_left(),
            ..Budget::default()
        };
        let mut left = budget;
        let result = evaluate(&self.environment(bound), &mut left);
        meter::charge(1 + budget.steps - left.steps);
        // It may have done as much work as its budget allows: so an expression that is over any of its limits costs all.
        if let Err(EvalError::Budget { .. }) = &result {
            meter::charge(budget.steps);
        }
        result
    }

    /// Returns the memory that further values of the rule may take.
    pub(super) fn value_bytes_left(&self) -> u64 {
        let held = self.states.bytes().saturating_add(self.run.list_bytes);
        VALUES_BYTES_MAX.saturating_sub(held)
    }

    /// Returns the memory of the elements of a list that a rule goes through, and charges their copy.
    pub(super) fn list_bytes(&self, list: &Value) -> Result<u64, Interrupt> {
        let bytes = json_memory::copied_bytes(list, self.value_bytes_left());
        bytes
            .filter(|bytes| meter::charge(1 + bytes / json_memory::STEP_BYTES))
            .ok_or_else(too_large_to_copy)
    }

    fn copied_bytes_max(&self) -> u64 {
        COPIED_BYTES_MAX.min(self.value_bytes_left())
    }

    /// Charges a copy that takes so much memory and is kept.
    pub(super) fn charge_copy(&self, bytes: u64) -> Result<(), Interrupt> {
        let is_charged =
            bytes <= self.copied_bytes_max() && meter::charge(bytes / COPIED_BYTES_PER_STEP);
        match is_charged {
            true => Ok(()),
            false => Err(too_large_to_copy()),
        }
    }

    /// Returns a value as one of its own. A copy of a shared one is charged.
    pub(super) fn owned(&mut self, value: Arc<Value>) -> Result<Value, Interrupt> {
        if Arc::strong_count(&value) > 1 {
            self.copy(&value)?;
        }
        Ok(Arc::unwrap_or_clone(value))
    }

    /// Says of an entry that came to nothing why it did.
    fn variable_error(&self, written: &str, error: &EvalError) -> VariableError {
        let mut described = variable_error(written, error);
        if let EvalError::MissingKey { key } = error
            && let Some(entry) = self.find(key)
            && let EntryState::Absent(reason) = &self.states.0[entry]
        {
            described.message = format!(
                "{}: context entry `{key}` has no value: {reason}",
                described.message
            );
        }
        described
    }
}

/// The error of a value that takes more memory, or more steps, than there are for copies.
fn too_large_to_copy() -> Interrupt {
    Interrupt::Variable(VariableError {
        expression: "a value that is made of others".to_owned(),
        message: "it is too large to be copied".to_owned(),
        kind: VariableErrorKind::OverBudget,
    })
}

/// Says of a variable which one came to nothing, and why.
fn without_value(name: &str, interrupt: Interrupt) -> Interrupt {
    match interrupt {
        Interrupt::Variable(error) if error.kind == VariableErrorKind::Missing => {
            Interrupt::Variable(VariableError {
                message: format!("context entry `{name}` has no value: {error}"),
                expression: name.to_owned(),
                kind: error.kind,
            })
        }
        other => other,
    }
}

/// Returns the error of an entry that the driver goes on without.
fn left_out(name: &str) -> VariableError {
    VariableError {
        expression: name.to_owned(),
        message: "nobody gives it a value".to_owned(),
        kind: VariableErrorKind::Missing,
    }
}

fn variable_error(written: &str, error: &EvalError) -> VariableError {
    VariableError {
        expression: written.to_owned(),
        message: error.to_string(),
        kind: match error {
            EvalError::MissingKey { .. } => VariableErrorKind::Missing,
            EvalError::Budget { .. } => VariableErrorKind::OverBudget,
            _ => VariableErrorKind::Failed,
        },
    }
}
