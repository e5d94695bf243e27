//! The names that an expression may start from.

use super::dialect::Dialect;
use crate::{kind::Kind, program::Program};

/// The names that an expression may start from, at one place of a policy.
///
/// `object`, `oldObject`, `request` and `namespaceObject` are there always.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(super) dialect: Dialect,
    pub(super) params: bool,
    pub(super) template: Vec<String>,
    pub(super) variables: Vec<(String, Kind)>,
}

impl Names {
    /// With the names and functions of this dialect.
    #[must_use]
    pub fn in_dialect(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// With `params`, which only [`Dialect::Kubernetes`] has.
    #[must_use]
    pub fn with_params(self) -> Self {
        Self {
            params: true,
            ..self
        }
    }

    /// With an object that makes Pods, whose template stands at this path, as in `spec`, `template`: what
    /// an expression says of the object's `spec` and `metadata` is said of the template's. In
    /// [`Dialect::Kyverno`], `object.metadata.namespace` stays the object's own.
    #[must_use]
    pub fn within_template(self, path: &[&str]) -> Self {
        Self {
            template: path.iter().map(|step| (*step).to_owned()).collect(),
            ..self
        }
    }

    /// From here on there is a variable of this name, whose value `program` gives.
    pub fn define(&mut self, name: &str, program: &Program) {
        self.variables.push((name.to_owned(), program.kind()));
    }

    /// Returns whether there is a variable of this name.
    pub fn is_defined(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }

    pub(super) fn variable(&self, name: &str) -> Option<(usize, Kind)> {
        let mut all = self.variables.iter().enumerate();
        let (at, (_, kind)) = all.find(|(_, (own, _))| own == name)?;
        Some((at, *kind))
    }
}
