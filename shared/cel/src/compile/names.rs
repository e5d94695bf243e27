//! The names that an expression may start from.

use crate::{
    ast::Expr, dialect::Dialect, fact::FactScope, kind::Kind, program::Program, value::Val,
};

/// The names that an expression may start from, at one place of a policy.
///
/// `object`, `oldObject`, `request` and `namespaceObject` are there always.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(super) dialect: Dialect,
    pub(super) params: bool,
    pub(super) template: Vec<String>,
    /// Expressions mean the template's labels and annotations, and the object's own metadata for the rest.
    pub(super) own_metadata: bool,
    pub(super) variables: Vec<Defined>,
    /// Expressions may read facts.
    pub(super) facts: Option<FactScope>,
    /// Values from outside, by name.
    inputs: Vec<String>,
    /// There is no request.
    is_apart: bool,
}

/// A variable before an expression.
#[derive(Clone, Debug)]
pub(super) struct Defined {
    name: String,
    kind: Kind,
    /// Its value, if that is a literal: it stands in the variable's place then.
    literal: Option<Val<'static>>,
    /// Its text, if that is a map whose fields are written out.
    map: Option<String>,
    /// It reads a list that may be kept, itself or by another variable.
    reads_list: bool,
    /// It makes a call that has effects, itself or by another variable.
    has_effect: bool,
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

    /// With an object that makes Pods and keeps its own metadata, as a name: of the template's, only labels and
    /// annotations are meant. [`Dialect::Kyverno`] alone has this.
    #[must_use]
    pub fn with_own_metadata(self) -> Self {
        Self {
            own_metadata: true,
            ..self
        }
    }

    /// With functions that read facts.
    #[must_use]
    pub fn with_facts(self, scope: FactScope) -> Self {
        Self {
            facts: Some(scope),
            ..self
        }
    }

    /// From here on there is a variable of this name, whose value `program` gives.
    pub fn define(&mut self, name: &str, program: &Program) {
        let any_variable =
            |is_so: fn(&Self, usize) -> bool| program.variables().iter().any(|at| is_so(self, *at));
        let reads_list = program.sites().any(|site| site.may_be_kept())
            || any_variable(Self::variable_reads_list);
        let has_effect = program.sites().any(|site| site.function().has_effect())
            || any_variable(Self::variable_has_effect);
        self.variables.push(Defined {
            name: name.to_owned(),
            kind: program.kind(),
            literal: program.literal().cloned(),
            map: (program.is_map() && program.is_deterministic())
                .then(|| program.source().to_owned()),
            reads_list,
            has_effect,
        });
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

    /// From here on there is a value of this name, which stands alone: see [`Machine::with_inputs`](crate::Machine::with_inputs).
    /// A variable of a macro with the same name hides it.
    pub fn add_input(&mut self, name: &str) {
        self.inputs.push(name.to_owned());
    }

    /// The text of a variable, if that is a map whose fields are written out.
    pub(super) fn map_text(&self, at: usize) -> Option<&str> {
        self.variables.get(at)?.map.as_deref()
    }

    pub(super) fn input(&self, name: &str) -> Option<usize> {
        self.inputs.iter().rposition(|input| input == name)
    }

    /// The name of the value at this place.
    pub(crate) fn input_name(&self, at: usize) -> &str {
        self.inputs.get(at).map_or("", String::as_str)
    }

    /// The name of the variable at this place.
    pub(crate) fn variable_name(&self, at: usize) -> &str {
        self.variables.get(at).map_or("", |own| own.name.as_str())
    }

    /// Returns whether the variable at this place reads a list that may be kept, itself or by another variable.
    pub(crate) fn variable_reads_list(&self, at: usize) -> bool {
        self.variables.get(at).is_some_and(|own| own.reads_list)
    }

    /// Returns whether the variable at this place makes a call that has effects, itself or by another variable.
    pub(crate) fn variable_has_effect(&self, at: usize) -> bool {
        self.variables.get(at).is_some_and(|own| own.has_effect)
    }

    pub(super) fn is_kyverno(&self) -> bool {
        self.dialect == Dialect::Kyverno
    }

    pub(super) fn has_request(&self) -> bool {
        !self.is_apart
    }

    /// Returns whether there is a variable of this name.
    pub fn is_defined(&self, name: &str) -> bool {
        self.variable(name).is_some()
    }

    pub(super) fn variable(&self, name: &str) -> Option<(Expr, Kind)> {
        let mut all = self.variables.iter().enumerate();
        let (at, found) = all.find(|(_, own)| own.name == name)?;
        let expr = match &found.literal {
            Some(literal) => Expr::Literal(literal.clone()),
            None => Expr::Variable(at),
        };
        Some((expr, found.kind))
    }
}
