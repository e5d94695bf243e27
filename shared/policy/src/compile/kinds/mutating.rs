//! `MutatingPolicy` and `NamespacedMutatingPolicy`.

use std::sync::OnceLock;

use anteroom_cel::{Names, Program};
use serde_json::{Value, json};

use super::{
    super::{
        cel::{annotations, limited, program, variables},
        fields::{Field, KnownFields, ManifestObject},
    },
    EvaluationFields, PolicySite, autogen, constraints, definitions,
    existing::{self, Targets},
    expressions::{conditions, marked, names, with_path},
    facts, rule, settings,
};
use crate::ir::{
    FailurePolicy, NotRun, Rule,
    cel::{Cel, CelDialect, CelFact, CelReads, LocatedProgram},
    cel_mutation::{CelMutation, CelPatch, CelPatchKind},
    matching::{Constraints, Matches},
    mutate_existing::{CelTargets, ExistingWork, MutateExisting},
    problem::Problems,
    rule::{FailureAction, Work},
    settings::Settings,
};

/// Patches of one policy.
pub(crate) const MUTATIONS_MAX: usize = 64;

const MUTATING_EVALUATION: KnownFields = KnownFields {
    evaluated: &[
        "admission",
        "background",
        "mode",
        "mutateExisting",
        "skipBackgroundRequests",
        "useServerSideApply",
    ],
    inert: &[],
    later: &[],
};

const MUTATING_SPEC: KnownFields = KnownFields {
    evaluated: &[
        "auditAnnotations",
        "autogen",
        "evaluation",
        "failurePolicy",
        "matchConditions",
        "matchConstraints",
        "mutations",
        "reinvocationPolicy",
        "targetMatchConditions",
        "targetMatchConstraints",
        "variables",
        "webhookConfiguration",
    ],
    inert: &[],
    later: &[],
};

const MUTATION: KnownFields = KnownFields {
    evaluated: &["applyConfiguration", "jsonPatch", "patchType"],
    inert: &[],
    later: &[],
};

const MUTATION_PATCH: KnownFields = KnownFields {
    evaluated: &["expression"],
    inert: &[],
    later: &[],
};

/// The field that turns on the mutation of existing objects.
const MUTATE_EXISTING: &str = "spec.evaluation.mutateExisting";

/// The fields that name such objects.
const OF_TARGETS: [&str; 2] = ["targetMatchConditions", "targetMatchConstraints"];

/// Compiles the rules, those that are not run, and the settings of `spec`.
pub(super) fn compile(
    field: &Field<'_>,
    site: &PolicySite<'_>,
    metadata: &Value,
    problems: &mut Problems,
) -> Option<(Vec<Rule>, Vec<NotRun>, Settings)> {
    let spec = field.object(&MUTATING_SPEC, problems)?;
    let (settings, evaluation) = settings(&spec, &MUTATING_EVALUATION, metadata, problems);
    if !evaluation.is_of_objects {
        return None;
    }
    if !evaluation.changes_existing {
        for name in OF_TARGETS {
            let is_empty = |value: &Value| value == &json!({}) || value == &json!([]);
            if spec.get(name).is_some_and(|field| !is_empty(field.value())) {
                let message =
                    format!("it says something only with `{MUTATE_EXISTING}.enabled: true`");
                problems.invalid(spec.child(name), message);
            }
        }
    }
    // The webhook is called again where others change the object after it, whatever the policy says.
    if let Some(reinvocation) = spec.get("reinvocationPolicy") {
        reinvocation.known_text(&["Never", "IfNeeded"], problems);
    }
    let written = spec.required("matchConstraints", problems)?;
    let constraints = constraints::compile(&written, problems)?;
    let targets = existing::targets(&spec).filter(|_| evaluation.changes_existing);
    let is_run = problems.driver().targets;
    let mut rules = Vec::new();
    // A policy with targets does not change the object of the request.
    if targets.is_none() {
        rules = of_requests(
            &spec,
            site,
            &written,
            constraints,
            settings.failure_policy,
            evaluation.applies_server_side,
            problems,
        )?;
    } else if !is_run {
        let message = "objects that exist already are not changed here";
        problems.unsupported(MUTATE_EXISTING, message);
        return None;
    }
    let mut not_run = Vec::new();
    if evaluation.changes_existing && !is_run {
        not_run.push(NotRun {
            rule: String::new(),
            kind: "evaluation.mutateExisting",
            path: MUTATE_EXISTING.to_owned(),
        });
    } else if evaluation.changes_existing && problems.is_empty() {
        rules.extend(of_existing(
            &spec,
            site,
            &written,
            targets.as_ref(),
            &settings,
            &evaluation,
            problems,
        ));
    }
    Some((rules, not_run, settings))
}

/// The rules that change the object of a request: the policy's own rule and its derived rules.
fn of_requests(
    spec: &ManifestObject<'_>,
    site: &PolicySite<'_>,
    written: &Field<'_>,
    constraints: Constraints,
    failure_policy: FailurePolicy,
    replaces_atomics: bool,
    problems: &mut Problems,
) -> Option<Vec<Rule>> {
    let one = |name: &str, constraints: Constraints, template: &[&str], problems: &mut Problems| {
        let subject = MutationSubject {
            constraints: &constraints,
            template,
            existing: None,
        };
        let Compiled { mut mutation, .. } =
            mutation(spec, site, &subject, failure_policy, problems)?;
        mutation.replaces_atomics = replaces_atomics;
        let context = CelFact::context(&mutation.shared_cel.facts);
        let matches = Matches::Constraints(constraints);
        let work = Work::Patch(Box::new(mutation));
        Some(rule(name, FailureAction::Enforce, matches, work, context))
    };
    autogen::rules(spec, written, constraints, one, problems)
}

/// The rule that changes existing objects. The policy's constraints apply to its trigger.
fn of_existing(
    spec: &ManifestObject<'_>,
    site: &PolicySite<'_>,
    written: &Field<'_>,
    targets: Option<&Targets<'_>>,
    settings: &Settings,
    evaluation: &EvaluationFields,
    problems: &mut Problems,
) -> Option<Rule> {
    let matches = Matches::Constraints(constraints::compile(written, problems)?);
    let chosen = existing::compile(targets, written, problems)?;
    let expression = targets.and_then(|targets| targets.expression.as_ref());
    let subject = MutationSubject {
        constraints: &chosen.constraints,
        template: &[],
        existing: Some(ExistingSubject { expression }),
    };
    let Compiled {
        mut mutation,
        of_trigger,
        expression,
    } = mutation(spec, site, &subject, settings.failure_policy, problems)?;
    mutation.replaces_atomics = evaluation.applies_server_side;
    let context = CelFact::context(&mutation.shared_cel.facts);
    let existing = MutateExisting {
        on_policy_update: settings.background && expression.is_none(),
        is_triggered_by_own: evaluation.is_triggered_by_own,
        work: ExistingWork::InCel(Box::new(CelTargets {
            types: chosen.types,
            label_selector: chosen.label_selector,
            constraints: chosen.constraints,
            expression,
            mutation,
            of_trigger,
            are_like_triggers: targets.is_none(),
        })),
    };
    let work = Work::MutateExisting(existing);
    Some(rule("", FailureAction::Enforce, matches, work, context))
}

/// A compiled mutation of a policy, with the conditions and the expression that choose its objects.
struct Compiled {
    mutation: CelMutation,
    /// The number of the mutation's conditions that are about the trigger. They come first.
    of_trigger: usize,
    /// The expression that gives the objects.
    expression: Option<LocatedProgram>,
}

/// The objects that mutations change.
struct MutationSubject<'s> {
    /// The constraints on them.
    constraints: &'s Constraints,
    /// The path to the template of Pods that is changed, of a derived rule.
    template: &'s [&'s str],
    /// `None`: the object of the request. Otherwise objects that exist.
    existing: Option<ExistingSubject<'s>>,
}

/// Objects that exist.
#[derive(Clone, Copy)]
struct ExistingSubject<'s> {
    /// The field of the expression that gives them, if one does.
    expression: Option<&'s Field<'s>>,
}

/// Compiles `mutations`, and the expressions that stand beside them.
fn mutation(
    spec: &ManifestObject<'_>,
    site: &PolicySite<'_>,
    subject: &MutationSubject<'_>,
    failure_policy: FailurePolicy,
    problems: &mut Problems,
) -> Option<Compiled> {
    let MutationSubject {
        constraints,
        template,
        existing,
    } = subject;
    // As in Kyverno, a name in a derived rule is that of what makes Pods.
    let own_names = names(site, template).with_own_metadata();
    let mut names = own_names.clone();
    let variables = variables(spec, &mut names, problems)?;
    // Unlike those of a ValidatingPolicy, they see the variables.
    let mut preconditions = conditions(spec, "matchConditions", &names, problems);
    let of_trigger = preconditions.len();
    let mut expression = None;
    if let Some(existing) = existing {
        // Objects that exist share the facts that are read whole: each would ask for subqueries of its own.
        let of_targets = conditions(spec, "targetMatchConditions", &names, problems);
        preconditions.extend(of_targets);
        if let Some(field) = existing.expression {
            expression = Some(LocatedProgram {
                path: field.path().to_owned(),
                program: program(field, &names, problems)?,
            });
        }
    } else {
        preconditions = marked(preconditions, &variables, &names);
    }
    let patches = patches(spec, &names, &variables, *existing, problems);
    let annotations = annotations(spec, &names, problems);
    let merges = patches
        .iter()
        .any(|patch| patch.kind == CelPatchKind::Apply);
    let (definitions, calls): (Vec<_>, Vec<_>) = match merges && site.home.is_none() {
        true => definitions::calls(constraints, &own_names)
            .into_iter()
            .unzip(),
        false => Default::default(),
    };
    let mut mutation = CelMutation {
        shared_cel: Cel {
            preconditions,
            variables,
            expressions: Vec::new(),
            annotations,
            params: None,
            dialect: CelDialect::Policy {
                skips_failed_conditions: failure_policy == FailurePolicy::Ignore,
            },
            facts: Vec::new(),
            other_reads: CelReads::default(),
            known_reads: OnceLock::new(),
        },
        patches,
        template: template.iter().map(|&step| step.to_owned()).collect(),
        definitions,
        replaces_atomics: false,
    };
    add_facts(&mut mutation, expression.as_ref(), &calls, site, problems);
    Some(Compiled {
        mutation,
        of_trigger,
        expression,
    })
}

/// Compiles `mutations`: at least one is required.
fn patches(
    spec: &ManifestObject<'_>,
    names: &Names,
    variables: &[Program],
    existing: Option<ExistingSubject<'_>>,
    problems: &mut Problems,
) -> Vec<CelPatch> {
    let mutations = spec.required("mutations", problems);
    let fields = mutations.map_or_else(Vec::new, |field| {
        let fields = limited(&field, MUTATIONS_MAX, problems);
        if fields.is_empty() {
            problems.invalid(field.path(), "at least one mutation is required");
        }
        fields
    });
    let patches = fields
        .iter()
        .filter_map(|field| patch(field, names, problems));
    let patches = patches.map(|patch| CelPatch {
        program: match existing {
            None => patch.program.with_subqueries(variables, names),
            Some(_) => patch.program,
        },
        ..patch
    });
    patches.collect()
}

/// Gives a mutation the facts that its expressions read. `expression` gives the objects, and `calls` read definitions.
fn add_facts(
    mutation: &mut CelMutation,
    expression: Option<&LocatedProgram>,
    calls: &[Program],
    site: &PolicySite<'_>,
    problems: &mut Problems,
) {
    let patches = mutation.patches.iter().map(|patch| &patch.program);
    let expression = expression.map(|one| &one.program);
    let all = mutation.shared_cel.programs_with_paths();
    let all = all
        .chain(with_path("spec.mutations", patches.clone()))
        .chain(with_path(
            "spec.targetMatchConstraints",
            expression.into_iter(),
        ))
        .chain(with_path("spec.matchConstraints", calls.iter()));
    let facts = facts::compile(all, site, problems);
    let other_reads = mutation.shared_cel.read_by(patches.chain(expression));
    mutation.shared_cel.other_reads = other_reads;
    mutation.shared_cel.facts = facts;
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
        .object(&MUTATION_PATCH, problems)?
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
        path: expression.path().to_owned(),
        program,
        kind,
    })
}
