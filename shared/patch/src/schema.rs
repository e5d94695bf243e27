//! Merge keys of the lists in Kubernetes' own types.
//!
//! The table holds what API servers publish of their types as `x-kubernetes-patch-merge-key` and
//! `x-kubernetes-list-map-keys`, as far as a list is merged at all. A list that is not here is replaced.

/// The rules for the lists below one place of a document.
#[derive(Clone, Copy, Debug)]
pub struct Schema(&'static Type);

/// The rules for the fields of a type; a missing field has none.
#[derive(Debug)]
struct Type(&'static [(&'static str, Field)]);

#[derive(Debug)]
enum Field {
    /// An object.
    Of(&'static Type),
    /// A list of objects that are told from each other by these keys, the first of which each has.
    Keyed(&'static [&'static str], &'static Type),
    /// A list of texts or numbers, each there once.
    Set,
    /// A list that is replaced, of objects.
    Listed(&'static Type),
}

/// The rule for merging a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListRule {
    Keyed(&'static [&'static str], Schema),
    Set,
    /// The list is replaced as a whole; the rules are for its elements.
    Replaced(Schema),
}

impl Schema {
    /// Nothing is known: every list is replaced.
    pub const UNKNOWN: Self = Self(&NOTHING);

    /// The schema of an `apiVersion` and `kind`.
    pub fn of(api_version: &str, kind: &str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let known = KINDS
            .iter()
            .find(|(of, name, _)| *of == group && *name == kind);
        match known {
            Some((_, _, of)) => Self(of),
            None if GROUPS.contains(&group) => Self(&BARE),
            None => Self::UNKNOWN,
        }
    }

    /// The schema of a field.
    pub(crate) fn field(self, name: &str) -> Self {
        match self.field_rule(name) {
            Some(Field::Of(of)) => Self(of),
            _ => Self::UNKNOWN,
        }
    }

    /// The rule for the list in a field.
    pub(crate) fn list(self, name: &str) -> ListRule {
        match self.field_rule(name) {
            Some(Field::Keyed(keys, of)) => ListRule::Keyed(keys, Self(of)),
            Some(Field::Set) => ListRule::Set,
            Some(Field::Listed(of)) => ListRule::Replaced(Self(of)),
            Some(Field::Of(_)) | None => ListRule::Replaced(Self::UNKNOWN),
        }
    }

    fn field_rule(self, name: &str) -> Option<&'static Field> {
        let Type(fields) = self.0;
        fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, of)| of)
    }
}

const NOTHING: Type = Type(&[]);

const METADATA: Type = Type(&[
    ("finalizers", Field::Set),
    ("ownerReferences", Field::Keyed(&["uid"], &NOTHING)),
]);

const CONDITIONS: Type = Type(&[("conditions", Field::Keyed(&["type"], &NOTHING))]);

const CONTAINER: Type = Type(&[
    ("env", Field::Keyed(&["name"], &NOTHING)),
    (
        "ports",
        Field::Keyed(&["containerPort", "protocol"], &NOTHING),
    ),
    ("volumeDevices", Field::Keyed(&["devicePath"], &NOTHING)),
    ("volumeMounts", Field::Keyed(&["mountPath"], &NOTHING)),
]);

const POD_SPEC: Type = Type(&[
    ("containers", Field::Keyed(&["name"], &CONTAINER)),
    ("ephemeralContainers", Field::Keyed(&["name"], &CONTAINER)),
    ("hostAliases", Field::Keyed(&["ip"], &NOTHING)),
    ("imagePullSecrets", Field::Keyed(&["name"], &NOTHING)),
    ("initContainers", Field::Keyed(&["name"], &CONTAINER)),
    ("resourceClaims", Field::Keyed(&["name"], &NOTHING)),
    ("schedulingGates", Field::Keyed(&["name"], &NOTHING)),
    (
        "topologySpreadConstraints",
        Field::Keyed(&["topologyKey", "whenUnsatisfiable"], &NOTHING),
    ),
    ("volumes", Field::Keyed(&["name"], &NOTHING)),
]);

const POD_STATUS: Type = Type(&[
    ("conditions", Field::Keyed(&["type"], &NOTHING)),
    ("hostIPs", Field::Keyed(&["ip"], &NOTHING)),
    ("podIPs", Field::Keyed(&["ip"], &NOTHING)),
    ("resourceClaimStatuses", Field::Keyed(&["name"], &NOTHING)),
]);

const POD: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&POD_SPEC)),
    ("status", Field::Of(&POD_STATUS)),
]);

/// The template of a Pod.
const TEMPLATE: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&POD_SPEC)),
]);

/// Types that make Pods from `spec.template`.
const CONTROLLER: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&CONTROLLER_SPEC)),
    ("status", Field::Of(&CONDITIONS)),
]);

const CONTROLLER_SPEC: Type = Type(&[
    ("template", Field::Of(&TEMPLATE)),
    ("volumeClaimTemplates", Field::Listed(&PLAIN)),
]);

const CRON_JOB: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&CRON_JOB_SPEC)),
]);

const CRON_JOB_SPEC: Type = Type(&[("jobTemplate", Field::Of(&JOB_TEMPLATE))]);

const JOB_TEMPLATE: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&CONTROLLER_SPEC)),
]);

const POD_TEMPLATE: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("template", Field::Of(&TEMPLATE)),
]);

/// Metadata, and conditions in a status.
const PLAIN: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("status", Field::Of(&CONDITIONS)),
]);

/// Metadata, and nothing else that is merged.
const BARE: Type = Type(&[("metadata", Field::Of(&METADATA))]);

const NODE: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&NODE_SPEC)),
    ("status", Field::Of(&NODE_STATUS)),
]);

const NODE_SPEC: Type = Type(&[("podCIDRs", Field::Set)]);

const NODE_STATUS: Type = Type(&[
    ("addresses", Field::Keyed(&["type"], &NOTHING)),
    ("conditions", Field::Keyed(&["type"], &NOTHING)),
]);

const SERVICE: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&SERVICE_SPEC)),
    ("status", Field::Of(&CONDITIONS)),
]);

const SERVICE_SPEC: Type = Type(&[("ports", Field::Keyed(&["port", "protocol"], &NOTHING))]);

const SERVICE_ACCOUNT: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("secrets", Field::Keyed(&["name"], &NOTHING)),
]);

const WEBHOOKS: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("webhooks", Field::Keyed(&["name"], &WEBHOOK)),
]);

const WEBHOOK: Type = Type(&[("matchConditions", Field::Keyed(&["name"], &NOTHING))]);

const ADMISSION_POLICY: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&ADMISSION_POLICY_SPEC)),
]);

const ADMISSION_POLICY_SPEC: Type = Type(&[
    ("matchConditions", Field::Keyed(&["name"], &NOTHING)),
    ("variables", Field::Keyed(&["name"], &NOTHING)),
]);

const CSI_NODE: Type = Type(&[
    ("metadata", Field::Of(&METADATA)),
    ("spec", Field::Of(&CSI_NODE_SPEC)),
]);

const CSI_NODE_SPEC: Type = Type(&[("drivers", Field::Keyed(&["name"], &NOTHING))]);

const ADMISSION: &str = "admissionregistration.k8s.io";

/// Groups of Kubernetes' own types: of those that are not among the [`KINDS`] only metadata is merged. What
/// users define may be in any other group, whatever its name ends with.
const GROUPS: &[&str] = &[
    "",
    ADMISSION,
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Group and kind of each type.
const KINDS: &[(&str, &str, &Type)] = &[
    ("", "ConfigMap", &PLAIN),
    ("", "Endpoints", &PLAIN),
    ("", "Event", &PLAIN),
    ("", "LimitRange", &PLAIN),
    ("", "Namespace", &PLAIN),
    ("", "Node", &NODE),
    ("", "PersistentVolume", &PLAIN),
    ("", "PersistentVolumeClaim", &PLAIN),
    ("", "Pod", &POD),
    ("", "PodTemplate", &POD_TEMPLATE),
    ("", "ReplicationController", &CONTROLLER),
    ("", "ResourceQuota", &PLAIN),
    ("", "Secret", &PLAIN),
    ("", "Service", &SERVICE),
    ("", "ServiceAccount", &SERVICE_ACCOUNT),
    ("apiregistration.k8s.io", "APIService", &PLAIN),
    ("apps", "DaemonSet", &CONTROLLER),
    ("apps", "Deployment", &CONTROLLER),
    ("apps", "ReplicaSet", &CONTROLLER),
    ("apps", "StatefulSet", &CONTROLLER),
    ("autoscaling", "HorizontalPodAutoscaler", &PLAIN),
    ("batch", "CronJob", &CRON_JOB),
    ("batch", "Job", &CONTROLLER),
    ("discovery.k8s.io", "EndpointSlice", &PLAIN),
    ("networking.k8s.io", "Ingress", &PLAIN),
    ("networking.k8s.io", "IngressClass", &PLAIN),
    ("networking.k8s.io", "NetworkPolicy", &PLAIN),
    ("policy", "PodDisruptionBudget", &PLAIN),
    ("rbac.authorization.k8s.io", "ClusterRole", &PLAIN),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", &PLAIN),
    ("rbac.authorization.k8s.io", "Role", &PLAIN),
    ("rbac.authorization.k8s.io", "RoleBinding", &PLAIN),
    ("scheduling.k8s.io", "PriorityClass", &PLAIN),
    ("storage.k8s.io", "CSINode", &CSI_NODE),
    ("storage.k8s.io", "StorageClass", &PLAIN),
    (ADMISSION, "MutatingWebhookConfiguration", &WEBHOOKS),
    (ADMISSION, "ValidatingWebhookConfiguration", &WEBHOOKS),
    (ADMISSION, "ValidatingAdmissionPolicy", &ADMISSION_POLICY),
    (ADMISSION, "MutatingAdmissionPolicy", &ADMISSION_POLICY),
];
