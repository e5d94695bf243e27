//! The rules of exemptions, and their form in a file: YAML, with the keys that Kyverno's ConfigMap and the chart have.
//! Pure.

use std::collections::BTreeSet;

use anteroom_functions::{wildcard, yaml};
use anteroom_policy::{FilterError, ResourceFilters, is_namespace};
use serde_json::Value;
use thiserror::Error;

/// Names of one key, since each request is compared with all of them.
pub const NAMES_MAX: usize = 1_000;

/// The namespace that is exempt where a file does not say which are.
const NAMESPACE_DEFAULT: &str = "kube-system";

const FILTERS: &str = "resourceFilters";
const GROUPS: &str = "excludeGroups";
const USERS: &str = "excludeUsernames";
const NAMESPACES: &str = "exemptNamespaces";

/// The requests and objects that no policy is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExemptionRules {
    /// Objects by kind, namespace and name.
    pub filters: ResourceFilters,
    namespaces: BTreeSet<String>,
    users: NamePatterns,
    groups: NamePatterns,
}

/// Names with wildcards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NamePatterns {
    exempt: Vec<String>,
    /// The patterns that begin with `!`: a name that matches one is not exempt, even if another pattern matches.
    asked: Vec<String>,
}

/// A problem in a text of rules.
#[derive(Debug, Error)]
pub enum ExemptionsError {
    /// The text is no YAML.
    #[error("this is no YAML: {0}")]
    Yaml(String),
    /// The text is a list, a word, several documents, or empty.
    #[error(
        "this is no single object: give {FILTERS}, {GROUPS}, {USERS} or {NAMESPACES}, or `{{}}` for the defaults"
    )]
    NoObject,
    /// The text has something else beside the known keys.
    #[error(
        "there is no key `{0}`: write {FILTERS}, {GROUPS}, {USERS} or {NAMESPACES}, as in the chart's values"
    )]
    UnknownKey(String),
    /// The value of a key is of another type.
    #[error(
        "{0} is no list of texts, nor a text with commas: write `[]` for none, and quote what begins with `!` or `*`"
    )]
    NoList(&'static str),
    /// There are too many names.
    #[error("{0} has more than {NAMES_MAX} names: use `*`")]
    TooMany(&'static str),
    /// A filter is none.
    #[error("{place}: {problem}")]
    Filter {
        /// The key, and the element of the list.
        place: String,
        /// The problem, and its position there.
        problem: FilterError,
    },
    /// A namespace is none: the API server compares whole names.
    #[error("{NAMESPACES}: `{0}` is no name of a namespace; {FILTERS} take wildcards")]
    Namespace(String),
}

impl Default for ExemptionRules {
    /// The rules of a file that says nothing.
    fn default() -> Self {
        Self {
            filters: ResourceFilters::usual(),
            namespaces: [NAMESPACE_DEFAULT.to_owned()].into(),
            users: NamePatterns::default(),
            groups: NamePatterns::default(),
        }
    }
}

impl ExemptionRules {
    /// Parses a file's text. A key that is left out has its default.
    ///
    /// # Errors
    /// The first part of the text that cannot be used.
    pub fn parse(text: &str) -> Result<Self, ExemptionsError> {
        let documents = yaml::read_all(text).map_err(|error| {
            let lines = error.to_string();
            let words: Vec<_> = lines.split_whitespace().collect();
            ExemptionsError::Yaml(words.join(" "))
        })?;
        let [Value::Object(fields)] = &*documents else {
            return Err(ExemptionsError::NoObject);
        };
        let mut rules = Self::default();
        for (key, value) in fields {
            match key.as_str() {
                FILTERS => rules.filters = filters(value)?,
                GROUPS => rules.groups = NamePatterns::new(&words(GROUPS, value)?),
                USERS => rules.users = NamePatterns::new(&words(USERS, value)?),
                NAMESPACES => rules.namespaces = namespaces(value)?,
                _ => return Err(ExemptionsError::UnknownKey(key.clone())),
            }
        }
        Ok(rules)
    }

    /// Returns the namespaces of which no request is about policies, those included that are filtered whole. The API
    /// server need not send requests of them.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        let named = self.namespaces.iter().map(String::as_str);
        named.chain(self.filters.whole_namespaces())
    }

    /// Returns whether users are exempt at all.
    pub fn exempts_users(&self) -> bool {
        !(self.users.exempt.is_empty() && self.groups.exempt.is_empty())
    }

    /// Returns whether a user is exempt, by the name or by a group.
    pub fn exempts_user<S: AsRef<str>>(&self, name: &str, groups: &[S]) -> bool {
        let name = [name];
        let is_asked = any(&self.users.asked, &name) || any(&self.groups.asked, groups);
        let is_exempt = any(&self.users.exempt, &name) || any(&self.groups.exempt, groups);
        is_exempt && !is_asked
    }
}

impl NamePatterns {
    fn new(given: &[&str]) -> Self {
        let mut patterns = Self::default();
        for pattern in given {
            let pattern = pattern.trim();
            let (list, pattern) = match pattern.strip_prefix('!') {
                Some(asked) => (&mut patterns.asked, asked.trim_start()),
                None => (&mut patterns.exempt, pattern),
            };
            if !pattern.is_empty() {
                list.push(pattern.to_owned());
            }
        }
        patterns
    }
}

fn any<S: AsRef<str>>(patterns: &[String], names: &[S]) -> bool {
    let matches = |name: &S| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| wildcard::matches(pattern, name.as_ref()))
    };
    names.iter().any(matches)
}

fn filters(value: &Value) -> Result<ResourceFilters, ExemptionsError> {
    let parse = |text: &str, place: String| {
        let parsed = ResourceFilters::parse(text);
        parsed.map_err(|problem| ExemptionsError::Filter { place, problem })
    };
    let elements = match value {
        Value::String(text) => return parse(text, FILTERS.to_owned()),
        Value::Array(elements) => texts(FILTERS, elements)?,
        _ => return Err(ExemptionsError::NoList(FILTERS)),
    };
    for (number, element) in elements.iter().enumerate() {
        parse(element, format!("{FILTERS}[{number}]"))?;
    }
    parse(&elements.join(" "), FILTERS.to_owned())
}

fn namespaces(value: &Value) -> Result<BTreeSet<String>, ExemptionsError> {
    let named = words(NAMESPACES, value)?;
    let named = named.iter().map(|name| name.trim());
    let named = named.filter(|name| !name.is_empty());
    named
        .map(|name| match is_namespace(name) {
            true => Ok(name.to_owned()),
            false => Err(ExemptionsError::Namespace(name.to_owned())),
        })
        .collect()
}

/// The elements of a list, or the parts of a text with commas.
fn words<'v>(key: &'static str, value: &'v Value) -> Result<Vec<&'v str>, ExemptionsError> {
    let words: Vec<&str> = match value {
        Value::String(text) => text.split(',').collect(),
        Value::Array(elements) => texts(key, elements)?,
        _ => return Err(ExemptionsError::NoList(key)),
    };
    match words.len() {
        0..=NAMES_MAX => Ok(words),
        _ => Err(ExemptionsError::TooMany(key)),
    }
}

fn texts<'v>(key: &'static str, elements: &'v [Value]) -> Result<Vec<&'v str>, ExemptionsError> {
    let texts: Option<_> = elements.iter().map(Value::as_str).collect();
    texts.ok_or(ExemptionsError::NoList(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_exempt_by_their_names() {
        let node = ("system:node:n", ["system:nodes", "system:all"]);
        let ann = ("ann", ["dev", "all"]);
        for (text, (name, groups), expected) in [
            ("{}", node, false),
            ("excludeGroups: [system:nodes]", node, true),
            ("excludeGroups: [system:nodes]", ann, false),
            ("excludeGroups: 'a, system:n*'", node, true),
            ("excludeGroups: [system:node]", node, false),
            ("excludeUsernames: ['system:node:?']", node, true),
            ("excludeUsernames: [system:nodes]", node, false),
            ("excludeUsernames: a,ann", ann, true),
            ("excludeUsernames: ['*', '!ann']", node, true),
            ("excludeUsernames: ['*', '!ann']", ann, false),
            ("excludeUsernames: '*, ! ann'", ann, false),
            // A user whom either list includes is not exempt.
            (
                "{excludeUsernames: ['*'], excludeGroups: ['!dev']}",
                ann,
                false,
            ),
            (
                "{excludeUsernames: ['!ann'], excludeGroups: ['*']}",
                ann,
                false,
            ),
            (
                "{excludeUsernames: ['!bob'], excludeGroups: ['*']}",
                ann,
                true,
            ),
            ("{excludeUsernames: '', excludeGroups: '!'}", ann, false),
        ] {
            let rules = ExemptionRules::parse(text).unwrap();
            assert_eq!(rules.exempts_user(name, &groups), expected, "{text} {name}");
            assert!(rules.exempts_users() || !expected, "{text}");
        }
    }

    #[test]
    fn a_key_that_is_left_out_has_its_default_and_an_empty_list_is_none() {
        let of = |text: &str| {
            let rules = ExemptionRules::parse(text).unwrap();
            let namespaces: BTreeSet<_> = rules.namespaces().map(str::to_owned).collect();
            Vec::from_iter(namespaces).join(" ")
        };
        assert_eq!(
            ExemptionRules::parse("{}").unwrap(),
            ExemptionRules::default()
        );
        assert_eq!(of("{}"), "kube-node-lease kube-public kube-system");
        assert_eq!(of("resourceFilters: []"), "kube-system");
        assert_eq!(of("{resourceFilters: '', exemptNamespaces: []}"), "");
        assert_eq!(
            of("{resourceFilters: ['[*/*,a,*]', '[*,b,*]'], exemptNamespaces: 'c, d'}"),
            "a c d"
        );
    }

    /// As Kyverno's ConfigMap has them, and as the chart has them.
    #[test]
    fn a_text_and_a_list_of_filters_are_the_same() {
        let text = "resourceFilters: '[Event,*,*] [*/*,kyverno,*]'";
        let list = "resourceFilters:\n  - \"[Event,*,*]\"\n  - \"[*/*,kyverno,*]\"\n";
        assert_eq!(
            ExemptionRules::parse(text).unwrap(),
            ExemptionRules::parse(list).unwrap()
        );
    }

    #[test]
    fn a_problem_is_told_with_its_key() {
        for (text, says) in [
            ("", "no single object"),
            ("- a", "no single object"),
            ("a: [", "no YAML"),
            ("excludeGroup: []", "no key `excludeGroup`"),
            ("excludeGroups: [1]", "excludeGroups is no list"),
            ("excludeGroups:", "excludeGroups is no list"),
            ("resourceFilters: {}", "resourceFilters is no list"),
            (
                "resourceFilters: ['[Event,*,*]', 'Node']",
                "resourceFilters[1]: AR701: at character 1",
            ),
            (
                "resourceFilters: '[Event,*,*] Node'",
                "resourceFilters: AR701: at character 13: `N` is outside",
            ),
            ("exemptNamespaces: ['team-*']", "`team-*` is no name"),
        ] {
            let error = ExemptionRules::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_number_of_names_is_limited() {
        let of = |count: usize| format!("excludeGroups: '{}'", vec!["a"; count].join(","));
        assert!(ExemptionRules::parse(&of(NAMES_MAX)).is_ok());
        let error = ExemptionRules::parse(&of(NAMES_MAX + 1)).unwrap_err();
        assert!(error.to_string().contains("1000 names"), "{error}");
    }
}
