//! `subjects`, `roles` and `clusterRoles`: who asks.

use anteroom_functions::wildcard;

use super::{Matched, Surroundings};
use crate::ir::AdmissionRequest;

/// The users that a filter selects: one of each list that is given must be the user's.
#[derive(Debug, Default)]
pub(crate) struct Users {
    pub(crate) subjects: Vec<SubjectPattern>,
    /// Names as in `namespace:name`.
    pub(crate) roles: Vec<String>,
    pub(crate) cluster_roles: Vec<String>,
}

/// The names; each may hold wildcards.
#[derive(Debug)]
pub(crate) enum SubjectPattern {
    User(String),
    Group(String),
    /// The user name of a service account.
    ServiceAccount(String),
}

impl Users {
    /// Returns whether the filter selects nothing by users.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            subjects,
            roles,
            cluster_roles,
        } = self;
        subjects.is_empty() && roles.is_empty() && cluster_roles.is_empty()
    }

    /// Returns whether it selects by roles.
    pub(crate) fn asks_roles(&self) -> bool {
        !self.roles.is_empty() || !self.cluster_roles.is_empty()
    }

    /// Compares the user of a request, who is known.
    pub(super) fn matches(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        let is_subject = self.subjects.iter().any(|subject| subject.is(request));
        if !self.subjects.is_empty() && !is_subject {
            return Matched::No;
        }
        if !self.asks_roles() {
            return Matched::Yes;
        }
        let Some(own) = known.roles(request) else {
            return Matched::Unknown;
        };
        let has_one = |names: &[String], own: &[String]| {
            names.is_empty() || own.iter().any(|o| names.contains(o))
        };
        (has_one(&self.roles, &own.roles) && has_one(&self.cluster_roles, &own.cluster_roles))
            .into()
    }
}

impl SubjectPattern {
    fn is(&self, request: &AdmissionRequest) -> bool {
        match self {
            Self::User(name) | Self::ServiceAccount(name) => {
                wildcard::matches(name, request.username())
            }
            Self::Group(name) => request.groups().any(|group| wildcard::matches(name, group)),
        }
    }
}
