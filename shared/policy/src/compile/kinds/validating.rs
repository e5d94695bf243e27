//! `ValidatingPolicy` and `NamespacedValidatingPolicy`.

use std::sync::OnceLock;

use serde_json::Value;

use super::{
    super::{
        cel::{CEL_EXPRESSIONS_MAX, annotations, judged, limited, variables},
        fields::{Field, KnownFields, ManifestObject},
    },
    PolicySite, autogen, constraints,
    expressions::{conditions, marked, names},
    facts, rule, settings,
};
use crate::ir::{
    FailurePolicy, Rule,
    cel::{Cel, CelDialect, CelFact, CelReads, Judged, LocatedProgram},
    matching::{Constraints, Matches},
    problem::Problems,
    rule::{Check, FailureAction, Validation, Work},
    settings::Settings,
};

const VALIDATING_EVALUATION: KnownFields = KnownFields {
    evaluated: &["admission", "background", "mode"],
    inert: &[],
    later: &[],
};

const VALIDATING_SPEC: KnownFields = KnownFields {
    evaluated: &[
        "auditAnnotations",
        "autogen",
        "evaluation",
        "failurePolicy",
        "matchConditions",
        "matchConstraints",
        "validationActions",
        "validations",
        "variables",
        "webhookConfiguration",
    ],
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
    let spec = field.object(&VALIDATING_SPEC, problems)?;
    let (mut settings, evaluation) = settings(&spec, &VALIDATING_EVALUATION, metadata, problems);
    if !evaluation.is_of_objects {
        return None;
    }
    let actions = ValidationActions::of(&spec, problems);
    settings.emit_warning = actions.warns;
    let written = spec.required("matchConstraints", problems)?;
    let constraints = constraints::compile(&written, problems);
    let one = |name: &str, constraints: Constraints, template: &[&str], problems: &mut Problems| {
        let cel = expressions(&spec, site, template, settings.failure_policy, problems)?;
        let context = CelFact::context(&cel.facts);
        let work = Work::Validate(Validation::Whole(Check::Cel(Box::new(cel))));
        let matches = Matches::Constraints(constraints);
        Some(rule(name, actions.action, matches, work, context))
    };
    let rules = autogen::rules(&spec, &written, constraints?, one, problems)?;
    Some((rules, settings))
}

/// `validationActions`: the effects of a violation.
struct ValidationActions {
    action: FailureAction,
    warns: bool,
}

impl ValidationActions {
    /// Reads the actions. Without any, violations are denied.
    fn of(spec: &ManifestObject<'_>, problems: &mut Problems) -> Self {
        let fields = spec.get("validationActions");
        let fields = fields.map_or_else(Vec::new, |field| field.list(problems));
        let known = &["Deny", "Warn", "Audit"];
        let mut given = Vec::new();
        for field in &fields {
            given.extend(field.known_text(known, problems));
        }
        Self {
            action: match given.is_empty() || given.contains(&"Deny") {
                true => FailureAction::Enforce,
                false => FailureAction::Audit,
            },
            warns: given.contains(&"Warn"),
        }
    }
}

fn expressions(
    spec: &ManifestObject<'_>,
    site: &PolicySite<'_>,
    template: &[&str],
    failure_policy: FailurePolicy,
    problems: &mut Problems,
) -> Option<Cel> {
    let mut names = names(site, template);
    // They do not see the variables.
    let preconditions = marked(
        conditions(spec, "matchConditions", &names, problems),
        &[],
        &names,
    );
    let variables = variables(spec, &mut names, problems)?;
    let validations = spec.get("validations");
    let fields = validations.map_or_else(Vec::new, |field| {
        limited(&field, CEL_EXPRESSIONS_MAX, problems)
    });
    let judged = fields
        .iter()
        .filter_map(|field| judged(field, &names, "", "", problems));
    let expressions = judged.map(|judged| Judged {
        expression: LocatedProgram {
            program: judged
                .expression
                .program
                .with_subqueries(&variables, &names),
            ..judged.expression
        },
        message_expression: judged
            .message_expression
            .map(|program| program.with_subqueries(&variables, &names)),
        ..judged
    });
    let expressions = expressions.collect();
    let annotations = annotations(spec, &names, problems);
    let mut cel = Cel {
        preconditions,
        variables,
        expressions,
        annotations,
        params: None,
        dialect: CelDialect::Policy {
            skips_failed_conditions: failure_policy == FailurePolicy::Ignore,
        },
        facts: Vec::new(),
        other_reads: CelReads::default(),
        known_reads: OnceLock::new(),
    };
    cel.facts = facts::compile(cel.programs_with_paths(), site, problems);
    Some(cel)
}
