//! The key of an object within a view.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Namespace and name of one object. The namespace is empty for a cluster-scoped object.
///
/// Ordered by namespace, then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// Never empty for an object of the Kubernetes API.
    pub name: Box<str>,
}

impl ObjectKey {
    /// A key in `namespace`, which is empty for a cluster-scoped object.
    pub fn new(namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The bytes that the two names take, for accounting.
    pub fn name_bytes(&self) -> usize {
        self.namespace.len() + self.name.len()
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
