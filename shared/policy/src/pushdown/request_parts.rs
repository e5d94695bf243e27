//! The parts of a request's JSON that a policy can read, and a reader of no more than those.
//!
//! A review carries far more than policies read: managed fields, the user's groups, options, the old object. The
//! compiler knows which parts a policy's expressions read, so the webhook passes over the rest as text. In doubt a
//! part is read: an expression that takes a value whole, or that is composed for each request, reads the whole part.

mod expression;

use std::{borrow::Cow, collections::BTreeMap, fmt};

use anteroom_cel::Program;
use anteroom_functions::json::{self, JsonError};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
    value::SeqAccessDeserializer,
};
use serde_json::{Map, Value};

use crate::{
    ir::{
        Phase, Policy, PolicyException, Rule,
        matching::Matches,
        rule::{ObjectPath, Work},
        subquery::Pushdown,
        template::Prepared,
    },
    pushdown::visitor::each as each_expression,
};

/// The field that [`OLD_OBJECT`] is read like: a rule may be taken through either.
const OBJECT: &str = "object";
const OLD_OBJECT: &str = "oldObject";

/// The fields of a request that every policy reads.
const ALWAYS: &[&[&str]] = &[
    &["uid"],
    &["kind"],
    &["subResource"],
    &["name"],
    &["namespace"],
    &["operation"],
    &["userInfo", "username"],
    &[OBJECT, "metadata", "name"],
    &[OBJECT, "metadata", "generateName"],
    &[OBJECT, "metadata", "namespace"],
    &[OBJECT, "metadata", "labels"],
    &[OBJECT, "metadata", "annotations"],
];

/// The fields that rules about the user's roles read. The API server does not send them.
const ROLES: &[&[&str]] = &[&["roles"], &["clusterRoles"]];

/// The fields that rules about the user read.
const USERS: &[&[&str]] = &[&["userInfo", "groups"], &["roles"], &["clusterRoles"]];

/// Returns whether an expression of the rule names the user's roles. An expression that takes the request whole does
/// not: it gets the request as the API server sent it.
pub(crate) fn names_roles(rule: &Rule) -> bool {
    let mut parts = RequestParts(Tree::NONE);
    each_expression(rule, &mut |_, prepared| {
        let mut of_one = RequestParts(Tree::NONE);
        of_one.read_by(prepared, &rule.pushdown);
        if of_one != RequestParts::ALL {
            parts.unite(&of_one);
        }
    });
    let Tree::Fields(fields) = &parts.0 else {
        return false;
    };
    ROLES.iter().any(|role| fields.contains_key(role[0]))
}

/// Returns the paths in the object that the rule reads, in either state of the object.
pub(crate) fn object_paths(rule: &Rule) -> Vec<ObjectPath> {
    let mut parts = RequestParts(Tree::NONE);
    parts.read_by_rule(rule);
    let mut paths = Vec::new();
    match &parts.0 {
        Tree::All => paths.push(ObjectPath::new()),
        Tree::Fields(fields) => {
            if let Some(of_object) = fields.get(OBJECT) {
                of_object.ends(&mut ObjectPath::new(), &mut paths);
            }
        }
    }
    paths
}

/// The parts that identify the stored object and its version.
const STORED_BY: [&[&str]; 2] = [
    &[OBJECT, "metadata", "uid"],
    &[OBJECT, "metadata", "resourceVersion"],
];

/// The parts of a request that are read. A value that is not an object is one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestParts(Tree);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    All,
    Fields(BTreeMap<Box<str>, Tree>),
}

impl Tree {
    const NONE: Self = Self::Fields(BTreeMap::new());

    fn add(&mut self, path: &[&str], end: &Self) {
        match (path.split_first(), &mut *self) {
            (_, Self::All) => {}
            (None, _) => self.unite(end),
            (Some((first, rest)), Self::Fields(fields)) => {
                let below = fields.entry((*first).into()).or_insert(Self::NONE);
                below.add(rest, end);
            }
        }
    }

    /// Adds the paths at which the tree ends, below `path`.
    fn ends(&self, path: &mut ObjectPath, ends: &mut Vec<ObjectPath>) {
        match self {
            Self::Fields(fields) if !fields.is_empty() => {
                for (name, below) in fields {
                    path.push(name.clone());
                    below.ends(path, ends);
                    path.pop();
                }
            }
            Self::All | Self::Fields(_) => ends.push(path.clone()),
        }
    }

    fn unite(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (Self::Fields(own), Self::Fields(others)) => {
                for (name, tree) in others {
                    own.entry(name.clone()).or_insert(Self::NONE).unite(tree);
                }
            }
        }
    }
}

impl Default for RequestParts {
    /// The parts that are read even without policies.
    fn default() -> Self {
        let mut parts = Self(Tree::NONE);
        ALWAYS.iter().for_each(|path| parts.add(path));
        parts
    }
}

impl RequestParts {
    /// All of a request.
    pub const ALL: Self = Self(Tree::All);

    /// The parts of a request that `policy` can read in a phase.
    pub fn of(policy: &Policy, phase: Phase) -> Self {
        let mut parts = Self::default();
        parts.read_by_programs(policy.settings.match_conditions.iter());
        for rule in policy.rules_called_in(phase) {
            if rule.names_roles || rule.matches.asks_users() {
                USERS.iter().for_each(|path| parts.add(path));
            }
            if let Matches::Constraints(_) = &rule.matches {
                // They name kinds by their plurals.
                parts.add(&["resource"]);
            }
            if rule.changes_existing() {
                // The request is looked up in the cluster by these.
                STORED_BY.iter().for_each(|path| parts.add(path));
            }
            parts.read_by_rule(rule);
        }
        parts
    }

    /// Adds what the patterns and expressions of a rule read.
    fn read_by_rule(&mut self, rule: &Rule) {
        if rule.has_pattern() {
            // What a pattern says of the object may be about any part of it.
            self.add(&[OBJECT]);
        }
        each_expression(rule, &mut |_, prepared| {
            self.read_by(prepared, &rule.pushdown);
        });
        self.read_by_programs(rule.programs());
    }

    fn read_by_programs<'p>(&mut self, programs: impl Iterator<Item = &'p Program>) {
        for path in programs.flat_map(Program::request_paths) {
            let path: Vec<&str> = path.iter().map(|step| &**step).collect();
            self.add(&path);
        }
    }

    /// Returns whether `policy` is about the user: its matches, or any of its expressions. One that is put
    /// together for each request, or takes the request whole, does not count.
    pub(crate) fn are_of_users(policy: &Policy) -> bool {
        let is_user = |path: &[Box<str>]| path.first().is_some_and(|first| **first == *"userInfo");
        let mut conditions = policy.settings.match_conditions.iter();
        let asked = conditions.any(|program| program.request_paths().any(is_user));
        asked
            || policy.rules.iter().any(|rule| {
                let mut found = rule.matches.asks_users();
                each_expression(rule, &mut |_, prepared| {
                    let mut parts = Self(Tree::NONE);
                    parts.read_by(prepared, &rule.pushdown);
                    found |= parts.has_users() || names_account(prepared);
                });
                let mut paths = rule.programs().flat_map(Program::request_paths);
                found || paths.any(is_user)
            })
    }

    fn has_users(&self) -> bool {
        match &self.0 {
            Tree::All => false,
            Tree::Fields(fields) => ["userInfo", "roles", "clusterRoles"]
                .iter()
                .any(|name| fields.contains_key(*name)),
        }
    }

    /// Adds the parts in `other`.
    pub fn unite(&mut self, other: &Self) {
        self.0.unite(&other.0);
    }

    /// Reads a field of a request from its JSON text; `None`: it is not among the parts.
    ///
    /// # Errors
    /// The text is no JSON, or nests too deep.
    pub fn field(&self, name: &str, text: &str) -> Option<Result<Value, JsonError>> {
        let tree = match &self.0 {
            Tree::All => &Tree::All,
            Tree::Fields(fields) if name == OLD_OBJECT => fields.get(OBJECT)?,
            Tree::Fields(fields) => fields.get(name)?,
        };
        let read = || match tree {
            Tree::All => serde_json::from_str(text),
            tree => {
                let mut text = serde_json::Deserializer::from_str(text);
                let value = tree.deserialize(&mut text);
                value.and_then(|value| text.end().map(|()| value))
            }
        };
        Some(json::read(text.as_bytes(), tree, read))
    }

    /// Adds the parts that an expression reads. One that is put together for each request may read anything.
    fn read_by(&mut self, prepared: &Prepared, pushdown: &Pushdown) {
        let Some(expression) = prepared.fixed() else {
            return self.unite(&Self::ALL);
        };
        expression::add(expression.ast(), self);
        let Some(asked) = pushdown.subqueries(prepared.id()) else {
            return;
        };
        let verdict = asked.verdict.iter().map(|(subquery, _)| subquery);
        for (_, argument) in asked
            .value
            .iter()
            .chain(verdict)
            .flat_map(|one| &one.arguments)
        {
            expression::add(argument.expression.ast(), self);
        }
    }

    /// Adds a path within the request, with all that stands there.
    fn add(&mut self, path: &[&str]) {
        self.add_to(path, &Tree::All);
    }

    /// Notes that an expression tests whether a value exists at a path. The value itself is kept too, unless it is an
    /// object.
    fn touch(&mut self, path: &[&str]) {
        self.add_to(path, &Tree::NONE);
    }

    fn add_to(&mut self, path: &[&str], end: &Tree) {
        match path {
            [OLD_OBJECT, rest @ ..] => {
                let path: Vec<_> = std::iter::once(OBJECT)
                    .chain(rest.iter().copied())
                    .collect();
                self.0.add(&path, end);
            }
            path => self.0.add(path, end),
        }
    }
}

impl PolicyException {
    /// The parts of a request that it can read. Its conditions may be about anything.
    pub fn parts(&self) -> RequestParts {
        if self.conditions.is_some() {
            return RequestParts::ALL;
        }
        let mut parts = RequestParts::default();
        let in_cel = self.in_cel.iter().flat_map(|in_cel| &in_cel.conditions);
        parts.read_by_programs(in_cel.map(|condition| &condition.program));
        if self.matches.asks_users() {
            USERS.iter().for_each(|path| parts.add(path));
        }
        parts
    }
}

/// Returns whether the expression reads the service account's name or namespace.
fn names_account(prepared: &Prepared) -> bool {
    prepared.fixed().is_some_and(|expression| {
        let names = expression.ast().root_fields();
        names.contains("serviceAccountName") || names.contains("serviceAccountNamespace")
    })
}

impl Rule {
    fn has_pattern(&self) -> bool {
        match &self.work {
            Work::Validate(validation) => validation.has_pattern(),
            // The patch depends on the whole object.
            Work::Mutate(_) | Work::Patch(_) => true,
            // Existing objects are patched, and not the object of the request.
            Work::MutateExisting(_) => false,
        }
    }
}

impl<'de> DeserializeSeed<'de> for &Tree {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Tree::All => Value::deserialize(deserializer),
            Tree::Fields(fields) => deserializer.deserialize_any(Fields(fields)),
        }
    }
}

struct Fields<'t>(&'t BTreeMap<Box<str>, Tree>);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut value = Map::new();
        while let Some(name) = map.next_key_seed(Name)? {
            match self.0.get(&*name) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(tree) => {
                    let part = map.next_value_seed(tree)?;
                    value.insert(name.into_owned(), part);
                }
            }
        }
        Ok(Value::Object(value))
    }
}

/// A key, which is copied only if it is kept or has escapes in it.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
