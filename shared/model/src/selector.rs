//! Label and field selectors in the API server's syntax, as a test on one object.

use thiserror::Error;

use crate::key_name;

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SelectorError {
    /// The problem with it.
    pub message: String,
}

impl SelectorError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}

/// The labels that an object has to have. Empty: any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also true of an object without the label.
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads `a=b`, `a==b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, `a`, `!a`, `a>1`, `a<1`, with
    /// commas between them, all of which have to hold.
    ///
    /// # Errors
    /// The text is no selector: the API server would refuse it too.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let texts = match trim(text) {
            "" => Vec::new(),
            text => split_requirements(text),
        };
        let requirements = texts.into_iter().map(|text| requirement(trim(text)));
        Ok(Self {
            requirements: requirements.collect::<Result<_, _>>()?,
        })
    }

    /// The labels that an object must have, each with its allowed values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.requirements.iter().filter_map(|one| match &one.test {
            Test::In(values) => Some((&*one.key, &**values)),
            _ => None,
        })
    }

    /// Returns whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether an object with these labels is selected. `label` is the value under a name.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        let holds = |requirement: &Requirement| requirement.test.holds(label(&requirement.key));
        self.requirements.iter().all(holds)
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let is_in = |values: &[String], value: &str| values.iter().any(|one| one == value);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::In(values) => value.is_some_and(|value| is_in(values, value)),
            Self::NotIn(values) => value.is_none_or(|value| !is_in(values, value)),
            Self::Above(than) => number().is_some_and(|number| number > *than),
            Self::Below(than) => number().is_some_and(|number| number < *than),
        }
    }
}

/// Splits at the commas that stand outside of parentheses.
fn split_requirements(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(outside).collect()
}

fn requirement(text: &str) -> Result<Requirement, SelectorError> {
    if let Some(set) = text.strip_suffix(')') {
        return requirement_of_set(text, set);
    }
    let with = |key: &str, test: Test| {
        Ok(Requirement {
            key: label_key(text, key)?,
            test,
        })
    };
    let one = |value: &str| Ok(vec![label_value(text, value)?]);
    if let Some((key, value)) = text.split_once("!=") {
        return with(key, Test::NotIn(one(value)?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return with(key, Test::In(one(value)?));
    }
    if let Some((key, value)) = text.split_once('>') {
        return with(key, Test::Above(number(text, value)?));
    }
    if let Some((key, value)) = text.split_once('<') {
        return with(key, Test::Below(number(text, value)?));
    }
    match text.strip_prefix('!') {
        Some(key) => with(key, Test::Absent),
        None => with(text, Test::Exists),
    }
}

/// `text` is `key in (a, b)` or `key notin (a, b)`; `set` is it without its last parenthesis.
fn requirement_of_set(text: &str, set: &str) -> Result<Requirement, SelectorError> {
    let (head, values) = set.split_once('(').ok_or_else(|| parse_error(text))?;
    let values = values.split(',').map(|value| label_value(text, value));
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    let parts = trim(head).rsplit_once(SPACES);
    let (key, operator) = parts.ok_or_else(|| parse_error(text))?;
    let test = match operator {
        "in" => Test::In(values),
        "notin" => Test::NotIn(values),
        _ => return Err(parse_error(text)),
    };
    let key = label_key(text, key)?;
    Ok(Requirement { key, test })
}

fn label_key(text: &str, key: &str) -> Result<String, SelectorError> {
    let key = trim(key);
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if !is_label_name(name) || !prefix.is_none_or(is_subdomain) {
        return Err(parse_error(text));
    }
    Ok(key.to_owned())
}

fn label_value(text: &str, value: &str) -> Result<String, SelectorError> {
    let value = trim(value);
    if !value.is_empty() && !is_label_name(value) {
        return Err(parse_error(text));
    }
    Ok(value.to_owned())
}

/// The longest name, and the longest value, that a label has.
const LABEL_BYTES_MAX: usize = 63;

/// The longest that may stand before the `/` in a label's key.
const LABEL_PREFIX_BYTES_MAX: usize = 253;

fn is_label_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.len() <= LABEL_BYTES_MAX && is_between(text, |b| b.is_ascii_alphanumeric(), plain)
}

fn is_subdomain(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut parts = text.split('.');
    text.len() <= LABEL_PREFIX_BYTES_MAX
        && parts.all(|part| is_between(part, edge, |b| edge(b) || b == b'-'))
}

/// Begins and ends with an `edge`, and has nothing but `inner` between.
fn is_between(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(&edge)) && text.bytes().all(inner)
}

/// Without the white space that separates in a label selector. Other kinds belong to the word.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(SPACES)
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

fn number(text: &str, value: &str) -> Result<i64, SelectorError> {
    let number = label_value(text, value)?;
    number.parse().map_err(|_| parse_error(text))
}

fn parse_error(text: &str) -> SelectorError {
    SelectorError::new(format!(
        "unable to parse requirement: {text:?} is no label requirement"
    ))
}

/// The name and namespace that an object has to have: the field selectors that every type has. Empty:
/// any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSelector {
    requirements: Vec<NameRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NameRequirement {
    of_name: bool,
    value: String,
    equal: bool,
}

impl NameSelector {
    /// Reads `metadata.name=a`, `==` and `!=`, and the same of `metadata.namespace`, with commas
    /// between them, all of which have to hold. Empty requirements are passed over, and white space belongs
    /// to the value that it stands in, as the API server has it.
    ///
    /// # Errors
    /// Any other field, what is no selector, and a value with a backslash, which escapes what follows
    /// to the API server.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let requirements = text.split(',').filter(|text| !text.is_empty());
        Ok(Self {
            requirements: requirements
                .map(name_requirement)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The selected name; `None`: the selector does not select exactly one name.
    pub fn name(&self) -> Option<&str> {
        self.only_value(true)
    }

    /// The selected namespace; `None`: the selector does not select exactly one namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.only_value(false)
    }

    fn only_value(&self, of_name: bool) -> Option<&str> {
        let mut requirements = self.requirements.iter();
        let one = requirements.find(|one| one.of_name == of_name && one.equal)?;
        (!one.value.is_empty()).then_some(&one.value)
    }

    /// Returns whether the object of this namespace and name is selected.
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        self.requirements.iter().all(|one| {
            let value = if one.of_name { name } else { namespace };
            (one.value == value) == one.equal
        })
    }
}

fn name_requirement(text: &str) -> Result<NameRequirement, SelectorError> {
    let equals = || text.split_once("==").or_else(|| text.split_once('='));
    let (path, value, equal) = match text.split_once("!=") {
        Some((path, value)) => (path, value, false),
        None => equals()
            .map(|(path, value)| (path, value, true))
            .ok_or_else(|| {
                SelectorError::new(format!(
                    "invalid selector: {text:?}: an operator is missing"
                ))
            })?,
    };
    let of_name = match path {
        "metadata.name" => true,
        "metadata.namespace" => false,
        other => {
            return Err(SelectorError::new(format!(
                "field label not supported: {other}"
            )));
        }
    };
    if value.contains(['\\', '=']) {
        return Err(SelectorError::new(format!(
            "invalid selector: {text:?}: a value has no '=', and escapes are not read here"
        )));
    }
    Ok(NameRequirement {
        of_name,
        // It is compared with names as keys have them.
        value: key_name(value).into_owned(),
        equal,
    })
}

#[cfg(test)]
mod tests;
