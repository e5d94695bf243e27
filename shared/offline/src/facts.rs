//! Facts where there is no cluster.
//!
//! The given resources of a kind are all that there are of it. A kind of which none is given is unknown,
//! and so is an entry without data: never an empty list. Where nothing at all was given that could answer
//! (no value, no mock, no resource of the kind), that is told apart: a test goes on without it.

use std::collections::BTreeMap;

use anteroom_functions::query_functions;
use anteroom_jmespath::{Budget, Environment, Expression, MissingKey};
use anteroom_model::{EntryKind, FactError, limits::RESULT_MEMORY_BYTES_MAX};
use anteroom_policy::{FactRequest, FactSubject, Reference, ResolvedApiCall, ViewBackedRead};
use serde_json::{Map, Value, json};

use crate::{
    context::Context,
    declared::{self, DeclaredEntry},
    given_objects::{ObjectType, with_plural},
    resource::Resource,
    suite::{ApiCallResponse, EntryData, ProjectionData, ResponseData},
    values::{RuleValues, put, segments},
};

/// Data that stand in for a cluster's.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) entries: Vec<EntryData>,
    /// The declared entries that keep some of the resources.
    pub(crate) declared: Vec<DeclaredEntry>,
    pub(crate) responses: Vec<ApiCallResponse>,
    pub(crate) resources: Vec<Resource>,
    /// Resources that are in the cluster, and are not judged.
    pub(crate) cluster: Vec<Resource>,
    /// The objects that rules with `mutate.targets` change, beside the resources.
    pub(crate) targets: Vec<Resource>,
    /// The content of a `Context` file: to policies in CEL its resources are all that there are.
    pub(crate) context: Option<Context>,
    /// Set if there is a cluster. Without a cluster, the resources answer no API calls, and rules read no ConfigMaps
    /// among them. `None`: unspecified; resources then answer API calls.
    pub(crate) is_cluster: Option<bool>,
}

impl World {
    /// Adds the contents of a second world. If both have something by the same name, the first world's counts.
    pub(crate) fn unite(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.declared.extend(other.declared);
        self.responses.extend(other.responses);
        self.resources.extend(other.resources);
        self.cluster.extend(other.cluster);
        self.targets.extend(other.targets);
        match (&mut self.context, other.context) {
            (Some(own), Some(other)) => own.unite(other),
            (own @ None, other) => *own = other,
            (Some(_), None) => {}
        }
        self.is_cluster = self.is_cluster.max(other.is_cluster);
    }
}

/// The facts for a rule on a resource.
pub(crate) struct Facts<'a> {
    world: &'a World,
    /// The values of the rule's context entries, by name.
    given: Map<String, Value>,
    by_element: &'a BTreeMap<String, Vec<Value>>,
    /// The resource's namespace, and its labels.
    within: (&'a str, Map<String, Value>),
    /// The namespace of a `Policy`, which reads nothing outside it.
    home: Option<&'a str>,
    /// The Namespace as values give it.
    namespace: Option<Value>,
}

impl<'a> Facts<'a> {
    /// `of_resource` is what the policy is given for the resource, by path.
    pub(crate) fn new(
        world: &'a World,
        of_resource: &Map<String, Value>,
        of_rule: &'a RuleValues,
    ) -> Self {
        let mut given = Map::new();
        for (path, value) in of_resource.iter().chain(&of_rule.values) {
            put(&mut given, &segments(path), value.clone());
        }
        Self {
            world,
            given,
            by_element: &of_rule.by_element,
            within: ("", Map::new()),
            home: None,
            namespace: None,
        }
    }

    /// Sets the namespace of the policy; `None`: the policy is cluster-wide.
    pub(crate) fn of_policy(mut self, home: Option<&'a str>) -> Self {
        self.home = home;
        self
    }

    /// Gives the name and the labels of the resource's namespace, if nothing else of it is known.
    pub(crate) fn within(mut self, namespace: &'a str, labels: Map<String, Value>) -> Self {
        self.within = (namespace, labels);
        self
    }

    /// With the resource's Namespace as values give it, if they do. It counts before one among the resources.
    pub(crate) fn with_namespace(mut self, namespace: Option<Value>) -> Self {
        self.namespace = namespace;
        self
    }

    pub(crate) fn world(&self) -> &World {
        self.world
    }

    /// The values of entries, by their names. The first of those by element stands for every element, as in
    /// Kyverno.
    pub(crate) fn given(&self) -> Map<String, Value> {
        let mut given = self.given.clone();
        for (name, values) in self.by_element {
            given.extend(values.first().map(|value| (name.clone(), value.clone())));
        }
        given
    }

    /// Returns whether the given resources and entries answer for a subject before values do.
    pub(crate) fn is_before_values(&self, subject: &FactSubject) -> bool {
        self.world.is_before_values(subject)
    }

    /// Returns the value where a rule looks. What answers beside values counts before them, as in Kyverno; of two
    /// objects the given one's other fields are kept.
    pub(crate) fn answer(&self, request: &FactRequest) -> Result<Value, Unanswered> {
        let mut given = self.given();
        let Some(given) = given.remove(&request.variable) else {
            return self.sought(request);
        };
        if !self.world.is_before_values(&request.subject) {
            return Err(Unanswered::Given);
        }
        match self.sought(request) {
            Ok(found) => Ok(over(given, found)),
            Err(Unanswered::Failed(error)) if is_answer(&error) => Err(Unanswered::Failed(error)),
            Err(_) => Err(Unanswered::Given),
        }
    }

    /// Returns the value where a rule looks, whatever values are given.
    fn sought(&self, request: &FactRequest) -> Result<Value, Unanswered> {
        let data = match &request.subject {
            subject if self.world.is_cluster == Some(false) && asks_cluster(subject) => {
                let response = match subject {
                    FactSubject::Api(call) => self.world.response(&call.path, call.data.is_some()),
                    _ => None,
                };
                let response = response.ok_or_else(|| nothing(&subject.to_string()))?;
                response.data(&subject.to_string())?
            }
            FactSubject::Entry {
                kind,
                name,
                projection,
            } => self.world.entry(*kind, name, projection, self.home)?,
            FactSubject::Collection(collection) => self.world.document(collection)?,
            FactSubject::Api(subject) => self.world.call(subject)?,
            FactSubject::ConfigMap { object, .. } => {
                let object = self
                    .world
                    .object(ObjectType::new("", "configmaps"), object)?;
                json!({"data": object.get("data").cloned().unwrap_or(json!({})),
                       "metadata": object["metadata"]})
            }
            FactSubject::Service { url, data } => {
                let response = self.world.response(url, data.is_some());
                response.ok_or_else(|| nothing(url))?.data(url)?
            }
            FactSubject::NamespaceLabels { namespace }
                if self.within.0 == namespace && self.namespace.is_some() =>
            {
                self.named_namespace(namespace)
            }
            FactSubject::NamespaceLabels { namespace } => match self.world.namespace(namespace) {
                Err(_) if self.within.0 == namespace => json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": namespace, "labels": self.within.1},
                }),
                found => found?.clone(),
            },
            FactSubject::Existing(wanted) => return self.world.existing(wanted),
            FactSubject::Image { reference, .. } => {
                let context = self.world.context.as_ref();
                let data = context.and_then(|context| context.image(reference));
                data.ok_or_else(|| nothing(&request.subject.to_string()))?
                    .clone()
            }
            other => return Err(nothing(&other.to_string())),
        };
        Ok(evaluate(&data, request)?)
    }

    /// Returns the Namespace with the labels that the values give.
    fn named_namespace(&self, name: &str) -> Value {
        let mut namespace = match &self.namespace {
            Some(given) if given["metadata"].is_object() => given.clone(),
            _ => json!({"metadata": {}}),
        };
        namespace["apiVersion"] = "v1".into();
        namespace["kind"] = "Namespace".into();
        namespace["metadata"]["name"] = name.into();
        namespace["metadata"]["labels"] = Value::Object(self.within.1.clone());
        namespace
    }
}

/// Returns whether what was given did answer, with an error, rather than that it does not know. No value stands in then.
fn is_answer(error: &FactError) -> bool {
    matches!(
        error,
        FactError::LiveReadFailed { .. }
            | FactError::EvaluationFailed { .. }
            | FactError::ExpressionInvalid { .. }
            | FactError::ProjectionNotFound { .. }
            | FactError::OutsideNamespace { .. }
    )
}

/// Returns whether only a cluster answers it, rather than an entry of the policy's own.
fn asks_cluster(subject: &FactSubject) -> bool {
    match subject {
        FactSubject::Api(_) | FactSubject::ConfigMap { .. } => true,
        FactSubject::Collection(of) => !of.inline,
        _ => false,
    }
}

/// One value over another: objects are merged.
fn over(below: Value, above: Value) -> Value {
    match (below, above) {
        (Value::Object(mut below), Value::Object(above)) => {
            for (name, value) in above {
                let value = match below.remove(&name) {
                    Some(old) => over(old, value),
                    None => value,
                };
                below.insert(name, value);
            }
            Value::Object(below)
        }
        (_, above) => above,
    }
}

/// The reason why a fact has no answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Unanswered {
    /// Nothing was given that could answer.
    Nothing(FactError),
    /// The given data does not answer.
    Failed(FactError),
    /// The entry's value counts.
    Given,
}

impl From<FactError> for Unanswered {
    fn from(error: FactError) -> Self {
        Self::Failed(error)
    }
}

pub(crate) fn nothing(what: &str) -> Unanswered {
    Unanswered::Nothing(unknown(what))
}

impl World {
    /// Returns whether a subject is answered from here before a value that its entry is given.
    pub(crate) fn is_before_values(&self, subject: &FactSubject) -> bool {
        match subject {
            FactSubject::Entry { kind, name, .. } => {
                !self.entries.is_empty() || self.declares(*kind, name)
            }
            FactSubject::ConfigMap { .. } => self.is_cluster == Some(true),
            FactSubject::Collection(of) => !of.inline && self.is_cluster != Some(false),
            FactSubject::Api(call) => {
                let is_post = call.data.is_some();
                self.is_cluster != Some(false) || self.response(&call.path, is_post).is_some()
            }
            FactSubject::Service { url, data } => self.response(url, data.is_some()).is_some(),
            _ => false,
        }
    }

    /// For a policy of the namespace `home`, if it is in one.
    fn entry(
        &self,
        kind: EntryKind,
        name: &str,
        projection: &str,
        home: Option<&str>,
    ) -> Result<Value, Unanswered> {
        let whole = format!("{name}.{projection}");
        let find = |name: &str| self.entries.iter().find(|entry| entry.name == name);
        // Data may be given under the projection's full name.
        if let Some(entry) = find(&whole).filter(|_| !projection.is_empty()) {
            return Ok(entry.data(kind)?);
        }
        let Some(entry) = find(name) else {
            if let Some(found) = self.declared(kind, name, projection, home) {
                return found;
            }
            if self.entries.is_empty() && self.declared.is_empty() {
                return Err(nothing(name));
            }
            let entry = name.to_owned();
            return Err(FactError::EntryNotFound { kind, entry }.into());
        };
        let data = entry.data(kind)?;
        if projection.is_empty() {
            return Ok(entry.projected(data)?);
        }
        if entry.stands_for_projections {
            return Ok(data);
        }
        let mut all = entry.projections.iter();
        let Some(found) = all.find(|known| known.name == projection) else {
            let known = declared::names(&entry.projections);
            return Err(declared::unknown_projection(name, projection, known));
        };
        Ok(search(&found.path, &data, &Map::new(), false)?)
    }

    fn call(&self, subject: &ResolvedApiCall) -> Result<Value, Unanswered> {
        let is_post = subject.data.is_some();
        if let Some(response) = self.response(&subject.path, is_post) {
            return Ok(response.data(&subject.path)?);
        }
        let Some(by_view) = subject.by_view.as_ref().filter(|_| !is_post) else {
            return Err(nothing(&subject.path));
        };
        let ViewBackedRead {
            reference,
            object,
            namespace,
            label_selector,
            field_selector,
            limit,
        } = by_view;
        let of = match reference {
            Reference::Collection(collection) => ObjectType::of(collection),
            Reference::Object(object) => ObjectType::new(&object.group, &object.resource),
            Reference::LabelledConfigMaps => ObjectType::new("", "configmaps"),
        };
        if let Some(object) = object {
            return self.object(of, object).cloned();
        }
        let narrowed = match reference {
            Reference::Collection(of) => {
                !of.label_selector.is_empty() || !of.field_selector.is_empty()
            }
            _ => true,
        };
        if narrowed || !label_selector.is_empty() || !field_selector.is_empty() || limit.is_some() {
            return Err(self.unanswered(of, &subject.path));
        }
        let within = match reference {
            Reference::Collection(of) if namespace.is_empty() => &of.namespace,
            _ => namespace,
        };
        self.list_selected(of, within, |_| true)
    }

    /// Returns the answer that a test gives for a call: of those with its method before those with none.
    pub(crate) fn response(&self, url: &str, is_post: bool) -> Option<&ResponseData> {
        let method = if is_post { "POST" } else { "GET" };
        let is_of = |known: &&ApiCallResponse, wanted: &str| {
            let own = known.method.as_deref().unwrap_or_default();
            known.url_path == url && own.trim().eq_ignore_ascii_case(wanted)
        };
        let find = |wanted| self.responses.iter().find(|known| is_of(known, wanted));
        let found = find(method).or_else(|| find(""));
        found.map(|found| &found.response)
    }
}

impl ResponseData {
    pub(crate) fn data(&self, url: &str) -> Result<Value, FactError> {
        match self.status_code {
            Some(code) if code != 0 && !(200..300).contains(&code) => {
                Err(FactError::LiveReadFailed {
                    code,
                    message: format!("{url} answered with {code}"),
                })
            }
            _ => Ok(self.body.clone()),
        }
    }
}

impl EntryData {
    /// Returns the part of the data that `fieldPath` names. Without one, resources have the shape that they have in a
    /// cluster: a document of a `CachedContextEntry`, the objects of a `GlobalContextEntry`.
    fn data(&self, kind: EntryKind) -> Result<Value, FactError> {
        let path = self.field_path.as_deref().filter(|path| !path.is_empty());
        let data = match (&self.data, &self.resources) {
            (Some(data), _) => data.clone(),
            (None, Some(listed)) if kind == EntryKind::Cached && path.is_none() => document(listed),
            (None, Some(listed)) => Value::Array(listed.clone()),
            (None, None) => return Err(unknown(&format!("entry {}", self.name))),
        };
        match path {
            Some(path) => search(path, &data, &Map::new(), false),
            None => Ok(data),
        }
    }

    /// Returns the data for a rule that names no projection: where there are some, all by their names.
    fn projected(&self, data: Value) -> Result<Value, FactError> {
        if self.projections.is_empty() {
            return Ok(data);
        }
        let project = |known: &ProjectionData| {
            let value = search(&known.path, &data, &Map::new(), false)?;
            Ok((known.name.clone(), value))
        };
        let all = self.projections.iter().map(project);
        all.collect::<Result<Map<_, _>, _>>().map(Value::Object)
    }
}

/// Objects as a `CachedContextEntry` has them: under `items`, and under the plural of the first one's kind.
fn document(objects: &[Value]) -> Value {
    let first = objects.first().cloned().and_then(Resource::new);
    with_plural(json!({"items": objects}), first.as_ref())
}

fn evaluate(data: &Value, request: &FactRequest) -> Result<Value, FactError> {
    if request.expression.is_empty() {
        return Ok(data.clone());
    }
    let parameters = (*request.parameters).clone().into_iter().collect();
    let missing_key_is_error = request.missing_key_is_error;
    search(&request.expression, data, &parameters, missing_key_is_error)
}

pub(crate) fn search(
    expression: &str,
    data: &Value,
    parameters: &Map<String, Value>,
    missing_key_is_error: bool,
) -> Result<Value, FactError> {
    let parsed = Expression::parse(expression).map_err(|error| FactError::ExpressionInvalid {
        message: error.to_string(),
    })?;
    let missing_key = match missing_key_is_error {
        true => MissingKey::Error,
        false => MissingKey::Null,
    };
    let environment = Environment::standard()
        .with_functions(query_functions())
        .with_parameters(parameters)
        .with_missing_key(missing_key)
        .with_budget(Budget {
            json_bytes: RESULT_MEMORY_BYTES_MAX as u64,
            ..Budget::default()
        });
    let failed = |error: anteroom_jmespath::EvalError| FactError::EvaluationFailed {
        message: error.to_string(),
    };
    parsed.evaluate_json(data, &environment).map_err(failed)
}

pub(crate) fn unknown(what: &str) -> FactError {
    FactError::RequestInvalid {
        message: format!(
            "{what} is not known offline: give its variable a value, or give the resources that it reads"
        ),
    }
}

#[cfg(test)]
mod tests;
