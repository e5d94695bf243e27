//! The fields of a policy that hold for all its rules.

use serde_json::Value;

use super::{
    fields::{KnownFields, ManifestObject},
    match_conditions,
    metadata::{CATEGORY, SCORED, SEVERITY},
};
use crate::ir::{FailurePolicy, Reporting, problem::Problems, settings::Settings};

pub(super) const POLICY_SPEC: KnownFields = KnownFields {
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

const POLICY_WEBHOOK_CONFIGURATION: KnownFields = KnownFields {
    evaluated: &["failurePolicy", "matchConditions", "timeoutSeconds"],
    inert: &[],
    later: &[],
};

/// Compiles the fields of `spec` that hold for all rules, and the annotations about reports.
pub(super) fn compile(
    spec: &ManifestObject<'_>,
    metadata: &Value,
    problems: &mut Problems,
) -> Settings {
    let webhook = spec
        .get("webhookConfiguration")
        .and_then(|webhook| webhook.object(&POLICY_WEBHOOK_CONFIGURATION, problems));
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
    let match_conditions = match_conditions::compile(webhook_field("matchConditions"), problems);
    let mut flag = |name, otherwise| {
        spec.get(name)
            .and_then(|field| field.boolean(problems))
            .unwrap_or(otherwise)
    };
    Settings {
        failure_policy: match failure_policy {
            Some("Ignore") => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        },
        timeout_seconds,
        admission: flag("admission", true),
        emit_warning: flag("emitWarning", false),
        background: flag("background", true),
        applies_one: applies_one == Some("One"),
        match_conditions,
        reporting: reporting(metadata),
    }
}

/// Reads the annotations about reports. An unknown value is left out, since nothing is decided by it.
pub(super) fn reporting(metadata: &Value) -> Reporting {
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    Reporting {
        category: annotation(CATEGORY).map(str::to_owned),
        severity: annotation(SEVERITY).and_then(Reporting::severity_of),
        unscored: annotation(SCORED) == Some("false"),
    }
}
