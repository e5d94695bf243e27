//! The words of a policy: paths in objects, literals beside them, kinds and users.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    expression::{NameScope, Reached, read},
    mention::Mention,
    pattern,
    token::Language,
    value_path::{PathStep, path},
};

/// The depth to which a manifest is followed.
const DEPTH_MAX: usize = 64;

/// The paths, literals, kinds and users that policies speak of.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) mentions: Vec<Mention>,
    /// Kinds as rules name them, or plurals.
    pub(super) kinds: BTreeSet<String>,
    /// Users, groups and roles that rules name.
    pub(super) users: BTreeSet<String>,
    pub(super) groups_of_users: BTreeSet<String>,
    pub(super) roles: BTreeSet<String>,
    /// A rule depends on the operation or on the old object.
    pub(super) asks_operations: bool,
}

/// Fields that no decision depends on.
const UNREAD: &[&str] = &[
    "auditAnnotations",
    "description",
    "message",
    "messageExpression",
    "status",
    "summary",
    "title",
];

impl Vocabulary {
    /// Adds what a policy speaks of.
    pub(super) fn add(&mut self, manifest: &Value) {
        let text = manifest["spec"].to_string();
        self.asks_operations |= ["oldObject", "operation"]
            .iter()
            .any(|word| text.contains(word));
        let at = ManifestScope {
            objects: Reached::object(),
            depth: 0,
        };
        self.value("spec", &manifest["spec"], &at, &mut NameScope::default());
    }

    /// Adds a mention that has something in it.
    fn mention(&mut self, mention: Mention) {
        if !mention.paths.is_empty() || !mention.literals.is_empty() {
            self.mentions.push(mention);
        }
    }

    fn expression(&mut self, source: &str, language: Language, scope: &NameScope) -> Reached {
        let found = read(source, language, scope);
        let reached = found.reached.clone();
        let mut mention = Mention::default();
        mention.take(found);
        self.mention(mention);
        reached
    }

    fn value(&mut self, key: &str, value: &Value, at: &ManifestScope, scope: &mut NameScope) {
        if at.depth > DEPTH_MAX || UNREAD.contains(&key) {
            return;
        }
        let at = &at.deeper();
        match (key, value) {
            ("pattern" | "patchStrategicMerge", pattern) => self.pattern(pattern, at, scope),
            ("anyPattern", Value::Array(patterns)) => {
                patterns.iter().for_each(|one| self.pattern(one, at, scope));
            }
            ("patchesJson6902", Value::String(patches)) => self.patches(patches, at, scope),
            ("expression", Value::String(source)) => {
                self.expression(source, Language::Cel, scope);
            }
            ("jmesPath" | "list", Value::String(source)) => {
                self.expression(source, Language::JmesPath, scope);
            }
            ("context" | "variables", Value::Array(entries)) => {
                entries
                    .iter()
                    .for_each(|entry| self.variable(entry, at, scope));
            }
            ("foreach", Value::Array(loops)) => {
                for one in loops.iter().filter_map(Value::as_object) {
                    self.foreach(one, at, scope);
                }
            }
            ("match" | "exclude" | "matchConstraints", of) => self.matched(of, at.depth),
            (_, Value::Object(fields)) if fields.contains_key("operator") => {
                let mut mention = Mention::default();
                condition(value, &mut mention, scope, at.depth);
                self.mention(mention);
            }
            (_, Value::Object(fields)) => {
                // What is named in a rule is named there alone.
                let scope = &mut scope.clone();
                // Variables come before what reads them.
                let first = ["context", "variables"];
                let names = fields.keys().map(String::as_str);
                let others = names.filter(|name| !first.contains(name));
                for name in first.into_iter().chain(others) {
                    if let Some(value) = fields.get(name) {
                        self.value(name, value, at, scope);
                    }
                }
            }
            (key, Value::Array(elements)) => {
                elements
                    .iter()
                    .for_each(|one| self.value(key, one, at, scope));
            }
            (_, Value::String(text)) => {
                let mut mention = Mention::default();
                templates(text, &mut mention, scope);
                self.mention(mention);
            }
            _ => {}
        }
    }

    fn pattern(&mut self, pattern: &Value, at: &ManifestScope, scope: &NameScope) {
        for path in &at.objects.paths {
            let mut found = Vec::new();
            pattern::read(
                pattern,
                path,
                &mut |text, mention| templates(text, mention, scope),
                &mut found,
            );
            found.into_iter().for_each(|mention| self.mention(mention));
        }
    }

    fn patches(&mut self, patches: &str, at: &ManifestScope, scope: &NameScope) {
        let Ok(Value::Array(operations)) = anteroom_functions::yaml::read(patches) else {
            return;
        };
        for operation in operations {
            let mut mention = Mention::default();
            let path = operation["path"].as_str().unwrap_or_default();
            for start in &at.objects.paths {
                let steps = path.split('/').skip(1).map(|step| match step {
                    "-" => PathStep::Each,
                    step if step.contains("{{") || step.parse::<usize>().is_ok() => PathStep::Each,
                    step => PathStep::Field(step.replace("~1", "/").replace("~0", "~").into()),
                });
                mention
                    .paths
                    .insert(start.iter().cloned().chain(steps).collect());
            }
            literals(&operation["value"], &mut mention, scope, at.depth);
            self.mention(mention);
        }
    }

    /// An entry of a context, or a variable in CEL.
    fn variable(&mut self, entry: &Value, at: &ManifestScope, scope: &mut NameScope) {
        let name = entry["name"].as_str().unwrap_or_default();
        if let Some(source) = entry["expression"].as_str() {
            let reached = self.expression(source, Language::Cel, scope);
            scope.bind(format!("variables.{name}"), reached);
            return;
        }
        let variable = &entry["variable"];
        let mut mention = Mention::default();
        let mut reached = Reached::default();
        if let Some(value) = variable["value"].as_str() {
            reached = templates(value, &mut mention, scope);
        }
        if let Some(source) = variable["jmesPath"].as_str() {
            match reached.paths.is_empty() {
                true => reached = self.expression(source, Language::JmesPath, scope),
                false => drop(self.expression(source, Language::JmesPath, scope)),
            }
        }
        self.mention(mention);
        scope.bind(name.to_owned(), reached);
        for part in ["apiCall", "configMap", "globalReference"] {
            self.value(part, &entry[part], at, scope);
        }
    }

    fn foreach(&mut self, one: &Map<String, Value>, at: &ManifestScope, scope: &NameScope) {
        let mut scope = scope.clone();
        let mut at = at.deeper();
        if let Some(list) = one.get("list").and_then(Value::as_str) {
            let reached = self.expression(list, Language::JmesPath, &scope);
            at.objects = reached.each();
            // What a filter leaves has gone through its list already.
            if list.trim_end().ends_with(']') {
                at.objects = reached;
            }
            scope.bind("element".to_owned(), at.objects.clone());
        }
        if one.contains_key("patchStrategicMerge") || one.contains_key("patchesJson6902") {
            at.objects = Reached::object();
        }
        let mut rest = one.clone();
        rest.remove("list");
        self.value("", &Value::Object(rest), &at, &mut scope);
    }

    /// The filters of a rule, of either language.
    fn matched(&mut self, of: &Value, depth: usize) {
        match of {
            Value::Array(all) if depth < DEPTH_MAX => {
                all.iter().for_each(|one| self.matched(one, depth + 1));
            }
            Value::Object(fields) if depth < DEPTH_MAX => {
                for (name, value) in fields {
                    self.filter(name, value, depth);
                }
            }
            _ => {}
        }
    }

    fn filter(&mut self, name: &str, value: &Value, depth: usize) {
        let at = match name {
            "name" | "names" | "resourceNames" => "metadata.name",
            "namespaces" => "metadata.namespace",
            "kinds" => return self.kinds.extend(texts(value)),
            "resources" if value.is_array() => return self.kinds.extend(texts(value)),
            "roles" | "clusterRoles" => return self.roles.extend(texts(value)),
            "subjects" => return self.subjects(value),
            "annotations" => return self.keys("annotations", value),
            "selector" | "objectSelector" => {
                self.keys("labels", &value["matchLabels"]);
                for one in value["matchExpressions"].as_array().into_iter().flatten() {
                    let key = one["key"].as_str().unwrap_or_default();
                    let values: Value = match texts(&one["values"]) {
                        values if values.is_empty() => "x".into(),
                        values => values.into(),
                    };
                    self.keys(
                        "labels",
                        &Value::Object(Map::from_iter([(key.to_owned(), values)])),
                    );
                }
                return;
            }
            "namespaceSelector" => return,
            _ => return self.matched(value, depth + 1),
        };
        let mut mention = Mention::default();
        mention.paths.insert(path(at));
        for text in texts(value) {
            pattern::fill(&text, &mut mention);
        }
        self.mention(mention);
    }

    fn keys(&mut self, field: &str, map: &Value) {
        for (key, value) in map.as_object().into_iter().flatten() {
            let mut key_mention = Mention::default();
            pattern::fill(key, &mut key_mention);
            for key in key_mention
                .literals
                .iter()
                .filter_map(Value::as_str)
                .take(1)
            {
                let mut mention = Mention::default();
                let mut at = path("metadata");
                at.extend([field, key].map(|name| PathStep::Field(name.into())));
                mention.paths.insert(at);
                texts(value)
                    .iter()
                    .for_each(|text| pattern::fill(text, &mut mention));
                self.mention(mention);
            }
        }
    }

    fn subjects(&mut self, value: &Value) {
        for subject in value.as_array().into_iter().flatten() {
            let text = |name: &str| subject[name].as_str().unwrap_or_default().to_owned();
            match subject["kind"].as_str() {
                Some("Group") => self.groups_of_users.insert(text("name")),
                Some("ServiceAccount") => {
                    let name = format!(
                        "system:serviceaccount:{}:{}",
                        text("namespace"),
                        text("name")
                    );
                    self.users.insert(name)
                }
                _ => self.users.insert(text("name")),
            };
        }
    }
}

/// A path in a manifest.
struct ManifestScope {
    /// The paths that patterns here begin at.
    objects: Reached,
    depth: usize,
}

impl ManifestScope {
    fn deeper(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            depth: self.depth + 1,
        }
    }
}

/// A text, or the texts of a list.
fn texts(value: &Value) -> Vec<String> {
    let list = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Reads a condition, whose two sides are compared with each other.
fn condition(value: &Value, mention: &mut Mention, scope: &NameScope, depth: usize) {
    for side in ["key", "value"] {
        literals(&value[side], mention, scope, depth);
    }
}

fn literals(value: &Value, mention: &mut Mention, scope: &NameScope, depth: usize) {
    match value {
        _ if depth > DEPTH_MAX => {}
        Value::Null => {}
        Value::String(text) if text.contains("{{") => {
            templates(text, mention, scope);
        }
        Value::String(text) => pattern::fill(text, mention),
        Value::Array(list) => {
            list.iter()
                .for_each(|one| literals(one, mention, scope, depth + 1));
        }
        Value::Object(fields) => {
            fields
                .values()
                .for_each(|one| literals(one, mention, scope, depth + 1));
        }
        value => mention.literal(value.clone()),
    }
}

/// Reads the variables of a text. Returns what the first of them reaches.
fn templates(text: &str, mention: &mut Mention, scope: &NameScope) -> Reached {
    let mut reached = Reached::default();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        let end = end_of_variable(after);
        let found = read(&after[..end], Language::JmesPath, scope);
        if reached.paths.is_empty() {
            reached = found.reached.clone();
        }
        mention.take(found);
        rest = after.get(end + 2..).unwrap_or_default();
    }
    reached
}

/// The position of the `}}` that ends a variable.
fn end_of_variable(text: &str) -> usize {
    let mut open = 0_usize;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open > 0 => open -= 1,
            b'}' if bytes.get(at + 1) == Some(&b'}') => return at,
            _ => {}
        }
    }
    text.len()
}
