//! A question about a fact, and how its answer is read.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_jmespath::json_memory;
use anteroom_model::FactError;
use serde_json::Value;

use crate::{
    evaluate::{
        limits::PARAMETERS_BYTES_MAX,
        report::{CelRequest, FactRequest},
    },
    ir::FactSubject,
};

/// A question about a fact.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) subject: FactSubject,
    pub(crate) expression: String,
    pub(crate) parameters: Arc<BTreeMap<String, Value>>,
    pub(crate) missing_key_is_error: bool,
    pub(crate) age_max_ms: Option<u64>,
    /// The question is about one use of the fact, or about the fields that the rule reads.
    pub(crate) is_pushed_down: bool,
    /// The answer may be large.
    pub(crate) is_large: bool,
    pub(crate) reading: AnswerShape,
    /// The request in CEL, if the question is asked in CEL.
    pub(crate) cel: Option<Arc<CelRequest>>,
}

/// The shape in which an answer is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnswerShape {
    /// The answer without any change.
    #[default]
    AsItIs,
    /// An object that may not be there: that the API server has no such object is null.
    ObjectOrNull,
    /// A list whose items say their kind. The API server says that of the list alone.
    ListWithKinds,
}

impl Question {
    /// Returns a question about the expression's whole value, without a limit on the age of the data.
    pub(crate) fn new(
        subject: FactSubject,
        expression: &str,
        parameters: BTreeMap<String, Value>,
    ) -> Self {
        Self {
            subject,
            expression: expression.to_owned(),
            parameters: Arc::new(parameters),
            missing_key_is_error: false,
            age_max_ms: None,
            is_pushed_down: false,
            is_large: false,
            reading: AnswerShape::AsItIs,
            cel: None,
        }
    }

    /// Returns whether another question is about the same subject, read alike.
    pub(crate) fn is_same_subject(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.expression == other.expression
            && self.parameters == other.parameters
            && self.reading == other.reading
            && self.cel == other.cel
    }

    /// Returns the memory of the values in it, as far as a rule may have so much.
    pub(super) fn value_bytes(&self) -> u64 {
        bytes_of(&self.subject, &self.parameters, self.cel.as_deref())
    }

    pub(super) fn is(&self, asked: &FactRequest) -> bool {
        asked.subject == self.subject
            && asked.expression == self.expression
            && asked.parameters == self.parameters
            && asked.missing_key_is_error == self.missing_key_is_error
            && asked.age_max_ms == self.age_max_ms
            && asked.cel == self.cel
    }

    pub(super) fn is_the_same(&self, other: &Self) -> bool {
        self.subject == other.subject
            && self.expression == other.expression
            && self.parameters == other.parameters
            && self.age_max_ms == other.age_max_ms
    }
}

/// Returns the memory of the values in a question that was asked, as far as a rule may have so much.
pub(super) fn value_bytes(asked: &FactRequest) -> u64 {
    bytes_of(&asked.subject, &asked.parameters, asked.cel.as_deref())
}

fn bytes_of(
    subject: &FactSubject,
    parameters: &BTreeMap<String, Value>,
    cel: Option<&CelRequest>,
) -> u64 {
    let data = match subject {
        FactSubject::Api(call) => call.data.as_ref(),
        FactSubject::Service { data, .. } => data.as_ref(),
        _ => None,
    };
    let bytes = |value| {
        let bytes = json_memory::copied_bytes(value, PARAMETERS_BYTES_MAX);
        bytes.unwrap_or(1 + PARAMETERS_BYTES_MAX)
    };
    let values = parameters.values().chain(data).map(bytes);
    let messages = cel.into_iter().flat_map(|cel| cel.failed.values());
    let messages = messages.map(|message| message.len() as u64);
    values.chain(messages).fold(0, u64::saturating_add)
}

impl AnswerShape {
    pub(super) fn read(self, answer: Result<Value, FactError>) -> Result<Value, FactError> {
        match (self, answer) {
            (Self::ObjectOrNull, Err(error)) if is_absence(&error) => Ok(Value::Null),
            (Self::ListWithKinds, Ok(list)) => Ok(with_kinds(list)),
            (_, answer) => answer,
        }
    }
}

/// Returns whether the API server answered that the object does not exist, as in `pods "web" not found`. An unserved
/// path (`404 page not found`) is a different error.
fn is_absence(error: &FactError) -> bool {
    match error {
        FactError::ObjectNotFound { .. } => true,
        FactError::LiveReadFailed { code: 404, message } => message.ends_with("\" not found"),
        _ => false,
    }
}

/// Gives each item of a list the version and kind that the API server writes for the list alone.
fn with_kinds(mut list: Value) -> Value {
    let text = |field: &str| list[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let Some(kind) = kind.strip_suffix("List").filter(|kind| !kind.is_empty()) else {
        return list;
    };
    let items = list.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !item.contains_key("kind") {
            item.insert("apiVersion".to_owned(), version.clone().into());
            item.insert("kind".to_owned(), kind.into());
        }
    }
    list
}
