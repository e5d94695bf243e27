//! Entries that read facts: the questions to ask, with every variable resolved.

use std::sync::Arc;

use anteroom_model::{EntryKind, FactError, ObjectKey};
use serde_json::Value;

use super::Scope;
use crate::{
    evaluate::{
        error::RuleError,
        facts::{AnswerShape, Lookup, Question},
        interrupt::Interrupt,
    },
    ir::{
        FactSubject, ResolvedApiCall, VariableError, VariableErrorKind,
        call::{ApiCall, ConfigMapCall, ServiceCall, check_name, confine},
        context::{ContextFact, FactOrigin},
        template::{Template, ValueTemplate},
    },
};

type FactAnswer = Result<Arc<Value>, FactError>;

/// The fields of a ConfigMap that a rule sees.
const CONFIG_MAP_PARTS: &str = "{data: data, metadata: metadata}";

impl Scope<'_> {
    /// `None`: the fact has no value, and the driver goes on without it. A given value replaces a fact that
    /// the driver leaves out, or that cannot be asked for.
    pub(super) fn load_fact(
        &mut self,
        name: &str,
        fact: &ContextFact,
    ) -> Result<Option<Arc<Value>>, Interrupt> {
        let given = self.facts.given.get(name).map(Arc::clone);
        let question = match self.whole(name, fact) {
            Err(Interrupt::Variable(_)) if given.is_some() => return Ok(given),
            Err(Interrupt::Variable(error))
                if self.facts.goes_without && error.kind == VariableErrorKind::Missing =>
            {
                return Ok(None);
            }
            question => question?,
        };
        let entry = question.subject.to_string();
        let lookup = match self.cut(name, fact, &question)? {
            Some(answer) => Lookup::Answer(answer),
            None => self.facts.look_up(name, question),
        };
        let value = match (lookup, &fact.default) {
            (Lookup::LeftOut, _) => return Ok(given),
            (Lookup::Answer(Ok(value)), _) => self.evaluated_here(name, entry, fact, value),
            (Lookup::Answer(Err(error)), Some(default))
                if error.class().subject.is_said_by_source() =>
            {
                default.value(self)
            }
            (Lookup::Answer(Err(error)), _) => Err(fact_error(name, entry, error)),
            (Lookup::Pending | Lookup::Declined, _) => Err(Interrupt::Pending),
            (Lookup::TooMany, _) => Err(Interrupt::Rule(Box::new(RuleError::TooManyFacts))),
            (Lookup::TooLarge, _) => Err(Interrupt::Rule(Box::new(RuleError::LargeQuestions))),
        };
        value.map(Some)
    }

    /// Evaluates the fact's own expression here, because it could not travel with the question.
    fn evaluated_here(
        &mut self,
        name: &str,
        entry: String,
        fact: &ContextFact,
        value: Arc<Value>,
    ) -> Result<Arc<Value>, Interrupt> {
        let Some(query) = fact.nondeterministic_query() else {
            return Ok(value);
        };
        let bound = query.bind(self)?;
        match self.query_document(&value, &bound, query.source()) {
            Err(Interrupt::Variable(error)) if error.kind == VariableErrorKind::OverBudget => {
                Err(Interrupt::Variable(error))
            }
            // As it would be told by whoever keeps the data.
            Err(Interrupt::Variable(VariableError { message, .. })) => Err(fact_error(
                name,
                entry,
                FactError::EvaluationFailed { message },
            )),
            found => found,
        }
    }

    /// Returns the question for the fields that the rule reads of the fact; `None`: the whole fact is needed.
    fn cut(
        &mut self,
        name: &str,
        fact: &ContextFact,
        whole: &Question,
    ) -> Result<Option<FactAnswer>, Interrupt> {
        let Some(expression) = self
            .pushdown
            .fact_fields(fact.id)
            .filter(|_| self.facts.takes_subqueries())
        else {
            return Ok(None);
        };
        if self.facts.refusal(whole).is_some() {
            return Ok(None);
        }
        let question = Question {
            expression: expression.as_str().to_owned(),
            is_pushed_down: true,
            ..whole.clone()
        };
        match self.facts.look_up(name, question) {
            Lookup::Answer(Err(error)) if error.class().subject.is_of_query() => Ok(None),
            Lookup::Answer(answer) => Ok(Some(answer)),
            Lookup::Pending => Err(Interrupt::Pending),
            Lookup::TooMany | Lookup::TooLarge | Lookup::Declined | Lookup::LeftOut => Ok(None),
        }
    }

    /// The question for all that the entry's own expression gives.
    pub(super) fn whole(&mut self, name: &str, fact: &ContextFact) -> Result<Question, Interrupt> {
        let subject = self.subject(name, &fact.source)?;
        let bound = fact.pushed_down_query().map(|query| query.bind(self));
        let bound = bound.transpose()?;
        let is_config_map = matches!(subject, FactSubject::ConfigMap { .. });
        let (expression, parameters) = match bound {
            Some(bound) => (bound.expression.as_str().to_owned(), bound.parameters),
            None if is_config_map => (CONFIG_MAP_PARTS.to_owned(), Default::default()),
            None => Default::default(),
        };
        Ok(Question {
            subject,
            expression,
            parameters: Arc::new(parameters),
            missing_key_is_error: !is_config_map,
            age_max_ms: fact.age_max_ms,
            is_pushed_down: false,
            is_large: true,
            reading: AnswerShape::AsItIs,
            cel: None,
        })
    }

    fn subject(&mut self, name: &str, source: &FactOrigin) -> Result<FactSubject, Interrupt> {
        match source {
            FactOrigin::Entry { kind, name: entry } => self.entry_target(name, *kind, entry),
            FactOrigin::Collection(collection) => Ok(FactSubject::Collection(collection.clone())),
            FactOrigin::Api(call) => self.api_target(name, call),
            FactOrigin::Service(call) => self.service_target(name, call),
            FactOrigin::ConfigMap(call) => self.config_map_target(name, call),
            FactOrigin::Image(image) => Ok(FactSubject::Image {
                reference: image.reference.text(self)?,
                credentials: image.credentials.clone(),
            }),
        }
    }

    fn entry_target(
        &mut self,
        variable: &str,
        kind: EntryKind,
        name: &Template,
    ) -> Result<FactSubject, Interrupt> {
        let text = name.text(self)?;
        let (entry, projection) = match (kind, text.split_once('.')) {
            (EntryKind::Global, Some((entry, projection))) => (entry, projection),
            _ => (text.as_str(), ""),
        };
        if let Err(message) = check_name(entry) {
            return Err(refused(variable, "name", name.refuse(message)));
        }
        Ok(FactSubject::Entry {
            kind,
            name: entry.to_owned(),
            projection: projection.to_owned(),
        })
    }

    fn api_target(&mut self, variable: &str, call: &ApiCall) -> Result<FactSubject, Interrupt> {
        let path = call.path.render(self)?;
        let path = path.map_err(|error| refused(variable, "urlPath", error))?;
        confine(self.namespace, &path)
            .map_err(|error| fact_error(variable, path.to_string(), error))?;
        Ok(FactSubject::Api(ResolvedApiCall {
            data: self.data(call.data.as_ref())?,
            by_view: call.by_view.as_ref().and_then(|plan| plan.read(&path)),
            path: path.to_string(),
        }))
    }

    fn service_target(
        &mut self,
        variable: &str,
        call: &ServiceCall,
    ) -> Result<FactSubject, Interrupt> {
        let url = call.url.render(self)?;
        let url = url.map_err(|error| refused(variable, "service.url", error))?;
        Ok(FactSubject::Service {
            url,
            data: self.data(call.data.as_ref())?,
        })
    }

    /// Returns what a call sends.
    fn data(&mut self, data: Option<&ValueTemplate>) -> Result<Option<Value>, Interrupt> {
        let Some(data) = data else {
            return Ok(None);
        };
        let value = data.value(self)?;
        self.owned(value).map(Some)
    }

    fn config_map_target(
        &mut self,
        variable: &str,
        call: &ConfigMapCall,
    ) -> Result<FactSubject, Interrupt> {
        let mut part = |template: &Template, field| -> Result<String, Interrupt> {
            let value = template.value(self)?;
            let problem = match value.as_str() {
                Some("") if field == "namespace" => None,
                Some(text) => check_name(text).err(),
                None => Some("a string is expected".to_owned()),
            };
            match (problem, value.as_str()) {
                (None, Some(text)) => Ok(text.to_owned()),
                (problem, _) => {
                    let error = template.refuse(problem.unwrap_or_default());
                    Err(refused(variable, field, error))
                }
            }
        };
        let namespace = part(&call.namespace, "namespace")?;
        let name = part(&call.name, "name")?;
        let namespace = call.or_home(&namespace, self.namespace);
        let subject = FactSubject::ConfigMap {
            object: ObjectKey::new(namespace, name.as_str()),
            literal: call.literal(self.namespace).is_some(),
        };
        match self.namespace {
            Some(own) if own != namespace => {
                let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
                let namespace = own.to_owned();
                let error = FactError::PathOutsideNamespace { path, namespace };
                Err(fact_error(variable, subject.to_string(), error))
            }
            _ => Ok(subject),
        }
    }
}

fn fact_error(variable: &str, entry: String, source: FactError) -> Interrupt {
    Interrupt::Rule(Box::new(RuleError::Fact {
        variable: variable.to_owned(),
        entry,
        source,
    }))
}

/// Returns the error for a value that cannot stand in a field. No default replaces it: the value may have been made
/// to fail.
fn refused(variable: &str, field: &str, source: VariableError) -> Interrupt {
    Interrupt::Rule(Box::new(RuleError::Variable {
        place: format!("context entry `{variable}`: {field}"),
        source,
    }))
}
