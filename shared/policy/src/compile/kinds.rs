//! Policies of policies.kyverno.io: `ValidatingPolicy`, `MutatingPolicy` and their namespaced kinds.
//!
//! A policy is one rule without a name, and one for each way to make Pods that Kyverno derives from a policy on Pods.

mod autogen;
mod constraints;
mod definitions;
mod existing;
mod expressions;
mod facts;
mod mutating;
mod validating;

use super::{
    fields::{Field, KnownFields, ManifestObject},
    settings::reporting,
};
use crate::ir::{
    FailurePolicy, Policy, PolicyKind, Rule,
    matching::Matches,
    problem::Problems,
    rule::{FailureAction, Overrides, Work},
    settings::Settings,
    subquery::Pushdown,
};

const CEL_POLICY_MANIFEST: KnownFields = KnownFields {
    evaluated: &["apiVersion", "kind", "metadata", "spec"],
    inert: &["status"],
    later: &[],
};

const CEL_POLICY_WEBHOOK_CONFIGURATION: KnownFields = KnownFields {
    evaluated: &["timeoutSeconds"],
    inert: &[],
    later: &[],
};

const EVALUATION_SWITCH: KnownFields = KnownFields {
    evaluated: &["enabled"],
    inert: &[],
    later: &[],
};

/// The only payload of admission, which an empty text means too; others are of Kyverno's other servers.
const MODES: &[&str] = &["", "Kubernetes"];

/// The policy that contains an expression, as the compiler of an expression needs to know it.
struct PolicySite<'p> {
    /// The namespace of a namespaced policy.
    home: Option<&'p str>,
}

/// Returns the kind of a manifest of policies.kyverno.io, whether it is run or not.
pub(super) fn kind_of(manifest: &Field<'_>) -> Option<PolicyKind> {
    let version = manifest.text_at("apiVersion")?;
    let kind = PolicyKind::of_manifest(version, manifest.text_at("kind")?)?;
    kind.is_cel().then_some(kind)
}

/// Compiles a manifest of this kind.
pub(super) fn compile(
    kind: PolicyKind,
    manifest: &Field<'_>,
    problems: &mut Problems,
) -> Option<Policy> {
    let manifest = manifest.object(&CEL_POLICY_MANIFEST, problems)?;
    if let Some(version) = manifest.required("apiVersion", problems) {
        let known = kind.versions().iter();
        let known: Vec<_> = known
            .map(|version| format!("{}/{version}", kind.group()))
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        version.known_text(&known, problems);
    }
    let metadata = manifest.required("metadata", problems)?;
    let (name, uid) = (metadata.text_at("name"), metadata.text_at("uid"));
    if name.is_none() {
        problems.invalid("metadata.name", "a name is required");
    }
    // Where the API server has not filled it in.
    let namespace = metadata.text_at("namespace").unwrap_or("default");
    let namespace = kind.is_namespaced().then_some(namespace);
    let spec = manifest.required("spec", problems)?;
    let site = PolicySite { home: namespace };
    let (rules, not_run, settings) = match kind.is_mutating() {
        true => mutating::compile(&spec, &site, metadata.value(), problems)?,
        false => {
            let (rules, settings) = validating::compile(&spec, &site, metadata.value(), problems)?;
            (rules, Vec::new(), settings)
        }
    };
    Some(Policy {
        kind,
        name: name?.to_owned(),
        namespace: namespace.map(str::to_owned),
        uid: uid.map(str::to_owned),
        rules,
        not_run,
        settings,
    })
}

/// Compiles the fields of `spec` that hold for all rules. `known`: the fields of `evaluation`.
fn settings(
    spec: &ManifestObject<'_>,
    known: &KnownFields,
    metadata: &serde_json::Value,
    problems: &mut Problems,
) -> (Settings, EvaluationFields) {
    let webhook = spec.get("webhookConfiguration");
    let webhook =
        webhook.and_then(|field| field.object(&CEL_POLICY_WEBHOOK_CONFIGURATION, problems));
    let timeout = webhook.and_then(|webhook| webhook.get("timeoutSeconds"));
    let failure_policy = spec
        .get("failurePolicy")
        .and_then(|field| field.known_text(&["Fail", "Ignore"], problems));
    let evaluation = spec.get("evaluation");
    let evaluation = evaluation.and_then(|field| field.object(known, problems));
    let mut is_of_objects = true;
    if let Some(mode) = evaluation.as_ref().and_then(|found| found.get("mode"))
        && let Some(text) = mode.text(problems)
        && !MODES.contains(&text)
    {
        is_of_objects = false;
        let message = format!("evaluation mode `{text}` is not run: only `Kubernetes` is");
        problems.unsupported(mode.path(), message);
    }
    let mut switch = |name, otherwise| {
        let field = evaluation.as_ref().and_then(|found| found.get(name));
        let switch = field.and_then(|field| field.object(&EVALUATION_SWITCH, problems));
        let enabled = switch.and_then(|switch| switch.get("enabled"));
        enabled
            .and_then(|field| field.boolean(problems))
            .unwrap_or(otherwise)
    };
    let (admission, background) = (switch("admission", true), switch("background", true));
    let changes_existing = switch("mutateExisting", false);
    let mut flag = |name| {
        let field = evaluation.as_ref().and_then(|found| found.get(name));
        field.and_then(|field| field.boolean(problems))
    };
    let server_side = flag("useServerSideApply");
    let skips_own = flag("skipBackgroundRequests");
    let settings = Settings {
        failure_policy: match failure_policy {
            Some("Ignore") => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        },
        timeout_seconds: timeout.and_then(|field| field.integer(1..=30, problems)),
        admission,
        emit_warning: false,
        background,
        applies_one: false,
        match_conditions: Vec::new(),
        reporting: reporting(metadata),
    };
    let evaluation = EvaluationFields {
        is_of_objects,
        changes_existing,
        applies_server_side: server_side.unwrap_or(false),
        is_triggered_by_own: skips_own == Some(false),
    };
    (settings, evaluation)
}

/// The fields of `evaluation` that are about one kind of policy, or none of ours.
struct EvaluationFields {
    /// `mode: Kubernetes`. In a different mode, the compiler reads no further field.
    is_of_objects: bool,
    /// The value of `mutateExisting`.
    changes_existing: bool,
    /// The value of `useServerSideApply`.
    applies_server_side: bool,
    /// `skipBackgroundRequests: false`
    is_triggered_by_own: bool,
}

/// Builds a rule of a kind of policies.kyverno.io. Fields without a counterpart have the defaults of a kyverno.io rule.
fn rule(
    name: &str,
    action: FailureAction,
    matches: Matches,
    work: Work,
    context: Vec<std::sync::Arc<crate::ir::context::ContextEntry>>,
) -> Rule {
    Rule {
        name: name.to_owned(),
        action,
        overrides: Overrides::default(),
        allow_existing_violations: false,
        matches,
        context,
        preconditions: crate::ir::conditions::Conditions::default(),
        message: None,
        work,
        pushdown: Pushdown::default(),
        names_roles: false,
        paths_beside_facts: None,
    }
}
