//! The words of Kubernetes' admission: operations, and the two phases of webhooks. Pure.

use std::fmt;

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// The object is made.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
    /// The object is connected to, as in `exec`.
    Connect,
}

impl Operation {
    /// All operations, in the order of a webhook configuration.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// Reads an operation in the API's spelling, as in `CREATE`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.as_str() == text)
    }

    /// The API's spelling, as in `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The phase of admission in which a rule is asked. The API server asks all webhooks that change an object before any
/// that judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Rules change the object (`mutate`).
    Mutation,
    /// Rules judge the mutated object (`validate`).
    Validation,
}

impl Phase {
    /// Both phases, in their order.
    pub const ALL: [Self; 2] = [Self::Mutation, Self::Validation];
}
