//! Kyverno's settings, and the keys of the chart that are like them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    convert::{self, Converted, unless},
    installation::Part,
};

/// Where a setting of Kyverno's stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// A key of its ConfigMap.
    Config(&'static str),
    /// A flag of a Deployment, without the dashes.
    Flag(Part, &'static str),
    /// A field of a Deployment.
    Field(Part, &'static str),
}

/// What is known beside a setting.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// The namespaces that Kyverno is in.
    pub(super) namespaces: BTreeSet<String>,
    /// All flags of the same Deployment.
    pub(super) flags: BTreeMap<String, String>,
}

/// What a setting is like.
pub(super) enum Ours {
    /// A key of the chart, with its value there as JSON, and the conversion.
    Key(&'static str, &'static str, fn(&Value, &Around) -> Converted),
    /// No key: what to say of the value, if anything.
    Nothing(fn(&Value) -> Option<String>),
}

use self::{
    Ours::{Key, Nothing},
    Part::{Admission, Reports},
    Place::{Config, Field, Flag},
};

/// All settings that are known, each with what it is like.
pub(super) const LIKES: [(Place, Ours); 39] = [
    (
        Config("resourceFilters"),
        Key("config.resourceFilters", "[]", convert::filters),
    ),
    (
        Config("excludeGroups"),
        Key("config.excludeGroups", "[]", convert::words),
    ),
    (
        Config("excludeUsernames"),
        Key("config.excludeUsernames", "[]", convert::words),
    ),
    (
        Config("webhooks"),
        Key(
            "config.exemptNamespaces",
            r#"["kube-system"]"#,
            convert::namespaces,
        ),
    ),
    (
        Config("webhookAnnotations"),
        Key(
            "config.webhookAnnotations",
            r#"{"admissions.enforcer/disabled":"true"}"#,
            convert::pairs,
        ),
    ),
    (
        Config("webhookLabels"),
        Key("config.webhookLabels", "{}", convert::pairs),
    ),
    (
        Config("excludeRoles"),
        Nothing(|value| unless(value, &[], ROLES)),
    ),
    (
        Config("excludeClusterRoles"),
        Nothing(|value| unless(value, &[], ROLES)),
    ),
    (
        Config("matchConditions"),
        Nothing(|value| {
            unless(
                value,
                &["[]"],
                "Give them to each policy: webhookConfiguration.matchConditions.",
            )
        }),
    ),
    (
        Config("defaultRegistry"),
        Nothing(|value| unless(value, &["docker.io"], REGISTRY)),
    ),
    (
        Config("enableDefaultRegistryMutation"),
        Nothing(|value| unless(value, &["true"], REGISTRY)),
    ),
    (
        Config("generateSuccessEvents"),
        Nothing(|value| {
            unless(
                value,
                &["false"],
                "Requests that pass are told of by `anteroom tap`, not by Events.",
            )
        }),
    ),
    (
        Config("updateRequestThreshold"),
        Nothing(|value| {
            unless(
                value,
                &["1000"],
                "Rules that generate are not run, so there is no queue of them.",
            )
        }),
    ),
    (
        Flag(Admission, "enablePolicyException"),
        Key(
            "features.policyExceptions.enabled",
            "false",
            convert::exceptions,
        ),
    ),
    (
        Flag(Admission, "exceptionNamespace"),
        Key("features.policyExceptions.namespace", "\"\"", convert::same),
    ),
    (
        Flag(Admission, "maxAPICallResponseLength"),
        Key(
            "features.globalContext.maxApiCallResponseLength",
            "\"2Mi\"",
            convert::bytes,
        ),
    ),
    (
        Flag(Admission, "loggingFormat"),
        Key("features.logging.format", "\"json\"", convert::log_format),
    ),
    (
        Flag(Admission, "tracingAddress"),
        Key("features.tracing.endpoint", "\"\"", convert::collector),
    ),
    (
        Flag(Admission, "tracingAddress"),
        Key("features.tracing.protocol", "\"\"", convert::grpc),
    ),
    (
        Flag(Admission, "tracingCreds"),
        Nothing(|value| {
            unless(
                value,
                &[],
                "Traces are sent without a certificate of one's own.",
            )
        }),
    ),
    (
        Flag(Admission, "forceFailurePolicyIgnore"),
        Nothing(|value| unless(value, &["false"], "Say it in each policy: failurePolicy.")),
    ),
    (
        Flag(Admission, "allowInsecureRegistry"),
        Nothing(|value| {
            unless(
                value,
                &["false"],
                "Name the registries: watcher.container.extraArgs, insecure-registry.",
            )
        }),
    ),
    (
        Flag(Admission, "imagePullSecrets"),
        Nothing(|value| {
            unless(
                value,
                &[],
                "Copy these Secrets to Anteroom's namespace, and name them in watcher.registrySecrets.",
            )
        }),
    ),
    (
        Flag(Admission, "omitEvents"),
        Nothing(|value| unless(value, &[USUAL_EVENTS], EVENTS)),
    ),
    (
        Flag(Admission, "omit-events"),
        Nothing(|value| unless(value, &[USUAL_EVENTS], EVENTS)),
    ),
    (
        Flag(Admission, "webhookTimeout"),
        Nothing(|value| {
            unless(
                value,
                &["10"],
                "Say it in each policy: webhookConfiguration.timeoutSeconds.",
            )
        }),
    ),
    (
        Flag(Admission, "autoUpdateWebhooks"),
        Nothing(|value| {
            unless(
                value,
                &["true"],
                "The webhook always writes its own configurations.",
            )
        }),
    ),
    (
        Flag(Admission, "generateValidatingAdmissionPolicy"),
        Nothing(|value| unless(value, &["false"], NATIVE)),
    ),
    (
        Flag(Admission, "generateMutatingAdmissionPolicy"),
        Nothing(|value| unless(value, &["false"], NATIVE)),
    ),
    (
        Flag(Reports, "backgroundScan"),
        Key("features.backgroundScan.enabled", "true", convert::boolean),
    ),
    (
        Flag(Reports, "backgroundScanInterval"),
        Key(
            "features.backgroundScan.backgroundScanInterval",
            "\"1h\"",
            convert::duration,
        ),
    ),
    (
        Field(Admission, "/spec/replicas"),
        Key("admissionController.replicas", "2", convert::replicas),
    ),
    (
        Field(Admission, "/spec/template/spec/nodeSelector"),
        Key("admissionController.nodeSelector", "{}", convert::same),
    ),
    (
        Field(Admission, "/spec/template/spec/tolerations"),
        Key("admissionController.tolerations", "[]", convert::same),
    ),
    (
        Field(Admission, "/spec/template/spec/priorityClassName"),
        Key(
            "admissionController.priorityClassName",
            "\"\"",
            convert::same,
        ),
    ),
    (
        Field(Reports, "/spec/replicas"),
        Key("reportsController.replicas", "2", convert::replicas),
    ),
    (
        Field(Reports, "/spec/template/spec/nodeSelector"),
        Key("reportsController.nodeSelector", "{}", convert::same),
    ),
    (
        Field(Reports, "/spec/template/spec/tolerations"),
        Key("reportsController.tolerations", "[]", convert::same),
    ),
    (
        Field(Reports, "/spec/template/spec/priorityClassName"),
        Key("reportsController.priorityClassName", "\"\"", convert::same),
    ),
];

const ROLES: &str = "Users are not exempt by role. Name groups or users: config.excludeGroups, config.excludeUsernames.";
const REGISTRY: &str = "An image without a registry is always one of docker.io here.";
const USUAL_EVENTS: &str = "PolicyApplied,PolicySkipped";
const EVENTS: &str = "Events are not chosen by type.";
const NATIVE: &str = "No admission policies of the API server's own are made: the webhook decides by the policies themselves.";
