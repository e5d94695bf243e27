//! The names that an expression may start from.

use crate::{kind::Kind, program::Program};

/// The names that an expression may start from, at one place of a policy.
///
/// `object`, `oldObject`, `request` and `namespaceObject` are there always.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(super) params: bool,
    pub(super) template: Vec<String>,
    pub(super) variables: Vec<(String, Kind)>,
    /// Values from outside, by name.
    given: Vec<String>,
    /// There is no request.
    is_apart: bool,
}

impl Names {
    /// With `params`.
    #[must_use]
    pub fn with_params(self) -> Self {
        Self {
            params: true,
            ..self
        }
    }

    /// With an object that makes Pods, whose template stands at this path, as in `spec`, `template`: what
    /// an expression says of the object's `spec` and `metadata` is said of the template's.
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

    /// Without `object`, `oldObject`, `request`, `namespaceObject` and `params`: an expression that is evaluated
    /// where there is no request.
    #[must_use]
    pub fn without_request(self) -> Self {
        Self {
            is_apart: true,
            ..self
        }
    }

    /// From here on there is a value of this name, which stands alone: see [`Machine::given`](crate::Machine::given).
    /// A variable of a macro with the same name hides it.
    pub fn give(&mut self, name: &str) {
        self.given.push(name.to_owned());
    }

    pub(super) fn given(&self, name: &str) -> Option<usize> {
        self.given.iter().rposition(|given| given == name)
    }

    /// The name of the value at this place.
    pub(crate) fn given_name(&self, at: usize) -> &str {
        self.given.get(at).map_or("", String::as_str)
    }

    /// The name of the variable at this place.
    pub(crate) fn variable_name(&self, at: usize) -> &str {
        self.variables.get(at).map_or("", |(name, _)| name.as_str())
    }

    pub(super) fn has_request(&self) -> bool {
        !self.is_apart
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
