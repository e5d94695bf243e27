//! From a manifest to a [`Policy`].
//!
//! The manifest is walked field by field against tables of what is known, so that nothing in it goes
//! unread: a field is evaluated, or changes nothing that is decided here, or is a problem. Walking
//! goes on after a problem.

mod actions;
mod api_call;
mod autogen;
mod cel;
mod check;
mod conditions;
mod context;
mod exception;
mod existing;
mod expressions;
mod fields;
mod foreach;
mod match_conditions;
mod mutate;
mod pod_security;
mod resources;
mod rule;
mod sources;

use std::collections::BTreeSet;

use serde_json::Value;

pub use context::CONTEXT_ENTRIES_MAX;
pub use existing::TARGETS_MAX;
pub use sources::STALENESS_MAX_MS;

use crate::{
    FailureAction, FailurePolicy, MatchCondition, NotRun, Policy, Problem, Reporting, Rule,
    background::Background, problem::Problems,
};
use actions::Actions;
pub(crate) use exception::exception;
pub(crate) use expressions::root_fields;
use fields::{Field, Known, Object};

/// Levels of nesting of a manifest, beyond which it is not walked. Kyverno's own policies stay below
/// 20.
pub const MANIFEST_DEPTH_MAX: usize = 64;

/// Rules of one policy.
pub const RULES_MAX: usize = 256;

/// Compiles a kyverno.io/v1 `ClusterPolicy` or `Policy`, as an API server serves it.
///
/// # Errors
/// Every problem that keeps it from being ready, in the manifest's order: what is malformed or not
/// known at all (`POLICY_INVALID`), what Kyverno knows and this version does not evaluate
/// (`POLICY_UNSUPPORTED`), what a namespaced policy may not read (`POLICY_FORBIDDEN`). Of entries that
/// is not known here: whoever resolves one sees to it.
pub fn compile(manifest: &Value) -> Result<Policy, Vec<Problem>> {
    compile_for(manifest, Driver::IN_CLUSTER)
}

/// What whoever drives evaluations knows beyond the facts of the cluster. A policy that needs what is not
/// known is not ready (`POLICY_UNSUPPORTED`), since it could decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// What becomes of an object that rules change.
    pub mutation: bool,
    /// The roles and cluster roles of users: `roles` and `clusterRoles` of a request.
    pub roles: bool,
    /// The labels of namespaces ([`AdmissionRequest::with_namespace_labels`](crate::AdmissionRequest)).
    pub namespace_labels: bool,
    /// The data of images ([`FactTarget::Image`](crate::FactTarget)).
    pub images: bool,
    /// How clouds' registries are signed in to (`imageRegistryCredentials.providers`). Otherwise files do it.
    pub image_providers: bool,
    /// How objects are changed that exist already (`mutate.targets`): rules that do are not run otherwise.
    pub targets: bool,
    /// That the API server has evaluated the conditions of [`Policy::match_conditions`] before it asks. They
    /// are evaluated here otherwise.
    pub match_conditions: bool,
}

impl Driver {
    /// What is known where the webhook drives evaluations.
    pub const IN_CLUSTER: Self = Self {
        mutation: true,
        roles: true,
        namespace_labels: true,
        images: true,
        image_providers: false,
        targets: true,
        match_conditions: true,
    };

    /// One that knows all of it, where there is no API server: it changes nothing that exists already.
    pub const ALL: Self = Self {
        mutation: true,
        roles: true,
        namespace_labels: true,
        images: true,
        image_providers: true,
        targets: false,
        match_conditions: false,
    };
}

/// As [`compile`], for evaluations that are driven by `driver`.
///
/// # Errors
/// As there.
pub fn compile_for(manifest: &Value, driver: Driver) -> Result<Policy, Vec<Problem>> {
    let mut problems = Problems::of(driver);
    let policy = if is_deeper_than(manifest, MANIFEST_DEPTH_MAX) {
        let message = format!("the manifest nests deeper than {MANIFEST_DEPTH_MAX} levels");
        problems.invalid("", message);
        None
    } else {
        compile_manifest(&Field::root(manifest), &mut problems)
    };
    match policy {
        Some(policy) if problems.is_empty() => Ok(policy),
        _ => Err(problems.into_vec()),
    }
}

pub(crate) fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(elements) => elements.iter().any(|element| is_deeper_than(element, left)),
        Value::Object(entries) => entries.values().any(|value| is_deeper_than(value, left)),
        _ => false,
    }
}

const MANIFEST: Known = Known {
    evaluated: &["apiVersion", "kind", "metadata", "spec"],
    inert: &["status"],
    later: &[],
};

/// `None` only where a problem was noted; the reverse does not hold, here and in all that follows.
fn compile_manifest(manifest: &Field<'_>, problems: &mut Problems) -> Option<Policy> {
    let manifest = manifest.object(&MANIFEST, problems)?;
    if let Some(version) = manifest.required("apiVersion", problems) {
        version.known_text(&["kyverno.io/v1", "kyverno.io/v2beta1"], problems);
    }
    let kind = manifest
        .required("kind", problems)
        .and_then(|kind| kind.known_text(&["ClusterPolicy", "Policy"], problems));
    let metadata = manifest.required("metadata", problems)?;
    let (name, uid) = (metadata.text_at("name"), metadata.text_at("uid"));
    if name.is_none() {
        problems.invalid("metadata.name", "a name is required");
    }
    // Where the API server has not filled it in.
    let namespace = metadata.text_at("namespace").unwrap_or("default");
    let namespace = (kind == Some("Policy")).then(|| namespace.to_owned());
    let spec = manifest
        .required("spec", problems)?
        .object(&SPEC, problems)?;
    let settings = Settings::compile(&spec, problems);
    let home = namespace.as_deref();
    let (mut rules, not_run) = compile_rules(&spec, &settings.actions, home, problems);
    if problems.is_empty() {
        let own = manifest.get("metadata").zip(spec.get("rules"));
        rules.extend(own.into_iter().flat_map(|(metadata, own)| {
            derive_rules(&metadata, &own, &settings.actions, home, problems)
        }));
    }
    Some(Policy {
        name: name?.to_owned(),
        namespace,
        uid: uid.map(str::to_owned),
        rules,
        not_run,
        failure_policy: settings.failure_policy,
        timeout_seconds: settings.timeout_seconds,
        admission: settings.admission,
        emit_warning: settings.emit_warning,
        applies_one: settings.applies_one,
        match_conditions: settings.match_conditions,
        asks_conditions: !problems.driver().match_conditions,
        background: Background {
            off: settings.background_off,
            reporting: reporting(metadata.value()),
        },
    })
}

const SPEC: Known = Known {
    evaluated: &[
        "admission",
        "applyRules",
        "background",
        "emitWarning",
        "failurePolicy",
        "mutateExistingOnPolicyUpdate",
        "rules",
        "validationFailureAction",
        "validationFailureActionOverrides",
        "webhookConfiguration",
        "webhookTimeoutSeconds",
    ],
    // About rules of kinds that are not run.
    inert: &[
        "generateExisting",
        "generateExistingOnPolicyUpdate",
        "schemaValidation",
        "useServerSideApply",
    ],
    later: &[],
};

const WEBHOOK_CONFIGURATION: Known = Known {
    evaluated: &["failurePolicy", "matchConditions", "timeoutSeconds"],
    inert: &[],
    later: &[],
};

/// What a policy says once for all its rules.
struct Settings {
    actions: Actions,
    failure_policy: FailurePolicy,
    timeout_seconds: Option<u32>,
    admission: bool,
    emit_warning: bool,
    background_off: bool,
    applies_one: bool,
    match_conditions: Vec<MatchCondition>,
}

impl Settings {
    fn compile(spec: &Object<'_>, problems: &mut Problems) -> Self {
        let webhook = spec
            .get("webhookConfiguration")
            .and_then(|webhook| webhook.object(&WEBHOOK_CONFIGURATION, problems));
        let webhook_field = |name| webhook.as_ref().and_then(|webhook| webhook.get(name));
        let failure_policy = webhook_field("failurePolicy")
            .or_else(|| spec.get("failurePolicy"))
            .and_then(|field| field.known_text(&["Fail", "Ignore"], problems));
        let timeout_seconds = webhook_field("timeoutSeconds")
            .or_else(|| spec.get("webhookTimeoutSeconds"))
            .and_then(|field| field.integer(1..=30, problems));
        let applies_one = spec
            .get("applyRules")
            .and_then(|field| field.known_text(&["All", "One"], problems));
        let match_conditions =
            match_conditions::compile(webhook_field("matchConditions"), problems);
        let mut flag = |name, otherwise| {
            spec.get(name)
                .and_then(|field| field.boolean(problems))
                .unwrap_or(otherwise)
        };
        let (admission, emit_warning) = (flag("admission", true), flag("emitWarning", false));
        let background_off = !flag("background", true);
        Self {
            actions: Actions::of_policy(spec, problems),
            failure_policy: match failure_policy {
                Some("Ignore") => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            timeout_seconds,
            admission,
            emit_warning,
            background_off,
            applies_one: applies_one == Some("One"),
            match_conditions,
        }
    }
}

/// What annotations say of reports. What is not known there is left out, as nothing is decided by it.
fn reporting(metadata: &Value) -> Reporting {
    let annotation = |name: &str| {
        let name = format!("policies.kyverno.io/{name}");
        metadata["annotations"][name].as_str()
    };
    Reporting {
        category: annotation("category").map(str::to_owned),
        severity: annotation("severity").and_then(Reporting::severity_of),
        unscored: annotation("scored") == Some("false"),
    }
}

/// In the API's spelling, or the older one in lower case.
fn failure_action(field: Option<Field<'_>>, problems: &mut Problems) -> Option<FailureAction> {
    let action = field?.known_text(&["Enforce", "Audit", "enforce", "audit"], problems)?;
    Some(match action {
        "Enforce" | "enforce" => FailureAction::Enforce,
        _ => FailureAction::Audit,
    })
}

fn compile_rules(
    spec: &Object<'_>,
    actions: &Actions,
    home: Option<&str>,
    problems: &mut Problems,
) -> (Vec<Rule>, Vec<NotRun>) {
    let Some(field) = spec.required("rules", problems) else {
        return Default::default();
    };
    let fields = field.list(problems);
    if fields.is_empty() {
        problems.invalid(field.path(), "a policy has at least one rule");
    }
    if fields.len() > RULES_MAX {
        problems.invalid(field.path(), format!("more than {RULES_MAX} rules"));
    }
    let mut names = BTreeSet::new();
    let (mut rules, mut not_run) = (Vec::new(), Vec::new());
    let driver = problems.driver();
    let runs_none = (fields.iter()).all(|field| rule::not_run(field.value(), driver).is_some());
    for field in fields.iter().take(RULES_MAX) {
        if let Some(name) = field.text_at("name")
            && !names.insert(name)
        {
            let path = format!("{}.name", field.path());
            problems.invalid(path, format!("another rule is named `{name}`"));
        }
        match rule::not_run(field.value(), driver) {
            // A policy of which nothing is run would be in force in name alone.
            Some(kind) if !runs_none => not_run.push(passed_over(field, kind)),
            _ => rules.extend(rule::compile(field, actions, home, &[], problems)),
        }
    }
    (rules, not_run)
}

fn passed_over(field: &Field<'_>, kind: &'static str) -> NotRun {
    NotRun {
        rule: field.text_at("name").unwrap_or_default().to_owned(),
        kind,
        path: format!("{}.{kind}", field.path()),
    }
}

/// The rules of a manifest, where none of them is run by `driver`: why such a policy is no error to whoever
/// only wants to know what the others say. None where any is run, or there are no rules.
pub fn none_run(manifest: &Value, driver: Driver) -> Vec<NotRun> {
    let rules = manifest["spec"]["rules"].as_array().into_iter().flatten();
    let passed_over = |(at, rule): (usize, &Value)| {
        let kind = rule::not_run(rule, driver)?;
        let field = Field::at(rule, format!("spec.rules[{at}]"));
        Some(passed_over(&field, kind))
    };
    let all: Option<Vec<_>> = rules.enumerate().map(passed_over).collect();
    all.unwrap_or_default()
}

/// The rules that are derived from a policy's own for what makes Pods, as if they were written so, in the
/// order in which they are evaluated. None of a manifest that has no rules.
pub fn derived_rules(manifest: &Value) -> Vec<Value> {
    let own = manifest["spec"]["rules"].as_array();
    let derived = autogen::derive(&manifest["metadata"], own.map_or(&[], Vec::as_slice));
    derived.into_iter().map(|derived| derived.rule).collect()
}

/// Those for what makes Pods, after the policy's own.
fn derive_rules(
    metadata: &Field<'_>,
    own: &Field<'_>,
    actions: &Actions,
    home: Option<&str>,
    problems: &mut Problems,
) -> Vec<Rule> {
    let own_rules = own.value().as_array().map_or(&[][..], Vec::as_slice);
    autogen::derive(metadata.value(), own_rules)
        .iter()
        .filter_map(|derived| {
            let path = format!("{}[{}]", own.path(), derived.of);
            let field = Field::at(&derived.rule, path);
            let is_run = rule::not_run(&derived.rule, problems.driver()).is_none();
            let template = derived.template;
            let compile = || rule::compile(&field, actions, home, template, problems);
            let mut rule = is_run.then(compile)??;
            rule.matches.kinds_alone.clone_from(&derived.kinds);
            Some(rule)
        })
        .collect()
}

#[cfg(test)]
mod tests;
