//! Kyverno's settings, and the keys of the chart that are like them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    convert::{self, Convert},
    installation::KyvernoDeployment::{self, Admission, Reports},
};

/// The place of a setting in Kyverno.
#[derive(Clone, Copy, Debug)]
pub(super) enum KyvernoSetting {
    /// A key of its ConfigMap.
    Config(&'static str),
    /// A flag of a Deployment, without the dashes.
    Flag(KyvernoDeployment, &'static str),
    /// A field of a Deployment.
    Field(KyvernoDeployment, &'static str),
}

/// The surroundings of a setting.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingContext {
    /// The namespaces that Kyverno is in.
    pub(super) namespaces: BTreeSet<String>,
    /// All flags of the same Deployment.
    pub(super) flags: BTreeMap<String, String>,
}

/// The like of a setting in the chart.
pub(super) enum ChartKey {
    /// A key of the chart, its value there as JSON, and the conversion.
    Key(&'static str, &'static str, Convert),
    /// No key: the value that nobody has chosen, and what to do in its place.
    Nothing(&'static str, &'static str),
}

use self::{
    ChartKey::{Key, Nothing},
    KyvernoSetting::{Config, Field, Flag},
};

const ROLES: &str = "Users are not exempt by role. Name groups or users: config.excludeGroups, config.excludeUsernames.";

/// All known settings of Kyverno, each with its equivalent.
#[rustfmt::skip]
pub(super) const CHART_KEYS: [(KyvernoSetting, ChartKey); 29] = [
    (Config("resourceFilters"), Key("config.resourceFilters", "[]", convert::filters)),
    (Config("excludeGroups"), Key("config.excludeGroups", "[]", convert::words)),
    (Config("excludeUsernames"), Key("config.excludeUsernames", "[]", convert::words)),
    (Config("excludeRoles"), Nothing("", ROLES)),
    (Config("excludeClusterRoles"), Nothing("", ROLES)),
    (Config("webhooks"), Key("config.exemptNamespaces", r#"["kube-system"]"#, convert::namespaces)),
    (Config("webhookAnnotations"), Key("config.webhookAnnotations", r#"{"admissions.enforcer/disabled":"true"}"#, convert::pairs)),
    (Config("webhookLabels"), Key("config.webhookLabels", "{}", convert::pairs)),
    (Config("matchConditions"), Nothing("[]", "Give them to each policy: webhookConfiguration.matchConditions.")),
    (Config("defaultRegistry"), Nothing("docker.io", "An image without a registry is always one of docker.io here.")),
    (Flag(Admission, "enablePolicyException"), Key("features.policyExceptions.enabled", "false", convert::exceptions)),
    (Flag(Admission, "exceptionNamespace"), Key("features.policyExceptions.namespace", "\"\"", convert::same)),
    (Flag(Admission, "maxAPICallResponseLength"), Key("features.globalContext.maxApiCallResponseLength", "\"2Mi\"", convert::bytes)),
    (Flag(Admission, "loggingFormat"), Key("features.logging.format", "\"json\"", convert::same)),
    (Flag(Admission, "tracingAddress"), Nothing("", "Give features.tracing.endpoint, as in http://ADDRESS:PORT, and features.tracing.protocol: grpc.")),
    (Flag(Admission, "forceFailurePolicyIgnore"), Nothing("false", "Say it in each policy: failurePolicy.")),
    (Flag(Admission, "webhookTimeout"), Nothing("10", "Say it in each policy: webhookConfiguration.timeoutSeconds.")),
    (Flag(Admission, "allowInsecureRegistry"), Nothing("false", "Name the registries: watcher.container.extraArgs, insecure-registry.")),
    (Flag(Admission, "imagePullSecrets"), Nothing("", "Copy them to Anteroom's namespace, and name them in watcher.registrySecrets.")),
    (Flag(Reports, "backgroundScan"), Key("features.backgroundScan.enabled", "true", convert::boolean)),
    (Flag(Reports, "backgroundScanInterval"), Key("features.backgroundScan.backgroundScanInterval", "\"1h\"", convert::duration)),
    (Field(Admission, "/spec/replicas"), Key("admissionController.replicas", "2", convert::replicas)),
    (Field(Admission, "/spec/template/spec/nodeSelector"), Key("admissionController.nodeSelector", "{}", convert::same)),
    (Field(Admission, "/spec/template/spec/tolerations"), Key("admissionController.tolerations", "[]", convert::same)),
    (Field(Admission, "/spec/template/spec/priorityClassName"), Key("admissionController.priorityClassName", "\"\"", convert::same)),
    (Field(Reports, "/spec/replicas"), Key("reportsController.replicas", "2", convert::replicas)),
    (Field(Reports, "/spec/template/spec/nodeSelector"), Key("reportsController.nodeSelector", "{}", convert::same)),
    (Field(Reports, "/spec/template/spec/tolerations"), Key("reportsController.tolerations", "[]", convert::same)),
    (Field(Reports, "/spec/template/spec/priorityClassName"), Key("reportsController.priorityClassName", "\"\"", convert::same)),
];
