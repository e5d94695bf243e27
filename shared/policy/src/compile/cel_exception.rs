//! `PolicyException` of policies.kyverno.io.

use anteroom_cel::{Dialect, Names};
use serde_json::Value;

use super::{
    cel::{CEL_EXPRESSIONS_MAX, limited, truth},
    exception::{ExceptionHead, exception_head},
    fields::{Field, KnownFields},
};
use crate::ir::{
    PolicyException, PolicyKind,
    exception::{CelException, Covered},
    matching::Matches,
    problem::Problems,
};

/// The versions that are served; they have the same fields.
const VERSIONS: &[&str] = &[
    "policies.kyverno.io/v1",
    "policies.kyverno.io/v1beta1",
    "policies.kyverno.io/v1alpha1",
];

/// Policies that one exception names.
const POLICIES_MAX: usize = 256;

/// The label with the priority of an exception: of several that exempt a policy, the highest one is reported.
const PRIORITY: &str = "polex.kyverno.io/priority";

/// Images, or values, that one exception allows.
const ALLOWED_MAX: usize = 1024;

const CEL_EXCEPTION_SPEC: KnownFields = KnownFields {
    evaluated: &[
        "allowedValues",
        "expiresAt",
        "images",
        "matchConditions",
        "policyRefs",
        "reportResult",
    ],
    // About reports and about native policies.
    inert: &["evaluationMode", "properties"],
    later: &[],
};

const CEL_EXCEPTION_POLICY: KnownFields = KnownFields {
    evaluated: &["kind", "name"],
    inert: &[],
    later: &[],
};

const CEL_EXCEPTION_CONDITION: KnownFields = KnownFields {
    evaluated: &["expression", "name"],
    inert: &[],
    later: &[],
};

/// Returns whether a manifest is of this group.
pub(super) fn is_one(manifest: &Field<'_>) -> bool {
    let version = manifest.text_at("apiVersion");
    version.is_some_and(|version| version.starts_with("policies.kyverno.io/"))
}

pub(super) fn compile(manifest: &Field<'_>, problems: &mut Problems) -> Option<PolicyException> {
    let ExceptionHead {
        metadata,
        name,
        namespace,
        spec,
    } = exception_head(manifest, VERSIONS, problems)?;
    let priority = metadata.value()["labels"][PRIORITY].as_str();
    // As in Kyverno, where a text that is no number says nothing.
    let priority = priority.and_then(|text| text.parse().ok()).unwrap_or(0);
    let spec = spec.object(&CEL_EXCEPTION_SPEC, problems)?;
    let references = spec.required("policyRefs", problems)?;
    let fields = limited(&references, POLICIES_MAX, problems);
    if fields.is_empty() {
        problems.invalid(references.path(), "it is empty");
    }
    let covers: Vec<_> = fields
        .iter()
        .filter_map(|field| covered(field, namespace, problems))
        .collect();
    let names = Names::default().in_dialect(Dialect::Kyverno);
    let conditions = spec.get("matchConditions");
    let conditions = conditions.map_or_else(Vec::new, |field| {
        limited(&field, CEL_EXPRESSIONS_MAX, problems)
    });
    let conditions = conditions.iter().filter_map(|field| {
        let condition = field.object(&CEL_EXCEPTION_CONDITION, problems)?;
        truth(&condition, &names, "", problems)
    });
    let conditions = conditions.collect();
    let mut allowed = |name| {
        let field = spec.get(name);
        let fields = field.map_or_else(Vec::new, |field| limited(&field, ALLOWED_MAX, problems));
        let texts = fields.iter().filter_map(|field| field.plain_text(problems));
        texts.map(Value::from).collect::<Vec<_>>()
    };
    let (allowed_images, allowed_values) = (allowed("images"), allowed("allowedValues"));
    let result = spec.get("reportResult");
    let result = result.and_then(|field| field.known_text(&["skip", "pass"], problems));
    let expires = spec.get("expiresAt").and_then(|field| {
        let text = field.text(problems)?;
        let time = anteroom_functions::values::timestamp_ns(text);
        if time.is_none() {
            problems.invalid(
                field.path(),
                "a time is expected here, as in 2030-01-31T00:00:00Z",
            );
        }
        time
    });
    Some(PolicyException {
        name: format!("{namespace}/{name}"),
        matches: Matches::All,
        covers,
        conditions: None,
        controls: Vec::new(),
        background: true,
        in_cel: Some(CelException {
            conditions,
            allowed_images,
            allowed_values,
            passes: result == Some("pass"),
            priority,
            expires_ns: expires,
        }),
    })
}

/// A policy of a namespace is one in the exception's own.
fn covered(field: &Field<'_>, namespace: &str, problems: &mut Problems) -> Option<Covered> {
    let reference = field.object(&CEL_EXCEPTION_POLICY, problems)?;
    let kind = reference.required("kind", problems);
    let name = reference.required("name", problems)?.plain_text(problems)?;
    let kind = kind?;
    let text = kind.plain_text(problems)?;
    let known = PolicyKind::IN_CEL.into_iter();
    let mut known = known.filter(|known| known.as_str() == text);
    let key = match known.next() {
        Some(known) => known.key(namespace, &name),
        // Of a kind that is not run here: it exempts nothing.
        None => anteroom_model::ObjectKey::new("", format!("{text}/{name}")),
    };
    Some(Covered {
        policy: match &*key.namespace {
            "" => key.name.into_string(),
            namespace => format!("{namespace}/{}", key.name),
        },
        rules: vec!["*".to_owned()],
    })
}
