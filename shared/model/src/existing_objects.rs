//! Existing objects that a rule changes, or that trigger the rule.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Objects that a rule on existing objects wants to see, with every variable in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExistingObjects {
    /// The index of the target; `None`: the object that triggers the rule.
    pub target: Option<usize>,
    /// Empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The kind, as in `Deployment`; empty where the plural says it.
    pub kind: String,
    /// The plural, as in `deployments`; empty where the kind says it. Where both are given, they are of one resource.
    pub resource: String,
    /// May hold wildcards; empty: all.
    pub namespace: String,
    /// May hold wildcards; empty: all.
    pub name: String,
    /// In the API server's syntax; empty: all.
    pub label_selector: String,
    /// The token with which a list goes on, as the part before said it; empty: at its beginning.
    pub continues: String,
}

/// For people.
impl fmt::Display for ExistingObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            version,
            kind,
            resource,
            namespace,
            name,
            ..
        } = self;
        let or_all = |text: &str| match text {
            "" => "*".to_owned(),
            text => text.to_owned(),
        };
        if !group.is_empty() {
            write!(f, "{group}/")?;
        }
        let (namespace, name) = (or_all(namespace), or_all(name));
        let kind = if kind.is_empty() { resource } else { kind };
        write!(f, "{version}/{kind} {namespace}/{name}")
    }
}
