//! `subjects`, `roles` and `clusterRoles`: who asks.

use serde_json::Value;

use crate::{AdmissionRequest, wildcard};

/// Of each part that is given, one must be the user's.
#[derive(Debug, Default)]
pub(crate) struct Users {
    pub(crate) subjects: Vec<Subject>,
    /// As in `namespace:name`.
    pub(crate) roles: Vec<String>,
    pub(crate) cluster_roles: Vec<String>,
}

/// Each name may hold wildcards.
#[derive(Debug)]
pub(crate) enum Subject {
    User(String),
    Group(String),
    /// The user name of a service account.
    ServiceAccount(String),
}

impl Users {
    /// Nothing is said of who asks.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            subjects,
            roles,
            cluster_roles,
        } = self;
        subjects.is_empty() && roles.is_empty() && cluster_roles.is_empty()
    }

    /// Of a request whose user is known.
    pub(super) fn matches(&self, request: &AdmissionRequest) -> bool {
        let has_one = |names: &[String], field| {
            names.is_empty()
                || texts(request.value(), field).any(|own| names.iter().any(|name| name == own))
        };
        has_one(&self.roles, "roles")
            && has_one(&self.cluster_roles, "clusterRoles")
            && (self.subjects.is_empty() || self.subjects.iter().any(|subject| subject.is(request)))
    }
}

impl Subject {
    fn is(&self, request: &AdmissionRequest) -> bool {
        match self {
            Self::User(name) | Self::ServiceAccount(name) => {
                wildcard::matches(name, request.username())
            }
            Self::Group(name) => {
                let user = request.value().get("userInfo").unwrap_or(&Value::Null);
                texts(user, "groups").any(|group| wildcard::matches(name, group))
            }
        }
    }
}

fn texts<'v>(of: &'v Value, field: &str) -> impl Iterator<Item = &'v str> {
    let list = of.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}
