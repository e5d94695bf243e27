//! The compiler of one rule.

use std::sync::Arc;

use serde_json::Value;

use super::{
    actions::Actions,
    cel, check, conditions, context,
    expressions::RootNames,
    fields::{Field, KnownFields, ManifestObject},
    foreach, mutate, mutate_existing, resources,
    templates::message,
};
use crate::ir::{
    Driver, Rule,
    context::ContextEntry,
    matching::Matches,
    problem::Problems,
    rule::{Check, ForEach, Overrides, Validation, Work},
    subquery::Pushdown,
    template::Template,
};

const RULE: KnownFields = KnownFields {
    evaluated: &[
        "celPreconditions",
        "context",
        "exclude",
        "imageExtractors",
        "match",
        "mutate",
        "name",
        "preconditions",
        "skipBackgroundRequests",
        "validate",
    ],
    // About reports.
    inert: &["reportProperties"],
    later: &["generate", "verifyImages"],
};

/// The kinds of rule that are not run, and where they are all that a policy has, problems themselves.
const OTHER_KINDS: &[&str] = &["generate", "verifyImages"];

const VALIDATE: KnownFields = KnownFields {
    evaluated: &[
        "allowExistingViolations",
        "anyPattern",
        "cel",
        "deny",
        "failureAction",
        "failureActionOverrides",
        "foreach",
        "message",
        "pattern",
        "podSecurity",
    ],
    inert: &[],
    later: &["assert", "manifests"],
};

/// The variable that a pattern or a patch of a rule is about.
pub(super) const OBJECT: &str = "request.object";

/// The fields that define a rule's work. A rule has exactly one of the fields.
const WORK: &[&str] = &["mutate", "validate"];

/// Unsupported ways to validate, which are reported as problems.
const OTHER_VALIDATE_WAYS: &[&str] = &["assert", "manifests"];

/// The ways of which one is given.
const VALIDATE_WAYS: &[&str] = &[
    "deny",
    "foreach",
    "pattern",
    "anyPattern",
    "podSecurity",
    "cel",
];

/// Compiles a rule. `template` is the path to the Pod template, for a derived rule.
pub(super) fn compile(
    field: &Field<'_>,
    actions: &Actions,
    home: Option<&str>,
    template: &[&str],
    problems: &mut Problems,
) -> Option<Rule> {
    let rule = field.object(&RULE, problems)?;
    let name = rule
        .required("name", problems)
        .and_then(|name| name.plain_text(problems));
    let matches = resources::compile(&rule, problems);
    without_extractors(&rule, problems);
    let (context, names) = context::compile(rule.get("context"), home, problems);
    let preconditions = conditions::compile(rule.get("preconditions"), &names, problems);
    let ways: Vec<_> = WORK.iter().filter(|way| rule.get(way).is_some()).collect();
    if let [_, last, ..] = &*ways {
        problems.invalid(rule.child(last), "a rule either validates or mutates");
    }
    if let Some(mutate) = rule.get("mutate") {
        without_cel(&rule, problems);
        let fields = mutate::fields(&mutate, problems)?;
        let work = match fields.get("targets") {
            None => {
                mutate::work(&fields, &context, &names, home, OBJECT, problems).map(Work::Mutate)
            }
            Some(targets) => {
                let why_not = match problems.driver().targets {
                    false => Some("objects that exist already are not changed here"),
                    true => mutate_existing::are_secrets(mutate.value()).then_some(
                        "Secrets that exist are not changed: nothing seals them on their way back",
                    ),
                };
                if let Some(message) = why_not {
                    problems.unsupported(targets.path(), message);
                    return None;
                }
                let outer = mutate_existing::Outer {
                    context: &context,
                    names: &names,
                    home,
                    on_policy_update: actions.on_policy_update,
                };
                mutate_existing::compile(&rule, &fields, outer, problems).map(Work::MutateExisting)
            }
        };
        let (name, matches, work) = (name?, matches?, work?);
        let rule = Rule {
            name,
            action: actions.action,
            overrides: Overrides::default(),
            allow_existing_violations: false,
            matches: Matches::Filters(matches),
            context,
            preconditions,
            message: None,
            work,
            pushdown: Pushdown::default(),
            names_roles: false,
            paths_beside_facts: None,
        };
        return Some(rule);
    }
    let validate = Validate::compile(&rule, actions, &context, home, template, &names, problems);
    let (name, matches, validate) = (name?, matches?, validate?);
    let rule = Rule {
        name,
        action: validate.actions.action,
        overrides: validate.actions.overrides,
        allow_existing_violations: validate.allow_existing_violations,
        matches: Matches::Filters(matches),
        context,
        preconditions,
        message: validate.message,
        work: Work::Validate(validate.validation),
        pushdown: Pushdown::default(),
        names_roles: false,
        paths_beside_facts: None,
    };
    Some(rule)
}

/// Returns the path within the rule of work that is not run, where the rule does nothing else. A rule that
/// does something else too is compiled, so that its problems are reported.
pub(super) fn not_run(rule: &Value, driver: Driver) -> Option<&'static str> {
    let given = |within: &Value, names: &[&str]| names.iter().any(|name| !within[*name].is_null());
    let work = WORK.iter().filter(|work| given(rule, &[work]));
    match *work.copied().collect::<Vec<_>>() {
        [] => OTHER_KINDS
            .iter()
            .copied()
            .find(|kind| given(rule, &[kind])),
        _ if given(rule, OTHER_KINDS) => None,
        ["mutate"] if driver.targets && !mutate_existing::are_secrets(&rule["mutate"]) => None,
        ["mutate"] => given(&rule["mutate"], &["targets"]).then_some("mutate.targets"),
        ["validate"] if given(&rule["validate"], VALIDATE_WAYS) => None,
        ["validate"] if given(&rule["validate"], &["assert"]) => Some("validate.assert"),
        ["validate"] => given(&rule["validate"], &["manifests"]).then_some("validate.manifests"),
        _ => None,
    }
}

struct Validate {
    actions: Actions,
    allow_existing_violations: bool,
    message: Option<Template>,
    validation: Validation,
}

impl Validate {
    fn compile(
        rule: &ManifestObject<'_>,
        actions: &Actions,
        context: &[Arc<ContextEntry>],
        home: Option<&str>,
        template: &[&str],
        names: &RootNames,
        problems: &mut Problems,
    ) -> Option<Self> {
        let Some(field) = rule.get("validate") else {
            if !rule.has_any(OTHER_KINDS) {
                problems.invalid(rule.child("validate"), "it is required");
            }
            return None;
        };
        let validate = field.object(&VALIDATE, problems)?;
        let given: Vec<_> = VALIDATE_WAYS
            .iter()
            .filter(|way| validate.get(way).is_some())
            .copied()
            .collect();
        let cel = validate.get("cel");
        if cel.is_none() {
            without_cel(rule, problems);
        }
        let validation = match (&*given, validate.get("foreach")) {
            ([], _) => {
                if !validate.has_any(OTHER_VALIDATE_WAYS) {
                    problems.invalid(
                        validate.child("deny"),
                        "it is required, or foreach, pattern, anyPattern, podSecurity or cel in its place",
                    );
                }
                return None;
            }
            ([_], Some(each)) => {
                let outer = foreach::Outer {
                    entries: context,
                    names,
                    home,
                    about: OBJECT,
                    level: 0,
                };
                Validation::ForEach(foreach::compile(&each, outer, problems))
            }
            ([_], None) => Validation::Whole(match cel {
                Some(cel) => {
                    let place = cel::RuleSite {
                        home,
                        template,
                        message: field.text_at("message").unwrap_or_default(),
                        rule: &rule.child(""),
                    };
                    let cel = cel::compile(rule, &cel, &place, problems)?;
                    Check::Cel(Box::new(cel))
                }
                None => check::compile(&validate, OBJECT, names, problems)?,
            }),
            ([.., last], _) => {
                let message = format!("only one of {} can be given", given.join(" and "));
                problems.invalid(validate.child(last), message);
                return None;
            }
        };
        let mut names_of_message = names.clone();
        let of_elements = validation.each().iter().flat_map(ForEach::entries);
        of_elements.for_each(|entry| names_of_message.define(&entry.name));
        Some(Self {
            actions: actions.within(&validate, problems),
            allow_existing_violations: validate
                .get("allowExistingViolations")
                .and_then(|field| field.boolean(problems))
                .unwrap_or(true)
                // As in Kyverno: what was wrong before is wrong to a rule in CEL.
                && !matches!(validation, Validation::Whole(Check::Cel(_))),
            message: validate
                .get("message")
                .and_then(|field| message(&field, &names_of_message, problems)),
            validation,
        })
    }
}

/// Kyverno wants these with `validate.cel` alone.
fn without_cel(rule: &ManifestObject<'_>, problems: &mut Problems) {
    let field = rule.get("celPreconditions");
    if let Some(field) = field.filter(|field| field.value() != &serde_json::json!([])) {
        problems.invalid(field.path(), "celPreconditions come with validate.cel only");
    }
}

/// Refuses `imageExtractors`. Kyverno takes images out of other kinds for `verifyImages` alone, and refuses the field
/// elsewhere: `images` of such a rule would differ from its author's expectation.
fn without_extractors(rule: &ManifestObject<'_>, problems: &mut Problems) {
    let field = rule.get("imageExtractors");
    let field = field.filter(|field| field.value() != &serde_json::json!({}));
    if let Some(field) = field.filter(|_| !rule.has_any(&["verifyImages"])) {
        problems.invalid(field.path(), "imageExtractors come with verifyImages only");
    }
}
