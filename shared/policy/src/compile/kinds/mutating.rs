//! `MutatingPolicy` and `NamespacedMutatingPolicy`.

use anteroom_cel::Names;
use serde_json::Value;

use super::{
    super::{
        cel::{annotations, limited, program, variables},
        fields::{Field, KnownFields, Object},
    },
    PolicySite, autogen, constraints,
    expressions::{conditions, marked, names, with_path},
    facts, rule, settings,
};
use crate::ir::{
    FailurePolicy, Rule,
    cel::{Cel, CelDialect, CelFact},
    cel_mutation::{CelMutation, CelPatch, CelPatchKind},
    matching::{Constraints, Matches},
    problem::Problems,
    rule::{FailureAction, Work},
    settings::Settings,
};

/// Patches of one policy.
pub(crate) const MUTATIONS_MAX: usize = 64;

const SPEC: KnownFields = KnownFields {
    evaluated: &[
        "auditAnnotations",
        "autogen",
        "evaluation",
        "failurePolicy",
        "matchConditions",
        "matchConstraints",
        "mutations",
        "reinvocationPolicy",
        "variables",
        "webhookConfiguration",
    ],
    inert: &[],
    later: &["targetMatchConditions", "targetMatchConstraints"],
};

const MUTATION: KnownFields = KnownFields {
    evaluated: &["applyConfiguration", "jsonPatch", "patchType"],
    inert: &[],
    later: &[],
};

const PATCH: KnownFields = KnownFields {
    evaluated: &["expression"],
    inert: &[],
    later: &[],
};

/// Compiles the rules and the settings of `spec`.
pub(super) fn compile(
    field: &Field<'_>,
    site: &PolicySite<'_>,
    metadata: &Value,
    problems: &mut Problems,
) -> Option<(Vec<Rule>, Settings)> {
    let spec = field.object(&SPEC, problems)?;
    let (settings, evaluation) = settings(&spec, metadata, problems);
    if evaluation.changes_existing {
        let path = "spec.evaluation.mutateExisting";
        problems.unsupported(
            path,
            "objects that exist already are not changed by this kind of policy",
        );
    }
    // The webhook is called again where others change the object after it, whatever the policy says.
    if let Some(reinvocation) = spec.get("reinvocationPolicy") {
        reinvocation.known_text(&["Never", "IfNeeded"], problems);
    }
    let written = spec.required("matchConstraints", problems)?;
    let constraints = constraints::compile(&written, problems);
    let one = |name: &str, constraints: Constraints, template: &[&str], problems: &mut Problems| {
        let mut mutation = mutation(&spec, site, template, settings.failure_policy, problems)?;
        mutation.replaces_atomics = evaluation.applies_server_side;
        let context = CelFact::context(&mutation.around.facts);
        let matches = Matches::Constraints(constraints);
        let work = Work::Patch(Box::new(mutation));
        Some(rule(name, FailureAction::Enforce, matches, work, context))
    };
    let constraints = constraints?;
    // Those of a policy with problems would have the same ones.
    let derived = autogen::derive(&spec, &written, &constraints, problems);
    let mut rules = vec![one("", constraints, &[], problems)?];
    for derived in derived {
        if !problems.is_empty() {
            break;
        }
        rules.extend(one(
            derived.name,
            derived.constraints,
            derived.template,
            problems,
        ));
    }
    Some((rules, settings))
}

fn mutation(
    spec: &Object<'_>,
    site: &PolicySite<'_>,
    template: &[&str],
    failure_policy: FailurePolicy,
    problems: &mut Problems,
) -> Option<CelMutation> {
    let mut names = names(site, template);
    let variables = variables(spec, &mut names, problems)?;
    // Unlike those of a ValidatingPolicy, they see the variables.
    let preconditions = marked(conditions(spec, &names, problems), &variables, &names);
    let mutations = spec.required("mutations", problems);
    let fields = mutations.map_or_else(Vec::new, |field| {
        let fields = limited(&field, MUTATIONS_MAX, problems);
        if fields.is_empty() {
            problems.invalid(field.path(), "at least one mutation is required");
        }
        fields
    });
    let patches: Vec<_> = fields
        .iter()
        .filter_map(|field| patch(field, &names, problems))
        .map(|patch| CelPatch {
            program: patch.program.with_parts(&variables, &names),
            ..patch
        })
        .collect();
    let annotations = annotations(spec, &names, problems);
    let mut mutation = CelMutation {
        around: Cel {
            preconditions,
            variables,
            expressions: Vec::new(),
            annotations,
            params: None,
            dialect: CelDialect::Policy {
                skips_failed_conditions: failure_policy == FailurePolicy::Ignore,
            },
            facts: Vec::new(),
        },
        patches,
        template: template.iter().map(|&step| step.to_owned()).collect(),
        replaces_atomics: false,
    };
    let around = &mutation.around;
    let of_conditions = around.preconditions.iter().map(|one| &one.program);
    let all = with_path("spec.matchConditions", of_conditions)
        .chain(with_path("spec.variables", around.variables.iter()))
        .chain(with_path(
            "spec.mutations",
            mutation.patches.iter().map(|patch| &patch.program),
        ))
        .chain(with_path(
            "spec.auditAnnotations",
            around.annotations.iter().map(|one| &one.value),
        ));
    let facts = facts::compile(all, site, problems);
    mutation.around.facts = facts;
    Some(mutation)
}

/// Compiles one mutation. `patchType` may be left out, since one of the two patches is given.
fn patch(field: &Field<'_>, names: &Names, problems: &mut Problems) -> Option<CelPatch> {
    let mutation = field.object(&MUTATION, problems)?;
    let patch_type = mutation.get("patchType");
    let patch_type = patch_type
        .and_then(|field| field.known_text(&["ApplyConfiguration", "JSONPatch"], problems));
    let given = (
        mutation.get("applyConfiguration"),
        mutation.get("jsonPatch"),
    );
    let (kind, patch) = match (given, patch_type) {
        ((Some(patch), None), None | Some("ApplyConfiguration")) => (CelPatchKind::Apply, patch),
        ((None, Some(patch)), None | Some("JSONPatch")) => (CelPatchKind::Json, patch),
        ((None, None), _) => {
            problems.invalid(field.path(), "applyConfiguration or jsonPatch is required");
            return None;
        }
        ((Some(_), Some(_)), _) => {
            let message = "only one of applyConfiguration and jsonPatch can be given";
            problems.invalid(field.path(), message);
            return None;
        }
        _ => {
            problems.invalid(
                field.path(),
                "patchType names another patch than the one that is given",
            );
            return None;
        }
    };
    let expression = patch
        .object(&PATCH, problems)?
        .required("expression", problems)?;
    let program = program(&expression, names, problems)?;
    let (fits, expected) = match kind {
        CelPatchKind::Apply => (program.can_be_object(), "an Object{…}"),
        CelPatchKind::Json => (program.can_be_patches(), "a list of JSONPatch{…}"),
    };
    if !fits {
        problems.invalid(expression.path(), format!("it must come to {expected}"));
    }
    Some(CelPatch {
        place: expression.path().to_owned(),
        program,
        kind,
    })
}
