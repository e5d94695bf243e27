//! The expressions in CEL of a rule: those of `validate.cel`, and those of the policies of policies.kyverno.io.

use std::sync::{Arc, OnceLock};

use anteroom_cel::{Program, Site};

use crate::ir::{CollectionReference, Reference, context::ContextEntry};

/// Stands for a context entry's name: the objects that a rule takes parameters from.
pub(crate) const PARAMS: &str = "params";

/// Stands for a context entry's name: the namespace that the object is in.
pub(crate) const NAMESPACE_OBJECT: &str = "namespaceObject";

/// A query for the objects that [`Params`] may name: objects of one namespace, or of a kind without namespaces.
pub(crate) const PARAMS_QUERY: &str =
    "items[?metadata.namespace == $namespace || !(metadata.namespace)]";

/// A rule in CEL.
#[derive(Debug)]
pub(crate) struct Cel {
    /// `celPreconditions`: all must be true, or the rule says nothing.
    pub(crate) preconditions: Vec<LocatedProgram>,
    /// The variables in order: each may refer to the variables before.
    pub(crate) variables: Vec<Program>,
    /// The expressions that must all be true. The first one that is not true is the violation.
    pub(crate) expressions: Vec<Judged>,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) params: Option<Params>,
    pub(crate) dialect: CelDialect,
    /// The facts that the expressions read; the entries stand in the rule's context too.
    pub(crate) facts: Vec<CelFact>,
    /// The reads of expressions outside of this struct, such as patches.
    pub(crate) other_reads: CelReads,
    /// The results of [`Cel::read_before`] and [`Cel::reads`], kept since each evaluation asks for them.
    pub(crate) known_reads: OnceLock<[CelReads; 2]>,
}

/// The differences between rules of both groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CelDialect {
    /// `validate.cel` of kyverno.io. Its audit annotations are checked, and not evaluated, as in Kyverno.
    #[default]
    Rule,
    /// A policy of policies.kyverno.io.
    Policy {
        /// A condition that fails skips the policy (`failurePolicy: Ignore`).
        skips_failed_conditions: bool,
    },
}

/// An entry of `auditAnnotations`.
#[derive(Debug)]
pub(crate) struct Annotation {
    pub(crate) key: String,
    pub(crate) value: Program,
}

/// The path of `matchConditions`.
const CONDITIONS: &str = "spec.matchConditions";

/// The path of `variables`.
const VARIABLES: &str = "spec.variables";

/// The path of `validations`.
const VALIDATIONS: &str = "spec.validations";

/// The path of `auditAnnotations`.
const ANNOTATIONS: &str = "spec.auditAnnotations";

/// A fact that expressions read.
#[derive(Clone, Debug)]
pub(crate) struct CelFact {
    /// The call. Calls with equal names read the same fact.
    pub(crate) site: Arc<Site>,
    /// The entry for a call with a namespace, and the entry for a call without one. At least one of the two exists.
    pub(crate) entries: [Option<Arc<ContextEntry>>; 2],
}

impl CelFact {
    /// The entries of the rule's context for these.
    pub(crate) fn context(facts: &[Self]) -> Vec<Arc<ContextEntry>> {
        let entries = facts.iter().flat_map(|fact| fact.entries.iter().flatten());
        entries.cloned().collect()
    }
}

/// The variable that stands in a template for the dynamic value at this place.
pub(crate) fn hole(at: usize) -> String {
    format!("v{at}")
}

/// An expression with its path, for errors.
#[derive(Debug)]
pub(crate) struct LocatedProgram {
    pub(crate) path: String,
    pub(crate) program: Program,
}

/// An expression that must be true.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) expression: LocatedProgram,
    /// The expression's message, or else the rule's; empty: none.
    pub(crate) message: String,
    pub(crate) message_expression: Option<Program>,
}

/// `paramKind` and `paramRef`: the objects that a rule takes parameters from. The rule is evaluated for each of them.
#[derive(Debug)]
pub(crate) struct Params {
    /// The collection with the parameter objects. Its name is literal, so its view exists before the first request.
    pub(crate) collection: CollectionReference,
    /// The name of the parameter object; `None`: all objects that the selector selects.
    pub(crate) name: Option<String>,
    /// A missing object is no violation.
    pub(crate) may_be_absent: bool,
}

/// The facts that an expression reads beside the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CelReads {
    pub(crate) namespace: bool,
    pub(crate) params: bool,
}

impl Cel {
    /// Returns every expression, with the path of the list that it stands in.
    pub(crate) fn programs_with_paths(&self) -> impl Iterator<Item = (&'static str, &Program)> {
        // Without `..`: a new field says here whether it has expressions.
        let Self {
            preconditions,
            variables,
            expressions,
            annotations,
            params: _,
            dialect: _,
            facts: _,
            other_reads: _,
            known_reads: _,
        } = self;
        let preconditions = preconditions.iter().map(|one| &one.program);
        let judging = expressions.iter().flat_map(|one| {
            let own = std::iter::once(&one.expression.program);
            own.chain(&one.message_expression)
        });
        let annotations = annotations.iter().map(|one| &one.value);
        let preconditions = preconditions.map(|program| (CONDITIONS, program));
        preconditions
            .chain(variables.iter().map(|program| (VARIABLES, program)))
            .chain(judging.map(|program| (VALIDATIONS, program)))
            .chain(annotations.map(|program| (ANNOTATIONS, program)))
    }

    /// Returns every expression.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs_with_paths().map(|(_, program)| program)
    }

    /// Returns the facts that the preconditions read.
    pub(crate) fn read_before(&self) -> CelReads {
        self.known_reads()[0]
    }

    /// Returns the facts that the rule reads.
    pub(crate) fn reads(&self) -> CelReads {
        self.known_reads()[1]
    }

    fn known_reads(&self) -> &[CelReads; 2] {
        self.known_reads.get_or_init(|| {
            let preconditions = self.preconditions.iter().map(|one| &one.program);
            [self.read_by(preconditions), self.read_by_all()]
        })
    }

    fn read_by_all(&self) -> CelReads {
        // A variable counts only if a different expression refers to the variable.
        let counts = |path| match path {
            VARIABLES => false,
            ANNOTATIONS => self.dialect != CelDialect::Rule,
            _ => true,
        };
        let own = self.programs_with_paths();
        let own = own.filter(|(path, _)| counts(*path));
        let own = self.read_by(own.map(|(_, program)| program));
        CelReads {
            namespace: own.namespace || self.other_reads.namespace,
            params: own.params || self.other_reads.params,
        }
    }

    /// Returns the references to keep: the parameters' collection, and the namespaces if they are read.
    pub(crate) fn references(&self) -> Vec<Reference> {
        let params = self.params.as_ref();
        let params = params.map(|params| params.collection.clone());
        let namespaces = self.reads().namespace;
        let namespaces = namespaces.then(CollectionReference::namespaces);
        let all = params.into_iter().chain(namespaces);
        all.map(Reference::Collection).collect()
    }

    /// Returns the facts that these programs and the variables that they refer to read.
    pub(crate) fn read_by<'c>(&'c self, programs: impl Iterator<Item = &'c Program>) -> CelReads {
        let mut reads = CelReads::default();
        let mut reached = vec![false; self.variables.len()];
        let mut add = |program: &Program, reached: &mut Vec<bool>| {
            reads.namespace |= program.reads_namespace();
            reads.params |= program.reads_params();
            for at in program.variables() {
                reached[*at] = true;
            }
        };
        programs.for_each(|program| add(program, &mut reached));
        // A variable refers only to earlier variables.
        for at in (0..self.variables.len()).rev() {
            if reached[at] {
                add(&self.variables[at], &mut reached);
            }
        }
        reads
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::compile;

    fn reads(manifest: &Value) -> CelReads {
        let policy = compile(manifest).unwrap_or_else(|problems| panic!("{problems:#?}"));
        policy.rules()[0].cel().unwrap().reads()
    }

    const NAME: &str = "namespaceObject.metadata.name";

    #[test]
    fn a_rule_reads_what_its_evaluated_expressions_do() {
        let variables = json!([{"name": "v", "expression": NAME}]);
        let annotations = json!([{"key": "a", "valueExpression": NAME}]);
        let (nothing, namespace) = ((false, false), (true, false));
        for (cel, expected) in [
            (
                json!({"expressions": [{"expression": "true"}], "variables": variables}),
                nothing,
            ),
            (
                json!({"expressions": [{"expression": "variables.v == 'a'"}], "variables": variables}),
                namespace,
            ),
            // Audit annotations of such a rule are not evaluated.
            (
                json!({"expressions": [{"expression": "true"}], "auditAnnotations": annotations}),
                nothing,
            ),
            (
                json!({
                    "expressions": [{"expression": "params.most == 1"}], "paramRef": {"name": "limit"},
                    "paramKind": {"apiVersion": "rules.example.com/v1", "kind": "ReplicaLimit"},
                }),
                (false, true),
            ),
        ] {
            let found = reads(&json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
                "spec": {"rules": [{
                    "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                    "validate": {"cel": cel},
                }]},
            }));
            assert_eq!((found.namespace, found.params), expected, "{cel}");
        }
        let found = reads(&json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
                }]},
                "validations": [{"expression": "true"}], "auditAnnotations": annotations,
            },
        }));
        assert!(
            found.namespace,
            "audit annotations of a policy in CEL are evaluated"
        );
    }
}
