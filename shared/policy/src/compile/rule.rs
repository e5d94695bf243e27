//! One rule.

use super::{
    conditions, context,
    expressions::Names,
    failure_action,
    fields::{Field, Known, Object},
    resources,
};
use crate::{
    FailureAction, Rule,
    policy::Conditions,
    problem::Problems,
    template::{Template, TemplateProblem},
};

const RULE: Known = Known {
    evaluated: &[
        "context",
        "exclude",
        "match",
        "name",
        "preconditions",
        "validate",
    ],
    // About Kyverno's own requests, and about reports.
    inert: &["reportProperties", "skipBackgroundRequests"],
    later: &[
        "celPreconditions",
        "generate",
        "imageExtractors",
        "mutate",
        "verifyImages",
    ],
};

/// The kinds of rule that are problems themselves.
const OTHER_KINDS: &[&str] = &["generate", "mutate", "verifyImages"];

const VALIDATE: Known = Known {
    evaluated: &[
        "allowExistingViolations",
        "deny",
        "failureAction",
        "message",
    ],
    inert: &[],
    later: &[
        "anyPattern",
        "assert",
        "cel",
        "failureActionOverrides",
        "foreach",
        "manifests",
        "pattern",
        "podSecurity",
    ],
};

/// The other ways to validate, which are problems themselves.
const OTHER_WAYS: &[&str] = &[
    "anyPattern",
    "assert",
    "cel",
    "foreach",
    "manifests",
    "pattern",
    "podSecurity",
];

const DENY: Known = Known {
    evaluated: &["conditions"],
    inert: &[],
    later: &[],
};

pub(super) fn compile(
    field: &Field<'_>,
    action: FailureAction,
    home: Option<&str>,
    problems: &mut Problems,
) -> Option<Rule> {
    let rule = field.object(&RULE, problems)?;
    let name = rule
        .required("name", problems)
        .and_then(|name| name.plain_text(problems));
    let matches = resources::compile(&rule, problems);
    let (context, names) = context::compile(rule.get("context"), home, problems);
    let preconditions = conditions::compile(rule.get("preconditions"), &names, problems);
    let validate = Validate::compile(&rule, action, &names, problems);
    let (name, matches, validate) = (name?, matches?, validate?);
    Some(Rule {
        name,
        action: validate.action,
        allow_existing_violations: validate.allow_existing_violations,
        matches,
        context,
        preconditions,
        message: validate.message,
        deny: validate.deny,
    })
}

struct Validate {
    action: FailureAction,
    allow_existing_violations: bool,
    message: Option<Template>,
    deny: Conditions,
}

impl Validate {
    fn compile(
        rule: &Object<'_>,
        action: FailureAction,
        names: &Names,
        problems: &mut Problems,
    ) -> Option<Self> {
        let Some(field) = rule.get("validate") else {
            if !rule.has_any(OTHER_KINDS) {
                problems.invalid(rule.child("validate"), "it is required");
            }
            return None;
        };
        let validate = field.object(&VALIDATE, problems)?;
        let deny = match validate.get("deny") {
            Some(deny) => Some(deny.object(&DENY, problems)?),
            None => {
                if !validate.has_any(OTHER_WAYS) {
                    problems.invalid(validate.child("deny"), "it is required");
                }
                None
            }
        };
        Some(Self {
            action: failure_action(validate.get("failureAction"), problems).unwrap_or(action),
            allow_existing_violations: validate
                .get("allowExistingViolations")
                .and_then(|field| field.boolean(problems))
                .unwrap_or(true),
            message: validate
                .get("message")
                .and_then(|field| message(&field, names, problems)),
            // No conditions at all are always met.
            deny: conditions::compile(
                deny.and_then(|deny| deny.get("conditions")),
                names,
                problems,
            ),
        })
    }
}

/// A message with variables in it; an empty one is none.
pub(super) fn message(
    field: &Field<'_>,
    names: &Names,
    problems: &mut Problems,
) -> Option<Template> {
    let text = field.text(problems).filter(|text| !text.is_empty())?;
    let template = parsed(field.path(), Template::parse(text), problems)?;
    template.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    Some(template)
}

/// What parsing gave, its problem noted.
pub(super) fn parsed<T>(
    path: &str,
    result: Result<T, TemplateProblem>,
    problems: &mut Problems,
) -> Option<T> {
    match result {
        Ok(parsed) => return Some(parsed),
        Err(TemplateProblem::Invalid(message)) => problems.invalid(path, message),
        Err(TemplateProblem::Unsupported(message)) => problems.unsupported(path, message),
    }
    None
}
