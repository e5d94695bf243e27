//! The values that a test gives the variables of its policies.
//!
//! A name is a path into the context that a rule's expressions see: `request.operation`,
//! `config.data.hosts`. What begins with `request` is put into the request; anything else is the value of
//! the rule's context entry of that name, in place of what the entry would read.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    documents::{InputError, check_kind, documents, shape_message},
    resource::Resource,
    suite::leave_out_nulls,
};

/// A file of values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    #[serde(rename = "apiVersion")]
    _api_version: Value,
    #[serde(rename = "kind")]
    _kind: Value,
    #[serde(rename = "metadata")]
    _metadata: Value,
    global_values: Map<String, Value>,
    policies: Vec<PolicyValues>,
    namespace_selector: Vec<NamespaceLabels>,
    namespaces: Vec<Value>,
    subresources: Vec<Subresource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PolicyValues {
    name: String,
    resources: Vec<NamedValues>,
    rules: Vec<NamedValues>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NamedValues {
    name: String,
    values: Option<Map<String, Value>>,
    /// The values by element of a `foreach`.
    foreach_values: Option<BTreeMap<String, Vec<Value>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NamespaceLabels {
    name: String,
    labels: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subresource {
    subresource: ApiResource,
    parent_resource: ApiResource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiResource {
    name: String,
    kind: String,
    group: String,
    version: String,
}

impl Values {
    /// Reads a file of values.
    ///
    /// # Errors
    /// It cannot be read, or has not that shape.
    pub fn read(path: &Path) -> Result<Self, InputError> {
        let malformed = |message: String| InputError::Malformed {
            path: path.to_owned(),
            message,
        };
        let mut documents = documents(path)?;
        match (documents.pop(), documents.is_empty()) {
            (None, _) => Ok(Self::default()),
            (Some(mut document), true) => {
                check_kind(&document, &["Values", "Value"]).map_err(malformed)?;
                leave_out_nulls(&mut document);
                Self::deserialize(document).map_err(|error| malformed(shape_message(&error)))
            }
            (Some(_), false) => Err(malformed("it has several documents".to_owned())),
        }
    }
}

/// All values of a run. Of two for one name the one that was added last counts.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    files: Vec<Values>,
    /// For all policies and resources.
    everywhere: Map<String, Value>,
}

/// The values for a rule of one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RuleValues {
    /// The values as they are written, by path.
    pub(crate) values: Map<String, Value>,
    pub(crate) by_element: BTreeMap<String, Vec<Value>>,
}

/// The resource that a subresource belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parent {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// The plural, as in `pods`.
    pub(crate) plural: String,
    /// The subresource, as in `scale`.
    pub(crate) subresource: String,
}

impl Variables {
    /// Adds a file's.
    pub fn add(&mut self, values: Values) {
        self.files.push(values);
    }

    /// Adds all that others have; where both have a value, theirs counts.
    pub(crate) fn extend(&mut self, others: Self) {
        self.files.extend(others.files);
        self.everywhere.extend(others.everywhere);
    }

    /// Gives a variable a value, for all policies and resources.
    pub fn set(&mut self, path: String, value: Value) {
        self.everywhere.insert(path, value);
    }

    /// Returns the values for a policy and a resource, by path.
    pub(crate) fn of_resource(&self, policy: &str, resource: &str) -> Map<String, Value> {
        let mut found = Map::new();
        for file in &self.files {
            found.extend(file.global_values.clone());
        }
        for of in self.of_policy(policy).flat_map(|policy| &policy.resources) {
            if of.name == resource {
                found.extend(of.values.clone().unwrap_or_default());
            }
        }
        found.extend(self.everywhere.clone());
        found
    }

    /// Returns the values for one of a policy's rules: those of the first time that it is named, as in Kyverno.
    pub(crate) fn of_rule(&self, policy: &str, rule: &str) -> RuleValues {
        let mut rules = self.of_policy(policy).flat_map(|policy| &policy.rules);
        let found = rules.find(|of| is_rule(rule, &of.name));
        let found = found.map(|of| RuleValues {
            values: of.values.clone().unwrap_or_default(),
            by_element: of.foreach_values.clone().unwrap_or_default(),
        });
        found.unwrap_or_default()
    }

    /// The labels of a namespace, where they are given.
    pub(crate) fn namespace_labels(&self, namespace: &str) -> Option<Map<String, Value>> {
        let mut files = self.files.iter().rev();
        files.find_map(|file| {
            let whole = file.namespaces.iter().find(|manifest| {
                manifest["metadata"]["name"] == namespace || manifest["name"] == namespace
            });
            let labels = |manifest: &Value| {
                let labels = [&manifest["metadata"]["labels"], &manifest["labels"]];
                let labels = labels.into_iter().find_map(Value::as_object);
                labels.cloned().unwrap_or_default()
            };
            let mut listed = file.namespace_selector.iter();
            let listed = listed.find(|of| of.name == namespace);
            whole.map(labels).or_else(|| Some(listed?.labels.clone()))
        })
    }

    /// A Namespace, where it is given whole.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<&Value> {
        let mut all = self.files.iter().rev().flat_map(|file| &file.namespaces);
        all.find(|manifest| manifest["metadata"]["name"] == namespace)
    }

    /// Returns the parent of `resource`, if the values say that `resource` is a subresource.
    pub(crate) fn parent(&self, resource: &Resource) -> Option<Parent> {
        let all = self.files.iter().flat_map(|file| &file.subresources);
        all.filter_map(|of| {
            let (own, parent) = (&of.subresource, &of.parent_resource);
            let is_meant = own.kind == resource.kind
                && own.group == resource.group
                && own.version == resource.version;
            let (plural, subresource) = own.name.split_once('/')?;
            is_meant.then(|| Parent {
                group: parent.group.clone(),
                version: parent.version.clone(),
                kind: parent.kind.clone(),
                plural: plural.to_owned(),
                subresource: subresource.to_owned(),
            })
        })
        .next()
    }

    fn of_policy<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a PolicyValues> {
        let all = self.files.iter().flat_map(|file| &file.policies);
        all.filter(move |of| of.name == policy)
    }
}

/// Returns whether `name` is the name of the rule, or of the rule from which it is derived.
pub(crate) fn is_rule(rule: &str, name: &str) -> bool {
    let derived = |prefix| rule.strip_prefix(prefix) == Some(name);
    rule == name || derived("autogen-") || derived("autogen-cronjob-")
}

/// The segments of a path: with dots between, and quotes around what has dots in it.
pub(crate) fn segments(path: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut is_quoted = false;
    for c in path.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => segments.push(String::new()),
            c => {
                if let Some(last) = segments.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    segments
}

/// Puts a value at a path, making objects on the way in place of what is none.
pub(crate) fn put(into: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            into.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let below = into.entry(first.clone()).or_insert(Value::Null);
            if !below.is_object() {
                *below = Value::Object(Map::new());
            }
            if let Value::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables(text: &str) -> Variables {
        let mut variables = Variables::default();
        variables.add(serde_saphyr::from_str(text).unwrap());
        variables
    }

    #[test]
    fn values_are_those_of_the_policy_the_resource_and_the_rule() {
        let mut variables = variables(
            "globalValues: {request.operation: CREATE, a: 1}\n\
             policies: [{name: p, resources: [{name: r, values: {a: 2}}, {name: s}], \
                         rules: [{name: x, values: {b.c: 3}, foreachValues: {d: [1, 2]}}]}]",
        );
        let of = |variables: &Variables, policy, resource| {
            Value::Object(variables.of_resource(policy, resource))
        };
        assert_eq!(
            of(&variables, "p", "r"),
            json!({"request.operation": "CREATE", "a": 2})
        );
        assert_eq!(
            of(&variables, "q", "r"),
            json!({"request.operation": "CREATE", "a": 1})
        );
        for (rule, is) in [
            ("x", true),
            ("autogen-x", true),
            ("autogen-cronjob-x", true),
            ("y", false),
            ("autogen-y", false),
        ] {
            let found = variables.of_rule("p", rule);
            assert_eq!(!found.values.is_empty(), is, "{rule}");
            assert_eq!(!found.by_element.is_empty(), is, "{rule}");
        }
        variables.set("a".to_owned(), 9.into());
        assert_eq!(of(&variables, "p", "r")["a"], 9);
    }

    #[test]
    fn labels_of_namespaces_come_in_either_form() {
        let variables = variables(
            "namespaceSelector: [{name: a, labels: {x: v}}]\n\
             namespaces: [{metadata: {name: b, labels: {z: w}}}]",
        );
        let labels = |name| variables.namespace_labels(name).map(Value::Object);
        assert_eq!(labels("a"), Some(json!({"x": "v"})));
        assert_eq!(labels("b"), Some(json!({"z": "w"})));
        assert_eq!(labels("c"), None);
    }

    #[test]
    fn segments_with_dots_are_quoted_in_value_paths() {
        assert_eq!(segments("a.b"), ["a", "b"]);
        assert_eq!(segments("a.\"b.c\".d"), ["a", "b.c", "d"]);
        let mut root = Map::new();
        put(&mut root, &segments("a.b"), 1.into());
        put(&mut root, &segments("a.c"), 2.into());
        put(&mut root, &segments("a.c.d"), 3.into());
        assert_eq!(Value::Object(root), json!({"a": {"b": 1, "c": {"d": 3}}}));
    }
}
