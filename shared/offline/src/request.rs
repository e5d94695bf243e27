//! The request that a resource stands for.

use std::path::Path;

use anteroom_policy::{AdmissionRequest, Operation, RequestError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    documents::{InputError, check_kind, documents, shape_message},
    resource::Resource,
    values::{RuleValues, Variables, put, segments},
};

/// The user who makes the requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct User {
    #[serde(rename = "apiVersion")]
    _api_version: Value,
    #[serde(rename = "kind")]
    _kind: Value,
    #[serde(rename = "metadata")]
    _metadata: Value,
    /// It was read from a file, rather than that nothing is known.
    #[serde(skip)]
    is_known: bool,
    roles: Option<Vec<String>>,
    cluster_roles: Option<Vec<String>>,
    user_info: Map<String, Value>,
}

impl User {
    /// Returns a user of whom these are all groups and roles.
    pub(crate) fn named(name: &str, groups: &[String], cluster_roles: &[String]) -> Self {
        let mut user_info = Map::new();
        user_info.insert("username".to_owned(), name.into());
        user_info.insert("groups".to_owned(), groups.into());
        Self {
            is_known: true,
            cluster_roles: Some(cluster_roles.to_vec()),
            roles: Some(cluster_roles.to_vec()),
            user_info,
            ..Self::default()
        }
    }

    /// Returns whether something is known of the user.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Reads a file with the user of requests.
    ///
    /// # Errors
    /// The file cannot be read, or has a different shape.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let document = documents(path)?.pop().unwrap_or_default();
        let malformed = |message: String| InputError::Malformed {
            path: path.to_owned(),
            message,
        };
        check_kind(&document, &["UserInfo"]).map_err(malformed)?;
        let user = Self::deserialize(document);
        let user = user.map_err(|error| malformed(shape_message(&error)))?;
        Ok(Self {
            is_known: true,
            ..user
        })
    }
}

/// The names below which a value is put into the request, in place of a context entry's.
const OF_REQUEST: &[&str] = &[
    "images",
    "request",
    "serviceAccountName",
    "serviceAccountNamespace",
];

/// The request that `policy` sees for the resource. An operation that is given counts more than what values
/// say.
///
/// # Errors
/// The values make no request of it.
pub(crate) fn request(
    policy: &str,
    resource: &Resource,
    user: &User,
    variables: &Variables,
    operation: Option<Operation>,
    namespace_labels: Map<String, Value>,
) -> Result<AdmissionRequest, RequestError> {
    let mut values = variables.of_resource(policy, &resource.name);
    if let Some(operation) = operation {
        values.insert("request.operation".to_owned(), operation.as_str().into());
    }
    let operation = values.get("request.operation").and_then(Value::as_str);
    let operation = operation.unwrap_or("CREATE").to_owned();
    let mut root = Map::new();
    root.insert(
        "request".to_owned(),
        bare(resource, &operation, user, variables),
    );
    for (path, value) in of_request(&values) {
        if is_matched(&path) {
            put(&mut root, &path, value);
        }
    }
    let mut request = AdmissionRequest::new(root.remove("request").unwrap_or_default())?
        .with_namespace_labels(namespace_labels);
    let review_bytes = request.value().to_string().len();
    request = request.of_review_bytes(review_bytes);
    if !user.is_known {
        request = request.by_unknown_user();
    }
    if let Some(parent) = variables.parent(resource) {
        request = request.with_resource_kind(parent.group, parent.version, parent.kind);
    }
    for (path, value) in of_request(&values) {
        if !is_matched(&path) {
            request = request.with_variable(&path, value);
        }
    }
    Ok(request)
}

/// Returns whether a value sets a part of the request that rules match: a resource, and what is done with it.
/// Values of other parts are for expressions alone, as in Kyverno: `request.namespace` puts no resource
/// elsewhere.
fn is_matched(path: &[String]) -> bool {
    let mut path = path.iter().map(String::as_str);
    let parts = ["object", "oldObject", "operation"];
    path.next() == Some("request") && path.next().is_none_or(|part| parts.contains(&part))
}

/// The request as one of the policy's rules sees it. What the rule matches is the request without that.
pub(crate) fn of_rule(request: &AdmissionRequest, values: &RuleValues) -> AdmissionRequest {
    let mut request = request.clone();
    for (path, value) in of_request(&values.values) {
        request = request.with_variable(&path, value);
    }
    request
}

fn of_request(values: &Map<String, Value>) -> impl Iterator<Item = (Vec<String>, Value)> {
    let all = values.iter();
    all.map(|(path, value)| (segments(path), value.clone()))
        .filter(|(path, _)| {
            let first = path.first();
            first.is_some_and(|first| OF_REQUEST.contains(&&**first))
        })
}

fn bare(resource: &Resource, operation: &str, user: &User, variables: &Variables) -> Value {
    let object = &resource.value;
    let (object, old) = match operation {
        "DELETE" => (&Value::Null, object),
        "UPDATE" => (object, object),
        _ => (object, &Value::Null),
    };
    let parent = variables.parent(resource);
    // A subresource belongs to the plural of its parent.
    let of = match &parent {
        Some(parent) => (&*parent.group, &*parent.version, &*parent.plural),
        None => (&*resource.group, &*resource.version, resource.plural()),
    };
    let mut request = json!({
        "uid": "",
        "kind": {
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        },
        "resource": {
            "group": of.0, "version": of.1, "resource": of.2,
        },
        "subResource": parent.as_ref().map(|parent| &*parent.subresource).unwrap_or_default(),
        "name": resource.name,
        "namespace": resource.namespace,
        "operation": operation,
        "object": object,
        "oldObject": old,
        "dryRun": false,
    });
    // Of a user of whom nothing is known nothing is said either.
    if user.is_known {
        request["userInfo"] = Value::Object(user.user_info.clone());
        request["roles"] = user.roles.as_deref().unwrap_or_default().into();
        request["clusterRoles"] = user.cluster_roles.as_deref().unwrap_or_default().into();
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Values;

    fn pod() -> Resource {
        Resource::new(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": 1},
        }))
        .unwrap()
    }

    fn variables(values: &Value) -> Variables {
        let values =
            json!({"policies": [{"name": "p", "resources": [{"name": "a", "values": values}]}]});
        let mut variables = Variables::default();
        variables.add(Values::deserialize(values).unwrap());
        variables
    }

    fn made(values: &Value) -> AdmissionRequest {
        made_by(values, None)
    }

    fn made_by(values: &Value, operation: Option<Operation>) -> AdmissionRequest {
        let variables = variables(values);
        let user = User::default();
        request("p", &pod(), &user, &variables, operation, Map::new()).unwrap()
    }

    #[test]
    fn a_resource_is_created_unless_values_say_otherwise() {
        let create = made(&json!({}));
        assert_eq!(create.operation().as_str(), "CREATE");
        assert_eq!(create.old_object(), None);
        assert_eq!(create.namespace(), "default");
        let update = made(&json!({"request.operation": "UPDATE", "request.oldObject.spec.x": 2}));
        assert_eq!(update.object().unwrap()["spec"]["x"], 1);
        assert_eq!(update.old_object().unwrap()["spec"]["x"], 2);
        let delete = made(&json!({"request.operation": "DELETE"}));
        assert_eq!(delete.object(), None);
        let forced = made_by(
            &json!({"request.operation": "UPDATE"}),
            Some(Operation::Delete),
        );
        assert_eq!(forced.value(), delete.value());
        assert_eq!(delete.matched_object()["spec"]["x"], 1);
    }

    #[test]
    fn values_of_a_rule_do_not_change_what_it_matches() {
        let values = RuleValues {
            values: Map::from_iter([
                ("request.namespace".to_owned(), "other".into()),
                ("config.data".to_owned(), "not here".into()),
            ]),
            ..RuleValues::default()
        };
        let seen = of_rule(&made(&json!({})), &values);
        assert_eq!(seen.namespace(), "default");
        assert_eq!(seen.value()["namespace"], "other");
    }

    #[test]
    fn values_do_not_change_the_namespace_of_a_resource() {
        let made = made(&json!({
            "request.namespace": "other", "request.userInfo.username": "eve", "request.object.spec.x": 2,
        }));
        assert_eq!(made.namespace(), "default");
        assert_eq!(made.value()["namespace"], "other");
        assert_eq!(made.value()["userInfo"]["username"], "eve");
        assert_eq!(made.object().unwrap()["spec"]["x"], 2);
        let whole = made_whole();
        assert_eq!(whole.name(), "b");
    }

    fn made_whole() -> AdmissionRequest {
        let mut request = made(&json!({})).value();
        request["name"] = "b".into();
        made(&json!({"request": request}))
    }

    #[test]
    fn values_that_make_no_valid_request_are_an_error() {
        let variables = variables(&json!({"request.operation": "PATCH"}));
        let user = User::default();
        let made = request("p", &pod(), &user, &variables, None, Map::new());
        assert!(made.is_err());
    }
}
