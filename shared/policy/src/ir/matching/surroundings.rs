//! Facts that a request does not carry, and a rule may be about: the labels of its namespace, the roles of its
//! user.

use std::{borrow::Cow, ops::Not, sync::Arc};

use serde_json::Value;

use crate::ir::AdmissionRequest;
use crate::ir::request::Roles;

/// The query over a namespace for its labels.
pub(crate) const LABELS: &str = "metadata.labels || `{}`";

/// The variable that a namespace's labels are asked for by, in place of a context entry's name.
pub(crate) const NAMESPACE_SELECTOR: &str = "namespaceSelector";

/// The variable that bindings are asked for by, in place of a context entry's name.
pub(crate) const ROLES: &str = "roles";

/// The value for an object that has no labels.
static NONE: Value = Value::Null;

/// The result of matching a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    Yes,
    No,
    /// The result depends on facts that are not known yet.
    Unknown,
}

impl Matched {
    /// Returns whether both match.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::all([self, other])
    }

    /// Returns whether all elements match. A mismatch decides even if a different element is unknown.
    pub(super) fn all(each: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::Yes;
        for one in each {
            match one {
                Self::No => return Self::No,
                Self::Unknown => all = Self::Unknown,
                Self::Yes => {}
            }
        }
        all
    }

    /// Returns whether any element matches. A match decides even if a different element is unknown.
    pub(super) fn any(each: impl IntoIterator<Item = Self>) -> Self {
        !Self::all(each.into_iter().map(Self::not))
    }
}

impl From<bool> for Matched {
    fn from(matches: bool) -> Self {
        if matches { Self::Yes } else { Self::No }
    }
}

impl Not for Matched {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }
}

/// The facts about a request that the request does not carry.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// The labels as an object, or null if there are none.
    pub(crate) namespace_labels: Option<Arc<Value>>,
    pub(crate) roles: Option<Roles>,
}

/// The facts that are needed and not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub(crate) namespace_labels: bool,
    pub(crate) roles: bool,
}

impl Surroundings {
    /// The surroundings of the request, as if its user had no roles.
    pub(crate) fn of_nobody(&self) -> Self {
        Self {
            namespace_labels: self.namespace_labels.clone(),
            roles: Some(Roles::default()),
        }
    }

    /// The labels of the namespace that the object is in; none of an object that is in none. `None`: they
    /// are not known.
    pub(super) fn labels<'a>(&'a self, request: &'a AdmissionRequest) -> Option<&'a Value> {
        if let Some(labels) = request.namespace_labels() {
            return Some(labels);
        }
        match request.object_namespace() {
            "" => Some(&NONE),
            _ => self.namespace_labels.as_deref(),
        }
    }

    /// Returns the roles of the request's user; `None`: they are not known.
    pub(crate) fn roles<'a>(&'a self, request: &AdmissionRequest) -> Option<Cow<'a, Roles>> {
        if let Some(roles) = request.roles() {
            return Some(Cow::Owned(roles));
        }
        self.roles.as_ref().map(Cow::Borrowed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{
        Matched::{self, No, Unknown, Yes},
        Roles, Surroundings,
    };

    #[test]
    fn an_unknown_match_counts_only_where_nothing_else_decides() {
        for (one, other, both, either) in [
            (Yes, Yes, Yes, Yes),
            (Yes, No, No, Yes),
            (No, No, No, No),
            (Yes, Unknown, Unknown, Yes),
            (No, Unknown, No, Unknown),
            (Unknown, Unknown, Unknown, Unknown),
        ] {
            for pair in [[one, other], [other, one]] {
                assert_eq!(Matched::all(pair), both, "{pair:?}");
                assert_eq!(Matched::any(pair), either, "{pair:?}");
            }
        }
    }

    #[test]
    fn nobody_has_known_roles_and_the_same_namespace() {
        let labels = Arc::new(json!({"env": "prod"}));
        let known = Surroundings {
            namespace_labels: Some(Arc::clone(&labels)),
            roles: None,
        };
        let of_nobody = known.of_nobody();
        assert_eq!(of_nobody.namespace_labels, Some(labels));
        assert_eq!(of_nobody.roles, Some(Roles::default()));
    }
}
